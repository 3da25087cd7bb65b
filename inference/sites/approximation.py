"""What an approximation gives, whatever its rule: a Gaussian, its evidence, and its adjoints.

A rule (Laplace, EP, a bound) replaces each site by a Gaussian. The outer loops
(`hyper/settings.py`, `ard/sequential_ard.py`) only know this protocol.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from ardvark.inference.sites.likelihoods import Array
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import Posterior

__all__ = ["Approximation", "Cotangents", "GaussianFit"]


class GaussianFit(NamedTuple):
    """A Gaussian posterior, the sites it came from, and how it was found.

    `info` has numbers on the search (for Laplace: `gradient_norm`, the largest slope of psi at the
    mode in units of posterior standard deviations; `decrement`, what the last Newton step promised
    in nats; `indefinite`, 1 if psi is not concave there and negative curvatures were set to zero).
    `by_row` has what the method knows of each row, `by_sweep` how it got there, for the tree.
    """

    posterior: Posterior
    log_evidence: float
    iterations: int
    converged: bool
    site_precision: Array
    site_shift: Array
    info: dict[str, float]
    by_row: Mapping[str, Array] = MappingProxyType({})
    by_sweep: Mapping[str, Array] = MappingProxyType({})


class Cotangents(NamedTuple):
    """Adjoints of the log evidence.

    With respect to m0, the prior's precision (or dense covariance), A and o. The likelihood's own
    part of d log Z is sum_qn (site_value dl_n + site_first dl'_n + site_second dl''_n) at the fixed
    points `site_eta` (Q, N): the mode for Laplace, the nodes of a quadrature for EP.
    """

    mean: Array
    precision: Array | None
    covariance: Array | None
    projection: Array
    offset: Array
    site_eta: Array
    site_value: Array
    site_first: Array
    site_second: Array


class Approximation(Protocol):
    """A rule that replaces sites by Gaussians, with the adjoint of its evidence."""

    def approximate(self, model: SiteModel, warm: GaussianFit | None = None) -> GaussianFit:
        """Gaussian posterior of `model`, started from a fit of a model nearby."""

    def evidence_gradient(self, model: SiteModel, fit: GaussianFit) -> Cotangents:
        """Adjoints of `fit.log_evidence`."""
