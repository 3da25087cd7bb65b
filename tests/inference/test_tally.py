"""The tally of subsets: its Monte Carlo error is that of chains whose error is known."""

import numpy as np
import pytest

from ardvark.inference.tally import share_error, tally, visited_subsets

CHAINS, SWEEPS, RUNS = 4, 2000, 60


def two_state_runs(p, rho, seed):
    """Indicators (run, chain, sweep, 1) with P(1) = p and correlation rho^k at lag k."""
    uniform = np.random.default_rng(seed).random((SWEEPS, RUNS, CHAINS))
    states = np.empty(uniform.shape, bool)
    states[0] = uniform[0] < p
    for i in range(1, SWEEPS):
        states[i] = uniform[i] < p + rho * (states[i - 1] - p)
    return np.moveaxis(states, 0, -1)[..., None]


@pytest.mark.parametrize(("p", "rho"), [(0.5, -0.3), (0.5, 0.0), (0.5, 0.97), (0.1, 0.9)])
def test_the_error_is_that_of_a_chain_with_known_correlation(p, rho):
    truth = np.sqrt(p * (1 - p) * (1 + rho) / (1 - rho) / (CHAINS * SWEEPS))
    errors = []
    for visited in two_state_runs(p, rho, 3):
        found = tally(visited)
        errors.append(found.mcse[0])
        np.testing.assert_allclose(found.mcse, share_error(visited)[0], rtol=1e-9)
    ratio = np.array(errors) ** 2 / truth**2
    # The bias of the estimate is below 10 % for correlations that are short beside the chain.
    assert abs(ratio.mean() - 1) < 0.1 + 4 * ratio.std() / np.sqrt(RUNS)


def test_chains_that_never_meet_have_the_error_of_their_number():
    """Two chains always include the input and two never: the share is known to about 1/4."""
    visited = np.zeros((4, 1000, 1), bool)
    visited[:2] = True
    visited[0, 500] = False
    assert 0.2 < tally(visited).mcse[0] < 0.4


def test_independent_draws_have_binomial_errors():
    visited = np.random.default_rng(1).random((2, 500, 3)) < 0.3
    found = tally(visited, independent=True)
    p = found.probability
    np.testing.assert_allclose(found.mcse, np.sqrt(p * (1 - p) / 1000))
    assert (np.diff(p) <= 0).all() and np.isclose(p.sum(), 1)


def test_the_group_counts_every_sweep():
    visited = np.zeros((2, 30, 2), bool)
    visited[:, 10:, 1] = True
    group = visited_subsets(visited, ["a", "b"])
    assert group.attrs == {"visited": 2, "sweeps": 60}
    np.testing.assert_allclose(group["probability"], [2 / 3, 1 / 3])
    assert group["included"].sel(subset=0).values.tolist() == [False, True]
