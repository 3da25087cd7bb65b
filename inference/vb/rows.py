"""Rows of a mean-field approximation: a parabola below each row's log p(t_n | eta_n).

In expectation a row is worth constant_n + shift_n E eta_n - precision_n E eta_n² / 2, so a block of
weights sees a Gaussian whatever the likelihood is, and a new likelihood is a new kind of rows.
`tightened` is the coordinate step of whatever the parabola hangs on.

| what the parabola hangs on                    | code             | step                       |
|-----------------------------------------------|------------------|----------------------------|
| q(beta), the noise precision, Gamma           | `GammaNoise`     | Mir17 (18), with N/2       |
| q(sigma), any prior, free form on nodes       | `FreeNoise`      | p sigma^-N exp(-S/2sigma²) |
| logistic, Jaakkola & Jordan 2000              | `LogisticRows`   | zeta² = E eta², Mir17 (30) |
| probit, Albert & Chib 1993: q(z) truncated    | `ProbitRows`     | centre = E eta             |

Mir17 (18) prints the shape a + (N + 1)/2: with N Gaussian terms it is a + N/2. Mir17 (30) prints a
sum over samples; zeta_n belongs to one. `test_sample_feature_vb.py` has both as controls that fail.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import log_expit

from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites, LogitSites, ProbitSites, Sites
from ardvark.inference.vb.blocks import Gamma, conjugate

__all__ = [
    "FixedRows",
    "FreeNoise",
    "GammaNoise",
    "GaussianRows",
    "GivenNoise",
    "LogisticRows",
    "Noise",
    "Parabola",
    "ProbitRows",
    "Rows",
    "bounded",
]

_LOG_2PI = float(np.log(2.0 * np.pi))
_FLAT = 1e-4  # below it tanh(zeta/2)/4 zeta is 1/8 to 1e-9 of itself, and zeta = 0 is no division


class Parabola(NamedTuple):
    """constant + shift eta - precision eta² / 2, below the log likelihood of each row."""

    constant: Array
    shift: Array
    precision: Array

    def value(self, mean: Array, second: Array) -> float:
        """Its expectation, summed over rows, from E eta and E eta²."""
        return float(np.sum(self.constant + self.shift * mean - 0.5 * self.precision * second))


class Rows(Protocol):
    """A likelihood as a mean-field approximation sees it."""

    @property
    def parabola(self) -> Parabola:
        """The bound of each row, as a function of its predictor."""

    @property
    def minus_kl(self) -> float:
        """E log prior - E log q of what the likelihood has of its own (noise)."""

    def tightened(self, mean: Array, second: Array, /) -> "Rows":
        """Rows whose bound is best at predictors with these E eta and E eta²."""


@dataclass(frozen=True, slots=True)
class FixedRows:
    """A Gaussian likelihood with known noise: nothing to tighten."""

    parabola: Parabola
    minus_kl: float = 0.0

    def tightened(self, mean: Array, second: Array, /) -> "FixedRows":
        """Give the same."""
        return self


@dataclass(frozen=True, slots=True)
class LogisticRows:
    """Logistic function of sign * eta, below by Jaakkola & Jordan's parabola touching at zeta."""

    sign: Array
    zeta: Array
    minus_kl: float = 0.0

    @property
    def parabola(self) -> Parabola:
        """Mir17 (20)."""
        f = curvature(self.zeta)
        constant = log_expit(self.zeta) - 0.5 * self.zeta + f * self.zeta**2
        return Parabola(constant, 0.5 * self.sign, 2.0 * f)

    def tightened(self, mean: Array, second: Array, /) -> "LogisticRows":
        """zeta_n² = E eta_n², one for each row."""
        return LogisticRows(self.sign, np.sqrt(second))  # Mir17 (30), of one sample


def curvature(zeta: Array) -> Array:
    """Give tanh(zeta/2) / 4 zeta, which is 1/8 at 0."""
    away = np.maximum(np.abs(zeta), _FLAT)
    return np.asarray(np.tanh(0.5 * away) / (4.0 * away))


