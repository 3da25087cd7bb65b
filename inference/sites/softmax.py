"""Rows of K predictors that a softmax couples: counts of K classes, or one class of K.

    log p(t_n | eta_n) = c_n + sum_k t_nk eta_nk - T_n log sum_k exp(eta_nk),   T_n = sum_k t_nk

Predictors stand row by row, (n, k) at place n K + k. Laplace needs a gradient, a curvature and how
the curvature moves; all three couple the predictors of a row:

| formula, pi = softmax(eta_n)                                    | code              |
|-----------------------------------------------------------------|-------------------|
| gradient t - T pi, RW06 (3.35)                                  | `derivatives`     |
| curvature W = T (diag(pi) - pi pi'), RW06 (3.38)                | `curvature_times` |
| W = C C', C = sqrt(T) diag(sqrt pi) (I - sqrt pi sqrt pi')      | `decoupled`       |
| d(-1/2 log |I + K W|)/d eta, from the covariance S of eta_n     | `pull`            |

With z = C'eta the coupled rows are rows of unit precision of another projection, C'A, so that the
posterior is that of scalar sites.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from ardvark.errors import UnsupportedPair
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import Derivatives, Tilted
from ardvark.inference.sites.model import Prior

__all__ = ["SoftmaxSites"]


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxSites:
    """Softmax over the K predictors of each row."""

    counts: Array  # t (N, K)
    constant: Array  # c (N,): the multinomial coefficient, 0 for one class of K

    def _rows(self, eta: Array) -> Array:
        return eta.reshape((*eta.shape[:-1], *self.counts.shape))

    def log(self, eta: Array, /) -> Array:
        """Log likelihood (..., N) at predictors (..., N K)."""
        rows = self._rows(np.asarray(eta, float))
        total = self.counts.sum(axis=1)
        chosen = (self.counts * rows).sum(axis=-1)
        return np.asarray(self.constant + chosen - total * logsumexp(rows, axis=-1))

    def chances(self, eta: Array) -> Array:
        """Probabilities pi (N, K)."""
        rows = self._rows(eta)
        return np.asarray(np.exp(rows - logsumexp(rows, axis=-1, keepdims=True)))

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Value (N,), gradient (N K,) and the diagonal part -T pi of the second derivative."""
        expected = self.counts.sum(axis=1, keepdims=True) * self.chances(eta)
        first = (self.counts - expected).ravel()  # RW06 (3.35)
        return Derivatives(self.log(eta), first, -expected.ravel(), np.zeros(first.size))

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """There are none of one predictor alone."""
        raise UnsupportedPair(
            "a softmax couples all predictors of a row, and EP's sites are functions of one each. "
            "Use Laplace() or NUTS(), or two classes."
        )

    def curvature_times(self, chances: Array, columns: Array) -> Array:
        """W times columns (N K, ...)."""
        rows, classes = chances.shape
        blocks = columns.reshape((rows, classes, -1))
        mean = np.einsum("nk,nkj->nj", chances, blocks)
        total = self.counts.sum(axis=1)[:, None, None]
        moved = total * chances[:, :, None] * (blocks - mean[:, None, :])  # RW06 (3.38)
        return np.asarray(moved.reshape(columns.shape))

    def decoupled(self, prior: Prior, precision: Array, shift: Array) -> tuple[Prior, Array, Array]:
        """Rows of unit precision for the sites exp(-eta'W eta / 2 + nu'eta).

        `precision` is T pi, which W follows from, and `shift` is T pi eta + gradient as of scalar
        sites: of it the part along pi belongs to the coupling.
        """
        expected = self._rows(precision)
        total = np.maximum(expected.sum(axis=1, keepdims=True), 1e-300)
        chances = expected / total
        nu = self._rows(shift)
        nu = nu - chances * nu.sum(axis=1, keepdims=True)
        root = np.sqrt(chances)

        def across(rows: Array) -> Array:  # I - sqrt pi sqrt pi'
            return np.asarray(
                rows - root[..., None] * np.einsum("nk,nkj->nj", root, rows)[:, None, :]
            )

        model = prior.model
        blocks = model.projection.reshape((*expected.shape, -1))
        scale = np.sqrt(total) * root  # sqrt(T pi)
        projection = across(scale[..., None] * blocks).reshape(model.projection.shape)
        offset = across((scale * self._rows(model.offset))[..., None]).ravel()
        pulled = nu / np.maximum(scale, 1e-300)
        white = across(pulled[..., None]).ravel()
        own = Prior(replace(model, projection=projection, offset=offset))
        return own, np.ones(precision.size), white

    def pull(self, chances: Array, covariance: Array) -> Array:
        """d(-1/2 log |I + K W|)/d eta (N K,), from the covariance (N, K, K) of each row's eta."""
        slope = np.einsum("nkk->nk", covariance) - 2.0 * np.einsum(
            "nkl,nl->nk", covariance, chances
        )
        centred = slope - (chances * slope).sum(axis=1, keepdims=True)
        return np.asarray(
            (-0.5 * self.counts.sum(axis=1, keepdims=True) * chances * centred).ravel()
        )
