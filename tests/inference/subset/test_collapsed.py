"""Collapsed moves over subsets: algebra, round trips, the graph's logp, enumeration, controls."""

import numpy as np
import pytensor
import pytest
from scipy import stats
from subset_cases import (
    data,
    evidence_by_hand,
    frequencies,
    regression,
    subset_problem,
    two_classes,
)

from ardvark.inference.subset.collapsed import Subsets, sample_collapsed
from ardvark.inference.subset.enumerate import draw_given_subsets, enumerate_subsets
from ardvark.inference.subset.factor import (
    gain,
    gain_of_member,
    push,
    remove,
    solve_weights,
    start,
    workspace,
)
from ardvark.inference.subset.kernels import above_zero, exchange_gains, sample_sigma
from ardvark.models.subset import log_subset_prior

# States of a round trip; the many are for the long suite.
STATES = pytest.mark.parametrize("states", [500, pytest.param(10_000, marks=pytest.mark.validate)])


def rng(seed):
    return np.random.default_rng([41, seed])


class Factor:
    """A problem, a subset, and the factor of it."""

    def __init__(self, problem, subset, tau, alpha, keep_products=True):
        data = problem.products
        gram = data.gram if keep_products else np.empty((0, 0))
        self.data, self.alpha, self.tau = data._replace(gram=gram), alpha, tau
        self.f = workspace(data.A.shape[1])
        self.rows, self.beta, self.s, self.q, self.members = self.f[:5]
        start(self.f, self.data, tau, alpha)
        self.k = 0
        for j in (0, *np.flatnonzero(subset) + 1):
            self.push(j)

    def push(self, j):
        push(j, self.k, self.f, self.data, self.tau, self.alpha)
        self.k += 1

    def remove(self, at):
        remove(at, self.k, self.f, self.data, self.tau, self.alpha)
        self.k -= 1

    @property
    def place(self):
        place = np.full(len(self.alpha), -1)
        place[self.members[: self.k]] = np.arange(self.k)
        return place

    def gain(self, j):
        if self.place[j] < 0:
            return gain(self.alpha[j], self.s[j], self.q[j])
        return gain_of_member(self.place[j], self.k, self.f, self.alpha)

    def exchange_gains(self, at):
        exchange_gains(at, self.k, self.f, self.alpha)
        return self.f.gains.copy()


def random_states(problem, number, seed):
    r = rng(seed)
    for _ in range(number):
        subset = r.random(problem.n_inputs) < r.random()
        alpha = np.exp(r.normal(size=problem.n_inputs + 1))
        yield r, subset, float(np.exp(r.normal())), alpha


@pytest.mark.parametrize("keep_products", [True, False])
def test_gains_are_differences_of_dense_evidences(keep_products):
    problem = subset_problem(regression())

    def dense(columns, tau, alpha):
        A = problem.A[:, columns]
        covariance = np.eye(len(A)) / tau + A / alpha[columns] @ A.T
        return stats.multivariate_normal.logpdf(problem.t, cov=covariance)

    for _, subset, tau, alpha in random_states(problem, 20, 1):
        factor = Factor(problem, subset, tau, alpha, keep_products)
        members = [0, *np.flatnonzero(subset) + 1]
        for j in range(1, 9):
            with_j, without_j = sorted({*members, j}), [i for i in members if i != j]
            expected = dense(with_j, tau, alpha) - dense(without_j, tau, alpha)
            assert factor.gain(j) == pytest.approx(expected, abs=1e-8)


def test_weights_solve_the_normal_equations():
    problem = subset_problem(regression())
    for _, subset, tau, alpha in random_states(problem, 10, 2):
        factor = Factor(problem, subset, tau, alpha)
        columns = factor.members[: factor.k]
        weights = np.empty(9)
        solve_weights(factor.k, factor.f, factor.beta, weights)
        A = problem.A[:, columns]
        M = tau * A.T @ A + np.diag(alpha[columns])
        np.testing.assert_allclose(M @ weights[: factor.k], tau * A.T @ problem.t, atol=1e-9)


