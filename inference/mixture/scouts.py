"""Scouts of the RBF mixture: a search for orders of the allocations that the posterior favours.

A scout settles at its start, then tries again and again to merge two kernels and to cut a third one
in two at a value of some input (as Ueda, Nakano, Ghahramani & Hinton 2000 do for EM), redraws the
subset and all coefficients, makes a few sweeps, and goes back unless

    log p(c, d) + log Σ_I p(I) Π_{j in I} W_j / p0(x_j)

has grown (`leaps.py`). No balance is kept here and none is needed: scouts end before draws
count, and what they find is only proposed.
"""

from typing import Any

import numpy as np

from ardvark.inference.mixture.kernels import (
    Problem,
    State,
    copy_state,
    draw_probabilities,
    gibbs_sweep,
    jump,
    propose,
)
from ardvark.inference.mixture.leaps import add_up, draw_subset, log_counts, log_sum, weigh
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import STOP

__all__ = ["SCOUTING", "search"]

SCOUTING = 300  # sweeps of a whole scout before it searches
TRIES, SWEEPS = 60, 40


@njit(cache=True, nogil=True, error_model="numpy")
def search(rng: Any, p: Problem, s: State, sweeps: int, jumps: int, watch: Any) -> float:
    """Improve a state after `sweeps` sweeps, by TRIES tries if those are SCOUTING; give its score.

    A chain that is asked for little sends scouts that do little: they would take all of its time.
    """
    n_inputs, n_kernels = s.mean.shape
    table, odds = np.empty((n_inputs + 1, n_inputs + 1)), np.empty(n_inputs)
    new = State(
        s.on.copy(), s.c.copy(), s.d.copy(), s.P.copy(), s.w.copy(),
        s.mean.copy(), s.tau.copy(), s.beta.copy(),
    )  # fmt: skip
    make_sweeps(rng, p, s, sweeps, jumps, watch)
    best = score(rng, p, s, odds, table)
    tries = max(1, TRIES * min(sweeps, SCOUTING) // SCOUTING)
    for _ in range(tries if n_kernels > 1 else 0):
        if watch[STOP]:
            break
        copy_state(s, new)
        shake(rng, p, new)
        new.on[:] = False
        score(rng, p, new, odds, table)
        draw_subset(rng, p, new, odds, table)
        draw_probabilities(rng, new)
        make_sweeps(rng, p, new, SWEEPS, max(1, jumps // 3), watch)
        value = score(rng, p, new, odds, table)
        if value > best:
            best = value
            copy_state(new, s)
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def make_sweeps(rng: Any, p: Problem, s: State, sweeps: int, jumps: int, watch: Any) -> None:
    """Make plain sweeps."""
    rows = np.empty((s.w.shape[1], p.z.shape[1]))
    for _ in range(sweeps):
        if watch[STOP]:
            return
        gibbs_sweep(rng, p, s, rows)
        for _ in range(jumps):
            jump(rng, p, s, int(rng.random() * 3.0), True, rows)


@njit(cache=True, nogil=True, error_model="numpy")
def score(rng: Any, p: Problem, s: State, odds: Any, table: Any) -> float:
    """Log of p(c, d) times the sum over all subsets; fills the tables of `draw_subset`."""
    for j in range(p.z.shape[0]):
        if not s.on[j]:
            propose(rng, p, s, j)
    weigh(p, s, odds)
    add_up(odds, table)
    return log_counts(s) + log_sum(p, table)


@njit(cache=True, nogil=True, error_model="numpy")
def shake(rng: Any, p: Problem, s: State) -> None:
    """Give kernel a the rows of b, and b some of those of c."""
    name = rng.permutation(s.w.shape[1])
    a, b, c = name[0], name[1], name[2 % name.shape[0]]
    s.d[s.d == b] = a
    x = p.z[int(rng.random() * p.z.shape[0])]
    values = np.sort(x[s.d == c])
    if values.shape[0] < 2:
        return
    cut = values[int((0.2 + 0.6 * rng.random()) * values.shape[0])]
    for n in range(x.shape[0]):
        if s.d[n] == c and x[n] >= cut:
            s.d[n] = b
