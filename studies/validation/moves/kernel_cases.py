"""Kernels in machine code, each as a `Kernel` of `joint.py`, right and with planted faults.

Each function takes the name of a fault, or None. All functions looked at are bounded, so that heavy
tails do not spoil their errors.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import kstwobign

from ardvark.inference.reversible_jump import Plan as Sweeps
from ardvark.inference.running.threads import unwatched
from ardvark.inference.sampled.exact_kernels import run_exact_chain
from ardvark.inference.sampled.kernels import (
    LOGIT,
    PROBIT,
    Plan,
    State,
    problem_of,
    run_chain,
    store_of,
)
from ardvark.inference.sites.arrays import Array
from ardvark.inference.subset.collapsed import Subsets
from ardvark.inference.subset.factor import workspace
from ardvark.inference.subset.kernels import FIXED, ONE_EACH, run_collapsed
from ardvark.inference.subset.laplace import run_laplace
from ardvark.inference.subset.laplace_fit import TwoClasses
from ardvark.inference.subset.replace import likeness
from ardvark.models.subset import log_subset_prior
from ardvark.studies.validation.moves.conditional_cases import CONDITIONAL_KERNELS
from ardvark.studies.validation.moves.joint import Kernel, Rng
from ardvark.studies.validation.moves.mixture_cases import FORGOTTEN, MIXTURE_KERNELS

__all__ = ["ARRAY_KERNELS"]

UNWATCHED = unwatched()


# hyper=Sampled(): weights and their precisions --------------------------------------------------

ROWS, WEIGHTS, SHAPE, RATE = 6, 3, 2.5, 1.5
INPUTS = np.random.default_rng(12).normal(size=(ROWS, WEIGHTS))
OFFSET = np.random.default_rng(14).normal(size=ROWS)


class Hierarchy(NamedTuple):
    """Weights, precisions, and the variance of each row's noise (logit as a scale mixture)."""

    w: Array
    alpha: Array
    variance: Array


def _begin(rng: Rng, family: int) -> Hierarchy:
    alpha = rng.gamma(SHAPE, 1 / RATE, size=WEIGHTS)
    variance = np.ones(ROWS)
    if family == LOGIT:  # a logistic is a normal whose sd is twice a Kolmogorov variable
        variance = np.square(2 * kstwobign.rvs(size=ROWS, random_state=rng))
    return Hierarchy(rng.normal(size=WEIGHTS) / np.sqrt(alpha), alpha, variance)


def _signs(state: Hierarchy, rng: Rng) -> Array:
    noise = np.sqrt(state.variance) * rng.normal(size=ROWS)
    return np.where(INPUTS @ state.w + OFFSET + noise > 0, 1.0, -1.0)


def _sampled(kernel: int, family: int, fault: str | None) -> Kernel:
    shape, rate = np.full(WEIGHTS, SHAPE), np.full(WEIGHTS, RATE)
    shape = shape + 0.5 if fault == "shape of the Gamma" else shape
    plan = Plan(tune=0, sweeps=1, kernel=2 if fault == "no acceptance" else kernel, scale=True)

    def move(s: Hierarchy, sign: Array, rng: Rng) -> Hierarchy:
        own = State(s.w.copy(), s.alpha.copy())
        shift = np.zeros(ROWS) if fault == "offset forgotten" else OFFSET
        problem = problem_of(INPUTS, shift, (family, sign, sign), shape, rate)
        run_chain(problem, own, plan, store_of(1, WEIGHTS), rng, UNWATCHED)
        return Hierarchy(own.w, own.alpha, _variances(s, own.w, sign, rng, family))

    return Kernel(partial(_begin, family=family), _signs, move, _look)


def _variances(s: Hierarchy, w: Array, sign: Array, rng: Rng, family: int) -> Array:
    """The weights move given the signs alone, so the noise is drawn anew with them."""
    if family == PROBIT:
        return s.variance
    eta, variance = INPUTS @ w + OFFSET, np.empty(ROWS)
    for n in range(ROWS):  # by rejection: the sign must come out again
        while True:
            sd = 2 * kstwobign.rvs(random_state=rng)
            if sign[n] * (eta[n] + sd * rng.normal()) > 0:
                variance[n] = sd * sd
                break
    return variance


