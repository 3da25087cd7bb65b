"""Reversible jump for the RBF mixture on arrays: the problem, its chains, what they predict.

    make_problem   data and prior in the units of z, with the evidence of the background
    run_chains     chains from starts of their own: stored states, the subset of every sweep
    class_probabilities, log_labels        P(t | x), averaged over draws or for each of them

Chains begin at dispersed places: scouts are short chains from all inputs or from random subsets,
with Gibbs updates before the first jump, for without an order in the allocations no birth succeeds.
Each chain goes on from a scout of its own. The states of all scouts are the library of leaps
between modes while tuning (`leaps.py`); those of tuned chains join it before draws count.
Subsets, class probabilities and predictions do not depend on the names of the kernels; for what
does, `relabelled` gives all draws the same names.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from ardvark.errors import InputError
from ardvark.inference.mixture.background import (
    BackgroundPrior,
    Evidence,
    gibbs,
    log_rate_constant,
    slices,
)
from ardvark.inference.mixture.kernels import (
    Problem,
    State,
    add_input,
    draw_coefficients,
    draw_mean,
    draw_probabilities,
    propose,
    refresh_empty,
    rung,
    statistics,
)
from ardvark.inference.mixture.ladder import Store, Sweeps, run_ladder, settle
from ardvark.inference.mixture.leaps import Library, make_library
from ardvark.inference.mixture.scouts import SCOUTING, search
from ardvark.inference.reversible_jump import Plan
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import STOP, Watch, go_on, in_threads
from ardvark.inference.sites.arrays import Array, Index, Mask

__all__ = [
    "Chain",
    "Scale",
    "background_draws",
    "class_probabilities",
    "draw_at",
    "joined",
    "log_labels",
    "make_problem",
    "prior_draws",
    "relabelled",
    "run_chains",
]

SMALLEST = 1e-300  # β when the resolution is 0
BURN_IN = 200  # sweeps of the background before its draws
SETTLE = 200  # sweeps without jumps: allocations find an order first
REMEMBERED = 12  # states of each tuned chain in the library
N_MOVES = 4
FIRST_RATIO = 0.8  # of neighbouring powers before tuning


class Scale(NamedTuple):
    """Units: x = centre + spread z."""

    centre: Array
    spread: Array

    def to_z(self, X: Array) -> Array:
        """Give z as (input, row)."""
        return np.ascontiguousarray(((X - self.centre) / self.spread).T)


class Chain(NamedTuple):
    """What a chain leaves: states (draw, ...), the subset of each sweep, counts of jumps."""

    states: State
    visited: Mask  # (sweep, input), tuning left out
    tried: Index  # (move, size before it)
    accepted: Index
    powers: Array  # of the ladder, and how often neighbours changed places
    swaps: Array


def make_problem(
    z: Array,
    label: Index,
    log_prior: Array,
    shape: float,
    g: float,
    h: Array,
    resolution: float,
    evidence: Evidence,
) -> Problem:
    """Put data and prior, h in the units of z, together with the evidence of the background."""
    floor = max(resolution**2, SMALLEST)
    return Problem(
        np.ascontiguousarray(z),  # one type to numba, however the inputs were cut out
        np.asarray(label, np.int64),
        np.ascontiguousarray(evidence.value),
        log_prior,
        shape,
        g,
        h,
        log_rate_constant(g, h, floor),
        floor,
    )


# --- chains ------------------------------------------------------------------------------------


def run_chains(
    p: Problem,
    n_classes: int,
    n_kernels: int,
    plan: Plan,
    *,
    jumps: int,
    from_data: bool = True,
    rungs: int = 1,
    scouts: int = 16,
    chains: int = 4,
    seed: int = 0,
) -> list[Chain]:
    """Run chains in threads; what they draw does not depend on how many run at a time.

    `scouts` of each chain look for modes; 0: no leaps, and each chain begins at a start of its own.
    """
    kept = min(REMEMBERED, plan.tune)
    scouts = scouts if from_data and kept else 0
    nothing = make_library(p, empty_state((0,), n_classes, n_kernels, *p.z.shape))
    streams = np.random.SeedSequence(seed).spawn(chains)
    powers = np.asarray(FIRST_RATIO ** np.arange(rungs), np.float64)
    walkers = [
        Walker(np.random.default_rng(stream), p, powers.copy(), jumps, from_data)
        for stream in streams
    ]

    def scout(number: int, watch: Watch) -> list[State]:
        """Let a chain look at several starts, and stay at the last."""
        walker, found = walkers[number], []
        for i in range(max(scouts, 1)):
            go_on(watch)
            walker.begin(n_classes, n_kernels, number + i, min(SETTLE, plan.tune), watch)
            if scouts:
                found.append(walker.look(min(SCOUTING, plan.tune), watch))
        return found

    known = [states for found in in_threads(scout, chains) for states in found]
    library = make_library(p, joined(known)) if scouts else nothing
    sweeps, draws = plan.tune, kept if scouts else 0
    tuned = in_threads(lambda i, watch: walkers[i].go(sweeps, draws, library, True, watch), chains)
    if scouts:
        library = make_library(p, joined([*known, *(chain.states for chain in tuned)]))
    sweeps, draws = plan.draws * plan.thin, plan.draws
    return in_threads(lambda i, watch: walkers[i].go(sweeps, draws, library, False, watch), chains)


@dataclass(slots=True, eq=False)
class Walker:
    """The state of a running chain."""

    rng: np.random.Generator
    p: Problem
    powers: Array
    jumps: int
    from_data: bool
    state: Any = None  # (rung, ...)

    def begin(self, n_classes: int, n_kernels: int, number: int, sweeps: int, watch: Watch) -> None:
        """Go to start `number`, with Gibbs updates before the first jump."""
        self.state = start(self.rng, self.p, n_classes, n_kernels, number, len(self.powers))
        settle(self.rng, self.p, self.state, self.powers, sweeps, watch)

    def look(self, sweeps: int, watch: Watch) -> State:
        """Search for a better order of the allocations, for all rungs; give it as one draw."""
        for t in range(len(self.powers)):
            search(self.rng, self.p, rung(self.state, t), sweeps, self.jumps, watch)
        return State(*(part[:1].copy() for part in self.state))

    def go(self, sweeps: int, draws: int, library: Library, tuning: bool, watch: Watch) -> Chain:
        """Make sweeps, and store draws among them."""
        n_inputs, n_rows = self.p.z.shape
        rungs, n_classes, n_kernels = self.state.w.shape
        counts, swaps = np.zeros((2, N_MOVES, n_inputs + 1), np.int64), np.zeros(rungs - 1)
        stored = empty_state((draws,), n_classes, n_kernels, n_inputs, n_rows)
        visited = np.empty((sweeps, n_inputs), np.bool_)
        plan = Sweeps(self.jumps, self.from_data, tuning, sweeps // max(draws, 1))
        store = Store(visited, stored, counts[0], counts[1], swaps)
        run_ladder(self.rng, self.p, self.state, self.powers, library, plan, store, watch)
        go_on(watch)
        if not np.isfinite(self.state.tau).all() or not np.isfinite(self.state.beta).all():
            raise InputError(
                "a chain of the mixture has met numbers that are not finite. Look at the scale and "
                "the ties of the columns of X, and at `resolution`."
            )
        return Chain(stored, visited, counts[0], counts[1], self.powers, swaps / max(sweeps, 1))


def joined(states: list[State]) -> State:
    """Put states (draw, ...) behind each other."""
    return State(*(np.concatenate(part) for part in zip(*states, strict=True)))


def start(rng: Any, p: Problem, n_classes: int, n_kernels: int, number: int, rungs: int) -> State:
    """Begin chain `number` at its own subset, coefficients as if its inputs had just been born."""
    n_inputs, n_rows = p.z.shape
    state = empty_state((rungs,), n_classes, n_kernels, n_inputs, n_rows)
    share = 1.0 if number == 0 else rng.uniform(0.25, 1.0)
    state.on[:] = rng.random(n_inputs) < share
    for t in range(rungs):
        refresh_empty(rng, p.label, rung(state, t))
        fill_born(rng, p, rung(state, t))
    return state


@njit(cache=True, nogil=True, error_model="numpy")
def fill_born(rng: Any, p: Problem, s: State) -> None:
    """Draw the coefficients of every input given the allocations."""
    for j in range(p.z.shape[0]):
        propose(rng, p, s, j)
        count, centre, _ = statistics(p.z[j], s.d, s.tau.shape[1])
        for k in range(s.tau.shape[1]):
            s.mean[j, k] = draw_mean(rng, count[k], centre[k], s.tau[j, k])


def empty_state(
    lead: tuple[int, ...], n_classes: int, n_kernels: int, n_inputs: int, n_rows: int
) -> State:
    """Room for states, (*lead, ...) each."""
    return State(
        np.zeros((*lead, n_inputs), np.bool_),
        np.zeros((*lead, n_rows), np.int64),
        np.zeros((*lead, n_rows), np.int64),
        np.ones((*lead, n_classes)),
        np.ones((*lead, n_classes, n_kernels)),
        np.zeros((*lead, n_inputs, n_kernels)),
        np.ones((*lead, n_inputs, n_kernels)),
        np.ones((*lead, n_inputs)),
    )


def draw_at(rng: Any, p: Problem, on: Any, d: Any, n_classes: int, n_kernels: int) -> State:
    """Draw all else at given subsets (draw, input) and allocations (draw, row)."""
    states = empty_state((len(on),), n_classes, n_kernels, *p.z.shape)
    states.on[:], states.d[:], states.c[:] = on, d, p.label
    fill_at(rng, p, states)
    return states


@njit(cache=True, nogil=True, error_model="numpy")
def fill_at(rng: Any, p: Problem, states: State) -> None:
    """Fill states whose subset and allocations are given; coefficients by SETTLE updates each."""
    for i in range(states.on.shape[0]):
        s = rung(states, i)
        draw_probabilities(rng, s)
        for j in range(p.z.shape[0]):
            if s.on[j]:
                propose(rng, p, s, j)
                for _ in range(SETTLE):
                    draw_coefficients(rng, p, s, j)


def prior_draws(
    p: Problem, shape: tuple[int, int], n_kernels: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Draws of m, τ, β from the prior."""
    from scipy.stats import gamma

    law = gamma(p.g, scale=1 / p.h)
    beta = np.maximum(law.isf(rng.random(shape) * law.sf(p.floor)), p.floor * (1 + 1e-9))
    tau = rng.gamma(p.shape, 1 / beta[..., None], size=(*shape, n_kernels))
    return rng.normal(size=(*shape, n_kernels)), tau, beta


