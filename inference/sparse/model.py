"""Many weights, few of them in each row: prior and predictor as sparse rows of one map.

    h = J w + k,    h = (e, eta),    p(w) ∝ exp(-1/2 Σ_i q_i e_i²),    p(t | w) = Π_n site_n(eta_n)

The rows e of the prior are what its members deviate from their means: v - μ(w) of a Normal, steps
of a random walk, differences of neighbours of a Markov random field. So the precision of the
posterior is J'WJ with W = (q, τ) under Gaussian sites of precision τ, and no d x d or N x d array
is ever made.

`Layout` says of a pattern of J, once, what is sparse in it:

| part            | what it is                                    | how it is treated              |
|-----------------|-----------------------------------------------|--------------------------------|
| sparse columns  | effects of groups, times, places              | `factor.py`                    |
| dense columns   | intercepts, fixed effects, a mean of a prior  | a border, eliminated apart     |
| dense rows      | a soft sum-to-zero constraint                 | a rank-one term in the border  |
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ardvark.errors import UnsupportedPair
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sparse.factor import Plan, plan

__all__ = ["Layout", "SparseModel", "SparsePrior", "layout"]

LONG_ROW = 64  # entries from which on a row may count as dense ...
LONG_SHARE = 0.25  # ... if it has this share of the columns
MOST_LONG = 8  # of such rows
HIGH_DEGREE = 0.25  # share of the other columns that a dense column meets
FEW_COLUMNS = 16  # no column of so few is set apart
MOST_PAIRS = 5e8  # products of two entries of a row, in all rows
NOT_HERE = (
    "this needs the covariance of all weights, {size} numbers, which a sparse model does not form. "
    "Marginal variances, predictions and draws are there; for the rest take a smaller model."
)
LARGEST = 2 * 10**7  # numbers of a dense array that is made on request


class TooDense(Exception):
    """A pattern that has too many entries to be worth a sparse factor; its text says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What is sparse in a pattern of J, and the plan of its factorisation."""

    shape: tuple[int, int]
    indptr: Index
    indices: Index
    columns: Index  # sparse ones
    border: Index  # dense ones
    rows: Index  # all but the dense ones
    long_rows: Index
    kept: Index  # which entries of J are in sparse rows and columns
    apart: Index  # which are in sparse rows and dense columns
    apart_at: tuple[Index, Index]  # and where: place of the row, place of the column
    plan: Plan
    held: Index  # place among the sparse columns of one column of each dense row

    @property
    def flops(self) -> float:
        """Products of one factorisation, border included."""
        width = len(self.border) + 2.0 * len(self.long_rows)
        return self.plan.flops + 2.0 * width * len(self.plan.column) + width**2 * self.shape[0]

    def matrix(self, data: Array) -> Any:
        """J with these entries."""
        return csr_array((data, self.indices, self.indptr), shape=self.shape)


def layout(pattern: Any) -> Layout:
    """Layout of a pattern of J, a `csr_array` with sorted columns; `TooDense` if it is none."""
    size, d = pattern.shape
    length = np.diff(pattern.indptr).astype(np.int64)
    long = (length > LONG_ROW) & (length > LONG_SHARE * d)
    if long.sum() > MOST_LONG:
        raise TooDense(
            f"{int(long.sum())} rows hold more than {LONG_SHARE:.0%} of the {d} weights each"
        )
    if float((length[~long].astype(float) ** 2).sum()) > MOST_PAIRS:
        raise TooDense(f"its rows hold {length[~long].mean():.0f} weights each")
    rows, long_rows = np.flatnonzero(~long), np.flatnonzero(long)
    entry_row = np.repeat(np.arange(size), length)
    short = ~long[entry_row]
    dense_column = _dense_columns(pattern, short, d)
    columns, border = np.flatnonzero(~dense_column), np.flatnonzero(dense_column)
    place = np.empty(d, np.int64)
    place[columns], place[border] = np.arange(len(columns)), np.arange(len(border))
    row_place = np.cumsum(~long) - 1
    of_border = dense_column[pattern.indices]
    kept, apart = np.flatnonzero(short & ~of_border), np.flatnonzero(short & of_border)
    inner = csr_array(
        (np.ones(len(kept)), (row_place[entry_row[kept]], place[pattern.indices[kept]])),
        shape=(len(rows), len(columns)),
    )
    if np.any(np.bincount(inner.indices, minlength=len(columns)) == 0):
        raise TooDense("a weight has no prior of its own")
    held = [place[_first(pattern, int(row), dense_column)] for row in long_rows]
    return Layout(
        pattern.shape,
        pattern.indptr,
        pattern.indices,
        columns,
        border,
        rows,
        long_rows,
        kept,
        apart,
        (row_place[entry_row[apart]], place[pattern.indices[apart]]),
        plan(inner),
        np.array(held, np.int64),
    )


def _first(pattern: Any, row: int, dense_column: Any) -> int:
    own = pattern.indices[pattern.indptr[row] : pattern.indptr[row + 1]]
    return int(own[~dense_column[own]][0])


def _dense_columns(pattern: Any, short: Any, d: int) -> Any:
    """Columns that meet so many others that they are eliminated last, and apart."""
    if d <= FEW_COLUMNS:
        return np.zeros(d, bool)
    ones = pattern.copy()
    ones.data = short.astype(float)
    ones.eliminate_zeros()
    degree = np.diff((ones.T @ ones).tocsc().indptr)
    found = degree > HIGH_DEGREE * d
    return found if found.sum() < d else np.zeros(d, bool)


@dataclass(frozen=True, slots=True, eq=False)
class SparseModel(SiteModel):
    """A Gaussian block times scalar sites, as sparse rows: m of the prior, then the predictor's.

    The projection A (N, d), a `csr_array`, is the last N rows of J.
    """

    rows: Any = None  # J (m + N, d)
    shift: Array = field(default_factory=lambda: np.zeros(0))  # k (m + N,)
    weight: Array = field(default_factory=lambda: np.zeros(0))  # q (m,): the prior's precisions
    half_log_det: float = 0.0  # 1/2 log |P0| of the prior precision P0
    layout: Any = None  # what is sparse in J

    def __post_init__(self) -> None:
        """Refuse shapes that do not fit and weights that are not finite.

        A weight may be negative, as the edges of a field whose neighbours repel each other have it:
        a prior that has no density for it is refused where it is factorised.
        """
        (size, d), m = self.rows.shape, len(self.weight)
        if self.projection.shape != (size - m, d) or self.shift.shape != (size,):
            raise ValueError(
                f"rows are {self.rows.shape} with {m} of the prior, so projection must be "
                f"({size - m}, {d}) and shift ({size},); found {self.projection.shape} and "
                f"{self.shift.shape}"
            )
        if not np.isfinite(self.weight).all():
            raise ValueError("precisions of a sparse prior must be finite")

    @property
    def sparse(self) -> bool:
        """Whether the arrays are sparse."""
        return True

    def predictor(self, weights: Array) -> Array:
        """Eta of weights (..., d): (..., N)."""
        flat = weights.reshape(-1, weights.shape[-1])
        eta = (self.projection @ flat.T).T + self.offset
        return np.asarray(eta.reshape((*weights.shape[:-1], -1)))

    def prior(self) -> "SparsePrior":
        """The prior on the weights."""
        return SparsePrior(self)


class SparsePrior(Prior):
    """The prior on the weights by its rows; every weight is on."""

    model: SparseModel

    def __init__(self, model: SparseModel) -> None:
        self.model = model
        self.on = np.ones(model.mean.size, bool)
        self.variance = None
        self.mean, self.projection = model.mean, model.projection
        self.eta_mean = model.predictor(model.mean)
        self._own = model.rows[: len(model.weight)]

    def conditioned(self, site_precision: Array, site_shift: Array) -> Any:
        """The posterior under Gaussian sites, a `SparsePosterior`."""
        from ardvark.inference.sparse.posterior import SparsePosterior

        return SparsePosterior(self, site_precision, site_shift)

    @cached_property
    def inner(self) -> Array:
        """Entries of J in sparse rows and columns, in the order of the plan."""
        layout: Layout = self.model.layout
        return layout.plan.values(self.model.rows.data[layout.kept])

    @cached_property
    def inner_rows(self) -> Any:
        """The same as a matrix, rows and columns in their own order."""
        layout: Layout = self.model.layout
        J = self.model.rows
        return (
            J[layout.rows][:, layout.columns] if len(layout.border) or len(layout.long_rows) else J
        )

    @cached_property
    def outer(self) -> Array:
        """Dense columns of J, in sparse rows."""
        layout: Layout = self.model.layout
        found = np.zeros((len(layout.rows), len(layout.border)))
        found[layout.apart_at] = self.model.rows.data[layout.apart]
        return found

    def force(self, deviation: Array) -> Array:
        """P0 (w - m0), for weights (..., d)."""
        flat = deviation.reshape(-1, deviation.shape[-1]).T
        pulled = self._own.T @ (self.model.weight[:, None] * (self._own @ flat))
        return np.asarray(pulled.T.reshape(deviation.shape))

    @property
    def half_log_det_precision(self) -> float:
        """1/2 log |P0|."""
        return self.model.half_log_det

    def coloured(self, white: Array) -> Array:
        """Not from white numbers: draws of the prior are those of a posterior without sites."""
        raise UnsupportedPair(NOT_HERE.format(size=self.mean.size**2))

    def spread(self, force: Array) -> Array:
        """Not without a factor of P0."""
        raise UnsupportedPair(NOT_HERE.format(size=self.mean.size**2))
