"""Figures of the sections on predictions, convergence and calibration, in the page's colours."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from ardvark.diagnostics.plots.report import BAND, INK, STYLE, look

__all__ = ["delta_curves", "forecasts", "paths", "reliability"]

MOST_MARKS = 400  # of a scatter: more are a blot, and a large file
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (8, 3)), "-")


def _panels(count: int) -> tuple[Figure, list[Any]]:
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(9.0, 0.3 + 2.9 * rows))
    grid = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, list(grid[:count])


def _titled(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left")
    axes.grid()
    axes.set_axisbelow(True)


def reliability(curves: Mapping[str, Any], order: Sequence[str]) -> Figure:
    """Observed frequency by forecast probability, one panel a method; the band is of luck."""
    with rc_context(STYLE):
        figure, grid = _panels(len(curves))
        for axes, (name, curve) in zip(grid, curves.items(), strict=True):
            axes.fill_between(curve.probability, curve.lower, curve.upper, color=BAND, linewidth=0)
            axes.plot([0, 1], [0, 1], color=INK, linewidth=0.7, linestyle=(0, (4, 3)))
            axes.step(
                curve.probability, curve.frequency, where="mid",
                color=look(order.index(name))[0], linewidth=1.6,
            )  # fmt: skip
            axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="forecast probability")
            _titled(axes, name)
        grid[0].set_ylabel("observed frequency")
        figure.tight_layout()
    return figure


def delta_curves(curves: Mapping[str, tuple[Any, Any, int]], title: str, label: str) -> Figure:
    """Cumulative share of places minus uniform; per name (grid, curve, sample size).

    The band is where a curve stays at any one point, 99 times in 100.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, max(3.2, 0.6 + 0.22 * len(curves))))  # room for the legend
        axes = figure.subplots()
        size = min((n for _, _, n in curves.values()), default=1)
        x = np.linspace(0, 1, 101)
        half = 2.576 * np.sqrt(x * (1 - x) / size)
        axes.fill_between(x, -half, half, color=BAND, linewidth=0)
        axes.axhline(0.0, color=INK, linewidth=0.7)
        for i, (name, (grid, curve, _)) in enumerate(curves.items()):
            colour, marker = look(i)
            axes.plot(
                grid, curve, color=colour, linewidth=1.6, label=name,
                linestyle=DASHES[i % len(DASHES)], marker=marker,
                markevery=(i % 7, 9), markersize=4,
            )  # fmt: skip
        axes.set(xlim=(0, 1), xlabel=label, ylabel="difference from uniform")
        _titled(axes, title)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02))
        figure.tight_layout()
    return figure


def forecasts(pairs: Mapping[str, tuple[Any, Any]], reference: str, order: Sequence[str]) -> Figure:
    """What each method predicts against what the reference predicts, row by row."""
    with rc_context(STYLE):
        figure, grid = _panels(len(pairs))
        for axes, (name, (x, y)) in zip(grid, pairs.items(), strict=True):
            colour, marker = look(order.index(name))
            both = [min(np.min(x), np.min(y)), max(np.max(x), np.max(y))]
            axes.plot(both, both, color=INK, linewidth=0.7, linestyle=(0, (4, 3)))
            few = np.linspace(0, len(x) - 1, min(len(x), MOST_MARKS)).astype(int)
            axes.plot(x[few], y[few], marker, color=colour, markersize=3)
            axes.set_xlabel(reference)
            _titled(axes, name)
        figure.tight_layout()
    return figure


def paths(series: Sequence[tuple[str, str, str, Any]], order: Sequence[str]) -> Figure:
    """How a search went: method, label of x, label of y, values."""
    with rc_context(STYLE):
        figure, grid = _panels(len(series))
        for axes, (name, x, y, values) in zip(grid, series, strict=True):
            colour, marker = look(order.index(name))
            axes.plot(
                np.arange(len(values)), values, color=colour, linewidth=1.4,
                marker=marker if len(values) < 40 else None, markersize=4,
            )  # fmt: skip
            axes.set(xlabel=x, ylabel=y)
            _titled(axes, name)
        figure.tight_layout()
    return figure
