"""Elliptical slice sampling: exact limits, known truths, and other routes to the same posterior."""

import numpy as np
import pytest
from arviz_stats import ess
from scipy.stats import norm

from ardvark.errors import InputError
from ardvark.inference.process.evidence import site_model
from ardvark.inference.samplers.elliptical_slice import EllipticalSlice, slice_sample
from ardvark.inference.sites.likelihoods import GaussianSites, ProbitSites, StepSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import condition
from ardvark.inference.sites.trigonometric import TrigonometricSites
from ardvark.studies.papers.chu2006 import monte_carlo, small_problem

ELLIPSES = ("posterior", "prior")


def check(draws, mean, sd):
    """Means and sds within four Monte Carlo errors."""
    count = ess(draws)
    assert (np.abs(draws.mean(axis=(0, 1)) - mean) < 4 * sd / np.sqrt(count)).all()
    # the sd of draws with heavy dependence: error of the variance by its own ess
    squares = (draws - mean) ** 2
    error = squares.std(axis=(0, 1)) / np.sqrt(ess(squares))
    assert (np.abs(squares.mean(axis=(0, 1)) - sd**2) < 4 * error).all()


@pytest.mark.parametrize("ellipse", ELLIPSES)
def test_gaussian_sites_have_a_known_posterior(ellipse):
    rng = np.random.default_rng(51)
    A = rng.normal(size=(8, 3))
    sites = GaussianSites(rng.normal(size=8), np.full(8, 0.5), np.zeros(8))
    model = SiteModel(
        np.array([0.5, 0.0, -1.0]),
        A,
        rng.normal(size=8),
        sites,
        precision=np.array([1.0, 4.0, np.inf]),
    )
    exact = condition(model, sites.precision, sites.precision * sites.mean, "auto")
    found = slice_sample(model, EllipticalSlice(ellipse=ellipse, thin=2), 1500, 4, rng)
    assert (found.weights[..., 2] == -1.0).all()  # switched off
    on = np.array([0, 1])
    check(found.weights[..., on], exact.mean[on], np.sqrt(exact.marginal_variance[on]))


def test_a_step_leaves_a_half_normal():
    model = SiteModel(
        np.zeros(1), np.ones((1, 1)), np.array([1e-9]), StepSites(np.ones(1)), precision=np.ones(1)
    )
    found = slice_sample(
        model, EllipticalSlice(ellipse="prior"), 3000, 4, np.random.default_rng(52)
    )
    assert (found.weights > -1e-9).all()
    check(found.weights, np.array([norm.pdf(0) * 2]), np.array([np.sqrt(1 - 2 / np.pi)]))


@pytest.mark.parametrize("kappa_0", [2.0, 30.0])
def test_the_two_ellipses_have_one_target_and_importance_sampling_agrees(kappa_0):
    process, K = small_problem(3, 5, kappa_0)
    model = site_model(process, K)
    rng = np.random.default_rng(53)
    draws = [
        slice_sample(model, EllipticalSlice(ellipse=e, thin=t), 800, 8, rng).weights
        for e, t in zip(ELLIPSES, (1, 4), strict=True)
    ]
    assert (process.sign * np.concatenate(draws) > -1).all()
    means = [d.mean(axis=(0, 1)) for d in draws]
    errors = [d.std(axis=(0, 1)) / np.sqrt(ess(d)) for d in draws]
    assert (np.abs(means[0] - means[1]) < 4 * np.hypot(*errors)).all()
    # prior draws weighted by the likelihood: another route altogether
    prior = np.random.default_rng(54).multivariate_normal(np.zeros(5), K, size=400_000)
    weight = np.exp(TrigonometricSites(process.sign).log(prior).sum(axis=1))
    exact = weight @ prior / weight.sum()
    spread = np.sqrt(np.square(weight[:, None] * (prior - exact)).sum(axis=0)) / weight.sum()
    assert (np.abs(means[0] - exact) < 4 * np.hypot(errors[0], spread)).all()
    log_evidence, error = monte_carlo(process, K, 50_000, 1)
    plain = weight.std() / weight.mean() / np.sqrt(weight.size)
    assert abs(np.log(weight.mean()) - log_evidence) < 4 * np.hypot(error, plain)


def test_ellipses_of_ep_are_worth_having():
    process, K = small_problem(4, 20, 10.0)
    model = site_model(process, K)
    found = {
        e: ess(
            slice_sample(
                model, EllipticalSlice(ellipse=e), 500, 4, np.random.default_rng(55)
            ).weights
        )
        for e in ELLIPSES
    }
    assert np.median(found["posterior"]) > 4 * np.median(found["prior"])


def test_same_seed_same_draws_and_probit_works_too():
    model = SiteModel(
        np.zeros(2),
        np.eye(2),
        np.zeros(2),
        ProbitSites(np.array([1.0, -1.0])),
        precision=np.ones(2),
    )
    runs = [
        slice_sample(model, EllipticalSlice(tune=5), 20, 2, np.random.default_rng(9)) for _ in "ab"
    ]
    np.testing.assert_array_equal(runs[0].weights, runs[1].weights)
    assert runs[0].weights.shape == (2, 20, 2)


def test_impossible_starts_and_settings_are_refused():
    sites = TrigonometricSites(np.ones(1))
    model = SiteModel(
        np.zeros(1), np.ones((1, 1)), np.array([-5.0]), sites, precision=np.array([1e6])
    )
    with pytest.raises(ValueError, match="zero at the prior mean"):
        slice_sample(model, EllipticalSlice(ellipse="prior"), 5, 2, np.random.default_rng(1))
    for bad in ({"thin": 0}, {"tune": -1}, {"tune": True}, {"ellipse": "round"}):
        with pytest.raises(InputError):
            EllipticalSlice(**bad)
