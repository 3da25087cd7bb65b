"""Evidence over hyperparameters: gradients against differences, optima against brute force."""

import numpy as np
import pymc as pm
import pytest
from scipy import optimize

import ardvark as av
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import Evidence
from ardvark.inference.hyper.settle import settle
from ardvark.inference.laplace import Laplace

RNG = np.random.default_rng(31)
N = 25
X = RNG.normal(size=(N, 3))
SIGNAL = X @ np.array([1.2, -0.7, 0.0])
TARGET = 0.5 + SIGNAL + 0.3 * RNG.normal(size=N)
LABEL = (SIGNAL + 0.7 * RNG.normal(size=N) > 0).astype(int)
COUNT = RNG.poisson(np.exp(0.4 * SIGNAL))


def quiet(text):
    pass


def shared_precision():
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        w = pm.Normal("w", 0.0, tau=alpha, shape=3)
        eta = pm.Deterministic("eta", X @ w)
        pm.Bernoulli("t", logit_p=eta, observed=LABEL)
    return model


def robust_non_centred():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        noise = pm.HalfNormal("noise", 1.0)
        nu = pm.Gamma("nu", 3.0, 0.3)
        z = pm.Normal("z", 0.0, 1.0, shape=3)
        eta = pm.Deterministic("eta", X @ (scale * z))
        pm.StudentT("t", nu=nu, mu=eta, sigma=noise, observed=TARGET)
    return model


def hierarchical_mean():
    with pm.Model() as model:
        centre = pm.Normal("centre", 0.0, 1.0)
        scale = pm.Uniform("scale", 0.1, 5.0)
        w = pm.Normal("w", centre, scale, shape=3)
        eta = pm.Deterministic("eta", X @ w)
        pm.Poisson("t", pm.math.exp(eta), observed=COUNT)
    return model


def gaussian_process():
    with pm.Model() as model:
        length = pm.Gamma("length", 2.0, 1.0, shape=2)
        height = pm.HalfNormal("height", 2.0)
        cov = height**2 * pm.gp.cov.ExpQuad(2, ls=length)
        f = pm.gp.Latent(cov_func=cov).prior("f", X[:, :2], reparameterize=False, jitter=1e-4)
        pm.Bernoulli("t", logit_p=f, observed=LABEL)
    return model


CASES = [
    (shared_precision, {}),
    (robust_non_centred, {}),
    (hierarchical_mean, {}),
    (gaussian_process, {"weights": "f", "predictor": "f"}),
]


