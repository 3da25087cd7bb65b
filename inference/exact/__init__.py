"""Independent draws from the exact posterior at fixed hyperparameters.

In: a `SiteModel` with Gaussian or probit sites. Out: draws and an unbiased evidence. Open
`exact.py` first; `truncated_normal.py` draws from the orthant that a probit leaves.
"""
