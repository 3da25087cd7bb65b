"""The section on the hyperparameters: p(θ | t) by number and method, with nodes where there are.

The densities are those of `plot_hyperparameters`; a tree that holds θ at one value has a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ardvark.diagnostics.plots.hyperparameters import Marginal, shared_marginals
from ardvark.diagnostics.report.case import Case
from ardvark.inference.sites.arrays import Array

__all__ = ["hyperparameters_section"]

MOST = 60  # numbers
POINTS = 160  # of a density
MOST_DRAWS = 3000  # of a density
RANGE = (0.005, 0.98)  # quantiles between which a panel reaches


def hyperparameters_section(case: Case) -> dict[str, Any]:
    """Densities, nodes and points of every scalar hyperparameter; or why there are none."""
    moving = [name for name, facts in case.facts.items() if facts["hyper"] not in ("fixed", "")]
    order = sorted(case.summaries, key=lambda name: (name != case.reference, name not in moving))
    found = shared_marginals({name: case.trees[name] for name in order})
    labels = list(dict.fromkeys(label for known in found.values() for label in known))
    spread = [n for n in labels if any(k[n].values.size for k in found.values() if n in k)]
    if not spread:
        why = "no method has a distribution of them" if labels else "the model has none"
        return {"labels": [], "hidden": 0, "why": f"No density of hyperparameters: {why}."}
    shown = spread[:MOST]
    return {
        "labels": shown,
        "hidden": len(spread) - len(shown),
        "held": len(labels) - len(spread),
        "curves": [
            _curves({name: known[label] for name, known in found.items() if label in known})
            for label in shown
        ],
    }


def _curves(here: dict[str, Marginal]) -> dict[str, dict[str, Any]]:
    """What each method says of one number."""
    x = _grid([_few(marginal) for marginal in here.values()])
    found: dict[str, dict[str, Any]] = {}
    for name, marginal in here.items():
        facts: dict[str, Any] = {
            "point": marginal.point,
            "infinite": bool(np.isinf(marginal.point)),
            "kind": marginal.kind,
        }
        if marginal.values.size:
            y = _few(marginal).density(x)
            facts |= {"x": x.tolist(), "y": y.tolist()}
        if marginal.nodes:
            inside = (marginal.values >= x[0]) & (marginal.values <= x[-1])
            facts["nodes"] = {
                "x": marginal.values[inside].tolist(),
                "weight": marginal.weights[inside].tolist(),
            }
        found[name] = facts
    return found


def _few(marginal: Marginal) -> Marginal:
    """Thin draws: a kernel density costs draws × points."""
    step = max(1, marginal.values.size // MOST_DRAWS)
    if marginal.nodes or step == 1:
        return marginal
    values = marginal.values[::step]
    return marginal._replace(values=values, weights=np.full(values.size, 1.0 / values.size))


def _grid(found: Sequence[Marginal]) -> Array:
    """Points from a low to a high quantile of all densities."""
    ends = np.array([marginal.quantiles(RANGE) for marginal in found if marginal.values.size])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    room = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    start = low - room if low < 0 or low - room > 0 else low / 10.0
    return np.linspace(start, high + room, POINTS)
