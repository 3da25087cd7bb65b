"""The multinomial Laplace in arrays: algebra, two spaces, two classes, gradients, probabilities."""

import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.special import expit, log_expit
from scipy.stats import multivariate_normal

from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import LogitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.softmax.ard import fixed_point_softmax
from ardvark.inference.softmax.laplace import fit_multinomial
from ardvark.inference.softmax.model import SoftmaxModel, eta_covariance
from ardvark.inference.softmax.run import mean_probabilities

rng = np.random.default_rng(20260801)


def problem(rows=25, columns=6, classes=3, off=True):
    Phi = rng.normal(size=(rows, columns))
    precision = rng.gamma(2.0, 0.5, size=(classes, columns))
    if off:
        precision[1, 2] = np.inf
    return SoftmaxModel(Phi, rng.integers(0, classes, rows), precision)


def lp(model, flat):
    """psi at the weights that are on, written as it stands in the text."""
    w = np.zeros(model.precision.shape)
    w[model.on] = flat
    total = -0.5 * np.sum(model.precision[model.on] * flat**2)
    for phi, k in zip(model.projection, model.codes, strict=True):
        eta = w @ phi
        total += eta[k] - np.log(np.sum(np.exp(eta)))
    return total


def hessian(f, x, step=1e-3):
    size, found = x.size, np.empty((x.size, x.size))
    unit = np.eye(size) * step
    for i in range(size):
        for j in range(size):
            found[i, j] = f(x + unit[i] + unit[j]) - f(x + unit[i] - unit[j])
            found[i, j] -= f(x - unit[i] + unit[j]) - f(x - unit[i] - unit[j])
    return found / (4 * step**2)


@pytest.mark.parametrize("space", ["weights", "functions"])
def test_mode_covariance_and_evidence_are_those_of_the_definition(space):
    model = problem(rows=12, columns=3)
    fit = fit_multinomial(model, space=space)
    flat = fit.mean[model.on]

    def psi(x):
        return lp(model, x)

    steps = 1e-5 * np.eye(flat.size)
    slope = [(psi(flat + s) - psi(flat - s)) / 2e-5 for s in steps]
    assert fit.converged and np.abs(slope).max() < 1e-8
    information = -hessian(psi, flat)
    # Second differences with step 1e-3 carry an error of that square.
    np.testing.assert_allclose(np.linalg.inv(fit.covariance), information, atol=2e-5)
    alpha = model.precision[model.on]
    expected = psi(flat) + 0.5 * np.log(alpha).sum() - 0.5 * np.linalg.slogdet(information)[1]
    assert fit.log_evidence == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("rows", "columns", "classes"), [(8, 20, 3), (40, 4, 3), (15, 15, 5)])
def test_the_two_spaces_agree(rows, columns, classes):
    model = problem(rows, columns, classes)
    a = fit_multinomial(model, space="weights")
    b = fit_multinomial(model, space="functions")
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-8)
    for name in ("mean", "covariance", "marginal_variance"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=1e-8)
    np.testing.assert_allclose(a.space.eta_covariance(), b.space.eta_covariance(), atol=1e-8)
    np.testing.assert_allclose(a.precision_gradient(), b.precision_gradient(), atol=1e-8)
    np.testing.assert_allclose(a.projection_gradient(), b.projection_gradient(), atol=1e-8)
    w = a.draws(3, np.random.default_rng(1))
    np.testing.assert_allclose(w, b.draws(3, np.random.default_rng(1)), atol=1e-8)
    np.testing.assert_allclose(a.log_density(w), b.log_density(w), atol=1e-8)
    assert np.all(w[:, ~model.on] == 0) and np.all(a.mean[~model.on] == 0)


def test_printed_determinant_without_the_sum_of_E_would_be_wrong():
    """The control: algorithm 3.3 as printed leaves a term out, which is not small here."""
    model = problem(10, 10, 3)
    space = fit_multinomial(model, space="functions").space
    assert abs(np.log(space.total.diagonal()).sum()) > 0.1


