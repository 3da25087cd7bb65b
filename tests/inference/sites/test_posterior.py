"""The shared Gaussian algebra: both spaces against the textbook formula and each other."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import (
    FunctionPosterior,
    SignedFunctionPosterior,
    WeightPosterior,
    condition,
)

RNG_SEED = 20


def make_model(rows, weights, dense=False, seed=RNG_SEED):
    rng = np.random.default_rng(seed)
    projection = rng.normal(size=(rows, weights))
    prior = rng.normal(size=(weights, weights + 3))
    return SiteModel(
        mean=rng.normal(size=weights),
        projection=projection,
        offset=rng.normal(size=rows),
        sites=GaussianSites(np.zeros(rows), np.ones(rows), np.zeros(rows)),
        precision=None if dense else rng.uniform(0.3, 9.0, size=weights),
        covariance=prior @ prior.T / weights if dense else None,
    )


def direct(model, tau, nu):
    """Posterior by plain inversion: mean, covariance, half log det."""
    covariance = np.diag(1 / model.precision) if model.covariance is None else model.covariance
    prior_precision = np.linalg.inv(covariance)
    precision = prior_precision + model.projection.T @ (tau[:, None] * model.projection)
    posterior = np.linalg.inv(precision)
    shift = prior_precision @ model.mean + model.projection.T @ (nu - tau * model.offset)
    half_log_det = 0.5 * (np.linalg.slogdet(precision)[1] - np.linalg.slogdet(prior_precision)[1])
    return posterior @ shift, posterior, half_log_det


def make_sites(rows, negative=False):
    rng = np.random.default_rng(RNG_SEED + 1)
    tau = rng.gamma(1.0, size=rows) + 0.05
    tau[0] = 0.0  # a site without curvature is allowed
    if negative:
        tau[1] = -0.02
    return tau, rng.normal(size=rows)


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("space", ["weights", "functions"])
@pytest.mark.parametrize("shape", [(30, 6), (8, 25), (12, 12)])
def test_posterior_equals_plain_inversion(shape, space, dense, negative):
    model = make_model(*shape, dense=dense)
    tau, nu = make_sites(shape[0], negative)
    posterior = condition(model, tau, nu, space=space)
    mean, covariance, half_log_det = direct(model, tau, nu)
    close = {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(posterior.mean, mean, **close)
    np.testing.assert_allclose(posterior.covariance, covariance, **close)
    np.testing.assert_allclose(posterior.marginal_variance, np.diag(covariance), **close)
    np.testing.assert_allclose(posterior.half_log_det, half_log_det, **close)
    np.testing.assert_allclose(posterior.eta_mean, model.predictor(mean), **close)
    eta_covariance = model.projection @ covariance @ model.projection.T
    np.testing.assert_allclose(posterior.eta_variance, np.diag(eta_covariance), **close)
    np.testing.assert_allclose(posterior.cross_covariance, model.projection @ covariance, **close)
    rest = np.diag(tau) - np.outer(tau, tau) * eta_covariance  # R = T - T A V A' T
    information = model.projection.T @ rest @ model.projection
    np.testing.assert_allclose(posterior.information, information, **close)
    columns = np.random.default_rng(RNG_SEED).normal(size=(shape[0], 3))
    expected = np.diag(columns.T @ rest @ columns)
    np.testing.assert_allclose(posterior.site_information(columns), expected, **close)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", [(30, 6), (8, 25)])
def test_density_and_prediction(shape, dense):
    model = make_model(*shape, dense=dense)
    tau, nu = make_sites(shape[0])
    rng = np.random.default_rng(RNG_SEED + 2)
    new, new_offset = rng.normal(size=(4, shape[1])), rng.normal(size=4)
    points = rng.normal(size=(2, 3, shape[1]))
    mean, covariance, _ = direct(model, tau, nu)
    for space in ("weights", "functions"):
        posterior = condition(model, tau, nu, space=space)
        np.testing.assert_allclose(
            posterior.log_density(points),
            multivariate_normal(mean, covariance).logpdf(points),
            rtol=1e-9,
        )
        found_mean, found_variance = posterior.predictive(new, new_offset)
        np.testing.assert_allclose(found_mean, new @ mean + new_offset, rtol=1e-9)
        np.testing.assert_allclose(found_variance, np.diag(new @ covariance @ new.T), rtol=1e-9)


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("space", ["weights", "functions"])
def test_draws_have_the_right_moments(space, dense, negative):
    """Mean and covariance of 40 000 draws, each entry within 5 of its Monte Carlo errors."""
    model = make_model(5, 7, dense=dense)
    tau, nu = make_sites(5, negative)
    posterior = condition(model, tau, nu, space=space)
    n = 40_000
    draws = posterior.draws(n, np.random.default_rng(RNG_SEED + 3))
    mean, covariance, _ = direct(model, tau, nu)
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * sd / np.sqrt(n))
    error = np.sqrt((np.outer(sd, sd) ** 2 + covariance**2) / n)  # of a Gaussian's covariance
    assert np.all(np.abs(np.cov(draws.T) - covariance) < 5 * error)


def test_weight_with_infinite_precision_is_off():
    model = make_model(9, 5)
    off = np.array([False, True, False, True, False])
    precision = np.where(off, np.inf, model.precision)
    tau, nu = make_sites(9)
    half = SiteModel(model.mean, model.projection, model.offset, model.sites, precision)
    reduced = SiteModel(
        model.mean[~off],
        model.projection[:, ~off],
        model.offset + model.projection[:, off] @ model.mean[off],
        model.sites,
        model.precision[~off],
    )
    for space in ("weights", "functions"):
        whole, part = condition(half, tau, nu, space), condition(reduced, tau, nu, space)
        np.testing.assert_array_equal(whole.mean[off], model.mean[off])
        assert not whole.marginal_variance[off].any()
        np.testing.assert_allclose(whole.mean[~off], part.mean, rtol=1e-12)
        np.testing.assert_allclose(whole.covariance[np.ix_(~off, ~off)], part.covariance)
        draws = whole.draws(3, np.random.default_rng(0))
        np.testing.assert_array_equal(draws[:, off], np.tile(model.mean[off], (3, 1)))
        np.testing.assert_allclose(whole.log_density(draws), part.log_density(draws[:, ~off]))
        np.testing.assert_allclose(half.log_joint(draws), reduced.log_joint(draws[:, ~off]))
        np.testing.assert_allclose(
            whole.predictive(model.projection, model.offset)[1], whole.eta_variance
        )


@pytest.mark.parametrize("space", ["weights", "functions", "auto"])
def test_all_weights_off(space):
    model = make_model(4, 3)
    model = SiteModel(model.mean, model.projection, model.offset, model.sites, np.full(3, np.inf))
    posterior = condition(model, *make_sites(4), space=space)
    np.testing.assert_array_equal(posterior.mean, model.mean)
    assert posterior.half_log_det == 0.0
    assert posterior.eta_variance.tolist() == [0.0] * 4
    assert posterior.draws(2, np.random.default_rng(0)).shape == (2, 3)


def test_cheaper_space_is_chosen():
    tau, nu = make_sites(8)
    assert isinstance(condition(make_model(8, 7), tau, nu), WeightPosterior)
    assert isinstance(condition(make_model(8, 8), tau, nu), FunctionPosterior)
    tau, nu = make_sites(8, negative=True)
    assert isinstance(condition(make_model(8, 8), tau, nu), SignedFunctionPosterior)


@pytest.mark.parametrize("space", ["weights", "functions"])
def test_indefinite_precision_is_refused(space):
    model = make_model(6, 6)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        condition(model, np.full(6, -50.0), np.zeros(6), space)


def test_singular_covariance_needs_no_inverse():
    """A linear kernel has rank 2: the posterior exists though K^-1 does not."""
    rng = np.random.default_rng(RNG_SEED)
    inputs = rng.normal(size=(12, 2))
    tau, nu = make_sites(12)
    sites = GaussianSites(np.zeros(12), np.ones(12), np.zeros(12))
    functions = SiteModel(np.zeros(12), np.eye(12), np.zeros(12), sites, None, inputs @ inputs.T)
    weights = SiteModel(np.zeros(2), inputs, np.zeros(12), sites, np.ones(2))
    expected = condition(weights, tau, nu)
    for space in ("weights", "functions"):
        posterior = condition(functions, tau, nu, space)
        np.testing.assert_allclose(posterior.mean, expected.eta_mean, atol=1e-10)
        np.testing.assert_allclose(posterior.eta_variance, expected.eta_variance, atol=1e-10)
        np.testing.assert_allclose(posterior.half_log_det, expected.half_log_det, atol=1e-10)


def test_widely_different_precisions_keep_their_digits():
    model = make_model(40, 5)
    precision = np.array([1e-6, 1e-2, 1.0, 1e4, 1e12])
    model = SiteModel(model.mean, model.projection, model.offset, model.sites, precision)
    tau, nu = make_sites(40)
    weights, functions = (condition(model, tau, nu, space) for space in ("weights", "functions"))
    np.testing.assert_allclose(weights.half_log_det, functions.half_log_det, rtol=1e-9)
    np.testing.assert_allclose(weights.marginal_variance[-1], 1e-12, rtol=1e-6)
    np.testing.assert_allclose(weights.mean, functions.mean, rtol=1e-6)  # 1e-6 * S is 1e6 large


def test_strong_sites_keep_the_digits_of_their_variance():
    """Noise of 1e-5 under a prior of 1: 1 - (1 - 1e-10) would leave six digits, not ten."""
    model = make_model(8, 25)
    tau, nu = np.full(8, 1e10), np.ones(8)
    weights, functions = (condition(model, tau, nu, space) for space in ("weights", "functions"))
    np.testing.assert_allclose(functions.eta_variance, 1e-10, rtol=1e-8)
    np.testing.assert_allclose(weights.eta_variance, 1e-10, rtol=1e-4)


@pytest.mark.parametrize(("rows", "weights"), [(8, 30), (30, 8)])
@pytest.mark.parametrize("space", ["weights", "functions"])
def test_what_is_definite_is_factorised_however_it_rounds(rows, weights, space):
    """Equal columns and rows under sites of 1e17: I + X'TX rounds to a singular matrix.

    It was called indefinite, for negative precisions, or not, as the BLAS rounded. All weights
    and rows are alike, so the answer is that of one weight with the sum of the prior variances.
    """
    tau = 1e17 / 3.0
    column = np.full((rows, weights), 0.7)
    sites = GaussianSites(np.ones(rows), np.full(rows, tau), np.zeros(rows))
    model = SiteModel(np.zeros(weights), column, np.zeros(rows), sites, np.ones(weights))
    posterior = condition(model, np.full(rows, tau), np.full(rows, tau), space)
    told = rows * tau * weights * 0.49
    np.testing.assert_allclose(posterior.half_log_det, 0.5 * np.log1p(told), rtol=1e-2)
    np.testing.assert_allclose(posterior.eta_mean, 1.0, rtol=1e-6)
    assert np.all(posterior.marginal_variance > 0)
    assert np.all(posterior.marginal_variance <= 1.0)


def test_a_precision_beyond_all_numbers_names_its_cause():
    model = make_model(6, 3)
    with pytest.raises(np.linalg.LinAlgError, match=r"leaves the range.*standardise"):
        with np.errstate(over="ignore"):
            condition(model, np.full(6, 1e308), np.zeros(6))


def test_bad_models_are_refused():
    model = make_model(4, 3)
    good = (model.mean, model.projection, model.offset, model.sites)
    with pytest.raises(ValueError, match="either `precision` or `covariance`"):
        SiteModel(*good)
    with pytest.raises(ValueError, match="positive"):
        SiteModel(*good, precision=np.array([1.0, 0.0, 2.0]))
    with pytest.raises(ValueError, match=r"offset \(4,\)"):
        SiteModel(model.mean, model.projection, np.zeros(3), model.sites, model.precision)
    with pytest.raises(ValueError, match="covariance must be"):
        SiteModel(*good, covariance=np.eye(2))
    with pytest.raises(ValueError, match="weights, functions"):
        condition(model, np.ones(4), np.ones(4), space="dual")
