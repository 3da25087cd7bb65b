"""Softmax over K predictors of one design, and (A + Phi'W Phi)^-1 in two spaces.

The same numbers from both: `Weights` factors A + Phi'W Phi, O(D^3) for D = sum of active weights;
`Functions` uses that W is diagonal but for a rank-N part, O(K N^3). Each answers `solve`, i.e.
(A + Phi'W Phi)^-1 times something, and what `MultinomialFit` is asked for follows from it.

| Rasmussen & Williams 2006 (RW06)                    | code                                       |
|-----------------------------------------------------|--------------------------------------------|
| (K + W^-1)^-1 = E - E R (sum E_c)^-1 R'E, (3.45-47) | `Functions`                                |
| algorithm 3.3, last line: log Z                     | `half_log_det`; printed without            |
|                                                     | log |sum E_c| / 2, which belongs to it     |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import logsumexp

from ardvark.inference.sites.arrays import Array, Index, Mask

__all__ = ["SPACES", "SoftmaxModel", "Space", "eta_covariance", "the_space"]

SPACES = ("auto", "weights", "functions")


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxModel:
    """Design (N, d), codes of the classes (N,), precisions (K, d); inf = switched off."""

    projection: Array
    codes: Index
    precision: Array

    def __post_init__(self) -> None:
        (rows, columns), (classes, weights) = self.projection.shape, self.precision.shape
        if columns != weights or self.codes.shape != (rows,):
            raise ValueError(
                f"a design {self.projection.shape} needs {rows} codes and precisions "
                f"(classes, {columns}); found {self.codes.shape} and {self.precision.shape}"
            )
        if rows and not (self.codes.min() >= 0 and self.codes.max() < classes):
            raise ValueError(f"codes must lie in 0 ... {classes - 1}")
        if not np.all(self.precision > 0):
            raise ValueError("precisions must be positive (inf = switched off)")

    @property
    def on(self) -> Mask:
        """Weights that are in the model (K, d)."""
        return np.isfinite(self.precision)

    def predictor(self, weights: Array) -> Array:
        """Predictors eta (..., N, K) at weights (..., K, d)."""
        return np.asarray(self.projection @ np.swapaxes(weights, -1, -2))

    def log_likelihood(self, eta: Array) -> Array:
        """Give log p(t_n | eta_n) of each row: (..., N) at eta (..., N, K)."""
        chosen = np.take_along_axis(
            eta, np.broadcast_to(self.codes[:, None], (*eta.shape[:-1], 1)), axis=-1
        )[..., 0]
        return np.asarray(chosen - logsumexp(eta, axis=-1))

    def log_prior(self, weights: Array) -> Array:
        """Give log N(w; 0, A^-1) of the active weights: (...) at weights (..., K, d)."""
        w, alpha = weights[..., self.on], self.precision[self.on]
        return np.asarray(0.5 * (np.log(alpha / (2 * np.pi)) - alpha * w**2).sum(axis=-1))


class Space(Protocol):
    """What a fit needs of either space."""

    half_log_det: float

    def solve(self, forces: Array) -> Array:
        """(A + Phi'W Phi)^-1 times forces."""

    def covariance(self) -> Array:
        """Of the active weights (D, D)."""

    def marginal_variance(self) -> Array:
        """Of every weight (K, d)."""

    def eta_covariance(self) -> Array:
        """Of the predictors of each row (N, K, K)."""


class Weights:
    """S = I + A^-1/2 Phi'W Phi A^-1/2 over the active weights, by one factor."""

    def __init__(self, model: SoftmaxModel, chances: Array) -> None:
        self.model, self.on = model, model.on
        self.root = np.sqrt(model.precision[self.on])
        scaled = [  # Phi A^-1/2 of each class
            model.projection[:, on] / np.sqrt(alpha[on])
            for on, alpha in zip(self.on, model.precision, strict=True)
        ]
        blocks = [
            [
                left.T @ ((chances[:, c] * ((c == e) - chances[:, e]))[:, None] * right)
                for e, right in enumerate(scaled)
            ]
            for c, left in enumerate(scaled)
        ]
        information = np.block(blocks)
        information = 0.5 * (information + information.T)
        information[np.diag_indices_from(information)] += 1.0
        self.factor = cho_factor(information, lower=True)
        self.half_log_det = float(np.log(self.factor[0].diagonal()).sum())

    def solve(self, forces: Array) -> Array:
        """H^-1 of forces (..., K, d); zero where weights are off."""
        packed = (forces[..., self.on] / self.root).reshape(-1, self.root.size)
        solved = cho_solve(self.factor, packed.T).T / self.root
        moved = np.zeros_like(forces)
        moved[..., self.on] = solved.reshape(forces[..., self.on].shape)
        return moved

    def covariance(self) -> Array:
        """H^-1 of the active weights (D, D)."""
        inverse = cho_solve(self.factor, np.eye(self.root.size))
        return np.asarray(inverse / np.outer(self.root, self.root))

    @cached_property
    def _dense(self) -> Array:
        return self.covariance()

    def marginal_variance(self) -> Array:
        """Posterior variance of each weight (K, d), 0 where off."""
        variance = np.zeros(self.on.shape)
        variance[self.on] = self._dense.diagonal()
        return variance

    def eta_covariance(self) -> Array:
        """Posterior covariance of the K predictors of each row (N, K, K)."""
        return eta_covariance(self.model.projection, self.on, self._dense)


class Functions:
    """E_c = D_c^1/2 (I + D_c^1/2 K_c D_c^1/2)^-1 D_c^1/2 and the factor of their sum."""

    def __init__(self, model: SoftmaxModel, grams: Array, chances: Array) -> None:
        self.model, self.grams = model, grams
        self.variance = 1.0 / model.precision  # 0 where off
        self.E, self.half_log_det = np.empty_like(grams), 0.0
        for c, gram in enumerate(grams):
            root = np.sqrt(chances[:, c])
            B = gram * np.outer(root, root)
            B[np.diag_indices_from(B)] += 1.0
            factor = np.linalg.cholesky(B)
            half = solve_triangular(factor, np.diag(root), lower=True)
            self.E[c] = half.T @ half  # RW06 (3.46)
            self.half_log_det += float(np.log(factor.diagonal()).sum())
        self.total = np.linalg.cholesky(self.E.sum(axis=0))
        self.half_log_det += float(np.log(self.total.diagonal()).sum())

    def _inner(self, eta: Array) -> Array:
        """(K + W^-1)^-1 of (K, N, m) predictors, RW06 (3.47)."""
        once = self.E @ eta
        common = cho_solve((self.total, True), once.sum(axis=0))
        return np.asarray(once - self.E @ common)

    def solve(self, forces: Array) -> Array:
        """H^-1 = A^-1 - A^-1 Phi'(K + W^-1)^-1 Phi A^-1 of forces (..., K, d)."""
        Phi, shape = self.model.projection, forces.shape
        flat = (forces * self.variance).reshape(-1, *shape[-2:])
        eta = np.moveaxis(flat @ Phi.T, 0, -1)  # (K, N, m)
        back = np.moveaxis(Phi.T @ self._inner(eta), -1, 0)  # (m, K, d)
        return np.asarray((flat - self.variance * back).reshape(shape))

    def covariance(self) -> Array:
        """H^-1 of the active weights (D, D)."""
        on = self.model.on
        unit = np.zeros((int(on.sum()), *on.shape))
        unit[:, on] = np.eye(len(unit))
        return np.asarray(self.solve(unit)[:, on])

    @cached_property
    def _shared(self) -> list[Array]:
        """M^-1 E_c, M M' = sum of the E_c."""
        return [solve_triangular(self.total, E, lower=True) for E in self.E]

    def marginal_variance(self) -> Array:
        """Posterior variance of each weight (K, d), 0 where off."""
        Phi, told = self.model.projection, np.empty(self.variance.shape)
        for c, (E, shared) in enumerate(zip(self.E, self._shared, strict=True)):
            told[c] = np.einsum("nj,nj->j", E @ Phi, Phi) - np.square(shared @ Phi).sum(axis=0)
        return np.asarray(self.variance - self.variance**2 * told)

    def eta_covariance(self) -> Array:
        """Posterior covariance of the K predictors of each row (N, K, K)."""
        rows, classes = self.model.projection.shape[0], len(self.E)
        found = np.empty((rows, classes, classes))
        shared = [half @ gram for half, gram in zip(self._shared, self.grams, strict=True)]
        for c in range(classes):
            for e in range(classes):
                found[:, c, e] = np.einsum("in,in->n", shared[c], shared[e])
            gram = self.grams[c]
            found[:, c, c] += gram.diagonal() - np.einsum("in,in->n", gram, self.E[c] @ gram)
        return found


def eta_covariance(projection: Array, on: Mask, covariance: Array) -> Array:
    """Covariance (N, K, K) of the predictors of each row, given that of the weights on (D, D)."""
    ends = np.append(0, np.cumsum(on.sum(axis=1)))
    rows = [projection[:, here] for here in on]
    found = np.empty((len(projection), len(on), len(on)))
    for c in range(len(on)):
        for e in range(c + 1):
            block = covariance[ends[c] : ends[c + 1], ends[e] : ends[e + 1]]
            found[:, c, e] = found[:, e, c] = np.einsum("nj,nj->n", rows[c] @ block, rows[e])
    return found


def the_space(model: SoftmaxModel, space: str) -> Callable[[Array], Space]:
    """The requested space, or the cheaper one, as a function of the probabilities."""
    rows, (classes, _) = len(model.projection), model.precision.shape
    active = int(model.on.sum())
    in_weights = active**3 / 3 + rows * active**2 < 3.0 * classes * rows**3
    if space == "weights" or (space == "auto" and in_weights):
        return lambda chances: Weights(model, chances)
    Phi = model.projection
    grams = np.stack([(Phi / alpha) @ Phi.T for alpha in model.precision])
    return lambda chances: Functions(model, grams, np.maximum(chances, 1e-300))
