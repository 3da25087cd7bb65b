"""Moves of the RBF mixture under P(t | x), together and each alone, as `Kernel`s of `joint.py`.

A move that leaves some coordinates as they are is tested with these held at numbers: HMC at all
inputs and given rates, births and deaths at given probabilities of the kernels, exchanges at one
input. Two rungs of the ladder have the joint density

    p(θ) p(θ') Π_n P(t_n | x_n, θ) P(t_n | x_n, θ')^s

of which the labels are drawn row by row, and the states with the labels summed out by rejection:
that sum is at most 1 in each row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax

from ardvark.inference.mixture.background import Evidence
from ardvark.inference.mixture.chains import make_problem
from ardvark.inference.mixture.conditional.chains import (
    Effort,
    Ladder,
    at_rung,
    exchange_points,
    first_points,
    one_point,
    reorder,
    sweep,
)
from ardvark.inference.mixture.conditional.density import (
    Metric,
    draw_rates,
    fill_rows,
    hmc,
    log_labels,
    log_weights,
    make_work,
)
from ardvark.inference.mixture.conditional.jumps import MOVES, jump
from ardvark.inference.sites.arrays import Array
from ardvark.studies.validation.moves.joint import Kernel, Rng
from ardvark.studies.validation.moves.mixture_cases import (
    A_SHAPE,
    CASES,
    CLASSES,
    DIMENSIONS,
    FLOOR,
    FORGOTTEN,
    KERNELS,
    RATE,
    SUBSETS,
    G,
    H,
    draw_subset,
)

__all__ = ["CONDITIONAL_KERNELS"]

INPUTS = np.ascontiguousarray(np.random.default_rng(16).normal(size=(DIMENSIONS, CASES)))
CHANCE = np.linspace(0.4, 1.0, DIMENSIONS)  # of an input to be tried
RATES, WEIGHTS_A, WEIGHTS_B = [0.4, 1.5], [0.2, -0.4], [[0.5, -0.5], [-1.0, 0.0]]
METRIC = Metric(
    np.array([0.6, 0.0, 0.0]), np.full((DIMENSIONS + 1, 2), 4.0), np.zeros((DIMENSIONS + 1, 2)),
    np.zeros(DIMENSIONS + 1),
)  # fmt: skip
WORK = make_work(CLASSES, KERNELS, DIMENSIONS, CASES)
JACOBIAN, CHOICE = "no Jacobian of log τ", "choice of the input"
SIZES = "sizes forgotten"


def _problem(label: Any, fault: str | None = None) -> Any:
    log_prior = np.zeros(3) if fault == FORGOTTEN else SUBSETS
    none = Evidence(np.zeros(DIMENSIONS), np.zeros(DIMENSIONS))
    shape, g = A_SHAPE - (fault == JACOBIAN), G + 0.5 * (fault == RATE)
    return make_problem(INPUTS, label, log_prior, shape, g, H, FLOOR, none)


PRIOR = _problem(np.zeros(CASES, np.int64))


def _points(rng: Rng, number: int) -> Any:
    return first_points(rng, PRIOR, CLASSES, KERNELS, np.zeros(DIMENSIONS, bool), number)


def _begin(
    rng: Rng, size: int | None = None, weights_held: bool = False, rates_held: bool = False
) -> Any:
    s = one_point(_points(rng, 1), 0)
    s.on[:] = draw_subset(rng, SUBSETS, size)
    if weights_held:
        s.A[:], s.B[:] = WEIGHTS_A, WEIGHTS_B
    if rates_held:
        s.beta[:] = RATES
        s.tau[:] = rng.gamma(A_SHAPE, 1 / s.beta[:, None], size=s.tau.shape)
    return s


def _log_classes(s: Any) -> Array:
    """Log P(t | x) of each row and class."""
    joint = np.zeros((CASES, KERNELS))
    for j in np.flatnonzero(s.on):
        square = s.tau[j] * (INPUTS[j][:, None] - s.mean[j]) ** 2
        joint += 0.5 * np.log(s.tau[j]) - 0.5 * square
    by_class = logsumexp(joint[:, None, :] + log_softmax(s.B, axis=1), axis=2)
    return np.asarray(log_softmax(log_softmax(s.A) + by_class, axis=1))


def _labels(s: Any, rng: Rng) -> Array:
    return (rng.random(CASES) < np.exp(_log_classes(s)[:, 1])).astype(np.int64)


def _counts() -> Any:
    return np.zeros((2, len(MOVES), DIMENSIONS + 1), np.int64)


# Moves --------------------------------------------------------------------------------------------


def _sweep(rng: Rng, p: Any, s: Any, fault: str | None) -> None:
    sweep(rng, p, s, METRIC, CHANCE, Effort(2, 4), _counts(), WORK)


def _hmc(rng: Rng, p: Any, s: Any, fault: str | None) -> None:
    hmc(rng, p, s, METRIC, 4, WORK)


def _hmc_and_rates(rng: Rng, p: Any, s: Any, fault: str | None) -> None:
    hmc(rng, PRIOR._replace(label=p.label), s, METRIC, 4, WORK)
    draw_rates(rng, p, s)


def _jumps(rng: Rng, p: Any, s: Any, fault: str | None, moves: tuple[str, ...]) -> None:
    """Four jumps of these kinds; one fault tells births of other chances than deaths."""
    log_weights(s, WORK.log_w)
    fill_rows(p, s, -1, WORK.rows)
    now = np.array([p.power * log_labels(p.label, WORK)])
    for _ in range(4):
        move = moves[int(rng.random() * len(moves))]
        told = CHANCE * [1.0, 4.0] if fault == CHOICE and move == "birth" else CHANCE
        jump(rng, p, s, MOVES.index(move), told, now, WORK)


def _look(s: Any, label: Any) -> Array:
    on = s.on.astype(float)
    log_t = np.take_along_axis(_log_classes(s), label[:, None], 1)
    return np.array([
        *on, softmax(s.A)[0], softmax(s.B, axis=1)[0, 0] ** 2,
        (on[:, None] * np.tanh(s.mean)).sum(), (on[:, None] / (1 + s.tau)).sum(),
        (on / (1 + s.beta)).sum(), np.exp(log_t).mean(), label.mean() * on[0],
    ])  # fmt: skip


def _case(step: Callable[..., None], **held: Any) -> Any:
    def build(fault: str | None) -> Kernel:
        base = _problem(np.zeros(CASES, np.int64), fault)

        def move(s: Any, label: Array, rng: Rng) -> Any:
            step(rng, base._replace(label=label), s, fault)
            return s

        return Kernel(partial(_begin, **held), _labels, move, _look)

    return build


# Two rungs ----------------------------------------------------------------------------------------

RUNGS = Ladder(
    Metric(*(np.stack([part, part]) for part in METRIC)), np.array([1.0, 0.4]),
    np.array([0.0, 1.2]), CHANCE,
)  # fmt: skip


def _tempered(s: Any) -> Array:
    """Log of the product of both rungs' P(t | x)^s, (row, class)."""
    both = [RUNGS.powers[t] * _log_classes(one_point(s, t)) for t in range(2)]
    return np.asarray(both[0] + both[1])


