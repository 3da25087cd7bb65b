"""EP: exact where it must be, one fixed point by every route, gradients that are derivatives."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.special import log_ndtr, ndtr
from scipy.stats import multivariate_normal, norm
from scipy.stats import t as student_t
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.ep.ep import EP
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import (
    Derivatives,
    GaussianSites,
    GraphSites,
    LogitSites,
    PoissonSites,
    ProbitSites,
    StepSites,
)
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import condition

RNG_SEED = 71
SHAPES = [(25, 4), (7, 15)]
FAMILIES = ["probit", "logit", "student", "gaussian", "poisson", "step"]
CLOSED = ["probit", "gaussian", "step", "logit", "poisson"]  # with a sequential kernel


def by_value(log_site):
    """Sites that know nothing but their logarithm."""
    return GraphSites(log_site, lambda eta: Derivatives(log_site(eta), eta, eta, eta))


def student_sites(target, scale=0.7, freedom=4.0):
    return by_value(lambda eta: student_t.logpdf(target, freedom, eta, scale))


def make_model(shape, family="probit", dense=False, seed=RNG_SEED, outlier=3.0):
    rng = np.random.default_rng(seed)
    rows, weights = shape
    root = rng.normal(size=(weights, weights + 2))
    projection = rng.normal(size=(rows, weights)) / np.sqrt(weights / 3)
    sign = np.where(projection[:, 0] + 0.7 * rng.normal(size=rows) > 0, 1.0, -1.0)
    offset = 0.3 * rng.normal(size=rows)
    target = projection[:, 0] + 0.5 * rng.normal(size=rows)
    target[0] += outlier  # the Student-t's site precision is negative there
    made = {
        "probit": ProbitSites(sign),
        "logit": LogitSites(sign),
        "step": StepSites(np.where(projection.sum(axis=1) + offset > 0, 1.0, -1.0)),
        "student": student_sites(target),
        "poisson": PoissonSites(rng.poisson(2.0, rows).astype(float)),
        "gaussian": GaussianSites(target, rng.uniform(0.5, 4.0, rows), rng.normal(size=rows)),
    }
    return SiteModel(
        mean=0.3 * rng.normal(size=weights),
        projection=projection,
        offset=offset,
        sites=made[family],
        precision=None if dense else rng.uniform(0.4, 6.0, weights),
        covariance=root @ root.T / weights if dense else None,
    )


def probit_model(projection, sign, precision):
    weights = projection.shape[1]
    return SiteModel(
        np.zeros(weights), projection, np.zeros(len(sign)), ProbitSites(sign), precision
    )


def prior_covariance(model):
    return np.diag(1 / model.precision) if model.covariance is None else model.covariance


def separable(projection, sign):
    margins = -sign[:, None] * projection
    found = linprog(
        np.zeros(projection.shape[1]), margins, -np.ones(len(sign)), bounds=(None, None)
    )
    return found.status == 0


def by_grid(model, fit, size=101, reach=8.0):
    """Log evidence, mean and sd in at most two dimensions: a fine grid laid out by the fit."""
    root = np.linalg.cholesky(fit.posterior.covariance)
    axis = np.linspace(-reach, reach, size)
    dims = len(root)
    mesh = np.stack(np.meshgrid(*[axis] * dims, indexing="ij"), axis=-1).reshape(-1, dims)
    weights = fit.posterior.mean + mesh @ root.T
    height = model.log_joint(weights)
    mass = np.exp(height - height.max())
    cell = np.prod(np.diag(root)) * (axis[1] - axis[0]) ** dims
    mean = np.average(weights, axis=0, weights=mass)
    sd = np.sqrt(np.average((weights - mean) ** 2, axis=0, weights=mass))
    return height.max() + np.log(mass.sum() * cell), mean, sd


# Exact where it must be -----------------------------------------------------------------------


@pytest.mark.parametrize("updates", ["sequential", "parallel"])
@pytest.mark.parametrize("space", ["weights", "functions"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_gaussian_sites_are_exact(shape, dense, space, updates):
    model = make_model(shape, "gaussian", dense)
    fit = EP(space=space, updates=updates).approximate(model)
    prior, target, noise = prior_covariance(model), model.sites.mean, 1 / model.sites.precision
    marginal = model.projection @ prior @ model.projection.T + np.diag(noise)
    gain = np.linalg.solve(marginal, model.projection @ prior).T
    centre = model.predictor(model.mean)
    scale = np.sum(model.sites.log_scale + 0.5 * np.log(2 * np.pi * noise))
    evidence = multivariate_normal.logpdf(target, centre, marginal) + scale
    np.testing.assert_allclose(fit.log_evidence, evidence, rtol=1e-10)
    np.testing.assert_allclose(
        fit.posterior.mean, model.mean + gain @ (target - centre), rtol=1e-10, atol=1e-11
    )
    covariance = prior - gain @ model.projection @ prior
    np.testing.assert_allclose(fit.posterior.covariance, covariance, rtol=1e-10, atol=1e-11)
    assert fit.converged


@pytest.mark.parametrize(
    ("family", "accuracy"), [("probit", 1e-10), ("step", 1e-10), ("logit", 1e-8)]
)
@pytest.mark.parametrize("space", ["weights", "functions"])
@pytest.mark.parametrize("weights", [1, 3])
def test_one_row_equals_integration(family, accuracy, weights, space):
    """One site sees one Gaussian variable, so matched moments are the truth."""
    model = make_model((1, weights), family, seed=3)
    fit = EP(space=space).approximate(model)
    prior = prior_covariance(model)
    centre = float(model.predictor(model.mean)[0])
    variance = float((model.projection @ prior @ model.projection.T)[0, 0])

    def moment(k):
        def integrand(x):
            with np.errstate(divide="ignore"):
                site = np.exp(model.sites.log(np.array([x]))[0])
            return x**k * site * norm.pdf(x, centre, variance**0.5)

        edges = [centre - 12 * variance**0.5, 0.0, centre + 12 * variance**0.5]
        parts = [quad(integrand, a, b, epsabs=1e-14, limit=200)[0] for a, b in pairwise(edges)]
        return sum(parts)

    mass, mean = moment(0), moment(1) / moment(0)
    spread = moment(2) / mass - mean**2
    np.testing.assert_allclose(fit.log_evidence, np.log(mass), rtol=accuracy)
    np.testing.assert_allclose(fit.posterior.eta_mean[0], mean, rtol=accuracy)
    np.testing.assert_allclose(fit.posterior.eta_variance[0], spread, rtol=accuracy)
    np.testing.assert_allclose(fit.info["log_loo_probability"], np.log(mass), rtol=accuracy)
    along = (prior @ model.projection.T)[:, 0] / variance
    np.testing.assert_allclose(
        fit.posterior.mean, model.mean + along * (mean - centre), rtol=accuracy, atol=accuracy
    )


def random_problem(seed):
    rng = np.random.default_rng([RNG_SEED, seed])
    rows, weights = rng.integers(10, 61), rng.integers(1, 3)
    projection = rng.normal(size=(rows, weights))
    truth = 0.7 * rng.normal(size=weights)
    sign = np.where(projection @ truth + rng.normal(size=rows) > 0, 1.0, -1.0)
    return probit_model(projection, sign, np.exp(rng.uniform(0, np.log(10), weights)))


def errors_of(model):
    fit = EP().approximate(model)
    evidence, mean, sd = by_grid(model, fit)
    assert fit.converged
    return (
        np.abs(fit.posterior.mean - mean).max() / sd.min(),
        np.abs(np.sqrt(fit.posterior.marginal_variance) / sd - 1).max(),
        abs(fit.log_evidence - evidence),
    )


@pytest.mark.parametrize(
    ("count", "beyond"), [(60, 0), pytest.param(200, 1, marks=pytest.mark.validate)]
)
def test_random_probit_problems_against_a_grid(count, beyond):
    """Separable data are tabulated, not asserted: EP's own error grows there.

    One of the 200 (number 89: one input, 34 rows, steep) has an sd 5.7 % too small by every route
    and against any grid: EP's own error, so the bound of 5 % is not for each and every problem.
    """
    plain, apart = [], []
    for seed in range(count):
        model = random_problem(seed)
        table = apart if separable(model.projection, model.sites.sign) else plain
        table.append(errors_of(model))
    print("separable:", np.array(apart))
    assert len(plain) > 0.8 * count
    mean, sd, evidence = np.array(plain).T
    assert mean.max() < 0.01 and evidence.max() < 0.03
    assert np.sum(sd > 0.05) <= beyond and sd.max() < 0.06


def test_precisions_multiply_in_the_evidence():
    """Qi04 (11) divides by them: no test with a product of one sees it."""
    rng = np.random.default_rng(RNG_SEED)
    projection = rng.normal(size=(12, 2))
    sign = np.where(projection @ [1.0, -0.5] + rng.normal(size=12) > 0, 1.0, -1.0)
    for precision in ([3.0, 4.0], [0.5, 9.0]):
        model = probit_model(projection, sign, np.array(precision))
        fit = EP().approximate(model)
        exact, _, _ = by_grid(model, fit)
        assert abs(fit.log_evidence - exact) < 0.015
        assert (
            abs(fit.log_evidence - as_printed(model, fit, -1) - np.log(np.prod(precision))) < 1e-9
        )
        assert abs(as_printed(model, fit, -1) - exact) > 1.0
        np.testing.assert_allclose(as_printed(model, fit, 1), fit.log_evidence, rtol=1e-12)


def as_printed(model, fit, power):
    """Qi04 (10), (11) word for word but for the power of the precisions; -1 is what is printed."""
    mean, covariance = fit.posterior.mean, fit.posterior.covariance
    m, v, lam = (fit.by_row[k] for k in ("site_mean", "site_variance", "cavity_variance"))
    b = mean @ np.linalg.solve(covariance, mean) - np.sum(m**2 / v)
    gap = (m - fit.by_row["cavity_mean"]) ** 2 / (2 * (v + lam))
    log_s = fit.by_row["log_loo_probability"] + 0.5 * np.log1p(lam / v) + gap
    half = 0.5 * np.linalg.slogdet(covariance)[1]
    return half + power * 0.5 * np.log(model.precision).sum() + 0.5 * b + log_s.sum()


# One fixed point by every route ----------------------------------------------------------------


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_route_leads_to_the_same_fixed_point(family, shape, dense):
    model = make_model(shape, family, dense)
    routes = ["sequential", "parallel"] if family in CLOSED else ["parallel"]
    fits = [
        EP(updates=u, space=s).approximate(model) for u in routes for s in ("weights", "functions")
    ]
    fits.append(EP(damping=0.6).approximate(model))
    for fit in fits:
        assert fit.converged
        np.testing.assert_allclose(fit.log_evidence, fits[0].log_evidence, rtol=1e-10)
        np.testing.assert_allclose(fit.posterior.mean, fits[0].posterior.mean, atol=1e-8)
        np.testing.assert_allclose(
            fit.posterior.covariance, fits[0].posterior.covariance, atol=1e-8
        )
        np.testing.assert_allclose(fit.site_precision, fits[0].site_precision, rtol=1e-8, atol=1e-8)
        tilted = model.sites.tilted(fit.by_row["cavity_mean"], fit.by_row["cavity_variance"])
        np.testing.assert_allclose(tilted.mean, fit.posterior.eta_mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(tilted.variance, fit.posterior.eta_variance, rtol=1e-8)
        np.testing.assert_allclose(tilted.log_z, fit.by_row["log_loo_probability"], atol=1e-8)


def test_a_negative_site_precision_is_a_site_like_another():
    model = make_model((25, 4), "student")
    fit = EP().approximate(model)
    assert fit.converged and fit.site_precision.min() < -1e-3
    assert fit.by_row["site_variance"].min() < 0
    one_weight = make_model((12, 1), "student")
    fit = EP().approximate(one_weight)
    evidence, mean, sd = by_grid(one_weight, fit, size=2001, reach=10.0)
    assert fit.site_precision.min() < -1e-3
    assert abs(fit.log_evidence - evidence) < 0.05
    assert abs(fit.posterior.mean - mean)[0] < 0.1 * sd[0]


def test_quadrature_finds_what_the_closed_form_does():
    for shape in SHAPES:
        closed = make_model(shape, "probit")
        opened = replace(closed, sites=by_value(closed.sites.log))
        a, b = EP().approximate(closed), EP().approximate(opened)
        np.testing.assert_allclose(b.log_evidence, a.log_evidence, rtol=1e-9)
        np.testing.assert_allclose(b.posterior.mean, a.posterior.mean, atol=1e-9)
        assert "loo_error" not in b.info and b.info["multimodal_sites"] == 0


def test_probit_site_variances_exceed_one():
    for alpha in (1e-6, 1.0, 1e3):
        model = make_model((40, 3), "probit")
        fit = EP().approximate(replace(model, precision=np.full(3, alpha)))
        assert fit.by_row["site_variance"].min() > 1.0


@pytest.mark.parametrize("family", ["probit", "logit", "student"])
def test_a_warm_start_ends_where_a_cold_one_does(family):
    model = make_model((30, 6), family)
    first = EP().approximate(model)
    other = model.precision * np.array([1.5, 1.0, np.inf, 1.0, 0.1, 1.0])
    model = replace(model, precision=other)
    cold, warm = EP().approximate(model), EP().approximate(model, first)
    np.testing.assert_allclose(warm.log_evidence, cold.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(warm.posterior.mean, cold.posterior.mean, atol=1e-8)
    again = EP().approximate(model, cold)
    assert again.iterations <= 2
    with pytest.raises(ValueError, match="30 rows; this fit has 7"):
        EP().approximate(model, EP().approximate(make_model((7, 15), family)))


@pytest.mark.parametrize("space", ["weights", "functions"])
def test_weights_that_are_off_are_not_there(space):
    model = make_model((25, 4), "probit")
    off = np.array([False, True, False, True])
    pruned = replace(model, precision=np.where(off, np.inf, model.precision))
    offset = model.offset + model.projection[:, off] @ model.mean[off]
    small = SiteModel(
        model.mean[~off], model.projection[:, ~off], offset, model.sites, model.precision[~off]
    )
    a, b = (EP(space=space).approximate(m) for m in (pruned, small))
    np.testing.assert_allclose(a.log_evidence, b.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(a.posterior.mean[~off], b.posterior.mean, rtol=1e-10)
    np.testing.assert_array_equal(a.posterior.mean[off], model.mean[off])


def test_an_empty_model_has_the_evidence_of_its_offset():
    model = make_model((25, 4), "probit")
    empty = replace(model, precision=np.full(4, np.inf), mean=np.zeros(4))
    for settings in (EP(), EP(updates="parallel"), EP(space="functions")):
        fit = settings.approximate(empty)
        np.testing.assert_allclose(
            fit.log_evidence, empty.sites.log(empty.offset).sum(), rtol=1e-12
        )
    undecided = EP().approximate(replace(empty, offset=np.zeros(25)))
    assert undecided.info["loo_error"] == 0.5


@pytest.mark.parametrize("family", ["probit", "logit", "poisson"])
def test_without_weights_sites_are_expansions_at_the_offset(family):
    """What sequential ARD starts from: eta is known, and moments of no width would cancel."""
    model = make_model((25, 4), family)
    for alpha in (np.inf, 1e18):
        empty = replace(model, precision=np.full(4, alpha), mean=np.zeros(4))
        site = model.sites.derivatives(model.offset)
        for updates in ("auto", "parallel"):
            fit = EP(updates=updates).approximate(empty)
            assert fit.converged
            np.testing.assert_allclose(fit.site_precision, -site.second, rtol=1e-7)
            force = fit.site_shift - fit.site_precision * model.offset
            np.testing.assert_allclose(force, site.first, rtol=1e-7, atol=1e-9)


# Gradients -------------------------------------------------------------------------------------


def derivative(function, step=1e-4):
    """Central difference of fourth order."""
    near, far = function(step) - function(-step), function(2 * step) - function(-2 * step)
    return (8 * near - far) / (12 * step)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", ["probit", "logit", "student", "gaussian"])
def test_gradient_of_the_evidence(family, shape, dense):
    model, ep = make_model(shape, family, dense), EP(tolerance=1e-12)
    fit = ep.approximate(model)
    found = ep.evidence_gradient(model, fit)
    rng = np.random.default_rng(5)
    for name in ("mean", "offset", "projection", "covariance" if dense else "precision"):
        value = getattr(model, name)
        direction = rng.normal(size=value.shape)
        if name == "covariance":
            direction = direction + direction.T
            direction /= 10.0

        def evidence(step, name=name, value=value, direction=direction):
            return ep.approximate(
                replace(model, **{name: value + step * direction}), fit
            ).log_evidence

        expected = np.sum(getattr(found, name) * direction)
        np.testing.assert_allclose(expected, derivative(evidence), rtol=1e-6, atol=1e-7)


def test_gradient_of_a_dense_gaussian_and_of_a_diagonal_one_agree():
    model = make_model((25, 4), "probit")
    dense = replace(model, precision=None, covariance=np.diag(1 / model.precision))
    a, b = (EP().evidence_gradient(m, EP().approximate(m)) for m in (model, dense))
    np.testing.assert_allclose(-np.diag(b.covariance) / model.precision**2, a.precision, rtol=1e-7)
    np.testing.assert_allclose(a.projection, b.projection, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_in_the_likelihood(shape):
    """The scale of a Student-t, the noise of a Gaussian and the slope of a logit."""
    base = make_model(shape, "gaussian")
    target, sign = base.sites.mean, np.where(base.sites.mean > 0, 1.0, -1.0)
    logs = {
        "student": lambda s: lambda eta: student_t.logpdf(target, 4.0, eta, s),
        "gaussian": lambda s: lambda eta: norm.logpdf(target, eta, s),
        "probit": lambda s: lambda eta: log_ndtr(sign * eta / s),
    }
    ep = EP(tolerance=1e-12)
    for log_of in logs.values():
        model = replace(base, sites=by_value(log_of(0.9)))
        fit = ep.approximate(model)
        found = ep.evidence_gradient(model, fit)
        np.testing.assert_allclose(found.site_value.sum(axis=0), 1.0, rtol=1e-12)
        assert not found.site_first.any() and not found.site_second.any()
        slope = derivative(lambda h, f=log_of, at=found.site_eta: f(0.9 + h)(at))
        numeric = derivative(
            lambda h, f=log_of: (
                ep.approximate(replace(base, sites=by_value(f(0.9 + h)))).log_evidence
            )
        )
        np.testing.assert_allclose(np.sum(found.site_value * slope), numeric, rtol=1e-6, atol=1e-7)


def test_the_gradient_in_a_precision_is_the_papers():
    model = probit_model(*random_pair(), np.array([0.7, 2.0, 5.0]))
    fit = EP().approximate(model)
    second = fit.posterior.marginal_variance + fit.posterior.mean**2
    found = EP().evidence_gradient(model, fit).precision * model.precision
    np.testing.assert_allclose(found, 0.5 * (1 - model.precision * second), rtol=1e-12)


def random_pair(rows=40, weights=3, seed=RNG_SEED):
    rng = np.random.default_rng(seed)
    projection = rng.normal(size=(rows, weights))
    noisy = projection @ rng.normal(size=weights) + rng.normal(size=rows)
    return projection, np.where(noisy > 0, 1.0, -1.0)


# Leave one out ---------------------------------------------------------------------------------


def data_set(name):
    rng = np.random.default_rng(RNG_SEED)
    if name == "simulated":
        X = rng.normal(size=(100, 20))
        return X, (X[:, :3] @ [1.0, -1.0, 0.5] + rng.normal(size=100) > 0).astype(int)
    load = {"wine": load_wine, "iris": load_iris, "diabetes": load_diabetes}
    X, t = load.get(name, load_breast_cancer)(return_X_y=True)
    if name in ("wine", "iris"):  # two of the three classes
        rows = t != (2 if name == "wine" else 0)
        return X[rows], (t[rows] == 1).astype(int)
    rows = rng.permutation(len(t))[:80]
    return X[rows], t[rows] if name == "cancer" else (t[rows] > np.median(t)).astype(int)


@pytest.mark.parametrize(
    ("name", "largest"),
    [("iris", 0.02), ("diabetes", 0.02), ("simulated", 0.02), ("wine", 0.07), ("cancer", 0.05)],
)
def test_free_leave_one_out_is_near_the_real_one(name, largest):
    """The mean gap and the error count hold everywhere; single rows of data that are separable, or
    nearly so, may be further off than 0.02 in probability: the cavity keeps the sites of a fit that
    saw the row.
    """
    X, t = data_set(name)
    X = np.column_stack([np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0)])
    sign = np.where(t == 1, 1.0, -1.0)
    alpha = np.ones(X.shape[1])
    fit = EP().approximate(probit_model(X, sign, alpha))
    left_out = np.empty(len(t))
    for n in range(len(t)):
        rest = np.arange(len(t)) != n
        refit = EP().approximate(probit_model(X[rest], sign[rest], alpha), None)
        mean, variance = refit.posterior.predictive(X[[n]], np.zeros(1))
        left_out[n] = ndtr(sign[n] * mean[0] / np.sqrt(1 + variance[0]))
    gap = np.abs(fit.by_row["loo_probability"] - left_out)
    assert len(t) >= 50
    assert gap.max() < largest and gap.mean() < 0.003
    assert abs(fit.info["loo_error"] * len(t) - np.sum(left_out < 0.5)) <= 1
    by_row = fit.by_row["log_loo_probability"]
    np.testing.assert_allclose(np.exp(by_row), fit.by_row["loo_probability"], rtol=1e-12)
    np.testing.assert_allclose(fit.info["log_loo_probability"], by_row.sum(), rtol=1e-12)


def test_error_estimates_in_the_log_domain():
    model = probit_model(*random_pair(), np.ones(3))
    fit = EP().approximate(model)
    mean, variance = fit.by_row["cavity_mean"], fit.by_row["cavity_variance"]
    z = model.sites.sign * mean / np.sqrt(1 + variance)
    assert fit.info["loo_error"] == np.mean(z < 0)
    np.testing.assert_allclose(
        np.exp(fit.info["log_loo_error_smooth"]), np.mean(ndtr(-50 * z)), rtol=1e-9
    )
    np.testing.assert_allclose(fit.info["loo_error_unsigned"], np.mean(ndtr(-np.abs(z))), rtol=1e-9)
    empty = EP().approximate(probit_model(*random_pair(), np.full(3, np.inf)))
    assert empty.info["loo_error"] == 0.5  # every margin is 0: half of each tie
    _, sign = random_pair()
    sure = EP().approximate(probit_model(4 * sign[:, None] * np.ones((40, 1)), sign, np.ones(1)))
    assert ndtr(-50 * 4.0) == 0.0  # the printed form has nothing left to compare
    assert -1e6 < sure.info["log_loo_error_smooth"] < -1000


# Where it is hard ------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [ProbitSites, StepSites, LogitSites])
@pytest.mark.parametrize(("rows", "weights"), [(10, 1), (100, 1), (30, 5), (20, 60)])
def test_separable_data_converge_at_any_precision(rows, weights, family):
    projection, _ = random_pair(rows, weights)
    sign = np.where(projection[:, 0] > 0, 1.0, -1.0)
    for alpha in (1.0, 1e-3, 1e-6):
        model = replace(probit_model(projection, sign, np.full(weights, alpha)), sites=family(sign))
        fit = EP().approximate(model)
        assert fit.converged, (alpha, fit.info)
        assert fit.info["skipped"] == 0 and fit.log_evidence < 0


def test_the_known_error_on_separable_data():
    """One input: the evidence is 0.01 nats too low at precision 1 and 0.3 at 1e-4."""
    projection, _ = random_pair(10, 1)
    sign = np.where(projection[:, 0] > 0, 1.0, -1.0)
    short = []
    for alpha in (1.0, 1e-2, 1e-4):
        model = probit_model(projection, sign, np.array([alpha]))
        fit = EP().approximate(model)
        exact, _, _ = by_grid(model, fit, size=40_001, reach=40.0)
        short.append(exact - fit.log_evidence)
    assert 0 < short[0] < 0.05 and short[0] < short[1] < short[2] < 0.6
    assert short[2] > 0.15


def test_the_step_is_a_probit_without_noise():
    model = make_model((25, 4), "step")
    model = replace(model, mean=np.zeros(4), offset=np.zeros(25))
    step = EP().approximate(model)
    large = replace(model, sites=ProbitSites(model.sites.sign), precision=model.precision * 1e-12)
    probit = EP().approximate(large)
    np.testing.assert_allclose(step.log_evidence, probit.log_evidence, rtol=1e-5)
    np.testing.assert_allclose(step.posterior.mean, probit.posterior.mean * 1e-6, rtol=1e-4)
    with pytest.raises(UnsupportedPair, match="no derivatives"):
        Laplace().approximate(model)


def test_improper_sites_are_said():
    """exp(eta^2) outgrows a Gaussian of variance above one half; one row only."""
    base = make_model((6, 2), "probit")
    wild = np.arange(6) == 2
    sites = by_value(lambda eta: np.where(wild, eta**2, log_ndtr(eta)))
    model = replace(base, sites=sites, precision=np.full(2, 0.01))
    fit = EP(max_sweeps=30).approximate(model)
    assert not fit.converged
    assert fit.info["improper_sites"] == 1 and fit.info["skipped"] > 0
    assert np.isnan(fit.log_evidence)
    assert np.isnan(fit.by_row["log_loo_probability"][2])
    assert np.isfinite(fit.by_row["log_loo_probability"][~wild]).all()


def test_several_tops_are_said():
    far = np.array([0.0, 12.0, 0.3])
    sites = by_value(lambda eta: -2.5 * np.log1p((eta - far) ** 2 / 2))
    model = SiteModel(np.zeros(3), np.eye(3), np.zeros(3), sites, np.full(3, 1 / 6.5))
    fit = EP().approximate(model)
    assert fit.converged and fit.info["multimodal_sites"] == 1


def test_contradictory_steps_are_said():
    """No weights put every row on its side: the evidence is zero, and EP has no fixed point."""
    projection = np.array([[1.0], [1.0]])
    sites = StepSites(np.array([1.0, -1.0]))
    model = SiteModel(np.zeros(1), projection, np.zeros(2), sites, np.ones(1))
    fit = EP().approximate(model)
    assert not fit.converged
    assert np.isnan(fit.log_evidence) and np.isnan(fit.info["loo_error"])
    with pytest.raises(np.linalg.LinAlgError, match="use a probit likelihood"):
        EP(space="functions").approximate(model)


def test_negative_cavities_are_met_counted_and_left():
    """Sites that start as negative as the prior allows take another site's cavity away."""
    sites = student_sites(np.array([0.3, 0.1, -0.2]))
    projection = np.array([[1.0], [1.0], [1.0]])
    model = SiteModel(np.zeros(1), projection, np.zeros(3), sites, np.ones(1))
    cold = EP().approximate(model)
    start = cold._replace(site_precision=np.array([3.0, -3.5, 0.2]), site_shift=np.zeros(3))
    fit = EP().approximate(model, start)
    assert fit.info["negative_cavities"] >= 1 and fit.info["skipped"] >= 1
    assert fit.converged and cold.info["negative_cavities"] == 0
    np.testing.assert_allclose(fit.log_evidence, cold.log_evidence, rtol=1e-9)


