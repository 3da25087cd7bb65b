"""Worked examples of textbooks and of the BUGS manual.

Eight schools (Rubin, 1981) and seeds (Crowder, 1978) are the published tables; the others are
simulated in the size and shape of the example that their name recalls.
"""

from typing import Any

import numpy as np
import pymc as pm

from own_models.case import block, case

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
STANDARD_ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@case("non-centred hierarchy, theta = mu + tau z, noise given", also=("theta",), target_accept=0.97)
def eight_schools() -> Any:
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("effect", theta, STANDARD_ERROR, observed=EFFECT, dims="school")
    return model


@case("the same posterior, centred: the mean of theta is a weight", twin=eight_schools)
def eight_schools_centred() -> Any:
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", mu, tau, dims="school")
        pm.Normal("effect", theta, STANDARD_ERROR, observed=EFFECT, dims="school")
    return model


GERMINATED = (10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3)
PLANTED = (39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7)


@case("binomial with a random effect of each plate (BUGS seeds)", also=("b",), target_accept=0.95)
def seeds() -> Any:
    variety = np.repeat([0, 1], [11, 10])
    extract = np.array([0] * 5 + [1] * 6 + [0] * 5 + [1] * 5)
    with pm.Model(coords={"plate": range(21)}) as model:
        alpha0 = pm.Normal("alpha0", 0, 10)
        alpha1 = pm.Normal("alpha1", 0, 10)
        alpha2 = pm.Normal("alpha2", 0, 10)
        alpha12 = pm.Normal("alpha12", 0, 10)
        sigma = pm.HalfNormal("sigma", 1)
        z = pm.Normal("z", 0, 1, dims="plate")
        b = pm.Deterministic("b", sigma * z, dims="plate")
        logit = alpha0 + alpha1 * variety + alpha2 * extract + alpha12 * variety * extract + b
        pm.Binomial("r", n=np.array(PLANTED), logit_p=logit, observed=np.array(GERMINATED))
    return model


def _radon_data() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(101)
    county = np.sort(rng.integers(0, 15, size=150))
    uranium = rng.normal(0, 0.4, size=15)
    floor = rng.binomial(1, 0.2, size=150)
    level = 1.5 + 0.7 * uranium + 0.3 * rng.normal(size=15)
    return county, uranium, floor, level[county] - 0.7 * floor + 0.7 * rng.normal(size=150)


def _radon_from_zero() -> Any:
    county, uranium, floor, log_radon = _radon_data()
    with pm.Model() as model:
        gamma = pm.Normal("gamma", 0, 2, shape=2)
        sigma_a = pm.HalfNormal("sigma_a", 1)
        z = pm.Normal("z", 0, 1, shape=15)
        a = pm.Deterministic("a", gamma[0] + gamma[1] * uranium + sigma_a * z)
        b = pm.Normal("b", 0, 2)
        sigma = pm.Exponential("sigma", 1)
        pm.Normal("log_radon", a[county] + b * floor, sigma, observed=log_radon)
    return model


@case(
    "centred intercepts of counties on a county's predictor: a chain of Normals, with coords",
    twin=_radon_from_zero,
    target_accept=0.95,
)
def radon() -> Any:
    county, uranium, floor, log_radon = _radon_data()
    with pm.Model(coords={"county": range(15), "home": range(150)}) as model:
        county_idx = pm.Data("county_idx", county, dims="home")
        floor_idx = pm.Data("floor_idx", floor, dims="home")
        gamma = pm.Normal("gamma", 0, 2, shape=2)
        sigma_a = pm.HalfNormal("sigma_a", 1)
        a = pm.Normal("a", gamma[0] + gamma[1] * uranium, sigma_a, dims="county")
        b = pm.Normal("b", 0, 2)
        sigma = pm.Exponential("sigma", 1)
        theta = a[county_idx] + b * floor_idx
        pm.Normal("log_radon", theta, sigma, observed=log_radon, dims="home")
    return model


