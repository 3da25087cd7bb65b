"""What the figures of `compare` mean: the limits, the levels, and plain words.

A level is "good", "warn" or "bad"; "" is for a figure that does not apply.
"""

import math
from collections.abc import Callable
from functools import partial
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
from ardvark.diagnostics.finding import LEVELS, Finding, worst_level
from ardvark.diagnostics.words import mean_and_sd, number

__all__ = [
    "KHAT_LIMITS",
    "MEAN_ERROR_LIMITS",
    "SD_RATIO_GOOD",
    "conclusion",
    "in_words",
    "khat_in_words",
    "khat_level",
    "khat_reaches",
    "mean_level",
    "sd_level",
    "verdict",
]

MEAN_ERROR_LIMITS = (0.1, 0.25)  # sd: a tenth is invisible in a plot; 0.25 is Stan's own tolerance
SD_RATIO_GOOD = (0.9, 1.1)  # an interval's length is right to 10 %
SD_RATIO_USABLE = (0.8, 1.25)  # 0.8: a nominal 90 % interval covers 81 %
KHAT_LIMITS = (0.5, 0.7)  # finite variance of the weights; largest k at which PSIS is usable
SHAPE_ERROR = 0.1  # sd: W1 that matters ...
NULL_FACTOR = 2.0  # ... if it is also this many times what noise alone gives
CORRELATION_LIMITS = (0.1, 0.3)
CORRELATION_NULL = 1.5  # two halves differ by sqrt 2 times what the whole and another run do
FALSE_ALARMS = 0.01  # probability that noise alone gives one, over all weights of an answer

type Columns = tuple[str, str, str, str]  # of figures, of their noise, of how many; in words

WEIGHTS: Columns = ("worst_", "", "n_weights", "")
THETA: Columns = ("theta_", "theta_", "n_theta", " of θ")
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
    OTHER_HYPERPARAMETERS: ("no measure of the approximation",) * 3,
    OTHER_LIKELIHOOD: ("no measure of the approximation",) * 3,
}


def verdict(row: "pd.Series[Any]") -> Finding:
    """Say what a row of ``compare`` means.

    The level is the worst of the single figures. No convergence, a k-hat above 0.7 by more than its
    error, and a reference that fails its own checks are always "bad".
    """
    name = " against ".join(row.name) if isinstance(row.name, tuple) else row.name
    level = _level(row)
    advice = "Check what the table names before you quote an interval."
    if row["reference_trouble"]:
        advice = "Improve the reference first: longer chains, or another form of the model."
    elif khat_reaches(row["khat"], row["khat_se"], KHAT_LIMITS[1]):
        advice = "Do not quote its tails or joint probabilities; quote those of the reference."
    return Finding(level, f"{name}: {in_words(row)}.", "" if level == "good" else advice)


def in_words(row: "pd.Series[Any]") -> str:
    """Say what each figure of a row of ``compare`` means, and what they come to."""
    said = ", ".join(text for _, text, _ in _findings(row))
    return f"{said}: {conclusion(row)}" if said else conclusion(row)


def conclusion(row: "pd.Series[Any]") -> str:
    """Say in a few words what a row of ``compare`` comes to."""
    words = _CONCLUSIONS[row["compares"]][LEVELS.index(_level(row))]
    if row["reference_trouble"]:
        known = row["compares"] == REFERENCE
        words = words if known else "not known: the reference fails its checks"
        return f"{words} ({row['reference_trouble']})"
    return f"{words}: {row['theta']}" if row["compares"] == OTHER_HYPERPARAMETERS else words


def _level(row: "pd.Series[Any]") -> str:
    """The worst of the single figures, which prove nothing against a reference with trouble."""
    trusted = "bad" if row["reference_trouble"] else "good"
    return worst_level([trusted, *(level for level, _, _ in _findings(row))])


def _findings(row: "pd.Series[Any]") -> list[Finding]:
    """What each figure of a row says."""
    kind = row["compares"]
    checks: list[Callable[[Any], Finding | None]]
    checks = [_convergence, _modes, _means, _sds, _shape, _correlations]
    checks += [partial(check, columns=THETA) for check in (_means, _sds)]
    if kind != PRICE_OF_FIXING:  # a k-hat is of the target at given hyperparameters
        checks.append(_weights)
    found = [finding for check in checks if (finding := check(row))]
    if kind == OTHER_HYPERPARAMETERS:
        found.append(Finding("warn", "the reference has other hyperparameters or data"))
    if row["theta"]:
        found.append(Finding("", row["theta"]))
    if kind == OTHER_LIKELIHOOD:
        found.append(Finding("warn", "the reference has another likelihood"))
    return found


def mean_level(error: float) -> str:
    """Level of the error of a mean in sd units."""
    return _by_limits(error, MEAN_ERROR_LIMITS)


def khat_level(khat: float, error: float = 0.0) -> str:
    """Level of a Pareto k-hat: "good" and "bad" where it is so by more than its standard error."""
    error = 0.0 if math.isnan(error) else error
    ends = {_by_limits(khat + sign * error, KHAT_LIMITS) for sign in (-1, 1)}
    return ends.pop() if len(ends) == 1 else "warn"


def khat_reaches(khat: float, error: float, limit: float) -> bool:
    """Whether a k-hat is above a limit, or not below it by more than its standard error."""
    return bool(khat + (0.0 if math.isnan(error) else error) > limit)


