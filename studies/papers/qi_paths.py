"""Paths of ARD steps for the experiments of Qi et al. 2004: data, start, walk, what a rule takes.

One path is walked for each partition: "evidence" takes its end, "loo_error" (12) and
"loo_probability" (13) the step of the least estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from ardvark.inference.ard.sequential_ard import ArdResult, sequential_ard
from ardvark.inference.ep.ep import EP
from ardvark.inference.hyper.settings import CRITERIA
from ardvark.inference.hyper.starts import Start, active_at_start
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import ProbitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.models.data.datasets import load
from ardvark.models.inputs import standardise

__all__ = [
    "RULES",
    "chosen",
    "judged",
    "outcome",
    "partition",
    "probit_model",
    "simulated",
    "walk",
    "with_constant",
]

RULES = ("evidence", "loo_error", "loo_probability")


def probit_model(columns: Array, sign: Array, sites: Callable[..., Any] = ProbitSites) -> SiteModel:
    """A linear classifier with a precision for each column."""
    size = columns.shape[1]
    rows = np.ascontiguousarray(columns)
    nothing = np.zeros(len(sign))
    return SiteModel(np.zeros(size), rows, nothing, sites(sign), precision=np.ones(size))


def walk(
    model: SiteModel, start: Sequence[Any] | None, seed: int, tolerance: float, rule: Any = None
) -> ArdResult:
    """The path of evidence-ARD from a start; a random one is drawn anew for each seed."""
    begin: Start | None = None if start is None else tuple(start)
    if start is not None and start[0] == "random":
        begin = ("random", start[1], seed)
    active, precision = active_at_start(begin, model, np.ones(model.mean.size, bool))
    rule = rule or EP().loosened()
    return sequential_ard(
        model, rule.approximate, start=active, start_precision=precision, max_steps=5000,
        tolerance=tolerance, runs=rule.run_of_steps,
    )  # fmt: skip


def chosen(path: ArdResult, rule: str) -> int:
    """The step that a rule takes: the end of the path, or the first of the best."""
    if rule == "evidence":
        return len(path.path) - 1
    return int(np.argmin([step.info[CRITERIA[rule]] for step in path.path]))


def outcome(fit: Any, rows: Array, sign: Array) -> dict[str, float]:
    """Test errors, and the mean log probability of the test labels."""
    mean, variance = fit.posterior.predictive(rows, np.zeros(len(rows)))
    z = sign * mean / np.sqrt(1.0 + variance)
    errors = float(np.sum(z < 0) + 0.5 * np.sum(z == 0))
    return {"errors": errors, "log_probability": float(log_ndtr(z).mean())}


def judged(
    model: SiteModel, path: ArdResult, rows: Array, sign: Array, counted: int = 1
) -> dict[str, Any]:
    """What each rule takes from one path, on the test rows; columns are counted from `counted`."""
    found: dict[str, Any] = {"converged": path.converged, "steps": len(path.path)}
    for rule in RULES:
        step = path.path[chosen(path, rule)]
        fit = EP().approximate(replace(model, precision=step.precision))
        numbers = outcome(fit, rows, sign) | {"features": int(step.active[counted:].sum())}
        found |= {f"{rule}.{name}": value for name, value in numbers.items()}
    return found


def partition(data: str, n_train: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Standardised training rows and signs, test rows and signs."""
    source = load(data)
    order = np.random.default_rng(seed).permutation(len(source.t))
    train, test = order[:n_train], order[n_train:]
    X = np.asarray(standardise(source.X, rows=train))
    sign = np.where(source.t == np.unique(source.t)[1], 1.0, -1.0)
    return X[train], sign[train], X[test], sign[test]


def with_constant(X: Array) -> Array:
    """Columns with a constant before them."""
    return np.column_stack([np.ones(len(X)), X])


def simulated(number: int) -> tuple[Array, Array, Array, Array]:
    """Thirty rows of 200 inputs, of which ten matter, and 5000 test rows; separable."""
    rng = np.random.default_rng([2004, number])
    weights = np.zeros(200)
    weights[:10] = rng.normal(-0.5, 1.0, 10)
    X = rng.normal(size=(5030, 200))
    sign = np.where(X @ weights > 0, 1.0, -1.0)
    return X[:30], sign[:30], X[30:], sign[30:]
