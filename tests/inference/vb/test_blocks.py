"""Blocks of VB: their moments and their part of the bound against numbers made another way."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, log_ndtr

from ardvark.inference.vb.blocks import Gamma, conjugate, gaussian_block
from ardvark.inference.vb.rows import FreeNoise, GammaNoise, GaussianRows, LogisticRows, ProbitRows

RNG = np.random.default_rng(62)


def test_gamma_moments_and_divergence():
    q, p = Gamma(np.array(2.3), np.array(0.7)), Gamma(np.array(1.4), np.array(2.2))
    ours, theirs = stats.gamma(2.3, scale=1 / 0.7), stats.gamma(1.4, scale=1 / 2.2)
    assert q.mean == pytest.approx(ours.mean())
    assert q.mean_log == pytest.approx(ours.expect(np.log), rel=1e-6)
    divergence = ours.expect(lambda x: ours.logpdf(x) - theirs.logpdf(x))
    assert q.minus_kl(p) == pytest.approx(-divergence, rel=1e-6)
    assert p.minus_kl(p) == pytest.approx(0.0, abs=1e-14)
    np.testing.assert_allclose(q.log_density(np.array([0.3, 5.0])), ours.logpdf([0.3, 5.0]))


def test_conjugate_update_is_bayes_rule():
    prior, w = Gamma(np.array(1.5), np.array(0.4)), np.array([0.3, -1.2])
    found = conjugate(prior, np.asarray(np.sum(w**2)), 2)
    grid = np.linspace(1e-4, 40, 40001)
    joint = stats.gamma.pdf(grid, 1.5, scale=1 / 0.4) * np.prod(
        stats.norm.pdf(w[:, None], 0, grid**-0.5), axis=0
    )
    joint /= integrate.simpson(joint, x=grid)
    density = stats.gamma.pdf(grid, found.shape, scale=1 / found.rate)
    np.testing.assert_allclose(density, joint, rtol=1e-6, atol=1e-9)


def test_gaussian_block_algebra():
    root = RNG.standard_normal((5, 5))
    precision, shift = root @ root.T + np.eye(5), RNG.standard_normal(5)
    q = gaussian_block(np.asfortranarray(precision), shift)
    covariance = np.linalg.inv(precision)
    np.testing.assert_allclose(q.covariance, covariance, rtol=1e-10)
    np.testing.assert_allclose(q.mean, covariance @ shift, rtol=1e-10)
    assert q.half_log_det == pytest.approx(0.5 * np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(q.second, q.mean**2 + covariance.diagonal())
    keep = np.array([True, False, True, True, False])
    np.testing.assert_allclose(q.kept(keep).covariance, covariance[np.ix_(keep, keep)], rtol=1e-9)
    assert np.allclose(np.tril(q.kept(keep).root, -1), 0)  # what the fast products rely on
    x = RNG.standard_normal((3, 5))
    expected = stats.multivariate_normal(q.mean, covariance).logpdf(x)
    np.testing.assert_allclose(q.log_density(x), expected, rtol=1e-9)
    with pytest.raises(np.linalg.LinAlgError):
        gaussian_block(-np.eye(3), np.ones(3))


@pytest.mark.parametrize("zeta", [0.0, 1e-9, 1e-3, 0.7, 5.0, 60.0])
def test_logistic_parabola_is_below_and_touches(zeta):
    rows = LogisticRows(np.array([1.0]), np.array([zeta]))
    eta = np.linspace(-70, 70, 4001)
    constant, shift, precision = (x[0] for x in rows.parabola)
    bound = constant + shift * eta - 0.5 * precision * eta**2
    truth = -np.logaddexp(0, -eta)
    assert np.all(bound <= truth + 1e-12)
    at = constant + shift * zeta - 0.5 * precision * zeta**2
    assert at == pytest.approx(np.log(expit(zeta)), abs=1e-10)


def test_logistic_zeta_is_the_best():
    sign, mean, second = np.array([1.0, -1.0]), np.array([0.4, 1.0]), np.array([1.3, 2.0])
    best = LogisticRows(sign, np.ones(2)).tightened(mean, second)
    value = best.parabola.value(mean, second)
    for factor in (0.9, 1.1):
        other = LogisticRows(sign, factor * best.zeta).parabola.value(mean, second)
        assert other < value


def test_probit_bound_is_albert_and_chibs():
    """At the best centre log Phi(s m) - v/2, and that is below E log Phi for every variance."""
    sign, mean, variance = np.array([1.0, -1.0, 1.0]), np.array([0.3, 1.2, -9.0]), 0.5
    second = mean**2 + variance
    best = ProbitRows(sign, np.zeros(3)).tightened(mean, second)
    value = best.parabola.value(mean, second)
    assert value == pytest.approx(np.sum(log_ndtr(sign * mean) - variance / 2))
    draws = mean + np.sqrt(variance) * RNG.standard_normal((20000, 3))
    assert value < log_ndtr(sign * draws).mean(axis=0).sum()
    moved = ProbitRows(sign, mean + 0.1).parabola.value(mean, second)
    assert moved < value


def test_free_noise_is_the_exact_posterior_of_sigma():
    """Half-normal prior: moments, normaliser and draws against quadrature in sigma itself."""
    t = RNG.normal(1.0, 0.6, 30)
    squares = float(np.sum((t - 1.0) ** 2))
    prior = stats.halfnorm(scale=0.8)
    noise = FreeNoise.around(prior.logpdf, 1.0, 30, 1.0).updated(30, squares)

    def joint(s):
        return prior.pdf(s) * s**-30 * np.exp(-squares / (2 * s * s))

    def moment(f):
        return integrate.quad(lambda s: f(s) * joint(s), 0.05, 6, points=[0.6], epsabs=0)[0]

    z = moment(lambda s: 1.0)
    assert noise.mean == pytest.approx(moment(lambda s: s**-2) / z, rel=1e-8)
    assert noise.mean_log == pytest.approx(moment(lambda s: -2 * np.log(s)) / z, rel=1e-7)
    assert noise.mean_square == pytest.approx(moment(lambda s: s**2) / z, rel=1e-8)
    # at its best the bound is the log of the marginal likelihood: E log p + minus_kl = log z
    expected = np.log(z) - 15 * np.log(2 * np.pi)
    rows = GaussianRows(t, noise)
    value = rows.parabola.value(np.ones(30), np.ones(30)) + rows.minus_kl
    assert value == pytest.approx(expected, rel=1e-9)
    sigma, log_q = noise.draws(4000, RNG)
    truth = [np.log(joint(s) / z) for s in sigma[:50]]
    np.testing.assert_allclose(log_q[:50], truth, atol=0.02)  # a cell is 1/4000 of the range
    error = sigma.std() / np.sqrt(4000)
    assert abs(sigma.mean() - moment(lambda s: s) / z) < 4 * error


def test_gamma_noise_is_conjugate():
    prior = Gamma(np.array(2.0), np.array(3.0))
    noise = GammaNoise(prior, prior).updated(10, 4.0)
    assert (noise.q.shape, noise.q.rate) == (7.0, 5.0)
