"""Several outcomes, missing values, potentials, likelihoods that a user writes."""

import warnings
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from own_models.case import block, case
from own_models.regression import inputs


@block("two outcomes share coefficients: rows of unlike likelihoods are stacked")
def two_outcomes() -> None:
    X, score, rng = inputs(301, n=50)
    grade = 0.2 + score + 0.5 * rng.normal(size=50)
    passed = (score + rng.logistic(size=50) > 0).astype(int)
    b = pm.Normal("b", 0, 1, shape=3)
    a_grade = pm.Normal("a_grade", 0, 2)
    a_passed = pm.Normal("a_passed", 0, 2)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("grade", a_grade + X @ b, sigma, observed=grade)
    pm.Bernoulli("passed", logit_p=a_passed + X @ b, observed=passed)


@case("counts and a measurement share an effect of each subject", target_accept=0.95)
def joint_subject_effects() -> Any:
    rng = np.random.default_rng(302)
    subject = np.repeat(np.arange(15), 5)
    effect = 0.6 * rng.normal(size=15)
    visits = rng.poisson(np.exp(1 + effect[subject]))
    marker = 2 + 1.0 * effect[subject] + 0.5 * rng.normal(size=75)
    with pm.Model(coords={"subject": range(15)}) as model:
        mu = pm.Normal("mu", 0, 2)
        level = pm.Normal("level", 0, 5)
        tau = pm.HalfNormal("tau", 1)
        u = pm.Normal("u", 0, 1, dims="subject")
        sigma = pm.HalfNormal("sigma", 1)
        pm.Poisson("visits", mu=pm.math.exp(mu + tau * u[subject]), observed=visits)
        pm.Normal("marker", level + tau * u[subject], sigma, observed=marker)
    return model


@block("inputs measured with error: the true inputs are weights, their slope is not")
def measurement_error() -> None:
    rng = np.random.default_rng(303)
    true = rng.normal(1, 1, size=40)
    x, y = true + 0.4 * rng.normal(size=40), 0.5 + 0.8 * true + 0.3 * rng.normal(size=40)
    mu_x = pm.Normal("mu_x", 0, 2)
    tau_x = pm.HalfNormal("tau_x", 2)
    x_true = pm.Normal("x_true", mu_x, tau_x, shape=40)
    a = pm.Normal("a", 0, 2)
    slope = pm.Normal("slope", 0, 2)
    sigma = pm.InverseGamma("sigma", 3, 1)
    pm.Normal("x", x_true, 0.4, observed=x)
    pm.Normal("y", a + slope * x_true, sigma, observed=y)


@block("missing outcomes as NaN: PyMC imputes them")
def missing_outcomes() -> None:
    X, score, rng = inputs(304, n=40, d=2)
    y = 1 + score + 0.5 * rng.normal(size=40)
    y[[3, 11, 25]] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC says that it imputes
        a = pm.Normal("a", 0, 2)
        b = pm.Normal("b", 0, 2, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", a + X @ b, sigma, observed=y)


@block("a masked array of outcomes under hierarchical means")
def missing_in_groups() -> None:
    rng = np.random.default_rng(305)
    group = np.repeat(np.arange(8), 6)
    y = np.ma.masked_invalid(2 + 0.7 * rng.normal(size=8)[group] + 0.5 * rng.normal(size=48))
    y[[0, 20, 21]] = np.ma.masked
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfNormal("tau", 2)
        level = pm.Normal("level", mu, tau, shape=8)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", level[group], sigma, observed=y)


@block("a potential on the noise: it belongs to the prior of θ")
def potential_on_theta() -> None:
    X, score, rng = inputs(306, n=40, d=2)
    b = pm.Normal("b", 0, 2, shape=2)
    sigma = pm.HalfNormal("sigma", 2)
    pm.Potential("jeffreys", -pt.log(sigma))
    pm.Normal("y", X @ b, sigma, observed=score + 0.6 * rng.normal(size=40))


@block("a potential on differences of coefficients: sites of its own")
def potential_on_weights() -> None:
    X, score, rng = inputs(307, n=60)
    y = (score + rng.logistic(size=60) > 0).astype(int)
    b = pm.Normal("b", 0, 2, shape=3)
    pm.Potential("falling", pt.log(pm.math.sigmoid(10 * (b[:-1] - b[1:]))))
    pm.Bernoulli("y", logit_p=X @ b, observed=y)


@block("the likelihood written as a potential, nothing observed")
def likelihood_as_potential() -> None:
    X, score, rng = inputs(308, n=60)
    y = rng.poisson(np.exp(0.2 + 0.5 * score))
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 1, shape=3)
    log_rate = a + pm.math.dot(X, b)
    pm.Potential("likelihood", y * log_rate - pm.math.exp(log_rate))


@case("a user's own likelihood by pm.CustomDist: logistic noise")
def custom_likelihood() -> Any:
    X, score, rng = inputs(309, n=60, d=2)

    def logistic(value: Any, mu: Any, s: Any) -> Any:
        z = (value - mu) / s
        return -z - pt.log(s) - 2 * pt.softplus(-z)

    with pm.Model() as model:
        a = pm.Normal("a", 0, 2)
        b = pm.Normal("b", 0, 2, shape=2)
        s = pm.HalfNormal("s", 1)
        observed = score + rng.logistic(scale=0.4, size=60)
        pm.CustomDist("y", a + X @ b, s, logp=logistic, observed=observed)
    return model


@block("quantile regression by an asymmetric Laplace")
def quantile_regression() -> None:
    X, score, rng = inputs(310, d=2)
    a = pm.Normal("a", 0, 3)
    b = pm.Normal("b", 0, 2, shape=2)
    s = pm.HalfNormal("s", 1)
    pm.AsymmetricLaplace("y", q=0.8, mu=a + X @ b, b=1 / s, observed=score + rng.normal(size=80))


@block("zero inflation with a predictor of its own: two cuts")
def zero_inflation_regressed() -> None:
    X, score, rng = inputs(311, n=120, d=2)
    keep = rng.binomial(1, 1 / (1 + np.exp(-0.8 - 0.8 * X[:, 1])))
    y = rng.poisson(np.exp(1 + 0.4 * score)) * keep
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1, shape=2)
    c = pm.Normal("c", 0, 1.5)
    d = pm.Normal("d", 0, 1)
    psi = pm.math.invlogit(c + d * X[:, 1])
    pm.ZeroInflatedPoisson("y", psi=psi, mu=pm.math.exp(a + X @ b), observed=y)
