"""Arrays: a Gaussian block of many weights times scalar sites, as sparse rows.

In: rows J of prior and predictor, their weights, a likelihood. Out: a `SparseModel`, its posterior
under Gaussian sites, and adjoints at the entries of J. Open `model.py` first, then `posterior.py`;
`factor.py` factorises J'WJ and inverts it where it is not zero, `kernels.py` has the loops.
"""