def relabelled(states: State) -> State:
    """Give every draw's kernels the names under which its allocations agree most with the others.

    Kernels are exchangeable, so any names are right; these make quantities by kernel comparable.
    The first draw is the pivot (Marin, Mengersen & Robert 2005), then the usual kernel of each row.
    """
    n_kernels = states.w.shape[-1]
    rows = np.arange(states.d.shape[1])
    d, order = states.d, np.tile(np.arange(n_kernels), (len(states.d), 1))
    pivot = d[0]
    for _ in range(2):
        for i, allocation in enumerate(d):
            agree = np.zeros((n_kernels, n_kernels))
            np.add.at(agree, (pivot, allocation), 1.0)
            order[i] = linear_sum_assignment(-agree)[1]  # new name -> old name
        votes = np.zeros((len(rows), n_kernels))
        for i, allocation in enumerate(d):
            votes[rows, np.argsort(order[i])[allocation]] += 1.0
        pivot = votes.argmax(axis=1)
    return states._replace(
        d=np.take_along_axis(np.argsort(order, axis=1), d, axis=1),
        w=np.take_along_axis(states.w, order[:, None, :], axis=2),
        mean=np.take_along_axis(states.mean, order[:, None, :], axis=2),
        tau=np.take_along_axis(states.tau, order[:, None, :], axis=2),
    )


