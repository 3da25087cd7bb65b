"""Moves of the RBF mixture with its joint density, together and each alone, as `Kernel`s.

A move that leaves some coordinates as they are is tested with these held at numbers, or at draws
that it never meets again: births and deaths at given probabilities of the kernels, exchanges at one
input, Gibbs updates at all inputs. Leaps alone mix slowly: sweeps without a fault are beside them.
The allocations of rows to kernels are drawn with the data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ardvark.inference.mixture.background import gaussian_evidence
from ardvark.inference.mixture.chains import empty_state, make_problem
from ardvark.inference.mixture.kernels import copy_state, fill_prior, gibbs_sweep, jump, rung
from ardvark.inference.mixture.leaps import leap, make_library
from ardvark.inference.sites.arrays import Array
from ardvark.models.subset import log_subset_prior
from ardvark.studies.validation.moves.joint import Kernel, Rng

__all__ = ["FORGOTTEN", "MIXTURE_KERNELS"]

CLASSES, KERNELS, DIMENSIONS, CASES = 2, 2, 2, 8
A_SHAPE, G, FLOOR = 2.0, 0.2, 0.1
H = np.full(DIMENSIONS, 1.0)
SUBSETS = log_subset_prior(DIMENSIONS, 0.5)  # far from uniform: to forget it must show
BIRTH, DEATH, EXCHANGE = 0, 1, 2
STORED = 2  # states in the library of leaps
FORGOTTEN, ALONE = "prior of the subset forgotten", "no background"
RATE = "g of the rates"


def draw_subset(rng: Rng, log_prior: Array, size: int | None = None) -> Any:
    """Inputs by the prior, or so many of them."""
    on = np.zeros(DIMENSIONS, bool)
    weight = np.exp(log_prior) * np.array([1, 2, 1])
    drawn = rng.choice(3, p=weight / weight.sum()) if size is None else size
    on[rng.permutation(DIMENSIONS)[:drawn]] = True
    return on


def _begin(rng: Rng, size: int | None = None, held: bool = False) -> Any:
    s = rung(empty_state((1,), CLASSES, KERNELS, DIMENSIONS, CASES), 0)
    s.on[:] = draw_subset(rng, SUBSETS, size)
    s.P[:] = [0.4, 0.6] if held else rng.dirichlet(np.ones(CLASSES))
    s.w[:] = [[0.3, 0.7], [0.6, 0.4]] if held else rng.dirichlet(np.ones(KERNELS), size=CLASSES)
    for j in range(DIMENSIONS):
        s.beta[j] = fill_prior(rng, A_SHAPE, G, H[j], FLOOR**2, s.mean[j], s.tau[j])
    return s


def _data(s: Any, rng: Rng) -> Any:
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


def _sweep(rng: Rng, p: Any, s: Any, from_data: bool) -> None:
    rows = np.empty((KERNELS, CASES))
    gibbs_sweep(rng, p, s, rows)
    for _ in range(DIMENSIONS):
        jump(rng, p, s, int(rng.random() * 3), from_data, rows)


def _gibbs(rng: Rng, p: Any, s: Any) -> None:
    gibbs_sweep(rng, p, s, np.empty((KERNELS, CASES)))


def _births(rng: Rng, p: Any, s: Any, from_data: bool) -> None:
    """Births, and the deaths that undo them."""
    for _ in range(4):
        jump(rng, p, s, int(rng.random() * 2), from_data, np.empty((KERNELS, CASES)))


def _exchanges(rng: Rng, p: Any, s: Any) -> None:
    for _ in range(2):
        jump(rng, p, s, EXCHANGE, True, np.empty((KERNELS, CASES)))


def _leap(rng: Rng, p: Any, s: Any) -> None:
    """A sweep without a fault, and a leap to a library that knows the data and not the state."""
    value = gaussian_evidence(p.z, A_SHAPE, G, H, FLOOR**2).value
    _sweep(rng, p._replace(log_prior=SUBSETS, log_p0=value), s, True)
    states = empty_state((STORED,), CLASSES, KERNELS, DIMENSIONS, CASES)
    for m in range(STORED):
        copy_state(_begin(rng), rung(states, m))
    leap(rng, p, make_library(p, states), s, _begin(rng))


def _kernel(
    step: Callable[[Rng, Any, Any], None], fault: str | None, size: int | None = None,
    held: bool = False,
) -> Kernel:  # fmt: skip
    log_prior = np.zeros(3) if fault == FORGOTTEN else SUBSETS
    g = G + 0.5 * (fault == RATE)

    def move(s: Any, data: Any, rng: Rng) -> Any:
        z, label = data
        evidence = gaussian_evidence(z, A_SHAPE, G, H, FLOOR**2)
        if fault == ALONE:
            evidence = evidence._replace(value=np.zeros(DIMENSIONS))
        step(rng, make_problem(z, label, log_prior, A_SHAPE, g, H, FLOOR, evidence), s)
        return s

    return Kernel(partial(_begin, size=size, held=held), _data, move, _look)


def _look(s: Any, data: Any) -> Array:
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


def _case(step: Any, **held: Any) -> Any:
    return lambda fault: _kernel(step, fault, **held)


MIXTURE_KERNELS: dict[str, tuple[Any, tuple[str, ...], int]] = {
    "mixture: births from the data": (
        _case(partial(_sweep, from_data=True)), (FORGOTTEN, ALONE), 3000
    ),
    "mixture: births from the prior": (
        _case(partial(_sweep, from_data=False)), (FORGOTTEN,), 3000
    ),
    "mixture: Gibbs updates alone": (_case(_gibbs, size=2), (RATE,), 3000),
    "mixture: births and deaths alone": (
        _case(partial(_births, from_data=True), held=True), (FORGOTTEN, ALONE), 4000
    ),
    "mixture: births and deaths from the prior alone": (
        _case(partial(_births, from_data=False), held=True), (FORGOTTEN,), 4000
    ),
    "mixture: exchanges alone": (_case(_exchanges, size=1, held=True), (ALONE,), 3000),
    "mixture: leaps beside sweeps": (_case(_leap), (FORGOTTEN, ALONE), 3000),
}  # fmt: skip