@dataclass(frozen=True, slots=True)
class ProbitRows:
    """Phi(sign * eta) as P(sign z > 0), z ~ N(eta, 1); q(z) is N(centre, 1) cut at 0."""

    sign: Array
    centre: Array
    minus_kl: float = 0.0

    @property
    def parabola(self) -> Parabola:
        """E log p(z | eta) + H(z), with E z = centre + sign N/Phi."""
        log_cut, score, _, _ = ProbitSites(self.sign).derivatives(self.centre)
        latent = self.centre + score
        constant = log_cut + 0.5 * self.centre**2 - self.centre * latent
        return Parabola(constant, latent, np.ones_like(latent))

    def tightened(self, mean: Array, second: Array, /) -> "ProbitRows":
        """Centre each q(z) on E eta."""
        return ProbitRows(self.sign, mean)


def bounded(sites: Sites, n_rows: int) -> Rows | None:
    """Rows of a likelihood that has a bound, with values to start from."""
    if isinstance(sites, LogitSites):
        sign = np.broadcast_to(sites.sign, n_rows).astype(float)
        return LogisticRows(sign, np.ones(n_rows))
    if isinstance(sites, ProbitSites):
        sign = np.broadcast_to(sites.sign, n_rows).astype(float)
        return ProbitRows(sign, np.zeros(n_rows))
    if isinstance(sites, GaussianSites):
        precision = np.broadcast_to(sites.precision, n_rows).astype(float)
        constant = sites.log_scale - 0.5 * precision * sites.mean**2
        return FixedRows(Parabola(constant, precision * sites.mean, precision))
    return None


# --- noise ----------------------------------------------------------------------------------------


class Noise(Protocol):
    """The variational posterior of the noise precision, or its known value."""

    @property
    def mean(self) -> float:
        """E beta."""

    @property
    def mean_log(self) -> float:
        """E log beta."""

    @property
    def minus_kl(self) -> float:
        """E log prior - E log q."""

    def updated(self, rows: int, squares: float, /) -> "Noise":
        """Best q, given E |t - eta|² over so many rows."""


@dataclass(frozen=True, slots=True)
class GaussianRows:
    """t ~ N(eta, 1/beta)."""

    target: Array
    noise: Noise

    @property
    def parabola(self) -> Parabola:
        """E log N(t; eta, 1/beta)."""
        beta = self.noise.mean
        constant = 0.5 * (self.noise.mean_log - _LOG_2PI - beta * self.target**2)
        return Parabola(constant, beta * self.target, np.full_like(self.target, beta))

    @property
    def minus_kl(self) -> float:
        """Of the noise."""
        return self.noise.minus_kl

    def tightened(self, mean: Array, second: Array, /) -> "GaussianRows":
        """Update the noise."""
        squares = float(np.sum(self.target**2 - 2.0 * self.target * mean + second))
        return GaussianRows(self.target, self.noise.updated(len(self.target), max(squares, 0.0)))


@dataclass(frozen=True, slots=True)
class GammaNoise:
    """beta ~ Gamma: conjugate."""

    prior: Gamma
    q: Gamma

    @property
    def mean(self) -> float:
        """E beta."""
        return float(self.q.mean)

    @property
    def mean_log(self) -> float:
        """E log beta."""
        return float(self.q.mean_log)

    @property
    def minus_kl(self) -> float:
        """E log prior - E log q."""
        return self.q.minus_kl(self.prior)

    def updated(self, rows: int, squares: float, /) -> "GammaNoise":
        """Shape a + N/2, rate b + E |t - eta|² / 2."""
        return GammaNoise(
            self.prior, conjugate(self.prior, np.asarray(squares), rows)
        )  # Mir17 (18)


@dataclass(frozen=True, slots=True)
class GivenNoise:
    """A noise precision that is given."""

    mean: float
    minus_kl: float = 0.0

    @property
    def mean_log(self) -> float:
        """Its logarithm."""
        return float(np.log(self.mean))

    def updated(self, rows: int, squares: float, /) -> "GivenNoise":
        """Give the same."""
        return self