def test_too_few_sweeps_are_told():
    for settings in (EP(max_sweeps=2), EP(max_sweeps=2, updates="parallel")):
        fit = settings.approximate(make_model((25, 4), "probit"))
        assert not fit.converged
        assert fit.iterations == 2 and fit.info["site_change"] > 1e-10


def test_rows_of_zeros_are_harmless():
    model = make_model((25, 4), "probit")
    projection = model.projection.copy()
    projection[3] = 0.0
    model = replace(model, projection=projection)
    fits = [
        EP(updates=u, space=s).approximate(model)
        for u in ("sequential", "parallel")
        for s in ("weights", "functions")
    ]
    for fit in fits:
        assert fit.converged
        np.testing.assert_allclose(fit.log_evidence, fits[0].log_evidence, rtol=1e-10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"updates": "random"}, "updates must be one of 'auto', 'sequential', 'parallel'"),
        ({"damping": 0.0}, "damping"),
        ({"damping": 1.5}, "damping"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"max_sweeps": 0}, "max_sweeps"),
        ({"max_sweeps": True}, "max_sweeps"),
        ({"space": "time"}, "space must be one of"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        EP(**settings)


def test_sequential_updates_need_known_sites():
    with pytest.raises(InputError, match="parallel"):
        EP(updates="sequential").approximate(make_model((25, 4), "student"))


# Cost ------------------------------------------------------------------------------------------


def test_many_features_cost_no_square_of_them():
    rng = np.random.default_rng(RNG_SEED)
    projection = rng.normal(size=(36, 7129))
    sign = np.where(rng.random(36) < 0.5, 1.0, -1.0)
    model = probit_model(projection, sign, np.full(7129, 7129.0))
    EP().approximate(model)
    tracemalloc.start()
    fit = EP().approximate(model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fit.converged
    assert peak < 30e6  # a (d, d) matrix would be 400 MB


def test_the_posterior_is_the_one_of_its_sites():
    model = make_model((25, 4), "probit")
    fit = EP().approximate(model)
    again = condition(model, fit.site_precision, fit.site_shift)
    np.testing.assert_allclose(again.mean, fit.posterior.mean, rtol=1e-12)
    tau = fit.site_precision
    np.testing.assert_allclose(fit.by_row["site_variance"], 1 / tau, rtol=1e-12)
    np.testing.assert_allclose(fit.by_row["site_mean"], fit.site_shift / tau, rtol=1e-12)