@STATES
def test_every_move_and_its_reverse_restore_the_state(states):
    problem = subset_problem(regression())
    for r, subset, tau, alpha in random_states(problem, states, 3):
        factor = Factor(problem, subset, tau, alpha)
        before = factor.s.copy(), factor.q.copy(), np.sort(factor.members[: factor.k])
        outside = factor.place < 0
        j = int(r.integers(1, 9))
        forward = factor.gain(j)
        if outside[j]:
            factor.push(j)
            assert factor.gain(j) == pytest.approx(forward, abs=1e-9)
            factor.remove(factor.place[j])
        else:
            factor.remove(factor.place[j])
            assert factor.gain(j) == pytest.approx(forward, abs=1e-9)
            factor.push(j)
        np.testing.assert_allclose(factor.s[outside], before[0][outside], rtol=1e-10)
        np.testing.assert_allclose(factor.q[outside], before[1][outside], rtol=1e-8, atol=1e-10)
        assert np.array_equal(np.sort(factor.members[: factor.k]), before[2])


@STATES
def test_an_exchange_back_has_the_opposite_ratio(states):
    problem = subset_problem(regression())
    tried = 0
    for r, subset, tau, alpha in random_states(problem, states, 4):
        factor = Factor(problem, subset, tau, alpha)
        if not 1 < factor.k < 9:
            continue
        at = int(r.integers(1, factor.k))
        gains = factor.exchange_gains(at)
        old, new = factor.members[at], int(r.choice(np.flatnonzero(factor.place < 0)))
        factor.remove(at)
        assert gains[new] == pytest.approx(factor.gain(new), abs=1e-8)
        factor.push(new)
        back = factor.exchange_gains(factor.place[new])
        assert gains[new] - gains[old] == pytest.approx(back[new] - back[old], abs=1e-9)
        tried += 1
    assert tried > 0.6 * states


def gaussian_given(problem, subset, tau, alpha):
    """Mean and covariance of all weights given the subset; the slab where an input is out."""
    on = np.concatenate([[True], subset])
    A = problem.A * on
    M = tau * A.T @ A + np.diag(alpha)
    return np.linalg.solve(M, tau * A.T @ problem.t), np.linalg.inv(M)


@STATES
@pytest.mark.parametrize("fault", [None, "prior ratio", "proposal ratio"])
def test_the_metropolis_ratio_is_the_graphs_and_a_forgotten_term_is_seen(fault, states):
    """log r = logp(I', w') - logp(I, w) - log q(w' | I') + log q(w | I), w from its Gaussian."""
    model = regression(20, 5, slab="ard", noise=None)
    problem = subset_problem(model)
    with pytensor.config.change_flags(cxx=""):
        logp = model.compile_logp(mode="FAST_COMPILE", jacobian=False)
    mean_t = model["t_observed"].get_value().mean()
    worst = 0.0
    for r, subset, tau, alpha in random_states(problem, states, 5):
        alpha[0] = problem.alpha[0]
        factor = Factor(problem, subset, tau, alpha)
        j = int(r.integers(5))
        other = subset.copy()
        other[j] = not other[j]
        size, new_size = int(subset.sum()), int(other.sum())
        log_ratio = factor.gain(j + 1) * (1 if other[j] else -1)
        if fault != "prior ratio":
            log_ratio += problem.log_prior[new_size] - problem.log_prior[size]
        expected = 0.0
        for state, sign in ((other, 1), (subset, -1)):
            mean, covariance = gaussian_given(problem, state, tau, alpha)
            w = r.multivariate_normal(mean, covariance)
            point = {
                "included": state.astype(int), "bias": w[0] + mean_t, "w": w[1:],
                "alpha_log__": np.log(alpha[1:]), "sigma_log__": np.log(tau**-0.5),
            }  # fmt: skip
            expected += sign * float(logp(point))
            if fault != "proposal ratio":
                expected -= sign * stats.multivariate_normal.logpdf(w, mean, covariance)
        worst = max(worst, abs(log_ratio - expected) / (1 + abs(expected)))
    assert (worst < 1e-8) == (fault is None)


def test_evidence_of_a_subset_by_adaptive_quadrature():
    problem = subset_problem(regression(15, 3))
    found = enumerate_subsets(problem)
    for code in (0, 3, 5, 7):
        subset = found.included[code]
        by_hand = evidence_by_hand(problem, subset) + problem.log_prior[subset.sum()]
        assert found.log_joint[code] == pytest.approx(by_hand, abs=1e-7)


