"""What EP's evidence leaves out, against quadrature, exact draws and importance sampling."""

import numpy as np
import pytest
from scipy.special import log_ndtr

import ardvark as av
from ardvark.inference.ep.correction import (
    evidence_correction,
    hermite_moments,
    moment_correction,
)
from ardvark.inference.ep.ep import EP
from ardvark.inference.exact.exact import Exact
from ardvark.inference.process.evidence import site_model
from ardvark.inference.sites.likelihoods import GaussianSites, LogitSites, ProbitSites, StepSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.trigonometric import TrigonometricSites
from ardvark.studies.papers.chu2006 import monte_carlo, small_problem

MANY = 40  # orders, where a series is to be summed


def process(sites, covariance):
    rows = len(covariance)
    return SiteModel(np.zeros(rows), np.eye(rows), np.zeros(rows), sites, covariance=covariance)


def weights(sites, X, precision):
    rows, columns = X.shape
    return SiteModel(
        np.zeros(columns), X, np.zeros(rows), sites, precision=np.full(columns, precision)
    )


def test_hermite_moments_of_an_exponential():
    z, share = np.polynomial.laguerre.laggauss(60)
    skewness, excess = 2.0, 6.0
    found = hermite_moments(z[:, None] - 1.0, share[:, None], 4)[:, 0]
    np.testing.assert_allclose(found, [skewness / 6**0.5, excess / 24**0.5], rtol=1e-10)


def test_hermite_moments_of_a_gaussian_are_nothing():
    z, share = np.polynomial.hermite_e.hermegauss(40)
    found = hermite_moments(z[:, None], (share / share.sum())[:, None], 10)
    np.testing.assert_allclose(found, 0.0, atol=1e-10)


def test_gaussian_sites_need_none():
    rng = np.random.default_rng(1)
    sites = GaussianSites(rng.normal(size=6), np.full(6, 2.0), np.zeros(6))
    fit = EP().approximate(weights(sites, rng.normal(size=(6, 3)), 1.0))
    assert evidence_correction(fit).value == 0.0


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [(TrigonometricSites, 1e-8), (ProbitSites, 1e-13), (LogitSites, 1e-13), (StepSites, 1e-5)],
)
def test_two_rows_to_all_orders_are_exact(kind, tolerance):
    """With two rows there are no triples: Z = Z_EP (1 + the sum), here by quadrature.

    So EP's fixed point and its moments are right, and what is left is EP's own error. The
    tolerance is that of the grid: a step costs it most.
    """
    sites = kind(np.array([1.0, -1.0]))
    covariance = np.array([[8.0, -3.6], [-3.6, 6.0]])
    fit = EP(updates="parallel").approximate(process(sites, covariance))
    found = fit.log_evidence + np.log1p(evidence_correction(fit, MANY).value)
    truth = two_rows(sites, covariance)
    assert abs(found - truth) < tolerance
    assert abs(fit.log_evidence - truth) > 5e-4  # without it the same test would fail


def two_rows(sites, covariance, step=1 / 32):
    """Log evidence by the midpoint rule, which has no points at the kinks 0 and ±1."""
    cells = int(8.0 * np.sqrt(covariance.max()) / step)
    grid = (np.arange(-cells, cells) + 0.5) * step
    inverse = np.linalg.inv(covariance)
    quadratic = (
        inverse[0, 0] * grid[:, None] ** 2
        + 2 * inverse[0, 1] * np.outer(grid, grid)
        + inverse[1, 1] * grid**2
    )
    with np.errstate(divide="ignore"):
        site = sites.log(np.stack([grid, grid], axis=1))
    log_density = site[:, :1] + site[:, 1] - 0.5 * quadratic
    cell = step**2 / (2 * np.pi * np.sqrt(np.linalg.det(covariance)))
    return float(np.log(np.exp(log_density).sum() * cell))


def test_a_wrong_sign_of_the_correlation_is_seen():
    """The control of the test above: rows that pull together and rows that pull apart differ."""
    sites = TrigonometricSites(np.array([1.0, -1.0]))
    together, apart = (
        evidence_correction(EP().approximate(process(sites, np.array([[2.0, c], [c, 1.5]])))).value
        for c in (-0.9, 0.9)
    )
    assert together > 0.001 > 0 > apart


@pytest.mark.parametrize(
    ("rows", "kappa_0", "limit"), [(10, 2.0, 0.05), (20, 2.0, 0.05), (20, 30.0, 0.2)]
)
def test_trigonometric_evidence_within_its_limits(rows, kappa_0, limit):
    """The problem on which EP alone is worst of ten, at this size and scale."""
    worst, corrected, noise = 0.0, 0.0, 0.0
    for seed in range(10):
        case, covariance = small_problem(seed, rows, kappa_0)
        fit = EP().approximate(site_model(case, covariance))
        truth, error = monte_carlo(case, covariance, 20_000, seed)
        if abs(fit.log_evidence - truth) > abs(worst):
            worst = fit.log_evidence - truth
            corrected, noise = worst + evidence_correction(fit).value, error
    assert abs(worst) > limit  # the correction is needed
    assert abs(corrected) < 0.5 * limit + 3 * noise


