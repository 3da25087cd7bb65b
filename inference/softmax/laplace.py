"""Laplace's approximation for several classes: a softmax over K predictors of one design.

    eta_nk = sum_j Phi_nj w_kj          w_kj ~ N(0, 1/alpha_kj)          a = vec(w)
    log p(t | w) = sum_n eta_{n t_n} - log sum_k exp(eta_nk)
    psi(w) = log p(t | w) - w'A w / 2
    log Z  = psi(w_hat) - 1/2 log |I + A^-1 Phi'W Phi|,     W_n = diag(pi_n) - pi_n pi_n'

All K columns have weights under the symmetric prior: adding a constant to every eta_k changes no
probability, but it costs prior density, so the mode is unique and psi strictly concave.

| Rasmussen & Williams 2006 (RW06)                    | code                                       |
|-----------------------------------------------------|--------------------------------------------|
| gradient t - pi, curvature W, (3.35-38)             | `_evaluate`                                |
| algorithm 3.3: the mode by Newton                   | `fit_multinomial`                          |
| (3.45-47), the two spaces                           | `model.py`                                 |
| algorithm 3.4: averaged probabilities               | `run.py`, `mean_probabilities`             |
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from ardvark.inference.sites.arrays import Array
from ardvark.inference.softmax.model import (
    SPACES,
    SoftmaxModel,
    Space,
    the_space,
)

__all__ = ["MultinomialFit", "fit_multinomial"]


class _State(NamedTuple):
    """A point of the search for the mode."""

    weights: Array  # (K, d), 0 where off
    chances: Array  # pi (N, K)
    first: Array  # t - pi (N, K)
    psi: float


class MultinomialFit:
    """The Gaussian at the mode, its evidence, and the adjoints of it."""

    def __init__(
        self,
        model: SoftmaxModel,
        state: _State,
        space: Space,
        iterations: int,
        decrement: float,
        converged: bool,
    ) -> None:
        self.model, self.space = model, space
        self.mean, self.chances, self.first = state.weights, state.chances, state.first
        self.log_evidence = state.psi - space.half_log_det
        self.iterations, self.decrement, self.converged = iterations, decrement, converged

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the active weights, class by class (D, D)."""
        covariance = self.space.covariance()
        return 0.5 * (covariance + covariance.T)

    @cached_property
    def marginal_variance(self) -> Array:
        """Variance of each weight (K, d), 0 where off."""
        return self.space.marginal_variance()

    @cached_property
    def _pull(self) -> Array:
        """d(-half_log_det) / d eta (N, K): the curvature moves with the mode."""
        S, pi = self.space.eta_covariance(), self.chances
        slope = np.einsum("nkk->nk", S) - 2.0 * np.einsum("nkl,nl->nk", S, pi)
        return np.asarray(-0.5 * pi * (slope - (pi * slope).sum(axis=1, keepdims=True)))

    @cached_property
    def _moved(self) -> Array:
        """Solve for u = H^-1 Phi' pull (K, d)."""
        return self.space.solve(self._pull.T @ self.model.projection)

    def precision_gradient(self) -> Array:
        """Give d log Z / d log alpha (K, d), the move of the mode included; 0 where off."""
        alpha = np.where(self.model.on, self.model.precision, 0.0)
        w = self.mean
        slope = 1.0 - alpha * (w**2 + self.marginal_variance) - 2.0 * alpha * w * self._moved
        return np.asarray(np.where(self.model.on, 0.5 * slope, 0.0))

    def projection_gradient(self) -> Array:
        """Give d log Z / d Phi (N, d), for whatever the design depends on."""
        Phi, pi, on = self.model.projection, self.chances, self.model.on
        eta_moved = self.model.predictor(self._moved)
        curved = pi * (eta_moved - (pi * eta_moved).sum(axis=1, keepdims=True))  # W Phi u
        gradient = (self.first + self._pull - curved) @ self.mean + self.first @ self._moved
        full = np.zeros((on.size, on.size))
        full[np.ix_(on.ravel(), on.ravel())] = self.covariance
        blocks = full.reshape(*on.shape, *on.shape)
        for c in range(len(on)):
            cross = np.stack([Phi @ blocks[e, :, c] for e in range(len(on))])  # cov(eta_e, w_c)
            mean_cross = np.einsum("ne,enj->nj", pi, cross)
            gradient = gradient - pi[:, c, None] * (cross[c] - mean_cross)
        return np.asarray(gradient)

    def draws(self, number: int, rng: np.random.Generator) -> Array:
        """Independent draws (number, K, d): H^-1 of a force with covariance H."""
        model, pi = self.model, self.chances
        noise = rng.standard_normal((number, *pi.shape))
        root = np.sqrt(pi)
        # W_n = C C' with C = diag(sqrt pi) (I - sqrt pi sqrt pi'), the last being a projection
        noise = root * (noise - root * (root * noise).sum(axis=-1, keepdims=True))
        alpha = np.where(model.on, model.precision, 0.0)
        force = np.sqrt(alpha) * rng.standard_normal((number, *alpha.shape))
        force = force + np.swapaxes(noise, -1, -2) @ model.projection
        return np.asarray(self.mean + self.space.solve(force))

    def log_density(self, weights: Array) -> Array:
        """Give log q(w) of weights (..., K, d)."""
        model = self.model
        away = weights - self.mean
        eta = model.predictor(away)
        curved = self.chances * (eta - (self.chances * eta).sum(axis=-1, keepdims=True))
        alpha = model.precision[model.on]
        square = (alpha * away[..., model.on] ** 2).sum(axis=-1) + (eta * curved).sum(axis=(-1, -2))
        constant = 0.5 * np.log(alpha / (2 * np.pi)).sum() + self.space.half_log_det
        return np.asarray(constant - 0.5 * square)