# --- the background's own block ----------------------------------------------------------------


def background_draws(p: Problem, n_kernels: int, draws: int, seed: Any) -> tuple[Array, ...]:
    """Draws of every input's background: v, τ, m (draw, input, kernel) and β (draw, input)."""
    n_inputs = len(p.z)
    v, tau, mean = (np.empty((n_inputs, draws, n_kernels)) for _ in range(3))
    beta = np.empty((n_inputs, draws))

    def one(j: int, watch: Watch) -> None:
        rng = np.random.default_rng(seeds[j])
        prior = BackgroundPrior(p.shape, p.g, p.h[j], p.floor, p.log_p_beta[j])
        fill_background(rng, p.z[j], prior, v[j], tau[j], mean[j], beta[j], watch)

    seeds = np.random.SeedSequence(seed).spawn(n_inputs)
    in_threads(one, n_inputs)
    return (*(np.swapaxes(part, 0, 1) for part in (v, tau, mean)), beta.T)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_background(
    rng: Any, z: Any, p: BackgroundPrior, v: Any, tau: Any, mean: Any, beta: Any, watch: Any
) -> None:
    """Gibbs draws of one input's background."""
    n_kernels = v.shape[1]
    d = slices(rng, z, n_kernels)
    one_v, one_tau, one_mean = np.ones(n_kernels), np.ones(n_kernels), np.zeros(n_kernels)
    rate = gibbs(rng, z, p, BURN_IN, d, one_v, one_tau, one_mean, -1.0)
    for i in range(v.shape[0]):
        if watch[STOP]:
            return
        rate = gibbs(rng, z, p, 1, d, one_v, one_tau, one_mean, rate)
        v[i], tau[i], mean[i], beta[i] = one_v, one_tau, one_mean, rate


