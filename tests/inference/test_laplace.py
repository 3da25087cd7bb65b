"""Laplace: exact for Gaussian sites, a mode otherwise, and gradients that are derivatives."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal

import ardvark as av
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import (
    Derivatives,
    GaussianSites,
    GraphSites,
    LogitSites,
    PoissonSites,
    ProbitSites,
)
from ardvark.inference.sites.model import SiteModel

RNG_SEED = 31
SHAPES = [(25, 4), (7, 15)]


def student_sites(target, scale=0.7, freedom=4.0):
    """Student-t log density of target around eta: not log-concave."""

    def derivatives(eta):
        r, c = target - eta, freedom * scale**2
        q, k = c + r**2, freedom + 1.0
        value = -0.5 * k * np.log1p(r**2 / c)
        first = k * r / q
        second = -k * (c - r**2) / q**2
        third = -2.0 * k * r * (3.0 * c - r**2) / q**3
        return Derivatives(value, first, second, third)

    return GraphSites(lambda eta: derivatives(eta).value, derivatives)


def make_model(shape, sites=None, dense=False, seed=RNG_SEED):
    rng = np.random.default_rng(seed)
    rows, weights = shape
    root = rng.normal(size=(weights, weights + 2))
    projection = rng.normal(size=(rows, weights)) / np.sqrt(weights / 3)
    sign = np.where(projection[:, 0] + 0.7 * rng.normal(size=rows) > 0, 1.0, -1.0)
    target = projection[:, 0] + 0.5 * rng.normal(size=rows)
    target[0] += 6.0  # an outlier: the Student-t's curvature is negative there
    made = {
        "probit": ProbitSites(sign),
        "logit": LogitSites(sign),
        "student": student_sites(target),
        "gaussian": GaussianSites(target, rng.uniform(0.5, 4.0, rows), rng.normal(size=rows)),
    }
    return SiteModel(
        mean=0.3 * rng.normal(size=weights),
        projection=projection,
        offset=0.3 * rng.normal(size=rows),
        sites=made[sites or "logit"],
        precision=None if dense else rng.uniform(0.4, 6.0, weights),
        covariance=root @ root.T / weights if dense else None,
    )


def changed(model, **changes):
    fields = ("mean", "projection", "offset", "sites", "precision", "covariance")
    return SiteModel(**{name: changes.get(name, getattr(model, name)) for name in fields})


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("space", ["weights", "functions"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gaussian_sites_are_exact(shape, space, dense):
    model = make_model(shape, "gaussian", dense)
    fit = Laplace(space=space).approximate(model)
    prior = np.diag(1 / model.precision) if model.covariance is None else model.covariance
    target, noise = model.sites.mean, 1 / model.sites.precision
    marginal = model.projection @ prior @ model.projection.T + np.diag(noise)
    gain = np.linalg.solve(marginal, model.projection @ prior).T
    centre = model.predictor(model.mean)
    close = {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(fit.posterior.mean, model.mean + gain @ (target - centre), **close)
    expected = prior - gain @ model.projection @ prior
    np.testing.assert_allclose(fit.posterior.covariance, expected, **close)
    scale = model.sites.log_scale + 0.5 * np.log(2 * np.pi * noise)  # sites are not normalised
    evidence = multivariate_normal(centre, marginal).logpdf(target) + scale.sum()
    np.testing.assert_allclose(fit.log_evidence, evidence, **close)
    assert fit.converged
    assert fit.iterations == 1


@pytest.mark.parametrize("name", ["probit", "logit", "student"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_mode_has_no_slope_in_either_space(shape, dense, name):
    model = make_model(shape, name, dense)
    fits = [Laplace(space=space).approximate(model) for space in ("weights", "functions")]
    prior = np.diag(1 / model.precision) if model.covariance is None else model.covariance
    for fit in fits:
        mode = fit.posterior.mean
        site = model.sites.derivatives(model.predictor(mode))
        slope = model.projection.T @ site.first - np.linalg.solve(prior, mode - model.mean)
        np.testing.assert_allclose(slope, 0.0, atol=1e-7)
        assert fit.converged
        assert fit.info["gradient_norm"] < 1e-7
        np.testing.assert_allclose(fit.site_precision, -site.second, atol=1e-7)
    one, other = fits
    np.testing.assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(one.posterior.covariance, other.posterior.covariance, atol=1e-8)
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, atol=1e-9)


def test_student_has_negative_curvature_at_the_outlier():
    fit = Laplace().approximate(make_model((25, 4), "student"))
    assert fit.site_precision.min() < 0  # else this file would never see the signed route
    assert fit.info["indefinite"] == 0.0


@pytest.mark.parametrize(
    ("sites", "error"),
    [
        (ProbitSites(np.array([1.0])), 0.03),
        (LogitSites(np.array([-1.0])), 0.03),
        (PoissonSites(np.array([3.0])), 0.03),
        (student_sites(np.array([1.5])), 0.15),
    ],
)
def test_evidence_against_quadrature(sites, error):
    """One weight, one row: Laplace is near the integral (its own error is the tolerance)."""
    model = SiteModel(np.array([0.2]), np.array([[1.3]]), np.array([0.1]), sites, np.array([2.0]))
    fit = Laplace().approximate(model)

    def joint(w):
        return float(np.exp(model.log_joint(np.array([w]))))

    mass = quad(joint, -8, 8, epsabs=1e-12)[0]
    mean = quad(lambda w: w * joint(w), -8, 8, epsabs=1e-12)[0] / mass
    assert abs(fit.log_evidence - np.log(mass)) < error
    assert abs(fit.posterior.mean[0] - mean) < 3 * error


def test_evidence_error_falls_with_the_data():
    """Laplace is right to O(1/N): ten times the data, a tenth of the error (slack 2)."""
    errors = []
    for copies in (5, 50):
        sign = np.tile([1.0, 1.0, 1.0, -1.0, -1.0], copies)
        model = SiteModel(
            np.zeros(1),
            np.ones((5 * copies, 1)),
            np.zeros(5 * copies),
            LogitSites(sign),
            np.ones(1),
        )
        fit = Laplace().approximate(model)
        top = float(model.log_joint(fit.posterior.mean))
        mass = quad(lambda w: np.exp(float(model.log_joint(np.array([w]))) - top), -3, 4)[0]  # noqa: B023
        errors.append(abs(fit.log_evidence - np.log(mass) - top))
    assert errors[1] < errors[0] / 5


@pytest.mark.parametrize("name", ["probit", "logit", "student", "gaussian"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_evidence_gradient_is_the_derivative(shape, dense, name):
    model = make_model(shape, name, dense)
    laplace = Laplace(tolerance=1e-13)
    gradient = laplace.evidence_gradient(model, laplace.approximate(model))
    rng = np.random.default_rng(RNG_SEED + 1)
    for field in ("mean", "projection", "offset", "covariance" if dense else "precision"):
        value = getattr(model, field)
        direction = rng.normal(size=value.shape)
        direction = direction + direction.T if field == "covariance" else direction
        step = 1e-4
        up, up_far, down, down_far = (
            laplace.approximate(
                changed(model, **{field: value + k * step * direction})
            ).log_evidence
            for k in (1, 2, -1, -2)
        )
        numeric = (8 * (up - down) - (up_far - down_far)) / (12 * step)
        np.testing.assert_allclose(
            np.sum(getattr(gradient, field) * direction), numeric, rtol=1e-6, atol=1e-7
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_site_coefficients_give_the_derivative_in_a_likelihood_parameter(shape):
    """The Student-t's scale enters value, slope and curvature of each site."""
    model = make_model(shape, "student")
    target = np.random.default_rng(RNG_SEED + 2).normal(size=shape[0])
    laplace = Laplace(tolerance=1e-13)

    def at(scale):
        return changed(model, sites=student_sites(target, scale))

    fit = laplace.approximate(at(0.7))
    gradient = laplace.evidence_gradient(at(0.7), fit)
    step = 1e-5
    eta = fit.posterior.eta_mean
    up, down = at(0.7 + step), at(0.7 - step)
    site_up, site_down = up.sites.derivatives(eta), down.sites.derivatives(eta)
    change = [(a - b) / (2 * step) for a, b in zip(site_up, site_down, strict=True)]
    analytic = (
        gradient.site_value[0] @ change[0]
        + gradient.site_first[0] @ change[1]
        + gradient.site_second[0] @ change[2]
    )
    numeric = laplace.approximate(up).log_evidence - laplace.approximate(down).log_evidence
    np.testing.assert_allclose(analytic, numeric / (2 * step), rtol=1e-6)


