"""P = J'WJ of sparse rows J: assembled, factorised, solved, and inverted where P is not zero.

`Plan` is made once for a pattern of J: an order of elimination with little fill, the tree, and
where each product of two entries of a row goes. `Factor` is made for numbers. The order is that of
minimum degree, taken from SuperLU (SciPy), which gives it away with an incomplete factorisation
that drops everything. Columns are eliminated sparsely until what is left is dense, as are the
effects of the second of two crossed factors once those of the first are gone; the rest is LAPACK's.

| what                                 | cost, c_j entries in column j of L, r dense columns |
|--------------------------------------|-----------------------------------------------------|
| factor                               | Σ c_j² + r³/3                                       |
| inverse at the entries of P          | Σ_j Σ_{k in column j} c_k + r³                      |
| solve, draw                          | Σ c_j + r²                                          |
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.linalg import spilu

from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.sparse import kernels

__all__ = ["Factor", "Plan", "colours", "plan"]

FULL = 0.6  # share of the lower triangle of what is left, from which it counts as dense
FEW = 64  # columns for which no order is worth a search


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Everything about J'WJ that the numbers do not change."""

    order: Index  # which column of J is eliminated at each step
    row: Index  # rows of J, as `csr_array` has them ...
    column: Index  # ... with columns by their step and sorted
    rearranged: Index  # where each entry of these rows is in J's own
    start: Index  # upper triangle of P by columns: where each begins ...
    index: Index  # ... and its rows
    places: Index  # entry of P for each pair of entries in a row
    parent: Index  # elimination tree
    begin: Index  # sparse columns of L: where each begins ...
    rows: Index  # ... and its rows

    @property
    def sparse(self) -> int:
        """Number of sparse columns of L."""
        return len(self.begin) - 1

    @property
    def flops(self) -> float:
        """Products of one factorisation, with what it takes to assemble P."""
        count = np.diff(self.begin).astype(float)
        dense = float(len(self.order) - self.sparse)
        return float(len(self.places) + (count**2).sum() + dense**3 / 3.0)

    def values(self, data: Array) -> Array:
        """Entries of J in the order of this plan."""
        return np.ascontiguousarray(data[self.rearranged])

    def assembled(self, values: Array, weight: Array) -> Array:
        """Entries of P for values of J in the order of this plan and weights of its rows."""
        return np.asarray(kernels.assemble(self.row, values, self.places, weight, len(self.index)))


def plan(J: Any) -> Plan:
    """Plan for the pattern of J (a `csr_array`); columns that no row has are given a row first."""
    n = J.shape[1]
    pattern = csr_array((np.ones(J.nnz), J.indices, J.indptr), shape=J.shape)
    P = csc_array(pattern.T @ pattern)
    order = _order(P) if n > FEW else np.arange(n)
    step = np.empty(n, np.int64)
    step[order] = np.arange(n)
    keep = _sorted_within_rows(J.indptr, step[J.indices])
    column = step[J.indices][keep]
    row = np.asarray(J.indptr, np.int64)
    upper = csc_array(P[order][:, order])
    upper.sort_indices()
    start, index = _upper(upper)
    parent, count = kernels.tree_and_counts(start, index)
    sparse = _first_dense(count)
    begin = np.concatenate([[0], np.cumsum(count[:sparse])]).astype(np.int64)
    rows = kernels.structure(start, index, parent, begin, sparse)
    places = kernels.pair_places(row, column, start, index)
    return Plan(order, row, column, keep, start, index, places, parent, begin, rows)


def _order(P: Any) -> Index:
    """Minimum degree, by SuperLU."""
    # The numbers are without meaning: the matrix needs only to have pivots.
    heavy = csc_array(P + P.sum() * eye_array(P.shape[0]))
    found = spilu(
        heavy,
        drop_tol=1.0,
        fill_factor=1.0,
        permc_spec="MMD_AT_PLUS_A",
        options={"SymmetricMode": True},
    )
    return np.asarray(np.argsort(found.perm_c), np.int64)


def _sorted_within_rows(indptr: Index, column: Index) -> Index:
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.asarray(np.lexsort((column, row)), np.int64)


def _upper(P: Any) -> tuple[Index, Index]:
    """Upper triangle of a symmetric pattern by columns, diagonal included."""
    column = np.repeat(np.arange(P.shape[1]), np.diff(P.indptr))
    kept = P.indices <= column
    count = np.bincount(column[kept], minlength=P.shape[1])
    return (
        np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        P.indices[kept].astype(np.int64),
    )


