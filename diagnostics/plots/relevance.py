"""The relevance of each input under several fits, side by side: values, and ranks as a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.plots.hyperparameters import MARKERS
from ardvark.diagnostics.relevance.compare import compare_relevance
from ardvark.models.checks import positive_integer

__all__ = ["by_mean_rank", "draw_relevance", "figure_size", "plot_relevance"]

COLOURS = ("#1d232b", "#0067a8", "#c24e00", "#00795a", "#a34680", "#8a6a00")
DEEPEST = 0.45  # opacity of rank 1: its number must still be read


def plot_relevance(
    trees: Mapping[str, xr.DataTree], most: int = 25, *, of: str | None = None
) -> Any:
    """Draw the relevance of each input in several fits, the most relevant on top.

    Parameters
    ----------
    trees
        Results of ``fit`` by name, of one model or of several.
    most
        How many inputs are shown; they are sorted by their mean rank over the fits.
    of
        As in ``compare_relevance``.

    Returns
    -------
    array of two matplotlib Axes
        Left: relevance with two Monte Carlo errors, one marker per fit (what a relevance is differs
        between models). Right: the ranks, which can be compared.
    """
    import matplotlib.pyplot as plt

    table = compare_relevance(trees, of)
    shown = by_mean_rank(table)[: positive_integer(most, "most")]
    methods = list(dict.fromkeys(table.columns.get_level_values(0)))
    figure, axes = plt.subplots(1, 2, width_ratios=(2.2, 1.0), layout="constrained")
    figure.set_size_inches(*figure_size(len(shown), len(methods)))
    looks = {m: (COLOURS[i % 6], MARKERS[i % 6]) for i, m in enumerate(methods)}
    draw_relevance(axes, table, shown, looks)
    return axes


def by_mean_rank(table: pd.DataFrame) -> list[Any]:
    """Inputs of a table of ``compare_relevance``, the best mean rank first."""
    ranks = pd.DataFrame(table.xs("rank", axis=1, level="kind"))
    return list(ranks.mean(axis=1).sort_values(kind="stable").index)


def figure_size(inputs: int, methods: int) -> tuple[float, float]:
    """Width and height in inches."""
    return 9.0, 1.2 + inputs * max(0.13 * methods, 0.26)


def draw_relevance(
    axes: Sequence[Any],
    table: pd.DataFrame,
    shown: Sequence[Any],
    looks: Mapping[str, tuple[str, str]],
    ink: str = "black",
) -> None:
    """Draw into two axes; `looks` gives each method its colour and marker."""
    left, right = axes
    place, step = np.arange(len(shown)), 0.72 / max(len(looks), 1)
    for i, (name, (colour, marker)) in enumerate(looks.items()):
        part = table[name].reindex(list(shown))
        height = place - 0.36 + step * (i + 0.5)
        error = 2 * part["mcse"].fillna(0.0)
        value = part["relevance"]
        left.hlines(height, value - error, value + error, color=colour, linewidth=1.5)
        left.plot(value, height, marker, color=colour, markersize=4.2, label=name, zorder=3)
        depth = DEEPEST * (1 - (part["rank"] - 1) / max(len(table) - 1, 1))
        for row in np.flatnonzero(part["rank"].notna()):
            on = part["relevance"].iloc[row] > 0
            shade = max(float(depth.iloc[row]), 0.04) if on else 0.0
            tile = {"color": colour, "alpha": shade, "linewidth": 0}
            right.barh(row, 0.94, left=i - 0.47, height=0.92, **tile)
            text = f"{part['rank'].iloc[row]:.0f}" if on else "–"  # off: its rank is a tie
            right.text(i, row, text, ha="center", va="center", fontsize=8, color=ink)
    left.set_yticks(place, [str(name) for name in shown])
    left.set_xlim(-0.02, 1.02)
    left.set_xlabel("relevance")
    left.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(len(looks), 4), frameon=False)
    left.grid(axis="x", alpha=0.5)
    left.set_axisbelow(True)
    right.set_yticks(place, [""] * len(shown))
    right.set_xticks(range(len(looks)), list(looks), rotation=35, ha="left", rotation_mode="anchor")
    right.xaxis.tick_top()
    right.set_xlim(-0.5, len(looks) - 0.5)
    right.set_xlabel("rank")
    for axis in axes:
        axis.set_ylim(len(shown) - 0.5, -0.5)
        axis.tick_params(axis="y", length=0)
        axis.spines[["top", "right"]].set_visible(False)
