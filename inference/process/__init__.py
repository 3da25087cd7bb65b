"""The family "process": the Bayesian SVM with a trigonometric likelihood (Chu06).

In: a `trigonometric_svm` model. Out: mode by the dual, evidence on the support vectors, optima
weighed. Open `run.py` first (the tree); `dual.py` finds the mode, `support.py` the evidence,
`evidence.py` and `search.py` its optima.
"""