@pytest.mark.parametrize("sweeps", [25_000, pytest.param(50_000, marks=pytest.mark.validate)])
@pytest.mark.parametrize("noise", [None, 0.8])
def test_all_256_subsets_against_enumeration(noise, sweeps):
    problem = subset_problem(regression(noise=noise))
    exact = enumerate_subsets(problem)
    chains = sample_collapsed(problem, (500, sweeps, 1), 4, seed=11)
    share, error = frequencies(np.array([chain.visited for chain in chains]), 8)
    assert 0.5 * np.abs(share - exact.probability).sum() < 0.02
    often = exact.probability > 1e-3  # a dozen visits a batch: the error itself is known
    assert np.all(np.abs(share - exact.probability)[often] < 4 * error[often])
    inclusion = exact.probability @ exact.included
    rao = np.array([chain.inclusion for chain in chains])
    count = np.array([chain.included for chain in chains])
    np.testing.assert_allclose(count.mean(axis=(0, 1)), inclusion, atol=0.01)
    np.testing.assert_allclose(rao.mean(axis=(0, 1)), inclusion, atol=0.004)
    assert np.all(rao.std(axis=(0, 1)) <= count.std(axis=(0, 1)) + 1e-12)


@pytest.mark.parametrize("noise", [None, 0.8])
def test_weights_and_noise_are_those_of_the_enumeration(noise):
    problem = subset_problem(regression(noise=noise))
    exact = enumerate_subsets(problem)
    _, weights, sigma = draw_given_subsets(problem, exact, 20000, rng(6))
    chains = sample_collapsed(problem, (500, 5000, 4), 4, seed=12)
    mine = np.concatenate([c.weights[:, 1:] * c.included for c in chains])
    error = np.hypot(weights[:, 1:].std(axis=0), mine.std(axis=0)) / np.sqrt(10000)
    assert np.all(np.abs(mine.mean(axis=0) - weights[:, 1:].mean(axis=0)) < 4 * error)
    assert np.mean([c.sigma.mean() for c in chains]) == pytest.approx(
        sigma.mean(), abs=4 * sigma.std() / 80 + 1e-12
    )


def test_a_chain_without_the_prior_ratio_is_seen():
    problem = subset_problem(regression())
    exact = enumerate_subsets(problem).probability
    forgotten = Subsets(
        problem.A, problem.t, np.zeros(9), problem.alpha, sigma=problem.sigma, scale=problem.scale
    )
    chains = sample_collapsed(forgotten, (500, 5000, 1), 4, seed=11)
    share, _ = frequencies(np.array([chain.visited for chain in chains]), 8)
    assert 0.5 * np.abs(share - exact).sum() > 0.1


@pytest.mark.parametrize("slab", ["ard", "shared"])
def test_without_data_the_chain_gives_the_prior(slab):
    """The data say nothing (zero inputs): subsets, precisions and noise keep their priors."""
    r = rng(7)
    d, n = 5, 6
    A = np.column_stack([np.ones(n), np.zeros((n, d))])
    kind = {"ard": 1, "shared": 2}[slab]
    problem = Subsets(
        A, r.normal(size=n), log_subset_prior(d, 1.5), np.ones(d + 1), slab=kind, a=3.0, b=2.0
    )
    chains = sample_collapsed(problem, (200, 8000, 2), 4, seed=3)
    size = np.concatenate([chain.included.sum(axis=1) for chain in chains])
    expected = stats.poisson.pmf(np.arange(6), 1.5) / stats.poisson.cdf(5, 1.5)
    share = np.bincount(size, minlength=6) / len(size)
    assert np.all(np.abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / 8000))
    alpha = np.concatenate([chain.alpha[:, 1:] for chain in chains])
    error = np.sqrt(3.0) / 2.0 / np.sqrt(8000)  # sd of Gamma(3, 2), a quarter of the draws
    np.testing.assert_allclose(alpha.mean(axis=0), 1.5, atol=5 * error)
    w = np.concatenate([chain.weights[:, 1:] for chain in chains])
    np.testing.assert_allclose((w**2).mean(axis=0), 1.0, atol=0.12)  # b / (a - 1)


