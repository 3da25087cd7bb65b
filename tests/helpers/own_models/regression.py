"""Regressions: one predictor, many likelihoods and ways to write a link."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from own_models.case import block, case


def inputs(seed: int, n: int = 80, d: int = 3) -> tuple[np.ndarray, np.ndarray, Any]:
    """Inputs, a linear score and the generator that made them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.linspace(1.0, -0.6, d), rng


# Bernoulli and binomial ---------------------------------------------------------------------------


@block("logit_p=a + X @ b, nothing named")
def logit() -> None:
    X, score, rng = inputs(201)
    y = (0.3 + score + rng.logistic(size=80) > 0).astype(int)
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 1, shape=3)
    pm.Bernoulli("y", logit_p=a + X @ b, observed=y)


@case("p=invlogit(...) of a sum of products with pm.Data and dims", also=("p",))
def logit_sum_of_terms() -> Any:
    X, score, rng = inputs(202)
    died = (score + rng.logistic(size=80) > 0).astype(int)
    with pm.Model(coords={"obs": range(80)}) as model:
        age = pm.Data("age", X[:, 0], dims="obs")
        dose = pm.Data("dose", X[:, 1], dims="obs")
        intercept = pm.Normal("intercept", 0, 5)
        b_age = pm.Normal("b_age", 0, 2)
        b_dose = pm.Normal("b_dose", 0, 2)
        b_both = pm.Normal("b_both", 0, 1)
        linear = intercept + b_age * age + b_dose * dose + b_both * age * dose
        p = pm.Deterministic("p", pm.math.invlogit(linear), dims="obs")
        pm.Bernoulli("died", p=p, observed=died, dims="obs")
    return model


@block("a logistic function safe against overflow: its argument is used three times")
def logit_by_switch() -> None:
    X, score, rng = inputs(203)
    y = (score - 0.5 + rng.logistic(size=80) > 0).astype(int)
    b0 = pm.Normal("b0", 0, 2)
    b = pm.Normal("b", 0, 1.5, shape=3)
    z = b0 + pt.dot(X, b)
    p = pt.switch(z >= 0, 1 / (1 + pt.exp(-z)), pt.exp(z) / (1 + pt.exp(z)))
    pm.Bernoulli("y", p=p, observed=y)


@block("a probability kept off 0 and 1 by pm.math.clip")
def logit_clipped() -> None:
    X, score, rng = inputs(204)
    y = (score + rng.logistic(size=80) > 0).astype(int)
    beta = pm.Normal("beta", 0, 1, shape=4)
    p = pm.math.clip(pm.math.sigmoid(beta[0] + X @ beta[1:]), 1e-6, 1 - 1e-6)
    pm.Bernoulli("y", p=p, observed=y)


@case("p=pm.math.invprobit(...)")
def probit() -> Any:
    X, score, rng = inputs(205)
    y = (score + rng.normal(size=80) > 0).astype(int)
    with pm.Model(coords={"feature": ["u", "v", "w"]}) as model:
        const = pm.Normal("const", 0, 2)
        slope = pm.Normal("slope", 0, 1, dims="feature")
        pm.Bernoulli("y", p=pm.math.invprobit(const + pm.math.dot(X, slope)), observed=y)
    return model


@block("a probit written by hand with erf")
def probit_by_erf() -> None:
    X, score, rng = inputs(206)
    y = (score + rng.normal(size=80) > 0).astype(int)
    b = pm.Normal("b", 0, 1, shape=3)
    z = pm.math.dot(X, b)
    pm.Bernoulli("y", p=0.5 * (1 + pm.math.erf(z / np.sqrt(2))), observed=y)


@block("complementary log-log written by hand")
def cloglog() -> None:
    X, score, rng = inputs(207)
    y = rng.binomial(1, -np.expm1(-np.exp(0.6 * score - 0.3)))
    a = pm.Normal("a", 0, 1.5)
    b = pm.Normal("b", 0, 1, shape=3)
    pm.Bernoulli("y", p=1 - pm.math.exp(-pm.math.exp(a + pm.math.dot(X, b))), observed=y)


