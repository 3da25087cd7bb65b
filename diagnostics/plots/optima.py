"""The posterior of a hyperparameter, put together from the optima of the evidence: Chu06, figure 1.

Each optimum that a search has found is a Gaussian in the log of the hyperparameter, and their sum
is (17). It says where the evidence has its maxima and how high they are (18); their widths are an
assumption, in the paper and here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from scipy.special import softmax
from scipy.stats import norm

from ardvark.errors import InputError
from ardvark.inference.arguments import check_tree
from ardvark.models.checks import one_of, positive

__all__ = ["plot_optima"]

_BESIDE = 4.0  # sds of the picture on each side of the outermost optima


def plot_optima(
    tree: xr.DataTree,
    parameter: str = "kappa_0",
    feature: str | None = None,
    *,
    sd: float = 0.5,
    axis: Any = None,
) -> Any:
    """Draw (17): the sum, its parts (dotted) and the optima (below).

    Parameters
    ----------
    tree : xr.DataTree
        A fit of `trigonometric_svm` by `hyper=Evidence()`, with its group `optima`.
    parameter, feature
        Which hyperparameter; the feature is needed for `kappa_a`.
    sd
        Width of every Gaussian, in the log of the hyperparameter.
    axis : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
    """
    check_tree(tree, group=None)
    if "optima" not in tree.children:
        raise InputError(
            "this tree has no optima: fit trigonometric_svm with hyper=Evidence(), by Laplace or EP"
        )
    optima = tree["optima"].to_dataset()
    scales = [str(name) for name in optima.data_vars if str(name).startswith("kappa")]
    values = optima[one_of(parameter, scales, "parameter")]
    if "feature" in values.dims:
        names = [str(name) for name in optima["feature"].values]
        values = values.sel(feature=one_of(feature, names, "feature"))
    width = positive(sd, "sd")
    centre = np.log(values.values)
    u = np.linspace(centre.min() - _BESIDE * width, centre.max() + _BESIDE * width, 400)
    weight = softmax(optima["log_evidence"].values)  # Chu06 (18)
    parts = weight[:, None] * norm.pdf(u, centre[:, None], width)
    if axis is None:
        import matplotlib.pyplot as plt

        _, axis = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
    axis.plot(u, parts.sum(axis=0), label="sum, (17)")
    for number, part in enumerate(parts):
        axis.plot(u, part, ":", color="0.4", label=None if number else "its parts")
    axis.plot(centre, np.zeros_like(centre), "^", color="k", markersize=5, label="optima")
    named = parameter if feature is None else f"{parameter}[{feature}]"
    axis.set_xlabel(f"log {named}", fontsize=9)
    axis.set_ylabel("posterior density", fontsize=9)
    axis.legend(fontsize=8, frameon=False)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    return axis
