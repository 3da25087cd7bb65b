"""Mean-field variational Bayes of linear models, from conjugate blocks with an explicit bound.

In: a graph (`reading.py`) or arrays. Out: factors of weights, precisions and noise, and the ELBO.
Open `vb.py` (settings) and `linear.py` (the loop) first; `blocks.py` and `rows.py` are its parts,
`run.py` makes the tree.
"""
