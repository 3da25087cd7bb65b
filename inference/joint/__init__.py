"""The density of weights and hyperparameters together, without a compiler: for NUTS.

In: a `LatentGaussian`. Out: a `Joint`, whose log density and gradient are those of
`known_sites/joint_density.py` and were held against PyMC's own, or the reason why there is none.
Open `joint.py` first; `parts.py` takes the model apart, `line_priors.py` knows the priors of θ on
the real line.
"""