@case("binomial counts of groups, coefficients with dims")
def binomial() -> Any:
    X, score, rng = inputs(208, n=40)
    trials = rng.integers(5, 30, size=40)
    successes = rng.binomial(trials, 1 / (1 + np.exp(-score)))
    with pm.Model(coords={"covariate": ["x1", "x2", "x3"], "site": range(40)}) as model:
        inputs_ = pm.Data("inputs", X, dims=("site", "covariate"))
        intercept = pm.Normal("intercept", 0, 1.5)
        coefs = pm.Normal("coefs", 0, 1, dims="covariate")
        p = pm.math.invlogit(intercept + (inputs_ * coefs).sum(axis=-1))
        pm.Binomial("successes", n=trials, p=p, observed=successes, dims="site")
    return model


@block("binomial counts that vary more than binomially, concentration free")
def beta_binomial() -> None:
    X, score, rng = inputs(209, n=50, d=2)
    p = 1 / (1 + np.exp(-0.8 * score))
    counts = rng.binomial(20, rng.beta(8 * p, 8 * (1 - p)))
    a = pm.Normal("a", 0, 1.5)
    b = pm.Normal("b", 0, 1, shape=2)
    kappa = pm.Gamma("kappa", 2, 0.1)
    mu = pm.math.sigmoid(a + X @ b)
    pm.BetaBinomial("counts", n=20, alpha=mu * kappa, beta=(1 - mu) * kappa, observed=counts)


# Counts -------------------------------------------------------------------------------------------


@block("mu=pm.math.exp(...)")
def poisson() -> None:
    X, score, rng = inputs(210)
    alpha = pm.Normal("alpha", 0, 2)
    beta = pm.Normal("beta", 0, 1, shape=3)
    mu = pm.math.exp(alpha + pm.math.dot(X, beta))
    pm.Poisson("y", mu=mu, observed=rng.poisson(np.exp(0.4 + 0.5 * score)))


@block("a rate times an exposure")
def poisson_exposure() -> None:
    X, score, rng = inputs(211, n=60)
    exposure = rng.uniform(0.5, 8, size=60)
    accidents = rng.poisson(exposure * np.exp(-0.5 + 0.4 * score))
    b = pm.Normal("b", 0, 1, shape=3)
    level = pm.Normal("level", -1, 2)
    pm.Poisson("accidents", mu=exposure * pm.math.exp(level + X @ b), observed=accidents)


@block("overdispersed counts, dispersion free")
def negative_binomial() -> None:
    X, score, rng = inputs(212)
    mean = np.exp(1.0 + 0.5 * score)
    y = rng.poisson(mean * rng.gamma(2.5, 1 / 2.5, size=80))
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 1, shape=3)
    dispersion = pm.Exponential("dispersion", 0.5)
    pm.NegativeBinomial("y", mu=pm.math.exp(a + X @ b), alpha=dispersion, observed=y)


@block("zeros in excess, their share free")
def zero_inflated_poisson() -> None:
    X, score, rng = inputs(213, n=100, d=2)
    fish = rng.poisson(np.exp(0.8 + 0.5 * score)) * rng.binomial(1, 0.65, size=100)
    psi = pm.Beta("psi", 1, 1)
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1, shape=2)
    pm.ZeroInflatedPoisson("fish", psi=psi, mu=pm.math.exp(a + X @ b), observed=fish)


@block("zeros from a process of their own")
def hurdle_poisson() -> None:
    X, score, rng = inputs(214, n=100, d=2)
    mean = np.exp(0.7 + 0.4 * score)
    counts = rng.poisson(mean)
    counts = np.where(counts == 0, 1, counts) * rng.binomial(1, 0.7, size=100)
    psi = pm.Beta("psi", 2, 2)
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 1, shape=2)
    pm.HurdlePoisson("counts", psi=psi, mu=pm.math.exp(a + pt.dot(X, b)), observed=counts)


# Positive and bounded outcomes -------------------------------------------------------------------


@block("Gamma regression by mean and shape")
def gamma_regression() -> None:
    X, score, rng = inputs(215)
    cost = rng.gamma(3.0, np.exp(1 + 0.4 * score) / 3.0)
    b0 = pm.Normal("b0", 0, 3)
    b = pm.Normal("b", 0, 1, shape=3)
    shape = pm.Gamma("shape", 2, 0.5)
    mu = pm.math.exp(b0 + X @ b)
    pm.Gamma("cost", alpha=shape, beta=shape / mu, observed=cost)


