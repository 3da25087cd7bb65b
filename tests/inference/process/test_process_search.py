"""Climbing an evidence with jumps, and weighing what is found."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from ardvark.inference.ep.ep import EP
from ardvark.inference.process import evidence as process_evidence
from ardvark.inference.process.evidence import Process, maximise, random_starts
from ardvark.inference.process.search import End, climb, search, weigh
from ardvark.models.covariances import ARDGaussian, ARDLinear

RNG = np.random.default_rng(47)
X = RNG.normal(size=(60, 5))
SIGN = np.where(X[:, 0] + 0.7 * X[:, 1] ** 2 + 0.3 * RNG.normal(size=60) > 0.5, 1.0, -1.0)
BOUNDS = np.full(2, -10.0), np.full(2, 10.0)


def saw(u):
    """A parabola with jumps up and down by 0.05, of which the gradient knows nothing."""
    tooth = 0.05 * (np.floor(20 * u[0]) % 2)
    return -float(u @ u) + float(tooth), -2 * u


def test_steps_are_accepted_by_value():
    for seed in range(20):
        start = np.random.default_rng(seed).uniform(-8, 8, 2)
        end = climb(saw, start, BOUNDS)
        assert end.value > -0.02  # the best is just below 0.05, of a tooth that starts at 0.05
        assert end.converged and end.value == saw(end.u)[0]


def test_a_smooth_top_is_found_to_the_digits():
    def smooth(u):
        return -float(np.cosh(u - 1.5).sum()), -np.sinh(u - 1.5)

    end = climb(smooth, np.zeros(2), BOUNDS, jumps=False)
    np.testing.assert_allclose(end.u, 1.5, atol=1e-4)


def test_running_out_of_steps_is_said():
    end = climb(saw, np.array([9.0, -9.0]), BOUNDS, max_steps=2)
    assert not end.converged


def test_places_without_evidence_are_left():
    def wall(u):
        return (-np.inf, np.zeros(2)) if u[0] > 1 else (float(-(u**2).sum()), -2 * u)

    assert climb(wall, np.array([0.9, 5.0]), BOUNDS).value > -1e-4


def ends_at(*values):
    return [End(np.zeros(1), value, np.zeros(1), 1, True) for value in values]


def test_equal_optima_count_once_and_weights_are_a_softmax():
    relevance = np.array([[0.9, 0.1], [0.2, 0.8], [0.895, 0.105], [0.9, 0.1]])
    optima = weigh(ends_at(-1000.0, -1001.0, -1000.05, -1000.5), relevance)
    # the third is the first again; the fourth is as relevant but worse by more than a jump
    assert optima.found.tolist() == [2, 1, 1]
    odds = np.exp([0.0, -0.5, -1.0])
    np.testing.assert_allclose(optima.weight, odds / odds.sum(), rtol=1e-12)  # no underflow
    np.testing.assert_allclose(optima.expected_relevance.sum(), 1.0)
    away = relevance[[0, 3, 1], 0] - optima.expected_relevance[0]
    assert optima.relevance_spread[0] == pytest.approx(np.sqrt(optima.weight @ away**2))


def test_threads_change_nothing():
    process = Process.of(X, SIGN, ARDGaussian())
    starts = random_starts(process, 3, seed=2)
    one = maximise(process, starts=starts)
    two = maximise(process, starts=starts, workers=2)
    np.testing.assert_array_equal(one.optima.relevance, two.optima.relevance)
    assert search([lambda watch: 1, lambda watch: 2], workers=2) == [1, 2]


@pytest.mark.parametrize(
    "covariance", [ARDGaussian(), ARDLinear(kappa_b=1.0)], ids=lambda c: c.name
)
def test_ten_starts_run_together_and_find_the_features(covariance):
    sign = SIGN if covariance.name == "ard_gaussian" else np.sign(X[:, 0] + 0.4 * X[:, 1])
    process = Process.of(X, sign, covariance)
    starts = random_starts(process, 10)
    assert not np.allclose(starts[0]["kappa_a"], starts[1]["kappa_a"])
    found = maximise(process, starts=starts)
    assert found.optima.found.sum() == 10
    assert len(found.optima.ends) <= 5  # with its jumps drawn out the evidence has few optima
    for relevance in (*found.optima.relevance, found.optima.expected_relevance):
        assert set(np.argsort(-relevance)[:2]) == {0, 1}


def test_what_is_found_beats_a_climb_over_the_teeth():
    process = Process.of(X, SIGN, ARDGaussian())
    from ardvark.inference.process.evidence import _by_support

    low = process.flat(process.typical) - 14
    straight = climb(_by_support(process, 0.0), low + 14, (low, low + 28))
    found = maximise(process, starts=random_starts(process, 1))
    assert found.optima.ends[0].value > straight.value - 0.05


def test_ep_climbs_its_own_evidence():
    process = Process.of(X[:25], SIGN[:25], ARDGaussian(kappa_b=1.0))
    found = maximise(process, EP(), starts=random_starts(process, 1))
    assert np.abs(found.optima.ends[0].gradient).max() < 1e-2  # no jumps: the slope vanishes


def test_a_prior_keeps_parameters_from_the_edge():
    process = Process.of(X, SIGN, ARDGaussian())

    def log_prior(theta):
        logs = {name: np.log(value) for name, value in theta.items()}
        value = -sum(float(np.square(part).sum()) for part in logs.values()) / 2
        return value, {name: -part / theta[name] for name, part in logs.items()}

    free = maximise(process, starts=random_starts(process, 1)).theta[0]
    held = maximise(process, starts=random_starts(process, 1), log_prior=log_prior).theta[0]
    assert free["kappa_a"].min() < 1e-4 < 1e-2 < held["kappa_a"].min()


def test_screened_starts_end_at_the_same_optimum(monkeypatch):
    rng = np.random.default_rng(48)
    inputs = rng.normal(size=(200, 5))
    signal = inputs[:, 0] + 0.7 * inputs[:, 1] ** 2 + 0.3 * rng.normal(size=200)
    process = Process.of(inputs, np.where(signal > 0.5, 1.0, -1.0), ARDGaussian())
    starts = random_starts(process, 5)
    all_of_them = maximise(process, starts=starts)
    assert all_of_them.dropped == 0
    monkeypatch.setattr(process_evidence, "MANY_ROWS", 150)
    monkeypatch.setattr(process_evidence, "SOME_ROWS", 100)
    screened = maximise(process, starts=starts, workers=2)
    assert screened.dropped == 2 and screened.optima.found.sum() == 3
    best, again = all_of_them.optima.ends[0], screened.optima.ends[0]
    assert abs(best.value - again.value) < 0.1  # a jump's worth
    apart = np.abs(all_of_them.optima.relevance[0] - screened.optima.relevance[0])
    assert apart.max() < 0.05
    again = maximise(process, starts=starts)
    assert np.array_equal(again.optima.ends[0].u, screened.optima.ends[0].u)  # threads or not


def test_climbs_leave_lapack_one_thread_each():
    def threads(watch=None):
        pools = threadpool_info()
        return max(pool["num_threads"] for pool in pools if pool["user_api"] == "blas")

    with threadpool_limits(2, "blas"):
        for workers in (1, 2):
            assert search([threads, threads], workers) == [1, 1]
        assert threads() == 2
