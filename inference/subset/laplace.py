"""Jumps that propose all weights from the Laplace Gaussian of the target subset.

For two-class likelihoods, whose weights cannot be integrated out. The precisions of the slab can:
a weight has a Gaussian prior, a Student-t ("ard"), or all have one multivariate t ("shared"); the
posterior is one of (I, w) alone, and the Laplace fit of a subset, mode m_I and precision H_I, and
with it its evidence Z_I, are functions of the subset: computed once, kept in a table.

A sweep takes two steps, both exact (`log_joint` is the graph's, alpha integrated out):

1. From I, `jumps` additions, deletions and exchanges by Metropolis on the approximate posterior
   Z_I p(I), at the price of looking up a table. They end at I'. Then w' ~ q(w | I'), a Student-t of
   mean m_I', precision H_I', and the pair is accepted with probability min(1, r),

       r = omega(I', w') / omega(I, w),     omega(I, w) = p(t, w, I) / (q(w | I) Z_I p(I))

   The walk is reversible for Z_I p(I), so its own ratio is what turns p into omega (Liu 2001,
   section 9.4: a surrogate transition). Where Laplace is good omega hardly varies.
2. A random walk of the weights with the shape of H_I: what lies far out can still move.

The tails of q are wider than the Gaussian's (TAILS degrees of freedom), so omega is bounded along
every direction in which the posterior has Gaussian tails.
"""

from math import exp, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from ardvark.inference.reversible_jump import Plan
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import DONE, STOP, Watch
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.subset.collapsed import Subsets, finite_chain, run_chains
from ardvark.inference.subset.kernels import (
    ADD,
    DELETE,
    EXCHANGE,
    Store,
    new_store,
    sample_precisions,
)
from ardvark.inference.subset.laplace_fit import (
    TAILS,
    TwoClasses,
    empty_fit,
    laplace,
    log_joint,
    log_proposal,
    solve_transposed,
)

__all__ = ["WALKS", "sample_laplace"]

WALKS = ("add", "delete", "exchange", "jump", "weights")  # the first three: steps of the walk
JUMPS = 8  # of the walk before its end is put to the test: a new subset costs a fit
SLOTS = 1 << 18  # subsets in the table; it is emptied when it is full
NUMBERS = 1 << 23  # of their fits together


def sample_laplace(
    problem: Subsets,
    plan: tuple[int, int, int],
    chains: int,
    seed: int,
    jumps: int | None = None,
    threads: int | None = None,
) -> list[Store]:
    """Sample a two-class model; `inclusion` is left empty (NaN). As `sample_collapsed`."""
    A = np.ascontiguousarray(problem.A, dtype=np.float64)
    data, tries = TwoClasses(A, problem.t, problem.probit), jumps or min(problem.n_inputs, JUMPS)

    def one(first, rng: np.random.Generator, watch: Watch) -> Store:  # type: ignore[no-untyped-def]
        begin = np.empty(0)
        found = run_laplace(data, problem.prior(), Plan(*plan), tries, first, begin, rng, watch)
        return finite_chain(*found)

    return run_chains(one, problem, chains, seed, threads)


# --- the table of fits -------------------------------------------------------------------------


class Table(NamedTuple):
    """The fits of all subsets that were met, by a key of 64 bits."""

    slot_of: Index  # hash table: number of a fit, -1 where there is none
    keys: Index
    evidence: Array
    begin: Index  # of a fit in `numbers`: by row the mode and the factor
    numbers: Array
    used: Index  # fits, numbers


@njit(cache=True, nogil=True, error_model="numpy")
def _sort(k, members):  # type: ignore[no-untyped-def]
    """Insertion sort: the members are few, and numba takes seconds to compile its own."""
    for r in range(1, k):
        j, i = members[r], r
        while i > 0 and members[i - 1] > j:
            members[i] = members[i - 1]
            i -= 1
        members[i] = j


