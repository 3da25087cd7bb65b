"""A Gaussian prior on weights and scalar sites on their predictor: the arrays of every model.

    p(w, t) = N(w; m0, K) prod_n site_n(eta_n),   eta = A w + o

`K` is diagonal (`1 / precision`; infinite precision = an inactive weight, which stays at m0) or
dense, and is never inverted here. `posterior.py` conditions it on Gaussian sites.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import Sites

__all__ = ["Prior", "SiteModel", "factor_by_qr", "least_noise", "symmetric_factor"]

LEAST_NOISE = 1e-5  # of the target's root mean square: a perfect fit has no best noise


@dataclass(frozen=True, slots=True)
class SiteModel:
    """A Gaussian block times scalar sites, at given hyperparameters.

    Exactly one of `precision` and `covariance` is given.
    """

    mean: Array  # m0 (d,)
    projection: Array  # A (N, d) ...
    offset: Array  # ... and o (N,) of the predictor eta = A w + o
    sites: Sites  # the likelihood of each row as a function of its eta
    precision: Array | None = None  # (d,); inf switches the weight off: it stays at its prior mean
    covariance: Array | None = None  # (d, d)

    def __post_init__(self) -> None:
        """Refuse shapes that do not fit and precisions that are not positive."""
        rows, weights = self.projection.shape
        if (self.precision is None) == (self.covariance is None):
            raise ValueError("give a SiteModel either `precision` or `covariance`, and not both")
        if self.mean.shape != (weights,) or self.offset.shape != (rows,):
            raise ValueError(
                f"projection is {self.projection.shape}, so mean must be ({weights},) and offset "
                f"({rows},); found {self.mean.shape} and {self.offset.shape}"
            )
        if self.precision is not None and (
            self.precision.shape != (weights,) or not np.all(self.precision > 0)
        ):
            raise ValueError(f"precision must be {weights} positive numbers (inf = weight off)")
        if self.covariance is not None and self.covariance.shape != (weights, weights):
            raise ValueError(
                f"covariance must be ({weights}, {weights}); found {self.covariance.shape}"
            )

    @property
    def sparse(self) -> bool:
        """Whether the arrays are sparse (`sparse/model.py`)."""
        return False

    def prior(self) -> "Prior":
        """The prior on the weights, computed at each call: keep it to use it again."""
        return Prior(self)

    def predictor(self, weights: Array) -> Array:
        """Eta of weights (..., d): (..., N)."""
        return weights @ self.projection.T + self.offset

    def log_joint(self, weights: Array) -> Array:
        """Log p(t, w) at weights (..., d): normalised prior of the active ones, times sites."""
        eta = self.predictor(weights)
        rows = self.sites.log(eta.reshape(-1, eta.shape[-1])).reshape((*eta.shape[:-1], -1))
        return np.asarray(rows.sum(axis=-1) + self.prior().log_density(weights))


class Prior:
    """The prior on the active weights, with its products A K and A K A'."""

    def __init__(self, model: SiteModel) -> None:
        self.model = model
        self.on = np.ones(model.mean.size, bool)
        self.variance: Array | None = None
        if model.precision is not None:
            self.on = np.isfinite(model.precision)
            self.variance = 1.0 / model.precision[self.on]
        self.mean = model.mean[self.on]
        self.projection = model.projection if self.on.all() else model.projection[:, self.on]
        self.eta_mean = model.predictor(model.mean) if model.mean.any() else model.offset

    def conditioned(self, site_precision: Array, site_shift: Array) -> Any:
        """The posterior of a prior that has an algebra of its own; see `posterior.condition`."""
        raise NotImplementedError

    @cached_property
    def factor(self) -> Array:
        """C with C C' = K: (k,) when diagonal, else (k, k)."""
        if self.variance is not None:
            return np.sqrt(self.variance)
        assert self.model.covariance is not None
        return symmetric_factor(self.model.covariance)

    def coloured(self, white: Array) -> Array:
        """C' applied on the right: white (..., k) to draws of w - m0."""
        return white * self.factor if self.variance is not None else white @ self.factor.T

    def spread(self, force: Array) -> Array:
        """K x for x (..., k) in its last axis."""
        if self.variance is not None:
            return force * self.variance
        assert self.model.covariance is not None
        return force @ self.model.covariance

    def force(self, deviation: Array) -> Array:
        """K^-1 (w - m0), for weights (..., k); only a dense K has to be factorised for it."""
        if self.variance is not None:
            return deviation / self.variance
        columns = deviation.reshape(-1, deviation.shape[-1]).T
        return np.asarray(cho_solve(self._cholesky, columns).T.reshape(deviation.shape))

    @cached_property
    def _cholesky(self) -> tuple[Array, bool]:
        """Cholesky of a dense K, with a jitter of 1e-10 of its mean diagonal only if it fails."""
        covariance = self.model.covariance
        assert covariance is not None
        try:
            return cho_factor(covariance, lower=True)  # type: ignore[no-any-return]
        except np.linalg.LinAlgError:
            jitter = 1e-10 * np.trace(covariance) / len(covariance)
            return cho_factor(  # type: ignore[no-any-return]
                covariance + jitter * np.eye(len(covariance)), lower=True
            )

    @cached_property
    def half_log_det_precision(self) -> float:
        """1/2 log |K^-1|."""
        if self.variance is not None:
            return -0.5 * float(np.log(self.variance).sum())
        return -float(np.log(np.diag(self._cholesky[0])).sum())

    def log_density(self, weights: Array) -> Array:
        """Log N(w; m0, K) over the active weights."""
        deviation = weights[..., self.on] - self.mean
        quadratic = np.sum(deviation * self.force(deviation), axis=-1)
        constant = self.half_log_det_precision - 0.5 * self.mean.size * np.log(2 * np.pi)
        return np.asarray(constant - 0.5 * quadratic)

    @cached_property
    def white_projection(self) -> Array:
        """X = A C (N, k)."""
        if self.variance is not None:
            return self.projection * self.factor
        return self.projection @ self.factor

    @cached_property
    def cross(self) -> Array:
        """A K (N, k)."""
        return self.spread(self.projection)

    @cached_property
    def eta_covariance(self) -> Array:
        """S = A K A' (N, N)."""
        return self.cross @ self.projection.T


def symmetric_factor(matrix: Array) -> Array:
    """F with F F' = matrix: Cholesky, or eigenvectors where it is only semi-definite."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = eigh(matrix)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def factor_by_qr(root: Array) -> Array:
    """Lower L with L L' = root'root, from the root alone: no rounded square has to be definite."""
    upper = np.linalg.qr(root, mode="r")
    return np.asarray((upper * np.where(upper.diagonal() < 0, -1.0, 1.0)[:, None]).T)


def least_noise(target: Array) -> float:
    """The least noise sd that a search may end at.

    The evidence of a perfect fit grows without end as the noise falls. Its terms are of the size
    |t|^2 / sigma^2, so at this bound double precision leaves it 1e-5 nats, and below it a search
    would follow rounding.
    """
    return LEAST_NOISE * float(np.sqrt(np.mean(np.square(target))))
