"""Integration of densities that are known: integral, means and sds, by dimension."""

import math

import numpy as np
import pytest
from scipy.special import digamma, gammaln, logsumexp, polygamma

from ardvark.inference.hyper.axes import axes_at, find_mode
from ardvark.inference.hyper.integrate import integrate
from ardvark.inference.sites.approximation import REJECTED


def quiet(text):
    pass


def run(log_density, start, points, seed=0):
    """Integrate exp(log_density), its gradient being taken by differences."""

    def objective(u):
        value = log_density(u)
        if not np.isfinite(value):
            return REJECTED, np.zeros_like(u)
        steps = 1e-5 * np.eye(u.size)
        gradient = [(log_density(u + s) - log_density(u - s)) / 2e-5 for s in steps]
        return -value, -np.array(gradient)

    rng = np.random.default_rng(seed)
    mode = find_mode(objective, np.asarray(start, float), rng)
    assert mode is not None and mode.end.success
    axes = axes_at(mode.end.u, objective, log_density)
    found = integrate(log_density, axes, points=points, rng=rng, tick=quiet)
    weight = np.exp(found.log_weight)
    mean = weight @ found.phi
    return found, mean, np.sqrt(weight @ (found.phi - mean) ** 2)


def log_gamma(shape):
    """Of independent logs of Gamma variables: a long tail on the left."""

    def log_density(u):
        return float(np.sum(shape * u - np.exp(u)) - u.size * gammaln(shape))

    return log_density, float(digamma(shape)), math.sqrt(polygamma(1, shape))


@pytest.mark.parametrize("size", [1, 2])
def test_a_grid_follows_a_skewed_density(size):
    log_density, centre, spread = log_gamma(0.7)
    found, mean, sd = run(log_density, np.ones(size), 128)
    assert found.log_integral == pytest.approx(0.0, abs=0.015)
    assert abs(found.log_integral) < 3 * found.error + 0.005
    # 128 points in place of a tail that has no end: a hundredth of an sd.
    np.testing.assert_allclose(mean, centre, atol=0.02 * spread)
    np.testing.assert_allclose(sd, spread, rtol=0.03)
    assert found.edge < 1e-3 and found.k_hat < 0.5


@pytest.mark.parametrize("size", [3, 5, 8])
def test_rounds_follow_it_in_more_dimensions(size):
    """At most a tenth of an sd and a tenth of the sd: what is asked of a hyperparameter."""
    log_density, centre, spread = log_gamma(1.5)
    found, mean, sd = run(log_density, np.ones(size), 256)
    assert abs(found.log_integral) < 4 * found.error + 0.01 and found.error < 0.06
    np.testing.assert_allclose(mean, centre, atol=0.1 * spread)
    np.testing.assert_allclose(sd, spread, rtol=0.1)
    assert found.effective > 200 and found.k_hat < 0.7 and math.isnan(found.edge)


def test_a_bent_density_in_two_dimensions():
    def bent(u):
        across = (u[1] - 0.5 * u[0] ** 2) / 0.5
        return float(-0.5 * (u[0] ** 2 + across**2) - math.log(2 * math.pi * 0.5))

    found, mean, sd = run(bent, [0.3, 0.3], 128)
    assert found.log_integral == pytest.approx(0.0, abs=0.02)
    np.testing.assert_allclose(mean, [0.0, 0.5], atol=0.04)
    np.testing.assert_allclose(sd, [1.0, math.sqrt(0.75)], rtol=0.04)


def test_two_modes_on_one_line():
    def two(u):
        parts = [-0.5 * (u[0] - 2) ** 2 + math.log(0.6), -0.5 * (u[0] + 2) ** 2 + math.log(0.4)]
        return float(logsumexp(parts) - 0.5 * math.log(2 * math.pi))

    found, mean, sd = run(two, [3.0], 128)
    assert found.log_integral == pytest.approx(0.0, abs=0.01)
    assert mean[0] == pytest.approx(0.4, abs=0.03)
    assert sd[0] == pytest.approx(math.sqrt(1.0 + 4.0 - 0.16), rel=0.02)


def test_a_correlated_gaussian_is_exact_but_for_its_points():
    rng = np.random.default_rng(8)
    root = rng.normal(size=(4, 4)) + 2.0 * np.eye(4)
    precision = root @ root.T

    def gaussian(u):
        return float(-0.5 * (u - 1.0) @ precision @ (u - 1.0))

    found, mean, sd = run(gaussian, np.zeros(4), 256)
    covariance = np.linalg.inv(precision)
    exact = 2.0 * math.log(2 * math.pi) + 0.5 * np.linalg.slogdet(covariance)[1]
    assert abs(found.log_integral - exact) < 4 * found.error
    assert np.abs((mean - 1.0) / np.sqrt(np.diag(covariance))).max() < 0.1
    np.testing.assert_allclose(sd, np.sqrt(np.diag(covariance)), rtol=0.1)


def test_where_there_is_no_density_a_point_has_no_weight():
    def half(u):
        return -math.inf if u[0] < -1.0 else float(-0.5 * u @ u)

    found, _, _ = run(half, [0.5], 128)
    assert (found.phi[found.log_weight > -math.inf, 0] >= -1.0).all()
    mass = math.log(math.sqrt(2 * math.pi) * 0.841345)
    # A cliff inside a grid cell: what is lost of it is of the size of the cell.
    assert found.log_integral == pytest.approx(mass, abs=0.15)


def test_the_same_seed_gives_the_same_points():
    log_density, _, _ = log_gamma(2.0)
    one, two = (run(log_density, np.ones(3), 64, seed=5)[0] for _ in range(2))
    np.testing.assert_array_equal(one.phi, two.phi)
    np.testing.assert_array_equal(one.log_weight, two.log_weight)


def test_no_finite_start_is_none():
    def nowhere(u):
        return REJECTED, np.zeros_like(u)

    assert find_mode(nowhere, np.zeros(2), np.random.default_rng(0)) is None