@dataclass(frozen=True)
class FreeNoise:
    """A noise sd with any prior: q(sigma) in free form, on nodes that are even in log sigma.

    q is proportional to p(sigma) sigma^-rows exp(-squares / 2 sigma²), the best there is. The
    trapezoid rule on nodes 0.7 sd of q apart is exact to 1e-15 for such a bell, and as the nodes
    never move the bound is that of one model at every step.
    """

    log_prior: Callable[[Array], Array]  # of sigma
    nodes: Array  # log sigma
    rows: int
    squares: float

    @staticmethod
    def around(
        log_prior: Callable[[Array], Array],
        scale: float,
        rows: int,
        squares: float,
        least: float = 0.0,
    ) -> "FreeNoise":
        """Nodes from a millionth to ten thousand times `scale`, none below `least`."""
        step = 0.7 / np.sqrt(2.0 * max(rows, 2))  # q(log sigma) has sd near 1/sqrt(2 N)
        centre = np.log(scale)
        lowest = max(centre - 14.0, np.log(max(least, 1e-300)))
        nodes = np.arange(lowest, max(centre, lowest) + 9.2, step)
        return FreeNoise(log_prior, nodes, rows, squares)

    @cached_property
    def _log_prior_mass(self) -> Array:
        spacing = self.nodes[1] - self.nodes[0]
        return np.asarray(self.log_prior(np.exp(self.nodes)) + self.nodes + np.log(spacing))

    @cached_property
    def _probability(self) -> Array:
        log_mass = self._log_prior_mass - self.rows * self.nodes
        log_mass = log_mass - 0.5 * self.squares * np.exp(-2.0 * self.nodes)
        mass: Array = np.exp(log_mass - log_mass.max())
        return np.asarray(mass / mass.sum())

    def expectation(self, values: Array) -> float:
        """Expectation of a function of sigma, given at the nodes."""
        return float(self._probability @ values)

    @property
    def mean(self) -> float:
        """E sigma^-2."""
        return self.expectation(np.exp(-2.0 * self.nodes))

    @property
    def mean_log(self) -> float:
        """E log sigma^-2."""
        return self.expectation(-2.0 * self.nodes)

    @property
    def mean_square(self) -> float:
        """E sigma²: what the noise adds to a predictive variance."""
        return self.expectation(np.exp(2.0 * self.nodes))

    @property
    def minus_kl(self) -> float:
        """E log prior - E log q."""
        held = self._probability > 0
        p = self._probability[held]
        return float(p @ (self._log_prior_mass[held] - np.log(p)))

    @property
    def at_the_edge(self) -> bool:
        """Whether the noise has run out of the nodes: nothing is left for it."""
        return bool(self._probability[:3].sum() > 1e-3)

    def updated(self, rows: int, squares: float, /) -> "FreeNoise":
        """The best q on the same nodes."""
        new = FreeNoise(self.log_prior, self.nodes, rows, squares)
        new.__dict__["_log_prior_mass"] = self._log_prior_mass  # the same nodes, the same prior
        return new

    def draws(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws of sigma and their log density under q: a piecewise constant, finely cut."""
        held = self.nodes[self._probability > 1e-12 * self._probability.max()]
        edges = np.linspace(held[0], held[-1], 4001)
        middle = 0.5 * (edges[1:] + edges[:-1])
        log_q = self.log_prior(np.exp(middle)) + (1 - self.rows) * middle
        log_q = log_q - 0.5 * self.squares * np.exp(-2.0 * middle)
        p = np.exp(log_q - log_q.max())
        p, width = p / p.sum(), edges[1] - edges[0]
        cell = rng.choice(len(p), n, p=p)
        u = middle[cell] + width * rng.uniform(-0.5, 0.5, n)
        return np.exp(u), np.log(p[cell] / width) - u  # the density of sigma, not of its log