def test_two_classes_are_the_logit_of_the_difference():
    """w = w_1 - w_0 ~ N(0, 1/alpha_0 + 1/alpha_1); what is left, a_0 w_0 + a_1 w_1, is its prior.

    The likelihood sees w alone and the prior of the two is independent, so mode, evidence and
    covariance of w are those of two-class Laplace at precision 1/(1/alpha_0 + 1/alpha_1).
    """
    model = problem(30, 4, 2, off=False)
    several = fit_multinomial(model)
    both = SiteModel(
        mean=np.zeros(4),
        projection=model.projection,
        offset=np.zeros(30),
        sites=LogitSites(2.0 * model.codes - 1.0),
        precision=1.0 / (1.0 / model.precision).sum(axis=0),
    )
    two = Laplace().approximate(both)
    assert several.log_evidence == pytest.approx(two.log_evidence, abs=1e-10)
    np.testing.assert_allclose(several.mean[1] - several.mean[0], two.posterior.mean, atol=1e-8)
    V = several.covariance.reshape(2, 4, 2, 4)
    np.testing.assert_allclose(
        V[1, :, 1] + V[0, :, 0] - V[1, :, 0] - V[0, :, 1], two.posterior.covariance, atol=1e-8
    )
    balance = model.precision[0] * several.mean[0] + model.precision[1] * several.mean[1]
    np.testing.assert_allclose(balance, 0.0, atol=1e-8)
    # d log Z / d log alpha_k through 1/a = 1/alpha_0 + 1/alpha_1: the share a / alpha_k of d log a
    slope = Laplace().evidence_gradient(both, two).precision * both.precision
    shares = both.precision / model.precision
    np.testing.assert_allclose(several.precision_gradient(), shares * slope, atol=1e-8)


def central(f, step=1e-3):
    """Derivative at 0, error of the fourth order."""
    return (8 * (f(step) - f(-step)) - (f(2 * step) - f(-2 * step))) / (12 * step)


@pytest.mark.parametrize("space", ["weights", "functions"])
def test_gradients_of_the_evidence_against_finite_differences(space):
    model = problem()
    fit = fit_multinomial(model, space=space)

    def evidence(projection, precision):
        moved = SoftmaxModel(projection, model.codes, precision)
        return fit_multinomial(moved, space=space).log_evidence

    gradient = fit.precision_gradient()
    alpha = np.where(model.on, model.precision, 0.0)
    explicit = 0.5 * (1 - alpha * (fit.mean**2 + fit.marginal_variance))
    for place in [(0, 0), (1, 3), (2, 5)]:

        def along_precision(step, place=place):
            moved = model.precision.copy()
            moved[place] *= np.exp(step)
            return evidence(model.projection, moved)

        assert central(along_precision) == pytest.approx(gradient[place], abs=1e-6)
    assert gradient[1, 2] == 0.0
    # Without the move of the mode the gradient would be wrong by more than a thousand tolerances.
    assert np.nanmax(np.abs(np.where(model.on, explicit - gradient, 0.0))) > 1e-3
    outer = fit.projection_gradient()
    for place in [(0, 0), (7, 2), (24, 5)]:

        def along_projection(step, place=place):
            moved = model.projection.copy()
            moved[place] += step
            return evidence(moved, model.precision)

        assert central(along_projection) == pytest.approx(outer[place], abs=1e-6)


def test_draws_have_the_moments_of_the_gaussian():
    model = problem(20, 3)
    fit = fit_multinomial(model)
    number = 20_000
    flat = fit.draws(number, np.random.default_rng(3))[:, model.on]
    sd = np.sqrt(fit.covariance.diagonal())
    assert np.abs((flat.mean(axis=0) - fit.mean[model.on]) / sd).max() < 5 / np.sqrt(number)
    whitened = np.linalg.solve(np.linalg.cholesky(fit.covariance), (flat - flat.mean(axis=0)).T)
    assert np.abs(whitened @ whitened.T / number - np.eye(len(sd))).max() < 6 / np.sqrt(number)
    gaussian = multivariate_normal(fit.mean[model.on], fit.covariance)
    w = fit.draws(4, np.random.default_rng(4))
    np.testing.assert_allclose(fit.log_density(w), gaussian.logpdf(w[:, model.on]), atol=1e-8)


def test_predictors_far_out_do_no_harm():
    model = SoftmaxModel(
        np.column_stack([np.ones(6), [-900.0, -800, 0, 1, 800, 900]]),
        np.array([0, 0, 1, 1, 2, 2]),
        np.full((3, 2), 1e-6),
    )
    for space in ("weights", "functions"):
        fit = fit_multinomial(model, space=space)
        assert fit.converged and np.isfinite(fit.log_evidence)
        assert np.isfinite(fit.covariance).all()


def test_too_few_iterations_are_admitted():
    assert not fit_multinomial(problem(), max_iterations=1).converged


def test_what_cannot_be_a_model_is_refused():
    with pytest.raises(ValueError, match="codes must lie in"):
        SoftmaxModel(np.ones((2, 1)), np.array([0, 3]), np.ones((3, 1)))
    with pytest.raises(ValueError, match="needs 2 codes"):
        SoftmaxModel(np.ones((2, 1)), np.array([0]), np.ones((3, 1)))
    with pytest.raises(ValueError, match="positive"):
        SoftmaxModel(np.ones((2, 1)), np.array([0, 1]), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="switched off"):
        fit_multinomial(SoftmaxModel(np.ones((1, 1)), np.array([0]), np.full((2, 1), np.inf)))
    with pytest.raises(ValueError, match="space must be"):
        fit_multinomial(problem(), space="both")


