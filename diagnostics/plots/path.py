"""The path of ARD steps as a picture: Qi, Minka, Picard & Ghahramani 2004, figure 2."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import InputError
from ardvark.inference.arguments import check_tree

__all__ = ["plot_path"]

_PANELS = {  # number of a step → what the axis says
    "log_evidence": "log evidence",
    "loo_error": "leave-one-out error, Qi04 (12)",
    "log_loo_error_smooth": "log leave-one-out error, Qi04 (13)",
    "log_loo_probability": "leave-one-out log probability",
    "fraction": "fraction of weights",
    "error": "test error",
}


def plot_path(tree: xr.DataTree, test: xr.Dataset | None = None) -> Any:
    """Draw what changed along the path of a fit, one panel below the other.

    Parameters
    ----------
    tree : xr.DataTree
        A fit by `EP(hyper=Evidence())` or `EP(hyper=Predictive())`.
    test : xr.Dataset, optional
        What `path_errors` gave for a test set.

    Returns
    -------
    array of matplotlib Axes, one per panel
    """
    import matplotlib.pyplot as plt

    check_tree(tree, group=None)
    if "selection_path" not in tree.children:
        raise InputError(
            "this tree has no selection_path: fit with EP(hyper=Evidence()), "
            "Laplace(hyper=Evidence()) or "
            "EP(hyper=Predictive())"
        )
    path = tree["selection_path"].to_dataset()
    numbers = {name: path[name].values for name in path.data_vars if name in _PANELS}
    numbers["fraction"] = path["n_active"].values / path.sizes["feature"]
    if test is not None:
        numbers["error"] = test["error"].values
    shown = [name for name in _PANELS if name in numbers]
    size = (7.0, 1.5 * len(shown) + 0.6)
    _, grid = plt.subplots(
        len(shown), 1, sharex=True, squeeze=False, figsize=size, layout="constrained"
    )
    axes = grid[:, 0]
    steps, chosen = np.arange(path.sizes["step"]), int(path.attrs["chosen"])
    for axis, name in zip(axes, shown, strict=True):
        axis.plot(steps, numbers[name], drawstyle="steps-post", linewidth=1.2)
        axis.axvline(chosen, color="0.4", linestyle=":", linewidth=1.0)
        axis.plot(chosen, numbers[name][chosen], "o", markersize=5)
        axis.set_title(_PANELS[name], fontsize=9, loc="left")
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel(f"step (dotted: step {chosen}, the one that was taken)", fontsize=9)
    return axes
