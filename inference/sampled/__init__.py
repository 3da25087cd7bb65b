"""`hyper=Sampled()`: weights and hyperparameters drawn in turn, with an approximation as kernel.

In: a reading and a method. Out: exact chains of w and θ. Open `run.py` first (the tree), then
`run_chains.py`; `kernels.py` and `exact_kernels.py` are the sweeps in machine code, `theta.py` the
slices of a θ without a known conditional.
"""
