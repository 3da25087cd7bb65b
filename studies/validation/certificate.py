"""Does an approximation know how far off it is? An experiment, and a bound if it holds.

    python -m ardvark.studies.validation --lane certificate

In each replication data are drawn from the prior of a small model, EP and Laplace are fitted at
the true hyperparameters, and the truth comes from importance sampling with a Student-t around EP
on a Sobol sequence (its effective size is asked for). The errors, the largest over the weights:

    mean error   |mean of the Gaussian - mean of the posterior| / sd of the posterior
    sd error     |sd of the Gaussian / sd of the posterior - 1|

and what the approximation says of itself: `mean_shift`, `sd_shift`, `log_evidence_correction`,
k-hat, and TADDAA (short chains from its draws). For each of these a bound

    error ≤ FLOOR + c · indicator

is fitted on half of the models, c being MARGIN times the largest that any of their replications
asks for, and its coverage is counted on the other half, and the other way round. A bound that is
kept in 99 % of both halves may be shown as "error at most". FLOOR was set before any result was
seen. MARGIN and the rule that c is the largest asked for were chosen after a look at 540
replications with another seed, of which none is used.

The hyperparameters of these replications are the true ones. Of a fit in a report they are mostly
searched for, and there the bounds do not hold: on separable rows a search ends at a prior so wide
that the posterior is half a Gaussian, of whose skewness the derivatives at the mode know nothing
(`searched`). So no bound is shown in a report.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.special import gammaln, log_expit, log_ndtr, ndtri
from scipy.stats import chi2, qmc

import ardvark as av
from ardvark.diagnostics.calibration.replication import Replicator
from ardvark.inference.hyper.pareto import smooth
from ardvark.inference.running.executor import seed_of
from ardvark.inference.samplers.short_chains import short_chains
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.vb.bound import Bound
from ardvark.studies.experiments import Experiment, Numbers, Store
from ardvark.studies.validation.cases import _built, _counts, _glmm, _robust
from ardvark.studies.validation.lane import Lane, stored

__all__ = ["EXPERIMENTS", "INDICATORS", "LANE", "bound", "compared", "exact_moments"]

SEED, BATCH = 100, 20
POINTS, FREEDOM, LEAST = 1 << 14, 5.0, 1500  # of the importance sampling; least effective size
FLOOR = 0.03  # errors below are not told from the error of the truth
MARGIN, WANTED = 1.5, 0.99
ERRORS = ("mean_error", "sd_error")
INDICATORS = (
    "mean_shift",
    "sd_shift",
    "log_evidence_correction",
    "k_hat",
    "taddaa_mean",
    "taddaa_sd",
)


def _tight() -> Bound:
    return Bound(tolerance=1e-6, max_iterations=5000)


RULES: dict[str, Callable[[], Any]] = {"ep": av.EP, "laplace": av.Laplace, "vb": _tight}
BOUNDED = ("probit", "logit")  # likelihoods that VB has a bound for

MODELS: dict[str, Callable[[], Any]] = {
    **{
        f"{link} {rows} x {inputs}": partial(_built, "ard_classification", rows, inputs, link=link)
        for rows, inputs in ((12, 3), (20, 2), (30, 3), (50, 4), (100, 6), (300, 10))
        for link in ("probit", "logit")
    },
    "kernels, logit 8": partial(_built, "rvm_classification", 8, 2, kernel=av.RBF(width=1.5)),
    "random intercepts": partial(_glmm, 24, 4),
    "counts": partial(_counts, 15),
    "Student noise": partial(_robust, 15),
}


@lru_cache(maxsize=4)
def _replicator(model: str) -> Replicator:
    return Replicator(MODELS[model](), "ep", av.EP(), True, 8, 1)


def compared(number: int, model: str, batch: int, seed: int) -> Numbers:
    """Errors and indicators of some replications, by rule."""
    one = _replicator(model)
    latent = one.latent
    assert latent is not None
    rows: list[dict[str, Any]] = []
    rules = [name for name in RULES if name != "vb" or model.split()[0] in BOUNDED]
    for i in range(number * batch, (number + 1) * batch):
        drawn, random = seed_of(seed, i).spawn(2)
        truth, data = one.simulator.draw(drawn)
        rng = np.random.default_rng(random)
        with one.simulator.observing(data):
            arrays = latent.at({name: truth[name] for name in latent.hyper})
            rows += _replication(arrays, rng, rules)
    return {"rows": rows}


def _replication(arrays: SiteModel, rng: np.random.Generator, rules: Any) -> list[dict[str, Any]]:
    fits = {}
    for name in rules:
        rule = RULES[name]()
        try:
            fit = rule.approximate(arrays)
            fits[name] = fit if name == "vb" else rule.assessed(arrays, fit)
        except (np.linalg.LinAlgError, ValueError) as error:
            return [{"rule": name, "failed": f"{type(error).__name__}: {error}"}]
    mean, sd, size = exact_moments(arrays, fits["ep"].posterior, rng)
    if size < LEAST:
        return [{"rule": name, "unknown": size} for name in rules]
    return [
        {"rule": name, **_errors(fit.posterior, mean, sd), **_indicators(arrays, fit, rng)}
        for name, fit in fits.items()
    ]


def _errors(q: Any, mean: Array, sd: Array) -> dict[str, float]:
    """The largest errors, and with their sign: sds too small, means too near to zero."""
    away, ratio = (q.mean - mean) / sd, _sd(q) / sd
    return {
        "mean_error": float(np.max(np.abs(away))),
        "sd_error": float(np.max(np.abs(ratio - 1))),
        "sd_ratio": float(np.exp(np.mean(np.log(ratio)))),
        "outward": float(np.mean(away * np.sign(mean))),
    }


def _sd(posterior: Any) -> Array:
    return np.asarray(np.sqrt(posterior.marginal_variance))


def _log_joint(arrays: SiteModel, posterior: Any) -> Callable[[Array], Array]:
    prior = posterior.prior

    def log_joint(w: Array) -> Array:
        likely = arrays.sites.log(arrays.predictor(w)).sum(axis=-1)
        return np.asarray(likely + prior.log_density(w))

    return log_joint


def exact_moments(
    arrays: SiteModel, around: Any, rng: np.random.Generator
) -> tuple[Array, Array, float]:
    """Means and sds of the posterior, and the effective size of the sample that gave them."""
    d = len(around.mean)
    u = qmc.Sobol(d + 1, rng=rng).random(POINTS)
    u = np.clip(u, 1e-12, 1 - 1e-12)
    z, scale = ndtri(u[:, :d]), np.sqrt(FREEDOM / chi2.ppf(u[:, d], FREEDOM))
    draws = around.draws(4096, np.random.default_rng(1))
    factor = np.linalg.cholesky(np.atleast_2d(np.cov(draws, rowvar=False)))
    w = around.mean + scale[:, None] * (z @ factor.T)
    square = np.square(z).sum(axis=1) * scale**2
    log_q = gammaln((FREEDOM + d) / 2) - gammaln(FREEDOM / 2)
    log_q = log_q - 0.5 * (FREEDOM + d) * np.log1p(square / FREEDOM)
    log_weight = _log_joint(arrays, around)(w) - log_q
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ w
    variance = weight @ np.square(w - mean)
    return mean, np.sqrt(variance), float(1 / np.square(weight).sum())


def _indicators(arrays: SiteModel, fit: Any, rng: np.random.Generator) -> dict[str, Any]:
    posterior = fit.posterior
    log_joint = _log_joint(arrays, posterior)
    draws = posterior.draws(1000, rng)
    k_hat = smooth(log_joint(draws) - posterior.log_density(draws)).k_hat
    starts = draws[:400]
    covariance = np.atleast_2d(np.cov(draws, rowvar=False))
    ends = short_chains(log_joint, starts, 30, rng, mean=posterior.mean, covariance=covariance)
    sd = _sd(posterior)
    moved = np.abs(ends.mean(axis=0) - starts.mean(axis=0)) / sd
    wider = np.abs(ends.std(axis=0) / starts.std(axis=0) - 1)
    info = fit.info
    return {
        "mean_shift": _number(info.get("mean_shift")),
        "sd_shift": _number(info.get("sd_shift")),
        "log_evidence_correction": _number(info.get("log_evidence_correction")),
        "k_hat": _number(max(k_hat, 0.0)),
        "taddaa_mean": float(moved.max()),
        "taddaa_sd": float(wider.max()),
        "converged": bool(fit.converged),
    }


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else abs(float(value))


EXPERIMENTS = tuple(
    Experiment(
        f"certificate/{name}",
        name,
        compared,
        {"model": name, "batch": BATCH, "seed": SEED},
        full=15,
        quick=int("300" not in name),  # a quarter of a minute each
    )
    for name in MODELS
)


# Where it does not hold -----------------------------------------------------------------------


def searched(link: str, rule: str) -> dict[str, Any]:
    """A fit at hyperparameters found by a search on separable rows, beside quadrature."""
    x = np.random.default_rng(1).normal(size=(30, 3))
    model = av.models.ard_classification(x, x[:, 0] > 0, link=link)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.AccuracyWarning)  # as it should
        tree = av.fit(model, rule, draws=10, random_seed=1, progressbar=False)
    fit = tree["fit"].to_dataset()
    if fit["active"].values.tolist() != [False, True, False, False]:
        raise RuntimeError("the search kept other weights than the first input's")
    precision = float(tree["theta"]["alpha"][0])
    w = np.linspace(-1.0, 8.0 / math.sqrt(precision), 400_001)
    log_class = log_ndtr if link == "probit" else log_expit
    log_p = sum((log_class(w * size) for size in np.abs(x[:, 0])), -0.5 * precision * w**2)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = float(p @ w)
    sd = math.sqrt(p @ (w - mean) ** 2)
    error = abs(float(fit["mean_vector"][0]) - mean) / sd
    return {"mean_shift": float(fit["mean_shift"]), "mean_error": error}


# The bound ----------------------------------------------------------------------------------------


def bound(error: Array, indicator: Array) -> float:
    """MARGIN times the smallest c with error ≤ FLOOR + c · indicator in every replication."""
    over = np.maximum(error - FLOOR, 0.0) / np.maximum(indicator, 1e-12)
    return float(MARGIN * over.max(initial=0.0))


def judged(halves: tuple[list[Any], list[Any]], error: str, indicator: str) -> dict[str, Any]:
    """C of each half, and how often it holds on the other."""
    shares, factors, sharpness = [], [], []
    for one, other in (halves, halves[::-1]):
        known = [_columns(rows, error, indicator) for rows in (one, other)]
        if min(len(e) for e, _ in known) == 0:
            return {}
        c = bound(*known[0])
        e, x = known[1]
        limit = FLOOR + c * x
        factors.append(float(f"{c:.3g}"))
        shares.append(round(float(np.mean(e <= limit)), 4))
        sharpness.append(float(f"{np.median(limit / np.maximum(e, 0.005)):.3g}"))
    return {"c": factors, "coverage": shares, "median_bound_over_error": sharpness,
            "holds": min(shares) >= WANTED}  # fmt: skip


def _columns(rows: list[Any], error: str, indicator: str) -> tuple[Array, Array]:
    pairs = [(r[error], r[indicator]) for r in rows if r.get(indicator) is not None]
    columns = np.array(pairs, float).reshape(-1, 2).T
    return columns[0], columns[1]


def _correlation(rows: list[Any], error: str, indicator: str) -> float | None:
    from scipy.stats import spearmanr

    e, x = _columns(rows, error, indicator)
    if len(e) < 10 or np.ptp(x) == 0:
        return None
    return round(float(spearmanr(e, x).statistic), 3)


def summary(store: Store) -> dict[str, Any]:
    """Bounds of every indicator for each rule, and how large the errors are by model."""
    by_model: dict[str, list[Any]] = {}
    seconds = 0.0
    for experiment in EXPERIMENTS:
        units, spent = stored(experiment, store)
        seconds += spent
        by_model[experiment.place] = [row for unit in units for row in unit.get("rows", ())]
    names = [name for name, rows in by_model.items() if rows]
    halves = names[::2], names[1::2]
    rules = {}
    for rule in RULES:
        good = {
            name: [r for r in by_model[name] if r["rule"] == rule and "mean_error" in r]
            for name in names
        }
        sides = tuple([r for name in half for r in good[name]] for half in halves)
        both = sides[0] + sides[1]
        rules[rule] = {
            "replications": len(both),
            "failed": sum("failed" in r and r["rule"] == rule for n in names for r in by_model[n]),
            "unknown": sum(
                "unknown" in r and r["rule"] == rule for n in names for r in by_model[n]
            ),
            "errors": {name: _sizes(rows) for name, rows in good.items() if rows},
            "bounds": {
                error: {
                    indicator: judged((sides[0], sides[1]), error, indicator)
                    | {"spearman": _correlation(both, error, indicator)}
                    for indicator in INDICATORS
                }
                for error in ERRORS
            }
            if both
            else {},
        }
    return {
        "seed": SEED, "floor": FLOOR, "margin": MARGIN, "wanted": WANTED,
        "halves": [list(h) for h in halves], "cpu_seconds": round(seconds), "rules": rules,
        "searched": _searched(rules),
    }  # fmt: skip


def _searched(rules: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The bound by `mean_shift` where hyperparameters were searched for."""
    found = []
    for rule in ("ep", "laplace"):
        c = rules[rule]["bounds"].get("mean_error", {}).get("mean_shift", {}).get("c")
        for link in BOUNDED if c else ():
            one = {name: float(f"{x:.3g}") for name, x in searched(link, rule).items()}
            limit = FLOOR + max(c) * one["mean_shift"]
            found.append({"rule": rule, "link": link} | one | {"bound": float(f"{limit:.3g}")})
    return found


def _sizes(rows: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"replications": len(rows)}
    for error in ERRORS:
        values = np.array([r[error] for r in rows])
        found[error] = [float(f"{np.quantile(values, q):.3g}") for q in (0.5, 0.9, 0.99)]
    for signed in ("sd_ratio", "outward"):
        values = np.array([r[signed] for r in rows])
        error_of_mean = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        found[signed] = [round(float(values.mean()), 4), round(float(error_of_mean), 4)]
    return found


def problems(found: Mapping[str, Any]) -> list[str]:
    """An experiment has no wrong outcome, but for fits that fail."""
    return [
        f"{rule}: {one['failed']} fits failed"
        for rule, one in found["rules"].items()
        if one["failed"]
    ]


LANE = Lane("certificate", EXPERIMENTS, summary, problems, quick_minutes=1.0)
