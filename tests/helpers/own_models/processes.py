"""Gaussian processes, random walks, autoregressions, areas, splines."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from own_models.case import block, case
from own_models.textbook import lattice


def curve(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Places on a line, a smooth curve at them, the generator."""
    x = np.linspace(0, 10, n)
    return x, np.sin(x) + 0.1 * x, np.random.default_rng(seed)


@block("pm.gp.Latent as PyMC writes it (rotated) under a Poisson", also=("f",), target_accept=0.95)
def gp_latent_poisson() -> None:
    x, f_true, rng = curve(501, 30)
    ell = pm.Gamma("ell", 4, 2)
    amp = pm.HalfNormal("amp", 1)
    gp = pm.gp.Latent(cov_func=amp**2 * pm.gp.cov.ExpQuad(1, ls=ell))
    f = gp.prior("f", X=x[:, None])
    pm.Poisson("y", mu=pm.math.exp(f), observed=rng.poisson(np.exp(1 + 0.6 * f_true)))


def _gp_rotated() -> Any:
    return _gp_gaussian(True)


@case("pm.gp.Latent with reparameterize=False, a mean added outside", twin=_gp_rotated,
      target_accept=0.97)  # fmt: skip
def gp_latent_centred() -> Any:
    return _gp_gaussian(False)


def _gp_gaussian(reparameterize: bool) -> Any:
    x, f_true, rng = curve(502, 30)
    with pm.Model() as model:
        level = pm.Normal("level", 0, 2)
        ell = pm.InverseGamma("ell", 4, 6)
        amp = pm.HalfNormal("amp", 2)
        gp = pm.gp.Latent(cov_func=amp**2 * pm.gp.cov.Matern52(1, ls=ell))
        f = gp.prior("f", X=x[:, None], reparameterize=reparameterize)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", level + f, sigma, observed=1 + f_true + 0.3 * rng.normal(size=30))
    return model


@block("a process with a linear mean and Student-t noise", also=("f",), target_accept=0.95)
def gp_robust() -> None:
    x, f_true, rng = curve(503, 30)
    y = f_true + 0.2 * rng.normal(size=30)
    y[[6, 19]] += [2.5, -2.0]
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 0.5)
    ell = pm.Gamma("ell", 5, 3)
    gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=ell))
    f = gp.prior("f", X=x[:, None])
    sigma = pm.HalfNormal("sigma", 0.5)
    pm.StudentT("y", nu=4, mu=a + b * x + f, sigma=sigma, observed=y)


@block("pm.gp.HSGP, Gaussian outcome", also=("f",), target_accept=0.95)
def hsgp() -> None:
    x, f_true, rng = curve(504, 80)
    ell = pm.InverseGamma("ell", 5, 8)
    amp = pm.Exponential("amp", 1)
    gp = pm.gp.HSGP(m=[20], c=1.5, cov_func=amp**2 * pm.gp.cov.ExpQuad(1, ls=ell))
    f = gp.prior("f", X=x[:, None])
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", f, sigma, observed=f_true + 0.4 * rng.normal(size=80))


@block("pm.gp.HSGP and a linear term under a negative binomial", target_accept=0.95)
def hsgp_negative_binomial() -> None:
    x, f_true, rng = curve(505, 80)
    holiday = rng.binomial(1, 0.2, size=80)
    mean = np.exp(1.5 + 0.5 * f_true + 0.4 * holiday)
    births = rng.poisson(mean * rng.gamma(8, 1 / 8, size=80))
    a = pm.Normal("a", 1, 1)
    b = pm.Normal("b", 0, 1)
    ell = pm.InverseGamma("ell", 5, 8)
    amp = pm.HalfNormal("amp", 1)
    gp = pm.gp.HSGP(m=[15], L=[8.0], cov_func=amp**2 * pm.gp.cov.Matern52(1, ls=ell))
    f = gp.prior("f", X=x[:, None] - 5)
    alpha = pm.Gamma("alpha", 2, 0.2)
    mu = pm.math.exp(a + b * holiday + f)
    pm.NegativeBinomial("births", mu=mu, alpha=alpha, observed=births)


@block("MvNormal with a kernel that the user wrote, covariance given")
def mvnormal_kernel() -> None:
    x, f_true, rng = curve(506, 30)
    K = 1.5 * np.exp(-0.5 * (x[:, None] - x) ** 2 / 1.2**2) + 1e-6 * np.eye(30)
    y = (f_true + 0.7 * rng.logistic(size=30) > 0).astype(int)
    c = pm.Normal("c", 0, 1)
    g = pm.MvNormal("g", mu=np.zeros(30), cov=K)
    pm.Bernoulli("y", logit_p=c + g, observed=y)


@block("a random walk of means (pm.GaussianRandomWalk), Gaussian noise", target_accept=0.97)
def random_walk() -> None:
    rng = np.random.default_rng(507)
    flow = 1 + 0.3 * rng.normal(size=50).cumsum() + 0.5 * rng.normal(size=50)
    step = pm.HalfNormal("step", 1)
    sigma = pm.HalfNormal("sigma", 1)
    start = pm.Normal.dist(0, 2)
    level = pm.GaussianRandomWalk("level", mu=0, sigma=step, init_dist=start, steps=49)
    pm.Normal("flow", level, sigma, observed=flow)


