"""Reference posteriors of twelve pairs of data and model, by posteriordb's rule.

    python -m ardvark.studies.validation --lane references

Ten chains of NUTS; ten thousand kept draws, thinned so that they are nearly independent; R-hat
below 1.01, effective sizes near the number of draws, E-BFMI above 0.2, no divergence. Moments and
quantiles are kept, not the draws. The files have the layout of posteriordb
(`posteriors/`, `data/`, `models/`, `reference_posteriors/`), its names of fields and its counting
of indices from 1, so that they can be offered there.

Inputs are standardised before anything else; the data are written as the model sees them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import ardvark as av
from ardvark.diagnostics.storage.atomic import write_text
from ardvark.inference.samplers.chain_statistics import ess_bulk, ess_mean, ess_tail, rhat
from ardvark.studies.experiments import Experiment, Numbers, Store
from ardvark.studies.validation.lane import RESULTS, Lane, stored

__all__ = ["EXPERIMENTS", "LANE", "PAIRS", "reference"]

CHAINS, KEPT, TUNE = 10, 1000, 1000
SEED = 4711
QUANTILES = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
FOLDER = RESULTS / "posteriordb"


class Pair(NamedTuple):
    """Data by name, the model built of them, and how many draws are thrown between two."""

    data: str
    model: str
    rows: Callable[[], dict[str, Any]]
    build: Callable[..., Any]
    thin: int = 5

    def seen(self) -> dict[str, Any]:
        """The data as they are written, and as the model sees them."""
        return {name: np.array(_rounded(values)) for name, values in self.rows().items()}


# Data ---------------------------------------------------------------------------------------------


def _table(name: str, rows: int | None = None, classes: tuple[int, ...] = ()) -> dict[str, Any]:
    from sklearn import datasets as tables

    X, t = getattr(tables, f"load_{name}")(return_X_y=True)
    if classes:
        taken = np.isin(t, classes)
        X, t = X[taken], (t[taken] == classes[1]).astype(int)
    if rows is not None:
        kept = np.sort(np.random.default_rng(SEED).permutation(len(X))[:rows])
        X, t = X[kept], t[kept]
    if not classes:
        t = (t - t.mean()) / t.std()
    return {"X": (X - X.mean(axis=0)) / X.std(axis=0), "t": t}


def _sinc(classes: bool) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    X = np.linspace(-8.0, 8.0, 20)[:, None]
    clean = np.sinc(X[:, 0] / np.pi)
    t = clean + 0.1 * rng.normal(size=20)
    return {"X": X, "t": (t > 0).astype(int) if classes else t}


def _groups() -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    X, group = rng.normal(size=(60, 2)), np.arange(60) % 8
    eta = X @ [1.0, -0.5] + rng.normal(size=8)[group]
    return {"X": X, "group": group + 1, "t": (eta + rng.logistic(size=60) > 0).astype(int)}


def _counts() -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(40, 2))
    return {"X": X, "t": rng.poisson(np.exp(0.5 + X @ [0.5, -0.3]))}


def _outliers() -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(40, 3))
    t = X @ [1.0, 0.0, -1.0] + 0.5 * rng.standard_t(4, size=40)
    return {"X": X, "t": t}


# Models -------------------------------------------------------------------------------------------


def ard_probit(X: Any, t: Any) -> Any:
    """Weights with a precision each, a probit."""
    return av.models.ard_classification(X, t, link="probit")


def ard_logit(X: Any, t: Any) -> Any:
    """Weights with a precision each, a logit."""
    return av.models.ard_classification(X, t, link="logit")


def ard_gaussian(X: Any, t: Any) -> Any:
    """Weights with a precision each, Gaussian noise of unknown size."""
    return av.models.ard_regression(X, t, b=2 / X.shape[1])


def rvm_gaussian(X: Any, t: Any) -> Any:
    """A kernel on every row, a precision for each weight, Gaussian noise of unknown size."""
    return av.models.rvm_regression(X, t, kernel=av.RBF(width=2.0), b=0.5)


def rvm_logit(X: Any, t: Any) -> Any:
    """A kernel on every row, a precision for each weight, a logit."""
    return av.models.rvm_classification(X, t, kernel=av.RBF(width=2.0))


def random_intercepts_logit(X: Any, t: Any, group: Any) -> Any:
    """A logit with slopes and random intercepts tau z, not centred."""
    import pymc as pm

    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1.0)
        slopes = pm.Normal("slopes", 0, 1, shape=X.shape[1])
        z = pm.Normal("z", 0, 1, shape=int(group.max()))
        eta = pm.Deterministic("eta", X @ slopes + tau * z[group - 1])
        pm.Bernoulli("t", logit_p=eta, observed=pm.Data("t_observed", t))
    return model


def poisson_log(X: Any, t: Any) -> Any:
    """Counts with a log link."""
    import pymc as pm

    with pm.Model() as model:
        level = pm.Normal("level", 0, 1)
        slopes = pm.Normal("slopes", 0, 1, shape=X.shape[1])
        eta = pm.Deterministic("eta", level + X @ slopes)
        pm.Poisson("t", pm.math.exp(eta), observed=pm.Data("t_observed", t))
    return model


def student_noise(X: Any, t: Any) -> Any:
    """A regression whose noise is a Student-t of unknown scale."""
    import pymc as pm

    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        slopes = pm.Normal("slopes", 0, 1, shape=X.shape[1])
        eta = pm.Deterministic("eta", X @ slopes)
        pm.StudentT("t", nu=4, mu=eta, sigma=scale, observed=pm.Data("t_observed", t))
    return model


_IRIS = partial(_table, "iris", None, (1, 2))
_WINE = partial(_table, "wine", None, (0, 1))
PAIRS = {
    f"{pair.data}-{pair.model}": pair
    for pair in (
        Pair("iris_two", "ard_probit", _IRIS, ard_probit),
        Pair("iris_two", "ard_logit", _IRIS, ard_logit),
        Pair("wine_two", "ard_probit", _WINE, ard_probit),
        Pair("wine_two", "ard_logit", _WINE, ard_logit),
        Pair("diabetes_100", "ard_gaussian", partial(_table, "diabetes", 100), ard_gaussian, 10),
        Pair("diabetes_100", "student_noise", partial(_table, "diabetes", 100), student_noise, 15),
        Pair("sinc_20", "rvm_gaussian", partial(_sinc, False), rvm_gaussian),
        Pair("sinc_20_signs", "rvm_logit", partial(_sinc, True), rvm_logit),
        Pair("groups_8", "random_intercepts_logit", _groups, random_intercepts_logit, 10),
        Pair("counts_40", "poisson_log", _counts, poisson_log),
        Pair("outliers_40", "student_noise", _outliers, student_noise),
        Pair("outliers_40", "ard_gaussian", _outliers, ard_gaussian),
    )
}


# A unit -------------------------------------------------------------------------------------------


def reference(number: int, pair: str, chains: int, kept: int, tune: int, thin: int) -> Numbers:
    """Moments, quantiles and checks of one pair."""
    one = PAIRS[pair]
    tree = av.fit(
        one.build(**one.seen()), av.NUTS(tune=tune, target_accept=0.95), draws=kept * thin,
        chains=chains, random_seed=SEED + number, progressbar=False,
    )  # fmt: skip
    names, draws, dimensions = _flat(tree["posterior"].dataset, thin)
    stats = tree["sample_stats"].dataset
    energy = stats["energy"].values
    bfmi = np.square(np.diff(energy, axis=1)).mean(axis=1) / energy.var(axis=1)
    flat = draws.reshape(-1, draws.shape[2])
    centred = draws - draws.mean(axis=1, keepdims=True)
    lag = (centred[:, 1:] * centred[:, :-1]).mean(axis=(0, 1)) / centred.var(axis=(0, 1))
    return {
        "names": names,
        "dimensions": dimensions,
        "mean": _digits(flat.mean(axis=0)),
        "sd": _digits(flat.std(axis=0, ddof=1)),
        "mean_mcse": _digits(flat.std(axis=0) / np.sqrt(ess_mean(draws))),
        "quantiles": {str(q): _digits(np.quantile(flat, q, axis=0)) for q in QUANTILES},
        "r_hat": _digits(rhat(draws)),
        "ess_bulk": np.round(ess_bulk(draws)).tolist(),
        "ess_tail": np.round(ess_tail(draws)).tolist(),
        "lag_1": _digits(lag),
        "divergences": stats["diverging"].values.sum(axis=1).tolist(),
        "bfmi": _digits(bfmi),
        "draws": len(flat),
    }


def _digits(values: Any) -> list[float]:
    return [float(f"{value:.8g}") for value in np.asarray(values, float)]


def _flat(posterior: Any, thin: int) -> tuple[list[str], Any, dict[str, int]]:
    names, parts, dimensions = [], [], {}
    for name, values in posterior.data_vars.items():
        if name in ("eta", "mu"):
            continue
        array = values.transpose("chain", "draw", ...).values[:, ::thin]
        flat = array.reshape((*array.shape[:2], -1))
        dimensions[str(name)] = flat.shape[2]
        scalar = array.ndim == 2
        names += [str(name) if scalar else f"{name}[{i + 1}]" for i in range(flat.shape[2])]
        parts.append(flat)
    return names, np.concatenate(parts, axis=2), dimensions


def checks(found: Mapping[str, Any]) -> dict[str, bool]:
    """posteriordb's, by its names, and two of ours."""
    draws, size = found["draws"], np.array(found["ess_bulk"])
    return {
        "ndraws_is_10k": draws == CHAINS * KEPT,
        "nchains_is_gte_4": len(found["divergences"]) >= 4,
        "ess_within_bounds": bool(np.all((size > 0.9 * draws) & (size < 1.25 * draws))),
        "r_hat_below_1_01": max(found["r_hat"]) < 1.01,
        "efmi_above_0_2": min(found["bfmi"]) > 0.2,
        "no_divergence": sum(found["divergences"]) == 0,
        "lag_1_below_0_05": float(np.mean(np.abs(found["lag_1"]))) < 0.05,
    }


