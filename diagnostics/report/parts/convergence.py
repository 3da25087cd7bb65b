"""The section on each method's own convergence: its own diagnostics, without any reference.

The facts are those that a tree has: sites and cavities of EP, the slope and curvature at Laplace's
mode, the bound of VB, the jumps of a sampler of subsets, the steps of NUTS.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from ardvark.diagnostics.finding import worst_level
from ardvark.diagnostics.plots import calibration as drawn
from ardvark.diagnostics.plots.report import hyperparameters
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.words import listed

__all__ = ["convergence_figures", "convergence_part"]

DROP = 1e-6  # a bound that falls by more than this share of itself has a fault
SLOPE = 1e-4  # of the log posterior at the mode, times the sd of a weight
CONDITION = 1e10
DEEP = 0.01  # share of draws that ran into the largest tree

PATHS = (  # group, variable, labels of the two axes
    ("fit", "elbo", "sweep", "ELBO"),
    ("selection_path", "log_evidence", "step of the search", "log evidence"),
    ("fit", "log_evidence_by_sweep", "sweep from sites of nothing", "log evidence"),
    ("sample_stats", "n_inputs", "draw of the first chain", "inputs"),
)

type Fact = tuple[str, Any, str]  # what, how much, level


def convergence_part(case: Case) -> dict[str, Any]:
    """Collect the diagnostics of each method, and whether they are in order."""
    methods = []
    for name, tree in case.trees.items():
        facts = list(_facts(tree))
        converged = bool(case.facts[name]["converged"])
        levels = ["good" if converged else "bad", *(level for _, _, level in facts if level)]
        methods.append(
            {
                "name": name,
                "method": case.facts[name]["method"],
                "converged": converged,
                "level": worst_level(levels),
                "problems": str(tree.attrs.get("problems", "")),
                "facts": [dict(zip(("what", "value", "level"), f, strict=True)) for f in facts],
            }
        )
    failed = [m["name"] for m in methods if m["level"] == "bad"]
    warned = [m["name"] for m in methods if m["level"] == "warn"]
    sentence = "Every method ended where it should."
    if failed or warned:
        parts = [f"Not in order: {listed(failed)}."] if failed else []
        parts += [f"To be looked at: {listed(warned)}."] if warned else []
        sentence = " ".join(parts)
    level = worst_level(m["level"] for m in methods)
    return {"sentence": sentence, "level": level, "methods": methods}


def _facts(tree: xr.DataTree) -> Iterator[Fact]:
    groups = set(tree.children)
    fit = tree["fit"].dataset if "fit" in groups else xr.Dataset()
    stats = tree["sample_stats"].dataset if "sample_stats" in groups else xr.Dataset()
    if "site_change" in fit:
        yield from _propagation(fit)
    if "gradient_norm" in fit:
        yield from _mode(fit)
    if "elbo" in fit:
        yield from _bound(fit)
    if "selection_path" in groups:
        path = tree["selection_path"].dataset
        yield "steps of the search over precisions", int(path.sizes["step"]), ""
        yield "weights in the model at its end", int(path["n_active"].values[-1]), ""
    if "step_size" in stats or "tree_depth" in stats:
        yield from _trajectories(stats)
    if "tried" in stats and "included" in tree["posterior"].dataset:
        yield from _jumps(tree)
    yield from _sampler(tree)


def _propagation(fit: xr.Dataset) -> Iterator[Fact]:
    yield "sweeps", int(fit["iterations"]), ""
    yield "largest change of a site in the last sweep", float(fit["site_change"]), ""
    for name, what in (
        ("negative_cavities", "negative cavities met"),
        ("skipped", "updates left out"),
        ("improper_sites", "rows with an improper site at the end"),
        ("multimodal_sites", "rows with more than one mode"),
    ):
        if name in fit:
            value = int(fit[name])
            yield what, value, "warn" if value else "good"


def _mode(fit: xr.Dataset) -> Iterator[Fact]:
    yield "Newton steps", int(fit["iterations"]), ""
    slope = float(fit["gradient_norm"])
    yield "largest slope at the mode, per sd", slope, "good" if slope < SLOPE else "bad"
    if int(fit.get("indefinite", xr.DataArray(0))):
        yield "the curvature at the mode is not that of a maximum", "yes", "bad"
    if "covariance_matrix" in fit and fit["covariance_matrix"].size:
        condition = float(np.linalg.cond(fit["covariance_matrix"].values))
        yield "condition of the Hessian", condition, "good" if condition < CONDITION else "warn"


def _bound(fit: xr.Dataset) -> Iterator[Fact]:
    bound = fit["elbo"].values
    yield "sweeps", len(bound), ""
    yield "bound at the end", float(bound[-1]), ""
    fall = float(np.max(bound[:-1] - bound[1:], initial=0.0))
    level = "good" if fall <= DROP * (1.0 + abs(float(bound[-1]))) else "bad"
    yield "largest fall of the bound in a sweep (it must not fall)", fall, level
    starts = fit["elbo_starts"].values if "elbo_starts" in fit else np.empty(0)
    if len(starts) > 1:
        yield "bounds from different starts differ by", float(np.ptp(starts)), ""


def _trajectories(stats: xr.Dataset) -> Iterator[Fact]:
    if "step_size" in stats:
        by_chain = stats["step_size"].mean("draw").values
        yield "step size by chain", ", ".join(f"{s:.3g}" for s in by_chain), ""
    if "tree_depth" in stats:
        yield "largest tree depth", int(stats["tree_depth"].max()), ""
    if "reached_max_treedepth" in stats:
        share = float(stats["reached_max_treedepth"].mean())
        yield "share of draws at the largest depth allowed", share, "warn" if share > DEEP else ""
    if "n_steps" in stats:
        yield "gradients per draw", float(stats["n_steps"].mean()), ""
    if "acceptance_rate" in stats:
        yield "mean acceptance", float(stats["acceptance_rate"].mean()), ""


def _jumps(tree: xr.DataTree) -> Iterator[Fact]:
    from ardvark.diagnostics.relevance.subset_checks import subset_diagnostics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its problems are reported below
        found = subset_diagnostics(tree)
    for move, share in found.acceptance.items():
        yield f"share of “{move}” accepted", float(share), ""
    rhat = found.indicators["rhat"].astype(float)
    size, worst = float(rhat["size"]), rhat.drop("size")
    yield "R-hat of the number of inputs", size, ""
    if worst.notna().any():
        yield f"largest R-hat of an indicator ({worst.idxmax()})", float(worst.max()), ""
    yield "different subsets seen", int(found.distinct), ""
    for problem in found.problems:
        yield problem, "", "bad"


def _sampler(tree: xr.DataTree) -> Iterator[Fact]:
    """Plain numbers that a sampler of another kind has left."""
    try:
        numbers = json.loads(str(tree.attrs.get("sampler", "{}")))
    except ValueError:
        return
    for name, what in (
        ("sweeps", "sweeps per chain"),
        ("stages", "stages of tempering"),
        ("acceptance", "share of moves accepted"),
    ):
        if name in numbers:
            yield what, numbers[name], ""


def convergence_figures(case: Case) -> dict[str, Callable[[], Any]]:
    """Draw how the bound or the evidence rose, and p(θ | t) where it was integrated."""
    series: list[tuple[str, str, str, Any]] = []
    for name, tree in case.trees.items():
        for group, variable, x, y in PATHS:
            if group in tree.children and variable in tree[group].dataset:
                values = tree[group].dataset[variable].values
                values = values if values.ndim == 1 else values[0, :1000]
                series += [(name, x, y, values)] if len(values) > 1 else []
    figures: dict[str, Callable[[], Any]] = {}
    if series:
        figures["own paths"] = lambda: drawn.paths(series, list(case.summaries))
    integrated = [n for n, tree in case.trees.items() if tree.attrs.get("hyper") == "integrated"]
    if integrated:  # of the others there are points, and draws to hold them against
        ordered = {n: case.trees[n] for n in (*integrated, *case.trees)}
        figures["hyperparameters"] = lambda: hyperparameters(ordered, list(case.summaries))
    return figures