def _exact(family: int, fault: str | None) -> Kernel:
    shape, rate = np.full(WEIGHTS, SHAPE), np.full(WEIGHTS, RATE)
    shape = shape + 0.5 if fault == "shape of the Gamma" else shape
    plan = Plan(tune=0, sweeps=1, kernel=0, scale=True)

    def move(s: Hierarchy, sign: Array, rng: Rng) -> Hierarchy:
        shift = np.zeros(ROWS) if fault == "offset forgotten" else sign * OFFSET
        problem = problem_of(sign[:, None] * INPUTS, shift, (family, shift, shift), shape, rate)
        alpha, variance, store = s.alpha.copy(), s.variance.copy(), store_of(1, WEIGHTS)
        if not run_exact_chain(problem, alpha, variance, plan, store, rng, UNWATCHED):
            raise RuntimeError("no proposal was accepted")
        return Hierarchy(store.weights[0].copy(), alpha, variance)

    return Kernel(partial(_begin, family=family), _signs, move, _look)


def _look(s: Hierarchy, sign: Array) -> Array:
    eta = INPUTS @ s.w + OFFSET
    e = np.tanh(eta)
    return np.array([
        *np.tanh(s.w), *(1 / (1 + s.alpha)), np.tanh(s.w[0] * s.w[1]), e[0] * e[1],
        np.tanh(s.w @ s.w), expit(sign * eta).mean(), sign[0] * e[1],
    ])  # fmt: skip


# Reversible jump over subsets of a linear model ---------------------------------------------------

COLUMNS = 3
A = np.column_stack([np.ones(8), np.random.default_rng(15).normal(size=(8, COLUMNS))])
SUBSETS = log_subset_prior(COLUMNS, 1.2)
SCALE = 0.8


class Chosen(NamedTuple):
    """Weights by column (the bias first, zero where it is out), precisions, noise."""

    on: Array
    w: Array
    alpha: Array
    sigma: float


def _begin_subset(rng: Rng, slab: int, noise: bool) -> Chosen:
    on = np.zeros(COLUMNS, bool)
    on[rng.permutation(COLUMNS)[: _size(rng)]] = True
    alpha = np.ones(COLUMNS + 1)
    if slab == ONE_EACH:
        alpha[1:] = rng.gamma(SHAPE, 1 / RATE, size=COLUMNS)
    w = rng.normal(size=COLUMNS + 1) / np.sqrt(alpha)
    sigma = abs(SCALE * rng.normal()) if noise else 1.0
    return Chosen(on, w * np.append(True, on), alpha, sigma)


def _size(rng: Rng) -> int:
    from scipy.special import gammaln

    size = np.arange(COLUMNS + 1)
    number = gammaln(COLUMNS + 1) - gammaln(size + 1) - gammaln(COLUMNS - size + 1)
    p = np.exp(SUBSETS + number)
    return int(rng.choice(COLUMNS + 1, p=p / p.sum()))


def _regression_data(s: Chosen, rng: Rng) -> Array:
    return np.asarray(A @ s.w + s.sigma * rng.normal(size=len(A)))


def _class_data(s: Chosen, rng: Rng, probit: bool) -> Array:
    noise = rng.normal(size=len(A)) if probit else rng.logistic(size=len(A))
    return np.where(A @ s.w + noise > 0, 1.0, -1.0)


def _log_prior(fault: str | None) -> Array:
    return np.zeros(COLUMNS + 1) if fault == "prior of the subset forgotten" else SUBSETS


