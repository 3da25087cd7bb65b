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
from ardvark.inference.sites.quadrature import Array, Tilted, quadrature_tilted

__all__ = [
    "Array",
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
    "recognise",
]

RECOGNITION_GRID = np.linspace(-2.9, 3.1, 7)  # off zero, where a user's site may be special
MOST_LOOKS = 40  # at a Gaussian site, from the grid to its own top
BLURRED = 1e-8  # bend of three points, relative to their values: less is rounding
RECOGNITION_TOLERANCE = 1e-6  # PyMC's own inverse probit is off by 2e-7 on the grid


class Derivatives(NamedTuple):
    """The log site and its first three derivatives in eta."""

    value: Array
    first: Array
    second: Array
    third: Array


class Sites(Protocol):
    """What an inference rule may ask of the likelihood."""

    def log(self, eta: Array, /) -> Array:
        """Log site at eta (..., N)."""

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Log site and three derivatives at eta (..., N)."""

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """Moments of the site times N(mean, variance)."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class LogitSites:
    """1 / (1 + exp(-sign * eta))."""

    sign: Array

    def log(self, eta: Array, /) -> Array:
        """Log of the logistic function of sign * eta."""
        return np.asarray(log_expit(self.sign * eta))

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


def recognise(log_site: Callable[[Array], Array], rows: int | None = None) -> Sites | None:
    """Find the closed form behind `log_site` by its values (never by a name), or None.

    Parameters
    ----------
    log_site
        Maps eta (Q, N) to log sites (Q, N).
    rows
        N. Without it `log_site` is given (Q, 1) and must broadcast to its rows by itself.

    All rows must be of one family; signs, counts, means and precisions are inferred row by row
    and must then reproduce every value on the grid.
    """

    def evaluate(eta: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(log_site(eta), dtype=np.float64)

    grid = RECOGNITION_GRID[:, None] * np.ones((1, 1 if rows is None else rows))
    values = evaluate(grid)
    if values.ndim != 2 or values.size == 0:
        return None
    if np.isneginf(values).any():  # of the families only one has rows of no probability
        return _as_trigonometric(evaluate, values)
    if not np.isfinite(values).all():
        return None
    grid = np.broadcast_to(grid, values.shape)
    for family in (_as_binary, _as_gaussian, _as_poisson):
        sites = family(evaluate, grid, values)
        if sites is not None:
            return sites
    return None


def _as_binary(evaluate: Callable[[Array], Array], grid: Array, values: Array) -> Sites | None:
    """Probit or logit: the sign is the direction of growth, and nothing else is free."""
    sign = np.where(values[-1] > values[0], 1.0, -1.0)
    for family in (ProbitSites, LogitSites):
        sites = family(sign)
        if _close(sites.log(grid), values, np.abs(values)):
            return sites
    return None


def _as_trigonometric(evaluate: Callable[[Array], Array], values: Array) -> Sites | None:
    """The SVM's likelihood: zero beyond one margin and one beyond the other."""
    from ardvark.inference.sites.trigonometric import TrigonometricSites  # which needs this file

    sites = TrigonometricSites(np.where(values[-1] > values[0], 1.0, -1.0))
    grid = np.array([-3.0, -1.01, -0.99, -0.7, -0.3, 0.2, 0.6, 0.95, 1.01, 3.0])[:, None]
    ours, theirs = (
        sites.log(grid * np.ones_like(values[:1])),
        evaluate(grid * np.ones_like(values[:1])),
    )
    finite = np.isfinite(ours)
    same = np.array_equal(finite, np.isfinite(theirs)) and not np.isposinf(theirs).any()
    if not same or np.isnan(theirs).any():
        return None
    return sites if _close(ours[finite], theirs[finite], np.abs(ours[finite]) + 1e-9) else None


@np.errstate(all="ignore")
def _as_gaussian(evaluate: Callable[[Array], Array], grid: Array, values: Array) -> Sites | None:
    """Fit a parabola to three points, then again 3 sd around its own top, and check both places.

    Each look from its own top keeps the digits of a narrow site far away from the grid, and tells a
    wide Student-t or a straight line from a parabola. Where three points lie so close that their
    bend is rounding (a target in the millions), they are drawn apart first.
    """
    if not _close(np.diff(values, 3, axis=0), 0.0, np.ptp(values, axis=0) + np.abs(values).max(0)):
        return None  # a parabola has no third difference
    mean, reach, three = grid[3].copy(), grid[6] - grid[3], values[[0, 3, 6]]
    looks = 0
    for _ in range(MOST_LOOKS):
        bend = -(three[0] - 2 * three[1] + three[2])
        blurred = np.abs(bend) < BLURRED * np.abs(three).max(axis=0)
        if not np.all((bend > 0) | blurred):
            return None
        if blurred.any():
            reach = np.where(blurred, 100.0 * reach, reach)
        else:
            precision = bend / reach**2
            shift = (three[2] - three[0]) / (2 * reach) / precision
            top, mean = three[1] + 0.5 * precision * shift**2, mean + shift
            reach, looks = 3.0 / np.sqrt(precision), looks + 1
        try:
            three = evaluate(mean + reach * np.array([-1.0, 0.0, 1.0])[:, None])
        except ValueError:  # a graph checks its parameters; those of a Gaussian have no bounds
            return None
        if not np.isfinite(three).all():
            return None
        if looks >= 3 and not blurred.any() and np.all(np.abs(shift) <= 1e-4 * reach):
            break
    else:
        return None
    sites = GaussianSites(mean, precision, top)
    around = mean + reach * np.array([-3.0, -1.0, -0.3, 0.3, 1.0, 3.0])[:, None]
    on_grid = _close(sites.log(grid), values, np.ptp(values, axis=0) + np.abs(values))
    return sites if on_grid and _close(sites.log(around), evaluate(around), 40.0) else None


def _as_poisson(evaluate: Callable[[Array], Array], grid: Array, values: Array) -> Sites | None:
    """Log link: the curvature gives the exposure, the slope the count."""
    step = grid[1, 0] - grid[0, 0]
    curvature = values[6] - 2 * values[5] + values[4]
    exposure = -curvature / (2 * (np.cosh(step) - 1.0)) / np.exp(grid[5])
    if np.any(exposure <= 0.0):
        return None
    slope = (values[6] - values[4] + exposure * (np.exp(grid[6]) - np.exp(grid[4]))) / (2 * step)
    count = np.round(slope)
    if np.any(count < 0.0) or not _close(slope, count, 1.0 + count):
        return None
    sites = PoissonSites(count, np.log(exposure))
    wide = np.array([-8.0, -5.0, 5.0, 8.0])[:, None] * np.ones_like(grid[:1])
    for points, found in ((grid, values), (wide, evaluate(wide))):
        if not _close(sites.log(points), found, np.ptp(found, axis=0)):
            return None
    return sites


def _close(ours: Array, theirs: Array | float, scale: Array | float) -> bool:
    return bool(np.all(np.abs(ours - theirs) <= RECOGNITION_TOLERANCE * scale))


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
