"""Models of many effects: time, memory and likelihood beside lme4 and glmmTMB.

    OMP_NUM_THREADS=1 python -m ardvark.studies.speed.large one_way 1000 10000 100000
    OMP_NUM_THREADS=1 python -m ardvark.studies.speed.large crossed 10000 --peers glmmTMB

Logit GLMMs with an intercept, two fixed effects and ten rows for each effect: `one_way` has one
grouping factor of so many effects, `crossed` a second of a tenth as many. Each measurement is a
process of its own, so that its peak memory is its own; with `--turns 3` all take their turn three
times. statsmodels may live in another Python, named by STATSMODELS_PYTHON.

| measurement    | what it is                                                                    |
|----------------|-------------------------------------------------------------------------------|
| `gradient`     | reading; then, warm, log evidence and gradient in the sds at one value of them|
| `likelihood`   | Laplace's likelihood maximised over fixed effects and sds, after reading:     |
|                | the function that lme4 and glmmTMB maximise                                   |
| `integrated`   | `av.fit(model, av.Laplace(hyper=av.Integrated()))`, reading and draws included|
| `ep`, `nuts`   | the same by EP, and by NUTS() with 300 draws of two chains                    |
| `nutpie`       | nutpie on the graph as PyMC compiles it, 300 draws of two chains              |

Rows go to `studies/results/large.json`, the table of it to `docs/large_models_table.md`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ardvark.studies.speed import record

__all__ = ["PAGE", "PATH", "build", "data", "exponents", "page", "table"]

PATH = Path(__file__).parents[1] / "results" / "large.json"
PAGE = Path(__file__).parents[2] / "docs" / "large_models_table.md"
PEERS = ("glmmTMB", "lme4", "statsmodels")
MEASUREMENTS = ("gradient", "likelihood", "integrated", "ep", "nuts", "nutpie")
TRUTH = {"fixed": [0.3, 0.5, -0.4], "sds": [0.7, 0.5]}
HEAD = """# Many effects, measured