def fit_multinomial(
    model: SoftmaxModel,
    *,
    start: Array | None = None,
    space: str = "auto",
    tolerance: float = 1e-10,
    max_iterations: int = 100,
) -> MultinomialFit:
    """Find the mode by Newton with backtracking, from `start` (K, d) or from zero.

    It ends when a step promises less than the tolerance, relative to 1 + |psi|.
    """
    if space not in SPACES:
        raise ValueError(f"space must be one of {', '.join(SPACES)}; found {space!r}")
    if not model.on.any():
        raise ValueError("every weight is switched off: nothing is left to fit")
    make = the_space(model, space)
    begin = np.zeros(model.precision.shape) if start is None else np.where(model.on, start, 0.0)
    state, decrement, settled = _evaluate(model, begin), np.inf, False
    for iteration in range(max_iterations + 1):
        here = make(state.chances)
        alpha = np.where(model.on, model.precision, 0.0)
        gradient = np.where(model.on, state.first.T @ model.projection - alpha * state.weights, 0.0)
        direction = here.solve(gradient)
        decrement = 0.5 * float((gradient * direction).sum())
        settled = decrement <= tolerance * (1.0 + abs(state.psi))
        moved = _line_search(model, state, direction, 0.0 if settled else decrement)
        if settled:  # one more full step squares the error that is left, and costs nothing
            state = state if moved is None else moved
            break
        if moved is None or iteration == max_iterations:
            break
        state = moved
    return MultinomialFit(model, state, make(state.chances), iteration, decrement, settled)


def _evaluate(model: SoftmaxModel, weights: Array) -> _State:
    eta = model.predictor(weights)
    log_chances = eta - logsumexp(eta, axis=1, keepdims=True)
    rows = np.arange(len(eta))
    chances = np.exp(log_chances)
    first = -chances
    first[rows, model.codes] += 1.0  # RW06 (3.35)
    alpha = np.where(model.on, model.precision, 0.0)
    psi = float(log_chances[rows, model.codes].sum() - 0.5 * (alpha * weights**2).sum())
    return _State(weights, chances, first, psi)


def _line_search(
    model: SoftmaxModel, state: _State, direction: Array, promised: float
) -> _State | None:
    """First of the steps 1, 1/2, 1/4, ... that gains enough; None if none does."""
    size = 1.0
    while size > 1e-12:
        moved = _evaluate(model, state.weights + size * direction)
        least = state.psi + 2e-4 * size * promised - 1e-13 * (1.0 + abs(state.psi))
        if np.isfinite(moved.psi) and moved.psi >= least:
            return moved
        size *= 0.5
    return None
