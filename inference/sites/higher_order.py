"""What Laplace's evidence leaves out, to second order in the derivatives of the sites.

With v = var(eta) and C = cov(eta) under Laplace's Gaussian, l3 and l4 the third and fourth
derivatives of the log sites at the mode,

    log Z ≈ log Z_Laplace + 1/8 Σ l4 v² + 1/8 (l3 v)'C (l3 v) + 1/12 Σ_mn l3_m l3_n C_mn³

| Shun & McCullagh 1995, the terms of order 1/n      | code                     |
|-----------------------------------------------------|--------------------------|
| one vertex with four ends; two with three, two ways  | `laplace_evidence_error` |

The sites give three derivatives; the fourth is a central difference of the third over a small part
of the posterior sd. It costs O(N² d).
"""

import numpy as np

from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import Posterior

__all__ = ["laplace_evidence_error"]

STEP = 0.02  # of the posterior sd of eta


def laplace_evidence_error(model: SiteModel, posterior: Posterior, eta: Array) -> float:
    """What would have to be added to Laplace's log evidence; of scalar sites."""
    variance = posterior.eta_variance
    step = STEP * np.sqrt(np.maximum(variance, 1e-12))
    third = model.sites.derivatives(eta).third
    above, below = (model.sites.derivatives(eta + side * step).third for side in (1.0, -1.0))
    fourth = (above - below) / (2.0 * step)
    covariance = posterior.cross_covariance @ model.projection.T
    weighted = third * variance
    ends = fourth @ variance**2 + weighted @ covariance @ weighted
    return float(ends / 8.0 + third @ covariance**3 @ third / 12.0)
