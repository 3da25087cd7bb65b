"""A `pm.Model` as a whole: compiled, copied, simulated, fingerprinted. No Gaussian block here.

In: a model (or bambi's: `own.py`). Out: functions of arrays, made once and kept with the model
(`compile.py`, which every reader of graphs uses and which is to be opened first); private copies
with other data (`copies.py`); fingerprints of data and model (`fingerprint.py`); the second form of
a builder's graph (`forms.py`); draws from the prior (`simulate.py`).
"""