def _experiment(name: str) -> Experiment:
    sizes = {"chains": CHAINS, "kept": KEPT, "tune": TUNE, "thin": PAIRS[name].thin}
    return Experiment(f"references/{name}", name, reference, {"pair": name, **sizes}, full=1)


EXPERIMENTS = tuple(_experiment(name) for name in PAIRS)


# What they say, and the files ---------------------------------------------------------------------


def summary(store: Store) -> dict[str, Any]:
    """A row for each pair."""
    rows = []
    for experiment in EXPERIMENTS:
        units, seconds = stored(experiment, store)
        for found in units:
            if "failed" in found:
                rows.append({"name": experiment.place, "failed": found["failed"]})
                continue
            rows.append({
                "name": experiment.place,
                "parameters": len(found["names"]),
                "draws": found["draws"],
                "thin": experiment.settings["thin"],
                "r_hat": max(found["r_hat"]),
                "ess_bulk": min(found["ess_bulk"]),
                "ess_tail": min(found["ess_tail"]),
                "divergences": sum(found["divergences"]),
                "bfmi": min(found["bfmi"]),
                "lag_1": float(np.max(np.abs(found["lag_1"]))),
                "checks": checks(found),
                "cpu_seconds": round(seconds, 1),
                "numbers": found,
            })  # fmt: skip
    return {"seed": SEED, "chains": CHAINS, "pairs": len(PAIRS), "rows": rows}