@case("intercepts and slopes of counties, both non-centred", also=("a", "b"), target_accept=0.95)
def radon_slopes() -> Any:
    county, _, floor, log_radon = _radon_data()
    with pm.Model(coords={"county": range(15)}) as model:
        mu_a = pm.Normal("mu_a", 0, 5)
        mu_b = pm.Normal("mu_b", 0, 5)
        sigma_a = pm.HalfCauchy("sigma_a", 1)
        sigma_b = pm.HalfCauchy("sigma_b", 1)
        z_a = pm.Normal("z_a", 0, 1, dims="county")
        z_b = pm.Normal("z_b", 0, 1, dims="county")
        a = pm.Deterministic("a", mu_a + z_a * sigma_a, dims="county")
        b = pm.Deterministic("b", mu_b + z_b * sigma_b, dims="county")
        sigma = pm.HalfNormal("sigma", 2)
        pm.Normal("log_radon", a[county] + b[county] * floor, sigma, observed=log_radon)
    return model


@case("growth curves, two centred sets of group effects, precisions with Gamma priors (BUGS rats)")
def rats_like() -> Any:
    rng = np.random.default_rng(102)
    age = np.array([8.0, 15.0, 22.0, 29.0, 36.0]) - 22.0
    start, slope = rng.normal(242, 14, size=30), rng.normal(6.2, 0.5, size=30)
    weight = start[:, None] + slope[:, None] * age + rng.normal(0, 6, size=(30, 5))
    with pm.Model(coords={"rat": range(30), "day": age}) as model:
        alpha_c = pm.Normal("alpha_c", 200, 100)
        beta_c = pm.Normal("beta_c", 0, 10)
        tau_alpha = pm.Gamma("tau_alpha", 2, 100)
        tau_beta = pm.Gamma("tau_beta", 2, 0.5)
        tau_c = pm.Gamma("tau_c", 2, 50)
        alpha = pm.Normal("alpha", alpha_c, tau=tau_alpha, dims="rat")
        beta = pm.Normal("beta", beta_c, tau=tau_beta, dims="rat")
        mu = alpha[:, None] + beta[:, None] * age
        pm.Normal("weight", mu, tau=tau_c, observed=weight, dims=("rat", "day"))
    return model


@block("censored Weibull times with a frailty of each patient (BUGS kidney)", target_accept=0.95)
def kidney_like() -> None:
    rng = np.random.default_rng(103)
    patient = np.repeat(np.arange(30), 2)
    age, sex = rng.normal(size=60), np.repeat(rng.binomial(1, 0.6, size=30), 2)
    log_scale = 4.0 + 0.1 * age + 1.0 * sex + 0.4 * rng.normal(size=30)[patient]
    time = np.exp(log_scale) * rng.weibull(1.2, size=60)
    beta0 = pm.Normal("beta0", 4, 3)
    beta_age = pm.Normal("beta_age", 0, 1)
    beta_sex = pm.Normal("beta_sex", 0, 2)
    s = pm.HalfNormal("s", 1)
    z = pm.Normal("z", 0, 1, shape=30)
    shape = pm.Gamma("shape", 4, 3)
    scale = pm.math.exp(beta0 + beta_age * age + beta_sex * sex + s * z[patient])
    latent = pm.Weibull.dist(alpha=shape, beta=scale)
    pm.Censored("time", latent, lower=None, upper=200.0, observed=np.minimum(time, 200.0))


@case("Poisson with effects of patients and of single visits (BUGS epil)", target_accept=0.95)
def epil_like() -> Any:
    rng = np.random.default_rng(104)
    patient = np.repeat(np.arange(25), 4)
    base, treated = rng.normal(size=25)[patient], (np.arange(25) % 2)[patient]
    fourth = np.tile([0, 0, 0, 1], 25)
    log_rate = 1.6 + 0.9 * base - 0.3 * treated - 0.15 * fourth + 0.5 * rng.normal(size=25)[patient]
    seizures = rng.poisson(np.exp(log_rate + 0.35 * rng.normal(size=100)))
    with pm.Model(coords={"patient": range(25), "visit": range(100)}) as model:
        a0 = pm.Normal("a0", 0, 5)
        a_base = pm.Normal("a_base", 0, 5)
        a_trt = pm.Normal("a_trt", 0, 5)
        a_v4 = pm.Normal("a_v4", 0, 5)
        sigma_patient = pm.HalfNormal("sigma_patient", 1)
        sigma_visit = pm.HalfNormal("sigma_visit", 1)
        b1 = pm.Normal("b1", 0, sigma_patient, dims="patient")
        b = pm.Normal("b", 0, sigma_visit, dims="visit")
        mu = pm.math.exp(a0 + a_base * base + a_trt * treated + a_v4 * fourth + b1[patient] + b)
        pm.Poisson("seizures", mu=mu, observed=seizures)
    return model


