"""A chain of the RBF mixture: a ladder of copies at powers of the likelihood, sweeps in numba.

The copy at power s aims at

    p(I) p(Θ, w, P) p(c, d | w, P) [Π_{j in I} p(x_j | d, Θ_j) Π_{j not in I} p0(x_j)]^s

A Gaussian to a power is a Gaussian, so n rows count as s n in every formula, and nothing else
changes. Neighbours on the ladder exchange states; only the copy at s = 1 is kept. One rung, the
default, is a plain chain. Leaps between modes (`leaps.py`) are made by the copy at s = 1.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.mixture.kernels import (
    LOG_2_PI,
    Problem,
    State,
    at_power,
    copy_state,
    gibbs_sweep,
    jump,
    rung,
    statistics,
)
from ardvark.inference.mixture.leaps import Library, leap
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import DONE, STOP

__all__ = ["Store", "Sweeps", "exchange_states", "run_ladder", "settle"]

SWAPS = 0.3  # share of exchanges between neighbours on the ladder that tuning aims at
LEAP = 3  # row of the counts; births, deaths and exchanges are before it
LEAP_EVERY = 5  # sweeps


@njit(cache=True, nogil=True, error_model="numpy")
def log_data(p: Problem, s: State) -> float:
    """Log of what the ladder takes to a power: p(x_j | d, Θ_j) or p0(x_j), over inputs."""
    total = 0.0
    for j in range(p.z.shape[0]):
        if not s.on[j]:
            total += p.log_p0[j]
            continue
        count, centre, scatter = statistics(p.z[j], s.d, s.tau.shape[1])
        for k in range(s.tau.shape[1]):
            total += 0.5 * count[k] * (math.log(s.tau[j, k]) - LOG_2_PI)
            apart = count[k] * (centre[k] - s.mean[j, k]) ** 2
            total -= 0.5 * s.tau[j, k] * (scatter[k] + apart)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def swap_neighbours(rng: Any, p: Problem, s: State, place: Any, powers: Any, swaps: Any) -> None:
    """Try to exchange the states of neighbours on the ladder."""
    energy = np.empty(place.shape[0])
    for t in range(place.shape[0]):
        energy[t] = log_data(p, rung(s, place[t]))
    exchange_states(rng, powers, place, energy, swaps)


@njit(cache=True, nogil=True, error_model="numpy")
def exchange_states(rng: Any, powers: Any, place: Any, energy: Any, chance: Any) -> None:
    """Try to exchange the states of neighbours on a ladder; fills with what chance they do.

    `place` says who is where, `energy` is the log of what is taken to the powers.
    """
    for t in range(place.shape[0] - 1):
        ratio = (powers[t] - powers[t + 1]) * (energy[t + 1] - energy[t])
        chance[t] = math.exp(min(ratio, 0.0))
        if rng.random() < chance[t]:
            place[t], place[t + 1] = place[t + 1], place[t]
            energy[t], energy[t + 1] = energy[t + 1], energy[t]


@njit(cache=True, nogil=True, error_model="numpy")
def settle(rng: Any, p: Problem, s: State, powers: Any, sweeps: int, watch: Any) -> None:
    """Gibbs updates of a whole ladder at its first subsets, before anything jumps."""
    rows = np.empty((s.w.shape[2], p.z.shape[1]))
    for t in range(powers.shape[0]):
        for _ in range(sweeps):
            if watch[STOP]:
                return
            gibbs_sweep(rng, at_power(p, powers[t]), rung(s, t), rows)


class Sweeps(NamedTuple):
    """How to run: jumps a sweep, births from the data or the prior, warm-up or not."""

    jumps: int
    from_data: bool
    tuning: bool  # the gaps between the powers follow the share of their exchanges
    thin: int  # every thin-th state is stored


class Store(NamedTuple):
    """What a chain fills."""

    visited: Any  # (sweep, input), the subset at s = 1
    stored: State
    tried: Any  # (move, size before it)
    accepted: Any
    swapped: Any  # exchanges by gap of the ladder


@njit(cache=True, nogil=True, error_model="numpy")
def run_ladder(
    rng: Any, p: Problem, s: State, powers: Any, library: Library, plan: Sweeps, store: Store,
    watch: Any,
) -> None:  # fmt: skip
    """Run a sweep of every rung for each row of `store.visited`.

    States and powers are moved in place, the state at s = 1 first in the end.
    """
    visited, stored, tried, accepted = store.visited, store.stored, store.tried, store.accepted
    n_rungs, leaps = powers.shape[0], library.rows.shape[0] > 0
    rows = np.empty((s.w.shape[2], p.z.shape[1]))
    room = State(
        s.on[0].copy(), s.c[0].copy(), s.d[0].copy(), s.P[0].copy(), s.w[0].copy(),
        s.mean[0].copy(), s.tau[0].copy(), s.beta[0].copy(),
    )  # fmt: skip
    place, swaps = np.arange(n_rungs), np.zeros(n_rungs - 1)
    kept = 0
    for sweep in range(visited.shape[0]):
        if watch[STOP]:
            return
        watch[DONE] += 1
        for t in range(n_rungs):
            here, problem = rung(s, place[t]), at_power(p, powers[t])
            gibbs_sweep(rng, problem, here, rows)
            for _ in range(plan.jumps):
                move, size = int(rng.random() * 3.0), int(here.on.sum())
                yes = jump(rng, problem, here, move, plan.from_data, rows)
                if t == 0:
                    tried[move, size] += 1
                    accepted[move, size] += yes
        if leaps and sweep % LEAP_EVERY == 0:
            here = rung(s, place[0])
            size = int(here.on.sum())
            tried[LEAP, size] += 1
            accepted[LEAP, size] += leap(rng, p, library, here, room)
        if n_rungs > 1:
            swap_neighbours(rng, p, s, place, powers, swaps)
            store.swapped[:] += swaps
            if plan.tuning:
                gap = np.log(powers[:-1] / powers[1:])
                gap *= np.exp((swaps - SWAPS) / math.sqrt(sweep + 1.0))
                powers[1:] = np.exp(-np.cumsum(np.minimum(gap, 2.0)))
        here = rung(s, place[0])
        visited[sweep] = here.on
        if (sweep + 1) % plan.thin == 0 and kept < stored.on.shape[0]:
            copy_state(here, rung(stored, kept))
            kept += 1
    before = State(
        s.on[place], s.c[place], s.d[place], s.P[place], s.w[place],
        s.mean[place], s.tau[place], s.beta[place],
    )  # fmt: skip
    for t in range(n_rungs):
        copy_state(rung(before, t), rung(s, t))