def test_same_seed_same_draws_whatever_the_number_of_threads():
    problem = subset_problem(two_classes())
    one = sample_collapsed(problem, (10, 50, 2), 3, seed=5, threads=1)
    three = sample_collapsed(problem, (10, 50, 2), 3, seed=5, threads=3)
    other = sample_collapsed(problem, (10, 50, 2), 3, seed=6, threads=3)
    for a, b in zip(one, three, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    assert not np.array_equal(one[0].weights, other[0].weights)
    assert not np.array_equal(one[0].weights, one[1].weights)


@pytest.mark.parametrize("mean", [-6.0, -1.0, 0.3, 4.0])
def test_truncated_normals(mean):
    r = rng(8)
    draws = np.array([above_zero(mean, r) for _ in range(4000)])
    exact = stats.truncnorm(-mean, np.inf, loc=mean)
    assert stats.kstest(draws, exact.cdf).pvalue > 1e-3


def test_slice_sampling_of_sigma():
    r, sigma, draws = rng(9), 1.0, []
    for _ in range(6000):
        sigma = sample_sigma(sigma, 14.0, 12, 1.3, r)
        draws.append(sigma)
    x = np.linspace(1e-3, 8, 40000)
    log_density = -12 * np.log(x) - 7.0 / x**2 - 0.5 * (x / 1.3) ** 2
    density = np.exp(log_density - log_density.max())
    mean = (x * density).sum() / density.sum()
    spread = np.sqrt((x**2 * density).sum() / density.sum() - mean**2)
    assert np.mean(draws) == pytest.approx(mean, abs=5 * spread / np.sqrt(2000))
    assert np.std(draws) == pytest.approx(spread, rel=0.08)


@pytest.mark.parametrize("sets", [250, pytest.param(2000, marks=pytest.mark.validate)])
@pytest.mark.parametrize("probit", [False, True])
def test_inclusion_is_calibrated_on_data_from_the_prior(probit, sets):
    """Over data sets from the prior the posterior inclusion is on average right."""
    r, d, n = rng(10), 4, 25
    log_prior = log_subset_prior(d, 1.2)
    sizes = stats.poisson.pmf(np.arange(d + 1), 1.2) / stats.poisson.cdf(d, 1.2)
    alpha = np.concatenate([[0.5], np.full(d, 0.7)])
    truth, found = [], []
    for _ in range(sets):
        A = np.column_stack([np.ones(n), r.normal(size=(n, d))])
        included = np.zeros(d)
        included[r.permutation(d)[: r.choice(d + 1, p=sizes)]] = 1
        w = r.normal(size=d + 1) * alpha**-0.5 * np.concatenate([[1], included])
        t = A @ w + r.normal(size=n)
        t = np.where(t > 0, 1.0, -1.0) if probit else t
        problem = Subsets(A, t, log_prior, alpha, probit=probit)
        chain = sample_collapsed(problem, (100, 500, 1), 1, seed=int(r.integers(1 << 30)))[0]
        truth.append(included)
        found.append(chain.inclusion.mean(axis=0))
    truth, found = np.array(truth), np.array(found)
    spread = np.sqrt((found * (1 - found)).sum(axis=0))
    assert np.all(np.abs((truth - found).sum(axis=0)) < 4 * spread)
    prior = sizes @ np.arange(d + 1) / d
    error = found.mean(axis=1).std() / np.sqrt(len(found))
    assert abs(found.mean() - prior) < 4 * error
    sharp = found.std()
    assert sharp > 0.15  # the data do say something: the mean is not right by saying nothing


def test_shuffled_labels_leave_the_inclusion_at_or_below_its_prior():
    """Ten independent inputs, 300 rows: no effect speaks against a slab of sd 1, so below 0.1.

    An input that is of no use costs its slab, about log sqrt(300) = 2.9 nats on average: the mean
    inclusion over such data was 0.015 (0.045 with 50 rows) where the prior's is 0.1.
    """
    r = rng(11)
    largest, means = [], []
    for _ in range(6):
        X = r.normal(size=(300, 10))
        sign = 2.0 * r.permutation(np.repeat([0, 1], 150)) - 1.0
        A = np.column_stack([np.ones(300), X])
        alpha = np.concatenate([[0.04], np.ones(10)])
        problem = Subsets(A, sign, log_subset_prior(10, 1.0), alpha, probit=True)
        chains = sample_collapsed(problem, (300, 1500, 1), 2, seed=1)
        inclusion = np.mean([chain.inclusion.mean(axis=0) for chain in chains], axis=0)
        largest.append(inclusion.max())
        means.append(inclusion.mean())
    assert 0.005 < np.mean(means) < 0.04
    assert np.median(largest) < 0.1


def test_the_data_of_the_cases_have_a_signal():
    X, score = data(200, 4, 1)
    assert np.corrcoef(X[:, 0], score)[0, 1] > 0.2
