"""Samplers of a whole graph, and what is said of their chains.

In: a model or its reading. Out: draws with statistics, problems by name, R-hat and effective
sizes. Open `run.py` first (the tree), then `nuts.py`, `smc.py`, `elliptical_slice.py`;
`convergence.py` checks them (chains that go on until the checks pass: `until.py`).
"""
