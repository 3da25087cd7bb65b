"""The trigonometric site of the Bayesian SVM: flat beyond the margin, zero on the wrong side of it.

    p(t | eta) = 0 for z <= -1,   cos²(π/4 (1 - z)) for -1 < z < 1,   1 for z >= 1,   z = sign * eta

It is normalised (the two signs sum to one), log-concave, and has kinks at ±1: quadrature over the
whole line sees them as noise. The moments of site times Gaussian are therefore made of two parts,
the margin (-1, 1) by Gauss-Legendre on the piece of it that holds the mass, and the flat side in
closed form.

| Chu, Keerthi, Ong & Ghahramani 2006            | code                                         |
|------------------------------------------------|----------------------------------------------|
| loss (6), likelihood (7)                        | `TrigonometricSites.log`                     |
| second derivative Λ of the loss, after (14)     | `TrigonometricSites.derivatives`             |
| class probability of a new row (not printed)    | `TrigonometricSites.tilted`, its mass        |

With u = 1 + z and cavity N(m, v) in z: the log density of the margin part is concave with curvature
at least 1/v + π²/8, so nine sd of that width around its mode hold all but e^-40 of it.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import Derivatives, hazard_of
from ardvark.inference.sites.quadrature import Tilted

__all__ = ["TrigonometricSites"]

QUARTER = np.pi / 4
NODES = 64  # a Gaussian over ±9 sd, or u² e^-cu over its whole mass, to 1e-14
NEWTON_STEPS = 8  # for the mode of the margin part, which only places the nodes


@dataclass(frozen=True, slots=True)
class TrigonometricSites:
    """cos²(π/4 (1 - sign * eta)) on (-1, 1), 0 below and 1 above."""

    sign: Array

    def log(self, eta: Array, /) -> Array:
        """Log probability, right to full relative accuracy at both ends of the margin."""
        z = self.sign * np.asarray(eta, dtype=np.float64)
        inside = np.clip(z, -1.0, 1.0)
        with np.errstate(divide="ignore"):  # log 0 = -inf is the answer on the wrong side
            low = 2.0 * np.log(np.sin(QUARTER * (1.0 + inside)))
            high = np.log1p(-np.square(np.sin(QUARTER * (1.0 - inside))))
        return np.where(z < 0, low, high)  # minus Chu06 (6)

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Log probability and its derivatives; beyond the margin all of them are 0."""
        z = self.sign * np.asarray(eta, dtype=np.float64)
        inside = (z > -1.0) & (z < 1.0)
        angle = QUARTER * (1.0 - np.where(inside, z, 1.0))
        slope, square = np.tan(angle), 1.0 / np.square(np.cos(angle))
        return Derivatives(
            self.log(eta),
            self.sign * 0.5 * np.pi * slope,
            np.where(inside, -(np.pi**2) / 8.0 * square, 0.0),  # minus Λ of Chu06 (14)
            self.sign * np.pi**3 / 16.0 * square * slope,
        )

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """Moments of the site times a Gaussian: the margin by quadrature, the flat side exactly."""
        mean, variance = np.broadcast_arrays(np.asarray(mean, float), np.asarray(variance, float))
        m = self.sign * mean
        margin, flat = _margin(m, variance), _flat(m, variance)
        log_z = np.logaddexp(margin.log_mass, flat.log_mass)
        with np.errstate(invalid="ignore"):
            inner, outer = np.exp(margin.log_mass - log_z), np.exp(flat.log_mass - log_z)
        centre = inner * margin.mean + outer * flat.mean
        spread = inner * (margin.variance + (margin.mean - centre) ** 2)
        spread += outer * (flat.variance + (flat.mean - centre) ** 2)
        return Tilted(log_z, self.sign * centre, spread)

    def nodes(self, mean: Array, variance: Array, /) -> tuple[Array, Array]:
        """Points of eta (Q, N) and their shares of the tilted mass.

        The flat side is one point: a function of a flat site's log is the same all over it.
        """
        m = self.sign * mean
        margin, flat = _margin(m, variance), _flat(m, variance)
        log_z = np.logaddexp(margin.log_mass, flat.log_mass)
        share = margin.share * np.exp(margin.log_mass - log_z)
        z = np.concatenate([margin.z, flat.mean[None]])
        return self.sign * z, np.concatenate([share, np.exp(flat.log_mass - log_z)[None]])


class _Part(NamedTuple):
    """A part of the tilted density: its log mass, and the moments of what is in it."""

    log_mass: Array
    mean: Array
    variance: Array
    z: Array = np.zeros(0)  # nodes (Q, ..., N), and each one's share of this part
    share: Array = np.zeros(0)


def _flat(m: Array, variance: Array) -> _Part:
    """N(m, v) above 1: a truncated Gaussian."""
    sd = np.sqrt(variance)
    z = (m - 1.0) / sd
    ratio, _, slack, _ = hazard_of(z)
    return _Part(np.asarray(log_ndtr(z)), m + sd * ratio, variance * slack)


def _margin(m: Array, variance: Array) -> _Part:
    """cos²(π/4 (1 - z)) N(m, v) on (-1, 1), in u = 1 + z = 0 ... 2."""
    mode, stiffness = _mode(m, variance)
    reach = 9.0 / np.sqrt(1.0 / variance + np.pi**2 / 8.0)
    low = np.maximum(mode - reach, 0.0)
    high = np.minimum(mode + np.minimum(reach, 45.0 / np.sqrt(stiffness)), 2.0)
    points, weights = (part.reshape((-1,) + (1,) * m.ndim) for part in _legendre())
    half = 0.5 * (high - low)
    u = low + half * (1.0 + points)
    log_density = 2.0 * np.log(np.sin(QUARTER * u)) - (u - 1.0 - m) ** 2 / (2.0 * variance)
    top = log_density.max(axis=0)
    mass = weights * np.exp(log_density - top)
    total = mass.sum(axis=0)
    share = mass / total
    log_mass = np.log(half * total) + top - 0.5 * np.log(2.0 * np.pi * variance)
    centre = np.sum(share * u, axis=0)
    spread = np.sum(share * (u - centre) ** 2, axis=0)
    return _Part(log_mass, centre - 1.0, spread, u - 1.0, share)


def _mode(m: Array, variance: Array) -> tuple[Array, Array]:
    """Where the margin part is largest, in u, and minus its second log derivative there.

    The slope (π/2) cot(π u/4) - (u + c) / v is convex and falls; cot x <= 1/x gives a first guess
    from above, and Newton's steps then come from below.
    """
    c = -1.0 - m
    root = np.sqrt(c * c + 8.0 * variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        guess = np.where(c > 0, 4.0 * variance / (root + c), 0.5 * (root - c))
    u = least = np.clip(guess, 1e-150, 2.0)
    least = 1e-3 * least
    for _ in range(NEWTON_STEPS):
        square = np.square(np.sin(QUARTER * u))
        slope = 0.5 * np.pi / np.tan(QUARTER * u) - (u + c) / variance
        u = np.clip(u + slope / (1.0 / variance + np.pi**2 / 8.0 / square), least, 2.0)
    return u, 1.0 / variance + np.pi**2 / 8.0 / np.square(np.sin(QUARTER * u))


@cache
def _legendre() -> tuple[Array, Array]:
    points, weights = np.polynomial.legendre.leggauss(NODES)
    return points, weights