@pytest.mark.parametrize("precision", [1.0, 0.1])
def test_probit_against_exact_draws(precision):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 5))
    sites = ProbitSites(np.sign(X[:, :2] @ [1.5, -1.0]))
    model = weights(sites, X, precision)
    fit = EP().approximate(model)
    exact = Exact(min_acceptance=0, pilot=30_000).sample(model, 0, np.random.default_rng(1))
    off, noise = fit.log_evidence - exact.log_evidence, exact.log_evidence_error
    assert abs(off) > 5 * noise
    assert abs(off + evidence_correction(fit).value) < 0.2 * abs(off) + 3 * noise


def test_one_weight_on_separable_rows():
    """All rows say the same: the worst case, where the error is halved at least."""
    rng = np.random.default_rng(4)
    x = np.concatenate([-rng.uniform(0.3, 2, 10), rng.uniform(0.3, 2, 10)])
    for precision in (1.0, 1e-2, 1e-4):
        fit = EP().approximate(weights(ProbitSites(np.sign(x)), x[:, None], precision))
        w = np.linspace(-10, 10, 200_001) / np.sqrt(precision)
        log_joint = log_ndtr(np.outer(w, np.abs(x))).sum(axis=1) - 0.5 * precision * w**2
        mass = np.exp(log_joint).sum() * (w[1] - w[0]) * np.sqrt(precision / (2 * np.pi))
        off = fit.log_evidence - np.log(mass)
        assert off < -0.02
        assert abs(off + evidence_correction(fit).value) < 0.65 * abs(off)


def test_rows_share_it():
    case, covariance = small_problem(0, 10, 2.0)
    fit = EP().approximate(site_model(case, covariance))
    found, third = evidence_correction(fit), evidence_correction(fit, orders=3)
    assert found.by_row.shape == (10,)
    assert abs(found.by_row.sum() - found.value) < 1e-14
    assert abs(third.value - found.value) < 0.3 * abs(found.value)


def test_weights_that_are_off_need_none():
    X = np.ones((4, 1))
    model = SiteModel(
        np.zeros(1), X, np.zeros(4), ProbitSites(np.ones(4)), precision=np.array([np.inf])
    )
    assert evidence_correction(EP().approximate(model)).value == 0.0


def test_a_fit_has_it_in_its_tree():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(15, 2))
    model = av.models.ard_classification(X, X[:, 0] > 0, alpha=np.full(3, 0.1))
    tree = av.fit(model, av.EP(), draws=4, random_seed=1, progressbar=False)
    assert 0.005 < float(tree["fit"]["log_evidence_correction"]) < 0.5
    with pytest.warns(av.errors.ConvergenceWarning):
        cut = av.fit(model, av.EP(max_sweeps=1), draws=4, random_seed=1, progressbar=False)
    assert "log_evidence_correction" not in cut["fit"]


# Means and variances ------------------------------------------------------------------------------


def test_gaussian_sites_need_no_moments():
    rng = np.random.default_rng(2)
    sites = GaussianSites(rng.normal(size=6), np.full(6, 2.0), np.zeros(6))
    found = moment_correction(EP().approximate(weights(sites, rng.normal(size=(6, 3)), 1.0)))
    assert not found.mean.any() and not found.variance.any()


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("kind", [ProbitSites, LogitSites])
def test_sds_against_quadrature(kind, columns):
    """EP's sds are too small on few weights that many rows speak of; by how much, it says."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(10, columns))
    model = weights(kind(np.where(X[:, 0] + 0.3 * rng.normal(size=10) > 0, 1.0, -1.0)), X, 0.1)
    fit = EP().approximate(model)
    found = EP().assessed(model, fit)
    sd = np.sqrt(fit.posterior.marginal_variance)
    axes = [m + s * np.linspace(-9, 9, 401) for m, s in zip(fit.posterior.mean, sd, strict=True)]
    w = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, columns)
    height = model.log_joint(w)
    share = np.exp(height - height.max())
    share /= share.sum()
    mean = share @ w
    exact = np.sqrt(share @ (w - mean) ** 2)
    off = exact / sd - 1.0
    assert off[0] > 0.03  # the control: without the correction
    better = np.sqrt(sd**2 + found.by_weight["variance_correction"])
    np.testing.assert_allclose(better / exact, 1.0, atol=0.25 * off[0])
    assert found.info["sd_shift"] == pytest.approx(np.abs(off).max(), rel=0.3)
    # Means are right to a few hundredths of an sd, and it says no more than that.
    assert np.abs(fit.posterior.mean - mean).max() < 0.05 * exact.max()
    assert found.info["mean_shift"] < 0.1