def khat_in_words(khat: float, error: float) -> str:
    """Write a k-hat with its standard error; "exact" for constant importance weights."""
    if math.isinf(khat) and khat < 0:
        return "exact"
    return number(float(khat), 2) if math.isnan(error) else mean_and_sd(khat, error)


def sd_level(ratio: float) -> str:
    """Level of a ratio of standard deviations."""
    if math.isnan(ratio):
        return ""
    if SD_RATIO_GOOD[0] <= ratio <= SD_RATIO_GOOD[1]:
        return "good"
    return "warn" if SD_RATIO_USABLE[0] <= ratio <= SD_RATIO_USABLE[1] else "bad"


def _by_limits(value: float, limits: tuple[float, float]) -> str:
    return "" if math.isnan(value) else LEVELS[int(np.searchsorted(limits, value))]


# ----------------------------------------------------------------------------- one figure at a time


def _convergence(row: "pd.Series[Any]") -> Finding | None:
    converged = row["converged"]
    known = converged is not None and not pd.isna(converged)
    return Finding("bad", "did not converge") if known and not converged else None


def _modes(row: "pd.Series[Any]") -> Finding | None:
    where = row["missed_mode_at"]
    if where is None or pd.isna(where):
        return None
    place, share = f"{row['missed_mode_place']:.2g}", f"{100 * row['missed_mode_share']:.0f} %"
    return Finding("bad", f"a mode of {where} is missed (near {place}, {share} of the mass)")


def _means(row: "pd.Series[Any]", columns: Columns = WEIGHTS) -> Finding | None:
    of, to, size, whose = columns
    what = f"means{whose}"
    error, noise = row[f"{of}mean_error"], row[f"{to}mean_error_mcse"]
    level = mean_level(error)
    if not level:
        return None
    unsure = (
        noise > MEAN_ERROR_LIMITS[0] if level == "good" else error < _noise_alone(row[size]) * noise
    )
    if unsure:
        return _too_few(what, f"{noise:.2f} sd")
    if level == "good":
        return Finding(level, f"{what} within {error:.2f} sd")
    return Finding(level, f"the mean of {row[f'{of}mean_error_at']} is off by {error:.2f} sd")


def _sds(row: "pd.Series[Any]", columns: Columns = WEIGHTS) -> Finding | None:
    of, to, size, whose = columns
    what = f"sds{whose}"
    ratio, where = row[f"{of}sd_ratio"], row[f"{of}sd_ratio_at"]
    level, noise = sd_level(ratio), row[f"{to}log_sd_ratio_mcse"]
    if not level:
        return None
    if ratio == 0:
        return Finding(level, f"{where} has no spread at all (pruned or fixed)")
    if np.isinf(ratio):
        return Finding(level, f"{where} has spread, but none in the reference")
    off = f"{100 * abs(ratio - 1):.0f} %"
    if level == "good":
        return Finding(level, f"{what} within {off}")
    if abs(math.log(ratio)) < _noise_alone(row[size]) * noise:
        return _too_few(what, f"{100 * noise:.0f} %")
    return Finding(level, f"the sd of {where} is {off} too {'small' if ratio < 1 else 'large'}")


def _too_few(what: str, noise: str) -> Finding:
    return Finding("warn", f"too few draws to assess the {what} (Monte Carlo error {noise})")


def _noise_alone(size: int) -> float:
    """How many Monte Carlo errors the worst of so many elements reaches by noise, rarely."""
    from scipy.stats import norm

    return float(norm.isf(FALSE_ALARMS / (2 * max(int(size), 1))))


def _shape(row: "pd.Series[Any]") -> Finding | None:
    distance, null = row["wasserstein"], row["wasserstein_null"]
    moments_differ = any(found and found.level != "good" for found in (_means(row), _sds(row)))
    if moments_differ or np.isnan(distance) or distance <= max(SHAPE_ERROR, NULL_FACTOR * null):
        return None
    return Finding("warn", f"the shape differs (W1 {distance:.2f} sd, noise alone {null:.2f})")


def _correlations(row: "pd.Series[Any]") -> Finding | None:
    error, null = row["correlation_error"], row["correlation_null"]
    if np.isnan(error) or error <= max(CORRELATION_LIMITS[0], CORRELATION_NULL * null):
        return None
    where = str(row["correlation_at"]).replace(", ", " and ")
    text = f"the correlation of {where} is off by {error:.2f} (noise alone {null:.2f})"
    return Finding(_by_limits(error, CORRELATION_LIMITS), text)


def _weights(row: "pd.Series[Any]") -> Finding | None:
    shape, error = row["khat"], row["khat_se"]
    level = khat_level(shape, error)
    if not level:
        return None
    if np.isneginf(shape):
        return Finding("good", "importance weights constant (exact)")
    return Finding(level, f"k-hat {khat_in_words(shape, error)}{_against_limits(shape, error)}")


def _against_limits(shape: float, error: float) -> str:
    """Where a k-hat lies, as far as its standard error tells."""
    low, high = KHAT_LIMITS
    level = khat_level(shape, error)
    if level == "good":
        return ""
    if level == "bad":
        return f" > {high} (importance weights unreliable: do not trust tails)"
    near = [f"{limit}" for limit in KHAT_LIMITS if abs(shape - limit) <= error]
    if near:
        return f" (within its error of {' and '.join(near)})"
    return f" between {low} and {high}"