@case("Bernoulli with two crossed sets of effects (salamander mating)", target_accept=0.95)
def salamander_like() -> Any:
    rng = np.random.default_rng(105)
    female, male = np.divmod(rng.choice(400, size=120, replace=False), 20)
    whiteside_f, whiteside_m = (female >= 10).astype(int), (male >= 10).astype(int)
    score = 1.0 - 2.5 * whiteside_f - 0.5 * whiteside_m + 2.5 * whiteside_f * whiteside_m
    score = score + rng.normal(size=20)[female] + 0.8 * rng.normal(size=20)[male]
    mated = (score + rng.logistic(size=120) > 0).astype(int)
    X = np.column_stack([np.ones(120), whiteside_f, whiteside_m, whiteside_f * whiteside_m])
    with pm.Model(coords={"term": ["1", "wsf", "wsm", "wsf:wsm"]}) as model:
        beta = pm.Normal("beta", 0, 3, dims="term")
        sigma_f = pm.HalfNormal("sigma_f", 1.5)
        sigma_m = pm.HalfNormal("sigma_m", 1.5)
        u_f = pm.Normal("u_f", 0, 1, shape=20) * sigma_f
        u_m = pm.Normal("u_m", 0, 1, shape=20) * sigma_m
        logit_p = pm.math.dot(X, beta) + u_f[female] + u_m[male]
        pm.Bernoulli("mated", logit_p=logit_p, observed=mated)
    return model


@case(
    "varying intercept and slope of districts, logit by pm.math.sigmoid (Bangladesh contraception)",
    target_accept=0.95,
)
def contraception_like() -> Any:
    rng = np.random.default_rng(106)
    district = rng.integers(0, 20, size=200)
    urban, age = rng.binomial(1, 0.35, size=200), rng.normal(size=200)
    score = -0.7 + 0.6 * rng.normal(size=20)[district] + 0.15 * age
    score = score + (0.8 + 0.4 * rng.normal(size=20)[district]) * urban
    use = (score + rng.logistic(size=200) > 0).astype(int)
    with pm.Model(coords={"district": range(20), "woman": range(200)}) as model:
        D = pm.Data("D", district, dims="woman")
        U = pm.Data("U", urban, dims="woman")
        A = pm.Data("A", age, dims="woman")
        abar = pm.Normal("abar", 0, 1)
        bbar = pm.Normal("bbar", 0, 1)
        b_age = pm.Normal("b_age", 0, 0.5)
        sigma = pm.Exponential("sigma", 1)
        tau = pm.Exponential("tau", 1)
        za = pm.Normal("za", 0, 1, dims="district")
        zb = pm.Normal("zb", 0, 1, dims="district")
        a, b = abar + za * sigma, bbar + zb * tau
        p = pm.Deterministic("p", pm.math.sigmoid(a[D] + b[D] * U + b_age * A), dims="woman")
        pm.Bernoulli("use", p=p, observed=use, dims="woman")
    return model


@block("paired binomials with a log odds ratio that varies (BUGS oxford)", target_accept=0.97)
def oxford_like() -> None:
    rng = np.random.default_rng(107)
    n0, n1 = rng.integers(20, 60, size=40), rng.integers(20, 60, size=40)
    year = np.linspace(-1, 1, 40)
    base = rng.normal(-1.5, 0.5, size=40)
    ratio = 0.6 + 0.3 * year - 0.2 * (year**2 - 0.35) + 0.25 * rng.normal(size=40)
    r0 = rng.binomial(n0, 1 / (1 + np.exp(-base)))
    r1 = rng.binomial(n1, 1 / (1 + np.exp(-base - ratio)))
    mu = pm.Normal("mu", 0, 3, shape=40)
    alpha = pm.Normal("alpha", 0, 2)
    beta1 = pm.Normal("beta1", 0, 2)
    beta2 = pm.Normal("beta2", 0, 2)
    sigma = pm.HalfNormal("sigma", 0.5)
    z = pm.Normal("z", 0, 1, shape=40)
    log_psi = alpha + beta1 * year + beta2 * (year**2 - 0.35) + sigma * z
    pm.Binomial("r0", n=n0, p=pm.math.invlogit(mu), observed=r0)
    pm.Binomial("r1", n=n1, p=pm.math.invlogit(mu + log_psi), observed=r1)


