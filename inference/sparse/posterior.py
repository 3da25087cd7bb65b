"""A sparse prior times Gaussian sites: the same posterior as in weight or function space.

P = J'WJ (`model.py`) in its sparse columns s and a border b of everything dense,

    P = [ P_ss  C ]      V = P_ss⁻¹ C,   S = K - C'V
        [ C'    K ]      log |P| = log |P_ss| + log |det S|

    P⁻¹ = [ P_ss⁻¹ + V S⁻¹ V'   -V S⁻¹ ]
          [ -S⁻¹ V'              S⁻¹   ]

A dense row u of weight ω stands in the border too, as a column √ω u of no weight with -1 in K:
eliminating it adds ω u u'. The rows without it may leave P_ss singular (a random field knows its
level from its sum alone), so one diagonal entry is raised by κ and taken back by a column √κ e_j
with +1 in K. S then has as many negative eigenvalues as dense rows, or P is not definite.

Variances of predictors and weights need P⁻¹ only where P is not zero (Rue & Martino 2007).
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from ardvark.errors import UnsupportedPair
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.posterior import INDEFINITE, OVERFLOW, Posterior
from ardvark.inference.sparse.factor import Factor
from ardvark.inference.sparse.model import LARGEST, NOT_HERE, Layout, SparsePrior

__all__ = ["RowCotangents", "SparsePosterior", "row_cotangents"]

AT_A_TIME = 64  # columns of a solve


class RowCotangents(NamedTuple):
    """Adjoints of the log evidence in the entries of J, in k, and in the weights q."""

    entries: Array
    shift: Array
    weight: Array


class SparsePosterior(Posterior):
    """Through the sparse precision J'WJ."""

    prior: SparsePrior

    def _factorise(self) -> None:
        model = self.prior.model
        layout: Layout = model.layout
        self._weight = np.concatenate([model.weight, self.site_precision])
        self._short = self._weight[layout.rows]
        if not np.isfinite(self._weight).all():
            raise np.linalg.LinAlgError(OVERFLOW)
        data = layout.plan.assembled(self.prior.inner, self._short)
        raised = self._raise(layout, data)
        try:
            self._factor = Factor(layout.plan, data)
        except np.linalg.LinAlgError as error:
            raise np.linalg.LinAlgError(INDEFINITE) from error
        self._border(layout, raised)
        half = 0.5 * (self._factor.log_det + self._log_det_border)
        self.half_log_det = half - self.prior.half_log_det_precision

    def _raise(self, layout: Layout, data: Array) -> Array:
        """Raise one diagonal entry for each dense row, and say by how much."""
        step = np.empty(len(layout.columns), np.int64)
        step[layout.plan.order] = np.arange(len(step))
        at = layout.plan.start[step[layout.held] + 1] - 1  # a column ends with its diagonal
        raised = np.array(data[at])
        np.add.at(data, at, raised)
        return raised

    def _border(self, layout: Layout, raised: Array) -> None:
        """C, K, V and the inverse of S."""
        inner, outer, weighted = self.prior.inner_rows, self.prior.outer, self._short
        width, long = len(layout.border), len(layout.long_rows)
        total = width + 2 * long
        self._width = width
        self._columns = np.zeros((len(layout.columns), total))
        corner = np.zeros((total, total))
        if width:
            scaled = weighted[:, None] * outer
            self._columns[:, :width] = inner.T @ scaled
            corner[:width, :width] = outer.T @ scaled
        for i, row in enumerate(layout.long_rows):
            u = self.prior.model.rows[[int(row)]].toarray()[0]
            weight = self._weight[row]
            size = np.sqrt(abs(weight))
            at = width + i
            self._columns[:, at] = size * u[layout.columns]
            corner[at, :width] = corner[:width, at] = size * u[layout.border]
            corner[at, at] = -1.0 if weight >= 0 else 1.0
            self._columns[layout.held[i], width + long + i] = np.sqrt(raised[i])
            corner[width + long + i, width + long + i] = 1.0
        if not total:
            self._solved, self._corner = self._columns, corner
            self._log_det_border = 0.0
            return
        self._solved = self._factor.solve(self._columns)  # V
        left = corner - self._columns.T @ self._solved
        below = int(np.sum(self._weight[layout.long_rows] >= 0))
        self._corner, self._log_det_border = _inverse(0.5 * (left + left.T), below)

    def solve(self, right: Array) -> Array:
        """P^-1 right, for right (d,) or (d, m)."""
        layout: Layout = self.prior.model.layout
        columns = right.reshape(len(right), -1)
        found = np.empty_like(columns, dtype=np.float64)
        inner = self._factor.solve(columns[layout.columns])
        outer = -self._columns.T @ inner
        outer[: self._width] += columns[layout.border]
        outer = self._corner @ outer
        found[layout.columns] = inner - self._solved @ outer
        found[layout.border] = outer[: self._width]
        return found.reshape(right.shape)

    def _mean_shift(self) -> Array:
        return self.solve(self.prior.projection.T @ self._gradient)

    def _marginal_variance(self) -> Array:
        layout: Layout = self.prior.model.layout
        found = np.empty(self.prior.mean.size)
        spread = np.sum((self._solved @ self._corner) * self._solved, axis=1)
        found[layout.columns] = self._factor.diagonal + spread
        found[layout.border] = np.diag(self._corner)[: self._width]
        return found

    @cached_property
    def row_covariance(self) -> Array:
        """J P^-1 at the entries of J: covariances of h with the weights that it holds."""
        model = self.prior.model
        layout: Layout = model.layout
        found = np.zeros(model.rows.nnz)
        found[layout.kept] = self._factor.rows_times_inverse(self.prior.inner)
        if self._columns.shape[1]:
            wide = np.zeros((len(layout.rows), self._columns.shape[1]))
            wide[:, : self._width] = self.prior.outer
            wide = (wide - self.prior.inner_rows @ self._solved) @ self._corner
            row = np.repeat(np.arange(len(layout.rows)), np.diff(layout.plan.row))
            column = self.prior.inner_rows.indices
            for c in range(wide.shape[1]):
                found[layout.kept] -= wide[row, c] * self._solved[column, c]
            found[layout.apart] = wide[layout.apart_at]
        for row in layout.long_rows:
            part = slice(layout.indptr[row], layout.indptr[row + 1])
            u = model.rows[[int(row)]].toarray()[0]
            found[part] = self.solve(u)[layout.indices[part]]
        return found

    @cached_property
    def row_variance(self) -> Array:
        """Variances of h (m + N,)."""
        model = self.prior.model
        products = model.layout.matrix(model.rows.data * self.row_covariance)
        return np.asarray(products.sum(axis=1)).ravel()

    @property
    def eta_variance(self) -> Array:
        """Variance of the predictor (N,)."""
        return self.row_variance[len(self.prior.model.weight) :]

    def _covariance_times(self, projection: Array) -> Array:
        dense = projection.toarray() if hasattr(projection, "toarray") else projection
        return np.asarray(self.solve(np.ascontiguousarray(dense.T)).T)

    def _variance_along(self, projection: Any) -> Array:
        found = np.empty(projection.shape[0])
        for begin in range(0, len(found), AT_A_TIME):
            part = projection[begin : begin + AT_A_TIME]
            dense = part.toarray() if hasattr(part, "toarray") else part
            found[begin : begin + AT_A_TIME] = np.sum(dense * self._covariance_times(dense), axis=1)
        return found

    @cached_property
    def cross_covariance(self) -> Array:
        """A V (N, d), of models that are small enough."""
        self._small(self.prior.projection.shape[0])
        return self._covariance_times(self.prior.projection)

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the weights, of models that are small enough."""
        self._small(self.mean.size)
        found = self.solve(np.eye(self.mean.size))
        return np.asarray(0.5 * (found + found.T))

    def _small(self, rows: int) -> None:
        if rows * self.mean.size > LARGEST:
            raise UnsupportedPair(NOT_HERE.format(size=rows * self.mean.size))

    def pulled(self, force: Array) -> Array:
        """V force (d,)."""
        return self.solve(force)

    def site_information(self, columns: Array) -> Array:
        """Not here: searches that add weights one at a time are of dense models."""
        raise UnsupportedPair(
            "a search that adds weights one at a time is not made for sparse models. Use "
            "Integrated(), Evidence(with_prior=True), or space='weights'."
        )

    def _deviations(self, n: int, rng: np.random.Generator) -> Array:
        layout: Layout = self.prior.model.layout
        if len(layout.long_rows):
            return self._by_noise(n, rng)
        found = np.empty((self.mean.size, n))
        white = rng.standard_normal((len(layout.columns), n))
        inner = self._factor.coloured(white)
        if self._width:
            root = np.linalg.cholesky(self._corner)
            outer = root @ rng.standard_normal((self._width, n))
            inner -= self._solved @ outer
            found[layout.border] = outer
        found[layout.columns] = inner
        return found.T

    def _by_noise(self, n: int, rng: np.random.Generator) -> Array:
        """P^-1 J'W^1/2 z has the covariance P^-1 P P^-1, whatever the border is."""
        if np.any(self._weight < 0):
            raise UnsupportedPair(
                "draws under a prior with a soft constraint and sites of negative precision are "
                "not made sparsely. Use space='weights', or a log-concave likelihood."
            )
        rows = self.prior.model.rows
        found = np.empty((n, self.mean.size))
        for begin in range(0, n, AT_A_TIME):
            count = min(AT_A_TIME, n - begin)
            noise = np.sqrt(self._weight)[:, None] * rng.standard_normal((rows.shape[0], count))
            found[begin : begin + count] = self.solve(rows.T @ noise).T
        return found


