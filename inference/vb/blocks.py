"""Blocks of weights and of their precisions: each knows its update and its part of the bound.

    log p(t) >= ELBO = E log p(t | eta, noise) + [E log p(w | alpha) + H(w)] - KL(alpha) - KL(noise)

| block              | code            | update                       |
|--------------------|-----------------|------------------------------|
| q(w) Gaussian      | `GaussianBlock` | Mir17 (14), (15), (24)-(27)  |
| q(alpha) Gamma     | `Gamma`         | Mir17 (16), (17), (28), (29) |
| alpha given        | `Known`         | none                         |

The likelihood is in `rows.py`: a parabola below each row's log p(t_n | eta_n).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import digamma, gammaln

from ardvark.inference.sites.arrays import Array, Mask

__all__ = [
    "Gamma",
    "GaussianBlock",
    "Known",
    "Precisions",
    "conjugate",
    "gaussian_block",
    "weights_term",
]


_LOG_2PI = float(np.log(2.0 * np.pi))


class GaussianBlock(NamedTuple):
    """N(mean, root root'), root upper triangular."""

    mean: Array
    root: Array
    half_log_det: float  # of the covariance

    @staticmethod
    def of(mean: Array, covariance: Array) -> "GaussianBlock":
        """The block with this mean and covariance."""
        root = np.linalg.cholesky(covariance[::-1, ::-1])[::-1, ::-1]
        return GaussianBlock(mean, root, float(np.log(root.diagonal()).sum()))

    @property
    def second(self) -> Array:
        """E w² of each weight."""
        return np.asarray(self.mean**2 + np.sum(self.root**2, axis=1))

    @property
    def covariance(self) -> Array:
        """Covariance of the weights."""
        return np.asarray(self.root @ self.root.T)

    def scaled(self, c: float) -> "GaussianBlock":
        """The law of c times these weights."""
        return GaussianBlock(
            c * self.mean, c * self.root, self.half_log_det + len(self.mean) * np.log(c)
        )

    def kept(self, keep: Mask) -> "GaussianBlock":
        """The law of some of the weights."""
        return GaussianBlock.of(self.mean[keep], self.covariance[np.ix_(keep, keep)])

    def draws(self, n: int, rng: np.random.Generator) -> Array:
        """Independent draws (n, k)."""
        return np.asarray(self.mean + rng.standard_normal((n, len(self.mean))) @ self.root.T)

    def log_density(self, weights: Array) -> Array:
        """Log density at weights (..., k)."""
        deviation = (weights - self.mean).reshape(-1, len(self.mean)).T
        white = solve_triangular(self.root, deviation)
        constant = self.half_log_det + 0.5 * len(self.mean) * _LOG_2PI
        return np.asarray(-0.5 * np.sum(white**2, axis=0) - constant).reshape(weights.shape[:-1])


def gaussian_block(precision: Array, shift: Array) -> GaussianBlock:
    """N with this precision matrix, and mean = covariance shift."""
    lower, failed = dpotrf(precision, lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError("the precision of a block of weights is not positive definite")
    root = dtrtri(lower, lower=1)[0].T
    return GaussianBlock(root @ (root.T @ shift), root, -float(np.log(lower.diagonal()).sum()))


class Gamma(NamedTuple):
    """Gamma(shape, rate), elementwise."""

    shape: Array
    rate: Array

    @property
    def mean(self) -> Array:
        """E alpha."""
        return np.asarray(self.shape / self.rate)

    @property
    def mean_log(self) -> Array:
        """E log alpha."""
        return np.asarray(digamma(self.shape) - np.log(self.rate))

    def minus_kl(self, prior: "Gamma") -> float:
        """E log prior - E log q, summed."""
        ours = self.shape * np.log(self.rate) - gammaln(self.shape)
        theirs = prior.shape * np.log(prior.rate) - gammaln(prior.shape)
        moved = (prior.shape - self.shape) * self.mean_log - (prior.rate - self.rate) * self.mean
        return float(np.sum(theirs - ours + moved))

    def log_density(self, values: Array) -> Array:
        """Log density at values (..., k), elementwise."""
        constant = self.shape * np.log(self.rate) - gammaln(self.shape)
        return np.asarray(constant + (self.shape - 1.0) * np.log(values) - self.rate * values)

    def draws(self, n: int, rng: np.random.Generator) -> Array:
        """Independent draws (n, k)."""
        return rng.gamma(self.shape, 1.0 / self.rate, (n, *np.shape(self.shape)))

    def kept(self, keep: Mask) -> "Gamma":
        """Some of them."""
        return Gamma(self.shape[keep], self.rate[keep])


class Known(NamedTuple):
    """Precisions that are given, with the interface of a Gamma."""

    values: Array

    @property
    def mean(self) -> Array:
        """Themselves."""
        return self.values

    @property
    def mean_log(self) -> Array:
        """Their logarithms."""
        return np.asarray(np.log(self.values))

    def minus_kl(self, prior: Gamma) -> float:
        """Nothing is inferred."""
        return 0.0

    def kept(self, keep: Mask) -> "Known":
        """Some of them."""
        return Known(self.values[keep])


type Precisions = Gamma | Known


def conjugate(prior: Gamma, second: Array, count: Array | float = 1.0) -> Gamma:
    """Update precisions of `count` weights each, `second` their E w² summed."""
    rate = np.asarray(prior.rate + 0.5 * second)
    return Gamma(prior.shape + 0.5 * count + np.zeros_like(rate), rate)  # Mir17 (16), (17)


def weights_term(
    mean_log_alpha: Array, mean_alpha: Array, second: Array, half_log_det: float
) -> float:
    """E log p(w | alpha) + H(w); the 2 pi of the two cancel."""
    quadratic = np.sum(mean_log_alpha - mean_alpha * second + 1.0)
    return 0.5 * float(quadratic) + half_log_det
