"""Simulation-based calibration of the methods that cost milliseconds, as a record to ship.

    python -m ardvark.studies.calibration --folder calibration/         # minutes, can be killed
    python -m ardvark.studies.calibration --quick --out record.json    # fewer replications

Every case has 50 rows and four standard normal inputs, seeded. "Held" hyperparameters are given to
the method at the values they were simulated with: this is the calibration of the approximation
itself. "In the posterior" is the method as it is used by default where it has them there.
`--most 300` is a small record in half a minute; every entry says how many replications it has.

What to expect. Laplace and EP of a regression are exact, EP of a probit is nearly so. Mean-field VB
is narrow by design, and more so where the likelihood enters by a bound. 5000 replications see an sd
that is 5 % off. SBC averages over the prior: errors that cancel there, or that only strange data
provoke, stay unseen.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ardvark as av
from ardvark.diagnostics.calibration.checks import coverage, inclusion_calibration
from ardvark.diagnostics.calibration.record import FORMAT, PLACE, digest
from ardvark.diagnostics.storage.atomic import write_text

__all__ = ["CASES", "Case", "entry", "main", "make"]

ROWS, INPUTS, SEED = 50, 4, 2026
GRID = np.linspace(0.02, 0.98, 49)  # where the curve of the page is drawn
QUICK = 100
HYPER = {True: "held", False: "posterior", None: "default"}


class Case(NamedTuple):
    """A model, a method, and how often."""

    model: str
    setting: str
    method: str
    hold: bool | None
    replications: int
    options: dict[str, Any]


def _cases() -> Iterator[Case]:
    linear: list[tuple[str, str, dict[str, Any]]] = [
        ("ard_classification", "probit", {"link": "probit"}),
        ("ard_classification", "logit", {"link": "logit"}),
        ("ard_regression", "noise inferred", {"b": 2 / INPUTS}),  # not from t: it is simulated
    ]
    for model, setting, options in linear:
        yield Case(model, setting, "ep", True, 5000, options)
        yield Case(model, setting, "laplace", True, 5000, options)
        yield Case(model, setting, "vb", True, 2000, options)
        yield Case(model, setting, "vb", False, 2000, options)
    yield Case("subset_regression", "noise known", "exact", False, 500, {"noise": 1.0})
    yield Case("subset_regression", "noise inferred", "reversible_jump", False, 500, {})
    yield Case("subset_classification", "probit", "reversible_jump", False, 500, {})


CASES = tuple(_cases())


def builder(case: Case) -> Any:
    """Give the function that builds the model of a case."""
    X = np.random.default_rng(SEED).standard_normal((ROWS, INPUTS))
    t = (X[:, 0] > 0).astype(int) if "classification" in case.model else X[:, 0] - X[:, 1]
    return partial(getattr(av.models, case.model), X, t, **case.options)


def entry(case: Case, replications: int, folder: Path | None, jobs: int = 1) -> dict[str, Any]:
    """Run a case, and sum it up."""
    held, home = HYPER[case.hold], _home(case, folder)
    tree = av.sbc(
        builder(case), case.method, replications, hold=case.hold, random_seed=SEED, folder=home,
        executor=jobs, draws=100,
    )  # fmt: skip
    table = av.diagnostics.sbc_summary(tree)
    places = tree["prior_sbc"].to_dataset()
    pooled = np.concatenate([places[name].values.ravel() for name in ("bias", "w")])
    ecdf = np.searchsorted(np.sort(pooled), GRID, side="right") / len(pooled) - GRID
    found: dict[str, Any] = {
        "model": case.model,
        "setting": case.setting,
        "method": case.method,
        "hyper": held,
        "rows": ROWS,
        "inputs": INPUTS,
        "seed": SEED,
        "replications": int(tree.attrs["replications"]),
        "failed": int(tree.attrs["failed"]),
        "not_converged": int(tree.attrs["not_converged"]),
        "calibrated": bool(table["calibrated"].all()),
        "coverage_50": round(coverage(pooled, 0.5)[0], 4),
        "coverage_90": round(coverage(pooled, 0.9)[0], 4),
        "coverage_90_se": round(float(table["coverage_90_se"].iloc[0]), 4),
        "worst": str(table.index[0]),
        "uniformity_p": float(f"{table['uniformity_p'].iloc[0]:.3g}"),
        "biased": {str(n): b for n, b in table["bias"].items() if b},
        "quantities": {
            str(name): {k: round(float(row[k]), 4) for k in ("uniformity_p", "coverage_90")}
            for name, row in table.sort_index().iterrows()
        },
        "delta_ecdf": [round(float(v), 4) for v in ecdf],
        "sha256": tree.attrs["sha256"],
    }
    if "inclusion" in tree.children:
        group = tree["inclusion"]
        tests = inclusion_calibration(group["included"], group["probability"])
        found["inclusion"] = {str(k): float(f"{v:.3g}") for k, v in tests.items()}
    return found


def _home(case: Case, folder: Path | None) -> Path | None:
    name = f"{case.model}-{case.setting}-{case.method}-{HYPER[case.hold]}"
    return None if folder is None else folder / name


def make(
    cases: Sequence[Case], folder: Path | None, most: int | None = None, jobs: int = 1
) -> Iterator[dict[str, Any]]:
    """Run the cases, each told as soon as it is done; `most`: no more than these, or are there."""
    for case in cases:
        home, wanted = _home(case, folder), case.replications
        if most is not None:
            there = len(list(home.glob("0*.json"))) if home is not None and home.is_dir() else 0
            wanted = min(wanted, max(most, there))
        yield entry(case, wanted, folder, jobs)


def _command(asked: argparse.Namespace) -> str:
    words = ["python -m ardvark.studies.calibration"]
    words += ["--quick"] if asked.quick else [f"--most {asked.most}"] if asked.most else []
    return " ".join([*words, *(f"--method {name}" for name in asked.method or ())])


def main(arguments: list[str] | None = None) -> None:
    """Command line: a line for each case, then the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="keeps replications, so that a run can go on")
    parser.add_argument("--out", type=Path, default=PLACE)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help=f"at most {QUICK} replications")
    parser.add_argument("--most", type=int, help="replications of a case, unless more are there")
    parser.add_argument("--method", action="append", choices=sorted({c.method for c in CASES}))
    asked = parser.parse_args(arguments)
    cases = [case for case in CASES if not asked.method or case.method in asked.method]
    entries = []
    for found in make(cases, asked.folder, QUICK if asked.quick else asked.most, asked.jobs):
        entries.append(found)
        words = (f"{found[k]}" for k in ("model", "setting", "method", "hyper", "coverage_90"))
        sys.stdout.write("  ".join([*words, f"p {found['uniformity_p']}"]) + "\n")
        sys.stdout.flush()
    record = {
        "format": FORMAT,
        "version": av.__version__,
        "command": _command(asked),
        "grid": [round(float(g), 2) for g in GRID],
        "entries": entries,
        "sha256": digest(entries),
    }
    write_text(asked.out, json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
