"""Sites: log p(t_n | eta_n) as a function of the scalar predictor eta_n, one per row.

Arrays broadcast over leading axes; the last axis is the row. Notation: z = sign * eta for binary
labels, h(z) = N(z) / Phi(z) (the probit's hazard), x = -z in its tail.

| formula                                                             | code                  |
|---------------------------------------------------------------------|-----------------------|
| probit derivatives, RW06 (3.16)                                      | ProbitSites           |
| probit times a Gaussian, RW06 (3.58), (3.85), (3.86)                 | ProbitSites.tilted    |
| h(-x) = x + 1/(x + 2/(x + 3/(x + ...))), Abramowitz & Stegun 26.2.14 | _hazard_tail          |
| the SVM's trigonometric likelihood, Chu06 (7)                        | trigonometric.py      |
| everything else                                                      | quadrature.py         |

RW06 is Rasmussen & Williams, Gaussian Processes for Machine Learning.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import erfcx, expit, gammaln, log_expit, log_ndtr

from ardvark.errors import UnsupportedPair
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.quadrature import Tilted, quadrature_tilted

__all__ = [
    "Derivatives",
    "GaussianSites",
    "GraphSites",
    "LogitSites",
    "PoissonSites",
    "ProbitSites",
    "Sites",
    "StepSites",
    "Tilted",
    "hazard_of",
]


class Derivatives(NamedTuple):
    """The log site and its first three derivatives in eta."""

    value: Array
    first: Array
    second: Array
    third: Array


class Sites(Protocol):
    """What an inference rule needs of the likelihood."""

    def log(self, eta: Array, /) -> Array:
        """Log site at eta (..., N)."""

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Log site and three derivatives at eta (..., N)."""

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """Moments of the site times N(mean, variance)."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbitSites:
    """Phi(sign * eta), right to 1e-12 relative out to |eta| = 300."""

    sign: Array

    def log(self, eta: Array, /) -> Array:
        """Log Phi(sign * eta)."""
        return np.asarray(log_ndtr(self.sign * eta))

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Log Phi and its derivatives; none of them cancels in the tail."""
        z = self.sign * eta
        hazard, curvature, _, third = hazard_of(z)
        return Derivatives(log_ndtr(z), self.sign * hazard, -curvature, self.sign * third)

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """Moments of the probit times a Gaussian, in closed form."""
        scale = np.sqrt(1.0 + variance)
        z = self.sign * mean / scale  # RW06 (3.58)
        hazard, _, slack, _ = hazard_of(z)
        return Tilted(
            log_ndtr(z),
            mean + self.sign * variance * hazard / scale,  # RW06 (3.85)
            variance * (1.0 + variance * slack) / (1.0 + variance),  # RW06 (3.86), no cancellation
        )


@dataclass(frozen=True, slots=True)
class StepSites:
    """1 where sign * eta > 0, else 0: the limit of a probit without noise, for EP only."""

    sign: Array

    def log(self, eta: Array, /) -> Array:
        """0 or -inf."""
        return np.where(self.sign * eta > 0, 0.0, -np.inf)

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Refused: a step has none."""
        raise UnsupportedPair(
            "a step-function likelihood has no derivatives, so Laplace's expansion does not exist. "
            "Use EP(), or a probit likelihood with inputs scaled up."
        )

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """Moments of a truncated Gaussian."""
        sd = np.sqrt(variance)
        z = self.sign * mean / sd
        hazard, _, slack, _ = hazard_of(z)
        return Tilted(log_ndtr(z), mean + self.sign * sd * hazard, variance * slack)


@dataclass(frozen=True, slots=True, eq=False)
class LogitSites:
    """1 / (1 + exp(-sign * eta))."""

    sign: Array

    def log(self, eta: Array, /) -> Array:
        """Log of the logistic function of sign * eta."""
        z = self.sign * eta
        # log σ(z), a third of the time of SciPy's: eta of all draws and rows may be millions
        return np.asarray(np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z))))

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Log of the logistic function and its derivatives."""
        z = self.sign * eta
        below, product = expit(-z), expit(z) * expit(-z)
        third = self.sign * product * np.tanh(z / 2)
        return Derivatives(log_expit(z), self.sign * below, -product, third)

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """By quadrature: there is no closed form."""
        return quadrature_tilted(self.log, mean, variance)


