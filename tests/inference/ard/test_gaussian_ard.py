"""ARD with Gaussian noise: each update by its definition, and where the search ends."""

import itertools
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import ARDRegression

from ardvark.inference.ard import gaussian_ard as module
from ardvark.inference.ard import gaussian_ard_kernels as kernels
from ardvark.inference.ard.gaussian_ard import ACTIONS, ALGORITHMS, Columns, gaussian_ard
from ardvark.inference.ard.sequential_ard import sequential_ard
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.model import SiteModel

RNG_SEED = 53
TOLERANCE = 1e-6  # nats, of one change


def linear(rows=40, weights=12, seed=RNG_SEED, noise=0.7):
    rng = np.random.default_rng(seed)
    projection = rng.normal(size=(rows, weights))
    projection[:, 0] = 1.0
    signal = np.zeros(weights)
    signal[[0, min(2, weights - 1), min(5, weights - 1)]] = 1.5, -2.0, 0.8
    return projection, projection @ signal + noise * rng.normal(size=rows)


def sinc(rows=80, seed=RNG_SEED):
    """A bias and a Gaussian kernel: columns that are nearly dependent."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-10, 10, rows)
    projection = np.column_stack([np.ones(rows), np.exp(-((x[:, None] - x) ** 2) / 9.0)])
    return projection, np.sinc(x / np.pi) + 0.1 * rng.normal(size=rows)


def marginal(projection, precision, noise):
    on = np.isfinite(precision)
    columns = projection[:, on]
    return noise**2 * np.eye(len(projection)) + columns / precision[on] @ columns.T


def evidence(projection, target, precision, noise):
    """By the marginal normal density."""
    factor = np.linalg.cholesky(marginal(projection, precision, noise))
    white = np.linalg.solve(factor, target)
    log_det = np.log(factor.diagonal()).sum()
    return -0.5 * (len(target) * np.log(2 * np.pi) + white @ white) - log_det


def sparsity_and_quality(projection, target, precision, noise):
    """S and Q of all columns by their definition."""
    inverse = np.linalg.inv(marginal(projection, precision, noise))
    return np.einsum(
        "nj,nm,mj->j", projection, inverse, projection
    ), projection.T @ inverse @ target


def best_gains(projection, target, precision, noise):
    """What the best change of each precision gains, the others fixed; by leaving each out."""
    gains = np.empty(precision.size)
    for j in range(precision.size):
        without = precision.copy()
        without[j] = np.inf
        s, q = (a[j] for a in sparsity_and_quality(projection, target, without, noise))
        here = kernels.gain_of.py_func(precision[j], s, q)
        ratio = max(q**2 / s, 1.0) if s > 0 else 1.0
        gains[j] = 0.5 * (ratio - 1 - np.log(ratio)) - here
    return gains


def noise_slope(projection, target, result):
    """d log evidence / d log sigma^2, relative to N/2."""
    residual = target - projection[:, result.active] @ result.mean
    return (residual @ residual / result.noise**2 - (len(target) - result.gamma.sum())) / len(
        target
    )


def assert_optimum(projection, target, result):
    assert result.converged
    gains = best_gains(projection, target, result.precision, result.noise)
    assert gains.max() < 1.1 * TOLERANCE  # a tenth for rounding
    assert abs(noise_slope(projection, target, result)) < 1e-6


def make_state(projection, target, precision, noise):
    """The kernels' state, from the definition."""
    search = module._Search(projection, target, noise, None, (0.0, np.inf))
    search.begin(None, precision, np.isfinite(precision), "sequential")
    return search


