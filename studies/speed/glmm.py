"""Ten generalised linear mixed models: `Integrated()` by EP against nutpie, in one run.

    python -m ardvark.studies.speed.glmm            all; writes studies/results/glmm.json
    python -m ardvark.studies.speed.glmm logit      one of them, shown only

Each model is simulated and written as a PyMC user writes it. A model is first read and fitted by EP
with everything integrated out, from a graph that was never seen; then nutpie compiles it and draws
4 x 1000. Both times are from the graph to the first answer, on one core, in processor and in wall
time; machine code of EP is compiled before (`ardvark doctor --warm-up` does it once), numba's of
nutpie is what every new model needs. The errors are those of EP's means and sds against nutpie's
draws, over all free variables, in nutpie's sds; `mcse` is the largest Monte Carlo error of such a
mean, in the same unit.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ardvark as av
from ardvark.inference.samplers.chain_statistics import ess_mean

__all__ = ["MODELS", "measure"]

RESULT = Path(__file__).parents[1] / "results" / "glmm.json"
GROUPS, EACH = 12, 8


def _design(seed: int) -> tuple[np.random.Generator, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(GROUPS), EACH)
    x = rng.normal(size=group.size)
    eta = 0.3 + 0.8 * x + (0.7 * rng.normal(size=GROUPS))[group]
    return rng, group, x, eta


def _model(seed: int, outcome: Callable[..., None], *, slopes: bool = False, items: int = 0) -> Any:
    """Intercepts of groups, and slopes or crossed items where asked."""
    import pymc as pm

    rng, group, x, eta = _design(seed)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 2)
        spread = pm.HalfNormal("spread", 1)
        z = pm.Normal("z", 0, 1, shape=GROUPS)
        predictor = a + b * x + (spread * z)[group]
        if slopes:
            spread_b = pm.HalfNormal("spread_b", 1)
            z_b = pm.Normal("z_b", 0, 1, shape=GROUPS)
            predictor = predictor + (spread_b * z_b)[group] * x
        if items:
            item = np.arange(group.size) % items
            eta = eta + (0.5 * rng.normal(size=items))[item]
            spread_i = pm.HalfNormal("spread_i", 1)
            z_i = pm.Normal("z_i", 0, 1, shape=items)
            predictor = predictor + (spread_i * z_i)[item]
        outcome(rng, eta, predictor)
    return model


def _logit(rng: Any, eta: Any, predictor: Any) -> None:
    import pymc as pm

    pm.Bernoulli("y", logit_p=predictor, observed=rng.binomial(1, 1 / (1 + np.exp(-eta))))


def _probit(rng: Any, eta: Any, predictor: Any) -> None:
    import pymc as pm

    y = (eta + rng.normal(size=eta.size) > 0).astype(int)
    pm.Bernoulli("y", p=pm.math.invprobit(predictor), observed=y)


def _binomial(rng: Any, eta: Any, predictor: Any) -> None:
    import pymc as pm

    y = rng.binomial(6, 1 / (1 + np.exp(-eta)))
    pm.Binomial("y", n=6, logit_p=predictor, observed=y)


def _poisson(rng: Any, eta: Any, predictor: Any) -> None:
    import pymc as pm

    pm.Poisson("y", pm.math.exp(predictor), observed=rng.poisson(np.exp(eta)))


def _negative_binomial(rng: Any, eta: Any, predictor: Any) -> None:
    import pymc as pm

    y = rng.poisson(np.exp(eta) * rng.gamma(3.0, 1 / 3.0, size=eta.size))
    pm.NegativeBinomial("y", mu=pm.math.exp(predictor), alpha=3.0, observed=y)


def _gaussian(rng: Any, eta: Any, predictor: Any) -> None:
    import pymc as pm

    pm.Normal("y", predictor, 0.8, observed=eta + 0.8 * rng.normal(size=eta.size))


MODELS: dict[str, Callable[[], Any]] = {
    "logit": lambda: _model(1, _logit),
    "probit": lambda: _model(2, _probit),
    "binomial": lambda: _model(3, _binomial),
    "poisson": lambda: _model(4, _poisson),
    "negative binomial": lambda: _model(5, _negative_binomial),
    "gaussian": lambda: _model(6, _gaussian),
    "logit, slopes": lambda: _model(7, _logit, slopes=True),
    "poisson, slopes": lambda: _model(8, _poisson, slopes=True),
    "binomial, crossed": lambda: _model(9, _binomial, items=8),
    "poisson, crossed": lambda: _model(10, _poisson, items=8),
}


def _timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    processor, wall = time.process_time(), time.perf_counter()
    found = run()
    return found, time.process_time() - processor, time.perf_counter() - wall


def _by_nutpie(model: Any) -> Any:
    import nutpie

    compiled = nutpie.compile_pymc_model(model)
    return nutpie.sample(
        compiled, draws=1000, tune=1000, chains=4, cores=1, seed=1, progress_bar=False
    )


def measure(build: Callable[[], Any]) -> dict[str, float]:
    """Both answers to one model, their times and how far they are apart."""
    ep, ep_seconds, ep_wall = _timed(
        lambda: av.fit(build(), "ep", draws=1000, random_seed=1, progressbar=False)
    )
    model = build()
    nutpie, nutpie_seconds, nutpie_wall = _timed(lambda: _by_nutpie(model))
    means, ratios, errors = [], [], []
    for variable in model.free_RVs:
        ours = ep["posterior"][variable.name].values
        theirs = nutpie.posterior[variable.name]
        mean, sd = theirs.mean(("chain", "draw")).values, theirs.std(("chain", "draw")).values
        means.append(np.max(np.abs(ours.mean((0, 1)) - mean) / sd))
        ratios.append(np.max(np.abs(np.log(ours.std((0, 1)) / sd))))
        flat = theirs.values.reshape((*theirs.shape[:2], -1))
        errors.append(np.max(1.0 / np.sqrt(ess_mean(flat))))
    return {
        "ep_seconds": ep_seconds,
        "nutpie_seconds": nutpie_seconds,
        "ratio": nutpie_seconds / ep_seconds,
        "ep_wall": ep_wall,
        "nutpie_wall": nutpie_wall,
        "ratio_wall": nutpie_wall / ep_wall,
        "worst_mean_error": float(max(means)),
        "worst_sd_error": float(np.expm1(max(ratios))),
        "mcse": float(max(errors)),
    }


def main(names: list[str]) -> None:
    """Measure all models, or those that are named."""
    warnings.simplefilter("ignore")
    av.fit(_model(99, _logit), "ep", draws=100, random_seed=1, progressbar=False)  # machine code
    rows = {}
    for name in names or MODELS:
        row = rows[name] = {key: float(f"{v:.3g}") for key, v in measure(MODELS[name]).items()}
        sys.stdout.write(f"{name:20s} {row}\n")
        sys.stdout.flush()
    ratios = [row["ratio"] for row in rows.values()]
    summary = {
        "median_ratio": float(np.median(ratios)),
        "least_ratio": min(ratios),
        "worst_mean_error": max(row["worst_mean_error"] for row in rows.values()),
        "worst_sd_error": max(row["worst_sd_error"] for row in rows.values()),
    }
    sys.stdout.write(f"{summary}\n")
    if not names:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps({"summary": summary, "models": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