Made by `python -m ardvark.studies.speed.large` from `studies/results/large.json`. Logit models
with an intercept, two fixed effects and ten rows for each effect; `crossed` has a second factor of
a tenth as many effects, `walk` is a Poisson series. CPU seconds of one thread, each in a process of
its own; reading (a graph to arrays, once) apart, but in the time of "integrated", which is a whole
fit with its draws. "gradient" is one evidence with its gradient, "likelihood" the maximum of
Laplace's likelihood over fixed effects and sds: the function that lme4 and glmmTMB maximise, so
that its value can be compared. nutpie draws 300 of each of two chains, and its compiling is under
reading; statsmodels is its variational Bayes of a binomial mixed model. Growth is the exponent of
the seconds in the number of effects, over the two largest sizes measured. GB is the peak of the
process.
"""
KEYS = ("task", "effects", "contestant")


def data(task: str, effects: int) -> dict[str, Any]:
    """Columns of the data."""
    rng = np.random.default_rng(effects)
    rows = 10 * effects
    g, x = np.repeat(np.arange(effects), 10), rng.normal(size=(rows, 2))
    eta = TRUTH["fixed"][0] + x @ TRUTH["fixed"][1:] + 0.7 * rng.normal(size=effects)[g]
    found = {"x0": x[:, 0], "x1": x[:, 1], "g": g}
    if task == "crossed":
        found["h"] = rng.permutation(np.arange(rows) % (effects // 10))
        eta = eta + 0.5 * rng.normal(size=effects // 10)[found["h"]]
    return found | {"t": rng.binomial(1, 1.0 / (1.0 + np.exp(-eta)))}


def build(task: str, effects: int) -> Any:
    """The model as a user writes it."""
    import pymc as pm

    if task == "walk":
        return _walk(effects)
    d = data(task, effects)
    X = np.column_stack([d["x0"], d["x1"]])
    with pm.Model() as model:
        a, b = pm.Normal("a", 0.0, 5.0), pm.Normal("b", 0.0, 5.0, shape=2)
        s = pm.HalfNormal("s", 1.0)
        eta = a + X @ b + s * pm.Normal("u", 0.0, 1.0, shape=effects)[d["g"]]
        if task == "crossed":
            r = pm.HalfNormal("r", 1.0)
            eta = eta + r * pm.Normal("v", 0.0, 1.0, shape=effects // 10)[d["h"]]
        pm.Bernoulli("t", logit_p=eta, observed=d["t"])
    return model


def _walk(points: int) -> Any:
    """Counts whose log rate is a random walk."""
    import pymc as pm

    rng = np.random.default_rng(points)
    t = rng.poisson(np.exp(1.0 + np.cumsum(0.05 * rng.normal(size=points))))
    with pm.Model() as model:
        s = pm.HalfNormal("s", 0.2)
        v = pm.GaussianRandomWalk("v", sigma=s, init_dist=pm.Normal.dist(0.0, 2.0), shape=points)
        pm.Poisson("t", pm.math.exp(v), observed=t)
    return model


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def measure(task: str, effects: int, what: str) -> dict[str, Any]:
    """One measurement in this process."""
    return {
        "gradient": _gradient,
        "likelihood": _likelihood,
        "integrated": _integrated,
        "ep": _integrated_ep,
        "nuts": _nuts,
        "nutpie": _nutpie,
    }[what](task, effects)


def _gradient(task: str, effects: int) -> dict[str, Any]:
    import ardvark as av

    model, rule = build(task, effects), av.Laplace()
    before = time.process_time()
    latent = av.read_model(model, sparse=True)
    reading = time.process_time() - before
    spent = []
    for value in (0.6, 0.65, 0.7):
        theta = {name: np.array(value) for name in latent.hyper}
        before = time.process_time()
        arrays = latent.at(theta)
        fit = rule.approximate(arrays)
        slope = latent.pull(theta, rule.evidence_gradient(arrays, fit))
        spent.append(time.process_time() - before)
    return {
        "cpu_seconds": min(spent[1:]),  # the first compiles
        "reading_seconds": reading,
        "log_likelihood": fit.log_evidence,
        "slope": [float(v) for v in slope.values()],
        "memory": _memory(),
    }


def _likelihood(task: str, effects: int) -> dict[str, Any]:
    import ardvark as av
    from ardvark.inference.hyper.settle import settle
    from ardvark.inference.running.progress import progress

    model = build(task, effects)
    names = ("u", "v") if task == "crossed" else ("u",)
    before = time.process_time()
    latent = av.read_model(model, weights=names, sparse=True)
    reading = time.process_time() - before
    before = time.process_time()
    with progress("laplace", False) as tick:
        settled = settle(latent, av.Laplace(weights=names), av.Evidence(), tick)
    theta = settled.theta
    return {
        "cpu_seconds": time.process_time() - before,
        "reading_seconds": reading,
        "log_likelihood": settled.fit.log_evidence,
        "fixed": [float(theta["a"]), *map(float, theta["b"])],
        "sds": [float(theta[name]) for name in ("s", "r") if name in theta],
        "converged": bool(settled.converged),
        "memory": _memory(),
    }


def _integrated_ep(task: str, effects: int) -> dict[str, Any]:
    import ardvark as av

    return _integrated(task, effects, av.EP(hyper=av.Integrated()))


def _nuts(task: str, effects: int) -> dict[str, Any]:
    import ardvark as av

    return _integrated(task, effects, av.NUTS())


def _nutpie(task: str, effects: int) -> dict[str, Any]:
    """300 draws of two chains, as many to adapt; compiling counts as reading."""
    import nutpie

    model = build(task, effects)
    before = time.process_time()
    compiled = nutpie.compile_pymc_model(model)
    reading = time.process_time() - before
    before = time.process_time()
    tree = nutpie.sample(
        compiled, draws=300, tune=300, chains=2, cores=1, seed=1, progress_bar=False
    )
    draws = tree["posterior"]
    names = [name for name in ("s", "r") if name in draws]
    return {
        "cpu_seconds": time.process_time() - before,
        "reading_seconds": reading,
        "sds": [float(draws[name].mean()) for name in names],
        "sds_sds": [float(draws[name].std()) for name in names],
        "memory": _memory(),
    }


def _integrated(task: str, effects: int, method: Any = None) -> dict[str, Any]:
    import ardvark as av

    model = build(task, effects)
    before = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = av.fit(
            model,
            method or av.Laplace(hyper=av.Integrated(), corrected=True),
            draws=300 if isinstance(method, av.NUTS) else 100,
            chains=2,
            random_seed=1,
            progressbar=False,
        )
    draws = tree["posterior"]
    names = [name for name in ("s", "r") if name in draws]
    fixed = [] if task == "walk" else [draws["a"], draws["b"][..., 0], draws["b"][..., 1]]
    places = np.linspace(0, effects - 1, 9).astype(int)
    fit = tree["fit"] if "fit" in tree.children else {}
    return {
        "cpu_seconds": time.process_time() - before,
        "log_likelihood": float(fit["log_evidence"]) if "log_evidence" in fit else None,
        "fixed": [float(values.mean()) for values in fixed],
        "fixed_sds": [float(values.std()) for values in fixed],
        "sds": [float(draws[name].mean()) for name in names],
        "sds_sds": [float(draws[name].std()) for name in names],
        "some_means": draws["v"].mean(("chain", "draw"))[places].values.tolist()
        if task == "walk"
        else [],
        "some_sds": draws["v"].std(("chain", "draw"))[places].values.tolist()
        if task == "walk"
        else [],
        "converged": bool(tree.attrs["converged"]),
        "note": str(tree.attrs["caution"]),
        "memory": _memory(),
    }


def _peer(package: str, task: str, effects: int, limit: float) -> dict[str, Any]:
    scripts = Path(__file__).parent / "peers"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        columns = data(task, effects)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        command = ["Rscript", str(scripts / "run_glmm.R"), package, str(path), task]
        if package == "statsmodels":
            python = os.environ.get("STATSMODELS_PYTHON", "python3")
            command = [python, str(scripts / "run_statsmodels.py"), str(path), task]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, check=True
            )
        except subprocess.TimeoutExpired:
            return {"cpu_seconds": None, "note": f"not done in {limit:.0f} s of wall time"}
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    memory = peak / 1e6 if peak > before else None
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found | {"memory": memory}


def _better(row: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The row, or the stored one of an earlier turn if that took less time."""
    [before] = [r for r in rows if all(r[key] == row[key] for key in KEYS)]
    seconds = [r.get("cpu_seconds") or float("inf") for r in (row, before)]
    spent = [*before.get("turns", [before.get("cpu_seconds")]), row.get("cpu_seconds")]
    return dict(row if seconds[0] <= seconds[1] else before) | {"turns": spent}