def test_gradient_with_weights_that_are_off():
    model = make_model((12, 5), "probit")
    off = np.array([False, True, False, False, True])
    model = changed(model, precision=np.where(off, np.inf, model.precision))
    laplace = Laplace(tolerance=1e-13)
    gradient = laplace.evidence_gradient(model, laplace.approximate(model))
    assert not gradient.precision[off].any()
    rng = np.random.default_rng(RNG_SEED + 3)
    for field in ("mean", "projection"):
        value = getattr(model, field)
        direction = rng.normal(size=value.shape)
        up, down = (
            laplace.approximate(changed(model, **{field: value + k * direction})).log_evidence
            for k in (1e-5, -1e-5)
        )
        analytic = np.sum(getattr(gradient, field) * direction)
        np.testing.assert_allclose(analytic, (up - down) / 2e-5, rtol=1e-6)


def test_all_weights_off_is_the_plain_likelihood():
    model = changed(make_model((6, 3)), precision=np.full(3, np.inf))
    fit = Laplace().approximate(model)
    assert fit.converged
    expected = model.sites.log(model.predictor(model.mean)).sum()
    np.testing.assert_allclose(fit.log_evidence, expected, rtol=1e-14)


def trigonometric_sites(sign, visited):
    """Chu's loss: zero slope above 1, minus infinity below -1."""

    def derivatives(eta):
        visited.append(np.array(eta))
        z = sign * eta
        inside = z < 1.0
        angle = np.pi / 4 * (1.0 - np.where(inside, z, 1.0))
        value = np.where(z <= -1.0, -np.inf, 2 * np.log(np.cos(angle)))
        tangent = np.where(inside, np.tan(angle), 0.0)
        curve = np.where(inside, -(np.pi**2) / 8 / np.cos(angle) ** 2, 0.0)
        return Derivatives(value, sign * np.pi / 2 * tangent, curve, 0.0 * z)

    return GraphSites(lambda eta: derivatives(eta).value, derivatives)