def _first_dense(count: Index) -> int:
    """The first column from which on what is left is mostly full."""
    n = len(count)
    below = np.cumsum(count[::-1])  # entries of L in the last 1, 2, ... columns
    size = np.arange(1, n + 1)
    full = below >= FULL * size * (size - 1) / 2.0
    return int(n - size[full].max(initial=0))


class Factor:
    """P = L D L' of a plan, with P's entries given; LinAlgError if it is not positive definite."""

    def __init__(self, plan: Plan, data: Array) -> None:
        self.plan = plan
        if not np.isfinite(data).all():
            raise np.linalg.LinAlgError("the matrix has entries that are not finite")
        self._lower, self._pivot, left, bad = kernels.factorise(
            plan.start, plan.index, data, plan.parent, plan.begin, plan.rows, plan.sparse
        )
        self._last: Array
        self._last, failed = dpotrf(left, lower=1, clean=1) if left.size else (left, 0)
        if bad >= 0 or failed:
            at = plan.order[bad if bad >= 0 else plan.sparse + failed - 1]
            raise np.linalg.LinAlgError(f"the matrix is not positive definite at column {at}")
        diagonal = np.diag(self._last)
        self.log_det = float(np.log(self._pivot).sum() + 2.0 * np.log(diagonal).sum())

    def solve(self, right: Array) -> Array:
        """P^-1 right, for right (n,) or (n, m)."""
        columns = right.reshape(len(right), -1)
        x = np.ascontiguousarray(columns[self.plan.order], dtype=np.float64)
        plan, s = self.plan, self.plan.sparse
        kernels.solve_forward(plan.begin, plan.rows, self._lower, s, x)
        x[:s] /= self._pivot[:, None]
        if s < len(x):
            x[s:] = cho_solve((self._last, True), x[s:])
        self._backward(x)
        found = np.empty_like(x)
        found[self.plan.order] = x
        return found.reshape(right.shape)

    def coloured(self, white: Array) -> Array:
        """White (n, m) to columns of covariance P^-1."""
        x = np.array(white, dtype=np.float64, order="C")
        s = self.plan.sparse
        x[:s] /= np.sqrt(self._pivot)[:, None]
        if s < len(x):
            x[s:] = solve_triangular(self._last, x[s:], lower=True, trans=1)
        self._backward(x)
        found = np.empty_like(x)
        found[self.plan.order] = x
        return found

    def _backward(self, x: Array) -> None:
        plan = self.plan
        kernels.solve_backward(plan.begin, plan.rows, self._lower, plan.sparse, x)

    @cached_property
    def _inverse(self) -> tuple[Array, Array, Array]:
        last = self._last
        if last.size:
            lower = dpotri(last, lower=1)[0]
            last = np.tril(lower) + np.tril(lower, -1).T
        plan = self.plan
        inverse, diagonal = kernels.inverse_columns(
            plan.begin, plan.rows, self._lower, self._pivot, np.ascontiguousarray(last)
        )
        return inverse, diagonal, np.ascontiguousarray(last)

    @cached_property
    def diagonal(self) -> Array:
        """Diagonal of P^-1 (n,)."""
        found = np.empty(len(self.plan.order))
        found[self.plan.order] = self._inverse[1]
        return found

    @cached_property
    def inverse_entries(self) -> Array:
        """P^-1 at the entries of P."""
        plan = self.plan
        return np.asarray(
            kernels.entries(plan.start, plan.index, plan.begin, plan.rows, *self._inverse)
        )

    def rows_times_inverse(self, values: Array) -> Array:
        """J P^-1 at the entries of J, both in J's own order; `values` in the plan's."""
        plan = self.plan
        found = np.empty(len(values))
        found[plan.rearranged] = kernels.quadratic_rows(
            plan.row, values, plan.places, self.inverse_entries
        )
        return found


def colours(pattern: Any, most: int) -> Index | None:
    """A colour for each column of a `csr_array`, None if more than `most` are needed.

    Columns of one colour never meet in a row, so that one product with their sum shows each of
    their entries: a map is read in as many products as there are colours (Curtis, Powell & Reid
    1974).
    """
    if np.diff(pattern.indptr).max(initial=0) > most:
        return None
    turned = csc_array(pattern)
    parts = (pattern.indptr, pattern.indices, turned.indptr, turned.indices)
    indptr, indices, begin, rows = (np.asarray(part, np.int64) for part in parts)
    found = kernels.colours_of_columns(indptr, indices, begin, rows, most)
    return None if np.any(found < 0) else np.asarray(found)