# --- what draws predict ------------------------------------------------------------------------


def class_probabilities(states: State, z: Array) -> Array:
    """P(t = k | x) averaged over draws and so over subsets, (row, class)."""
    total = np.zeros((z.shape[1], states.P.shape[-1]))
    single = np.empty_like(total)
    for i in range(len(states.P)):
        log_classes(
            states.on[i], states.P[i], states.w[i], states.mean[i], states.tau[i], z, single
        )
        total += np.exp(single)
    return np.asarray(total / len(states.P))


def log_labels(s: State, z: Array, label: Index) -> Array:
    """Log p(t_n | x_n) of each draw and row, (draw, row); the label must be known."""
    out = np.empty((len(s.P), z.shape[1]))
    fill_log_labels(s.on, s.P, s.w, s.mean, s.tau, z, label, out)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def fill_log_labels(
    on: Any, P: Any, w: Any, mean: Any, tau: Any, z: Any, label: Any, out: Any
) -> None:
    """Fill log p(t_n | x_n) of each draw and row."""
    single = np.empty((z.shape[1], P.shape[1]))
    for i in range(P.shape[0]):
        log_classes(on[i], P[i], w[i], mean[i], tau[i], z, single)
        for n in range(z.shape[1]):
            out[i, n] = single[n, label[n]]


@njit(cache=True, nogil=True, error_model="numpy")
def log_classes(on: Any, P: Any, w: Any, mean: Any, tau: Any, z: Any, out: Any) -> None:
    """Log P(t = k | x) of one draw, (row, class)."""
    rows = np.zeros((mean.shape[1], z.shape[1]))
    for j in range(z.shape[0]):
        if on[j]:
            add_input(z[j], mean[j], tau[j], 1.0, rows)
    for n in range(z.shape[1]):
        top = rows[:, n].max()
        for k in range(P.shape[0]):
            value = 0.0
            for e in range(w.shape[1]):
                value += w[k, e] * math.exp(rows[e, n] - top)
            out[n, k] = math.log(P[k] * value + 1e-300)  # Syk00 (1)
        best = out[n].max()
        out[n] -= best + math.log(np.exp(out[n] - best).sum())
