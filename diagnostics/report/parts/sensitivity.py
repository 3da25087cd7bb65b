"""The section on the prior: how much answers move when prior or likelihood weigh a little more.

Power-scaling (Kallioinen, Paananen, Bürkner & Vehtari 2024), by ArviZ, on the draws of a tree that
integrates its hyperparameters out. Of a hierarchical prior only the top is scaled: the variables
that depend on no other free variable. What lies below it is part of the model, the standardised
effects z of a non-centred form among them: z is N(0, 1) by itself but means nothing without its
scale, so the effects that the graph names are judged in its place.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray as xr

from ardvark.diagnostics.reading import arviz, has_rows, weight_variables
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.words import count, listed
from ardvark.inference.extend import standardised, top_of_prior
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.pymc_models.copies import without_starts
from ardvark.inference.running.progress import silent
from ardvark.inference.tree import FREE

__all__ = ["THRESHOLD", "sensitivity_part"]

THRESHOLD = 0.05  # of ArviZ: above it a quantity is called sensitive
DRAWS = 4000  # a sensitivity of 0.1 is then known to 0.02 or so; 1000 draws leave 0.05
SHOWN = 40


def sensitivity_part(case: Case) -> dict[str, Any]:
    """Table of sensitivities of the weights, or why there is none."""
    name, why = _tree_for(case)
    if name is None:
        return {"sentence": f"Not computed: {why}", "level": "", "rows": []}
    try:
        table, scaled, replaced = _sensitivities(case.trees[name], case.model)
    except (ValueError, KeyError, TypeError, NotImplementedError) as error:
        return {"sentence": f"Not computed: {error}", "level": "", "rows": []}
    unknown = [str(n) for n in table.index[table[["prior", "likelihood"]].isna().any(axis=1)]]
    moved = table[table["prior"] > THRESHOLD]
    conflict = [str(n) for n in moved.index[moved["likelihood"] > THRESHOLD]]
    weak = [str(n) for n in moved.index[moved["likelihood"] <= THRESHOLD]]
    sentences = [
        f"Under {name} the prior of {listed(scaled)} was scaled up and down by one per cent."
    ]
    if conflict:
        sentences.append(f"Prior and data may be in conflict about {listed(conflict)}.")
    if weak:
        sentences.append(f"The prior dominates {listed(weak)}: the data are weak there.")
    if replaced:
        sentences.append(f"Not judged, since they are standardised effects: {listed(replaced)}.")
    if unknown:
        sentences.append(f"It could not be computed for {listed(unknown)}.")
    elif not len(moved):
        sentences.append(f"None of {count(len(table), 'weight')} is sensitive to it.")
    return {
        "sentence": " ".join(sentences),
        "level": "warn" if len(moved) or unknown else "good",
        "tree": name,
        "scaled": scaled,
        "threshold": THRESHOLD,
        "hidden": max(0, len(table) - SHOWN),
        "rows": [
            {"weight": str(n), **{k: row[k] for k in ("prior", "likelihood", "diagnosis")}}
            for n, row in table.iterrows()
        ],
    }


def _tree_for(case: Case) -> tuple[str | None, str]:
    """Name a tree whose draws are of the posterior that the graph defines."""
    if case.model is None:
        return None, "no model was given, so its log prior is not known."
    free = {rv.name for rv in case.model.free_RVs}
    names = sorted(case.trees, key=lambda n: (n != case.reference, n not in case.references))
    for name in names:
        tree = case.trees[name]
        posterior = tree["posterior"].dataset
        whole = case.facts[name]["hyper"] in FREE or not _hyper(case)
        there = free <= set(posterior.data_vars) and "log_likelihood" in tree.children
        if whole and there and all(np.isfinite(posterior[v].values).all() for v in free):
            return name, ""
    return None, (
        "no tree has draws of every free variable of the graph, hyperparameters among them. "
        "Fit NUTS too."
    )


def _hyper(case: Case) -> bool:
    """Whether the graph has free variables other than its weights."""
    weights = {n for tree in case.trees.values() for n in weight_variables(tree)}
    return bool({rv.name for rv in case.model.free_RVs} - weights)


def _thinned(draws: xr.Dataset, step: int) -> xr.Dataset:
    """Keep every so many draws, numbered anew: PyMC numbers its log densities from zero."""
    kept = draws.isel(draw=slice(None, None, step))
    return kept.assign_coords(draw=np.arange(kept.sizes["draw"]))


def _judged(tree: xr.DataTree, model: Any, names: list[str]) -> tuple[list[str], list[str]]:
    """Variables to judge, and the standardised effects in whose place some of them stand."""
    from pytensor.graph.traversal import ancestors

    posterior = tree["posterior"].dataset
    weights = [n for n in weight_variables(tree) if n in posterior] or names
    known = standardised(model)
    below = [n for n in weights if n in known]
    effects = [
        d.name
        for d in model.deterministics
        if d.name in posterior
        and not has_rows(tree, posterior[d.name])
        and {*below} & {v.name for v in ancestors([d])}
    ]
    kept = [n for n in weights if n not in below]
    return [*kept, *effects] or [n for n in names if n not in below], below


def _sensitivities(tree: xr.DataTree, model: Any) -> tuple[Any, list[str], list[str]]:
    import pymc as pm

    names = [rv.name for rv in model.free_RVs]
    posterior = tree["posterior"].to_dataset()
    step = max(1, posterior.sizes["chain"] * posterior.sizes["draw"] // DRAWS)
    groups = {
        "posterior": _thinned(posterior, step),
        "log_likelihood": _thinned(tree["log_likelihood"].to_dataset(), step),
    }
    scaled = top_of_prior(model)
    drawn = xr.DataTree.from_dict({"posterior": groups["posterior"][names]})
    with quick(), silent("arviz_stats.psense"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prior = pm.compute_log_prior(
            drawn, var_names=scaled, model=without_starts(model),
            extend_inferencedata=False, progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )  # fmt: skip
        groups["log_prior"] = prior.to_dataset() if isinstance(prior, xr.DataTree) else prior
        judged, replaced = _judged(tree, model, names)
        table = arviz().psense_summary(
            xr.DataTree.from_dict(groups), var_names=judged, threshold=THRESHOLD
        )
    return table.sort_values("prior", ascending=False, kind="stable"), scaled, replaced
