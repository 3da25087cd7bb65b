"""Simulation-based calibration of every pair of `cases.py`, and the record that is shipped.

    python -m ardvark.studies.validation --lane calibration --minutes 60

Approximations of a Gaussian block are placed by their distribution functions, draws by ranks with
random ties, chains thinned to their effective size (`diagnostics/calibration/replication.py`).

| what is asked | by |
|---|---|
| is the place of the truth uniform? | `uniformity_test(method="pot_c")`, 0.01 over all quantities |
| how often is the truth in the central 50, 90, 99 %? | the share, and its standard error |
| are inclusion probabilities frequencies? | Brier, isotonic distance, mean equals prior |

What it cannot see: errors that cancel over the prior (the log likelihood is among the quantities
for that reason), what only strange data provoke, and sizes other than these. With 1000 replications
an sd that is 20 % off is found for certain, 10 % three times in four, 5 % once in five times.
The quick form has 25 to 50: half the right sd is found every other time, a third of it for certain.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import ardvark as av
from ardvark.diagnostics.calibration.checks import coverage, inclusion_calibration, places_summary
from ardvark.diagnostics.calibration.record import FORMAT, PLACE, digest
from ardvark.diagnostics.storage.atomic import write_text
from ardvark.inference.running.executor import seed_of
from ardvark.studies.experiments import Experiment, Numbers, Store
from ardvark.studies.validation.cases import CASES, CHAINS, DRAWS, SEED, Case, replicator
from ardvark.studies.validation.lane import Lane, commit, stored

__all__ = ["EXPERIMENTS", "LANE", "entry", "replications"]

GRID = np.linspace(0.02, 0.98, 49)  # where the curve of the report is drawn
LEVEL = 0.01
FEWEST = 20  # replications, below which nothing is said
CHEAP = 10  # replications in a unit; pairs with fewer are not in the quick form
INTERVALS = (0.5, 0.9, 0.99)
BAND = 2.576  # standard errors: a right method lies inside 99 times in 100
PLACES = 10_000  # a place is the middle of one of so many cells: never 0 or 1, short to keep


def replications(number: int, case: str, batch: int, **of_case: int) -> Numbers:
    """Some replications of a case, each with its own seed; `of_case` is what the case has."""
    one = replicator(case)
    records = [one.run(seed_of(SEED, number * batch + i)) for i in range(batch)]
    for record in records:
        if "pit" in record:
            record["pit"] = {name: _cells(u) for name, u in record["pit"].items()}
        if "inclusion" in record:
            record["inclusion"] = np.round(record["inclusion"], 4).tolist()
    return {"records": records, "commit": commit()}


def _cells(u: Any) -> Any:
    """Places on a grid. A single 0 or 1, which rounding gives, makes any p-value nothing."""
    cell = np.clip(np.floor(np.asarray(u) * PLACES), 0, PLACES - 1)
    return np.round((cell + 0.5) / PLACES, 5).tolist()


def _experiment(case: Case) -> Experiment:
    return Experiment(
        f"calibration/{case.name}",
        case.truth,
        replications,
        {"case": case.name, "batch": case.batch}
        | ({} if case.draws == DRAWS else {"draws": case.draws})
        | ({} if case.chains == CHAINS else {"chains": case.chains}),
        full=math.ceil(case.full / case.batch),
        quick=max(1, 40 // case.batch) if case.batch >= CHEAP else 0,
        version=case.version,
    )


EXPERIMENTS = tuple(_experiment(case) for case in CASES.values())


# What they say ------------------------------------------------------------------------------------


def by_quantity(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Places (replication,) of every element of every quantity."""
    found = {}
    for name in records[0]["pit"]:
        values = np.array([record["pit"][name] for record in records], float)
        flat = values.reshape(len(values), -1)
        for i, column in enumerate(flat.T):
            found[name if values.ndim == 1 else f"{name}[{i}]"] = column
    return found


def entry(case: Case, records: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any] | None:
    """Sum up the replications of a case; None if they are too few to say anything."""
    good = [record for record in records if "failed" not in record]
    if len(good) < FEWEST:
        return None
    places = by_quantity(good)
    table = places_summary(places)
    weights = [u for name, u in places.items() if name.split("[")[0] in case.weights]
    pooled = np.concatenate(weights or list(places.values()))
    ecdf = np.searchsorted(np.sort(pooled), GRID, side="right") / len(pooled) - GRID
    kept = [record["kept"] for record in good if "kept" in record]
    worst = table.iloc[0]
    found: dict[str, Any] = {
        "model": case.model,
        "setting": case.setting,
        "method": case.method,
        "hyper": case.hyper,
        "truth": case.truth,
        "rows": case.rows,
        "inputs": case.inputs,
        "seed": SEED,
        "replications": len(records),
        "of": case.full,
        "failed": len(records) - len(good),
        "not_converged": sum(not record["converged"] for record in good),
        "calibrated": bool(table["calibrated"].all()),
        **_coverages(pooled, len(good)),
        "worst": str(table.index[0]),
        "uniformity_p": _short(worst["uniformity_p"]),
        "tests": len(table),
        "biased": {str(n): b for n, b in table["bias"].items() if b},
        "quantities": {
            str(name): {
                "uniformity_p": _short(row["uniformity_p"]),
                "mean": round(float(row["mean"]), 4),
                **{f"coverage_{100 * p:.0f}": round(coverage(places[str(name)], p)[0], 4)
                   for p in INTERVALS},
            }
            for name, row in table.sort_index().iterrows()
        },
        "delta_ecdf": [round(float(v), 4) for v in ecdf],
        "cpu_seconds": round(seconds, 1),
    }  # fmt: skip
    if kept:
        found["kept"] = [int(min(kept)), int(np.median(kept))]
    if "included" in good[0]:
        tests = inclusion_calibration(
            [record["included"] for record in good], [record["inclusion"] for record in good]
        )
        found["inclusion"] = {str(k): _short(v) for k, v in tests.items()}
    return found


