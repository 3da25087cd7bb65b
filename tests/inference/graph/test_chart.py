"""The unconstrained scale of hyperparameters: against PyMC's own density and differences."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import ardvark as av
from ardvark.inference.graph.read import read_model

RNG = np.random.default_rng(5)
N = 12
X = RNG.normal(size=(N, 3))
TARGET = X @ np.array([1.0, -0.5, 0.2]) + 0.4 * RNG.normal(size=N)
CLASS = RNG.integers(0, 4, size=N)


def scales():
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 1.0)
        share = pm.Beta("share", 2.0, 3.0)
        low = pm.Uniform("low", 0.1, 2.0)
        high = pm.Uniform("high", low, 3.0)  # its bounds are another hyperparameter
        angle = pm.VonMises("angle", 0.0, 1.0)
        nu = pm.Gamma("nu", 3.0, 0.5, shape=2)
        w = pm.Normal("w", pm.math.sin(angle), tau * share + high + nu.sum(), shape=3)
        eta = pm.Deterministic("eta", X @ w)
        pm.Normal("t", eta, low, observed=TARGET)
    return model


def simplex():
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.ones(3))
        tau = pm.HalfNormal("tau", 1.0)
        z = pm.Normal("z", 0.0, 1.0, shape=3)
        eta = pm.Deterministic("eta", X @ (z * tau * pm.math.sqrt(share)))
        pm.Normal("t", eta, 0.4, observed=TARGET)
    return model


def cut_points():
    with pm.Model() as model:
        cuts = pm.Normal(
            "cuts", 0.0, 2.0, shape=3, transform=pm.distributions.transforms.ordered,
            initval=[-1.0, 0.0, 1.0],
        )  # fmt: skip
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        eta = pm.Deterministic("eta", X @ w)
        pm.OrderedLogistic("t", eta=eta, cutpoints=cuts, observed=CLASS, compute_p=False)
    return model


def cholesky_factor():
    with pm.Model() as model:
        factor, _, _ = pm.LKJCholeskyCov("factor", n=3, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0))
        z = pm.Normal("z", 0.0, 1.0, shape=3)
        eta = pm.Deterministic("eta", X @ (factor @ z))
        pm.Normal("t", eta, 0.4, observed=TARGET)
    return model


BUILDERS = [scales, simplex, cut_points, cholesky_factor]


@pytest.fixture(params=BUILDERS, ids=lambda build: build.__name__)
def found(request):
    model = request.param()
    latent = read_model(model)
    chart = latent.adjoint.chart()
    phi = chart.to_line(latent.initial_theta())
    rng = np.random.default_rng(1)
    return model, latent, chart, phi + 0.3 * rng.standard_normal(phi.size)


def test_there_and_back(found):
    _, latent, chart, phi = found
    np.testing.assert_allclose(chart.to_line(chart.from_line(phi)), phi, rtol=1e-9, atol=1e-9)
    assert len(chart.labels) == chart.size == phi.size
    if "share" in latent.hyper and latent.shapes["share"] == (3,):
        assert chart.labels == ["share[0]", "share[1]", "tau"]


def test_prior_and_jacobian_are_pymcs_own(found):
    """log p(θ) + log |dθ/dφ| = PyMC's density of its value variables, weights left out."""
    model, latent, chart, phi = found
    total = chart.log_jacobian(phi)[0] + latent.adjoint.log_prior(chart.from_line(phi))[0]
    with pytensor.config.change_flags(cxx=""):
        point, at = model.initial_point(), 0
    for name in latent.hyper:
        value = model.rvs_to_values[model[name]].name
        size = np.size(point[value])
        point[value] = phi[at : at + size].reshape(np.shape(point[value]))
        at += size
    theirs = [model[name] for name in latent.hyper]
    with pytensor.config.change_flags(cxx=""):
        expected = model.compile_logp(vars=theirs, mode="FAST_COMPILE")(point)
    assert total == pytest.approx(float(expected), abs=1e-6)  # PyTensor's float32 constants


def test_gradients_are_differences(found):
    _, latent, chart, phi = found
    gradient = {
        name: np.cos(np.arange(np.size(value))).reshape(np.shape(value))
        for name, value in latent.initial_theta().items()
    }

    def along(at):
        theta = chart.from_line(at)
        return sum(float((gradient[name] * theta[name]).sum()) for name in theta)

    steps = 1e-5 * np.eye(phi.size)
    pulled = [(along(phi + s) - along(phi - s)) / 2e-5 for s in steps]
    np.testing.assert_allclose(chart.pull(phi, gradient), pulled, rtol=1e-6, atol=1e-8)
    jacobian = [
        (chart.log_jacobian(phi + s)[0] - chart.log_jacobian(phi - s)[0]) / 2e-5 for s in steps
    ]
    np.testing.assert_allclose(chart.log_jacobian(phi)[1], jacobian, rtol=1e-6, atol=1e-8)


def test_some_names_with_the_others_held():
    latent = read_model(simplex())
    theta = {"share": np.array([0.5, 0.3, 0.2]), "tau": np.array(0.7)}
    chart = latent.adjoint.chart(["tau"], theta)
    assert chart.size == 1
    moved = chart.from_line(np.array([0.1]))
    assert moved["tau"] == pytest.approx(np.exp(0.1))
    np.testing.assert_array_equal(moved["share"], theta["share"])
    assert chart.pull(np.array([0.1]), {"share": np.full(3, np.nan), "tau": 2.0}) == pytest.approx(
        2.0 * np.exp(0.1)
    )


def test_discrete_values_have_no_real_line():
    with pm.Model() as model:
        used = pm.Bernoulli("used", 0.5, shape=3)
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        eta = pm.Deterministic("eta", X @ (w * used))
        pm.Normal("t", eta, 1.0, observed=TARGET)
    with pytest.raises(av.errors.UnsupportedPair, match="discrete 'used'"):
        read_model(model, weights="w").adjoint.chart()