@dataclass(frozen=True, slots=True)
class GaussianSites:
    """exp(log_scale - precision (eta - mean)^2 / 2)."""

    mean: Array
    precision: Array
    log_scale: Array

    def log(self, eta: Array, /) -> Array:
        """Log site: a parabola."""
        return np.asarray(self.log_scale - 0.5 * self.precision * (eta - self.mean) ** 2)

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Parabola and its derivatives."""
        first = self.precision * (self.mean - eta)
        second = np.broadcast_to(-self.precision, first.shape).astype(np.float64)
        return Derivatives(self.log(eta), first, second, np.zeros_like(first))

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """Product of two Gaussians."""
        ratio = self.precision * variance
        gap = self.mean - mean
        return Tilted(
            self.log_scale - 0.5 * (np.log1p(ratio) + self.precision * gap**2 / (1.0 + ratio)),
            mean + ratio * gap / (1.0 + ratio),
            variance / (1.0 + ratio),
        )


@dataclass(frozen=True, slots=True)
class PoissonSites:
    """Poisson(count; exp(eta + log_exposure))."""

    count: Array
    log_exposure: Array | float = 0.0

    def log(self, eta: Array, /) -> Array:
        """Log probability of the count; -inf where the rate overflows."""
        log_rate = eta + self.log_exposure
        with np.errstate(over="ignore"):
            return np.asarray(self.count * log_rate - np.exp(log_rate) - gammaln(self.count + 1.0))

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Log probability and its derivatives: beyond the first, minus the rate."""
        with np.errstate(over="ignore"):
            rate = np.exp(eta + self.log_exposure)
        return Derivatives(self.log(eta), self.count - rate, -rate, -rate)

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """By quadrature: there is no closed form."""
        return quadrature_tilted(self.log, mean, variance)


@dataclass(frozen=True, slots=True)
class GraphSites:
    """Sites compiled from a graph: any elementwise likelihood, moments by quadrature."""

    log: Callable[[Array], Array]
    derivatives: Callable[[Array], Derivatives]

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """By quadrature."""
        return quadrature_tilted(self.log, mean, variance)


def hazard_of(z: Array) -> tuple[Array, Array, Array, Array]:
    """h, h (z + h), 1 - h (z + h) and h ((z + h)(z + 2h) - 1), each to full relative accuracy."""
    z = np.asarray(z, dtype=np.float64)
    hazard = np.asarray(np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0)))
    excess = z + hazard
    curvature = np.asarray(hazard * excess)
    slack = np.asarray(1.0 - curvature)
    third = np.asarray(hazard * (excess * (excess + hazard) - 1.0))
    tail = z < -2.0  # from here on z + h loses digits; at -2 the loss is two of sixteen
    if tail.any():
        x = -z[tail]
        first, second, last = _hazard_tail(x)
        delta = 1.0 / (x + first)  # z + h
        curvature[tail] = (x + delta) * delta
        slack[tail] = delta * (first - delta)
        rise = (x + 3.0 * second - 2.0 * last) / ((x + second) * (x + last))  # second - first
        third[tail] = (x + delta) * delta * 2.0 * rise / ((x + first) * (x + second))
    return hazard, curvature, slack, third


def _hazard_tail(x: Array, terms: int = 80) -> tuple[Array, Array, Array]:
    """e_1, e_2, e_3 of h(-x) = x + 1/(x + e_1), e_k = (k + 1)/(x + e_(k+1)); 80 do for x >= 2."""
    rest = 0.5 * (np.sqrt(x**2 + 4.0 * terms) - x)  # where the fraction settles
    for k in range(terms, 3, -1):
        rest = k / (x + rest)
    e_3 = rest  # 4 / (x + 5 / (x + ...))
    e_2 = 3.0 / (x + e_3)
    return 2.0 / (x + e_2), e_2, e_3