def _collapsed(probit: bool, slab: int, fault: str | None) -> Kernel:
    noise = not probit

    def move(s: Chosen, t: Array, rng: Rng) -> Chosen:
        rate = RATE / 2 if fault == "rate of the slab" else RATE
        problem = Subsets(
            A, t, _log_prior(fault), s.alpha, slab, SHAPE, rate, s.sigma,
            SCALE * (0.5 if fault == "scale of the noise" else 1.0) if noise else 0.0, probit,
        )  # fmt: skip
        near = likeness(A) if probit else np.empty((0, 0))
        first = 1 + np.flatnonzero(s.on)
        store, _ = run_collapsed(
            problem.products, problem.prior(), Sweeps(0, 1, 1), COLUMNS, near, first,
            s.w[np.append(0, first)], workspace(COLUMNS + 1), rng, UNWATCHED,
        )  # fmt: skip
        return _kept(store, s)

    data = partial(_class_data, probit=True) if probit else _regression_data
    look = _look_classes if probit else _look_regression
    return Kernel(partial(_begin_subset, slab=slab, noise=noise), data, move, look)


def _kept(store: Any, s: Chosen) -> Chosen:
    on = store.included[0].astype(bool)
    w = store.weights[0] * np.append(True, on)
    alpha = store.alpha[0] if len(store.alpha) else s.alpha
    return Chosen(on, w, alpha.copy(), float(store.sigma[0]))


def _laplace_jumps(probit: bool, fault: str | None) -> Kernel:
    def move(s: Chosen, t: Array, rng: Rng) -> Chosen:
        problem = Subsets(A, t, _log_prior(fault), s.alpha, FIXED)
        first = 1 + np.flatnonzero(s.on)
        store, _ = run_laplace(
            TwoClasses(A, t, probit), problem.prior(), Sweeps(0, 1, 1), COLUMNS, first,
            s.w[np.append(0, first)], rng, UNWATCHED,
        )  # fmt: skip
        return _kept(store, s)

    begin = partial(_begin_subset, slab=FIXED, noise=False)
    return Kernel(begin, partial(_class_data, probit=probit), move, _look_classes)


def _look_regression(s: Chosen, t: Array) -> Array:
    rest = (t - A @ s.w) / max(s.sigma, 1e-12)
    extra = [np.tanh(s.sigma), *(1 / (1 + s.alpha[1:])), np.tanh(rest @ rest / len(t))]
    return np.array([*s.on, *np.tanh(s.w), s.on.sum(), *extra, np.tanh(t[0]) * np.tanh(s.w[1])])


def _look_classes(s: Chosen, t: Array) -> Array:
    eta = A @ s.w
    return np.array(
        [*s.on, *np.tanh(s.w), s.on.sum(), expit(t * eta).mean(), t[0] * np.tanh(eta[1])]
    )


ARRAY_KERNELS: dict[str, tuple[Any, tuple[str, ...], int]] = {  # builder, faults, rounds
    "Sampled: ellipse, probit": (
        partial(_sampled, 0, PROBIT), ("shape of the Gamma", "no acceptance"), 20_000
    ),
    "Sampled: ellipse, logit": (partial(_sampled, 0, LOGIT), ("shape of the Gamma",), 20_000),
    "Sampled: independence, probit": (
        partial(_sampled, 1, PROBIT), ("shape of the Gamma", "offset forgotten"), 20_000
    ),
    "Sampled: exact, probit": (
        partial(_exact, PROBIT), ("shape of the Gamma", "offset forgotten"), 20_000
    ),
    "Sampled: exact, logit": (partial(_exact, LOGIT), ("shape of the Gamma",), 20_000),
    "subsets: regression, noise inferred": (
        partial(_collapsed, False, FIXED), (FORGOTTEN, "scale of the noise"), 20_000
    ),
    "subsets: regression, precisions inferred": (
        partial(_collapsed, False, ONE_EACH), (FORGOTTEN, "rate of the slab"), 20_000
    ),
    "subsets: probit by utilities": (partial(_collapsed, True, FIXED), (FORGOTTEN,), 20_000),
    "subsets: logit by Laplace": (partial(_laplace_jumps, False), (FORGOTTEN,), 6000),
    "subsets: probit by Laplace": (partial(_laplace_jumps, True), (FORGOTTEN,), 6000),
    **MIXTURE_KERNELS,
    **CONDITIONAL_KERNELS,
}  # fmt: skip
