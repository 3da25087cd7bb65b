"""Densities in machine code of whole graphs, held against PyMC's own; and what has none."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytest

import ardvark as av
from ardvark.inference.graph.read import read_model
from ardvark.inference.joint.joint import Joint, Uncompiled, differs
from ardvark.inference.joint.parts import conditional_density, joint_of
from ardvark.inference.known_sites.joint_density import gradient_at
from ardvark.inference.pymc_models.compile import quick

rng = np.random.default_rng(20261119)
N, D = 24, 4
X = rng.normal(size=(N, D))
SCORE = X[:, 0] - X[:, 1] + 0.7 * rng.normal(size=N)
LABEL = (SCORE > 0).astype(int)
COUNT = rng.poisson(1.5, N)
GROUP = rng.integers(0, 3, N)
HALF = np.array([0, 0, 1, 1])


def probit() -> Any:
    return av.models.ard_classification(X, LABEL)


def logit() -> Any:
    return av.models.ard_classification(X, LABEL, link="logit", bias=False)


def regression() -> Any:
    return av.models.ard_regression(X, SCORE)


def kernel_machine() -> Any:
    return av.models.rvm_classification(X, LABEL, kernel=av.RBF(width=1.0), prior="shared")


def hierarchy() -> Any:
    with pm.Model() as model:
        spread, noise = pm.HalfNormal("spread", 1.3), pm.HalfCauchy("noise", 2.0)
        centre = pm.Normal("centre", 0.5, 2)
        level = pm.Normal("level", centre, spread, shape=3)
        pm.Normal("t", level[GROUP] + X @ pm.Normal("w", 0, 1, shape=D), noise, observed=SCORE)
    return model


def non_centred() -> Any:
    with pm.Model() as model:
        spread, z = pm.Exponential("spread", 0.7), pm.Normal("z", 0, 1, shape=3)
        pm.Bernoulli("t", logit_p=spread * z[GROUP] + pm.Normal("bias", 0, 2), observed=LABEL)
    return model


def horseshoe() -> Any:
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 0.3)
        local = pm.HalfStudentT("local", nu=3, sigma=1.5, shape=D)
        w = pm.Normal("w", 0, tau * local, shape=D)
        pm.Poisson("t", mu=pm.math.exp(0.3 * X @ w), observed=COUNT)
    return model


def grouped() -> Any:
    with pm.Model() as model:
        alpha, sd = pm.Gamma("alpha", 2, 1.5, shape=2), pm.InverseGamma("sd", 3, 2)
        w = pm.Normal("w", 0, tau=alpha[HALF], shape=D)
        pm.Normal("t", X @ w, sd, observed=SCORE)
    return model


def log_normal() -> Any:
    with pm.Model() as model:
        sd, tau = pm.LogNormal("sd", 0.2, 0.7, shape=2), pm.Gamma("tau", 2, 3)
        pm.Normal("t", X @ pm.Normal("w", 1, sd[HALF], shape=D), tau=tau, observed=SCORE)
    return model


def other_priors() -> Any:
    with pm.Model() as model:
        w = pm.Laplace("w", 0, 1.3, shape=D)
        bias = pm.StudentT("bias", nu=4, mu=0, sigma=2)
        pm.Bernoulli("t", logit_p=bias + X @ w, observed=LABEL)
    return model


# model → variables that are integrated out
GRAPHS: dict[Callable[[], Any], set[str]] = {
    probit: {"alpha", "alpha_bias"},
    logit: {"alpha"},
    regression: {"alpha", "alpha_bias"},
    kernel_machine: {"alpha", "alpha_bias"},
    hierarchy: set(),
    non_centred: set(),
    horseshoe: set(),
    grouped: {"alpha"},
    log_normal: set(),
    other_priors: set(),
}


def joint(model: Any, integrate: bool) -> Joint:
    return joint_of(read_model(model), integrate)


@pytest.mark.parametrize("make", GRAPHS)
def test_density_is_that_of_the_graph(make: Callable[[], Any]) -> None:
    model = make()
    for integrate in (True, False):
        found = joint(model, integrate)
        assert set(found.integrated) == (GRAPHS[make] if integrate else set())
        assert differs(found, model) == ""
        far = found.start + np.random.default_rng(1).normal(0.0, 1.5, (5, found.start.size))
        assert differs(found, model, far) == ""


@pytest.mark.parametrize("make", [regression, hierarchy, non_centred])
def test_gradient_is_that_of_the_graph(make: Callable[[], Any]) -> None:
    model = make()
    found = joint(model, integrate=False)
    with quick():
        slope = model.compile_dlogp(mode="FAST_COMPILE")
    x = found.start + np.random.default_rng(2).normal(0.0, 0.7, found.start.size)
    values, theirs = found.natural(x, np.random.default_rng(0)), []
    point = {}
    for rv in model.free_RVs:
        piece, value = found.pieces[rv.name], values[rv.name]
        point[model.rvs_to_values[rv].name] = np.log(value) if piece.log else value
        theirs.append(np.arange(found.start.size)[piece.at])
    gradient = gradient_at(found.packed, x)[1]
    np.testing.assert_allclose(gradient[np.concatenate(theirs)], slope(point), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("part", range(3))
def test_a_wrong_number_is_seen(part: int) -> None:
    """In the projection, in the prior, in the table of the sites: each by one part in 10⁶."""
    model = regression()
    found = joint(model, integrate=True)
    real, rows = found.packed.real.copy(), N * (D + 1)
    places = (0, rows + 9 * N + 8, rows + N)  # A; a row of the prior's matrix; a target
    real[places[part]] *= 1 + 1e-6
    wrong = Joint(
        found.packed._replace(real=real), found.pieces, found.integrated, found.start,
        found.row_at, found.rows,
    )  # fmt: skip
    assert "log density" in differs(wrong, model)


def test_new_data_are_seen() -> None:
    model = probit()
    before = joint(model, integrate=True)
    model.set_data("t_observed", 1 - LABEL)
    assert differs(before, model) != ""
    assert differs(joint(model, integrate=True), model) == ""


def test_log_rows_and_points() -> None:
    model = hierarchy()
    latent, found = read_model(model), joint(model, integrate=True)
    x = found.start + np.random.default_rng(3).normal(0.0, 0.5, (2, 3, found.start.size))
    values = found.natural(x, np.random.default_rng(0))
    flat = {n: np.reshape(v, (6, *v.shape[2:])) for n, v in values.items()}
    eta = latent.eta_of(flat)
    theirs = latent.log_sites_at(eta, {n: flat[n] for n in latent.hyper})
    np.testing.assert_allclose(found.log_rows(x).reshape(6, -1), theirs, rtol=1e-9)
    one = {n: v[0, 0] for n, v in values.items()}
    np.testing.assert_allclose(found.point(one), x[0, 0], rtol=1e-12)


def test_at_given_hyperparameters() -> None:
    from ardvark.inference.graph.conditional import conditional_model

    latent = read_model(model := probit())
    theta = {"alpha_bias": np.array(1.0), "alpha": np.array([0.5, 3.0, np.inf, 1.0])}
    conditional = conditional_model(latent, theta)
    found = conditional_density(latent.at(theta))
    assert found.start.size == D  # a weight is off
    assert differs(found, conditional.model) == ""
    assert model.free_RVs


def bounded() -> Any:
    with pm.Model() as model:
        sd = pm.Uniform("sd", 0.1, 3)
        pm.Normal("t", X @ pm.Normal("w", 0, 1, shape=D), sd, observed=SCORE)
    return model


def clipped() -> Any:
    """Linear in log sd near the start, and not further out."""
    with pm.Model() as model:
        sd = pm.math.minimum(pm.HalfNormal("sd", 1.0), 3.0)
        pm.Normal("t", X @ pm.Normal("w", 0, sd, shape=D), 1.0, observed=SCORE)
    return model


def nested() -> Any:
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        alpha = pm.Gamma("alpha", 2, rate, shape=D)
        pm.Bernoulli("t", logit_p=X @ pm.Normal("w", 0, tau=alpha, shape=D), observed=LABEL)
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: av.models.rvm_regression(X, SCORE), "width changes the predictor"),
        (bounded, "sd is sampled through Interval"),
        (nested, "prior of alpha"),
    ],
)
def test_what_has_no_density_says_why(make: Callable[[], Any], reason: str) -> None:
    model = make()  # a reading does not keep its model
    with pytest.raises(Uncompiled, match=reason):
        joint(model, integrate=True)


def test_what_is_linear_only_near_by_is_seen() -> None:
    model = clipped()
    assert "log density" in differs(joint(model, integrate=True), model)


def test_a_model_is_freed() -> None:
    model = probit()
    assert differs(joint(model, integrate=True), model) == ""
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
