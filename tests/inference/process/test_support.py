"""Evidence on the support vectors: value, gradient, jumps, and what the ramp makes of them."""

import numpy as np
import pytest
from scipy.optimize import brentq

from ardvark.inference.laplace import Laplace
from ardvark.inference.process.evidence import Process, _by_support, site_model
from ardvark.inference.process.support import relevance_of, support_evidence
from ardvark.models.covariances import ARDGaussian, ARDLinear

RNG = np.random.default_rng(43)
X = RNG.normal(size=(50, 4))
SIGN = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.4 * RNG.normal(size=50) > 0.5, 1.0, -1.0)
STEP = 1e-5


def process_of(covariance):
    return Process.of(X, SIGN, covariance)


@pytest.mark.parametrize("covariance", [ARDGaussian(), ARDLinear()], ids=lambda c: c.name)
@pytest.mark.parametrize("seed", range(3))
def test_value_is_the_general_laplace_evidence(covariance, seed):
    process = process_of(covariance)
    u = process.flat(process.typical) + np.random.default_rng(seed).normal(
        size=4 + len(process.free) - 1
    )
    K = process.matrices(process.kappa(process.theta(u)))[1]
    ours = support_evidence(K, SIGN)
    general = Laplace().approximate(site_model(process, K))
    assert ours.log_evidence == pytest.approx(general.log_evidence, abs=1e-9)
    np.testing.assert_allclose(
        ours.variance, general.posterior.eta_variance[ours.rows], rtol=1e-8, atol=1e-12
    )


def differences(objective, u):
    """Central differences, NaN where the support differs between the two sides."""
    slopes = []
    for j in range(u.size):
        e = np.eye(u.size)[j] * STEP
        (above, up), (below, down) = objective(u + e), objective(u - e)
        slopes.append((above - below) / (2 * STEP) if np.array_equal(up, down) else np.nan)
    return np.array(slopes)


@pytest.mark.parametrize("covariance", [ARDGaussian(), ARDLinear()], ids=lambda c: c.name)
def test_gradient_against_central_differences(covariance):
    process = process_of(covariance)

    def value(u):
        K = process.matrices(process.kappa(process.theta(u)))[1]
        found = support_evidence(K, SIGN)
        return found.log_evidence, found.rows

    compared = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        u = process.flat(process.typical) + rng.normal(size=4 + len(process.free) - 1)
        gradient = _by_support(process, 0.0)(u)[1]
        by_difference = differences(value, u)
        same = np.isfinite(by_difference)
        np.testing.assert_allclose(gradient[same], by_difference[same], rtol=1e-6, atol=1e-6)
        compared += same.sum()
    assert compared >= 12  # most of them have the same support on both sides


def test_the_implicit_term_is_needed():
    process = process_of(ARDGaussian())
    kappa = {
        "kappa_0": np.array(4.0),
        "kappa_a": np.array([0.5, 0.4, 0.1, 0.1]),
        "kappa_b": np.array(1.0),
    }
    plain, K = process.matrices(kappa)
    found = support_evidence(K, SIGN)
    right = process.gradient(found.adjoint, found.rows, kappa, plain)
    v = (SIGN * found.mode.alpha)[found.rows]
    W = np.linalg.inv(K[np.ix_(found.rows, found.rows)] + np.diag(1 / (np.pi**2 / 8 + v**2 / 2)))
    without = process.gradient(0.5 * np.outer(v, v) - 0.5 * W, found.rows, kappa, plain)
    assert np.abs(without - right).max() > 0.1


def test_the_jump_is_half_the_log_of_one_plus_pi_squared_q_over_eight():
    process = process_of(ARDGaussian())

    def at(log_kappa):
        kappa = {"kappa_0": np.exp(log_kappa), "kappa_a": np.full(4, 0.3), "kappa_b": np.array(1.0)}
        return process.matrices(kappa)[1]

    grid = np.linspace(0.0, 3.0, 40)
    supports = [support_evidence(at(g), SIGN).mode.support for g in grid]
    checked = 0
    for left, right, before, after in zip(
        grid[:-1], grid[1:], supports[:-1], supports[1:], strict=True
    ):
        moved = np.flatnonzero(before != after)
        if moved.size != 1:
            continue
        [row] = moved
        # where the row crosses the margin, and both sides of it

        def beyond(log_kappa, row=row):
            return SIGN[row] * support_evidence(at(log_kappa), SIGN).mode.f[row] - 1

        place = brentq(beyond, left, right, xtol=1e-13)
        sides = [support_evidence(at(place + s * 1e-8), SIGN) for s in (-1, 1)]
        inside = max(sides, key=lambda found: found.mode.support[row])
        outside = min(sides, key=lambda found: found.mode.support[row])
        assert inside.mode.support[row] and not outside.mode.support[row]
        K, rows = at(place), outside.rows
        lam = np.pi**2 / 8 + outside.mode.alpha[rows] ** 2 / 2
        told = np.linalg.solve(K[np.ix_(rows, rows)] + np.diag(1 / lam), K[rows, row])
        q = K[row, row] - K[row, rows] @ told
        expected = 0.5 * np.log1p(np.pi**2 / 8 * q)
        assert outside.log_evidence - inside.log_evidence == pytest.approx(
            expected, abs=1e-6
        )  # slope times 2e-8
        assert expected > 0.01
        checked += 1
    assert checked >= 3


def test_the_ramp_has_no_jumps_and_its_own_gradient():
    process = process_of(ARDGaussian())
    objective = _by_support(process, 0.2)
    for seed in range(3):
        u = process.flat(process.typical) + np.random.default_rng(seed).normal(size=6)
        gradient = objective(u)[1]
        by_difference = differences(lambda point: (objective(point)[0], 0), u)
        np.testing.assert_allclose(gradient, by_difference, rtol=1e-5, atol=1e-5)

    def along(ramp):
        path = [
            _by_support(process, ramp)(np.array([g, -1.2, -1.2, -1.2, -1.2, 0.0]))[0] for g in grid
        ]
        return np.abs(np.diff(path, 2)).max()

    grid = np.linspace(0, 3, 300)
    assert (
        along(0.2) < 0.02 < 0.1 < along(0.0)
    )  # the teeth of the saw, and the same path without them


def test_no_support_vector_at_all():
    sign = np.array([1.0, 1.0])
    K = 1e12 * np.ones((2, 2)) + np.eye(2)
    found = support_evidence(K, sign)
    assert found.log_evidence <= 0 and np.isfinite(found.log_evidence)


def test_relevance_does_not_depend_on_units():
    kappa = np.array([0.5, 0.2, 0.1, 0.2])
    plain = relevance_of(kappa, X / X.std(axis=0))
    np.testing.assert_allclose(plain, kappa / kappa.sum())  # Chu06 (16) as printed
    unit = np.array([10.0, 0.1, 1.0, 3.0])
    scaled = relevance_of(kappa / unit**2, unit * X / X.std(axis=0))
    np.testing.assert_allclose(scaled, plain)
