"""What an approximation gives, whatever its rule: a Gaussian, its evidence, and its adjoints.

A rule (Laplace, EP, a bound) replaces each site by a Gaussian. The outer loops
(`hyper/settle.py`, `ard/sequential_ard.py`) only know this protocol.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from ardvark.inference.sites.arrays import Array, Index, Mask
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import Posterior

__all__ = [
    "REJECTED",
    "Approximation",
    "Cotangents",
    "GaussianFit",
    "RunOfSteps",
    "mean_shifts",
    "sd_shifts",
]

NOTHING = np.zeros(0)
REJECTED = 1e100  # minus a log evidence where there is none: a line search turns back from it


class GaussianFit(NamedTuple):
    """A Gaussian posterior, the sites it came from, and how it was found.

    `info` has numbers on the search (for Laplace: `gradient_norm`, the largest slope of psi at the
    mode in units of posterior standard deviations; `decrement`, what the last Newton step promised
    in nats; `indefinite`, 1 if psi is not concave there and negative curvatures were set to zero).
    `by_row` has what the method knows of each row, `by_weight` of each weight, `by_sweep` how it
    got there, for the tree. Its own estimate of its error: `mean_correction` and
    `variance_correction` of each weight are what would have to be added, and `info["mean_shift"]`
    is the largest of the first in sds, `info["sd_shift"]` of the second as a share of the sd.
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
    by_weight: Mapping[str, Array] = MappingProxyType({})

    def assessed(self, mean: Array, variance: Array | None = None) -> "GaussianFit":
        """With the estimated errors (d,) of the means, and of the variances where known."""
        found = {"mean_correction": mean}
        info = {"mean_shift": largest(mean_shifts(mean, self.posterior.marginal_variance))}
        if variance is not None:
            found["variance_correction"] = variance
            info["sd_shift"] = largest(sd_shifts(variance, self.posterior.marginal_variance))
        return self._replace(info=self.info | info, by_weight=dict(self.by_weight) | found)


def mean_shifts(correction: Array, variance: Array) -> Array:
    """Corrections of means in sds, without sign; 0 of what has no variance."""
    return np.abs(correction) / np.sqrt(np.where(variance > 0, variance, np.inf))


def sd_shifts(correction: Array, variance: Array) -> Array:
    """Corrections of variances as shares of the sds, without sign."""
    change = correction / np.where(variance > 0, variance, np.inf)
    return np.abs(np.sqrt(np.maximum(1.0 + change, 0.0)) - 1.0)


def largest(values: Array) -> float:
    """The largest of any number of values."""
    return float(values.max(initial=0.0))


class Cotangents(NamedTuple):
    """Adjoints of the log evidence.

    With respect to m0, the prior's precision (or dense covariance), A and o. The likelihood's own
    part of d log Z is sum_qn (site_value dl_n + site_first dl'_n + site_second dl''_n) at the fixed
    points `site_eta` (Q, N): the mode for Laplace, the nodes of a quadrature for EP.
    """

    offset: Array
    site_eta: Array
    site_value: Array
    site_first: Array
    site_second: Array
    mean: Array = NOTHING
    precision: Array | None = None
    covariance: Array | None = None
    projection: Array = NOTHING
    rows: Any = None  # `RowCotangents` of a sparse model, in place of all but the sites'


class RunOfSteps(NamedTuple):
    """Steps of sequential ARD, each of which gave one weight another precision, one in each row."""

    weight: Index  # (m,)
    gain: Array  # (m,) promised under fixed sites
    precision: Array  # (m, k) of the weights in the model, after the step
    log_evidence: Array  # (m,)
    info: list[dict[str, float]]
    fit_after: Callable[[int], GaussianFit]


class Approximation(Protocol):
    """A rule that replaces sites by Gaussians, with the adjoint of its evidence.

    A class that names it as its base has all but two methods from here.
    """

    def approximate(self, model: SiteModel, warm: GaussianFit | None = None) -> GaussianFit:
        """Gaussian posterior of `model`, started from a fit of a model nearby."""

    def assessed(self, model: SiteModel, fit: GaussianFit) -> GaussianFit:
        """The fit with the rule's own estimate of its error, and moved by it if that is asked."""
        return fit

    def evidence_gradient(self, model: SiteModel, fit: GaussianFit) -> Cotangents:
        """Adjoints of `fit.log_evidence`, of a fit that was not moved."""

    def loosened(self) -> Self:
        """The same rule for the many fits of a search, where fewer digits are enough."""
        return self

    def completed(self, model: SiteModel, fit: GaussianFit) -> GaussianFit:
        """Add what is made once, at the end."""
        return fit

    def run_of_steps(
        self,
        model: SiteModel,
        fit: GaussianFit,
        free: Mask,
        bounds: tuple[Array, Array],
        floor: float,
        most: int,
    ) -> RunOfSteps | None:
        """Steps of sequential ARD from `fit` that keep all weights, while one gains over `floor`.

        For a rule that makes many of them in one call; None: it makes each by itself.
        """
        return None
