"""What the blocks of a sample-feature machine see of the basis, in two ways with one answer.

    by w      E Phi_lam' C Phi_lam = sum_jk E(lam_j lam_k) Phi_j' C Phi_k,  C: precisions of rows
    by lam    E w'Phi_n (N, J) and E Phi_n' w w' Phi_n (N, J, J)

| way        | tables                              | multiplications of a sweep (I samples)      |
|------------|-------------------------------------|---------------------------------------------|
| `Direct`   | Phi (N, J, I), in parts             | 2 N J I²                                    |
| `Factored` | Phi_j = U_j V_j', R columns in all  | 2 I² R + 2 I R² + N R²                      |

`moments_of` takes the cheaper: factors where there are many samples, Phi itself when few are left.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg.blas import dsyrk, dtrmm

from ardvark.inference.sample_feature.basis import Factors
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.vb.blocks import GaussianBlock
from ardvark.inference.vb.rows import Parabola

__all__ = ["Direct", "Factored", "Moments", "SeenByLam", "moments_of"]

_MEGABYTE = 2**20


class SeenByLam(NamedTuple):
    """E w'Phi_n (N, J) and E Phi_n' w w' Phi_n (N, J, J): they change with w alone."""

    projected: Array
    squares: Array

    def scaled(self, c: float) -> "SeenByLam":
        """Of c w."""
        return SeenByLam(c * self.projected, c**2 * self.squares)

    def natural(self, parabola: Parabola) -> tuple[Array, Array]:
        """What the rows add to the precision matrix of lam, and to its shift."""
        size = self.projected.shape[1]
        precision = parabola.precision @ self.squares.reshape(-1, size**2)
        return precision.reshape(size, size), parabola.shift @ self.projected

    def eta(self, lam: GaussianBlock) -> tuple[Array, Array]:
        """E eta and E eta² of each row."""
        outer = lam.covariance + np.outer(lam.mean, lam.mean)
        second = self.squares.reshape(len(self.squares), -1) @ outer.ravel()
        return self.projected @ lam.mean, second


class Moments(Protocol):
    """One of the two ways."""

    def by_lam(self, w: GaussianBlock, /) -> SeenByLam:
        """What lam sees of a law of w."""

    def by_w(self, lam: GaussianBlock, parabola: Parabola, /) -> tuple[Array, Array]:
        """What the rows add to the precision matrix of w (its lower triangle) and to its shift."""


def moments_of(
    basis: Any, samples: Index, features: Index, memory: float, factored: bool | None = None
) -> Moments:
    """Take the cheaper way for these samples and features; `factored` asks for one of the two.

    `memory`: megabytes that Phi may take.
    """
    rows, n_features, n_samples = basis.shape
    direct = Direct(basis, samples, features, memory)
    if factored is False or len(samples) * len(features) < 64:
        return direct
    factors: Factors | None = getattr(basis, "factors", None)
    if factors is None:
        return direct
    own = np.isin(factors.feature, features)
    R, i = int(own.sum()), len(samples)
    cheaper = 2 * i**2 * R + 2 * i * R**2 + rows * R**2 < 2 * rows * len(features) * i**2
    if not (factored or cheaper):
        return direct
    keep_w, keep_lam = np.zeros(n_samples, bool), np.zeros(n_features, bool)
    keep_w[samples], keep_lam[features] = True, True
    return Factored(factors.kept(keep_w, keep_lam))


