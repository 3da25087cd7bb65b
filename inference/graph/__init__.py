"""From a `pm.Model` to arrays: the only package that takes a graph apart.

In: a model. Out: a `LatentGaussian`, whose `.at(theta)` is a `SiteModel`; gradients with respect
to θ; which conditionals are Gammas; private copies of a model; fingerprints of data and model.
Open `read.py` first; `latent.py` evaluates what was read, `verify.py` checks it by number.
"""