@pytest.mark.parametrize(("build", "names"), CASES, ids=[c[0].__name__ for c in CASES])
def test_gradient_of_the_evidence_equals_differences(build, names):
    model = build()
    latent, method = read_model(model, **names), Laplace(tolerance=1e-14)
    theta = {name: value * 1.1 + 0.05 for name, value in latent.initial_theta().items()}

    def evidence(values):
        return method.approximate(latent.at(values)).log_evidence

    site_model = latent.at(theta)
    fit = method.approximate(site_model)
    gradient = latent.pull(theta, method.evidence_gradient(site_model, fit))
    for name, value in theta.items():
        for index in np.ndindex(np.shape(value)):
            step = np.zeros_like(value)
            step[index] = 1e-4
            up, down = (
                evidence({**theta, name: value + step}),
                evidence({**theta, name: value - step}),
            )
            # Central differences of step h: h² of the third derivative plus rounding / h.
            assert gradient[name][index] == pytest.approx((up - down) / 2e-4, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("with_prior", [False, True])
def test_the_optimum_is_that_of_a_search_without_gradients(with_prior):
    model = shared_precision()
    latent, method = read_model(model), Laplace()
    settled = settle(latent, method, Evidence(with_prior=with_prior), quiet)

    def loss(u):
        theta = {"alpha": np.exp(u)}
        prior = latent.adjoint.log_prior(theta)[0] if with_prior else 0.0
        return -method.approximate(latent.at(theta)).log_evidence - prior

    found = optimize.minimize_scalar(
        loss, bounds=(-6, 6), method="bounded", options={"xatol": 1e-9}
    )
    assert settled.converged
    assert np.log(settled.theta["alpha"]) == pytest.approx(found.x, abs=1e-4)


def test_the_hyperprior_is_the_models_own():
    model = hierarchical_mean()
    latent = read_model(model, weights="w")  # or `centre` would be one too
    theta = {"centre": np.array(0.3), "scale": np.array(1.7)}
    value, gradient = latent.adjoint.log_prior(theta)
    expected = -0.5 * 0.3**2 - 0.5 * np.log(2 * np.pi) - np.log(4.9)
    assert value == pytest.approx(expected, abs=1e-7)  # PyTensor's float32 constants
    assert gradient["centre"] == pytest.approx(-0.3) and gradient["scale"] == pytest.approx(0.0)


def test_to_the_real_line_and_back():
    latent = read_model(hierarchical_mean(), weights="w")
    theta = {"centre": np.array(-0.4), "scale": np.array(1.3)}
    free = latent.adjoint.unconstrain(theta)
    back = latent.adjoint.constrain(free)
    assert free["scale"] == pytest.approx(np.log((1.3 - 0.1) / (5.0 - 1.3)))
    assert back["scale"] == pytest.approx(1.3) and back["centre"] == pytest.approx(-0.4)


def test_regression_settles_precisions_and_noise_together():
    model = av.models.ard_regression(X, TARGET)
    latent, method = read_model(model), Laplace()
    settled = settle(latent, method, Evidence(), quiet)
    assert settled.converged and set(latent.ard_precisions) == {"alpha", "alpha_bias"}
    best = settled.fit.log_evidence
    for factor in (0.9, 1.1):  # no hyperparameter alone can do better
        sigma = settled.theta["sigma"] * factor
        assert method.approximate(latent.at({**settled.theta, "sigma": sigma})).log_evidence < best
        for j in np.flatnonzero(np.isfinite(settled.theta["alpha"])):
            alpha = settled.theta["alpha"].copy()
            alpha[j] *= factor
            assert (
                method.approximate(latent.at({**settled.theta, "alpha": alpha})).log_evidence < best
            )
    # The irrelevant input is out, or its weight is small against the noise in it.
    assert np.isinf(settled.theta["alpha"][2]) or settled.theta["alpha"][2] > 10
    assert settled.theta["sigma"] == pytest.approx(0.3, rel=0.5)


def one_weight(seed, own_precision):
    """The same model with the precision of its weight, or with a scale in its predictor."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=20)
    label = (x + rng.logistic(size=20) > 0).astype(int)
    with pm.Model() as model:
        if own_precision:
            alpha = pm.Gamma("alpha", 2.0, 1.0, shape=1)
            eta = x * pm.Normal("w", 0.0, tau=alpha, shape=1)[0]
        else:
            eta = pm.HalfNormal("scale", 1.0) * x * pm.Normal("w", 0.0, 1.0)
        pm.Bernoulli("t", logit_p=pm.Deterministic("eta", eta), observed=label)
    return model


@pytest.mark.parametrize("seed", [0, 4, 8])
def test_a_precision_and_a_scale_end_at_the_same_evidence(seed):
    """Precisions went by steps that take sites as fixed: 2.34 for 1.81 on such data, converged."""
    steps = settle(read_model(one_weight(seed, True)), Laplace(), Evidence(), quiet)
    ascent = settle(read_model(one_weight(seed, False)), Laplace(), Evidence(), quiet)
    assert steps.converged and ascent.converged
    assert steps.fit.log_evidence == pytest.approx(ascent.fit.log_evidence, abs=1e-6)
    assert steps.theta["alpha"].item() == pytest.approx(ascent.theta["scale"] ** -2.0, rel=1e-3)


@pytest.mark.parametrize("algorithm", ["sequential", "mackay", "em"])
def test_precisions_and_the_rest_end_stationary(algorithm):
    """Every algorithm; a kernel width is searched for in turns with them."""
    rows = RNG.normal(size=(40, 2))
    label = (np.hypot(*rows.T) + 0.3 * RNG.normal(size=40) > 1.1).astype(int)
    width = None if algorithm == "sequential" else 1.0
    latent = read_model(av.models.rvm_classification(rows, label, kernel=av.RBF(width=width)))
    method = Laplace()
    settled = settle(latent, method, Evidence(algorithm=algorithm), quiet)
    assert settled.converged and settled.path is not None
    np.testing.assert_array_equal(settled.path.path[-1].precision, settled.path.precision)
    slopes = method.evidence_gradient(settled.model, settled.fit).precision
    on = np.isfinite(settled.model.precision)
    assert np.abs(slopes[on] * settled.model.precision[on]).max() < 1e-3


def test_a_start_is_taken():
    model = av.models.ard_classification(X, LABEL)
    everything = {"alpha": np.ones(3), "alpha_bias": 1.0}
    tree = av.fit(model, av.Laplace(hyper=Evidence(start=everything)), draws=5, random_seed=0)
    assert tree["selection_path"].n_active.values[0] == 4
    default = av.fit(model, "laplace", draws=5, random_seed=0)
    assert default["selection_path"].n_active.values[0] == 0


def test_a_bounded_precision_is_not_pruned_beyond_its_support():
    with pm.Model() as model:
        alpha = pm.Uniform("alpha", 0.0, 10.0, shape=3)
        w = pm.Normal("w", 0.0, tau=alpha, shape=3)
        eta = pm.Deterministic("eta", X @ w)
        pm.Bernoulli("t", logit_p=eta, observed=LABEL)
    latent = read_model(model)
    assert latent.ard_precisions == {}
    settled = settle(latent, Laplace(), Evidence(), quiet)
    assert (settled.theta["alpha"] <= 10.0).all()


def test_discrete_hyperparameters_cannot_be_optimised():
    with pm.Model() as model:
        on = pm.Bernoulli("on", 0.5, shape=3)
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        eta = pm.Deterministic("eta", X @ (w * on))
        pm.Bernoulli("t", logit_p=eta, observed=LABEL)
    with pytest.raises(av.errors.UnsupportedPair, match="discrete 'on'"):
        av.fit(model, av.Laplace(weights="w"))
