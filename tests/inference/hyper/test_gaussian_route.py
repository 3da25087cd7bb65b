"""The fast route for Gaussian noise: found by value, and the same end as the general one."""

import numpy as np
import pymc as pm
import pytest

import ardvark as av
from ardvark.inference.graph.conjugacy import noise_of
from ardvark.inference.graph.read import read_model

RNG = np.random.default_rng(71)
X = RNG.normal(size=(60, 5))
T = 1.0 + X @ np.array([1.0, -0.6, 0.3, 0.0, 0.0]) + 0.4 * RNG.normal(size=60)


def user_graph(form):
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0, shape=5)
        noise = pm.Gamma("noise", 2.0, 2.0)
        w = pm.Normal("w", 0.0, tau=alpha, shape=5)
        eta = pm.Deterministic("eta", 1.0 + X @ w)
        if form == "sd":
            pm.Normal("t", eta, sigma=noise, observed=T)
        elif form == "precision":
            pm.Normal("t", eta, tau=noise, observed=T)
        elif form == "variance":
            pm.Normal("t", eta, sigma=pm.math.sqrt(noise), observed=T)
        elif form == "by row":
            pm.Normal("t", eta, sigma=noise * np.linspace(1, 2, 60), observed=T)
        elif form == "student":
            pm.StudentT("t", nu=4, mu=eta, sigma=noise, observed=T)
        elif form == "in the mean too":
            pm.Normal("t", eta + noise, sigma=noise, observed=T)
        else:
            pm.Normal("t", eta, sigma=noise + 1.0, observed=T)
    return model


@pytest.mark.parametrize(("form", "power"), [("sd", 1.0), ("precision", -2.0), ("variance", 2.0)])
def test_the_noise_is_found_by_value(form, power):
    noise = noise_of(read_model(user_graph(form)), ("noise",))
    assert noise[:2] == ("noise", power)
    assert noise.sd({"noise": 0.3**power}) == pytest.approx(0.3)
    np.testing.assert_allclose(noise.target, T, rtol=1e-9)


@pytest.mark.parametrize("form", ["by row", "student", "shifted", "in the mean too"])
def test_other_noises_take_the_general_route(form):
    assert noise_of(read_model(user_graph(form)), ("noise",)) is None


@pytest.mark.parametrize("form", ["sd", "precision", "variance"])
def test_both_routes_end_at_the_same_optimum(form, monkeypatch):
    method = av.Laplace(hyper=av.Evidence(tolerance=1e-9))
    fast = av.fit(user_graph(form), method, draws=5, random_seed=0)
    monkeypatch.setattr("ardvark.inference.hyper.ascent.noise_of", lambda latent, rest: None)
    general = av.fit(user_graph(form), method, draws=5, random_seed=0)
    assert fast["fit"].log_evidence.item() == pytest.approx(
        general["fit"].log_evidence.item(), abs=1e-6
    )
    np.testing.assert_array_equal(fast["fit"].active, general["fit"].active)
    np.testing.assert_allclose(fast["theta"].alpha, general["theta"].alpha, rtol=1e-3)
    assert fast["theta"].noise.item() == pytest.approx(general["theta"].noise.item(), rel=1e-4)


def test_the_path_names_what_was_added():
    tree = av.fit(av.models.ard_regression(X, T), "laplace", draws=5, random_seed=0)
    path = tree["selection_path"]
    assert path.action.values[0] == "start" and path.n_active.values[0] == 0
    assert (path.active.values[-1] == tree["fit"].active.values).all()
    assert path.log_evidence.values[-1] == pytest.approx(tree["fit"].log_evidence.item())
    added = set(path.feature_changed.values[path.action.values == "add"])
    assert {"bias", "w[x0]", "w[x1]"} <= added


def test_fixed_noise_stays():
    tree = av.fit(av.models.ard_regression(X, T, noise=0.5), "laplace", draws=5, random_seed=0)
    assert "sigma" not in tree["posterior"] and tree.attrs["converged"]
