"""Models of many effects against what is known of them by other means.

    OMP_NUM_THREADS=1 python -m ardvark.studies.speed.truth lip walk gaussian_walk one_way

| task            | model                                         | reference                      |
| --------------- | --------------------------------------------- | ------------------------------ |
| `lip`           | lip cancer in 56 districts of Scotland, BYM   | NUTS of nutpie, 4 x 5000       |
| `walk`          | 10,000 counts whose log rate is a random walk | NUTS of nutpie, 4 x 1000       |
| `gaussian_walk` | 10,000 points under noise, both sds unknown   | Kalman's smoother, θ on grid   |
| `one_way`       | logit, an effect for each group of ten rows   | quadrature group by group      |

The walk is sampled in coordinates that are almost independent and almost of unit size,
v = P⁻¹b + L⁻ᵀz with L L' = P(s) the precision under fixed Gaussian sites at every s: the density is
the model's own (it is held against PyMC's), and only the coordinates know of the Gaussian.

A GLMM with one grouping factor factorises over the groups given fixed effects and sd. Each factor
is an integral over one number (adaptive Gauss-Hermite, 21 nodes), so that the density of the four
others is known. They are drawn from a Gaussian at its mode and weighed by importance.

References of NUTS are kept in `studies/results/effects/`; rows go to `studies/results/large.json`,
the table of them to `docs/large_models_table.md`.

`__main__.py` runs it; `models.py` has the models, `moments.py` what is compared, `walks.py` and
`one_way.py` the references.
"""