def _coverages(pooled: Any, count: int) -> dict[str, Any]:
    """Shares of truths in central intervals; the error is that of one weight, which is safe."""
    found = {}
    for p in INTERVALS:
        key = f"coverage_{100 * p:.0f}"
        found[key] = round(coverage(pooled, p)[0], 4)
        found[f"{key}_se"] = round(math.sqrt(p * (1 - p) / count), 4)
    return found


def _short(value: Any) -> float:
    return float(f"{float(value):.3g}")


def summary(store: Store) -> dict[str, Any]:
    """All that is stored, one entry for each pair."""
    return summed(_stored(store))


def _stored(store: Store) -> Iterator[tuple[Case, list[dict[str, Any]], float]]:
    for case, experiment in zip(CASES.values(), EXPERIMENTS, strict=True):
        units, seconds = stored(experiment, store)
        records = [record for unit in units for record in unit.get("records", ())]
        broken = [{"failed": unit["failed"]} for unit in units if "failed" in unit]
        yield case, records + broken, seconds


def summed(found: Any) -> dict[str, Any]:
    """Entries, and how many tests were made over all pairs."""
    entries, few = [], {}
    for case, records, seconds in found:
        if one := entry(case, records, seconds):
            entries.append(one)
        else:
            few[case.name] = len(records)
    return _together(entries, few)


def joined(found: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Of each pair the entry with more replications, whichever it says; earlier ones are marked."""
    origin = {"commit": earlier["commit"], "date": earlier["date"]}
    by_name = {_name(e): {"origin": origin} | e for e in earlier["entries"]}
    for e in found["entries"]:
        if e["replications"] >= by_name.get(_name(e), e)["replications"]:
            by_name[_name(e)] = e
    few = {name: count for name, count in found["too_few"].items() if name not in by_name}
    return dict(found) | _together([by_name[n] for n in CASES if n in by_name], few)


def _name(e: Mapping[str, Any]) -> str:
    return f"{e['model']}/{e['setting']}/{e['method']}/{e['hyper']}"


def _together(entries: list[dict[str, Any]], few: dict[str, int]) -> dict[str, Any]:
    tests = sum(e["tests"] for e in entries)
    for e in entries:
        e["calibrated_overall"] = bool(e["uniformity_p"] >= LEVEL / tests)
    return {
        "seed": SEED,
        "pairs": len(CASES),
        "level": LEVEL,
        "tests": tests,
        "replications": sum(e["replications"] for e in entries),
        "failed": sum(e["failed"] for e in entries),
        "cpu_seconds": round(sum(e["cpu_seconds"] for e in entries)),
        "grid": [round(float(g), 2) for g in GRID],
        "too_few": few,
        "entries": entries,
    }


def problems(found: Mapping[str, Any]) -> list[str]:
    """Exact methods whose places are not uniform, by 0.01 over the tests of all of them."""
    exact = [e for e in found["entries"] if e["truth"] == "exact"]
    tests = sum(e["tests"] for e in exact)
    said = []
    for e in exact:
        name = _name(e)
        if e["uniformity_p"] < LEVEL / tests:
            said.append(f"{name}: {e['worst']} has p = {e['uniformity_p']:.2g}")
        if e["failed"]:
            said.append(f"{name}: {e['failed']} of {e['replications']} fits failed")
        for test in ("brier_p", "isotonic_p", "mean_p"):
            if e.get("inclusion", {}).get(test, 1.0) < LEVEL / tests:
                said.append(f"{name}: inclusion, {test} = {e['inclusion'][test]:.2g}")
    return said


def write_record(found: Mapping[str, Any]) -> None:
    """Ship what the report shows of each entry, beside the code that shows it."""
    without = ("tests", "quantities", "origin")
    entries = [{k: v for k, v in e.items() if k not in without} for e in found["entries"]]
    record = {
        "format": FORMAT,
        "version": av.__version__,
        "command": "python -m ardvark.studies.validation --lane calibration",
        "grid": found["grid"],
        "entries": entries,
        "sha256": digest(entries),
    }
    write_text(PLACE, json.dumps(record, indent=1, sort_keys=True) + "\n")


def patience(experiment: Experiment) -> float:
    """Dear pairs, which have few replications in a unit, wait for the cheap ones."""
    return 20.0 / float(experiment.settings["batch"])


def dear(experiment: Experiment) -> bool:
    """Whether its units are kept: what asks for thousands is done again in a minute."""
    return CASES[experiment.settings["case"]].full <= 1000


LANE = Lane(
    "calibration", EXPERIMENTS, summary, problems, write_record, patience, 4.0, joined, dear
)
