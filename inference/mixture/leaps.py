"""Jumps of the RBF mixture between modes: all allocations, the whole subset, every coefficient.

Given the allocations d inputs are in the subset or not nearly independently of each other, so what
keeps a chain in one mode is d: other kernels hold other rows, and support other inputs. A row at a
time no chain gets from one such order to another (the modes of real data are tens to hundreds of
nats apart, and at powers of the likelihood that melt them the subset is empty). This move proposes
all of it at once.

    q(d) = 1/M Σ_m 1/D! Σ_π Π_n p(d_n | x_n, π applied to stored state m)         the library

The states of the library come from scouts, short chains from starts of their own, and stay the
same while draws count. The sum over names of the kernels is a permanent (`background.py`).
Then, as for births, (β, τ)_j ~ q(. | d) for every input, whose weights W_j (`kernels.py`)
give the sum over all subsets,

    Z(d, β, τ) = Σ_I p(I) Π_{j in I} W_j / p0(x_j) = Σ_k p(a subset of size k) e_k(W / p0)

with e_k the elementary symmetric polynomials; P and w are integrated out, means too:

    log ratio = log [p(c', d') Z'] - log [p(c, d) Z] + log q(d) - log q(d')

An excluded input's (β, τ) are drawn from q before the move, which leaves the posterior alone: they
have no other meaning. A subset is drawn from its conditional given d, β and τ whether the proposal
is accepted or not.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.mixture.background import log_permanent
from ardvark.inference.mixture.kernels import (
    Problem,
    State,
    copy_state,
    draw_mean,
    draw_probabilities,
    log_rows,
    log_weight,
    pick,
    propose,
    rows_of,
)
from ardvark.inference.running.machine_code import njit

__all__ = ["Library", "leap", "leap_ratio", "make_library", "weigh"]


class Library(NamedTuple):
    """How rows go to kernels in each of M stored states."""

    rows: Any  # (state, kernel, row): log density, less the row's normaliser
    log_w: Any  # (state, class, kernel)
    log_P: Any  # (state, class)


@njit(cache=True, nogil=True, error_model="numpy")
def make_library(p: Problem, states: State) -> Library:
    """Read how stored states allocate rows."""
    number, n_classes, n_kernels = states.w.shape
    rows = np.empty((number, n_kernels, p.z.shape[1]))
    log_w, log_P = np.log(states.w), np.log(states.P)
    for m in range(number):
        one = State(
            states.on[m], states.c[m], states.d[m], states.P[m], states.w[m],
            states.mean[m], states.tau[m], states.beta[m],
        )  # fmt: skip
        log_rows(p, one, rows[m])
        anyone = np.zeros(n_kernels)
        for k in range(n_classes):
            anyone += one.P[k] * one.w[k]
        for n in range(p.z.shape[1]):
            weight = anyone if p.label[n] < 0 else one.w[p.label[n]]
            top = rows[m, :, n].max()
            rows[m, :, n] -= top + math.log((weight * np.exp(rows[m, :, n] - top)).sum())
    return Library(rows, log_w, log_P)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_allocations(rng: Any, p: Problem, library: Library, s: State) -> None:
    """Draw classes of unlabelled rows and kernels of all from the library, names at random."""
    number, n_classes, n_kernels = library.log_w.shape
    m = int(rng.random() * number)
    name = rng.permutation(n_kernels)
    weight = np.empty(n_kernels)
    for n in range(p.label.shape[0]):
        if p.label[n] >= 0:
            s.c[n] = p.label[n]
        else:
            of_class = np.empty(n_classes)
            for k in range(n_classes):
                of_class[k] = np.exp(
                    library.log_P[m, k] + library.log_w[m, k] + library.rows[m, :, n]
                ).sum()
            s.c[n] = pick(rng, of_class)
        for e in range(n_kernels):
            weight[e] = math.exp(library.log_w[m, s.c[n], e] + library.rows[m, e, n])
        s.d[n] = name[pick(rng, weight)]


@njit(cache=True, nogil=True, error_model="numpy")
def log_library(p: Problem, library: Library, s: State) -> float:
    """Log q of allocations, and of the classes of unlabelled rows."""
    number, _, n_kernels = library.log_w.shape
    terms = np.empty(number)
    entry, value = np.empty((n_kernels, n_kernels)), np.empty(1 << n_kernels)
    for m in range(number):
        entry[:] = 0.0
        classes = 0.0
        for n in range(p.label.shape[0]):
            for e in range(n_kernels):
                entry[s.d[n], e] += library.rows[m, e, n] + library.log_w[m, s.c[n], e]
            if p.label[n] < 0:
                classes += library.log_P[m, s.c[n]]
        terms[m] = classes + log_permanent(entry, value)
    top = terms.max()
    mean = np.exp(terms - top).mean()
    return float(top + math.log(mean) - math.lgamma(n_kernels + 1.0))


@njit(cache=True, nogil=True, error_model="numpy")
def log_counts(s: State) -> float:
    """Log p(c, d), the probabilities P and w integrated out."""
    n_classes, n_kernels = s.w.shape
    counts = np.zeros((n_classes, n_kernels))
    for n in range(s.c.shape[0]):
        counts[s.c[n], s.d[n]] += 1.0
    total = math.lgamma(float(n_classes)) - math.lgamma(float(n_classes + s.c.shape[0]))
    for k in range(n_classes):
        total += math.lgamma(1.0 + counts[k].sum())
        total += math.lgamma(float(n_kernels)) - math.lgamma(n_kernels + counts[k].sum())
        for e in range(n_kernels):
            total += math.lgamma(1.0 + counts[k, e])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def weigh(p: Problem, s: State, odds: Any) -> None:
    """Fill `odds` with log W_j / p0(x_j) for each input at the state's d, β and τ."""
    for j in range(odds.shape[0]):
        odds[j] = log_weight(p, s, j) - p.power * p.log_p0[j]


