"""Make the reference moments of the users' own models: long NUTS on each model as written.

    python tests/references/own_models_make.py                every case that has none yet
    python tests/references/own_models_make.py logit seeds    these, again
    python tests/references/own_models_make.py --list         what is stored

Four chains by nutpie. A run with divergences, R-hat of 1.01 or more, or ESS (bulk or tail, the
least over all stored scalars) of 2500 or less is made again with a higher target_accept and more
draws. A reference is usable with R-hat below 1.01, ESS above 1000 and divergences in at most one
draw of a thousand; what fails that in the last attempt is stored with `usable: false` and the
reason. A centred hierarchy is sampled by its non-centred twin, the same posterior. The file is
written after each case, so that an interrupted run goes on where it stopped.

Of each free variable and each deterministic in `Case.also` the first 12 numbers are kept. `logp` is
a difference of the model's log density between two points: it changes when the model or its data
do, and the reference is then to be made again.
"""

import argparse
import json
import os
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import arviz_stats
import numpy as np
import pytensor
from own_models import CASES, Case
from own_models.case import as_graph

STORED = Path(__file__).with_name("own_models.json")
COLUMNS = ("mean", "sd", "q05", "q50", "q95", "mcse", "mcse_sd", "ess", "rhat")
SEED = 20250
TUNE = 1500
MOST_SCALARS = 12  # of one variable
MOST_DIVERGENCES = 1e-3  # of all draws, in the last attempt
HIGHEST_RHAT, LEAST_ESS = 1.01, 1000  # else it is not usable
WANTED_ESS = 2500  # a mean is then known to 0.02 sd; below that another attempt is made


def stored() -> dict[str, Any]:
    """Everything that is in the file."""
    if not STORED.exists():
        return {"columns": list(COLUMNS), "cases": {}}
    return dict(json.loads(STORED.read_text()))


def reference(name: str) -> dict[str, Any]:
    """The stored run of a case; its `scalars` are name → column → number."""
    found = stored()
    run = dict(found["cases"][name])
    run["scalars"] = {
        scalar: dict(zip(found["columns"], values, strict=True))
        for scalar, values in run["scalars"].items()
    }
    return run


def kept_names(case: Case) -> list[str]:
    """Variables whose moments are kept."""
    return [variable.name for variable in case.graph.free_RVs] + list(case.also)


def pinned_logp(model: Any) -> float:
    """How much the log density changes between two points near the start.

    A difference, since PyMC may mend a constant: 6.4.0 did that of the LKJ distribution.
    """

    def moved(by: Any, value: Any) -> Any:
        if np.asarray(value).dtype.kind != "f":
            return value
        return value + 0.1 * by(1 + np.arange(np.size(value))).reshape(np.shape(value))

    with pytensor.config.change_flags(cxx=""):
        start = model.initial_point()
        logp = model.compile_logp(mode="FAST_COMPILE")
        one, two = ({n: moved(by, v) for n, v in start.items()} for by in (np.sin, np.cos))
        return float(logp(one)) - float(logp(two))


def scalars_of(posterior: Any, names: list[str]) -> dict[str, np.ndarray]:
    """Draws (chain, draw) of the first numbers of each variable, by name and index."""
    found = {}
    for name in names:
        values = posterior[name].values
        for index in list(np.ndindex(values.shape[2:]))[:MOST_SCALARS]:
            label = f"[{','.join(map(str, index))}]" if index else ""
            found[name + label] = values[(slice(None), slice(None), *index)]
    return found


def moments(draws: np.ndarray) -> list[float]:
    """The columns of one scalar, rounded to a thousandth of its sd."""
    mean, sd = draws.mean(), draws.std(ddof=1)
    decimals = int(np.ceil(-np.log10(sd))) + 3
    places = [round(float(v), decimals) for v in (mean, sd, *np.quantile(draws, (0.05, 0.5, 0.95)))]
    errors = [float(arviz_stats.mcse(draws, method=method)) for method in ("mean", "sd")]
    bulk = float(arviz_stats.ess(draws, method="bulk"))
    tail = float(arviz_stats.ess(draws, method="tail", prob=(0.05, 0.95)))
    rhat = float(arviz_stats.rhat(draws))
    return [*places, *(float(f"{e:.3g}") for e in errors), round(min(bulk, tail)), round(rhat, 4)]