@njit(cache=True, nogil=True, error_model="numpy")
def _find(key, k, members, data, prior, fit, table):  # type: ignore[no-untyped-def]
    """Place of a subset's fit in the table, where it is put if it is new.

    The key is the sum (exclusive or) of a random word for each member: two subsets share one with
    probability 2^-64.
    """
    slot_of, keys, numbers, used = table.slot_of, table.keys, table.numbers, table.used
    mask = np.uint64(slot_of.size - 1)
    slot = key & mask
    while slot_of[slot] >= 0:
        if keys[slot_of[slot]] == key:
            return slot_of[slot]
        slot = (slot + np.uint64(1)) & mask
    length = k + k * (k + 1) // 2
    if used[0] == keys.size or used[1] + length > numbers.size:
        slot_of[:] = -1
        used[:] = 0
        slot = key & mask
    here = used[0]
    ordered = members.copy()  # a fit belongs to the subset, not to the way it came about
    _sort(k, ordered)
    table.evidence[here] = laplace(k, ordered, data, prior.alpha, prior.slab, fit)
    keys[here], table.begin[here], slot_of[slot] = key, used[1], here
    at = used[1]
    for r in range(k):
        numbers[at] = fit.mode[r]
        at += 1
        for i in range(r + 1):
            numbers[at] = fit.L[r, i]
            at += 1
    used[0], used[1] = here + 1, at
    return here


@njit(cache=True, nogil=True, error_model="numpy")
def _unpack(here, k, members, place, table, fit):  # type: ignore[no-untyped-def]
    """Give the fit of a subset, and put its members in the order of the fit."""
    _sort(k, members)
    for r in range(k):
        place[members[r]] = r
    at, numbers = table.begin[here], table.numbers
    for r in range(k):
        fit.mode[r] = numbers[at]
        at += 1
        for i in range(r + 1):
            fit.L[r, i] = numbers[at]
            at += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _new_table():  # type: ignore[no-untyped-def]
    return Table(
        np.full(2 * SLOTS, -1, np.int32),
        np.empty(SLOTS, np.uint64),
        np.empty(SLOTS),
        np.empty(SLOTS, np.int64),
        np.empty(NUMBERS),
        np.zeros(2, np.int64),
    )


# --- the walk over subsets ---------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def _propose(k, members, place, columns, rng):  # type: ignore[no-untyped-def]
    """A symmetric proposal: the input removed and the input added (0: none)."""
    if rng.random() < 0.7:
        j = 1 + int(rng.random() * (columns - 1))
        return (0, j) if place[j] < 0 else (j, 0)
    if k == 1 or k == columns:  # to add or delete instead would not be symmetric
        return 0, 0
    old = members[1 + int(rng.random() * (k - 1))]
    while True:
        new = 1 + int(rng.random() * (columns - 1))
        if place[new] < 0:
            return old, new


@njit(cache=True, nogil=True, error_model="numpy")
def change(k, members, place, old, new):  # type: ignore[no-untyped-def]
    """Let `old` go and `new` come; the same with the two exchanged undoes it."""
    if old > 0 and new > 0:
        members[place[old]], place[new], place[old] = new, place[old], -1
    elif new > 0:
        members[k], place[new] = new, k
        return k + 1
    elif old > 0:
        last = members[k - 1]
        members[place[old]], place[last] = last, place[old]
        place[old] = -1
        return k - 1
    return k


