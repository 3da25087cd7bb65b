"""What many replications say: uniform places, symmetric places, coverage, calibrated inclusion.

| check | asks | against |
|---|---|---|
| uniformity (pot_c of ArviZ) | is Q the posterior? | any difference; an sd 20 % off with 1000 |
| symmetry (Smirnov) | is Q centred? VSBC, Yao et al. 2018 | bias, whatever the width |
| coverage | how often is the truth in the central interval? | width |
| inclusion | are probabilities of inputs frequencies? | Brier, isotonic and mean of the residuals |

Symmetry: D = sup_{x ≤ 1/2} |F(x) - (1 - F(1 - x))| over the empirical F of u; under symmetry √n D
tends to sup |W| of a Brownian motion on (0, 1) (Smirnov 1947), so no test of two samples is asked
of u and 1 - u, which are not independent. With 1000 replications an sd that is 5 % off is found
once in five times: what passes here is right to a tenth or so, not to a hundredth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.reading import element_labels
from ardvark.errors import InputError
from ardvark.inference.arguments import check_tree
from ardvark.inference.sites.arrays import Array
from ardvark.models.checks import Seed, as_seed

__all__ = [
    "brownian_tail",
    "coverage",
    "inclusion_calibration",
    "places_summary",
    "sbc_summary",
    "symmetry_test",
    "uniformity_p",
]


LEVEL = 0.01  # of all tests of a run together
INTERVALS = (0.5, 0.9, 0.99)
BOOTSTRAP = 2000


def checked_events(probability: Array, event: Array, name: str) -> None:
    """Refuse what is no probability, and what is neither 0 nor 1."""
    if (odd := probability[~((probability >= 0) & (probability <= 1))]).size:
        raise InputError(f"probability must be numbers from 0 to 1, got {odd[0]}")
    if (odd := event[~np.isin(event, (0.0, 1.0))]).size:
        raise InputError(f"{name} must be 0 or 1 for each probability, got {odd[0]}")


def sbc_summary(tree: xr.DataTree) -> pd.DataFrame:
    """Tests and coverage of every quantity of a run of `sbc`, worst first.

    Columns: `uniformity_p`, `symmetry_p`, `bias` (which way Q lies from the truth, "" if it is
    not certain), `mean`, `coverage_50`, `_90`, `_99` and their standard errors, `calibrated`
    (no test below 0.01 divided by the number of quantities).
    """
    check_tree(tree, group="prior_sbc")
    return places_summary(_by_quantity(tree["prior_sbc"].to_dataset()))


def places_summary(places: Mapping[str, Array]) -> pd.DataFrame:
    """The table of `sbc_summary` from the places of each quantity."""
    limit = LEVEL / len(places)
    rows = {}
    for name, u in places.items():
        uniform, (symmetric, _) = uniformity_p(u), symmetry_test(u)
        lower = "below" if u.mean() > 0.5 else "above"  # u > 1/2: Q lies below the truth
        rows[name] = {
            "uniformity_p": uniform,
            "symmetry_p": symmetric,
            "bias": lower if symmetric < limit else "",
            "mean": float(u.mean()),
            **{f"coverage_{100 * p:.0f}": coverage(u, p)[0] for p in INTERVALS},
            **{f"coverage_{100 * p:.0f}_se": coverage(u, p)[1] for p in INTERVALS},
            "calibrated": uniform >= limit,
        }
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("quantity")
    return frame.sort_values("uniformity_p", kind="stable")


def _by_quantity(places: xr.Dataset) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, values in places.data_vars.items():
        array = values.transpose("chain", "draw", ...)
        flat = np.asarray(array.values).reshape(array.shape[0] * array.shape[1], -1)
        for label, column in zip(element_labels(array, str(name)), flat.T, strict=True):
            found[label] = column
    return found


def uniformity_p(u: Array) -> float:
    """P-value of uniformity (pot_c)."""
    statistics = import_module("arviz_stats.base").array_stats  # takes seconds to import
    return float(statistics.uniformity_test(np.asarray(u), method="pot_c")[0])


def symmetry_test(u: Array) -> tuple[float, float]:
    """P-value and statistic of symmetry about 1/2."""
    u = np.sort(np.asarray(u, float))
    lower = np.sort(np.minimum(u, 1.0 - u))
    below = np.searchsorted(u, lower, side="right")
    above = len(u) - np.searchsorted(u, 1.0 - lower, side="left")
    statistic = float(np.abs(below - above).max()) / len(u)
    return brownian_tail(math.sqrt(len(u)) * statistic), statistic


def brownian_tail(x: float) -> float:
    """P(sup |W| > x) for a Brownian motion on (0, 1)."""
    if x < 0.3:  # 1 to all digits, and the series would need many terms
        return 1.0
    k = np.arange(40)
    odd = 2 * k + 1
    terms = (-1.0) ** k / odd * np.exp(-((math.pi * odd / x) ** 2) / 8.0)
    return float(np.clip(1.0 - 4.0 / math.pi * terms.sum(), 0.0, 1.0))


def coverage(u: Array, probability: float) -> tuple[float, float]:
    """How often the truth lies in the central interval, and the standard error of that."""
    share = float(np.mean(np.abs(np.asarray(u) - 0.5) <= 0.5 * probability))
    return share, math.sqrt(probability * (1.0 - probability) / len(u))


def inclusion_calibration(
    included: Any, probability: Any, *, random_seed: Seed = 0, bootstrap: int = BOOTSTRAP
) -> pd.Series[float]:
    """Whether probabilities of 0/1 events are frequencies: three tests, and what they look at.

    `brier_p`: the Brier score is no larger than that of events drawn with these probabilities;
    `isotonic_p`: nor is the distance of its isotonic recalibration; `mean_p`: events are as
    frequent as the mean probability (so a posterior must be, on average, its prior).
    """
    event = np.asarray(included, float).ravel()
    p = np.asarray(probability, float).ravel()
    if event.shape != p.shape:
        raise InputError(
            f"included: expected one number for each probability, found {event.size} and {p.size}"
        )
    checked_events(p, event, "included")
    rng = np.random.default_rng(as_seed(random_seed))
    order = np.argsort(p, kind="stable")
    p, event = p[order], event[order]
    drawn = (rng.random((bootstrap, len(p))) < p).astype(float)
    brier, miss = np.mean((event - p) ** 2), _isotonic_distance(event, p)
    null_brier = np.mean((drawn - p) ** 2, axis=1)
    null_miss = np.array([_isotonic_distance(row, p) for row in drawn])
    variance = float(np.sum(p * (1.0 - p)))
    z = (event.sum() - p.sum()) / math.sqrt(variance) if variance else 0.0
    return pd.Series(
        {
            "brier": brier,
            "brier_p": (1.0 + np.sum(null_brier >= brier - 1e-15)) / (bootstrap + 1),
            "isotonic": miss,
            "isotonic_p": (1.0 + np.sum(null_miss >= miss - 1e-15)) / (bootstrap + 1),
            "mean": event.mean() - p.mean(),
            "mean_p": math.erfc(abs(z) / math.sqrt(2.0)),
        }
    )


def _isotonic_distance(event: Array, p: Array) -> float:
    """Mean square of isotonic(event) - p, with p sorted: the miscalibration part of Brier."""
    from scipy.optimize import isotonic_regression

    return float(np.mean((isotonic_regression(event).x - p) ** 2))
