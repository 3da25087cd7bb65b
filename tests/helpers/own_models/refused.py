"""Models that are no Gaussian block with scalar sites, each with the reason of its refusal."""

from typing import Any

import numpy as np
import pymc as pm

from own_models.case import case


@case(
    "overdispersed counts of classes",
    refused="a Dirichlet-multinomial outcome couples the classes of a row",
)
def dirichlet_multinomial() -> Any:
    rng = np.random.default_rng(701)
    p = rng.dirichlet([4.0, 3.0, 2.0], size=25)
    counts = np.array([rng.multinomial(30, row) for row in p])
    with pm.Model() as model:
        log_share = pm.Normal("log_share", 0, 1, shape=3)
        concentration = pm.Gamma("concentration", 2, 0.1)
        share = pm.math.softmax(log_share)
        pm.DirichletMultinomial("counts", n=30, a=concentration * share, observed=counts)
    return model


@case(
    "two correlated outcomes, their correlation free",
    refused="the outcomes of a row are correlated (MvNormal): its density is no product",
)
def correlated_outcomes() -> Any:
    rng = np.random.default_rng(702)
    x = rng.normal(size=50)
    noise = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=50)
    y = np.column_stack([0.5 + x, 1 - 0.5 * x]) + noise
    with pm.Model() as model:
        a = pm.Normal("a", 0, 2, shape=2)
        b = pm.Normal("b", 0, 2, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(2))
        pm.MvNormal("y", mu=a + x[:, None] * b, chol=chol, observed=y)
    return model


@case(
    "mixture of two normals with ordered means",
    refused="a row depends on two means at once: no scalar predictor",
)
def mixture_of_means() -> Any:
    rng = np.random.default_rng(703)
    y = np.where(rng.uniform(size=100) < 0.4, -1.5, 1.5) + 0.7 * rng.normal(size=100)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2) * 2)
        mu = pm.Normal("mu", [-1, 1], 2, transform=pm.distributions.transforms.ordered)
        sigma = pm.HalfNormal("sigma", 2, shape=2)
        pm.NormalMixture("y", w=w, mu=mu, sigma=sigma, observed=y)
    return model


@case(
    "enzyme kinetics (Michaelis-Menten): a curve that is not linear in any parameter's prior",
    refused="no free variable has a Gaussian prior",
)
def michaelis_menten() -> Any:
    rng = np.random.default_rng(704)
    dose = np.repeat([0.1, 0.3, 1.0, 3.0, 10.0], 6)
    rate = 5 * dose / (0.8 + dose) * np.exp(0.1 * rng.normal(size=30))
    with pm.Model() as model:
        v_max = pm.LogNormal("v_max", 1, 1)
        k_m = pm.LogNormal("k_m", 0, 1)
        sigma = pm.HalfNormal("sigma", 0.5)
        pm.LogNormal("rate", pm.math.log(v_max * dose / (k_m + dose)), sigma, observed=rate)
    return model


@case(
    "conjugate rates of groups (rat tumours)",
    refused="no free variable has a Gaussian prior",
)
def beta_rates() -> Any:
    rng = np.random.default_rng(705)
    n = rng.integers(10, 30, size=20)
    tumours = rng.binomial(n, rng.beta(2, 10, size=20))
    with pm.Model() as model:
        mean = pm.Beta("mean", 2, 5)
        size = pm.Gamma("size", 2, 0.1)
        theta = pm.Beta("theta", mean * size, (1 - mean) * size, shape=20)
        pm.Binomial("tumours", n=n, p=theta, observed=tumours)
    return model


@case(
    "a process integrated out by the user (pm.gp.Marginal)",
    refused="no free variable has a Gaussian prior; the outcome is one MvNormal",
)
def gp_marginal() -> Any:
    rng = np.random.default_rng(706)
    x = np.linspace(0, 10, 40)
    with pm.Model() as model:
        ell = pm.Gamma("ell", 4, 2)
        amp = pm.HalfNormal("amp", 2)
        sigma = pm.HalfNormal("sigma", 1)
        gp = pm.gp.Marginal(cov_func=amp**2 * pm.gp.cov.ExpQuad(1, ls=ell))
        y = np.sin(x) + 0.3 * rng.normal(size=40)
        gp.marginal_likelihood("y", X=x[:, None], y=y, sigma=sigma)
    return model


@case(
    "switch point of a Poisson rate (coal mines), exponential rates",
    refused="no free variable has a Gaussian prior; the switch point is discrete",
)
def switch_point() -> Any:
    rng = np.random.default_rng(707)
    year = np.arange(60)
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switch", 0, 59)
        early = pm.Exponential("early", 1)
        late = pm.Exponential("late", 1)
        rate = pm.math.switch(switch >= year, early, late)
        pm.Poisson("disasters", rate, observed=rng.poisson(np.where(year < 35, 3.0, 1.0)))
    return model
