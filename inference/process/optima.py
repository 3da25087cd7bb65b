"""The posterior of hyperparameters, put together from the optima of the evidence: Chu06 (17).

    p(u | t) ≈ Σ_τ w_τ N(u; u_τ, S_τ)          u = log κ

| Chu, Keerthi, Ong & Ghahramani 2006   | code                                     |
|---------------------------------------|------------------------------------------|
| (17), all widths the same (figure 1)   | `reconstruct(..., sd=...)`              |
| weights (18)                           | `by_height`                             |
| weights by mass (not in the paper)     | `by_mass`: height times width           |

(18) weighs an optimum by its height, however narrow it is. Where the curvature is known, height
times width is Laplace's estimate of what lies under it.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from ardvark.inference.sites.arrays import Array

__all__ = ["Mixture", "by_height", "by_mass", "reconstruct"]


class Mixture(NamedTuple):
    """Gaussians in one log hyperparameter."""

    weight: Array  # (optimum,)
    centre: Array
    sd: Array

    def parts(self, u: Array) -> Array:
        """Weighted density of each Gaussian, (optimum, point)."""
        z = (np.asarray(u) - self.centre[:, None]) / self.sd[:, None]
        height = self.weight / (self.sd * np.sqrt(2.0 * np.pi))
        return np.asarray(height[:, None] * np.exp(-0.5 * np.square(z)))

    def density(self, u: Array) -> Array:
        """Their sum."""
        return np.asarray(self.parts(u).sum(axis=0))  # Chu06 (17)


def by_height(log_evidence: Array) -> Array:
    """Weights by the evidence alone."""
    return np.asarray(np.exp(log_evidence - logsumexp(log_evidence)))  # Chu06 (18)


def by_mass(log_evidence: Array, sd: Array) -> Array:
    """Weights by evidence times width."""
    return by_height(np.asarray(log_evidence) + np.log(sd))


def reconstruct(log_evidence: Array, centre: Array, sd: Array, *, mass: bool = False) -> Mixture:
    """Make (17) of optima at `centre`; one `sd` for all of them, or one for each."""
    values = np.asarray(log_evidence, dtype=np.float64)
    widths = np.broadcast_to(np.asarray(sd, dtype=np.float64), values.shape)
    weight = by_mass(values, widths) if mass else by_height(values)
    return Mixture(weight, np.asarray(centre, dtype=np.float64), widths)
