"""Arrays: a Gaussian block times scalar sites, the one abstraction of the package.

    p(w, t | θ) = N(w; m0, P0⁻¹) · Π_n site_n(a_n'w + o_n)

In: arrays of prior, projection and likelihood. Out: `SiteModel`, the posterior under Gaussian
sites in weight or function space, and what a method must offer (`Approximation`). Nothing here
knows PyMC. Open `model.py` first, then `posterior.py` and `likelihoods.py`.
"""
