"""Leaps between modes: two orders of the same rows, which chains alone never exchange."""

import time

import numpy as np
import pytest

from ardvark.inference.mixture.background import mixture_evidence
from ardvark.inference.mixture.chains import Scale, make_problem, run_chains, rung, start
from ardvark.inference.mixture.scouts import score, search
from ardvark.inference.reversible_jump import Plan
from ardvark.inference.running.threads import unwatched
from ardvark.models.subset import log_subset_prior

PLAN = Plan(300, 10, 150)


@pytest.fixture(scope="module")
def two_orders():
    """Inputs 0, 1 know of one split of the rows, 2 and 3 of another; two kernels can follow one."""
    rng = np.random.default_rng(8)
    split = np.arange(60)[:, None] // [1, 2] % 2 * 2.0 - 1.0
    X = np.repeat(split, 2, axis=1) * 1.6 + rng.normal(size=(60, 4))
    centre, spread = (X.max(axis=0) + X.min(axis=0)) / 2, np.ptp(X, axis=0)
    z, h = Scale(centre, spread).to_z(X), np.full(4, 10.0)
    evidence = mixture_evidence(z, 2, 2.0, 0.2, h, 0.01, seed=1)
    label = rng.integers(2, size=60)
    return make_problem(z, label, log_subset_prior(4, 1.0), 2.0, 0.2, h, 0.1, evidence)


def shares(problem, **options):
    """Share of sweeps of each chain with input 0, and accepted leaps."""
    chains = run_chains(problem, 2, 2, PLAN, jumps=4, chains=6, seed=3, **options)
    return np.array([c.visited[:, 0].mean() for c in chains]), sum(
        int(c.accepted[3].sum()) for c in chains
    )


def test_leaps_bring_chains_together_that_stay_apart_without_them(two_orders):
    alone, none = shares(two_orders, scouts=0)
    together, leaps = shares(two_orders, scouts=4)
    assert none == 0
    assert leaps > 100
    assert np.ptp(alone) > 0.5  # the control
    assert np.ptp(together) < 0.25
    assert 0.02 < together.mean() < 0.98  # both orders are visited


def test_a_search_never_ends_lower_and_is_repeated_by_its_seed(two_orders):
    found = []
    for _ in range(2):
        rng = np.random.default_rng(5)
        state = rung(start(rng, two_orders, 2, 2, 1, 1), 0)
        first = score(rng, two_orders, state, np.empty(4), np.empty((5, 5)))
        found.append(search(rng, two_orders, state, 10, 4, unwatched()))
        assert found[-1] > first
    assert found[0] == found[1]


def test_scouts_of_a_short_chain_are_short(two_orders):
    """With 200 sweeps they took ninety times as long as the chain that had sent them."""

    def seconds(sweeps):
        rng = np.random.default_rng(5)
        state = rung(start(rng, two_orders, 2, 2, 1, 1), 0)
        begin = time.process_time()
        search(rng, two_orders, state, sweeps, 4, unwatched())
        return time.process_time() - begin

    seconds(10)  # compiles
    assert seconds(300) > 6 * seconds(30)  # ten times
