"""Kernels in machine code, each as a `Kernel` of `joint.py`, right and with planted faults.

Each function takes the name of a fault, or None. All functions looked at are bounded, so that heavy
tails do not spoil their errors.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_softmax, logsumexp, softmax
from scipy.stats import kstwobign

from ardvark.inference.mixture.background import gaussian_evidence
from ardvark.inference.mixture.chains import empty_state, make_problem
from ardvark.inference.mixture.conditional.chains import Effort, first_points, one_point
from ardvark.inference.mixture.conditional.chains import sweep as conditional_sweep
from ardvark.inference.mixture.conditional.density import Metric, make_work
from ardvark.inference.mixture.conditional.jumps import MOVES
from ardvark.inference.mixture.kernels import fill_prior, gibbs_sweep, jump, rung
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
from ardvark.studies.validation.joint import Kernel, Rng

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


# The mixture: joint density -----------------------------------------------------------------------

CLASSES, KERNELS, DIMENSIONS, CASES = 2, 2, 2, 8
A_SHAPE, G, FLOOR = 2.0, 0.2, 0.1
H = np.full(DIMENSIONS, 1.0)
MIXTURE_SUBSETS = log_subset_prior(DIMENSIONS, 0.5)  # far from uniform: to forget it must show


def _begin_mixture(rng: Rng) -> Any:
    s = rung(empty_state((1,), CLASSES, KERNELS, DIMENSIONS, CASES), 0)
    weight = np.exp(MIXTURE_SUBSETS) * np.array([1, 2, 1])
    s.on[rng.permutation(DIMENSIONS)[: rng.choice(3, p=weight / weight.sum())]] = True
    s.P[:] = rng.dirichlet(np.ones(CLASSES))
    s.w[:] = rng.dirichlet(np.ones(KERNELS), size=CLASSES)
    for j in range(DIMENSIONS):
        s.beta[j] = fill_prior(rng, A_SHAPE, G, H[j], FLOOR**2, s.mean[j], s.tau[j])
    return s


def _mixture_data(s: Any, rng: Rng) -> Any:
    """Labels, kernels of the rows, inputs; a background of its own for inputs outside."""
    s.c[:] = rng.choice(CLASSES, CASES, p=s.P)
    for n in range(CASES):
        s.d[n] = rng.choice(KERNELS, p=s.w[s.c[n]])
    z = np.empty((DIMENSIONS, CASES))
    for j in range(DIMENSIONS):
        mean, tau = s.mean[j, s.d], s.tau[j, s.d]
        if not s.on[j]:
            alone, precision = np.empty(1), np.empty(1)
            fill_prior(rng, A_SHAPE, G, H[j], FLOOR**2, alone, precision)
            mean, tau = np.full(CASES, alone[0]), np.full(CASES, precision[0])
        z[j] = mean + rng.normal(size=CASES) / np.sqrt(tau)
    return z, s.c.copy()


def _mixture(from_data: bool, fault: str | None) -> Kernel:
    log_prior = np.zeros(3) if fault == "prior of the subset forgotten" else MIXTURE_SUBSETS
    rows = np.empty((KERNELS, CASES))

    def move(s: Any, data: Any, rng: Rng) -> Any:
        z, label = data
        evidence = gaussian_evidence(z, A_SHAPE, G, H, FLOOR**2)
        if fault == "no background":
            evidence = evidence._replace(value=np.zeros(DIMENSIONS))
        p = make_problem(z, label, log_prior, A_SHAPE, G, H, FLOOR, evidence)
        gibbs_sweep(rng, p, s, rows)
        for _ in range(DIMENSIONS):
            jump(rng, p, s, int(rng.random() * 3), from_data, rows)
        return s

    return Kernel(_begin_mixture, _mixture_data, move, _look_mixture)


def _look_mixture(s: Any, data: Any) -> Array:
    z, label = data
    on = s.on.astype(float)
    log_row = np.zeros((KERNELS, CASES))
    for j in np.flatnonzero(s.on):
        log_row += 0.5 * np.log(s.tau[j])[:, None]
        log_row -= 0.5 * s.tau[j][:, None] * (z[j] - s.mean[j][:, None]) ** 2
    likely = logsumexp(log_row.T + np.log(s.w[label] + 1e-300), axis=1).mean()
    return np.array([
        *on, s.P[0], s.w[0, 0] ** 2, (on[:, None] * np.tanh(s.mean)).sum(),
        (on[:, None] * np.tanh(s.mean) ** 2).sum(), (on[:, None] / (1 + s.tau)).sum(),
        (on / (1 + s.beta)).sum(), np.tanh(likely / 4), np.mean(label == 0) * on[0],
    ])  # fmt: skip


# The mixture: conditional target ------------------------------------------------------------------

FIXED_INPUTS = np.ascontiguousarray(np.random.default_rng(16).normal(size=(DIMENSIONS, CASES)))


def _begin_conditional(rng: Rng) -> Any:
    p, nobody = _conditional_problem(np.zeros(CASES, int)), np.zeros(DIMENSIONS, bool)
    s = one_point(first_points(rng, p, CLASSES, KERNELS, nobody, 1), 0)
    weight = np.exp(MIXTURE_SUBSETS) * np.array([1, 2, 1])
    s.on[rng.permutation(DIMENSIONS)[: rng.choice(3, p=weight / weight.sum())]] = True
    return s


def _conditional_problem(label: Any, fault: str | None = None) -> Any:
    log_prior = np.zeros(3) if fault == "prior of the subset forgotten" else MIXTURE_SUBSETS
    none = gaussian_evidence(FIXED_INPUTS, A_SHAPE, G, H, FLOOR**2)._replace(
        value=np.zeros(DIMENSIONS)
    )
    shape = A_SHAPE - 1 if fault == "no Jacobian of log τ" else A_SHAPE
    return make_problem(FIXED_INPUTS, label, log_prior, shape, G, H, FLOOR, none)


def _log_classes(s: Any) -> Array:
    """Log P(t | x) of each row and class."""
    joint = np.zeros((CASES, KERNELS))
    for j in np.flatnonzero(s.on):
        square = s.tau[j] * (FIXED_INPUTS[j][:, None] - s.mean[j]) ** 2
        joint += 0.5 * np.log(s.tau[j]) - 0.5 * square
    by_class = logsumexp(joint[:, None, :] + log_softmax(s.B, axis=1), axis=2)
    return np.asarray(log_softmax(log_softmax(s.A) + by_class, axis=1))


def _labels(s: Any, rng: Rng) -> Array:
    return (rng.random(CASES) < np.exp(_log_classes(s)[:, 1])).astype(np.int64)


def _conditional(fault: str | None) -> Kernel:
    metric = Metric(
        np.array([0.6, 0.0, 0.0]), np.full((DIMENSIONS + 1, 2), 4.0),
        np.zeros((DIMENSIONS + 1, 2)), np.zeros(DIMENSIONS + 1),
    )  # fmt: skip
    work = make_work(CLASSES, KERNELS, DIMENSIONS, CASES)
    counts = np.zeros((2, len(MOVES), DIMENSIONS + 1), np.int64)
    chance = np.linspace(0.4, 1.0, DIMENSIONS)  # of an input to be tried
    base = _conditional_problem(np.zeros(CASES, np.int64), fault)

    def move(s: Any, label: Array, rng: Rng) -> Any:
        conditional_sweep(
            rng, base._replace(label=label), s, metric, chance, Effort(2, 4), counts, work
        )
        return s

    return Kernel(_begin_conditional, _labels, move, _look_conditional)


def _look_conditional(s: Any, label: Any) -> Array:
    on = s.on.astype(float)
    log_t = np.take_along_axis(_log_classes(s), label[:, None], 1)
    return np.array([
        *on, softmax(s.A)[0], softmax(s.B, axis=1)[0, 0] ** 2,
        (on[:, None] * np.tanh(s.mean)).sum(), (on[:, None] / (1 + s.tau)).sum(),
        (on / (1 + s.beta)).sum(), np.exp(log_t).mean(), label.mean() * on[0],
    ])  # fmt: skip


FORGOTTEN = "prior of the subset forgotten"
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
    "mixture: births from the data": (
        partial(_mixture, True), (FORGOTTEN, "no background"), 3000
    ),
    "mixture: births from the prior": (partial(_mixture, False), (FORGOTTEN,), 3000),
    "mixture: conditional target": (
        _conditional, (FORGOTTEN, "no Jacobian of log τ"), 3000
    ),
}  # fmt: skip
