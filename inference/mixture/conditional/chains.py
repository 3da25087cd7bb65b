"""Chains of the RBF mixture under P(t | x): sweeps, tuning, a ladder of powers, starts.

A sweep of a point: HMC on all coefficients but β (`density.py`), β from its conditional, then
jumps between subsets (`jumps.py`). The copy of a chain at power s has P(t | x)^s, down
to powers at which the prior rules and every subset is within reach, and a λ of its own:

    π_t(I, Θ) ∝ p(I) e^{v_t |I|} p(Θ | I) Π_n P(t_n | x_n, Θ, I)^{s_t},        v = 0 at s = 1

Neighbours exchange states, and only the copy at s = 1 is kept. One rung is a plain chain.

Tuning settles step sizes and masses by rung, chances and powers, and they stay as they are while
draws count:

    step     so that HMC accepts TARGET of its proposals
    mass     mean squared gradient of a coordinate, by input and averaged over its kernels: the mean
             of minus the second derivative; inputs seldom visited borrow from all others
    chance   of an input to be tried, by how often it was in a subset, on any rung
    powers   so that all neighbours exchange states equally often, from MIDDLE to LEAST_POWER
    tilts    v, so that every rung has LARGER times the inputs of the one at s = 1, but
             goes at most half of the way to all inputs

Of a ladder of four rungs or more half stand between 1 and MIDDLE, evenly. Narrow modes, of few
kernels that fit many labels, form there: they are entered so seldom that the mean share of
exchanges does not show them, and each rung is one more chance to enter and to leave. On 175 rows of
ionosphere ladders of equal shares went up and down every 120 sweeps, and chains still stayed in
such modes for thousands. Without the tilts a lower power leaves the two inputs of the broadest mode
alone in the subset, and a mode of five inputs is lost on every way down: it must be found anew from
there. With them sets of that size change where the likelihood is weak.

Chains start from the prior, with subsets of all sizes; the power of the likelihood rises in the
first third of the tuning, so that each finds its own mode.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ardvark.errors import InputError
from ardvark.inference.mixture.conditional.density import (
    Metric,
    Point,
    Work,
    density,
    draw_rates,
    fill_rows,
    gather,
    hmc,
    log_labels,
    log_weights,
    make_work,
    pack,
)
from ardvark.inference.mixture.conditional.jumps import MOVES, TRIES, jump
from ardvark.inference.mixture.kernels import Problem, fill_priors, pick
from ardvark.inference.reversible_jump import Plan
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import DONE, STOP, Watch, go_on, in_threads
from ardvark.inference.sites.arrays import Array, Index, Mask

__all__ = ["ConditionalChain", "Effort", "first_points", "run_conditional_chains", "sweep"]

TARGET = 0.8  # acceptance of HMC
MIDDLE = 0.55  # power above which half of the rungs of a long ladder are
LARGER, TILTED = 1.3, 0.3  # inputs at lower powers over those at s = 1; how fast tilts follow
LEAST_POWER = 0.1  # of the last rung, and where a chain without a ladder begins
UNIFORM = 0.5  # share of the choices of an input that do not look at how often it was in
BORROWED = 20.0  # gradients that an input borrows from all others


class Effort(NamedTuple):
    """What a sweep does."""

    jumps: int
    leapfrogs: int  # on average


class Ladder(NamedTuple):
    """What tuning settles."""

    metrics: Metric  # (rung, ...)
    powers: Any  # (rung,)
    tilts: Any  # (rung,): the log of λ at a rung over λ, 0 at s = 1
    chance: Any  # of an input to be tried, (input,)


class Record(NamedTuple):
    """What a stretch of a chain leaves, in place."""

    visited: Any  # (sweep, input)
    stored: Point  # (draw, ...)
    log_t: Any  # Σ_n log P(t_n | x_n) of each sweep
    counts: Any  # (2, move, size before it): tried, accepted
    swaps: Any  # (gap,)
    hmc: Any  # sum of acceptances, divergences


class ConditionalChain(NamedTuple):
    """What a chain leaves: points (draw, ...), the subset of each sweep, how it moved."""

    states: Point
    visited: Mask  # (sweep, input), tuning left out
    log_t: Array
    tried: Index  # (move, size before it)
    accepted: Index
    powers: Array
    tilts: Array
    swaps: Array
    hmc_accepted: float
    divergences: int
    step: float


def run_conditional_chains(
    p: Problem,
    n_classes: int,
    n_kernels: int,
    plan: Plan,
    *,
    effort: Effort,
    rungs: int = 1,
    chains: int = 4,
    seed: int = 0,
) -> list[ConditionalChain]:
    """Run chains in threads; what they draw does not depend on how many run at a time."""
    streams = np.random.SeedSequence(seed).spawn(chains)
    shares = np.linspace(0.0, 1.0, chains) if chains > 1 else np.array([0.5])

    def chain(number: int, watch: Watch) -> ConditionalChain:
        rng = np.random.default_rng(streams[number])
        walker = _begin(rng, p, n_classes, n_kernels, shares[number], rungs)
        walker.go(plan.tune, 0, effort, True, watch)
        return walker.go(plan.draws * plan.thin, plan.draws, effort, False, watch)

    return in_threads(chain, chains)


@dataclass(slots=True, eq=False)
class _Walker:
    """The state of a running chain."""

    rng: np.random.Generator
    p: Problem
    points: Point  # (rung, ...)
    ladder: Ladder

    def go(
        self, sweeps: int, draws: int, effort: Effort, tuning: bool, watch: Watch
    ) -> ConditionalChain:
        """Make sweeps, and store draws among them."""
        rungs, n_classes, n_kernels = self.points.B.shape
        n_inputs, n_rows = self.p.z.shape
        record = Record(
            np.empty((sweeps, n_inputs), np.bool_),
            _room(draws, n_classes, n_kernels, n_inputs),
            np.empty(sweeps),
            np.zeros((2, len(MOVES), n_inputs + 1), np.int64),
            np.zeros(rungs - 1),
            np.zeros(2),
        )
        work = make_work(n_classes, n_kernels, n_inputs, n_rows)
        run_rungs(self.rng, self.p, self.points, self.ladder, effort, tuning, record, work, watch)
        go_on(watch)
        if not np.isfinite(record.log_t).all():
            raise InputError(
                "a chain of the mixture has met numbers that are not finite. Look at the scale and "
                "the ties of the columns of X, and at `resolution`."
            )
        made = max(sweeps, 1)
        return ConditionalChain(
            record.stored, record.visited, record.log_t, record.counts[0], record.counts[1],
            self.ladder.powers.copy(), self.ladder.tilts.copy(), record.swaps / made,
            float(record.hmc[0] / made), int(record.hmc[1]),
            float(self.ladder.metrics.step[0, 0]),
        )  # fmt: skip


def _room(number: int, n_classes: int, n_kernels: int, n_inputs: int) -> Point:
    return Point(
        np.zeros((number, n_inputs), np.bool_),
        np.zeros((number, n_classes)),
        np.zeros((number, n_classes, n_kernels)),
        np.zeros((number, n_inputs, n_kernels)),
        np.ones((number, n_inputs, n_kernels)),
        np.ones((number, n_inputs)),
    )


def first_points(
    rng: np.random.Generator, p: Problem, n_classes: int, n_kernels: int, on: Mask, number: int
) -> Point:
    """Points with these inputs, coefficients from the prior."""
    points = _room(number, n_classes, n_kernels, len(p.z))
    points.on[:] = on
    points.A[:] = np.log(rng.gamma(1.0, size=points.A.shape))
    points.B[:] = np.log(rng.gamma(1.0, size=points.B.shape))
    fill_points(rng, p, points)
    return points


def _begin(
    rng: np.random.Generator, p: Problem, n_classes: int, n_kernels: int, share: float, rungs: int
) -> _Walker:
    """Begin with about that share of the inputs, coefficients from the prior."""
    n_inputs = len(p.z)
    on = rng.random((rungs, n_inputs)) < share
    points = first_points(rng, p, n_classes, n_kernels, on, rungs)
    metrics = Metric(
        np.full((rungs, 1), 0.3) * np.array([1.0, 0.0, 0.0]),
        np.full((rungs, n_inputs + 1, 2), 4.0),
        np.zeros((rungs, n_inputs + 1, 2)),
        np.zeros((rungs, n_inputs + 1)),
    )
    held = held_gaps(rungs)
    above = np.linspace(1.0, MIDDLE, held + 1) if held else np.ones(1)
    below = above[-1] * (LEAST_POWER / above[-1]) ** np.linspace(0.0, 1.0, rungs - held)
    powers = np.concatenate([above[:-1], below])
    chance = np.full(n_inputs, 1.0 / n_inputs)
    return _Walker(rng, p, points, Ladder(metrics, powers, np.zeros(rungs), chance))


@njit(cache=True, nogil=True, error_model="numpy")
def fill_points(rng: Any, p: Problem, points: Point) -> None:
    """Draw coefficients of every input from the prior."""
    for t in range(points.on.shape[0]):
        fill_priors(rng, p, points.mean[t], points.tau[t], points.beta[t])


@njit(cache=True, nogil=True, error_model="numpy")
def one_point(s: Point, t: int) -> Point:
    """View one of several points."""
    return Point(s.on[t], s.A[t], s.B[t], s.mean[t], s.tau[t], s.beta[t])


@njit(cache=True, nogil=True, error_model="numpy")
def one(m: Metric, t: int) -> Metric:
    """View the metric of one rung."""
    return Metric(m.step[t], m.mass[t], m.total[t], m.seen[t])


@njit(cache=True, nogil=True, error_model="numpy")
def copy_point(source: Point, target: Point) -> None:
    """Copy a point."""
    target.on[:], target.A[:], target.B[:] = source.on, source.A, source.B
    target.mean[:], target.tau[:], target.beta[:] = source.mean, source.tau, source.beta


@njit(cache=True, nogil=True, error_model="numpy")
def sweep(
    rng: Any, p: Problem, s: Point, metric: Metric, chance: Any, effort: Effort, counts: Any,
    work: Work,
) -> Any:  # fmt: skip
    """One sweep; the chance with which HMC was accepted, and log P(t | x) at the end."""
    rate = hmc(rng, p, s, metric, effort.leapfrogs, work)
    draw_rates(rng, p, s)
    log_weights(s, work.log_w)
    fill_rows(p, s, -1, work.rows)
    now = np.empty(1)
    now[0] = p.power * log_labels(p.label, work)
    for _ in range(effort.jumps):
        move, size = pick(rng, np.array(TRIES)), int(s.on.sum())
        counts[0, move, size] += 1
        counts[1, move, size] += jump(rng, p, s, move, chance, now, work)
    return rate, now[0] / p.power


@njit(cache=True, nogil=True, error_model="numpy")
def learn(
    s: Point, p: Problem, metric: Metric, rate: float, i: int, sweeps: int, work: Work
) -> None:
    """Settle step and masses after sweep i of the tuning."""
    rise = sweeps // 3
    time = i - rise if i >= rise else i
    metric.step[0] *= math.exp((max(rate, 0.0) - TARGET) / math.sqrt(1.0 + time))
    number = pack(s, work.q)
    density(p, s, work.q[:number], work.grad[:number], work)
    gather(s, metric, work.grad)
    if i in (rise // 2, rise):  # what was seen at lower powers is forgotten
        metric.total[:] = 0.0
        metric.seen[:] = 0.0
    elif i % 50 == 49 and i < 0.8 * sweeps:
        set_masses(metric)
    if i >= 0.9 * sweeps:
        metric.step[1] += math.log(metric.step[0])
        metric.step[2] += 1.0
        if i == sweeps - 1:
            metric.step[0] = math.exp(metric.step[1] / metric.step[2])


@njit(cache=True, nogil=True, error_model="numpy")
def set_masses(metric: Metric) -> None:
    """Make masses of the gradients gathered so far."""
    last = metric.seen.shape[0] - 1
    metric.mass[last] = 1.0 + metric.total[last] / max(metric.seen[last], 1.0)
    number = metric.seen[:last].sum()
    for i in range(2):
        usual = metric.total[:last, i].sum() / max(number, 1.0)
        for j in range(last):
            given = metric.total[j, i] + BORROWED * usual
            metric.mass[j, i] = 1.0 + given / (metric.seen[j] + BORROWED)


@njit(cache=True, nogil=True, error_model="numpy")
def run_rungs(
    rng: Any,
    p: Problem,
    points: Point,
    ladder: Ladder,
    effort: Effort,
    tuning: bool,
    record: Record,
    work: Work,
    watch: Any,
) -> None:
    """Run a sweep of every rung for each row of `visited`, which gets the subset at s = 1."""
    metrics, powers, tilts, chance = ladder.metrics, ladder.powers, ladder.tilts, ladder.chance
    rungs, sweeps, kept = powers.shape[0], record.visited.shape[0], 0
    thin = sweeps // max(record.stored.on.shape[0], 1)
    place, energy, swaps = np.arange(rungs), np.empty(rungs), np.zeros(rungs - 1)
    sizes, usual = np.zeros(rungs), 0.0
    often = np.zeros(chance.shape[0])
    spare = np.zeros_like(record.counts)
    rise = sweeps // 3 if tuning else 0
    for i in range(sweeps):
        if watch[STOP]:
            return
        watch[DONE] += 1
        for t in range(rungs):
            power = powers[t] * (LEAST_POWER ** (1.0 - i / rise) if i < rise else 1.0)
            problem = at_rung(p, power, tilts[t])
            here, metric = one_point(points, place[t]), one(metrics, t)
            counts = record.counts if t == 0 else spare
            rate, energy[t] = sweep(rng, problem, here, metric, chance, effort, counts, work)
            sizes[t] = here.on.sum()
            if tuning:
                learn(here, problem, metric, rate, i, sweeps, work)
                often += here.on
            if t == 0:
                record.hmc[0] += max(rate, 0.0)
                record.hmc[1] += rate < 0.0
        if tuning and i % 50 == 49 and i < 0.8 * sweeps:
            chance[:] = UNIFORM / chance.shape[0] + (1.0 - UNIFORM) * often / max(often.sum(), 1.0)
        if i == rise // 2 or i == rise:
            often[:] = 0.0
        if i >= rise:
            if tuning and rungs > 1:
                usual += (sizes[0] - usual) / (i - rise + 1.0)
                asked = min(LARGER * usual, 0.5 * (usual + chance.shape[0]))
                even_sizes(tilts, sizes, asked, 1.0 / math.sqrt(i - rise + 1.0))
            exchange_points(rng, ladder, place, energy, sizes, swaps)
            record.swaps[:] += swaps
            if tuning and rungs > 1:
                move_powers(powers, swaps, 1.0 / math.sqrt(i - rise + 1.0))
        here = one_point(points, place[0])
        record.visited[i] = here.on
        record.log_t[i] = energy[0]
        if (i + 1) % thin == 0 and kept < record.stored.on.shape[0]:
            copy_point(here, one_point(record.stored, kept))
            kept += 1
    reorder(points, place)


@njit(cache=True, nogil=True, error_model="numpy")
def at_rung(p: Problem, power: float, tilt: float) -> Problem:
    """Give the problem at a power of the likelihood, and with λ e^tilt in the place of λ."""
    log_prior = p.log_prior + tilt * np.arange(p.log_prior.shape[0])
    return Problem(
        p.z, p.label, p.log_p0, log_prior, p.shape, p.g, p.h, p.log_p_beta, p.floor, power
    )


@njit(cache=True, nogil=True, error_model="numpy")
def exchange_points(
    rng: Any, ladder: Ladder, place: Any, energy: Any, sizes: Any, chance: Any
) -> None:
    """Try to exchange the points of neighbours; fills with what chance they do."""
    for t in range(place.shape[0] - 1):
        chance[t] = math.exp(min(exchange_ratio(ladder, t, energy, sizes), 0.0))
        if rng.random() < chance[t]:
            place[t], place[t + 1] = place[t + 1], place[t]
            energy[t], energy[t + 1] = energy[t + 1], energy[t]
            sizes[t], sizes[t + 1] = sizes[t + 1], sizes[t]


@njit(cache=True, nogil=True, error_model="numpy")
def exchange_ratio(ladder: Ladder, t: int, energy: Any, sizes: Any) -> float:
    """Log ratio of an exchange between rungs t and t + 1."""
    power = ladder.powers[t] - ladder.powers[t + 1]
    tilt = ladder.tilts[t] - ladder.tilts[t + 1]
    return float(power * (energy[t + 1] - energy[t]) + tilt * (sizes[t + 1] - sizes[t]))


@njit(cache=True, nogil=True, error_model="numpy")
def even_sizes(tilts: Any, sizes: Any, asked: float, gain: float) -> None:
    """Raise λ on rungs whose subsets are smaller than asked, and lower it where they are larger."""
    for t in range(1, tilts.shape[0]):
        tilts[t] = max(0.0, tilts[t] + TILTED * gain * (asked - sizes[t]))


@njit(cache=True, nogil=True, error_model="numpy")
def move_powers(powers: Any, swaps: Any, gain: float) -> None:
    """Widen gaps whose neighbours exchange states more often than others, below MIDDLE."""
    held = held_gaps(powers.shape[0])
    gap = np.log(powers[held:-1] / powers[held + 1 :])
    gap *= np.exp(gain * (swaps[held:] - swaps[held:].mean()))
    least = LEAST_POWER / powers[held]
    powers[held + 1 :] = powers[held] * least ** (np.cumsum(gap) / gap.sum())


@njit(cache=True, nogil=True, error_model="numpy")
def held_gaps(rungs: int) -> int:
    """Gaps above MIDDLE: half of a long ladder."""
    return rungs // 2 if rungs >= 4 else 0


@njit(cache=True, nogil=True, error_model="numpy")
def reorder(points: Point, place: Any) -> None:
    """Put the point at each power to its place."""
    before = Point(
        points.on[place], points.A[place], points.B[place],
        points.mean[place], points.tau[place], points.beta[place],
    )  # fmt: skip
    for t in range(place.shape[0]):
        copy_point(one_point(before, t), one_point(points, t))
