"""The report's figures: matplotlib figures written as inline SVG that follow the page's colours.

A figure is drawn in colours that occur nowhere else; `as_svg` replaces them by the page's CSS
variables, so that one figure serves light and dark pages. Long traces are rasterised inside their
SVG, so that no figure weighs more than a few hundred kB. Names are never read as mathematics.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ardvark.diagnostics.plots.hyperparameters import (
    MARKERS,
    draw_hyperparameters,
    shared_marginals,
)
from ardvark.inference.sites.arrays import Array

__all__ = ["as_svg", "closeness", "forest", "hyperparameters", "look", "traces"]

MOST_SCALARS = 6  # hyperparameters in a figure
INK, GRID, BAND = "#010203", "#010204", "#010205"
METHOD_COLOURS = ("#010210", "#010211", "#010212", "#010213", "#010214", "#010215")
# Chains of a rasterised trace: these must read on white and on black.
CHAIN_COLOURS = ("#3b8ac4", "#d9822b", "#2fa37c", "#b867a0")
PAGE_VARIABLES = {
    INK: "currentColor",
    GRID: "var(--grid)",
    BAND: "var(--band)",
    **{colour: f"var(--m{i})" for i, colour in enumerate(METHOD_COLOURS)},
}
STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "grid.color": GRID,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "savefig.dpi": 110,
}


def as_svg(figure: Figure, name: str, label: str) -> str:
    """Inline SVG of a figure: page colours, own ids, no link to anywhere; `label` is read aloud."""
    buffer = io.StringIO()
    with rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    opening = re.match(r"<svg[^>]*>", svg)
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert opening is not None and box is not None
    # Two figures of one page must not share ids: a marker would take the other figure's shape.
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg[opening.end() :])
    body = body.replace("xlink:href=", "href=")
    for marker, variable in PAGE_VARIABLES.items():
        body = body.replace(marker, variable)
    aria = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return f'<svg role="img" aria-label="{aria}" viewBox="{box[1]}">{body}'


def hyperparameters(trees: Mapping[str, Any], methods: Sequence[str]) -> Figure:
    """p(θ | t) by each method, the first six numbers; `methods` give the page's colours."""
    found = shared_marginals(trees)
    labels = list(next(iter(found.values())))[:MOST_SCALARS]
    places = [list(methods).index(name) if name in methods else 0 for name in found]
    with rc_context(STYLE):
        columns = min(3, len(labels))
        rows = -(-len(labels) // columns)
        figure = Figure(figsize=(9.0, 0.6 + 2.3 * rows))
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel in panels[len(labels) :]:
            panel.set_visible(False)
        draw_hyperparameters(list(panels), labels, found, lambda i: look(places[i]))
        figure.tight_layout()
    return figure


def forest(summaries: Mapping[str, pd.DataFrame], weights: Sequence[str]) -> Figure:
    """Mean and central interval of each weight, methods side by side.

    Parameters
    ----------
    summaries : per method a frame indexed by weight with columns `mean`, `lower`, `upper`.
    weights : the weights to show, top first.
    """
    methods = list(summaries)
    step = 0.72 / max(len(methods), 1)
    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, 1.2 + len(weights) * max(0.14 * len(methods), 0.26)))
        axes = figure.subplots()
        axes.axvline(0.0, color=INK, linewidth=0.7, linestyle=(0, (4, 3)))
        for i, name in enumerate(methods):
            table = summaries[name].reindex(list(weights))
            height = np.arange(len(weights)) - 0.36 + step * (i + 0.5)
            colour, marker = look(i)
            axes.hlines(height, table["lower"], table["upper"], color=colour, linewidth=1.5)
            axes.plot(
                table["mean"], height, marker, color=colour, markersize=4.2, label=name, zorder=3
            )
        axes.set_yticks(np.arange(len(weights)), list(weights))
        axes.set_ylim(len(weights) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.set_xlabel("weight (mean and 89 % interval)")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(methods), borderpad=0.1)
        figure.tight_layout()
    return figure


