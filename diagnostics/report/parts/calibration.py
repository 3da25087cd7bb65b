"""The section on the calibration record: how methods fare on data simulated from this model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ardvark.diagnostics.calibration.record import calibration_record, records_of
from ardvark.diagnostics.plots import calibration as drawn
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.words import listed
from ardvark.errors import InputError

__all__ = ["calibration_figures", "calibration_part"]

NEAR = 0.02  # coverage of the 90 % interval may be off by this ...
BAND = 2.576  # ... or by so many standard errors: with few replications it is no better known
DRAWN = 100  # replications: a curve of fewer is mostly noise


def calibration_part(case: Case) -> dict[str, Any]:
    """Entries of the shipped record for this model."""
    model = _model(case)
    entries = records_of(model)
    record = calibration_record()
    if not entries:
        known = sorted({e["model"] for e in record["entries"]})
        return {
            "sentence": f"There is no calibration record of {model}; there is one of "
            f"{listed(known)}. `ardvark sbc` makes your own.",
            "level": "",
            "entries": [],
        }
    here = {facts["method"] for facts in case.facts.values()}
    mine = [e for e in entries if e["method"] in here]
    off = [e for e in mine if not _near(e)]
    shares = {
        method: [100 * e["coverage_90"] for e in entries if e["method"] == method]
        for method in dict.fromkeys(e["method"] for e in mine or entries)
    }
    coverages = "; ".join(f"{method} {_range(values)} %" for method, values in shares.items())
    return {
        "sentence": f"Share of truths in 90 % intervals of the weights, on data simulated from the "
        f"prior of {model}: {coverages}.",
        "level": "warn" if off else "good" if mine else "",
        "entries": entries,
        "near": [_near(e) for e in entries],
        "band": BAND,
        "version": record["version"],
        "sha256": record["sha256"],
        "command": record["command"],
        "used": sorted(here),
    }


def _near(entry: dict[str, Any]) -> bool:
    """Whether the coverage is as it should be, as far as the replications tell."""
    return bool(abs(entry["coverage_90"] - 0.9) <= max(NEAR, BAND * entry["coverage_90_se"]))


def _model(case: Case) -> str:
    return str(next(iter(case.facts.values()))["model"])


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


def _name(entry: dict[str, Any]) -> str:
    held = {"held": "θ held", "posterior": "θ inferred"}.get(entry["hyper"], entry["hyper"])
    return f"{entry['method']}, {entry['setting']}, {held}"


def calibration_figures(case: Case) -> dict[str, Callable[[], Any]]:
    """Δ-ECDF of the places of all weights, by method."""
    try:
        entries = records_of(_model(case))
    except InputError:  # reported by the part itself
        return {}
    if not entries:
        return {}
    grid = np.array(calibration_record()["grid"])
    here = {facts["method"] for facts in case.facts.values()}
    entries = [e for e in entries if e["method"] in here] or entries  # too many to tell apart
    entries = [e for e in entries if e["replications"] >= DRAWN] or entries
    curves = {_name(e): (grid, np.array(e["delta_ecdf"]), int(e["replications"])) for e in entries}
    title = "Where the truth lies in the posterior of a weight"
    label = "place of the truth"
    return {"calibration record": lambda: drawn.delta_curves(curves, title, label)}