@pytest.mark.parametrize("space", ["weights", "functions"])
def test_never_rests_where_the_density_is_zero(space):
    rng = np.random.default_rng(RNG_SEED)
    visited = []
    sign = np.where(rng.random(6) < 0.5, -1.0, 1.0)
    sites = trigonometric_sites(sign, visited)
    model = SiteModel(
        np.zeros(6), 3.0 * rng.normal(size=(6, 6)), np.zeros(6), sites, np.full(6, 0.05)
    )
    start = np.linalg.solve(model.projection, -0.999 * sign)  # at the very edge of the support
    fit = Laplace(space=space).approximate(model, start=start)
    assert any((sign * eta <= -1).any() for eta in visited) or len(visited) > 2
    assert np.all(sign * fit.posterior.eta_mean > -1)
    assert np.isfinite(fit.log_evidence)


def test_overflowing_step_is_shortened():
    """A Poisson row with a large count: the first full Newton step would overflow exp."""
    model = SiteModel(
        np.zeros(1),
        np.ones((1, 1)),
        np.zeros(1),
        PoissonSites(np.array([5000.0])),
        np.full(1, 1e-4),
    )
    fit = Laplace().approximate(model)
    assert fit.converged
    np.testing.assert_allclose(fit.posterior.eta_mean, np.log(5000), atol=1e-3)


def test_impossible_start_is_refused_with_advice():
    sites = trigonometric_sites(np.ones(2), [])
    model = SiteModel(np.array([-5.0]), np.ones((2, 1)), np.zeros(2), sites, np.ones(1))
    with pytest.raises(ValueError, match=r"prior mean.*finite density as start"):
        Laplace().approximate(model)
    assert Laplace().approximate(model, start=np.array([0.5])).converged
    with pytest.raises(ValueError, match="start must be"):
        Laplace().approximate(model, start=np.zeros(3))


def test_warm_start_takes_fewer_steps_to_the_same_place():
    for dense in (False, True):
        model = make_model((25, 4), "probit", dense)
        cold = Laplace().approximate(model)
        warm = Laplace().approximate(model, start=cold.posterior.mean)
        assert warm.iterations < cold.iterations
        np.testing.assert_allclose(warm.posterior.mean, cold.posterior.mean, atol=1e-9)
        np.testing.assert_allclose(warm.log_evidence, cold.log_evidence, rtol=1e-11)


def test_stopping_early_is_recorded():
    fit = Laplace(max_iterations=1).approximate(make_model((25, 4), "probit"))
    assert not fit.converged
    assert fit.iterations == 1
    assert fit.info["decrement"] > 1e-10


def test_saddle_is_recorded():
    """Two Student-t sites pull a free weight to both sides: w = 0 is the saddle between modes."""
    sites = student_sites(np.array([-9.0, 9.0]))
    model = SiteModel(np.zeros(1), np.ones((2, 1)), np.zeros(2), sites, np.full(1, 1e-4))
    fit = Laplace().approximate(model)
    assert not fit.converged
    assert fit.info["indefinite"] == 1.0
    assert Laplace().approximate(model, start=np.array([3.0])).converged


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("tolerance", 0.0),
        ("tolerance", np.nan),
        ("tolerance", np.inf),
        ("max_iterations", 0),
        ("max_iterations", 2.5),
        ("max_iterations", True),
        ("space", "dual"),
    ],
)
def test_bad_settings_are_refused(argument, value):
    with pytest.raises(InputError, match=argument):
        Laplace(**{argument: value})


