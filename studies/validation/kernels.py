"""Every Markov kernel of this library against the joint distribution, right and with faults.

    python -m ardvark.studies.validation --lane kernels

A unit is one kernel, as it is or with one planted fault, under both tests of `joint.py`. A right
kernel must pass both; a fault must be found by at least one. Not among them: NUTS and SMC (they are
nutpie's and PyMC's, the density is ours), and the ladder of powers of the mixture's joint density,
of whose lower rungs nothing can be drawn; these are held by calibration and by enumeration.

A record keeps the rows of an earlier run that are not in the store, each with the run it is of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ardvark.studies.experiments import Experiment, Numbers, Store
from ardvark.studies.validation.lane import Lane, stored
from ardvark.studies.validation.moves.joint import FALSE_ALARMS, geweke, two_samples

__all__ = ["EXPERIMENTS", "LANE", "tested"]

SEED = 2004
LARGEST_Z = 4.5  # of some 15 functions of each of 23 kernels: one false alarm in four hundred runs
MANY = 5000  # rounds: a move costs microseconds
NO_FAULT = ""
# In the quick form: a kernel of each kind and one fault, at the sizes of the record, where each
# fault was some eight standard errors off or more.
QUICK = {
    "Sampled: ellipse, probit": "shape of the Gamma",
    "Sampled: independence, probit": "offset forgotten",
    "Sampled: exact, probit": "offset forgotten",
    "subsets: regression, noise inferred": "scale of the noise",
    "subsets: probit by utilities": "prior of the subset forgotten",
    "subsets: logit by Laplace": "prior of the subset forgotten",
    "mixture: births from the data": "no background",
    "conditional: HMC alone": "no Jacobian of log τ",
    "conditional: births and deaths alone": "prior of the subset forgotten",
    "steps: mixture": "prior of the subset forgotten",
    "steps: jumps over subsets": "proposal density forgotten",
    "elliptical slice, logit": "one label is wrong",
}


def _table() -> dict[str, tuple[Any, tuple[str, ...], int]]:
    from ardvark.studies.validation.moves.kernel_cases import ARRAY_KERNELS
    from ardvark.studies.validation.moves.step_cases import GRAPH_KERNELS

    return {**ARRAY_KERNELS, **GRAPH_KERNELS}


def tested(number: int, kernel: str, fault: str, rounds: int, first: int, steps: int) -> Numbers:
    """One kernel under both tests."""
    build, _, _ = _table()[kernel]
    made = build(fault or None)
    streams = np.random.SeedSequence(SEED, spawn_key=(number,)).spawn(2)
    one, two = (np.random.default_rng(stream) for stream in streams)
    z = geweke(made, rounds, one)
    found = two_samples(made, two, first, steps)
    return {
        "z": float(z.max()),
        "functions": len(z),
        "rounds": rounds,
        **{f"two_samples_{name}": value for name, value in found._asdict().items()},
    }


VERSION = 2  # of the cases; counted up when a case changes: 2, the mixture's prior


def _experiments() -> list[Experiment]:
    found = []
    for kernel, (_, faults, rounds) in _table().items():
        for fault in (NO_FAULT, *faults):
            first, steps = (1000, 5) if rounds >= MANY else (300, 3)
            sizes = {"rounds": rounds, "first": first, "steps": steps}
            settings = {"kernel": kernel, "fault": fault, **sizes}
            name = f"kernels/{kernel}/{fault or 'as it is'}"
            what = fault or "as it is"
            quick = int(kernel in QUICK and fault in (NO_FAULT, QUICK[kernel]))
            found.append(
                Experiment(name, what, tested, settings, full=1, quick=quick, version=VERSION)
            )
    return found


EXPERIMENTS = tuple(_experiments())


def summary(store: Store) -> dict[str, Any]:
    """A row for each kernel and fault."""
    rows = []
    for experiment in EXPERIMENTS:
        units, seconds = stored(experiment, store)
        if units:
            rows.append({
                "kernel": experiment.settings["kernel"],
                "fault": experiment.settings["fault"],
                **units[0],
                "cpu_seconds": round(seconds, 1),
            })  # fmt: skip
    for row in rows:
        z, rejected = row.get("z", math.inf), row.get("two_samples_rejected", True)
        row["found"] = bool(z > LARGEST_Z or rejected)
    return _counted(rows)


def _counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    right, faults = [r for r in rows if not r["fault"]], [r for r in rows if r["fault"]]
    return {
        "seed": SEED,
        "largest_z": LARGEST_Z,
        "false_alarms": FALSE_ALARMS,
        "kernels": len(right),
        "kernels_passed": sum(not r["found"] for r in right),
        "faults": len(faults),
        "faults_found": sum(r["found"] for r in faults),
        "not_run": len(EXPERIMENTS) - len(rows),
        "cpu_seconds": round(sum(r["cpu_seconds"] for r in rows)),
        "rows": rows,
    }


def problems(found: Mapping[str, Any]) -> list[str]:
    """Right kernels that were rejected, and faults that were not."""
    said = []
    for row in found["rows"]:
        name = row["kernel"]
        if "failed" in row:
            said.append(f"{name}, {row['fault'] or 'as it is'}: {row['failed']}")
        elif row["found"] != bool(row["fault"]):
            what = f"the fault {row['fault']!r} was not found" if row["fault"] else "was rejected"
            said.append(f"{name}: {what} (|z| {row['z']:.1f}, p {row['two_samples_p']:.2g})")
    return said


def joined(found: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of the store, and those of an earlier record that are not in it."""
    order = [(e.settings["kernel"], e.settings["fault"]) for e in EXPERIMENTS]
    run = {name: earlier[name] for name in ("date", "commit")}
    rows = {(r["kernel"], r["fault"]): {"origin": run} | r for r in earlier["rows"]}
    rows |= {(r["kernel"], r["fault"]): r for r in found["rows"]}
    return _counted([rows[key] for key in order if key in rows])


LANE = Lane("kernels", EXPERIMENTS, summary, problems, quick_minutes=4.0, joined=joined)
