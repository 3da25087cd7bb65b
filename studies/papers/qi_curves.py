"""Qi et al. 2004, what its figures 1 and 2 draw: criteria along a path, and how evidence overfits.

| unit                | beside   | what                                                          |
|---------------------|----------|---------------------------------------------------------------|
| overfitting         | figure 1 | evidence of a classifier with one input of two, and with both |
| criteria            | figure 2 | evidence, features, (12) and (13) against the test error      |
| evidence_along_path | (11)     | EP, Laplace and exact evidence at steps of a path             |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ardvark.inference.ep.correction import evidence_correction
from ardvark.inference.ep.ep import EP
from ardvark.inference.exact.exact import Exact
from ardvark.inference.hyper.settings import CRITERIA
from ardvark.inference.laplace import Laplace
from ardvark.studies.papers.qi_paths import (
    outcome,
    partition,
    probit_model,
    simulated,
    walk,
    with_constant,
)

__all__ = ["criteria", "evidence_along_path", "overfitting"]

STEPS = 60  # of a path at most, at which the test rows are judged
LEAN = 0.1  # of the points of figure 1, which the paper draws without numbers
STEEP = 1e4  # a probit of this slope is a step function


def overfitting(number: int) -> dict[str, Any]:
    """Figure 1: two points that every line of negative slope separates from their mirror images.

    Under the step function the evidence is the share of the prior that separates them, an angle.
    The first input has precision alpha, from the second's to far above it, where it is pruned.
    """
    alpha = np.concatenate([np.geomspace(1.0, 1e6, 25), [1e12]])
    found: dict[str, Any] = {"alpha": alpha, "exact": [], "ep": []}
    for one in alpha:
        points = np.array([[1.0, LEAN], [LEAN, 1.0]]) / np.sqrt([one, 1.0])
        unit = points / np.linalg.norm(points, axis=1, keepdims=True)
        angle = np.arccos(np.clip(unit[0] @ unit[1], -1.0, 1.0))
        found["exact"].append(float(np.log(0.5 - 0.5 * angle / np.pi)))
        fit = EP().approximate(probit_model(STEEP * unit, np.ones(2)))
        found["ep"].append(float(fit.log_evidence))
        if one == 1.0:
            found["bayes_point"] = fit.posterior.mean / np.linalg.norm(fit.posterior.mean)
    gain = {f"{name}.gain": found[name][-1] - found[name][0] for name in ("exact", "ep")}
    return found | gain


def criteria(
    number: int, data: str, n_train: int, start: Sequence[Any] | None, tolerance: float = 1e-4
) -> dict[str, Any]:
    """How well each criterion follows the test error along one path, as a correlation.

    A criterion that should be large (evidence) is taken with the other sign; one that does not
    change along the path follows nothing, and has no number.
    """
    cut = simulated(number) if data == "synthetic" else partition(data, n_train, number)
    X, sign, X_test, sign_test = cut
    model = probit_model(with_constant(X), sign)
    path = walk(model, start, number, tolerance).path
    steps = [path[i] for i in np.unique(np.linspace(0, len(path) - 1, STEPS).astype(int))]
    error = []
    for step in steps:
        fit = EP().approximate(replace(model, precision=step.precision))
        error.append(outcome(fit, with_constant(X_test), sign_test)["errors"] / len(sign_test))
    curves = {
        "evidence": [-float(step.log_evidence) for step in steps],
        "features": [float(step.active[1:].mean()) for step in steps],
        **{name: [float(step.info[key]) for step in steps] for name, key in CRITERIA.items()},
    }
    found = {f"{name}.correlation": _correlation(curve, error) for name, curve in curves.items()}
    return found | {"test_error": error} | curves


def _correlation(a: Sequence[float], b: Sequence[float]) -> float:
    if np.std(a) == 0 or np.std(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def evidence_along_path(number: int, data: str, n_train: int, draws: int = 2000) -> dict[str, Any]:
    """EP, Laplace and exact log evidence at steps of one path from the empty start."""
    X, sign, _, _ = partition(data, n_train, number)
    model = probit_model(with_constant(X), sign)
    path = walk(model, None, number, 1e-4).path
    steps = sorted({0, 1, 2, 3, 5, 8, *np.linspace(10, len(path) - 1, 5).astype(int).tolist()})
    table: dict[str, list[float]] = {"step": [s for s in steps if s < len(path)]}
    for index in table["step"]:
        at = replace(model, precision=path[int(index)].precision)
        fit = EP().approximate(at)
        exact = Exact(min_acceptance=1e-5).sample(at, draws, np.random.default_rng(int(index)))
        numbers = {
            "ep": path[int(index)].log_evidence,
            "ep_corrected": fit.log_evidence + evidence_correction(fit).value,
            "laplace": Laplace().approximate(at).log_evidence,
            "exact": exact.log_evidence,
            "exact_error": exact.log_evidence_error,
        }
        for name, value in numbers.items():
            table.setdefault(name, []).append(float(value))
    return dict(table)
