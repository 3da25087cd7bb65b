"""`summary`: ArviZ's table of what a fit has drawn, and of nothing that it only holds.

A hyperparameter that was fixed or set by the evidence is in `posterior` at one value, because
PyMC's predictive functions would draw it from the prior if it were missing. Its sd of
zero is not a posterior sd. Such variables carry the attribute `held`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.reading import arviz, sampling_kind
from ardvark.inference.arguments import check_trees

__all__ = ["held_variables", "summary"]

_OF_CHAINS = ("ess_bulk", "ess_tail", "r_hat", "mcse_mean", "mcse_sd")


def held_variables(tree: xr.DataTree) -> dict[str, str]:
    """Variables of `posterior` that the fit holds at one value, and how it was found."""
    posterior = tree["posterior"].dataset
    return {str(n): str(v.attrs["held"]) for n, v in posterior.items() if "held" in v.attrs}


def summary(tree: xr.DataTree, **settings: Any) -> pd.DataFrame:
    """Summarise the draws of a fit.

    Parameters
    ----------
    tree
        A result of ``fit``.
    **settings
        As in ``az.summary``: ``var_names``, ``ci_prob``, ``kind``, ...

    Returns
    -------
    DataFrame, one row per element. Hyperparameters that the fit holds at one value are left out
    unless ``var_names`` asks for them; ``attrs["held"]`` names them, ``attrs["caption"]`` is the
    tree's. Independent draws have no R-hat and no effective sample size.
    """
    check_trees({"tree": tree})
    held = held_variables(tree)
    asked = settings.pop("var_names", None)
    names = asked or [str(n) for n in tree["posterior"].data_vars if str(n) not in held]
    with np.errstate(invalid="ignore", divide="ignore"):  # a pruned weight never moves
        table: pd.DataFrame = arviz().summary(tree, var_names=names, **settings)
    if sampling_kind(tree) == "iid":
        table = table.drop(columns=[c for c in _OF_CHAINS if c in table])
    table.attrs |= {"held": held, "caption": str(tree.attrs.get("caption", ""))}
    return table
