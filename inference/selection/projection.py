"""A reference posterior projected onto fewer columns, in NumPy: least squares, or Newton.

Each draw of the reference says how the data would be distributed, p(t | eta); its projection onto a
submodel eta' = A b + o is the b that is nearest to it in Kullback-Leibler divergence (Goutis &
Robert 1998, Dupuis & Robert 2003). The data are not fitted again: what the reference knows is
handed down.

| likelihood | nearest b | divergence, summed over N rows |
|---|---|---|
| Gaussian | least squares of eta on A; sigma'² = sigma² + mean residual² | N log(sigma' / sigma) |
| two classes | regression of mu = p(1 | eta) on A by Newton | sum of KL(mu, mu') |

The path grows a submodel one column at a time, towards the reference's mean prediction. For two
classes the columns with the largest score statistic, (x'g)² / x'Wx with what is there projected
out, are tried in earnest. A column that adds nothing (a duplicate) has a score of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import LogitSites, ProbitSites

__all__ = ["Binary", "Gaussian", "Projected", "Submodels", "forward_path"]

TRIES = 5  # candidates that are refitted at each step of two classes
STEPS = 60  # of Newton
HALVINGS = 30
DECREMENT = 1e-13  # nats per row: half the squared Newton decrement
NOTHING = 1e-13  # of the first column's score: rounding
DEPENDENT = 1e-9  # of a column's length that is left once the others are projected out


class Projected(NamedTuple):
    """Draws of a submodel: predictor (S, N), noise sd (S,) or None, divergence (S,)."""

    eta: Array
    sigma: Array | None
    divergence: Array


class Submodels(Protocol):
    """What the path needs of a likelihood."""

    def project(self, columns: Array) -> Projected:
        """Project every draw onto some columns."""

    def log_density(self, t: Array, projected: Projected) -> Array:
        """Log p(t_n) of each draw, (S, N)."""

    def average(self) -> Submodels:
        """Give the same with the mean prediction as the only draw."""

    def scores(self, columns: Array, candidates: Array) -> Array:
        """How much each candidate promises to lower the divergence of the first draw."""


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """t ~ N(eta, sigma²): eta (S, N) without the offset, sigma (S,)."""

    eta: Array
    sigma: Array
    offset: Array

    @property
    def itself(self) -> Projected:
        """The reference as its own submodel."""
        return Projected(self.eta + self.offset, self.sigma, np.zeros(len(self.eta)))

    def project(self, columns: Array) -> Projected:
        """Least squares for all draws at once."""
        basis = _basis(columns)
        fitted = self.eta @ (basis @ basis.T)
        residual = np.mean(np.square(self.eta - fitted), axis=1)
        sigma = np.sqrt(self.sigma**2 + residual)
        divergence = self.eta.shape[1] * np.log(sigma / self.sigma)
        return Projected(fitted + self.offset, sigma, divergence)

    def log_density(self, t: Array, projected: Projected) -> Array:
        """Log N(t; eta, sigma²)."""
        assert projected.sigma is not None
        sigma = projected.sigma[:, None]
        z = (t - projected.eta) / sigma
        return np.asarray(-0.5 * z**2 - np.log(sigma) - 0.5 * np.log(2 * np.pi))

    def average(self) -> Gaussian:
        """Mean of eta; the noise of an average draw."""
        mean = self.eta.mean(axis=0, keepdims=True)
        return Gaussian(mean, np.sqrt(np.mean(self.sigma**2, keepdims=True)), self.offset)

    def scores(self, columns: Array, candidates: Array) -> Array:
        """By how much each candidate lowers the residual sum of squares: exactly."""
        basis = _basis(columns)
        left = candidates - basis @ (basis.T @ candidates)
        residual = self.eta[0] - basis @ (basis.T @ self.eta[0])
        return _gains(left, candidates, residual @ left, np.square(left).sum(axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class Binary:
    """P(t = 1) = link(eta): eta (S, N) without the offset."""

    eta: Array
    offset: Array
    link: type[ProbitSites] | type[LogitSites]
    mu: Array | None = None  # probabilities in place of those of eta

    @property
    def probability(self) -> Array:
        """Probability of class 1 under the reference, (S, N)."""
        if self.mu is not None:
            return self.mu
        return np.exp(self.link(np.ones(1)).log(self.eta + self.offset))

    @property
    def itself(self) -> Projected:
        """The reference as its own submodel."""
        return Projected(self.eta + self.offset, None, np.zeros(len(self.eta)))

    def project(self, columns: Array) -> Projected:
        """Newton for all draws at once, from the least squares of eta."""
        mu = self.probability
        beta = (np.linalg.pinv(columns) @ self.eta.T).T
        beta = _newton(columns, beta, lambda b: self._curve(b @ columns.T, mu))
        eta = beta @ columns.T + self.offset
        divergence = np.maximum(_entropies(mu) - self._value(eta, mu), 0.0)
        return Projected(eta, None, divergence)

    def log_density(self, t: Array, projected: Projected) -> Array:
        """Log p(t | eta) of labels 0 and 1."""
        return self.link(np.where(t == 1, 1.0, -1.0)).log(projected.eta)

    def average(self) -> Binary:
        """The mean probability, and the predictor that is nearest to it from the start."""
        mu = self.probability.mean(axis=0, keepdims=True)
        return Binary(self.eta.mean(axis=0, keepdims=True), self.offset, self.link, mu)

    def scores(self, columns: Array, candidates: Array) -> Array:
        """Score statistics at the submodel's own projection."""
        mu = self.probability[:1]
        eta = self.project(columns).eta[:1] - self.offset
        _, first, weight = (part[0] for part in self._curve(eta, mu))
        root = np.sqrt(weight)[:, None]
        basis = _basis(root * columns)
        scaled = root * candidates
        left = scaled - basis @ (basis.T @ scaled)
        return _gains(left, scaled, first @ candidates, np.square(left).sum(axis=0))

    def _value(self, eta: Array, mu: Array) -> Array:
        """Expected log density (S,) under the reference; `eta` with the offset."""
        one, zero = self.link(np.ones(1)).log(eta), self.link(-np.ones(1)).log(eta)
        return np.asarray((mu * one + (1 - mu) * zero).sum(axis=1))

    def _curve(self, eta: Array, mu: Array) -> tuple[Array, Array, Array]:
        """Expected log density (S,), its derivative and minus its second one in eta, (S, N)."""
        one = self.link(np.ones(1)).derivatives(eta + self.offset)
        zero = self.link(-np.ones(1)).derivatives(eta + self.offset)
        value = (mu * one.value + (1 - mu) * zero.value).sum(axis=1)
        first = mu * one.first + (1 - mu) * zero.first
        return value, first, -(mu * one.second + (1 - mu) * zero.second)