def shortcomings(scalars: dict[str, list[float]], divergences: int, draws: int) -> str:
    """What is wrong with a run, or nothing."""
    worst_rhat = max(scalars, key=lambda s: scalars[s][COLUMNS.index("rhat")])
    worst_ess = min(scalars, key=lambda s: scalars[s][COLUMNS.index("ess")])
    rhat = scalars[worst_rhat][COLUMNS.index("rhat")]
    ess = scalars[worst_ess][COLUMNS.index("ess")]
    found = []
    if divergences > MOST_DIVERGENCES * 4 * draws:
        found.append(f"{divergences} divergences in {4 * draws} draws")
    if not rhat < HIGHEST_RHAT:
        found.append(f"R-hat {rhat} of {worst_rhat}")
    if not ess > LEAST_ESS:
        found.append(f"ESS {ess:g} of {worst_ess}")
    return "; ".join(found)


def attempts(case: Case) -> list[tuple[int, float]]:
    """Draws per chain and target_accept, one try after another."""
    first = case.target_accept
    return [(5000, first), (10000, max(first, 0.97)), (20000, max(first, 0.99))]


def make(case: Case) -> dict[str, Any]:
    """Sample one case until its run is good, or the attempts are used up."""
    import nutpie

    begin = time.perf_counter()
    sampled = as_graph(case.twin()) if case.twin else case.graph
    names = kept_names(case)
    facts: dict[str, Any] = {"usable": False, "reason": "", "logp": pinned_logp(case.graph)}
    if sampled.discrete_value_vars:
        names_of = ", ".join(v.name for v in sampled.discrete_value_vars)
        reason = f"NUTS does not sample discrete variables ({names_of})"
        return facts | {"reason": reason, "scalars": {}}
    compiled = nutpie.compile_pymc_model(sampled, var_names=names)
    for draws, target in attempts(case):
        tree = nutpie.sample(
            compiled, draws=draws, tune=TUNE, chains=4, cores=2, seed=SEED,
            target_accept=target, save_warmup=False, progress_bar=False,
        )  # fmt: skip
        divergences = int(tree["sample_stats"]["diverging"].values.sum())
        scalars = {s: moments(d) for s, d in scalars_of(tree["posterior"], names).items()}
        reason = shortcomings(scalars, divergences, draws)
        least = min(values[COLUMNS.index("ess")] for values in scalars.values())
        if not reason and divergences == 0 and least > WANTED_ESS:
            break
    return facts | {
        "usable": not reason,
        "reason": reason,
        "form": "twin" if case.twin else "as written",
        "divergences": divergences,
        "draws": draws,
        "tune": TUNE,
        "target_accept": target,
        "seed": SEED,
        "seconds": round(time.perf_counter() - begin),
        "versions": {package: version(package) for package in ("pymc", "nutpie", "numpy")},
        "scalars": scalars,
    }


def keep(name: str, run: dict[str, Any]) -> None:
    """Put a run into the file, one line for each case."""
    found = stored()
    found["cases"][name] = run
    ordered = {n: found["cases"][n] for n in CASES if n in found["cases"]}
    lines = [f"{json.dumps(n)}:{json.dumps(r, separators=(',', ':'))}" for n, r in ordered.items()]
    text = f'{{"columns":{json.dumps(list(COLUMNS))},\n"cases":{{\n' + ",\n".join(lines) + "\n}}\n"
    partial = STORED.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, STORED)


def main() -> None:
    """Make what was asked for, or what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", help="cases to make again; none: those that are missing"
    )
    parser.add_argument("--list", action="store_true", help="show what is stored")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    if asked.list:
        for name in CASES:
            run = stored()["cases"].get(name)
            print(f"{name:30s}", "none" if run is None else run["reason"] or "usable")
        return
    warnings.simplefilter("ignore")  # of the sampler, about what is judged here
    failed = []
    for name in asked.names or [n for n in CASES if n not in stored()["cases"]]:
        try:
            run = make(CASES[name])
        except Exception as error:  # the other cases are still worth their time
            failed.append(name)
            print(f"{name:30s} FAILED  {type(error).__name__}: {error}", flush=True)
            continue
        keep(name, run)
        print(f"{name:30s} {run.get('seconds', 0):4d} s  {run['reason'] or 'usable'}", flush=True)
    if failed:
        sys.exit(f"nothing was stored for {', '.join(failed)}")


if __name__ == "__main__":
    main()
