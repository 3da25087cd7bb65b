"""Groups: centred and not, crossed, nested, correlated, summing to zero."""

from typing import Any

import numpy as np
import pymc as pm

from own_models.case import block, case


def grouped(seed: int, groups: int, each: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """Group of each row, an input, a standard normal effect of each row's group, the generator."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), each)
    return group, rng.normal(size=groups * each), rng.normal(size=groups)[group], rng


def _logit_groups() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    group, x, effect, rng = grouped(401, 12, 10)
    y = (0.3 + 0.9 * effect + 0.8 * x + rng.logistic(size=120) > 0).astype(int)
    return group, x, y


@case("random intercepts of a logit, non-centred", also=("a",), target_accept=0.95)
def logit_intercepts() -> Any:
    group, x, y = _logit_groups()
    with pm.Model(coords={"group": range(12)}) as model:
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        z = pm.Normal("z", 0, 1, dims="group")
        a = pm.Deterministic("a", mu + tau * z, dims="group")
        slope = pm.Normal("slope", 0, 1)
        pm.Bernoulli("y", logit_p=a[group] + slope * x, observed=y)
    return model


@case("the same posterior, centred", twin=logit_intercepts, target_accept=0.95)
def logit_intercepts_centred() -> Any:
    group, x, y = _logit_groups()
    with pm.Model(coords={"group": range(12)}) as model:
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        a = pm.Normal("a", mu, tau, dims="group")
        slope = pm.Normal("slope", 0, 1)
        pm.Bernoulli("y", logit_p=a[group] + slope * x, observed=y)
    return model


@case("one-way layout, half-t scale, many observations of a group", target_accept=0.95)
def one_way() -> Any:
    group, _, effect, rng = grouped(402, 8, 15)
    with pm.Model(coords={"batch": range(8)}) as model:
        grand = pm.Normal("grand", 50, 20)
        between = pm.HalfStudentT("between", nu=4, sigma=5)
        within = pm.HalfStudentT("within", nu=4, sigma=5)
        batch = pm.Normal("batch_mean", grand, between, dims="batch")
        yields = 52 + 3 * effect + 2 * rng.normal(size=120)
        pm.Normal("yields", batch[group], within, observed=yields)
    return model


@case("counts with group effects added to the log rate", target_accept=0.95)
def poisson_groups() -> Any:
    group, x, effect, rng = grouped(403, 10, 8)
    counts = rng.poisson(np.exp(1 + 0.5 * effect + 0.3 * x))
    with pm.Model(coords={"clinic": range(10), "row": range(80)}) as model:
        clinic = pm.Data("clinic_of", group, dims="row")
        intercept = pm.Normal("intercept", 0, 2)
        b = pm.Normal("b", 0, 1)
        sd_clinic = pm.Exponential("sd_clinic", 2)
        u = pm.Normal("u", 0, sd_clinic, dims="clinic")
        log_rate = pm.Deterministic("log_rate", intercept + b * x + u[clinic], dims="row")
        pm.Poisson("counts", mu=pm.math.exp(log_rate), observed=counts, dims="row")
    return model


@block("group effects chosen by a matrix of indicators: Z @ u")
def design_matrix_groups() -> None:
    group, x, effect, rng = grouped(404, 9, 8)
    Z, X = np.eye(9)[group], np.column_stack([np.ones(72), x])
    y = 1 + 0.5 * x + 0.8 * effect + 0.6 * rng.normal(size=72)
    beta = pm.Normal("beta", 0, 5, shape=2)
    sigma_u = pm.HalfNormal("sigma_u", 2)
    u = pm.Normal("u", 0, sigma_u, shape=9)
    sigma = pm.HalfNormal("sigma", 2)
    mu = pm.math.dot(X, beta) + pm.math.dot(Z, u)
    pm.Normal("y", mu, sigma, observed=y)


@case("intercepts and slopes correlated by LKJ, non-centred", also=("ab",), target_accept=0.97)
def lkj_slopes() -> Any:
    group, x, effect, rng = grouped(405, 10, 8)
    slopes = (0.5 + 0.4 * rng.normal(size=10))[group] + 0.3 * effect
    y = 1 + 0.7 * effect + slopes * x + 0.5 * rng.normal(size=80)
    with pm.Model(coords={"group": range(10), "effect": ["intercept", "slope"]}) as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0))
        mean = pm.Normal("mean", 0, 2, dims="effect")
        z = pm.Normal("z", 0, 1, dims=("effect", "group"))
        ab = pm.Deterministic("ab", mean + pm.math.dot(chol, z).T, dims=("group", "effect"))
        sigma = pm.Exponential("sigma", 1)
        pm.Normal("y", ab[group, 0] + ab[group, 1] * x, sigma, observed=y)
    return model


@block("intercepts and slopes as centred rows of an MvNormal under LKJ", target_accept=0.97)
def lkj_slopes_centred() -> None:
    group, x, effect, rng = grouped(406, 10, 10)
    slopes = (0.5 + 0.4 * rng.normal(size=10))[group] + 0.3 * effect
    y = 1 + 0.8 * effect + slopes * x + 0.4 * rng.normal(size=100)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0))
    mean = pm.Normal("mean", 0, 2, shape=2)
    ab = pm.MvNormal("ab", mu=mean, chol=chol, shape=(10, 2))
    sigma = pm.Exponential("sigma", 1)
    pm.Normal("y", ab[group, 0] + ab[group, 1] * x, sigma, observed=y)


@case("two crossed sets of effects, Gaussian outcome", target_accept=0.95)
def crossed_gaussian() -> Any:
    rng = np.random.default_rng(407)
    rater, essay = np.divmod(np.arange(60), 10)
    mark = 6 + 0.8 * rng.normal(size=6)[rater] + 1.2 * rng.normal(size=10)[essay]
    mark = mark + 0.5 * rng.normal(size=60)
    with pm.Model(coords={"rater": range(6), "essay": range(10)}) as model:
        mu = pm.Normal("mu", 5, 3)
        s_rater = pm.HalfNormal("s_rater", 1)
        s_essay = pm.HalfNormal("s_essay", 1)
        r = pm.Normal("r", 0, s_rater, dims="rater")
        e = pm.Normal("e", 0, s_essay, dims="essay")
        noise = pm.HalfNormal("noise", 1)
        pm.Normal("mark", mu + r[rater] + e[essay], noise, observed=mark)
    return model


def _nested() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(408)
    school = np.repeat(np.arange(15), 8)
    district = np.repeat(np.arange(5), 3)
    level = 10 + 1.5 * rng.normal(size=5)[district] + 1.0 * rng.normal(size=15)
    return school, district, level[school] + 2 * rng.normal(size=120)


def _nested_from_zero() -> Any:
    school, district, score = _nested()
    with pm.Model() as model:
        top = pm.Normal("top", 0, 10)
        s_district = pm.HalfNormal("s_district", 3)
        s_school = pm.HalfNormal("s_school", 3)
        z_district = pm.Normal("z_district", 0, 1, shape=5)
        z_school = pm.Normal("z_school", 0, 1, shape=15)
        d = pm.Deterministic("d", top + s_district * z_district)
        s = pm.Deterministic("s", d[district] + s_school * z_school)
        sigma = pm.HalfNormal("sigma", 3)
        pm.Normal("score", s[school], sigma, observed=score)
    return model


@case("schools in districts, centred twice: a chain of three", twin=_nested_from_zero,
      target_accept=0.98)  # fmt: skip
def nested() -> Any:
    school, district, score = _nested()
    with pm.Model() as model:
        top = pm.Normal("top", 0, 10)
        s_district = pm.HalfNormal("s_district", 3)
        s_school = pm.HalfNormal("s_school", 3)
        d = pm.Normal("d", top, s_district, shape=5)
        s = pm.Normal("s", d[district], s_school, shape=15)
        sigma = pm.HalfNormal("sigma", 3)
        pm.Normal("score", s[school], sigma, observed=score)
    return model


@case("effects that sum to zero (pm.ZeroSumNormal)")
def zero_sum_effects() -> Any:
    group, x, effect, rng = grouped(409, 6, 12)
    y = 2 + 0.6 * effect + 0.4 * x + 0.5 * rng.normal(size=72)
    with pm.Model(coords={"treatment": list("abcdef")}) as model:
        mu = pm.Normal("mu", 0, 5)
        spread = pm.HalfNormal("spread", 1)
        effect_ = pm.ZeroSumNormal("effect", sigma=spread, dims="treatment")
        slope = pm.Normal("slope", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu + effect_[group] + slope * x, sigma, observed=y)
    return model


@block("coefficients drawn from a common mean and sd, Bernoulli outcome", target_accept=0.98)
def exchangeable_coefficients() -> None:
    rng = np.random.default_rng(410)
    X = rng.normal(size=(100, 8))
    y = (X @ rng.normal(0.4, 0.4, size=8) + rng.logistic(size=100) > 0).astype(int)
    mu_b = pm.Normal("mu_b", 0, 1)
    tau_b = pm.HalfNormal("tau_b", 1)
    b = pm.Normal("b", mu_b, tau_b, shape=8)
    pm.Bernoulli("y", logit_p=pm.math.dot(X, b), observed=y)


@block("effects of relatives: MvNormal with a known relationship matrix times a free variance")
def animal_model() -> None:
    rng = np.random.default_rng(411)
    family = np.repeat(np.arange(10), 4)
    A = 0.5 * (family[:, None] == family) + 0.5 * np.eye(40)
    breeding = np.linalg.cholesky(A) @ rng.normal(size=40)
    animal = np.repeat(np.arange(40), 2)
    y = 5 + breeding[animal] + 0.8 * rng.normal(size=80)
    mu = pm.Normal("mu", 0, 10)
    v_a = pm.HalfNormal("v_a", 2)
    a = pm.MvNormal("a", mu=np.zeros(40), cov=v_a * A)
    sigma = pm.HalfNormal("sigma", 2)
    pm.Normal("y", mu + a[animal], sigma, observed=y)


@block("group effects with heavy tails: Student-t under a free scale", target_accept=0.98)
def student_groups() -> None:
    group, _, _, rng = grouped(412, 10, 8)
    effect = 0.5 * rng.standard_t(3, size=10)
    effect[4] += 3
    mu = pm.Normal("mu", 0, 5)
    scale = pm.HalfNormal("scale", 1)
    u = pm.StudentT("u", nu=4, mu=0, sigma=scale, shape=10)
    sigma = pm.HalfNormal("sigma", 1)
    y = 1 + effect[group] + 0.5 * rng.normal(size=80)
    pm.Normal("y", mu + u[group], sigma, observed=y)