@block("Beta regression by mean and precision")
def beta_regression() -> None:
    X, score, rng = inputs(216, d=2)
    mean = 1 / (1 + np.exp(-0.6 * score))
    share = rng.beta(10 * mean, 10 * (1 - mean))
    a = pm.Normal("a", 0, 1.5)
    b = pm.Normal("b", 0, 1, shape=2)
    phi = pm.HalfNormal("phi", 30)
    pm.Beta("share", mu=pm.math.invlogit(a + X @ b), nu=phi, observed=share)


@block("lognormal outcome")
def lognormal_regression() -> None:
    X, score, rng = inputs(217, n=60)
    a = pm.Normal("a", 0, 5)
    b = pm.Normal("b", 0, 2, shape=3)
    s = pm.HalfCauchy("s", 1)
    pm.LogNormal("income", a + X @ b, s, observed=np.exp(2 + score + 0.5 * rng.normal(size=60)))


@block("inverse Gaussian outcome (Wald) by mean and shape")
def wald_regression() -> None:
    X, score, rng = inputs(218, d=2)
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 1, shape=2)
    lam = pm.Gamma("lam", 2, 0.3)
    observed = rng.wald(np.exp(0.5 + 0.3 * score), 4.0)
    pm.Wald("time", mu=pm.math.exp(a + X @ b), lam=lam, observed=observed)


# Survival and limits ------------------------------------------------------------------------------


@block("censored Weibull times, shape free")
def weibull_censored() -> None:
    X, score, rng = inputs(219, d=2)
    time = np.exp(1 + 0.5 * score) * rng.weibull(1.5, size=80)
    k = pm.Gamma("k", 4, 3)
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 1, shape=2)
    latent = pm.Weibull.dist(alpha=k, beta=pm.math.exp(a + pm.math.dot(X, b)))
    pm.Censored("time", latent, lower=None, upper=4.0, observed=np.minimum(time, 4.0))


@block("censored exponential times, a limit of each row")
def exponential_censored() -> None:
    X, score, rng = inputs(220, n=70, d=2)
    time = rng.exponential(np.exp(0.5 + 0.5 * score))
    limit = rng.uniform(1, 4, size=70)
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 1, shape=2)
    latent = pm.Exponential.dist(lam=pm.math.exp(-(a + X @ b)))
    observed = np.minimum(time, limit)
    upper = np.where(time > limit, limit, np.inf)
    pm.Censored("time", latent, lower=None, upper=upper, observed=observed)


@block("Gaussian outcome cut off at zero (tobit)")
def tobit() -> None:
    X, score, rng = inputs(221, d=2)
    hours = np.maximum(0.3 + score + 0.8 * rng.normal(size=80), 0)
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 2, shape=2)
    sigma = pm.HalfNormal("sigma", 2)
    pm.Censored("hours", pm.Normal.dist(a + X @ b, sigma), lower=0, upper=None, observed=hours)


# Real outcomes ------------------------------------------------------------------------------------


@block("Gaussian noise given: the posterior is exactly Gaussian")
def gaussian_noise_given() -> None:
    X, score, rng = inputs(222, n=50)
    a = pm.Normal("a", 1, 2)
    b = pm.Normal("b", 0, [1.0, 0.5, 2.0])
    pm.Normal("y", a + X @ b, 0.7, observed=0.5 + score + 0.7 * rng.normal(size=50))


@block("Gaussian noise, sd free, a polynomial of one input")
def gaussian_polynomial() -> None:
    rng = np.random.default_rng(223)
    x = np.linspace(-1, 1, 60)
    a = pm.Normal("a", 0, 10)
    b1 = pm.Normal("b1", 0, 10)
    b2 = pm.Normal("b2", 0, 10)
    eps = pm.HalfCauchy("eps", 5)
    mu = pm.Deterministic("mu", a + b1 * x + b2 * x**2)
    pm.Normal("y", mu=mu, sigma=eps, observed=1 - x + 2 * x**2 + 0.5 * rng.normal(size=60))


@block("Student-t noise, degrees of freedom and scale free; two gross outliers", target_accept=0.95)
def student_noise() -> None:
    X, score, rng = inputs(224, n=70)
    y = score + 0.4 * rng.standard_t(4, size=70)
    y[[5, 40]] += [6.0, -5.0]
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 2, shape=3)
    nu = pm.Gamma("nu", 2, 0.1)
    sigma = pm.HalfNormal("sigma", 1)
    pm.StudentT("y", nu=nu, mu=a + X @ b, sigma=sigma, observed=y)