# Algebra -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [linear, sinc])
def test_each_update_is_that_of_the_definition(data):
    """Add, re-estimate, delete: Sigma, mu, S and Q after each, to 1e-9."""
    projection, target = data()
    precision, noise = np.full(projection.shape[1], np.inf), 0.3
    precision[[0, 3, 7]] = 0.5, 2.0, 30.0
    state, beta = make_state(projection, target, precision, noise).state, noise**-2

    def check():
        on = state.active[: state.size[0]]
        columns = projection[:, on]
        covariance = np.linalg.inv(np.diag(state.precision[on]) + beta * columns.T @ columns)
        mean = beta * covariance @ columns.T @ target
        S, Q = sparsity_and_quality(projection, target, state.precision, noise)
        k = on.size
        np.testing.assert_allclose(state.covariance[:k, :k], covariance, rtol=0, atol=1e-9)
        np.testing.assert_allclose(state.mean[:k], mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(state.S, S, rtol=1e-9, atol=1e-9 * S.max())
        np.testing.assert_allclose(state.Q, Q, rtol=1e-9, atol=1e-9 * np.abs(Q).max())
        np.testing.assert_array_equal(state.place[on], np.arange(k))

    check()
    for weight, alpha in [(5, 0.2), (1, 11.0)]:
        kernels.add(state, beta, weight, alpha)
        check()
    for weight, alpha in [(3, 0.01), (5, 400.0)]:
        j = state.place[weight]
        step = alpha - state.precision[weight]
        kernels.change(state, beta, j, step / (1 + state.covariance[j, j] * step))
        state.precision[weight] = alpha
        check()
    for weight in (0, 1):
        j = state.place[weight]
        kernels.change(state, beta, j, 1 / state.covariance[j, j])
        kernels.remove(state, j)
        check()


def test_gradient_and_hessian_are_those_of_finite_differences():
    projection, target = linear(25, 4)
    rng = np.random.default_rng(RNG_SEED)
    u = rng.normal(size=5)

    def parts(u):
        alpha, noise = np.exp(u[:4]), np.exp(0.5 * u[4])
        search = make_state(projection, target, alpha, noise)
        k = np.argsort(search.state.active[:4])
        covariance = search.state.covariance[:4, :4][np.ix_(k, k)]
        out = kernels.slopes(
            alpha, noise**-2, 25, covariance, search.state.mean[:4][k], search.misfit
        )
        return evidence(projection, target, alpha, noise), *out

    _, gradient, hessian = parts(u)
    step = 1e-5  # error of a central difference about step^2 and 1e-13 / step
    for i, e in enumerate(np.eye(5) * step):
        up, down = parts(u + e), parts(u - e)
        np.testing.assert_allclose((up[0] - down[0]) / (2 * step), gradient[i], atol=1e-6)
        np.testing.assert_allclose((up[1] - down[1]) / (2 * step), hessian[i], atol=1e-6)


def test_result_is_the_posterior_at_its_precisions():
    projection, target = sinc()
    result = gaussian_ard(projection, target)
    columns, alpha = projection[:, result.active], result.precision[result.active]
    covariance = np.linalg.inv(np.diag(alpha) + columns.T @ columns / result.noise**2)
    np.testing.assert_allclose(result.covariance, covariance, rtol=1e-6)
    np.testing.assert_allclose(result.mean, covariance @ columns.T @ target / result.noise**2)
    np.testing.assert_allclose(result.gamma, 1 - alpha * covariance.diagonal())
    expected = evidence(projection, target, result.precision, result.noise)
    np.testing.assert_allclose(result.log_evidence, expected, rtol=1e-10)
    assert np.all(np.diff(result.active) > 0)
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(result.precision)), result.active)


# Where it ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [linear, sinc])
@pytest.mark.parametrize("noise", [None, 0.2])
def test_ends_where_no_single_change_gains(data, noise):
    projection, target = data()
    result = gaussian_ard(projection, target, noise=noise)
    gains = best_gains(projection, target, result.precision, result.noise)
    assert result.converged and gains.max() < 1.1 * TOLERANCE
    if noise is None:
        assert abs(noise_slope(projection, target, result)) < 1e-6


@pytest.mark.parametrize("data", [linear, sinc])
@pytest.mark.parametrize("noise", [None, 0.2])
def test_evidence_never_falls(data, noise):
    path = gaussian_ard(*data(), noise=noise).path
    assert np.diff(path.log_evidence).min() > -1e-8  # of rounding: values are of order 100
    assert gaussian_ard(*data(), noise=noise).drift < 1e-7
    assert set(path.action) <= set(range(len(ACTIONS)))
    assert np.all((path.weight >= 0) == np.isin(path.action, [1, 2, 3]))


