"""What the figures of `compare` mean: the limits, the levels, and plain words.

A level is "good", "warn" or "bad"; "" is for a figure that does not apply.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from ardvark.diagnostics.compare.reference import (
    APPROXIMATION_ERROR,
    OTHER_HYPERPARAMETERS,
    OTHER_LIKELIHOOD,
    PRICE_OF_FIXING,
    REFERENCE,
)

__all__ = ["conclusion", "khat_level", "mean_level", "sd_level", "verdict"]

type Finding = tuple[str, str]

LEVELS = ("good", "warn", "bad")
MEAN_ERROR_LIMITS = (0.1, 0.25)  # sd: a tenth is invisible in a plot; 0.25 is Stan's own tolerance
SD_RATIO_GOOD = (0.9, 1.1)  # an interval's length is right to 10 %
SD_RATIO_USABLE = (0.8, 1.25)  # 0.8: a nominal 90 % interval covers 81 %
KHAT_LIMITS = (0.5, 0.7)  # finite variance of the weights; largest k at which PSIS is usable
SHAPE_ERROR = 0.1  # sd: W1 that matters ...
NULL_FACTOR = 2.0  # ... if it is also this many times what noise alone gives
CORRELATION_LIMITS = (0.1, 0.3)
CORRELATION_NULL = 1.5  # two halves differ by sqrt 2 times what the whole and another run do
FALSE_CALLS = 0.01  # of a mean or an sd, by noise alone, in all weights of an answer together

_CONCLUSIONS = {
    REFERENCE: ("this is the reference",) * 2 + ("a reference that cannot be trusted",),
    APPROXIMATION_ERROR: (
        "safe for means and intervals",
        "usable with care",
        "do not rely on it",
    ),
    PRICE_OF_FIXING: (
        "fixing the hyperparameters costs little",
        "fixing the hyperparameters shows",
        "fixing the hyperparameters changes the answer",
    ),
    OTHER_HYPERPARAMETERS: ("says nothing of the approximation",) * 3,
    OTHER_LIKELIHOOD: ("says nothing of the approximation",) * 3,
}


def verdict(row: "pd.Series[Any]") -> tuple[str, str]:
    """Say in plain words what a row of ``compare`` means.

    Returns
    -------
    level
        ``"good"``, ``"warn"`` or ``"bad"``: the worst of the findings. No convergence and a k-hat
        above 0.7 are always bad.
    sentence
    """
    level, findings = _judged_row(row)
    said = ", ".join(text for _, text in findings)
    name = " against ".join(row.name) if isinstance(row.name, tuple) else row.name
    return level, f"{name}: {said}{': ' if said else ''}{conclusion(row)}."


def conclusion(row: "pd.Series[Any]") -> str:
    """Say in a few words what a row of ``compare`` comes to."""
    level, _ = _judged_row(row)
    return _CONCLUSIONS[row["compares"]][LEVELS.index(level)]


def _judged_row(row: "pd.Series[Any]") -> tuple[str, list[Finding]]:
    """Give the worst level of the findings, and all of them."""
    kind = row["compares"]
    judges = [_convergence, _modes, _means, _sds, _shape, _correlations]
    if kind != PRICE_OF_FIXING:  # a k-hat is of the target at given hyperparameters
        judges.append(_weights)
    findings = [f for judge in judges for f in judge(row)]
    if kind == OTHER_HYPERPARAMETERS:
        findings.append(("warn", "the reference has other hyperparameters or data"))
    if kind == OTHER_LIKELIHOOD:
        findings.append(("warn", "the reference has another likelihood"))
    return max((level for level, _ in findings), key=LEVELS.index, default="good"), findings


def mean_level(error: float) -> str:
    """Judge the error of a mean in sd units."""
    return _judged(error, MEAN_ERROR_LIMITS)


def khat_level(khat: float) -> str:
    """Judge a Pareto k-hat."""
    return _judged(khat, KHAT_LIMITS)


def sd_level(ratio: float) -> str:
    """Judge a ratio of standard deviations."""
    if math.isnan(ratio):
        return ""
    if SD_RATIO_GOOD[0] <= ratio <= SD_RATIO_GOOD[1]:
        return "good"
    return "warn" if SD_RATIO_USABLE[0] <= ratio <= SD_RATIO_USABLE[1] else "bad"


def _judged(value: float, limits: tuple[float, float]) -> str:
    return "" if math.isnan(value) else LEVELS[int(np.searchsorted(limits, value))]


# ----------------------------------------------------------------------------- one figure at a time


def _convergence(row: "pd.Series[Any]") -> list[Finding]:
    converged = row["converged"]
    known = converged is not None and not pd.isna(converged)
    return [("bad", "did not converge")] if known and not converged else []


def _modes(row: "pd.Series[Any]") -> list[Finding]:
    where = row["missed_mode_at"]
    if where is None or pd.isna(where):
        return []
    share, place = 100 * row["missed_mode_share"], row["missed_mode_place"]
    return [("bad", f"a mode of {where} is missed (near {place:.2g}, {share:.0f} % of the mass)")]


def _means(row: "pd.Series[Any]") -> list[Finding]:
    error, noise = row["worst_mean_error"], row["mean_error_mcse"]
    if np.isnan(error):
        return []
    level = LEVELS[int(np.searchsorted(MEAN_ERROR_LIMITS, error))]
    unsure = noise > MEAN_ERROR_LIMITS[0] if level == "good" else error < _noise_alone(row) * noise
    if unsure:
        return [("warn", f"too few draws to tell the means (Monte Carlo error {noise:.2f} sd)")]
    if level == "good":
        return [(level, f"means within {error:.2f} sd")]
    return [(level, f"the mean of {row['worst_mean_error_at']} is off by {error:.2f} sd")]


def _sds(row: "pd.Series[Any]") -> list[Finding]:
    ratio, where = row["worst_sd_ratio"], row["worst_sd_ratio_at"]
    if np.isnan(ratio):
        return []
    if SD_RATIO_GOOD[0] <= ratio <= SD_RATIO_GOOD[1]:
        return [("good", f"sds within {100 * abs(ratio - 1):.0f} %")]
    level = "warn" if SD_RATIO_USABLE[0] <= ratio <= SD_RATIO_USABLE[1] else "bad"
    if ratio == 0:
        return [(level, f"{where} has no spread at all (pruned or fixed)")]
    if np.isinf(ratio):
        return [(level, f"{where} has spread, but none in the reference")]
    noise = row["log_sd_ratio_mcse"]
    if abs(math.log(ratio)) < _noise_alone(row) * noise:
        return [("warn", f"too few draws to tell the sds (Monte Carlo error {100 * noise:.0f} %)")]
    size = "small" if ratio < 1 else "large"
    return [(level, f"the sd of {where} is {100 * abs(ratio - 1):.0f} % too {size}")]


def _noise_alone(row: "pd.Series[Any]") -> float:
    """How many Monte Carlo errors the worst of so many weights reaches by noise, rarely."""
    from scipy.stats import norm

    return float(norm.isf(FALSE_CALLS / (2 * max(int(row["n_weights"]), 1))))


def _shape(row: "pd.Series[Any]") -> list[Finding]:
    distance, null = row["wasserstein"], row["wasserstein_null"]
    moments_differ = any(level != "good" for level, _ in _means(row) + _sds(row))
    if moments_differ or np.isnan(distance) or distance <= max(SHAPE_ERROR, NULL_FACTOR * null):
        return []
    return [("warn", f"the shape differs (W1 {distance:.2f} sd, noise alone {null:.2f})")]


def _correlations(row: "pd.Series[Any]") -> list[Finding]:
    error, null = row["correlation_error"], row["correlation_null"]
    if np.isnan(error) or error <= max(CORRELATION_LIMITS[0], CORRELATION_NULL * null):
        return []
    level = LEVELS[int(np.searchsorted(CORRELATION_LIMITS, error))]
    where = str(row["correlation_at"]).replace(", ", " and ")
    return [(level, f"the correlation of {where} is off by {error:.2f} (noise alone {null:.2f})")]


def _weights(row: "pd.Series[Any]") -> list[Finding]:
    shape = row["khat"]
    if np.isnan(shape):
        return []
    if np.isneginf(shape):
        return [("good", "importance weights constant (exact)")]
    level = LEVELS[int(np.searchsorted(KHAT_LIMITS, shape))]
    low, high = KHAT_LIMITS
    words = {
        "good": f"k-hat {shape:.2f}",
        "warn": f"k-hat {shape:.2f} between {low} and {high}",
        "bad": f"k-hat {shape:.2f} > {high} (importance weights unreliable: do not trust tails)",
    }
    return [(level, words[level])]
