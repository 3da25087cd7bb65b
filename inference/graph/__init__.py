"""From a `pm.Model` to arrays: the only package that takes a graph apart.

In: a model. Out: a `LatentGaussian`, whose `.at(theta)` is a `SiteModel`; gradients with respect
to θ; which conditionals are Gammas. Open `read.py` first; `find.py` says which variables are the
Gaussian block, `latent.py` evaluates what was read, `verify.py` checks it by number.
"""
