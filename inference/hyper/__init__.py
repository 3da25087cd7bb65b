"""What happens to θ around an approximation: the second, independent choice of a fit.

In: a `LatentGaussian`, a method and one of `Fixed`, `Evidence`, `Predictive`, `Integrated`,
`Sampled`. Out: `Settled`, the hyperparameters with the fit at them, or a `Mixture` of nodes. Open
`settings.py` first, then `settle.py`; `ascent.py` searches by gradient (`descend.py`), `starts.py`
says where, `path.py` scores a path. `integrated.py` integrates: `axes.py`, `integrate.py` and
`pareto.py` are its arrays, `run_integrated.py` makes the tree.
"""
