"""The mode of the trigonometric SVM: dual and primal agree, and the gap certifies it."""

import numpy as np
import pytest
from scipy import optimize

from ardvark.inference.laplace import Laplace
from ardvark.inference.process import dual as svm_dual
from ardvark.inference.process.dual import curvature, find_mode
from ardvark.inference.process.evidence import Process, site_model
from ardvark.models.covariances import ARDGaussian, ARDLinear

RNG = np.random.default_rng(41)


def problem(rows, kappa_0, features=3, noise=0.5, rng=RNG):
    X = rng.normal(size=(rows, features))
    sign = np.where(X[:, 0] + noise * rng.normal(size=rows) > 0, 1.0, -1.0)
    process = Process.of(X, sign, ARDGaussian())
    kappa = {
        "kappa_0": np.array(kappa_0),
        "kappa_a": np.full(features, 0.4),
        "kappa_b": np.array(1.0),
    }
    return process, process.matrices(kappa)[1]


@pytest.mark.parametrize("rows", [4, 30, 150])
@pytest.mark.parametrize("kappa_0", [0.3, 5.0, 300.0])
def test_dual_and_primal_agree(rows, kappa_0):
    process, K = problem(rows, kappa_0)
    mode = find_mode(K, process.sign)
    primal = Laplace().approximate(site_model(process, K))
    assert primal.converged
    np.testing.assert_allclose(mode.f, primal.posterior.mean, atol=1e-8)
    assert 0 <= mode.gap + 1e-13 and mode.gap <= 1e-10
    z = process.sign * mode.f
    np.testing.assert_array_equal(mode.support, z < 1 - 1e-12)
    # α is the slope of the loss at the mode, and Λ its curvature
    slope = site_model(process, K).sites.derivatives(mode.f)
    np.testing.assert_allclose(process.sign * mode.alpha, slope.first, atol=1e-9)
    on = mode.support
    np.testing.assert_allclose(curvature(mode.alpha[on]), -slope.second[on], rtol=1e-9)


def test_a_general_optimiser_of_the_printed_dual_ends_at_the_same_place():
    process, K = problem(25, 3.0)
    Q = process.sign[:, None] * K * process.sign

    def dual(alpha, stray=1.0):
        r = 2 * alpha / np.pi
        g = 4 / np.pi * alpha * np.arctan(r) - np.log1p(r**2)
        slope = Q @ alpha - 1 + stray * 4 / np.pi * np.arctan(r)
        return 0.5 * alpha @ Q @ alpha - alpha.sum() + stray * g.sum(), slope

    def found(stray):
        return optimize.minimize(
            dual, np.ones(25), args=(stray,), jac=True, method="L-BFGS-B",
            bounds=[(0, None)] * 25, options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000},
        ).x  # fmt: skip

    mode = find_mode(K, process.sign)
    np.testing.assert_allclose(found(1.0), mode.alpha, atol=1e-5)
    # With the factor n that is printed in (11) it is another problem: the gap does not close.
    wrong = svm_dual._State.at(K, process.sign, found(3.0))
    assert wrong.gap > 0.1


def test_gap_is_an_upper_bound_on_what_is_left():
    process, K = problem(30, 2.0)
    best = find_mode(K, process.sign)
    for scale in (0.5, 0.9, 0.999):
        state = svm_dual._State.at(K, process.sign, scale * best.alpha)
        assert state.primal - best.objective <= state.gap
        assert state.gap > best.gap


def test_a_warm_start_ends_at_the_same_mode_in_fewer_steps():
    process, K = problem(120, 20.0)
    cold = find_mode(K, process.sign)
    near = find_mode(K * 1.01, process.sign)
    warm = find_mode(K, process.sign, near.alpha)
    np.testing.assert_allclose(warm.f, cold.f, atol=1e-9)
    assert warm.iterations < cold.iterations
    wild = find_mode(K, process.sign, 100 * RNG.random(120))  # far outside the margin
    np.testing.assert_allclose(wild.f, cold.f, atol=1e-9)


def test_semidefinite_covariance_equal_rows_and_contradictions():
    X = np.repeat(RNG.normal(size=(5, 2)), 4, axis=0)  # each row four times, both labels
    sign = np.where(np.arange(20) % 4 < 2, 1.0, -1.0)
    process = Process.of(X, sign, ARDLinear())
    plain, _ = process.matrices({"kappa_a": np.array([3.0, 3.0]), "kappa_b": np.array(1.0)})
    mode = find_mode(plain, sign)  # rank 3, no jitter
    assert mode.gap <= 1e-10
    np.testing.assert_allclose(mode.f, 0.0, atol=1e-10)  # as many rows for as against, everywhere


def test_rows_far_beyond_the_margin_are_no_support_vectors():
    sign = np.array([1.0, -1.0] * 10)
    position = np.where(np.arange(20) < 2, sign, 4 * sign)
    mode = find_mode(3.0 * np.outer(position, position), sign)
    assert mode.support[:2].all() and not mode.support[2:].any()
