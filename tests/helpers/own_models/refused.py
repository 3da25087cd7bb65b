"""Models that are no Gaussian block with scalar sites, each with the reason of its refusal."""

import numpy as np
import pymc as pm

from own_models.case import block


@block(
    "overdispersed counts of classes",
    refused="a Dirichlet-multinomial outcome couples the classes of a row",
)
def dirichlet_multinomial() -> None:
    rng = np.random.default_rng(701)
    p = rng.dirichlet([4.0, 3.0, 2.0], size=25)
    counts = np.array([rng.multinomial(30, row) for row in p])
    log_share = pm.Normal("log_share", 0, 1, shape=3)
    concentration = pm.Gamma("concentration", 2, 0.1)
    share = pm.math.softmax(log_share)
    pm.DirichletMultinomial("counts", n=30, a=concentration * share, observed=counts)


@block(
    "two correlated outcomes, their correlation free",
    refused="the outcomes of a row are correlated (MvNormal): its density is no product",
)
def correlated_outcomes() -> None:
    rng = np.random.default_rng(702)
    x = rng.normal(size=50)
    noise = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=50)
    y = np.column_stack([0.5 + x, 1 - 0.5 * x]) + noise
    a = pm.Normal("a", 0, 2, shape=2)
    b = pm.Normal("b", 0, 2, shape=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(2))
    pm.MvNormal("y", mu=a + x[:, None] * b, chol=chol, observed=y)


@block(
    "mixture of two normals with ordered means",
    refused="a row depends on two means at once: no scalar predictor",
)
def mixture_of_means() -> None:
    rng = np.random.default_rng(703)
    y = np.where(rng.uniform(size=100) < 0.4, -1.5, 1.5) + 0.7 * rng.normal(size=100)
    w = pm.Dirichlet("w", np.ones(2) * 2)
    mu = pm.Normal("mu", [-1, 1], 2, transform=pm.distributions.transforms.ordered)
    sigma = pm.HalfNormal("sigma", 2, shape=2)
    pm.NormalMixture("y", w=w, mu=mu, sigma=sigma, observed=y)


@block(
    "enzyme kinetics (Michaelis-Menten): a curve that is not linear in any parameter's prior",
    refused="no free variable has a Gaussian prior",
)
def michaelis_menten() -> None:
    rng = np.random.default_rng(704)
    dose = np.repeat([0.1, 0.3, 1.0, 3.0, 10.0], 6)
    rate = 5 * dose / (0.8 + dose) * np.exp(0.1 * rng.normal(size=30))
    v_max = pm.LogNormal("v_max", 1, 1)
    k_m = pm.LogNormal("k_m", 0, 1)
    sigma = pm.HalfNormal("sigma", 0.5)
    pm.LogNormal("rate", pm.math.log(v_max * dose / (k_m + dose)), sigma, observed=rate)


@block(
    "conjugate rates of groups (rat tumours)",
    refused="no free variable has a Gaussian prior",
)
def beta_rates() -> None:
    rng = np.random.default_rng(705)
    n = rng.integers(10, 30, size=20)
    tumours = rng.binomial(n, rng.beta(2, 10, size=20))
    mean = pm.Beta("mean", 2, 5)
    size = pm.Gamma("size", 2, 0.1)
    theta = pm.Beta("theta", mean * size, (1 - mean) * size, shape=20)
    pm.Binomial("tumours", n=n, p=theta, observed=tumours)


@block(
    "a process integrated out by the user (pm.gp.Marginal)",
    refused="no free variable has a Gaussian prior; the outcome is one MvNormal",
)
def gp_marginal() -> None:
    rng = np.random.default_rng(706)
    x = np.linspace(0, 10, 40)
    ell = pm.Gamma("ell", 4, 2)
    amp = pm.HalfNormal("amp", 2)
    sigma = pm.HalfNormal("sigma", 1)
    gp = pm.gp.Marginal(cov_func=amp**2 * pm.gp.cov.ExpQuad(1, ls=ell))
    y = np.sin(x) + 0.3 * rng.normal(size=40)
    gp.marginal_likelihood("y", X=x[:, None], y=y, sigma=sigma)


@block(
    "switch point of a Poisson rate (coal mines), exponential rates",
    refused="no free variable has a Gaussian prior; the switch point is discrete",
)
def switch_point() -> None:
    rng = np.random.default_rng(707)
    year = np.arange(60)
    switch = pm.DiscreteUniform("switch", 0, 59)
    early = pm.Exponential("early", 1)
    late = pm.Exponential("late", 1)
    rate = pm.math.switch(switch >= year, early, late)
    pm.Poisson("disasters", rate, observed=rng.poisson(np.where(year < 35, 3.0, 1.0)))
