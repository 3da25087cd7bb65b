"""Smoothed importance weights: against ArviZ, and where there is nothing to smooth."""

import math

import numpy as np
import pytest
from arviz_stats.base import array_stats

from ardvark.inference.hyper.pareto import allocate, smooth


@pytest.mark.parametrize("freedom", [1.5, 3.0, 8.0])
def test_the_tail_is_that_of_arviz(freedom):
    """Weights of a normal against a t and the reverse; ArviZ takes minus the log weight."""
    x = np.random.default_rng(1).standard_t(freedom, size=4000)
    log_weight = 0.5 * np.log1p(x**2)
    theirs, k_hat = array_stats.psislw(-log_weight)
    ours = smooth(log_weight)
    # The two leave out other grid points of negligible weight: a hundredth of k.
    assert ours.k_hat == pytest.approx(float(k_hat), abs=0.02)
    np.testing.assert_allclose(ours.log_weight, theirs, atol=0.02)
    assert np.exp(ours.log_weight).sum() == pytest.approx(1.0, abs=1e-12)


def test_a_tail_too_heavy_is_found_and_a_light_one_is_not():
    """Draws of N(0, 1) for N(0, sd²): the weights' tail has the shape 1 - 1 / sd²."""
    x = np.random.default_rng(2).standard_normal(20000)
    for sd, shape in ((3.0, 8 / 9), (0.8, 0.0)):
        k_hat = smooth(0.5 * x**2 * (1.0 - sd**-2)).k_hat
        assert (k_hat > 0.7) == (shape > 0.7)
        assert k_hat < shape + 0.15


def test_constant_and_impossible_weights():
    assert smooth(np.full(100, 3.0)).k_hat == -math.inf
    assert smooth(np.array([0.0, math.nan, 1.0])).k_hat == math.inf
    assert smooth(np.full(10, -math.inf)).k_hat == math.inf
    some = np.random.default_rng(3).standard_normal(200)
    some[::7] = -math.inf
    weight = np.exp(smooth(some).log_weight)
    assert (weight[::7] == 0).all() and weight.sum() == pytest.approx(1.0)


def test_points_are_taken_as_often_as_they_weigh():
    weight = np.array([0.5, 0.0, 0.3, 0.2])
    with np.errstate(divide="ignore"):
        count = allocate(np.log(weight), 1000, np.random.default_rng(4))
    assert count.sum() == 1000 and np.abs(count - 1000 * weight).max() <= 1


@pytest.mark.parametrize("shape", [0.2, 0.6, 0.9])
def test_the_error_of_k_hat_is_its_spread_over_seeds(shape):
    """Log weights that are exponential with this mean have exactly this shape."""
    rng = np.random.default_rng(5)
    found = [smooth(shape * rng.exponential(size=2000)) for _ in range(200)]
    spread = np.std([f.k_hat for f in found], ddof=1)
    error = np.mean([f.error for f in found])
    # The sd of 200 is known to 5 %; that the threshold is a draw too is not in the formula.
    assert error == pytest.approx(spread, rel=0.2)
    within = np.mean([abs(f.k_hat - shape) <= 2 * f.error for f in found])
    assert within > 0.9


def test_what_is_no_estimate_has_no_error():
    for log_weight in (np.full(100, 3.0), np.array([0.0, math.nan, 1.0])):
        assert math.isnan(smooth(log_weight).error)
