"""Likelihoods that are known in machine code: found by value, evaluated without Python.

In: log sites of a graph as a function of the predictor. Out: `KnownSites`, whose derivatives and
tilted moments are numba kernels, or nothing. Open `recognition.py` first: it tries the families of
`recognisers.py`; `known.py` has the sites, `kernels.py` and `moments.py` their machine code,
`stacked.py` sites of several families. `packed.py`, `joint_density.py` and `many_rows.py` are the
log density of weights and hyperparameters with its gradient, for NUTS.
"""