def lattice(rows: int, columns: int) -> np.ndarray:
    """Adjacency of a grid of areas."""
    place = np.arange(rows * columns).reshape(rows, columns)
    W = np.zeros((place.size, place.size))
    for one, other in ((place[:, :-1], place[:, 1:]), (place[:-1], place[1:])):
        W[one.ravel(), other.ravel()] = W[other.ravel(), one.ravel()] = 1
    return W


@block("ICAR and unstructured effects of areas (Scottish lip cancer, BYM)", target_accept=0.97)
def lip_cancer_like() -> None:
    rng = np.random.default_rng(108)
    W = lattice(6, 6)
    row, column = np.divmod(np.arange(36), 6)
    expected = rng.uniform(2, 20, size=36)
    outdoors = rng.normal(size=36)
    risk = 0.1 + 0.3 * outdoors + 0.4 * np.sin(row / 2) * np.cos(column / 2)
    cases = rng.poisson(expected * np.exp(risk + 0.2 * rng.normal(size=36)))
    intercept = pm.Normal("intercept", 0, 1)
    b_outdoors = pm.Normal("b_outdoors", 0, 1)
    sd_area = pm.HalfNormal("sd_area", 1)
    sd_plain = pm.HalfNormal("sd_plain", 1)
    area = pm.ICAR("area", W=W)
    plain = pm.Normal("plain", 0, 1, shape=36)
    log_risk = intercept + b_outdoors * outdoors + sd_area * area + sd_plain * plain
    pm.Poisson("cases", mu=pm.math.exp(np.log(expected) + log_risk), observed=cases)


@block("latent process under a Bernoulli, two inputs, a length scale (old faithful)")
def old_faithful_like() -> None:
    rng = np.random.default_rng(109)
    long = rng.binomial(1, 0.6, size=50)
    X = np.column_stack([2.1 + 2.2 * long, 55 + 25 * long]) + rng.normal(size=(50, 2)) * [0.4, 6]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = ((long == 1) ^ (rng.uniform(size=50) < 0.08)).astype(int)
    ell = pm.InverseGamma("ell", 5, 5)
    amplitude = pm.HalfNormal("amplitude", 2)
    gp = pm.gp.Latent(cov_func=amplitude**2 * pm.gp.cov.Matern52(2, ls=ell))
    f = gp.prior("f", X=X)
    pm.Bernoulli("y", logit_p=f, observed=y)


@case("item responses with easiness and ability (Rasch), rows in long form")
def rasch() -> Any:
    rng = np.random.default_rng(110)
    person, item = np.repeat(np.arange(25), 8), np.tile(np.arange(8), 25)
    score = 1.2 * rng.normal(size=25)[person] - np.linspace(-1.5, 1.5, 8)[item]
    right = (score + rng.logistic(size=200) > 0).astype(int)
    with pm.Model(coords={"person": range(25), "item": range(8)}) as model:
        difficulty = pm.Normal("difficulty", 0, 2, dims="item")
        spread = pm.HalfNormal("spread", 2)
        ability = pm.Normal("ability", 0, spread, dims="person")
        pm.Bernoulli("right", logit_p=ability[person] - difficulty[item], observed=right)
    return model


@case(
    "item responses with a discrimination: a product of θ and the block (2PL)", target_accept=0.95
)
def item_response_2pl() -> Any:
    rng = np.random.default_rng(111)
    slope, difficulty = rng.lognormal(0.2, 0.3, size=6), np.linspace(-1, 1, 6)
    score = slope * (rng.normal(size=(33, 1)) - difficulty)
    right = (score + rng.logistic(size=(33, 6)) > 0).astype(int)
    with pm.Model(coords={"person": range(33), "item": range(6)}) as model:
        a = pm.LogNormal("a", 0, 0.5, dims="item")
        b = pm.Normal("b", 0, 2, dims="item")
        theta = pm.Normal("theta", 0, 1, dims="person")
        p = pm.math.invlogit(a * (theta[:, None] - b))
        pm.Bernoulli("right", p=p, observed=right, dims=("person", "item"))
    return model