def closeness(
    pairs: Sequence[tuple[str, str, pd.DataFrame]],
    order: Sequence[str],
    tolerance: float,
    sd_limits: tuple[float, float],
) -> Figure:
    """Error of the means and ratio of the sds against the reference, one row per pair.

    Parameters
    ----------
    pairs : method, reference, and a frame indexed by weight with columns `reference_mean`,
        `reference_sd`, `mean_error` (in sd units) and `sd_ratio`.
    order : all methods, in the order in which `forest` gives them colours and markers.
    tolerance, sd_limits : what lies inside is shaded.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, 0.3 + 2.9 * len(pairs)))
        grid = figure.subplots(len(pairs), 2, squeeze=False)
        for (left, right), (name, reference, frame) in zip(grid, pairs, strict=True):
            finite = frame.replace([np.inf, -np.inf], np.nan)
            shown = look(order.index(name))
            signal = finite["reference_mean"] / finite["reference_sd"]
            _scatter(left, signal, finite["mean_error"], shown, 0.0, (-tolerance, tolerance))
            _scatter(right, finite["reference_sd"], finite["sd_ratio"], shown, 1.0, sd_limits)
            left.set(xlabel=f"mean / sd of {reference}", ylabel="error of the mean / sd")
            right.set(xlabel=f"sd of {reference}", ylabel="sd ratio")
            left.set_title(f"{name}: means", loc="left")
            right.set_title(f"{name}: standard deviations", loc="left")
        figure.tight_layout()
    return figure


def _scatter(
    axes: Axes, x: Any, y: Any, look: tuple[str, str], ideal: float, band: tuple[float, float]
) -> None:
    """Points around an ideal value; the two farthest from it are named."""
    axes.axhspan(*band, color=BAND, zorder=0)
    axes.axhline(ideal, color=INK, linewidth=0.7)
    axes.plot(x, y, look[1], color=look[0], markersize=4.5)
    farthest = (y - ideal).abs().dropna().sort_values(ascending=False).index[:2]
    for name in farthest:
        rise = 5 if y[name] == y[farthest].max() else -11  # one above, one below: no overlap
        on_the_right = x[name] > 0.5 * (x.min() + x.max())
        axes.annotate(
            str(name),
            (x[name], y[name]),
            xytext=(-5 if on_the_right else 5, rise),
            textcoords="offset points",
            ha="right" if on_the_right else "left",
            fontsize=8,
        )
    axes.grid()
    axes.set_axisbelow(True)
    axes.margins(0.12, 0.15)


def traces(draws: Mapping[str, Array]) -> Figure:
    """Trace and rank-count plot of some quantities; each array is (chain, draw)."""
    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, 0.3 + 1.55 * len(draws)))
        grid = figure.subplots(len(draws), 2, squeeze=False, width_ratios=(2.4, 1.0))
        for (left, right), (name, values) in zip(grid, draws.items(), strict=True):
            chains = len(values)
            ranks = np.argsort(np.argsort(values, axis=None)).reshape(values.shape)
            edges = np.linspace(0, values.size, 21)
            for i in range(chains):
                colour = CHAIN_COLOURS[i % len(CHAIN_COLOURS)]
                left.plot(values[i], color=colour, linewidth=0.45, alpha=0.8, rasterized=True)
                counts = np.histogram(ranks[i], edges)[0] * 20 / values.shape[1]
                right.stairs(counts, edges / values.size, color=colour, linewidth=1.1)
            right.axhline(1.0, color=INK, linewidth=0.7, linestyle=(0, (4, 3)))
            right.set_ylim(0.0, max(2.0, right.get_ylim()[1]))
            left.set_title(name, loc="left")
            right.set_title("ranks per chain", loc="left")
            left.set_xlim(0, values.shape[1])
        grid[-1][0].set_xlabel("draw")
        grid[-1][1].set_xlabel("rank / number of draws")
        figure.tight_layout()
    return figure


def look(i: int) -> tuple[str, str]:
    """Colour and marker of a method; a reader who sees no colours reads the markers."""
    return METHOD_COLOURS[i % len(METHOD_COLOURS)], MARKERS[i % len(MARKERS)]
