"""The basis of a sample-feature machine: as it is, and as a product of two narrow tables.

    Phi_n[i, j] = K(x_nj, x_ij), 1 in row 0 and in column 0          Phi[:, j, :] = U_j V_j'

Each K_j is a kernel of *one* input. However many samples there are, they lie on a line, and a
smooth kernel on a line has a small numerical rank: a pivoted Cholesky factor of K_j has a dozen
columns or some dozens where no entry of it is off by more than 1e-12. What a sweep needs of Phi
then costs products of tables with R = sum_j rank_j columns instead of N J of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.sites.arrays import Array, Index, Mask

__all__ = ["Factors", "KernelBasis"]

_EXACT = 1e-12  # what an entry of the basis may be off by
_CHECKED = 16  # columns of each kernel that are compared with their factors


class Factors(NamedTuple):
    """Phi[:, j, :] = left[:, own] right[:, own]', own the columns with `feature` j."""

    left: Array  # (N, R)
    right: Array  # (samples + 1, R)
    feature: Index  # of each column, in order, counted within the model

    @property
    def begin(self) -> Index:
        """First column of each feature."""
        return np.flatnonzero(np.diff(self.feature, prepend=-1))

    def kept(self, keep_w: Mask, keep_lam: Mask) -> "Factors":
        """The same for some samples and some features."""
        own = keep_lam[self.feature]
        feature = np.cumsum(keep_lam)[self.feature[own]] - 1
        return Factors(
            np.ascontiguousarray(self.left[:, own]),
            np.ascontiguousarray(self.right[keep_w][:, own]),
            feature,
        )


@dataclass(frozen=True, eq=False)
class KernelBasis:
    """Phi at rows X: a kernel per feature around each centre, and constants."""

    kernel: Callable[[Any, Any, Any], Any]  # elementwise in x, centre; and gamma
    X: Array  # (N, L)
    centres: Array  # (M, L)
    gamma: Any

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, features + 1, samples + 1."""
        return len(self.X), self.X.shape[1] + 1, len(self.centres) + 1

    def block(self, rows: slice, features: Index, samples: Index) -> Array:
        """Phi (rows, features, samples); index 0 of either is the constant."""
        x = self.X[rows]
        phi = np.ones((len(x), len(features), len(samples)))
        j, i = np.flatnonzero(features > 0), np.flatnonzero(samples > 0)
        if j.size and i.size:
            x = x[:, features[j] - 1, None]
            c = self.centres[np.ix_(samples[i] - 1, features[j] - 1)].T[None]
            whole = j.size == len(features) - 1 and i.size == len(samples) - 1
            place = (slice(None), slice(1, None), slice(1, None)) if whole else np.ix_(
                np.arange(len(x)), j, i
            )  # fmt: skip
            phi[place] = self.kernel(x, c, self.gamma)
        return phi

    @cached_property
    def factors(self) -> Factors | None:
        """Narrow tables whose product is Phi; None if there are none."""
        if self.X is not self.centres and not np.array_equal(self.X, self.centres):
            return None
        roots = _roots(self.kernel, self.X, self.gamma)
        if roots is None:
            return None
        ones = np.ones((len(self.X), 1))
        left, right, feature = [ones], [np.ones((len(ones) + 1, 1))], [0]
        for j, root in enumerate(roots):  # sample 0 is constant in every feature: one column more
            left += [ones, root]
            right.append(np.block([[np.ones((1, 1)), np.zeros((1, root.shape[1]))],
                                   [0.0 * ones, root]]))  # fmt: skip
            feature += [j + 1] * (1 + root.shape[1])
        return Factors(np.hstack(left), np.hstack(right), np.array(feature))


def _roots(kernel: Callable[[Any, Any, Any], Any], X: Array, gamma: Any) -> list[Array] | None:
    """Factors of every feature's kernel; None if they would be too wide to gain anything."""
    roots, room = [], int(len(X) * np.sqrt(X.shape[1] + 1.0))
    for x in X.T:
        root = _root(kernel, x, gamma, room)
        if root is None:
            return None
        roots.append(root)
        room -= root.shape[1]
    return roots


def _root(kernel: Callable[[Any, Any, Any], Any], x: Array, gamma: Any, room: int) -> Array | None:
    """Pivoted Cholesky factor of one kernel, of at most `room` columns.

    None for a kernel that is not positive semidefinite: its diagonal falls below zero, or some
    columns do not come out.
    """

    def column(centre: Any) -> Array:
        return np.array(kernel(x, centre, gamma), float)

    left = column(x)  # the diagonal that is not yet explained
    found = np.empty((32, len(x)))
    for k in range(min(room, len(x)) + 1):
        pivot = int(left.argmax())
        if left.min() < -_EXACT or (left[pivot] > _EXACT and k == min(room, len(x))):
            return None
        if left[pivot] <= _EXACT:
            break
        if k == len(found):
            found = np.vstack([found, np.empty_like(found)])
        found[k] = (column(x[pivot]) - found[:k, pivot] @ found[:k]) / np.sqrt(left[pivot])
        left -= found[k] ** 2
        left[pivot] = 0.0
    root = np.ascontiguousarray(found[:k].T)
    some = np.linspace(0, len(x) - 1, min(_CHECKED, len(x))).astype(int)
    truth = np.column_stack([column(x[i]) for i in some])
    return root if np.allclose(root @ root[some].T, truth, rtol=0.0, atol=10 * _EXACT) else None
