"""Graphs as a user writes them, with hyperparameters, and their posteriors by long NUTS.

`python tests/references/integrated.py` makes `integrated.json` (a few minutes): mean, sd and their
Monte Carlo errors of every free variable, from 4 chains of 20000 draws with R-hat below 1.005.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

STORED = Path(__file__).with_suffix(".json")


def random_intercept() -> Any:
    """Logit with 96 rows in 12 groups."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(12), 8)
    x = rng.normal(size=96)
    level = 0.8 * rng.normal(size=12)
    t = (0.3 + x + level[group] + rng.logistic(size=96) > 0).astype(int)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 1.5)
        slope = pm.Normal("slope", 0.0, 1.5)
        sigma = pm.HalfNormal("sigma", 1.5)
        z = pm.Normal("z", 0.0, 1.0, shape=12)
        eta = pm.Deterministic("eta", intercept + slope * x + sigma * z[group])
        pm.Bernoulli("t", logit_p=eta, observed=t)
    return model


def ordinal() -> Any:
    """Four ordered classes, three cut points."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 3))
    score = X @ np.array([1.0, -0.5, 0.2]) + rng.logistic(size=60)
    t = np.digitize(score, [-1.3, 0.2, 1.5])
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        cuts = pm.Normal("cuts", 0.0, 2.0, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        eta = pm.Deterministic("eta", X @ w)
        pm.OrderedLogistic("t", eta=eta, cutpoints=cuts, observed=t, compute_p=False)
    return model


def shared_variance() -> Any:
    """A share of the explained variance for each input (R2-D2): a simplex, a share, a noise."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 3))
    t = X @ np.array([1.0, -0.5, 0.2]) + 0.5 * rng.normal(size=60)
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.ones(3))
        explained = pm.Beta("explained", 2.0, 2.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        z = pm.Normal("z", 0.0, 1.0, shape=3)
        scale = sigma * pm.math.sqrt(share * explained / (1.0 - explained))
        eta = pm.Deterministic("eta", X @ (z * scale))
        pm.Normal("t", eta, sigma, observed=t)
    return model


BUILDERS = {build.__name__: build for build in (random_intercept, ordinal, shared_variance)}


def make() -> None:
    """Write the moments of every model."""
    import arviz_stats
    import nutpie

    found = {}
    for name, build in BUILDERS.items():
        model = build()
        compiled = nutpie.compile_pymc_model(model)
        tree = nutpie.sample(
            compiled, draws=20000, tune=2000, chains=4, seed=1, target_accept=0.95,
            progress_bar=False,
        )  # fmt: skip
        found[name] = {}
        for rv in model.free_RVs:
            values = tree["posterior"][rv.name].values
            draws = np.moveaxis(values.reshape(4, 20000, -1), 2, 0)
            assert max(float(arviz_stats.rhat(d)) for d in draws) < 1.005, (name, rv.name)
            moments = {
                "mean": draws.mean(axis=(1, 2)),
                "sd": draws.std(axis=(1, 2)),
                "mean_mcse": [float(arviz_stats.mcse(d, method="mean")) for d in draws],
                "sd_mcse": [float(arviz_stats.mcse(d, method="sd")) for d in draws],
            }
            found[name][rv.name] = {k: np.round(v, 6).tolist() for k, v in moments.items()}
        print(name)
    STORED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    make()
