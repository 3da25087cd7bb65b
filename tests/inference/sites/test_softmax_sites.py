"""Softmax rows by Laplace: the algebra of coupled rows, and a user's own Categorical graph."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import optimize
from scipy.special import softmax

import ardvark as av
from ardvark.errors import UnreadableModel, UnsupportedPair
from ardvark.inference.graph.read import read_model
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import condition
from ardvark.inference.sites.softmax import SoftmaxSites

N, K, D = 12, 3, 5


def arrays(seed: int, total: int = 1) -> SiteModel:
    rng = np.random.default_rng(seed)
    projection, offset = rng.normal(size=(N * K, D)), 0.3 * rng.normal(size=N * K)
    counts = np.array([rng.multinomial(total, softmax(rng.normal(size=K))) for _ in range(N)])
    return SiteModel(
        mean=0.2 * rng.normal(size=D),
        projection=projection,
        offset=offset,
        sites=SoftmaxSites(counts.astype(float), np.zeros(N)),
        precision=rng.uniform(0.5, 2.0, D),
    )


def hessian(function, x: np.ndarray, step: float = 1e-4) -> np.ndarray:
    eye = step * np.eye(x.size)
    corners = [
        [function(x + i + j) - function(x + i - j) for j in eye]
        + [function(x - i - j) - function(x - i + j) for j in eye]
        for i in eye
    ]
    plus, minus = np.hsplit(np.array(corners), 2)
    return (plus + minus) / (4.0 * step**2)


@pytest.mark.parametrize("total", [1, 4])
@pytest.mark.parametrize("space", ["weights", "functions"])
def test_mode_covariance_and_evidence_are_laplaces(total, space):
    model = arrays(1, total)
    fit = Laplace(space=space).approximate(model)
    found = optimize.minimize(lambda w: -float(model.log_joint(w)), np.zeros(D), tol=1e-10)
    assert fit.converged
    np.testing.assert_allclose(fit.posterior.mean, found.x, atol=2e-5)  # BFGS stops there
    curvature = -hessian(lambda w: float(model.log_joint(w)), fit.posterior.mean)
    np.testing.assert_allclose(
        np.linalg.inv(fit.posterior.covariance), curvature, rtol=2e-6, atol=1e-5
    )
    log_z = float(model.log_joint(fit.posterior.mean)) + 0.5 * (
        D * np.log(2 * np.pi) - np.linalg.slogdet(curvature)[1]
    )
    assert fit.log_evidence == pytest.approx(log_z, abs=1e-5)


@pytest.mark.parametrize("dense", [False, True])
def test_adjoints_by_differences(dense):
    """Every adjoint of the evidence along a random direction, mode and curvature moving with it."""
    model, rng = arrays(2, 3), np.random.default_rng(3)
    if dense:
        root = rng.normal(size=(D, D))
        model = SiteModel(
            model.mean,
            model.projection,
            model.offset,
            model.sites,
            covariance=root @ root.T + np.eye(D),
        )
    rule = Laplace(tolerance=1e-14)
    bar = rule.evidence_gradient(model, rule.approximate(model))
    parts = ("mean", "projection", "offset", "covariance" if dense else "precision")
    for part in parts:
        value = getattr(model, part)
        direction = 0.1 * rng.normal(size=value.shape)
        if part == "covariance":
            direction = direction + direction.T

        def at(step, part=part, value=value, direction=direction):
            fields = {name: getattr(model, name) for name in SiteModel.__slots__}
            return rule.approximate(
                SiteModel(**{**fields, part: value + step * direction})
            ).log_evidence

        slope = (at(1e-4) - at(-1e-4)) / 2e-4
        assert slope == pytest.approx(
            float((getattr(bar, part) * direction).sum()), rel=1e-6, abs=1e-8
        )


def test_conditioning_again_on_the_sites_of_a_fit_gives_its_posterior():
    model = arrays(4)
    fit = Laplace().approximate(model)
    again = condition(model, fit.site_precision, fit.site_shift)
    np.testing.assert_allclose(again.mean, fit.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(again.covariance, fit.posterior.covariance, atol=1e-10)


def test_two_classes_are_the_logistic_model():
    """Softmax over (eta, 0) has the evidence and the posterior of a logit."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(30, 2)), rng.integers(0, 2, 30)
    with pytensor.config.change_flags(cxx=""), pm.Model() as two:
        b = pm.Normal("b", 0, 1.5, shape=2)
        eta = pt.stack([pt.zeros(30), x @ b], axis=1)
        pm.Categorical("y", logit_p=eta, observed=y)
    with pytensor.config.change_flags(cxx=""), pm.Model() as logit:
        b = pm.Normal("b", 0, 1.5, shape=2)
        pm.Bernoulli("y", logit_p=x @ b, observed=y)
    a, c = (Laplace().approximate(read_model(model).at()) for model in (two, logit))
    assert a.log_evidence == pytest.approx(c.log_evidence, abs=1e-9)
    np.testing.assert_allclose(a.posterior.mean, c.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(a.posterior.covariance, c.posterior.covariance, atol=1e-9)


def own_graph(kind: str):
    rng = np.random.default_rng(6)
    x, truth = rng.normal(size=(40, 2)), rng.normal(size=(2, K))
    with pytensor.config.change_flags(cxx=""), pm.Model() as model:
        scale = pm.HalfNormal("scale", 2.0)
        b = pm.Normal("b", 0, scale, shape=(2, K))
        if kind == "categorical":
            y = [rng.choice(K, p=softmax(row @ truth)) for row in x]
            pm.Categorical("y", p=pm.math.softmax(x @ b, axis=-1), observed=y)
        elif kind == "multinomial":
            y = np.array([rng.multinomial(6, softmax(row @ truth)) for row in x])
            pm.Multinomial("y", n=6, p=pm.math.softmax(x @ b, axis=-1), observed=y)
        else:  # a temperature of its own: no softmax of the affine node
            y = [rng.choice(K, p=softmax(row @ truth)) for row in x]
            p = pm.math.softmax(x @ b, axis=-1) ** 2
            pm.Categorical("y", p=p / p.sum(axis=-1, keepdims=True) * 0.9 + 0.1 / K, observed=y)
    return model


@pytest.mark.parametrize("kind", ["categorical", "multinomial"])
def test_a_graph_of_ones_own(kind):
    """Weights and scale together, against importance sampling from the fit itself."""
    model = own_graph(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.AccuracyWarning)
        tree = av.fit(model, "laplace", draws=500, random_seed=1, progressbar=False)
    assert tree.attrs["hyper"] == "integrated"
    assert tree["log_likelihood"]["y"].shape == (4, 500, 40)
    # The log likelihood of the tree is PyMC's own.
    posterior = tree["posterior"].to_dataset().isel(draw=slice(0, 3), chain=slice(0, 1))
    with pytensor.config.change_flags(cxx=""):
        own = pm.compute_log_likelihood(
            xr.DataTree.from_dict({"posterior": posterior}), model=model,
            progressbar=False, extend_inferencedata=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )["y"].values  # fmt: skip
    np.testing.assert_allclose(
        tree["log_likelihood"]["y"].values[:1, :3], own, rtol=1e-6, atol=1e-6
    )
    # Importance weights correct the means by little: the approximation is near the posterior.
    stats = tree["sample_stats"]
    log_ratio = (stats["lp"] - stats["log_approximation"]).values.ravel()
    ratio = np.exp(log_ratio - log_ratio.max())
    b = tree["posterior"]["b"].values.reshape((-1, 2 * K))
    shift = (ratio @ b / ratio.sum() - b.mean(axis=0)) / b.std(axis=0)
    assert np.abs(shift).max() < 0.3


def test_what_is_no_softmax_is_refused_and_ep_says_why():
    with pytest.raises(UnreadableModel, match="no softmax"):
        read_model(own_graph("other"))
    with pytest.raises(UnsupportedPair, match="couples all predictors"):
        av.fit(own_graph("categorical"), "ep", draws=10, progressbar=False)
