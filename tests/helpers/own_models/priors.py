"""Priors of coefficients that are not Gaussian, or Gaussian under many scales; flat priors."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from own_models.case import block, case
from own_models.regression import inputs


def sparse(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Inputs, a score of three of them, the generator."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, :3] @ np.array([1.5, -1.0, 0.8]), rng


@block("Student-t priors of logit coefficients (weakly informative)")
def student_prior() -> None:
    X, score, rng = inputs(601, n=60)
    y = (score + rng.logistic(size=60) > 0).astype(int)
    a = pm.StudentT("a", nu=3, mu=0, sigma=2.5)
    b = pm.StudentT("b", nu=3, mu=0, sigma=1, shape=3)
    pm.Bernoulli("y", logit_p=a + X @ b, observed=y)


@block("Cauchy priors of logit coefficients, a nearly separable input")
def cauchy_prior() -> None:
    X, score, rng = inputs(602, n=40)
    y = (2.5 * score + rng.logistic(size=40) > 0).astype(int)
    a = pm.Cauchy("a", 0, 10)
    b = pm.Cauchy("b", 0, 2.5, shape=3)
    pm.Bernoulli("y", logit_p=a + X @ b, observed=y)


@block("logistic priors of Poisson coefficients")
def logistic_prior() -> None:
    X, score, rng = inputs(603, n=60)
    a = pm.Normal("a", 0, 2)
    b = pm.Logistic("b", 0, 0.5, shape=3)
    counts = rng.poisson(np.exp(0.3 + 0.5 * score))
    pm.Poisson("y", mu=pm.math.exp(a + X @ b), observed=counts)


@block("Laplace priors, scale given, Bernoulli outcome")
def laplace_prior() -> None:
    X, score, rng = sparse(604, 80, 6)
    y = (score + rng.logistic(size=80) > 0).astype(int)
    a = pm.Normal("a", 0, 2)
    b = pm.Laplace("b", mu=0, b=0.5, shape=6)
    pm.Bernoulli("y", logit_p=a + X @ b, observed=y)


@block("Bayesian lasso: Laplace priors with a free scale, noise free")
def bayesian_lasso() -> None:
    X, score, rng = sparse(605, 60, 10)
    sigma = pm.HalfNormal("sigma", 2)
    lam = pm.HalfCauchy("lam", 1)
    b = pm.Laplace("b", mu=0, b=lam, shape=10)
    pm.Normal("y", X @ b, sigma, observed=score + rng.normal(size=60))


def _lasso_of_scales() -> tuple[np.ndarray, np.ndarray]:
    X, score, rng = sparse(606, 60, 8)
    return X, score + rng.normal(size=60)


def _lasso_scaled() -> Any:
    X, y = _lasso_of_scales()
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 2)
        rate = pm.Gamma("rate", 2, 1)
        v = pm.Exponential("v", 0.5 * rate**2, shape=8)
        z = pm.Normal("z", 0, 1, shape=8)
        b = pm.Deterministic("b", z * sigma * pt.sqrt(v))
        pm.Normal("y", X @ b, sigma, observed=y)
    return model


@case("lasso of Park and Casella: a Normal under exponential variances", twin=_lasso_scaled,
      target_accept=0.97)  # fmt: skip
def lasso_of_scales() -> Any:
    X, y = _lasso_of_scales()
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 2)
        rate = pm.Gamma("rate", 2, 1)
        v = pm.Exponential("v", 0.5 * rate**2, shape=8)
        b = pm.Normal("b", 0, sigma * pt.sqrt(v), shape=8)
        pm.Normal("y", X @ b, sigma, observed=y)
    return model


def _horseshoe_data() -> tuple[np.ndarray, np.ndarray]:
    X, score, rng = sparse(607, 60, 8)
    return X, score + 0.8 * rng.normal(size=60)


def _horseshoe_scaled() -> Any:
    X, y = _horseshoe_data()
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 0.3)
        lam = pm.HalfCauchy("lam", 1, shape=8)
        z = pm.Normal("z", 0, 1, shape=8)
        beta = pm.Deterministic("beta", z * lam * tau)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", X @ beta, sigma, observed=y)
    return model


@block("plain horseshoe, centred", twin=_horseshoe_scaled, heavy=("lam",), target_accept=0.99)
def horseshoe() -> None:
    X, y = _horseshoe_data()
    tau = pm.HalfCauchy("tau", 0.3)
    lam = pm.HalfCauchy("lam", 1, shape=8)
    beta = pm.Normal("beta", 0, tau * lam, shape=8)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", X @ beta, sigma, observed=y)


@case("regularised horseshoe, not centred, Bernoulli outcome", also=("beta",),
      heavy=("lam", "tau", "c2"), target_accept=0.99)  # fmt: skip
def regularised_horseshoe() -> Any:
    X, score, rng = sparse(608, 100, 8)
    y = (score + rng.logistic(size=100) > 0).astype(int)
    with pm.Model(coords={"gene": range(8)}) as model:
        tau = pm.HalfStudentT("tau", nu=2, sigma=0.2)
        lam = pm.HalfStudentT("lam", nu=2, dims="gene")
        c2 = pm.InverseGamma("c2", 2, 4)
        z = pm.Normal("z", 0, 1, dims="gene")
        shrunk = lam * pt.sqrt(c2 / (c2 + tau**2 * lam**2))
        beta = pm.Deterministic("beta", z * tau * shrunk, dims="gene")
        beta0 = pm.Normal("beta0", 0, 2)
        pm.Bernoulli("y", logit_p=beta0 + pm.math.dot(X, beta), observed=y)
    return model


@block("R2D2: shares of the explained variance by a Dirichlet", also=("beta",), target_accept=0.98)
def r2d2() -> None:
    X, score, rng = sparse(609, 60, 6)
    sigma = pm.HalfNormal("sigma", 2)
    r2 = pm.Beta("r2", 2, 2)
    phi = pm.Dirichlet("phi", np.ones(6))
    z = pm.Normal("z", 0, 1, shape=6)
    beta = pm.Deterministic("beta", z * sigma * pt.sqrt(phi * r2 / (1 - r2)))
    a = pm.Normal("a", 0, 2)
    pm.Normal("y", a + X @ beta, sigma, observed=score + rng.normal(size=60))


@block("a precision of each coefficient with a Gamma prior (ARD)", target_accept=0.95)
def gamma_precisions() -> None:
    X, score, rng = sparse(610, 80, 5)
    y = (score + rng.normal(size=80) > 0).astype(int)
    precision = pm.Gamma("precision", 1.5, 1, shape=5)
    b = pm.Normal("b", 0, tau=precision, shape=5)
    pm.Bernoulli("y", p=pm.math.invprobit(X @ b), observed=y)


@block("flat priors of coefficients and noise: improper, no evidence")
def flat_priors() -> None:
    X, score, rng = inputs(611, n=40, d=2)
    a = pm.Flat("a")
    b = pm.Flat("b", shape=2)
    sigma = pm.HalfFlat("sigma")
    pm.Normal("y", a + X @ b, sigma, observed=score + 0.7 * rng.normal(size=40))


@block("flat priors of logit coefficients")
def flat_logit() -> None:
    X, score, rng = inputs(612, n=100, d=2)
    y = (score + rng.logistic(size=100) > 0).astype(int)
    a = pm.Flat("a")
    b = pm.Flat("b", shape=2)
    pm.Bernoulli("y", logit_p=a + pm.math.dot(X, b), observed=y)


@block("Zellner's g-prior: MvNormal by the precision of the inputs, g free")
def g_prior() -> None:
    X, score, rng = inputs(613, n=60)
    sigma = pm.HalfNormal("sigma", 2)
    g = pm.InverseGamma("g", 2, 30)
    a = pm.Normal("a", 0, 5)
    b = pm.MvNormal("b", mu=np.zeros(3), cov=g * sigma**2 * np.linalg.inv(X.T @ X))
    pm.Normal("y", a + X @ b, sigma, observed=score + rng.normal(size=60))


@block("a spike and a slab, both continuous: a mixture of two normals as prior")
def normal_mixture_prior() -> None:
    X, score, rng = sparse(614, 80, 5)
    b = pm.NormalMixture("b", w=[0.5, 0.5], mu=[0, 0], sigma=[0.1, 2.0], shape=5)
    sigma = pm.HalfNormal("sigma", 2)
    pm.Normal("y", X @ b, sigma, observed=score + rng.normal(size=80))


@block("a coefficient known to be positive, another bounded")
def bounded_coefficients() -> None:
    X, _, rng = inputs(615, n=60, d=2)
    sales = rng.poisson(np.exp(1 + 0.3 * X[:, 0] - 0.4 * X[:, 1]))
    a = pm.Normal("a", 0, 2)
    advert = pm.HalfNormal("advert", 1)
    price = pm.Uniform("price", -1, 0.5)
    log_mean = a + advert * X[:, 0] + price * X[:, 1]
    pm.Poisson("sales", mu=pm.math.exp(log_mean), observed=sales)
