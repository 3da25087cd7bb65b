"""The section on single weights: forest, densities, ranks of chains, influence of rows.

| shown             | from                                                                      |
|-------------------|---------------------------------------------------------------------------|
| forest, table     | `Case.summaries`, `Case.differences`                                      |
| densities         | ArviZ's `plot_dist`, its plotly backend                                   |
| ranks of chains   | ArviZ's `plot_rank` with its envelope (Säilynoja, Bürkner & Vehtari 2022) |
| influence of rows | `influence.py`, k-hats of `Case.left_out`                                 |

ArviZ's own forest draws every mark as a trace without a name, so that a click on one says nothing:
the forest is drawn here. ArviZ sees numbers for names: what a user calls a column cannot reach it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from ardvark.diagnostics.reading import (
    SAMPLE_DIMS,
    arviz,
    draws_of,
    element_labels,
    weight_variables,
)
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.interactive.influence import influence
from ardvark.diagnostics.report.page import ranked_weights
from ardvark.inference.sites.arrays import Array

__all__ = ["weights_section"]

MOST = 60  # weights; the JSON file of the report has them all
POINTS = 128  # of a density
STEPS = 100  # of the ranks of a chain
MOST_ROWS = 600  # of the influence: those that move some weight most
FEWEST = 50  # draws of a chain that thinning leaves
FIGURES = ("mean", "sd", "lower", "upper", "relevance")


def weights_section(case: Case) -> dict[str, Any]:
    """Numbers of the weights by method, the most relevant weight first."""
    if not any(len(table) for table in case.summaries.values()):
        return {"weights": []}  # a model in which inputs are in or out, and have no weight
    names = ranked_weights(case)
    shown = names[:MOST]
    draws = {name: _draws(tree, shown) for name, tree in case.trees.items()}
    chains = [name for name in case.summaries if case.quality[name].sampling_kind == "mcmc"]
    return {
        "weights": shown,
        "hidden": len(names) - len(shown),
        "summaries": {name: _figures(case, name, shown) for name in case.summaries},
        "densities": {name: _densities(draws[name], len(shown)) for name in case.summaries},
        "ranks": {name: _ranks(draws[name], len(shown)) for name in chains},
        "influence": _influence(case, shown),
    }


def _figures(case: Case, name: str, shown: Sequence[str]) -> dict[str, Any]:
    """Mean, sd, interval, relevance; and the error against the reference of this method."""
    table = case.summaries[name].reindex(list(shown))
    found: dict[str, Any] = {key: table[key].tolist() for key in FIGURES if key in table}
    for kind, pairs in (("error", case.like), ("price", case.price)):
        if name in pairs:
            held = case.differences[name, pairs[name]].reindex(list(shown))
            found[kind] = {"against": pairs[name], "mean": held["mean_error"].tolist()}
            found[kind]["sd_ratio"] = held["sd_ratio"].tolist()
    return found


# ------------------------------------------------------------------------- densities and ranks


def _draws(tree: xr.DataTree, shown: Sequence[str]) -> xr.DataArray:
    """Draws of the weights that move, (chain, draw, element); elements are places in `shown`."""
    posterior, place = tree["posterior"].dataset, {name: i for i, name in enumerate(shown)}
    kept: dict[int, Array] = {}
    for variable in weight_variables(tree):
        values = draws_of(posterior[variable])
        for i, label in enumerate(element_labels(posterior[variable], variable)):
            if label in place and np.isfinite(values[..., i]).all() and np.ptp(values[..., i]) > 0:
                kept[place[label]] = values[..., i]
    order = sorted(kept)
    if not order:
        return xr.DataArray(np.empty((1, 1, 0)), dims=(*SAMPLE_DIMS, "element"))
    stacked = np.stack([kept[i] for i in order], axis=2)
    coords = {"element": order} | {
        dim: np.arange(size) for dim, size in zip(SAMPLE_DIMS, stacked.shape, strict=False)
    }
    return xr.DataArray(stacked, dims=(*SAMPLE_DIMS, "element"), coords=coords)


@contextmanager
def _many_panels() -> Iterator[Any]:
    """ArviZ's plots, with a panel for every weight."""
    with import_module("arviz_base").rc_context({"plot.max_subplots": MOST + 1}):
        yield import_module("arviz_plots")


def _as_tree(draws: xr.DataArray) -> xr.DataTree:
    return xr.DataTree.from_dict({"posterior": xr.Dataset({"weight": draws})})