def test_path_tells_the_evidence_of_the_definition():
    """Follow the actions of a walk from an empty model."""
    projection, target = linear()
    result = gaussian_ard(projection, target, noise=0.7, max_steps=3)
    assert [ACTIONS[a] for a in result.path.action[:4]] == ["start", "add", "add", "add"]
    empty = np.full(projection.shape[1], np.inf)
    assert result.path.log_evidence[0] == pytest.approx(evidence(projection, target, empty, 0.7))
    gains = best_gains(projection, target, empty, 0.7)
    assert result.path.weight[1] == np.argmax(gains)
    assert np.diff(result.path.log_evidence)[0] == pytest.approx(gains.max())


@pytest.mark.parametrize("seed", range(4))
def test_same_optimum_as_the_search_for_any_sites(seed):
    projection, target = linear(seed=seed)
    rows, weights = projection.shape
    sites = GaussianSites(
        target, np.full(rows, 0.7**-2), np.full(rows, -0.5 * np.log(2 * np.pi * 0.7**2))
    )
    model = SiteModel(np.zeros(weights), projection, np.zeros(rows), sites, np.ones(weights))
    slow = sequential_ard(model, Laplace().approximate, tolerance=TOLERANCE)
    fast = gaussian_ard(projection, target, noise=0.7)
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(slow.precision)), fast.active)
    assert fast.log_evidence == pytest.approx(slow.fit.log_evidence, abs=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_as_good_as_every_subset(seed):
    """Six weights: all subsets, each with its precisions and noise optimised by L-BFGS."""
    projection, target = linear(30, 6, seed)

    def best(subset):
        def loss(u):
            precision = np.full(6, np.inf)
            precision[list(subset)] = np.exp(u[1:])
            return -evidence(projection, target, precision, np.exp(u[0]))

        bounds = [(-5, 5)] + [(-12, 12)] * len(subset)
        return -minimize(loss, np.zeros(1 + len(subset)), method="L-BFGS-B", bounds=bounds).fun

    every = [best(s) for r in range(7) for s in itertools.combinations(range(6), r)]
    assert gaussian_ard(projection, target).log_evidence > max(every) - 1e-4  # L-BFGS's accuracy


@pytest.mark.parametrize("data", [linear, sinc, *(partial(linear, seed=s) for s in range(8))])
def test_not_worse_than_scikit_learn(data):
    projection, target = data()
    peer = ARDRegression(fit_intercept=False, threshold_lambda=1e6).fit(projection, target)
    precision = np.where(peer.coef_ != 0, peer.lambda_, np.inf)
    theirs = evidence(projection, target, precision, peer.alpha_**-0.5)
    assert gaussian_ard(projection, target).log_evidence > theirs - 1e-6


def test_finds_what_an_early_noise_hides():
    """Friedman #1: a search that fits the noise at once stops 70 nats below."""
    rng = np.random.default_rng(313)
    x = rng.random((240, 10))
    target = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    target += 10 * x[:, 3] + 5 * x[:, 4] + rng.normal(size=240)
    distance = ((x[:, None] - x) ** 2).sum(-1)
    projection = np.column_stack([np.ones(240), np.exp(-0.3 * distance)])
    found = gaussian_ard(projection, target)
    hidden = gaussian_ard(projection, target, start_noise=10.0)
    assert found.converged and found.log_evidence > hidden.log_evidence + 40
    assert found.noise < 1.5 < hidden.noise  # the truth is 1


# The other algorithms ----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["mackay", "em"])
@pytest.mark.parametrize("data", [linear, sinc])
def test_algorithms_agree_on_the_same_active_set(algorithm, data):
    """Started beside the sequential optimum, not in it."""
    projection, target = data()
    first = gaussian_ard(projection, target)
    again = gaussian_ard(
        projection,
        target,
        algorithm=algorithm,
        precision=1.2 * first.precision,
        start=np.isfinite(first.precision),
        start_noise=1.1 * first.noise,
        tolerance=1e-10,
    )
    assert again.converged
    np.testing.assert_array_equal(again.active, first.active)
    assert again.log_evidence == pytest.approx(first.log_evidence, abs=1e-6)


@pytest.mark.parametrize("algorithm", ["mackay", "em"])
def test_fixed_points_from_all_weights(algorithm):
    projection, target = linear()
    result = gaussian_ard(projection, target, algorithm=algorithm)
    alpha, variance = result.precision[result.active], result.covariance.diagonal()
    assert result.converged
    np.testing.assert_allclose(alpha * (result.mean**2 + variance), 1.0, atol=0.02)
    assert abs(noise_slope(projection, target, result)) < 1e-6
    if algorithm == "em":
        kept = np.diff(result.path.log_evidence)
        assert kept.min() > -1e-8
    assert result.log_evidence == pytest.approx(
        gaussian_ard(projection, target).log_evidence, abs=0.01
    )


# Columns on demand and pools ---------------------------------------------------------------------


def test_columns_on_demand_give_the_same_result():
    projection, target = sinc()

    def make(indices):
        return projection[:, indices]

    dense = gaussian_ard(projection, target)
    for memory in (0.0, 1e9):
        lazy = gaussian_ard(Columns(make, projection.shape, chunk=7, memory=memory), target)
        np.testing.assert_array_equal(lazy.active, dense.active)
        assert lazy.log_evidence == pytest.approx(dense.log_evidence, abs=1e-6)


@pytest.mark.parametrize("pool", [8, 16, 32])
def test_small_pools_end_at_an_optimum_over_all_columns(monkeypatch, pool):
    projection, target = sinc(150)
    monkeypatch.setattr(module, "POOL", pool)
    made = []

    def make(indices):
        made.append(len(indices))
        return projection[:, indices]

    result = gaussian_ard(Columns(make, projection.shape, chunk=10, memory=0.0), target)
    assert_optimum(projection, target, result)
    assert max(made) < 151


@pytest.mark.parametrize("bounds", [(0.0, 1e-3), (5.0, 50.0)])
def test_pools_know_the_bounds(monkeypatch, bounds):
    """What a bound forbids is not looked for again and again."""
    projection, target = sinc(150)
    monkeypatch.setattr(module, "POOL", 16)
    result = gaussian_ard(projection, target, bounds=bounds)
    alpha = result.precision[result.active]
    assert result.converged
    assert np.all((alpha >= bounds[0] * (1 - 1e-12)) & (alpha <= bounds[1] * (1 + 1e-12)))


# Options and refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_weights_that_are_not_optimised_stay(algorithm):
    projection, target = linear()
    optimised = np.ones(12, bool)
    optimised[[1, 2, 4]] = False
    precision = np.ones(12)
    precision[[1, 2, 4]] = 3.0, np.inf, 0.5
    result = gaussian_ard(
        projection, target, optimised=optimised, precision=precision, algorithm=algorithm
    )
    np.testing.assert_array_equal(result.precision[[1, 2, 4]], [3.0, np.inf, 0.5])
    expected = evidence(projection, target, result.precision, result.noise)
    assert result.log_evidence == pytest.approx(expected, rel=1e-10)


def test_units_do_not_matter():
    projection, target = sinc()
    one = gaussian_ard(projection, target)
    other = gaussian_ard(1e3 * projection, 1e-4 * target)
    np.testing.assert_array_equal(one.active, other.active)
    assert other.noise == pytest.approx(1e-4 * one.noise, rel=1e-6)
    assert other.log_evidence == pytest.approx(one.log_evidence - 80 * np.log(1e-4), abs=1e-6)


def test_of_equal_columns_the_first_is_taken():
    projection, target = linear()
    doubled = np.column_stack([projection[:, ::-1], projection])
    single = gaussian_ard(projection[:, ::-1], target)
    double = gaussian_ard(doubled, target)
    np.testing.assert_array_equal(single.active, double.active)
    assert double.log_evidence == pytest.approx(single.log_evidence, abs=1e-6)


def test_bounds_hold():
    projection, target = linear()
    result = gaussian_ard(projection, target, bounds=(0.6, 2.0))
    alpha = result.precision[result.active]
    assert result.converged
    assert alpha.min() >= 0.6 * (1 - 1e-12) and alpha.max() <= 2.0 * (1 + 1e-12)


def test_too_few_steps_are_no_convergence():
    result = gaussian_ard(*sinc(), max_steps=4)
    assert not result.converged and result.steps <= 5


def identity(rows):
    return np.eye(rows), np.random.default_rng(RNG_SEED).normal(size=rows)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "data",
    {
        "one row": (np.ones((1, 1)), np.array([2.0])),
        "two rows": (np.array([[1.0, 1.0], [1.0, 0.5]]), np.array([1.0, -3.0])),
        "two equal rows": (np.ones((2, 3)), np.array([1.0, 1.0])),
        "constant target": (sinc()[0], np.full(80, 3.0)),
        "duplicate rows": (np.repeat(sinc(20)[0], 3, axis=0), np.repeat(sinc(20)[1], 3)),
        "zero columns": (np.column_stack([linear()[0], np.zeros((40, 3))]), linear()[1]),
        "no useful column": (np.zeros((10, 2)), np.arange(10.0)),
        "identity": identity(20),
        "constant kernel": (np.ones((20, 20)), identity(20)[1]),
        "noise-free": (sinc()[0], sinc()[0][:, 3] - 2 * sinc()[0][:, 9]),
        "more columns than rows": (identity(60)[0][:12] + linear(12, 60)[0], linear(12)[1]),
    }.items(),
    ids=lambda item: item[0],
)
def test_degenerate_data_give_a_finite_answer(data, algorithm):
    projection, target = data[1]
    result = gaussian_ard(projection, target, algorithm=algorithm, max_steps=3000)
    assert np.isfinite(result.log_evidence) and np.isfinite(result.noise)
    assert np.all(np.isfinite(result.mean)) and np.all(np.isfinite(result.covariance))
    if algorithm == "sequential":
        assert result.converged


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": np.zeros(40)}, "zero everywhere"),
        ({"target": np.ones(3)}, "40 finite numbers"),
        ({"noise": 0.0}, "positive"),
        ({"start_noise": -1.0}, "positive"),
        ({"algorithm": "newton"}, "sequential, mackay, em"),
        ({"optimised": np.ones(3, bool)}, "optimised must be"),
        ({"precision": -np.ones(12), "start": np.ones(12, bool)}, "positive"),
        ({"bounds": (2.0, 1.0)}, "bounds"),
        ({"projection": np.full((40, 12), np.nan)}, "not finite"),
        ({"projection": np.ones(40)}, "projection must be"),
    ],
)
def test_refusals_say_why(change, words):
    projection, target = linear()
    arguments = {"projection": projection, "target": target, **change}
    with pytest.raises(ValueError, match=words):
        gaussian_ard(**arguments)


def test_a_zero_target_is_fine_with_a_given_noise():
    result = gaussian_ard(linear()[0], np.zeros(40), noise=1.0)
    assert result.converged and result.active.size == 0


def test_columns_that_are_kept_are_not_made_again():
    X, made = np.random.default_rng(5).normal(size=(7, 10)), []

    def make(indices):
        made.append(len(indices))
        return X[:, indices]

    columns = Columns(make, X.shape, chunk=6)
    some = np.array([1, 3, 5])
    np.testing.assert_array_equal(columns.some(some), X[:, some])  # none is kept yet
    for _ in columns.chunks():
        pass
    assert made == [3, 6, 4]
    np.testing.assert_array_equal(columns.some(some), X[:, some])
    np.testing.assert_array_equal(columns.some(np.array([7, 9])), X[:, [7, 9]])
    assert made == [3, 6, 4]
    both = np.array([4, 8])  # in two chunks: made
    np.testing.assert_array_equal(columns.some(both), X[:, both])
    assert made == [3, 6, 4, 2]
    assert columns.some(np.array([], dtype=int)).shape == (7, 0)
