"""The marginal posterior p(θ | t) of hyperparameters, method by method.

| tree                        | drawn                                                              |
|-----------------------------|--------------------------------------------------------------------|
| `hyper=Integrated()`        | density of the weighted nodes, their weights as stems, the mode    |
| a sampler                   | density of the draws                                               |
| one value (evidence, mode…) | that value as a line                                               |

Densities are Gaussian kernels on the scale where the values are unbounded (log where all are
positive), brought back to the natural scale. Stems have a height of their own: the largest weight
of a panel is a third of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.diagnostics.reading import (
    constant_columns,
    draws_of,
    element_labels,
    group_variables,
    has_rows,
    theta_variables,
    weight_variables,
)
from ardvark.errors import InputError
from ardvark.inference.arguments import check_tree, check_trees
from ardvark.inference.sites.arrays import Array

__all__ = ["Marginal", "draw_hyperparameters", "marginals", "plot_hyperparameters"]

POINTS = {  # treatment of θ → what its one value is
    "integrated": "mode on the unconstrained scale",
    "mode": "mode on the unconstrained scale",
    "evidence": "type-II point",
    "predictive": "type-II point, by leave-one-out",
    "fixed": "value that was fixed",
}
MARKERS = ("o", "s", "^", "D", "v", "P")
RANGE = (0.002, 0.99)  # quantiles between which a panel reaches
MOST = 12  # panels


class Marginal(NamedTuple):
    """One scalar hyperparameter in one tree: weighted values, and the point of the fit."""

    values: Array  # of nodes or draws; empty where the tree holds one value
    weights: Array  # they sum to one
    nodes: bool  # whether the values are nodes of an integration
    point: float  # NaN: none
    kind: str  # what the point is

    def density(self, x: Array) -> Array:
        """Density at points of the natural scale."""
        from scipy.stats import gaussian_kde

        positive = bool((self.values > 0).all())
        line = np.log(self.values) if positive else self.values
        at = np.log(np.maximum(x, 1e-300)) if positive else x
        found = gaussian_kde(line, weights=self.weights)(at)
        if not positive:
            return np.asarray(found)
        return np.asarray(np.divide(found, x, out=np.zeros_like(found), where=x > 0))

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Weighted quantiles."""
        order = np.argsort(self.values)
        return np.interp(levels, np.cumsum(self.weights[order]), self.values[order])

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and sd; the point, and zero, where the tree holds one value."""
        if not self.values.size:
            return self.point, 0.0
        mean = float(self.weights @ self.values)
        return mean, float(np.sqrt(self.weights @ (self.values - mean) ** 2))


def marginals(tree: xr.DataTree, names: Sequence[str] | None = None) -> dict[str, Marginal]:
    """Give every scalar hyperparameter of a tree by its label, in the order of the tree."""
    posterior = tree["posterior"].dataset
    point_of, nodes_of = theta_variables(tree), group_variables(tree, "theta_nodes")
    treatment = str(tree.attrs.get("hyper", ""))
    found: dict[str, Marginal] = {}
    for name in _hyperparameters(tree) if names is None else names:
        if name not in posterior:
            raise InputError(
                f"names: the tree has no {name!r}; its hyperparameters are "
                f"{', '.join(_hyperparameters(tree)) or 'none'}"
            )
        draws = draws_of(posterior[name])
        flat, nodes = draws.reshape(-1, draws.shape[2]), name in nodes_of
        weights = np.full(len(flat), 1.0 / len(flat))
        if nodes:
            weights = tree["fit"]["node_weight"].to_numpy()
            flat = nodes_of[name].to_numpy().reshape(len(weights), -1)
        point = np.ravel(point_of[name]) if name in point_of else np.full(flat.shape[1], np.nan)
        still = constant_columns(draws)
        for i, label in enumerate(element_labels(posterior[name], name)):
            if still[i]:
                one = float(draws[0, 0, i])
                marginal = Marginal(np.empty(0), np.empty(0), False, one, POINTS.get(treatment, ""))
            else:
                kind = POINTS.get(treatment, "")
                marginal = Marginal(flat[:, i], weights, nodes, float(point[i]), kind)
            found[label] = marginal
    return found


def _hyperparameters(tree: xr.DataTree) -> list[str]:
    """Variables of the posterior that are no weights and have no rows of data."""
    posterior, weights = tree["posterior"].dataset, weight_variables(tree)
    used = theta_variables(tree)
    names = [str(n) for n in posterior.data_vars if n not in weights]
    if known := [n for n in names if n in used]:
        return known  # a fit lists its own; what else there is are Deterministics
    return [n for n in names if posterior[n].dtype.kind == "f" and not has_rows(tree, posterior[n])]


def plot_hyperparameters(
    tree: xr.DataTree | Mapping[str, xr.DataTree],
    reference: xr.DataTree | None = None,
    *,
    names: Sequence[str] | None = None,
    axes: Any = None,
) -> Any:
    """Draw p(θ | t) for each scalar hyperparameter.

    Parameters
    ----------
    tree : xr.DataTree, or mapping of names to trees
        A fit; most is seen of one with `hyper=Integrated()`, the default on a graph of your own.
    reference : xr.DataTree, optional
        Draws to hold it against, such as those of NUTS.
    names : sequence of str, optional
        Names of hyperparameters. Default: all that the first fit has, the first twelve numbers.
    axes : sequence of matplotlib.axes.Axes, optional
        One for each number; a new figure by default.

    Returns
    -------
    array of matplotlib.axes.Axes
    """
    trees = dict(tree) if isinstance(tree, Mapping) and not isinstance(tree, xr.DataTree) else None
    if trees is None:
        check_tree(tree)
        trees = {str(tree.attrs.get("method", "fit")): tree}  # type: ignore[union-attr, dict-item]
    if reference is not None:
        check_tree(reference, "reference")
        trees[f"{reference.attrs.get('method', 'reference')} (reference)"] = reference
    check_trees(trees)
    found = shared_marginals(trees, names)
    labels = list(next(iter(found.values())))
    if not labels:
        raise InputError("tree has no hyperparameters: all that is free in it are its weights")
    shown = labels[:MOST] if names is None else labels
    if axes is None:
        import matplotlib.pyplot as plt

        columns = min(3, len(shown))
        rows = -(-len(shown) // columns)
        size = (1.0 + 3.4 * columns, 0.5 + 2.5 * rows)
        figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False)
        figure.set_layout_engine("constrained")
        axes = grid.ravel()
        for panel in axes[len(shown) :]:
            panel.set_visible(False)
        if len(shown) < len(labels):
            figure.suptitle(f"{len(shown)} of {len(labels)} hyperparameters", fontsize=9)
    panels = np.ravel(np.asarray(axes, dtype=object))
    if len(panels) < len(shown):
        raise InputError(f"axes: {len(shown)} numbers are drawn, found {len(panels)} axes")
    draw_hyperparameters(list(panels), shown, found)
    return panels


def shared_marginals(
    trees: Mapping[str, xr.DataTree], names: Sequence[str] | None = None
) -> dict[str, dict[str, Marginal]]:
    """Give the hyperparameters of the first tree, in every tree that has them."""
    found: dict[str, dict[str, Marginal]] = {}
    for title, tree in trees.items():
        known = names
        if known is None and found:
            first = next(iter(trees.values()))
            known = [n for n in _hyperparameters(first) if n in tree["posterior"].data_vars]
        found[title] = marginals(tree, known)
    return found


def draw_hyperparameters(
    axes: Sequence[Any],
    labels: Sequence[str],
    found: Mapping[str, Mapping[str, Marginal]],
    look: Callable[[int], tuple[str, str]] | None = None,
) -> None:
    """Fill one axis for each label; `look(i)` = colour and marker of tree i."""
    look = look or (lambda i: (f"C{i % 10}", MARKERS[i % len(MARKERS)]))
    for number, (panel, label) in enumerate(zip(axes, labels, strict=False)):
        here = {title: known[label] for title, known in found.items() if label in known}
        low, high = _limits(list(here.values()))
        x = np.linspace(low, high, 300)
        for i, title in enumerate(found):
            if title in here:
                _draw_one(panel, x, here[title], title, look(i))
        panel.set_xlim(low, high)
        panel.set_ylim(bottom=0.0)
        panel.set_xlabel(label, fontsize=9)
        panel.set_yticks([])
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right", "left"]].set_visible(False)
        if number == 0:
            panel.legend(fontsize=7.5, frameon=False)


def _draw_one(panel: Any, x: Array, marginal: Marginal, title: str, look: tuple[str, str]) -> None:
    colour, marker = look
    if not marginal.values.size:
        panel.axvline(marginal.point, color=colour, linestyle="--", label=f"{title}: point")
        return
    y = marginal.density(x)
    panel.plot(x, y, color=colour, label=title)
    if marginal.nodes:
        inside = (marginal.values >= x[0]) & (marginal.values <= x[-1])
        height = marginal.weights / marginal.weights.max() * y.max() / 3.0
        panel.vlines(marginal.values[inside], 0.0, height[inside], color=colour, linewidth=0.6)
    if np.isfinite(marginal.point):
        top = float(np.interp(marginal.point, x, y))
        panel.plot(marginal.point, top, marker, color=colour, markersize=5, zorder=3)


def _limits(found: Sequence[Marginal]) -> tuple[float, float]:
    """Reach from a low to a high quantile of all trees, and to every point."""
    ends = [marginal.quantiles(RANGE) for marginal in found if marginal.values.size]
    points = [m.point for m in found if np.isfinite(m.point)]
    low = min([*(e[0] for e in ends), *points])
    high = max([*(e[1] for e in ends), *points])
    room = 0.03 * (high - low) or 0.1 * abs(high) or 1.0
    return float(low - room if low < 0 or low - room > 0 else 0.0), float(high + room)