def _densities(draws: xr.DataArray, size: int) -> list[dict[str, Any] | None]:
    """One curve a weight; None where the draws have no density."""
    curves: list[dict[str, Any] | None] = [None] * size
    if not draws.sizes["element"]:
        return curves
    off = dict.fromkeys(
        ("credible_interval", "point_estimate", "point_estimate_text", "title", "remove_axis"),
        False,
    )
    with _many_panels() as plots:
        drawn = plots.plot_dist(_as_tree(draws), kind="kde", backend="plotly", visuals=off)
    for element, line in _artists(drawn, "dist"):
        curves[element] = {key: _thinned(line[key], POINTS) for key in ("x", "y")}
    return curves


def _ranks(draws: xr.DataArray, size: int) -> dict[str, Any] | None:
    """Differences of the ranks of each chain from uniform, and the envelope that holds them all."""
    step = _step(draws)
    thin = draws.isel(draw=slice(None, None, step))
    if not thin.sizes["element"] or thin.sizes["chain"] < 2 or thin.sizes["draw"] < 10:
        return None
    thin = thin.assign_coords(draw=np.arange(thin.sizes["draw"]))
    off = dict.fromkeys(("title", "xlabel", "remove_axis"), False)
    with _many_panels() as plots:
        drawn = plots.plot_rank(_as_tree(thin), method="envelope", backend="plotly", visuals=off)
    figure = drawn.viz["figure"].item()
    upper = next(i for i, line in enumerate(figure.data) if line.fill == "tonexty")
    lower = figure.data[upper - 1]  # plotly fills to the trace before
    lines: list[list[Any] | None] = [None] * size
    for element, line in _artists(drawn, "ecdf_lines"):
        chain = {key: _thinned(line[key], STEPS) for key in ("x", "y")}
        lines[element] = [*(lines[element] or []), chain]
    return {
        "step": step,
        "draws": thin.sizes["draw"],
        "x": _thinned(lower.x, 2 * STEPS),
        "lower": _thinned(lower.y, 2 * STEPS),
        "upper": _thinned(figure.data[upper].y, 2 * STEPS),
        "chains": lines,
    }


def _artists(drawn: Any, visual: str) -> Iterator[tuple[int, Any]]:
    """Each trace of plotly with its weight, chain by chain."""
    table = drawn.viz[visual]["weight"]
    for element in table["element"].to_numpy():
        for line in np.ravel(table.sel(element=element).to_numpy()):
            yield int(element), line


def _thinned(values: Any, most: int) -> list[float]:
    """So many of the values at most, both ends among them."""
    given = np.asarray(values, dtype=float)
    few = np.linspace(0, len(given) - 1, min(len(given), most)).round().astype(int)
    return [float(value) for value in given[few]]


def _step(draws: xr.DataArray) -> int:
    """Keep one draw of so many: the envelope is that of independent draws.

    Effective sizes are those of single chains. Chains that disagree have a small one together, and
    they are what the plot is to show.
    """
    if not draws.sizes["element"] or draws.sizes["draw"] < FEWEST:
        return 1
    axes = {"chain_axis": 0, "draw_axis": 1}
    alone = [arviz().ess(chain[None], method="bulk", **axes) for chain in draws.to_numpy()]
    least = max(float(np.nanmin(alone)), FEWEST)
    return max(1, math.ceil(draws.sizes["draw"] / least - 0.1))


# ---------------------------------------------------------------------------------- influence


def _influence(case: Case, shown: Sequence[str]) -> dict[str, Any]:
    """Shift of each weight without each row, under the reference; or why there is none."""
    name = str(case.reference or next(iter(case.trees)))
    table = influence(case.trees[name])
    if table is None:
        why = f"{name} has no log likelihood of single rows that importance sampling can use."
        return {"method": name, "why": why}
    rows, left_out = np.arange(len(table)), case.left_out[name]
    if len(table) > MOST_ROWS:
        rows = np.sort(np.argsort(-table.abs().max(axis=1).to_numpy(), kind="stable")[:MOST_ROWS])
    usable = left_out is not None and len(left_out.high) == len(table)
    return {
        "method": name,
        "rows": [int(row) for row in rows],
        "all_rows": len(table),
        "unsure": [bool(left_out.high[r]) for r in rows] if usable and left_out else [],
        "shift": [
            table[w].to_numpy()[rows].tolist() if w in table.columns else None for w in shown
        ],
    }