def forward_path(reference: Submodels, design: Array, always: Array, most: int) -> list[int]:
    """Columns in the order in which they bring a submodel nearest to the reference.

    Parameters
    ----------
    design : (N, d)
    always : (d,) booleans
        Columns that every submodel has (the constant); they are not in the answer.
    most
        Length at most; it ends earlier when no column adds anything.
    """
    mean = reference.average()
    taken: list[int] = np.flatnonzero(always).tolist()
    path: list[int] = []
    largest = 0.0
    while len(path) < most:
        free = np.array([j for j in range(design.shape[1]) if j not in taken], dtype=int)
        if not len(free):
            break
        scores = mean.scores(design[:, taken], design[:, free])
        largest = max(largest, scores.max())
        order = np.argsort(-scores, kind="stable")[:TRIES]
        best = free[order[scores[order] > NOTHING * largest]]
        if not len(best):
            break
        if isinstance(mean, Gaussian):  # the score is exact
            chosen = int(best[0])
        else:
            tried = [mean.project(design[:, [*taken, j]]).divergence[0] for j in best]
            chosen = int(best[int(np.argmin(tried))])
        taken.append(chosen)
        path.append(chosen)
    return path


# --------------------------------------------------------------------------------------- algebra


def _basis(columns: Array) -> Array:
    """Orthonormal basis (N, rank) of the span of some columns."""
    left, size, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, size > 1e-12 * size.max(initial=0.0)])


def _gains(left: Array, whole: Array, slope: Array, size: Array) -> Array:
    """Give slope² / size, 0 for a column that lies in the span of the others."""
    own = size > DEPENDENT**2 * np.square(whole).sum(axis=0)
    return np.divide(slope**2, size, out=np.zeros_like(size), where=own & (size > 0))


def _entropies(mu: Array) -> Array:
    """Sum over rows of mu log mu + (1 - mu) log(1 - mu)."""
    safe = np.clip(mu, 1e-300, 1.0)
    other = np.clip(1.0 - mu, 1e-300, 1.0)
    return np.asarray((mu * np.log(safe) + (1 - mu) * np.log(other)).sum(axis=1))


def _newton(
    columns: Array, beta: Array, curve: Callable[[Array], tuple[Array, Array, Array]]
) -> Array:
    """Maximise concave functions of beta (S, k), one for each draw, with halved steps."""
    rows, k = columns.shape
    products = (columns[:, :, None] * columns[:, None, :]).reshape(rows, k * k)
    value, first, weight = curve(beta)
    for _ in range(STEPS):
        gradient = first @ columns
        curvature = (weight @ products).reshape(-1, k, k)
        scale = np.trace(curvature, axis1=1, axis2=2) / max(k, 1)
        curvature = curvature + 1e-10 * scale[:, None, None] * np.eye(k) + 1e-300 * np.eye(k)
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        decrement = 0.5 * (gradient * step).sum(axis=1)
        moving = decrement > DECREMENT * rows
        if not moving.any():
            break
        length = np.where(moving, 1.0, 0.0)
        for _ in range(HALVINGS):
            trial = beta + length[:, None] * step
            found = curve(trial)
            worse = (found[0] < value) & (length > 0)
            if not worse.any():
                break
            length = np.where(worse, 0.5 * length, length)
        else:
            length = np.where(worse, 0.0, length)
            trial = beta + length[:, None] * step
            found = curve(trial)
        beta = trial
        value, first, weight = found
        if not length.any():
            break
    return beta