# The mean to first order --------------------------------------------------------------------------

COUNTED = (40, 2)  # rows and weights that a grid can integrate


def small_model(kind, weights, seed=3, rows=COUNTED[0]):
    """A regression whose posterior of one or two weights is skewed."""
    rng = np.random.default_rng(seed)
    projection = rng.normal(size=(rows, weights))
    eta = projection.sum(axis=1) - 0.5
    if kind == "poisson":
        sites = PoissonSites(rng.poisson(np.exp(eta - 1.0)).astype(float), -1.0)
    else:
        sites = LogitSites(np.where(rng.random(rows) < 1 / (1 + np.exp(-2 * eta)), 1.0, -1.0))
    return SiteModel(
        np.zeros(weights), projection, np.full(rows, -0.5), sites, precision=np.full(weights, 0.1)
    )


def by_grid(model, posterior, points=401, width=9.0):
    """Mean, sd and log evidence by a product grid."""
    sd = np.sqrt(posterior.marginal_variance)
    axes = [
        m + s * np.linspace(-width, width, points) for m, s in zip(posterior.mean, sd, strict=True)
    ]
    w = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    height = model.log_joint(w)
    share = np.exp(height - height.max())
    log_z = np.log(share.sum()) + height.max() + sum(np.log(a[1] - a[0]) for a in axes)
    share /= share.sum()
    mean = share @ w
    return mean, np.sqrt(share @ (w - mean) ** 2), log_z


@pytest.mark.parametrize("weights", [1, 2])
@pytest.mark.parametrize("kind", ["poisson", "logit"])
def test_shift_of_the_means_against_quadrature(kind, weights):
    model = small_model(kind, weights)
    plain = Laplace().completed(model, Laplace().approximate(model))
    mean, sd, _ = by_grid(model, plain.posterior)
    off = (mean - plain.posterior.mean) / sd
    assert np.abs(off).max() > 0.12  # the control: the mode is not the mean
    shift = plain.by_weight["mean_correction"] / sd
    np.testing.assert_allclose(shift, off, atol=0.2 * np.abs(off).max())
    assert plain.info["mean_shift"] == pytest.approx(np.abs(off).max(), rel=0.25)
    rule = Laplace(corrected=True)
    moved = rule.completed(model, rule.approximate(model))
    assert np.abs((moved.posterior.mean - mean) / sd).max() < 0.2 * np.abs(off).max()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("space", ["weights", "functions"])
@pytest.mark.parametrize("shape", SHAPES)
def test_corrected_moves_the_mean_alone(shape, space, dense):
    model = make_model(shape, dense=dense)
    rule = Laplace(space=space, corrected=True)
    plain = rule.approximate(model)
    moved = rule.completed(model, plain)
    np.testing.assert_allclose(
        moved.posterior.mean, plain.posterior.mean + moved.by_weight["mean_correction"], rtol=1e-9
    )
    np.testing.assert_allclose(moved.posterior.covariance, plain.posterior.covariance, rtol=1e-10)
    assert moved.log_evidence == plain.log_evidence


def test_gaussian_sites_shift_nothing():
    model = make_model((25, 4), "gaussian")
    fit = Laplace().assessed(model, Laplace().approximate(model))
    assert fit.info["mean_shift"] == fit.info["log_evidence_correction"] == 0.0


@pytest.mark.parametrize("rows", [30, 60, 120])
@pytest.mark.parametrize("kind", ["poisson", "logit"])
def test_what_the_evidence_leaves_out_against_quadrature(kind, rows):
    model = small_model(kind, 2, seed=8, rows=rows)
    fit = Laplace().assessed(model, Laplace().approximate(model))
    left_out = by_grid(model, fit.posterior)[2] - fit.log_evidence
    assert fit.info["log_evidence_correction"] == pytest.approx(left_out, rel=0.45, abs=2e-3)


def test_corrected_is_refused_unless_true_or_false():
    with pytest.raises(InputError, match="corrected must be True or False, got 1"):
        Laplace(corrected=1)


def test_corrected_is_refused_where_no_mean_would_be_moved():
    X = np.random.default_rng(1).normal(size=(12, 2))
    svm = av.models.trigonometric_svm(X, (X[:, 0] > 0).astype(int))
    with pytest.raises(UnsupportedPair, match=r"corrected=True.*family 'process'"):
        av.fit(svm, Laplace(corrected=True), progressbar=False)
    model = av.models.ard_regression(X, X[:, 0])
    with pytest.raises(UnsupportedPair, match=r"not for hyper=Sampled\(\)"):
        av.fit(model, Laplace(corrected=True, hyper=av.Sampled()), progressbar=False)
