"""A feature selection as a picture: Chu06, figures 2 and 3."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import InputError

__all__ = ["plot_selection"]

_LOSSES = {"svm": "cross-validation error", "evidence": "minus log evidence"}
_LOSSES["loo"] = "leave-one-out log loss"


def plot_selection(selection: xr.Dataset, most: int = 13) -> Any:
    """Draw the top features with their scores, and the loss as they are added.

    Parameters
    ----------
    selection : xr.Dataset
        What `select_features` gave.
    most
        How many features the left part shows.

    Returns
    -------
    array of two matplotlib Axes
    """
    import matplotlib.pyplot as plt

    if not isinstance(selection, xr.Dataset) or not {"score", "loss"} <= set(selection):
        raise InputError(
            "plot_selection needs what select_features gave: a Dataset with a ranking."
        )
    order = np.argsort(selection["rank"].values)[:most]
    _, axes = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    left, right = axes
    taken = selection["selected"].values[order]
    colours = ["C0" if on else "0.75" for on in taken]
    place = np.arange(len(order))
    left.bar(place, selection["score"].values[order], color=colours)
    if (spread := selection["spread"].values[order]).any():
        left.errorbar(place, selection["score"].values[order], spread, fmt="none", ecolor="0.3")
    left.set_xticks(place, selection["feature"].values[order], rotation=60, fontsize=8)
    left.set_title(f"{selection.attrs.get('ranking', 'score')} (blue: selected)", fontsize=9)
    size, loss = selection["size"].values, selection["loss"].values
    right.errorbar(size, loss, selection["standard_error"].values, marker="o", capsize=2)
    chosen = int(selection.attrs["chosen"])
    right.axvline(size[chosen], color="0.4", linestyle=":")
    right.set_xlabel(f"number of features (dotted: {size[chosen]}, the choice)", fontsize=9)
    learner = str(selection.attrs.get("learner"))
    right.set_title(_LOSSES.get(learner, f"loss of {learner}"), fontsize=9)
    for axis in (left, right):
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    return axes