def _inverse(matrix: Array, below: int) -> tuple[Array, float]:
    """Inverse and log |det| of a symmetric matrix with `below` negative eigenvalues."""
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(matrix)), 1e-300))
    values, vectors = eigh(scale[:, None] * matrix * scale)
    if not np.isfinite(values).all():
        raise np.linalg.LinAlgError(OVERFLOW)
    if int(np.sum(values < 0)) != below or np.any(values == 0):
        raise np.linalg.LinAlgError(INDEFINITE)
    inverse = scale[:, None] * ((vectors / values) @ vectors.T) * scale
    log_det = float(np.log(np.abs(values)).sum() - 2.0 * np.log(scale).sum())
    return inverse, log_det


def row_cotangents(
    posterior: Posterior, first: Array, second: Array, pull: Array | float = 0.0
) -> tuple[RowCotangents, Array]:
    """Adjoints in the rows, and how far the pull moves them.

    `first`, `second` are the derivatives of the log sites (N,) and `pull` is what their third ones
    add, as in Laplace's adjoint; rows of the prior are sites -q e²/2 beside them.
    """
    assert isinstance(posterior, SparsePosterior)
    model = posterior.prior.model
    J, q, m = model.rows, model.weight, len(model.weight)
    mean = posterior.mean
    residual = J[:m] @ mean + model.shift[:m]
    first = np.concatenate([-q * residual, first])
    second = np.concatenate([-q, second])
    pull = np.concatenate([np.zeros(m), np.broadcast_to(pull, len(first) - m)])
    moved = posterior.pulled(J.T @ pull) if pull.any() else np.zeros_like(mean)  # u = V J' pull
    rows_moved = J @ moved
    shift = first + pull + second * rows_moved
    row = np.repeat(np.arange(J.shape[0]), np.diff(J.indptr))
    entries = shift[row] * mean[J.indices] + first[row] * moved[J.indices]
    entries += second[row] * posterior.row_covariance
    weight = -0.5 * (residual**2 + posterior.row_variance[:m]) - residual * rows_moved[:m]
    return RowCotangents(entries, shift, weight), rows_moved[m:]
