"""Step methods for `pm.sample`: the kernels of this package inside PyMC's own sampler.

In: variables of the model in context. Out: steps that leave the posterior invariant. Open
`block.py` first (EP, Laplace, VB and exact moves of a Gaussian block); `gamma.py`, `scale.py` and
`subset.py` move precisions, scales and subsets of inputs.
"""
