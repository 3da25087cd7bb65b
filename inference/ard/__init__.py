"""Arrays: searches over the precisions of automatic relevance determination.

In: a `SiteModel` or a design and a target. Out: precisions (infinite: pruned), the path that led
there, and the fit at its end. Open `sequential_ard.py` first (one weight at a time, any sites);
`gaussian_ard.py` is the fast one for Gaussian noise, `gradient.py` ends along the true slope,
`sparse_logistic.py` needs no table of columns.
"""