@njit(cache=True, nogil=True, error_model="numpy")
def run_laplace(data, prior, plan, jumps, first, begin, rng, watch):  # type: ignore[no-untyped-def]
    """Run one chain from the members `first`; what it gives is in `Store`, and whether finite.

    `begin`: weights of the bias and the members; empty: their mode.
    """
    columns, alpha, slab, log_prior = data.A.shape[1], prior.alpha, prior.slab, prior.log_subset
    store = new_store(columns, plan, 5)
    store.inclusion[:] = np.nan
    moves, words = store.moves, np.zeros(columns, np.uint64)
    for j in range(columns):
        for _ in range(4):  # 16 random bits at a time
            words[j] = (words[j] << np.uint64(16)) | np.uint64(rng.random() * 65536.0)
    table, fit, own = _new_table(), empty_fit(columns), empty_fit(columns)
    white, weights, trial = np.empty(columns), np.zeros(columns), np.zeros(columns)
    members, place = np.zeros(columns, np.int64), np.full(columns, -1, np.int64)
    here, there = members.copy(), place.copy()  # the subset of the chain; `members` walk ahead
    place[0], k, key = 0, 1, np.uint64(0)
    for j in first:
        k = change(k, members, place, 0, j)
        key ^= words[j]
    at = _find(key, k, members, data, prior, fit, table)
    value = table.evidence[at]
    _unpack(at, k, members, place, table, own)
    weights[:k] = begin if begin.size > 0 else own.mode[:k]
    here[:], there[:], k_here, key_here, value_here = members, place, k, key, value
    joint = log_joint(k, weights, here, data, alpha, slab)
    omega = joint - log_proposal(k, weights, own.mode, own.L) - value_here
    finite = isfinite(omega)
    for sweep in range(-plan.tune, plan.draws * plan.thin):
        if watch[STOP] or not finite:
            break
        watch[DONE] += 1
        if sweep == 0:
            moves[:] = 0
        for _ in range(jumps):
            if watch[STOP]:
                break
            old, new = _propose(k, members, place, columns, rng)
            if old == new:
                continue
            size, kind = k - 1, EXCHANGE
            if old == 0 or new == 0:
                kind = ADD if old == 0 else DELETE
            moves[kind, size, 0] += 1
            new_key = key ^ (words[old] if old > 0 else np.uint64(0))
            new_key ^= words[new] if new > 0 else np.uint64(0)
            new_k = change(k, members, place, old, new)
            at = _find(new_key, new_k, members, data, prior, fit, table)
            log_ratio = table.evidence[at] + log_prior[new_k - 1] - value - log_prior[size]
            if log_ratio >= 0.0 or rng.random() < exp(log_ratio):
                k, key, value = new_k, new_key, table.evidence[at]
                moves[kind, size, 1] += 1
            else:
                change(new_k, members, place, new, old)
        at = _find(key, k, members, data, prior, fit, table)
        _unpack(at, k, members, place, table, fit)
        for r in range(k):
            white[r] = rng.standard_normal()
        wide = sqrt(0.5 * TAILS / rng.standard_gamma(0.5 * TAILS))
        solve_transposed(k, fit.L, white, trial)
        for r in range(k):
            trial[r] = fit.mode[r] + wide * trial[r]
        new_joint = log_joint(k, trial, members, data, alpha, slab)
        new_omega = new_joint - log_proposal(k, trial, fit.mode, fit.L) - value
        moves[3, k_here - 1, 0] += 1
        if new_omega >= omega or rng.random() < exp(new_omega - omega):
            here[:k], there[:], k_here, key_here, value_here = members[:k], place, k, key, value
            weights[:k], own.mode[:k], own.L[:k, :k] = trial[:k], fit.mode[:k], fit.L[:k, :k]
            joint, omega = new_joint, new_omega
            moves[3, k - 1, 1] += 1
        else:
            members[:k_here], place[:], k, key, value = (
                here[:k_here],
                there,
                k_here,
                key_here,
                value_here,
            )
        for r in range(k):
            white[r] = rng.standard_normal() * 2.4 / sqrt(k)
        solve_transposed(k, own.L, white, trial)
        for r in range(k):
            trial[r] += weights[r]
        new_joint = log_joint(k, trial, here, data, alpha, slab)
        moves[4, k - 1, 0] += 1
        if new_joint >= joint or rng.random() < exp(new_joint - joint):
            weights[:k], joint = trial[:k], new_joint
            omega = joint - log_proposal(k, weights, own.mode, own.L) - value_here
            moves[4, k - 1, 1] += 1
        if sweep >= 0:
            for r in range(1, k):
                store.visited[sweep, here[r] - 1] = 1
        if sweep >= 0 and (sweep + 1) % plan.thin == 0:
            draw = sweep // plan.thin
            for r in range(1, k):
                store.included[draw, here[r] - 1] = 1
            store.alpha[draw] = alpha
            sample_precisions(k, here, there, weights, slab, store.alpha[draw], rng)
            for j in range(columns):
                store.weights[draw, j] = rng.standard_normal() / sqrt(store.alpha[draw, j])
            for r in range(k):
                store.weights[draw, here[r]] = weights[r]
    return store, finite