def _begin_rungs(rng: Rng) -> Any:
    while True:
        s = _points(rng, 2)
        for t in range(2):
            s.on[t] = draw_subset(rng, SUBSETS + RUNGS.tilts[t] * np.arange(DIMENSIONS + 1))
        if rng.random() < np.exp(logsumexp(_tempered(s), axis=1).sum()):
            return s


def _labels_of_rungs(s: Any, rng: Rng) -> Any:
    return (rng.random(CASES) < softmax(_tempered(s), axis=1)[:, 1]).astype(np.int64)


def _rungs(fault: str | None) -> Kernel:
    told = RUNGS._replace(tilts=np.zeros(2)) if fault == SIZES else RUNGS

    def move(s: Any, label: Array, rng: Rng) -> Any:
        p, place, energy = PRIOR._replace(label=label), np.arange(2), np.empty(2)
        for t in range(2):
            own = at_rung(p, RUNGS.powers[t], RUNGS.tilts[t])
            here = one_point(s, t)
            energy[t] = sweep(rng, own, here, METRIC, CHANCE, Effort(2, 4), _counts(), WORK)[1]
        exchange_points(rng, told, place, energy, s.on.sum(axis=1).astype(float), np.empty(1))
        reorder(s, place)
        return s

    return Kernel(_begin_rungs, _labels_of_rungs, move, _look_at_rungs)


def _look_at_rungs(s: Any, label: Any) -> Array:
    first, second = (_look(one_point(s, t), label) for t in range(2))
    return np.concatenate([first, second, [s.on[0].sum() * s.on[1].sum(), first[-2] * second[-2]]])


BIRTHS, EXCHANGES, RENEWALS = ("birth", "death"), ("exchange",), ("renewal",)
CONDITIONAL_KERNELS: dict[str, tuple[Any, tuple[str, ...], int]] = {
    "mixture: conditional target": (_case(_sweep), (FORGOTTEN, JACOBIAN), 3000),
    "conditional: HMC alone": (
        _case(_hmc, size=2, rates_held=True), (JACOBIAN,), 3000
    ),
    "conditional: HMC and rates": (_case(_hmc_and_rates, size=2), (RATE,), 3000),
    "conditional: births and deaths alone": (
        _case(partial(_jumps, moves=BIRTHS), weights_held=True), (FORGOTTEN, CHOICE, JACOBIAN), 3000
    ),
    "conditional: exchanges alone": (
        _case(partial(_jumps, moves=EXCHANGES), size=1, weights_held=True), (JACOBIAN,), 3000
    ),
    "conditional: renewals alone": (
        _case(partial(_jumps, moves=RENEWALS), size=2, weights_held=True), (JACOBIAN,), 3000
    ),
    "conditional: two rungs": (_rungs, (SIZES,), 3000),
}  # fmt: skip