@block("Laplace noise: regression to the median")
def laplace_noise() -> None:
    X, score, rng = inputs(225, n=70)
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 2, shape=3)
    scale = pm.HalfNormal("scale", 1)
    observed = score + rng.laplace(scale=0.5, size=70)
    pm.Laplace("y", mu=a + X @ b, b=scale, observed=observed)


@block("two normals of one mean: an outlier's noise is wider", target_accept=0.95)
def outlier_noise() -> None:
    X, score, rng = inputs(226, d=2)
    wide = rng.uniform(size=80) < 0.15
    y = score + np.where(wide, 4.0, 0.4) * rng.normal(size=80)
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 2, shape=2)
    share = pm.Beta("share", 2, 8)
    sigma = pm.HalfNormal("sigma", 1)
    mu = a + X @ b
    parts = [pm.Normal.dist(mu, sigma), pm.Normal.dist(mu, 10 * sigma)]
    pm.Mixture("y", w=pt.stack([1 - share, share]), comp_dists=parts, observed=y)


@block("mean and log sd both linear: two cuts for one outcome")
def heteroscedastic() -> None:
    rng = np.random.default_rng(227)
    x = np.linspace(-1.5, 1.5, 100)
    y = 1 + 0.8 * x + np.exp(-0.5 + 0.6 * x) * rng.normal(size=100)
    a = pm.Normal("a", 0, 2)
    b = pm.Normal("b", 0, 2)
    g0 = pm.Normal("g0", 0, 1)
    g1 = pm.Normal("g1", 0, 1)
    pm.Normal("y", mu=a + b * x, sigma=pm.math.exp(g0 + g1 * x), observed=y)


# Classes ------------------------------------------------------------------------------------------


@block("ordered logit, cut points by the ordered transform")
def ordered_logit() -> None:
    X, score, rng = inputs(228, n=100)
    rating = np.digitize(score + rng.logistic(size=100), [-1.5, 0.0, 1.5])
    b = pm.Normal("b", 0, 1, shape=3)
    cuts = pm.Normal(
        "cuts", 0, 3, shape=3, transform=pm.distributions.transforms.ordered,
        initval=[-1.0, 0.0, 1.0],
    )  # fmt: skip
    pm.OrderedLogistic("rating", eta=X @ b, cutpoints=cuts, compute_p=False, observed=rating)


@block("ordered probit, noise sd given, cut points by the ordered transform")
def ordered_probit() -> None:
    X, score, rng = inputs(229, n=100, d=2)
    rating = np.digitize(score + rng.normal(size=100), [-0.7, 0.7])
    b = pm.Normal("b", 0, 1, shape=2)
    ordered = pm.distributions.transforms.ordered
    cuts = pm.Normal("cuts", [-0.5, 0.5], 2, transform=ordered)
    pm.OrderedProbit(
        "rating", eta=pm.math.dot(X, b), cutpoints=cuts, sigma=1, compute_p=False,
        observed=rating,
    )  # fmt: skip


@case("three classes by softmax: a column of coefficients for each")
def softmax() -> Any:
    X, _, rng = inputs(230, n=90, d=2)
    scores = X @ np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]]) + rng.gumbel(size=(90, 3))
    with pm.Model(coords={"class": list("abc"), "feature": ["u", "v"]}) as model:
        a = pm.Normal("a", 0, 1, dims="class")
        b = pm.Normal("b", 0, 1, dims=("feature", "class"))
        p = pm.math.softmax(a + X @ b, axis=-1)
        pm.Categorical("y", p=p, observed=scores.argmax(axis=1))
    return model


@block("counts of three classes, the first class as base")
def multinomial_counts() -> None:
    X, _, rng = inputs(231, n=30, d=1)
    scores = np.column_stack([np.zeros(30), 0.5 + 0.8 * X[:, 0], -0.3 - 0.5 * X[:, 0]])
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    votes = np.array([rng.multinomial(25, row) for row in p])
    a = pm.Normal("a", 0, 1.5, shape=2)
    b = pm.Normal("b", 0, 1, shape=2)
    free = a + X[:, :1] * b
    scores_ = pt.concatenate([pt.zeros((30, 1)), free], axis=1)
    pm.Multinomial("votes", n=25, p=pm.math.softmax(scores_, axis=-1), observed=votes)