@njit(cache=True, nogil=True, error_model="numpy")
def add_up(odds: Any, table: Any) -> None:
    """Fill log e_k of the first i inputs into table[i, k]."""
    n_inputs = odds.shape[0]
    table[:] = -np.inf
    table[0, 0] = 0.0
    for i in range(n_inputs):
        table[i + 1, 0] = 0.0
        for k in range(1, i + 2):
            a, b = table[i, k], table[i, k - 1] + odds[i]
            top, low = (a, b) if a > b else (b, a)
            table[i + 1, k] = top + math.log1p(math.exp(low - top))


@njit(cache=True, nogil=True, error_model="numpy")
def log_sum(p: Problem, table: Any) -> float:
    """Log Z: the sum over all subsets."""
    terms = p.log_prior + table[-1]
    top = terms.max()
    return float(top + math.log(np.exp(terms - top).sum()))


@njit(cache=True, nogil=True, error_model="numpy")
def draw_subset(rng: Any, p: Problem, s: State, odds: Any, table: Any) -> None:
    """Draw the subset given d, β and τ: its size, then inputs from the last to the first."""
    terms = p.log_prior + table[-1]
    size = pick(rng, np.exp(terms - terms.max()))
    count, centre = np.zeros(0), np.zeros(0)
    for i in range(odds.shape[0], 0, -1):
        j = i - 1
        chance = math.exp(table[j, size - 1] + odds[j] - table[i, size]) if size > 0 else 0.0
        enters = rng.random() < chance
        if enters:
            size -= 1
            if not s.on[j]:
                count, centre, _ = rows_of(p, s, j)
                for k in range(s.tau.shape[1]):
                    s.mean[j, k] = draw_mean(rng, count[k], centre[k], s.tau[j, k])
        s.on[j] = enters


@njit(cache=True, nogil=True, error_model="numpy")
def leap_ratio(p: Problem, library: Library, s: State, new: State, table: Any, odds: Any) -> float:
    """Log ratio of going from s to `new`; both hold (β, τ) of every input. Tables are filled."""
    weigh(p, s, odds[0])
    weigh(p, new, odds[1])
    add_up(odds[0], table[0])
    add_up(odds[1], table[1])
    ratio = log_counts(new) + log_sum(p, table[1]) - log_library(p, library, new)
    return ratio - (log_counts(s) + log_sum(p, table[0]) - log_library(p, library, s))


@njit(cache=True, nogil=True, error_model="numpy")
def leap(rng: Any, p: Problem, library: Library, s: State, new: State) -> bool:
    """Try to go to an order of the library; `new` is room for it."""
    n_inputs = p.z.shape[0]
    table, odds = np.empty((2, n_inputs + 1, n_inputs + 1)), np.empty((2, n_inputs))
    for j in range(n_inputs):
        if not s.on[j]:
            propose(rng, p, s, j)
    new.on[:] = False
    draw_allocations(rng, p, library, new)
    for j in range(n_inputs):
        propose(rng, p, new, j)
    yes = math.log(rng.random()) < leap_ratio(p, library, s, new, table, odds)
    if yes:
        draw_subset(rng, p, new, odds[1], table[1])
        copy_state(new, s)
        draw_probabilities(rng, s)
    else:
        draw_subset(rng, p, s, odds[0], table[0])
    return bool(yes)