def _in_a_process(arguments: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "ardvark.studies.speed.large", *arguments, "--here"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def exponents(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Growth of the seconds with the number of effects, over the two largest sizes measured."""
    found = {}
    for task, who in {(row["task"], row["contestant"]) for row in rows}:
        spent = {
            row["effects"]: row["cpu_seconds"]
            for row in rows
            if (row["task"], row["contestant"]) == (task, who) and row.get("cpu_seconds")
        }
        if len(spent) > 1:
            less, more = sorted(spent)[-2:]
            found[task, who] = float(np.log(spent[more] / spent[less]) / np.log(more / less))
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The page, from the record and nothing else."""
    growth = exponents(rows)
    lines = [
        HEAD,
        "| task | effects | contestant | CPU s | reading, s | GB | log likelihood | sds | growth |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: (r["task"], r["effects"], r["contestant"])):
        spent = row.get("cpu_seconds")
        last = max(r["effects"] for r in rows if _same(r, row))
        at = growth.get((row["task"], row["contestant"])) if row["effects"] == last else None
        cells = [
            row["task"],
            str(row["effects"]),
            row["contestant"],
            row.get("note", "") if spent is None else f"{spent:.3g}",
            f"{row['reading_seconds']:.2g}" if row.get("reading_seconds") else "",
            f"{row['memory']:.2g}" if row.get("memory") else "",
            f"{row['log_likelihood']:.3f}" if row.get("log_likelihood") is not None else "",
            ", ".join(
                f"{s:.4f}" for s in row.get("sds", []) if "gradient" not in row["contestant"]
            ),
            "" if at is None else f"{at:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    on = [row["measured"] for row in rows]
    loads = [m["load"] for m in on]
    who = "; ".join(sorted({f"{m['processor']}, {m['cores']} cores" for m in on}))
    shared = f"Measured on {who}, beside other work (load {min(loads):.0f} to {max(loads):.0f})."
    return "\n".join(lines) + f"\n\n{shared}\n"


TRUTH_HEAD = """## Beside what is known

`python -m ardvark.studies.speed.truth lip walk gaussian_walk one_way`: whole fits with the
hyperparameters integrated, against long NUTS (lip cancer of Scotland by the model of Besag, York
and Mollié; a walk of counts), Kalman's smoother with both sds on a grid (a walk under noise), and
quadrature group by group (a logit with one grouping factor, ten rows for each effect). Errors are
in posterior sds: of a mean, and of the logarithm of an sd; over all elements the root of their mean
square, then the largest. Noise is the Monte Carlo error of fit and reference together, in the same
units: an error of its size is none.

Three numbers each: rms, largest, noise. A task of the command without a row here has not been run.

| task | effects | method | CPU s | GB | evidence - exact | of | mean | sd |
|---|---|---|---|---|---|---|---|---|
"""


def truth_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Errors of whole fits, one line for each named variable."""
    lines = []
    for row in sorted(rows, key=lambda r: (r["task"], r["effects"], r["contestant"])):
        exact = row["reference"].get("log_evidence")
        head = [
            row["task"],
            str(row["effects"]),
            row["contestant"],
            f"{row['cpu_seconds']:.3g}",
            f"{row['memory']:.2g}",
            "" if exact is None else f"{row['log_evidence'] - exact:+.3f}",
        ]
        for name, e in row["errors"].items():
            numbers = [
                f"{e[f'{what}_rms']:.3f}, {e[f'{what}_largest']:.3f}, {e[f'{what}_noise']:.3f}"
                for what in ("mean", "sd")
            ]
            lines.append(f"| {' | '.join([*head, name, *numbers])} |")
            head = [""] * len(head)
    return "\n".join(lines) + "\n"


def page(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Both tables, from the record and nothing else."""
    found = table(tables.get("large", []))
    truth = tables.get("truth", [])
    return f"{found}\n{TRUTH_HEAD}{truth_table(truth)}" if truth else found


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["task"] == other["task"] and one["contestant"] == other["contestant"])


def main() -> None:
    """Run what is asked for, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("one_way", "crossed", "walk", "table"))
    parser.add_argument("effects", nargs="*", type=int)
    parser.add_argument(
        "--measure", nargs="*", default=list(MEASUREMENTS[:3]), choices=MEASUREMENTS
    )
    parser.add_argument("--peers", nargs="*", default=[], choices=PEERS)
    parser.add_argument("--limit", type=float, default=1800.0, help="wall seconds of a peer")
    parser.add_argument("--turns", type=int, default=1, help="rounds; the least CPU time is kept")
    parser.add_argument("--here", action="store_true", help="in this process, to the screen")
    asked = parser.parse_args()
    if asked.here:
        sys.stdout.write(json.dumps(measure(asked.task, asked.effects[0], asked.measure[0])) + "\n")
        return
    for effects in asked.effects:
        names = {what: f"ardvark, {what}" for what in asked.measure} | {p: p for p in asked.peers}
        names |= {"nutpie": "nutpie"} if "nutpie" in names else {}
        for turn in range(asked.turns):
            for what, contestant in names.items():
                load, row = os.getloadavg()[0], {"task": asked.task, "effects": effects}
                if what in PEERS:
                    found = _peer(what, asked.task, effects, asked.limit)
                else:
                    found = _in_a_process([asked.task, str(effects), "--measure", what])
                row |= {"contestant": contestant} | found
                sys.stdout.write(json.dumps(row) + "\n")
                sys.stdout.flush()
                if turn:
                    row = _better(row, record.read(PATH)["large"])
                record.write(PATH, "large", [row], KEYS, load)
    PAGE.write_text(page(record.read(PATH)))


if __name__ == "__main__":
    main()
