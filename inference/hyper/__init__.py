"""What happens to θ around an approximation: the second, independent choice of a fit.

In: a `LatentGaussian`, a method and one of `Fixed`, `Evidence`, `Predictive`, `Sampled`. Out:
`Settled`, the hyperparameters with the fit at them. Open `settings.py` first; `ascent.py` searches
by gradient, `starts.py` says where, `path.py` scores a path.
"""
