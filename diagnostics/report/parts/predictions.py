"""The section on predictions: scores with their errors, and whether probabilities are frequencies.

Rows that were kept back are scored where there are any, else every row left out in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ardvark.diagnostics.calibration.checks import coverage, uniformity_p
from ardvark.diagnostics.calibration.scores import (
    LOO,
    NAMES,
    SCORES,
    calibration_curve,
    expected_error,
    summed,
)
from ardvark.diagnostics.plots import calibration as drawn
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.words import as_sentences, count, number
from ardvark.errors import InputError

__all__ = ["predictions_figures", "predictions_part"]

BAD = 0.01  # p-value below which forecasts are called miscalibrated
BINS = 10
TYPE_II = (
    "evidence",
    "predictive",
    "mode",
)  # hyperparameters that were chosen by the rows themselves


def predictions_part(case: Case) -> dict[str, Any]:
    """Scores by method, paired differences from the reference, calibration."""
    tables, refused = case.predicted
    if not tables:
        reasons = " ".join(f"{name}: {why}." for name, why in refused.items())
        return {"sentence": f"No prediction could be scored. {reasons}", "level": "", "methods": []}
    reference = case.reference if case.reference in tables else next(iter(tables))
    methods = [_method(name, table, tables[reference]) for name, table in tables.items()]
    by, rows = next((t.attrs["by"], len(t)) for t in tables.values())
    best = max(methods, key=lambda m: m["scores"]["log_score"])
    lead = (
        f"{count(rows, 'row')} predicted ({by}): the best log score is "
        f"{number(best['scores']['log_score'])} a row, by {best['name']}."
    )
    flattered = [n for n in tables if case.facts[n]["hyper"] in TYPE_II] if by == LOO else []
    said = [words for m in methods if (words := _difference(m, reference, flattered))]
    lying = [m["name"] for m in methods if m["calibration_p"] < BAD]
    said.append(
        f"Not calibrated: {', '.join(lying)}." if lying else "No forecast is out of calibration."
    )
    return {
        **as_sentences(lead, said),
        "flattered": flattered,
        "level": "warn" if lying else "good",
        "by": by,
        "rows": rows,
        "reference": reference,
        "bins": BINS,
        "scores": [s for s in _names() if s in methods[0]["scores"]],
        "methods": methods,
        "refused": refused,
    }


def _names() -> list[str]:
    return [NAMES.get(score, score) for score in SCORES]


def _method(name: str, table: pd.DataFrame, reference: pd.DataFrame) -> dict[str, Any]:
    found: dict[str, float] = {}
    for score in SCORES:
        if score in table:
            found |= summed(score, table[score], reference.get(score))
    method: dict[str, Any] = {"name": name, "scores": found, "calibration_p": float("nan")}
    if "probability" in table:
        curve = calibration_curve(table["probability"], table["observed"])
        method["calibration_p"] = curve.p_value
        method["miscalibration"] = curve.miscalibration
        method["expected_error"] = expected_error(table["probability"], table["observed"], BINS)
    elif "place" in table:
        u = table["place"].to_numpy()
        method["calibration_p"] = uniformity_p(u)
        method["coverage"] = {f"{100 * p:.0f}": coverage(u, p) for p in (0.5, 0.9)}
    return method


def _difference(method: dict[str, Any], reference: str, flattered: list[str]) -> str:
    """Say a difference of log scores that is not noise."""
    shift = method["scores"].get("log_score_difference", 0.0)
    error = method["scores"].get("log_score_difference_se", float("nan"))
    if method["name"] == reference or not abs(shift) > 2.0 * error:
        return ""
    worse = "worse" if shift < 0 else "better"
    seen = " (its hyperparameters had seen the row)" if method["name"] in flattered else ""
    return (
        f"{method['name']} is {worse} than {reference} by {number(abs(shift), 2)} ± "
        f"{number(error, 1)} a row{seen}."
    )


def predictions_figures(case: Case) -> dict[str, Callable[[], Any]]:
    """Calibration of each method, and its forecasts against those of the reference."""
    return {
        "calibration of forecasts": lambda: _calibration(case),
        "forecasts": lambda: _forecasts(case),
    }


def _calibration(case: Case) -> Any:
    tables, order = case.predicted[0], list(case.summaries)
    classes = {
        n: calibration_curve(t["probability"], t["observed"])
        for n, t in tables.items()
        if "probability" in t
    }
    if classes:
        return drawn.reliability(classes, order)
    reals = {}
    for name, table in tables.items():
        if "place" in table:
            u = np.sort(table["place"].to_numpy())
            reals[name] = (u, np.arange(1, len(u) + 1) / len(u) - u, len(u))
    if not reals:
        raise InputError("only log scores are known of these predictions")
    return drawn.delta_curves(reals, "Where the targets lie", "place of t in its prediction")


def _forecasts(case: Case) -> Any:
    tables = case.predicted[0]
    reference = case.reference if case.reference in tables else next(iter(tables))
    known = {n: t["probability"].to_numpy() for n, t in tables.items() if "probability" in t}
    pairs = {n: (known[reference], p) for n, p in known.items() if n != reference}
    return drawn.forecasts(pairs, reference, list(case.summaries))