def problems(found: Mapping[str, Any]) -> list[str]:
    """What the rule does not allow."""
    said = []
    for row in found["rows"]:
        failed = [name for name, good in row.get("checks", {}).items() if not good]
        if "failed" in row or failed:
            said.append(f"{row['name']}: {row.get('failed') or ', '.join(failed)}")
    return said


def write_files(found: Mapping[str, Any]) -> None:
    """The layout of posteriordb, small; the sum of each data file is in its info."""
    for row in found["rows"]:
        if "failed" not in row:
            _write_pair(PAIRS[row["name"]], row, row.pop("numbers"))


def _write_pair(pair: Pair, row: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    name = row["name"]
    data = json.dumps({k: v.tolist() for k, v in pair.seen().items()}) + "\n"
    title = (pair.build.__doc__ or "").rstrip(".")
    code = _module(pair)
    method = {"chains": CHAINS, "kept": KEPT, "tune": TUNE, "thin": row["thin"], "seed": SEED}
    info = {
        "name": name,
        "inference": {"method": "ardvark NUTS (nutpie)", "method_arguments": method},
        "diagnostics": {
            "diagnostic_information": {"names": found["names"]},
            "ndraws": found["draws"],
            "nchains": CHAINS,
            "effective_sample_size_bulk": found["ess_bulk"],
            "effective_sample_size_tail": found["ess_tail"],
            "r_hat": found["r_hat"],
            "divergent_transitions": found["divergences"],
            "expected_fraction_of_missing_information": found["bfmi"],
        },
        "checks_made": row["checks"],
        "comments": "Draws are not kept: the script makes them again.",
        "versions": {"ardvark": av.__version__},
    }
    summaries = "reference_posteriors/summary_statistics"
    files: dict[str, Any] = {
        f"posteriors/{name}.json": {
            "name": name, "model_name": pair.model, "data_name": pair.data,
            "reference_posterior_name": name, "dimensions": found["dimensions"],
        },
        f"data/info/{pair.data}.info.json": {
            "name": pair.data, "data_file": f"data/data/{pair.data}.json",
            "sha256": hashlib.sha256(data.encode()).hexdigest(),
        },
        f"data/data/{pair.data}.json": data,
        f"models/info/{pair.model}.info.json": {
            "name": pair.model, "title": title,
            "model_implementations": {"pymc": {"model_code": f"models/pymc/{pair.model}.py"}},
        },
        f"models/pymc/{pair.model}.py": code,
        f"reference_posteriors/draws/info/{name}.info.json": info,
        f"{summaries}/mean_value/mean_value/{name}.json": {
            "names": found["names"], "mean_value": found["mean"], "mcse": found["mean_mcse"],
        },
        f"{summaries}/sd_value/sd_value/{name}.json": {
            "names": found["names"], "sd_value": found["sd"],
        },
        f"{summaries}/quantiles/quantiles/{name}.json": {
            "names": found["names"], **found["quantiles"],
        },
    }  # fmt: skip
    for place, content in files.items():
        path = FOLDER / place
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
        write_text(path, text)


def _module(pair: Pair) -> str:
    """The function that builds the model, as a module of its own."""
    code = inspect.getsource(pair.build)
    needed = "\nimport ardvark as av\n" if "av." in code else ""
    return f'"""{pair.build.__doc__}"""\n\nfrom typing import Any\n{needed}\n\n{code}'


def _rounded(values: Any) -> Any:
    values = np.asarray(values)
    return values.tolist() if values.dtype.kind in "iu" else np.round(values, 10).tolist()


LANE = Lane("references", EXPERIMENTS, summary, problems, write_files, quick_minutes=0.3)