class Direct:
    """Phi itself, held if it fits in memory and made chunk by chunk if it does not."""

    def __init__(self, basis: Any, samples: Index, features: Index, memory: float) -> None:
        self.basis, self.samples, self.features = basis, samples, features
        self.rows, self.budget = basis.shape[0], memory * _MEGABYTE / 8
        self._held: Array | None = None

    def _chunks(self) -> Iterator[tuple[slice, Array]]:
        """Phi of what is in the model, (rows, features, samples), a slice of the rows at a time."""
        per_row = len(self.features) * len(self.samples)
        if self._held is None and per_row * self.rows <= self.budget:
            self._held = self.basis.block(slice(None), self.features, self.samples)
        step = max(1, int(self.budget / 8 // per_row))  # the products need room too
        for start in range(0, self.rows, step):
            rows = slice(start, start + step)
            if self._held is not None:
                yield rows, self._held[rows]
            else:
                yield rows, self.basis.block(rows, self.features, self.samples)

    def by_lam(self, w: GaussianBlock) -> SeenByLam:
        """One trmm over (rows, features)."""
        size = len(self.features)
        projected, squares = np.empty((self.rows, size)), np.empty((self.rows, size, size))
        for rows, phi in self._chunks():
            flat = phi.reshape(-1, phi.shape[2])
            mean = (flat @ w.mean).reshape(phi.shape[:2])
            root = dtrmm(1.0, w.root, flat.T, trans_a=1).T.reshape(phi.shape)  # phi root
            projected[rows] = mean
            np.matmul(root, root.transpose(0, 2, 1), out=squares[rows])
            squares[rows] += mean[:, :, None] * mean[:, None, :]
        return SeenByLam(projected, squares)

    def by_w(self, lam: GaussianBlock, parabola: Parabola) -> tuple[Array, Array]:
        """One syrk over (rows, lam)."""
        factor = np.column_stack([lam.root, lam.mean]).T  # E lam lam' = factor' factor
        size = len(self.samples)
        gram, shift = np.zeros((size, size), order="F"), np.zeros(size)
        for rows, phi in self._chunks():
            seen = np.matmul(factor, phi)  # (rows, J + 1, samples), the mean last
            shift += parabola.shift[rows] @ seen[:, -1]
            seen *= np.sqrt(parabola.precision[rows])[:, None, None]
            flat = seen.reshape(-1, size)
            gram = dsyrk(1.0, flat.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
        return gram, shift


class Factored:
    """Phi_j = U_j V_j': N never meets I² or J I."""

    def __init__(self, factors: Factors) -> None:
        self.factors = factors
        self._gram: Array | None = None

    def _weighted(self, precision: Array) -> Array:
        """U' C U; rows of the same precision share one product for all sweeps."""
        left = self.factors.left
        if np.ptp(precision) > 0:
            return np.asarray((left * precision[:, None]).T @ left)
        if self._gram is None:
            self._gram = left.T @ left
        return np.asarray(precision[0] * self._gram)

    def by_w(self, lam: GaussianBlock, parabola: Parabola) -> tuple[Array, Array]:
        """V [(U'CU) o E(lam lam')] V'."""
        left, right, feature = self.factors
        outer = lam.covariance + np.outer(lam.mean, lam.mean)
        between = self._weighted(parabola.precision) * outer[np.ix_(feature, feature)]
        shift = right @ ((parabola.shift @ left) * lam.mean[feature])
        return np.asarray((right @ between) @ right.T), shift

    def by_lam(self, w: GaussianBlock) -> SeenByLam:
        """u_nj' [V_j' E(w w') V_k] u_nk, one feature j at a time to save memory."""
        left, right, _ = self.factors
        begin = self.factors.begin
        stops = np.append(begin[1:], left.shape[1])
        mean = right.T @ w.mean
        half = dtrmm(1.0, w.root, right, trans_a=1)
        outer = half.T @ half + np.outer(mean, mean)
        squares = np.empty((len(left), len(begin), len(begin)))
        for j, (start, stop) in enumerate(zip(begin, stops, strict=True)):
            seen = left[:, start:stop] @ outer[start:stop, :stop]
            seen *= left[:, :stop]
            squares[:, j, : j + 1] = np.add.reduceat(seen, begin[: j + 1], axis=1)
            squares[:, : j + 1, j] = squares[:, j, : j + 1]
        return SeenByLam(np.add.reduceat(left * mean, begin, axis=1), squares)
