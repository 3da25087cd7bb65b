"""Models of bambi: its families, group-specific terms, splines, processes, two formulas.

Each function gives a bambi model that is built; its graph is `backend.model`. The priors are those
that bambi chooses.
"""

from typing import Any

import bambi as bmb
import numpy as np
import pandas as pd

from own_models.case import case


def table(seed: int, n: int = 100) -> tuple[pd.DataFrame, np.ndarray, Any]:
    """Two inputs and a group of ten, a linear score, the generator."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {"x": rng.normal(size=n), "z": rng.normal(size=n), "g": rng.integers(0, 10, size=n)}
    )
    data["g"] = data["g"].astype(str).astype("category")
    return data, (0.7 * data["x"] - 0.5 * data["z"]).to_numpy(), rng


def built(formula: Any, data: pd.DataFrame, family: str, **options: Any) -> Any:
    """A bambi model that is ready to be fitted."""
    model = bmb.Model(formula, data, family=family, **options)
    model.build()
    return model


def inverse_logit(score: np.ndarray) -> np.ndarray:
    """The logistic function."""
    return 1 / (1 + np.exp(-score))


@case("family bernoulli, logit")
def bambi_bernoulli() -> Any:
    data, score, rng = table(801)
    data["y"] = (score + rng.logistic(size=100) > 0).astype(int)
    return built("y ~ x + z", data, "bernoulli")


@case("family bernoulli, probit")
def bambi_probit() -> Any:
    data, score, rng = table(802)
    data["y"] = (score + rng.normal(size=100) > 0).astype(int)
    return built("y ~ x + z", data, "bernoulli", link="probit")


@case("family bernoulli, cloglog")
def bambi_cloglog() -> Any:
    data, score, rng = table(803)
    data["y"] = rng.binomial(1, -np.expm1(-np.exp(score - 0.3)))
    return built("y ~ x + z", data, "bernoulli", link="cloglog")


@case("family gaussian, an interaction")
def bambi_gaussian() -> Any:
    data, score, rng = table(804)
    data["y"] = 2 + score + 0.4 * data["x"] * data["z"] + 0.7 * rng.normal(size=100)
    return built("y ~ x * z", data, "gaussian")


@case("family t", target_accept=0.95)
def bambi_t() -> Any:
    data, score, rng = table(805)
    data["y"] = score + 0.5 * rng.standard_t(4, size=100)
    return built("y ~ x + z", data, "t")


@case("family poisson, an offset")
def bambi_poisson() -> Any:
    data, score, rng = table(806)
    data["months"] = rng.uniform(1, 6, size=100)
    data["y"] = rng.poisson(data["months"] * np.exp(0.6 * score))
    return built("y ~ x + z + offset(log(months))", data, "poisson")


@case("family negativebinomial, a factor")
def bambi_negativebinomial() -> Any:
    data, score, rng = table(807)
    data["arm"] = rng.choice(["a", "b", "c"], size=100)
    mean = np.exp(1 + 0.5 * score + 0.3 * (data["arm"] == "b"))
    data["y"] = rng.poisson(mean * rng.gamma(3, 1 / 3, size=100))
    return built("y ~ x + z + arm", data, "negativebinomial")


@case("family gamma, log link")
def bambi_gamma() -> Any:
    data, score, rng = table(808)
    data["y"] = rng.gamma(4, np.exp(1 + 0.4 * score) / 4)
    return built("y ~ x + z", data, "gamma", link="log")


@case("family beta")
def bambi_beta() -> Any:
    data, score, rng = table(809)
    p = inverse_logit(0.6 * score)
    data["y"] = rng.beta(8 * p, 8 * (1 - p))
    return built("y ~ x + z", data, "beta")


@case("family binomial, p(y, n)")
def bambi_binomial() -> Any:
    data, score, rng = table(810, 50)
    data["n"] = rng.integers(5, 20, size=50)
    data["y"] = rng.binomial(data["n"], inverse_logit(score))
    return built("p(y, n) ~ x + z", data, "binomial")


@case("family beta_binomial")
def bambi_beta_binomial() -> Any:
    data, score, rng = table(811, 60)
    p = inverse_logit(score)
    data["n"] = rng.integers(10, 20, size=60)
    data["y"] = rng.binomial(data["n"], rng.beta(6 * p, 6 * (1 - p)))
    return built("p(y, n) ~ x + z", data, "beta_binomial")


@case("family wald, log link")
def bambi_wald() -> Any:
    data, score, rng = table(812)
    data["y"] = rng.wald(np.exp(0.5 + 0.3 * score), 4.0)
    return built("y ~ x + z", data, "wald", link="log")


@case("family lognormal")
def bambi_lognormal() -> Any:
    data, score, rng = table(813)
    data["y"] = np.exp(1 + 0.5 * score + 0.6 * rng.normal(size=100))
    return built("y ~ x + z", data, "lognormal")


@case("family weibull, log link")
def bambi_weibull() -> Any:
    data, score, rng = table(814)
    data["y"] = np.exp(1 + 0.5 * score) * rng.weibull(1.5, size=100)
    return built("y ~ x + z", data, "weibull", link="log")


@case("family exponential, times censored on the right")
def bambi_censored() -> Any:
    data, score, rng = table(815)
    time = rng.exponential(np.exp(0.5 + 0.5 * score))
    data["time"], data["status"] = np.minimum(time, 3.0), np.where(time > 3, "right", "none")
    return built("censored(time, status) ~ x + z", data, "exponential", link="log")


@case("family asymmetriclaplace, a quantile given")
def bambi_quantile() -> Any:
    data, score, rng = table(816)
    data["y"] = score + rng.normal(size=100)
    return built("y ~ x + z", data, "asymmetriclaplace", priors={"kappa": 2.0})


@case("family exgaussian", target_accept=0.95)
def bambi_exgaussian() -> Any:
    data, score, rng = table(817)
    data["y"] = 3 + score + 0.4 * rng.normal(size=100) + rng.exponential(1.0, size=100)
    return built("y ~ x + z", data, "exgaussian")


@case("family cumulative: ordered logit", target_accept=0.95)
def bambi_cumulative() -> Any:
    data, score, rng = table(818)
    grade = np.digitize(score + rng.logistic(size=100), [-1.0, 0.5, 1.5])
    data["y"] = pd.Categorical(grade, ordered=True)
    return built("y ~ 0 + x + z", data, "cumulative")


@case("family sratio: stopping ratios", target_accept=0.95)
def bambi_sratio() -> Any:
    data, score, rng = table(819)
    grade = np.digitize(score + rng.logistic(size=100), [-1.0, 0.8])
    data["y"] = pd.Categorical(grade, ordered=True)
    return built("y ~ 0 + x + z", data, "sratio")


@case("family categorical: three classes")
def bambi_categorical() -> Any:
    data, _, rng = table(820)
    scores = np.column_stack([np.zeros(100), data["x"], -data["x"] + 0.5 * data["z"]])
    data["y"] = pd.Categorical(
        np.array(list("abc"))[(scores + rng.gumbel(size=(100, 3))).argmax(1)]
    )
    return built("y ~ x + z", data, "categorical")


@case("family zero_inflated_poisson")
def bambi_zero_inflated() -> Any:
    data, score, rng = table(821, 120)
    data["y"] = rng.poisson(np.exp(0.8 + 0.5 * score)) * rng.binomial(1, 0.7, size=120)
    return built("y ~ x + z", data, "zero_inflated_poisson")


@case("family hurdle_poisson")
def bambi_hurdle() -> Any:
    data, score, rng = table(822, 120)
    counts = np.maximum(rng.poisson(np.exp(0.8 + 0.5 * score)), 1)
    data["y"] = counts * rng.binomial(1, 0.7, size=120)
    return built("y ~ x + z", data, "hurdle_poisson")


@case("random intercepts (1|g), bernoulli", also=("1|g",), target_accept=0.97)
def bambi_intercepts() -> Any:
    data, score, rng = table(823, 120)
    effect = 0.8 * rng.normal(size=10)[data["g"].cat.codes]
    data["y"] = (score + effect + rng.logistic(size=120) > 0).astype(int)
    return built("y ~ x + (1|g)", data, "bernoulli")


@case("random slopes (x|g), gaussian", also=("1|g", "x|g"), target_accept=0.97)
def bambi_slopes() -> Any:
    data, score, rng = table(824, 120)
    code = data["g"].cat.codes
    effect = rng.normal(size=10)[code] + 0.4 * rng.normal(size=10)[code] * data["x"]
    data["y"] = score + effect + 0.6 * rng.normal(size=120)
    return built("y ~ x + (x|g)", data, "gaussian")


@case("random intercepts, centred", also=("1|g",), target_accept=0.97)
def bambi_intercepts_centred() -> Any:
    data, score, rng = table(825, 150)
    effect = 0.8 * rng.normal(size=10)[data["g"].cat.codes]
    data["y"] = rng.poisson(np.exp(0.5 + 0.4 * score + effect))
    return built("y ~ x + (1|g)", data, "poisson", noncentered=False)


@case("a spline, bs()")
def bambi_spline() -> Any:
    data, _, rng = table(826)
    data["y"] = np.sin(2 * data["x"]) + 0.4 * rng.normal(size=100)
    return built("y ~ bs(x, df=6) + z", data, "gaussian")


@case("a process, hsgp()", target_accept=0.97)
def bambi_hsgp() -> Any:
    data, _, rng = table(827)
    data["y"] = np.sin(2 * data["x"]) + 0.4 * rng.normal(size=100)
    return built("y ~ 0 + hsgp(x, m=12, c=1.5)", data, "gaussian")


@case("two formulas: mean and log sd")
def bambi_distributional() -> Any:
    data, score, rng = table(828)
    data["y"] = score + np.exp(-0.5 + 0.5 * data["x"]) * rng.normal(size=100)
    return built(bmb.Formula("y ~ x + z", "sigma ~ x"), data, "gaussian")