@pytest.mark.parametrize("algorithm", ["mackay", "em"])
def test_fixed_points_are_stationary_under_a_fixed_curvature(algorithm):
    Phi = rng.normal(size=(30, 2))
    score = np.column_stack([2 * Phi[:, 0], 2 * Phi[:, 1], -Phi.sum(axis=1)])
    codes = (score + rng.normal(size=score.shape)).argmax(axis=1)
    model = SoftmaxModel(Phi, codes, np.ones((3, 2)))

    def fit(model, start):
        return fit_multinomial(model, start=start)

    end = fixed_point_softmax(model, fit, algorithm=algorithm, tolerance=1e-5)
    assert end.converged
    on = end.fit.model.on
    moment = (end.fit.mean**2 + end.fit.marginal_variance)[on]
    gamma = 1.0 - end.precision[on] * end.fit.marginal_variance[on]
    assert np.abs((1 - end.precision[on] * moment)[gamma > 0.1]).max() < 1e-3
    early = fixed_point_softmax(model, fit, algorithm=algorithm, max_steps=1)
    assert not early.converged and early.steps == 1


# --- averaged probabilities -------------------------------------------------------------------


def test_probabilities_of_two_classes_against_quadrature():
    """Two predictors enter by their difference: one dimension, done by a fine rule."""
    mean = np.array([[0.3, -0.8], [2.0, 0.1], [0.0, 0.0]])
    roots = np.array([[[1.0, 0.0], [0.4, 0.7]], [[2.0, 0.0], [1.0, 1.5]], [[0.1, 0.0], [0.0, 0.1]]])
    covariance = roots @ np.swapaxes(roots, 1, 2)
    found = mean_probabilities(mean, covariance)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    difference = mean[:, 1] - mean[:, 0]
    sd = np.sqrt(covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1])
    exact = expit(difference[:, None] + sd[:, None] * nodes) @ weights / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(found[:, 1], exact, atol=1e-5)


def test_probabilities_of_three_classes_against_integration():
    mean, covariance = np.array([[0.5, -1.0, 0.3]]), np.diag([2.0, 1.0, 0.0])[None]

    def density(y, x):
        eta = mean[0] + [np.sqrt(2.0) * x, y, 0.0]
        e = np.exp(eta - eta.max())
        return e[0] / e.sum() * np.exp(-0.5 * (x * x + y * y)) / (2 * np.pi)

    exact, _ = dblquad(density, -8, 8, -8, 8, epsabs=1e-7)
    assert mean_probabilities(mean, covariance)[0, 0] == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("classes", [3, 10])
def test_probabilities_sum_to_one_and_do_not_change(classes):
    mean = 30.0 * rng.normal(size=(50, classes))
    root = 3.0 * rng.normal(size=(50, classes, classes))
    covariance = root @ np.swapaxes(root, 1, 2)
    found = mean_probabilities(mean, covariance)
    assert np.abs(found.sum(axis=1) - 1).max() < 1e-12 and found.min() >= 0
    np.testing.assert_array_equal(found, mean_probabilities(mean, covariance))
    shifted = mean_probabilities(mean + 7.0, covariance + 4.0)  # what all predictors share
    np.testing.assert_allclose(shifted, found, atol=1e-9)


def test_without_spread_the_softmax_itself():
    mean = rng.normal(size=(4, 3))
    expected = np.exp(mean) / np.exp(mean).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mean_probabilities(mean, np.zeros((4, 3, 3))), expected, atol=1e-14)


def test_covariance_of_predictors_by_rows():
    model = problem(9, 4)
    fit = fit_multinomial(model, space="weights")
    w = np.zeros((model.on.sum(), *model.on.shape))
    w[:, model.on] = np.linalg.cholesky(fit.covariance).T  # columns of a root, as weights
    eta = model.predictor(w)  # (D, N, K)
    expected = np.einsum("dnk,dnl->nkl", eta, eta)
    found = eta_covariance(model.projection, model.on, fit.covariance)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_log_likelihood_is_the_log_softmax():
    model = problem(5, 2, off=False)
    eta = rng.normal(size=(7, 5, 3))
    expected = np.log(np.exp(eta) / np.exp(eta).sum(axis=-1, keepdims=True))
    rows = np.arange(5)
    np.testing.assert_allclose(
        model.log_likelihood(eta), expected[:, rows, model.codes], atol=1e-12
    )
    two = SoftmaxModel(model.projection, np.array([0, 1, 1, 0, 1]), np.ones((2, 2)))
    odds = np.stack([np.zeros(5), eta[0, :, 0]], axis=-1)
    sign = 2.0 * two.codes - 1.0
    np.testing.assert_allclose(two.log_likelihood(odds), log_expit(sign * eta[0, :, 0]), atol=1e-12)