@block("a random walk with drift under a Poisson: coal mines", target_accept=0.97)
def random_walk_poisson() -> None:
    rng = np.random.default_rng(508)
    log_rate = 1.2 - 0.02 * np.arange(60) + 0.15 * rng.normal(size=60).cumsum()
    drift = pm.Normal("drift", 0, 0.1)
    s = pm.Exponential("s", 5)
    walk = pm.GaussianRandomWalk("walk", drift, s, init_dist=pm.Normal.dist(1, 1), shape=60)
    pm.Poisson("disasters", pm.math.exp(walk), observed=rng.poisson(np.exp(log_rate)))


@case("a random walk by cumsum of scaled steps", target_accept=0.95)
def random_walk_cumsum() -> Any:
    rng = np.random.default_rng(509)
    state = 0.25 * rng.normal(size=50).cumsum()
    polls = rng.binomial(100, 1 / (1 + np.exp(-state)))
    with pm.Model(coords={"week": range(50)}) as model:
        start = pm.Normal("start", 0, 1)
        scale = pm.HalfNormal("scale", 0.5)
        steps = pm.Normal("steps", 0, 1, dims="week")
        state_ = start + scale * pt.cumsum(steps)
        pm.Binomial("polls", n=100, logit_p=state_, observed=polls, dims="week")
    return model


@block("stochastic volatility: the predictor is the log variance", target_accept=0.97)
def stochastic_volatility() -> None:
    rng = np.random.default_rng(510)
    h = -1 + 0.25 * rng.normal(size=80).cumsum()
    step = pm.Exponential("step", 5)
    mu = pm.Normal("mu", 0, 2)
    z = pm.Normal("z", 0, 1, shape=80)
    volatility = mu + step * pt.cumsum(z)
    pm.Normal(
        "returns", 0, pm.math.exp(volatility / 2), observed=np.exp(h / 2) * rng.normal(size=80)
    )


@block("a latent autoregression (pm.AR), its coefficient free", target_accept=0.98)
def latent_ar() -> None:
    rng = np.random.default_rng(511)
    f = np.zeros(60)
    for i in range(1, 60):
        f[i] = 0.8 * f[i - 1] + 0.4 * rng.normal()
    rho = pm.Uniform("rho", 0, 1)
    s = pm.HalfNormal("s", 0.5)
    level = pm.Normal("level", 1, 1)
    f_ = pm.AR("f", rho=[rho], sigma=s, init_dist=pm.Normal.dist(0, 1), shape=60)
    pm.Poisson("y", mu=pm.math.exp(level + f_), observed=rng.poisson(np.exp(1 + f)))


@block("regression on the past of the series and on an input")
def lagged_regression() -> None:
    rng = np.random.default_rng(512)
    x, y = rng.normal(size=81), np.zeros(81)
    for i in range(1, 81):
        y[i] = 0.5 + 0.6 * y[i - 1] + 0.4 * x[i] + 0.3 * rng.normal()
    c = pm.Normal("c", 0, 1)
    phi = pm.Normal("phi", 0, 0.5)
    b = pm.Normal("b", 0, 1)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", c + phi * y[:-1] + b * x[1:], sigma, observed=y[1:])


@block("ICAR areas with a scale, Gaussian outcome")
def icar_gaussian() -> None:
    rng = np.random.default_rng(513)
    row, column = np.divmod(np.arange(30), 6)
    price = np.sin(row / 2) + 0.2 * column + 0.4 * rng.normal(size=30)
    a = pm.Normal("a", 0, 2)
    tau = pm.HalfNormal("tau", 1)
    phi = pm.ICAR("phi", W=lattice(5, 6))
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("price", a + tau * phi, sigma, observed=price)


@block("proper CAR areas, strength of dependence free", target_accept=0.97)
def car_poisson() -> None:
    rng = np.random.default_rng(514)
    row, column = np.divmod(np.arange(36), 6)
    expected = rng.uniform(5, 20, size=36)
    cases = rng.poisson(expected * np.exp(0.4 * np.cos(row / 2) + 0.1 * column - 0.2))
    a = pm.Normal("a", 0, 1)
    alpha = pm.Beta("alpha", 2, 2)
    tau = pm.Gamma("tau", 2, 0.5)
    area = pm.CAR("area", mu=np.zeros(36), W=lattice(6, 6), alpha=alpha, tau=tau)
    pm.Poisson("cases", mu=expected * pm.math.exp(a + area), observed=cases)


@case("a spline whose coefficients share a scale")
def spline() -> Any:
    x, f_true, rng = curve(515, 80)
    knots = np.linspace(0, 10, 10)
    B = np.exp(-0.5 * ((x[:, None] - knots) / 1.2) ** 2)
    with pm.Model(coords={"spline": range(10), "day": range(80)}) as model:
        a = pm.Normal("a", 0, 2)
        tau = pm.HalfNormal("tau", 2)
        w = pm.Normal("w", mu=0, sigma=tau, dims="spline")
        sigma = pm.Exponential("sigma", 1)
        mu = a + pm.math.dot(np.asarray(B, order="F"), w.T)
        pm.Normal("doy", mu, sigma, observed=f_true + 0.3 * rng.normal(size=80), dims="day")
    return model
