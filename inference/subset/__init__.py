"""The family "subset": spike and slab over subsets of the inputs of a linear model.

In: a `subset_*` model. Out: chains over subsets, or all of them enumerated. Open `run.py` first
(the tree); `collapsed.py` and `laplace.py` run the chains on the moves of `kernels.py` and
`replace.py`, `factor.py` has the algebra, `enumerate.py` the small exact case.
"""
