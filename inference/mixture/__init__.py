"""The family "mixture": class-conditional mixtures on an unknown subset of the inputs (Syk00).

In: an `rbf_mixture` model. Out: chains over subsets and kernels, or all subsets enumerated. Open
`run.py` first (the tree), then `chains.py`; `kernels.py` has the moves, `ladder.py` the powers of
the likelihood, `scouts.py` and `leaps.py` find and join modes, `background.py` has what is left
out. Under P(t | x): `run_conditional.py`, then `conditional/`. A given subset: `run_given.py`.
"""
