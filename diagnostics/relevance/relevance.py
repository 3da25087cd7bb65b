"""Which features matter, read from a result tree (which subsets of them: `subsets.py`).

Relevance is |mean| / sqrt(mean² + sd²), the square root of the share of E[w²] that is the mean. It
lies in [0, 1), does not depend on the scale of the column, grows with the signal |mean| / sd (2 sd
from zero is 0.89) and is 0 for a pruned weight. Unlike the probability of the sign it does not
saturate at 1 for a finite number of draws, so clear features can still be ranked.

A kernel with one scale η_k per input, exp(-sum_k η_k (x_k - c_k)²), has weights of rows, and its
inputs are ranked by η_k 2 var(x_k), what input k adds to the exponent between two rows on average,
as a share of the largest: it does not depend on the unit of the column either.

A Gaussian process with one kappa_a per feature has the relevance variables of Chu06 (16): the share
of feature l in sum_l kappa_a,l var(x_l). Over several optima of the evidence they are averaged by
their weights (19), and the sd is their spread over the optima; from a sampler both are over draws.

A sample-feature machine has weights of both, `w` of samples and `lam` of features, each with its
constant. Without a sample the features only make a constant, and none of them is relevant; nor is
a sample without a feature.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.reading import (
    SAMPLE_DIMS,
    USER_GRAPH,
    WITHOUT_WEIGHTS,
    draws_of,
    element_labels,
    group_variables,
    moments,
    theta_variables,
    weight_variables,
)
from ardvark.errors import InputError
from ardvark.inference.arguments import check_tree
from ardvark.inference.sites.arrays import Array

__all__ = [
    "feature_variables",
    "relevance",
    "relevance_of_weights",
]


INPUT_SCALE = "input_scale"  # what kernels with a scale per input call it
ARD = "kappa_a"  # what the covariance of a process calls its own
SIDES = {"features": ("lam", "feature_term"), "samples": ("w", "sample_term")}
CONSTANT = "constant"
KINDS = ("features", "samples", "weights")


def relevance(tree: xr.DataTree, of: str | None = None) -> pd.DataFrame:
    """Rank the features of a fit, or its samples, or its weights.

    Parameters
    ----------
    tree
        A result of ``fit``. Scalar weights (the bias, one for each class if there are several)
        are no features and are left out, unless there are no others or the graph is a user's own.
    of : "features", "samples" or "weights", optional
        Which of them, where they differ: in a model with a scale per input the features are the
        inputs, while the weights belong to basis functions; a sample-feature machine ranks both.
        By default the features.

    Returns
    -------
    DataFrame, index = feature name, columns

    - ``mean``, ``sd`` of the weight;
    - ``precision``: fitted (inf = pruned) or given precision, else its posterior mean; NaN where
      the model has no precision per weight;
    - ``inclusion``: P(included), or whether the fit kept the weight (1 or 0), or P(w ≠ 0);
    - ``relevance``: see the module;
    - ``rank``: 1 = most relevant, ties in the order of the columns.

    Inputs with a scale each have the columns ``scale`` (fitted, or its posterior mean),
    ``relevance`` and ``rank``; the features of a process ``kappa``, ``relevance``, ``sd`` of that,
    and ``rank``; models of subsets without weights ``inclusion``, ``relevance`` and ``rank``.
    """
    check_tree(tree)
    if of not in (None, *KINDS):
        raise InputError(f"of must be one of {', '.join(KINDS)}, or None; got {of!r}.")
    if of != "weights" and _has_ard(tree):
        return _ranked(_process(tree))
    if of != "weights" and SIDES["features"][1] in tree["posterior"].dims:
        return _ranked(_one_side(tree, of or "features"))
    if of == "samples":
        raise InputError(
            'of="samples" is for sample-feature machines; this tree is of'
            f" {tree.attrs.get('model', 'another model')!r}. A relevance vector machine has one"
            ' weight per sample: of="weights".'
        )
    scale = None if of == "weights" else _input_scale(tree)
    if scale is not None:
        return _ranked(_inputs(tree, scale))
    if tree.attrs.get("model") in WITHOUT_WEIGHTS and of != "weights":
        return _ranked(_by_inclusion(tree))
    variables = feature_variables(tree)
    tables = [_one_variable(tree, name, prefix=len(variables) > 1) for name in variables]
    return _ranked(pd.concat(tables))


def _ranked(table: pd.DataFrame) -> pd.DataFrame:
    order = np.argsort(-table["relevance"].to_numpy(), kind="stable")
    rank = np.empty(len(table), dtype=int)
    rank[order] = np.arange(1, len(table) + 1)
    return table.assign(rank=rank)


def _by_inclusion(tree: xr.DataTree) -> pd.DataFrame:
    """P(included), which is the relevance where an input has no one weight."""
    included = tree["posterior"].dataset["included"]
    counted = draws_of(included).mean(axis=(0, 1))
    fit = group_variables(tree, "fit")
    inclusion = fit["inclusion"].to_numpy() if "inclusion" in fit else counted
    index = pd.Index(element_labels(included), name="feature")
    return pd.DataFrame({"inclusion": inclusion, "relevance": inclusion}, index=index)


# ------------------------------------------------------------------- samples and features


def _one_side(tree: xr.DataTree, of: str) -> pd.DataFrame:
    """Samples or features without their constant; nothing is relevant without the other side."""
    (name, _), (other, _) = SIDES[of], SIDES["samples" if of == "features" else "features"]
    table = _one_variable(tree, name, prefix=False).drop(index=CONSTANT)
    if not _one_variable(tree, other, prefix=False).drop(index=CONSTANT)["inclusion"].any():
        table[["inclusion", "relevance"]] = 0.0
    return table.rename_axis(index=of.removesuffix("s"))


# ------------------------------------------------------------------------- inputs of a kernel


def _input_scale(tree: xr.DataTree) -> xr.DataArray | None:
    """The scales of the inputs as fitted, else their posterior mean; None if there are none."""
    for group in (theta_variables(tree), group_variables(tree, "posterior")):
        if INPUT_SCALE in group:
            scale = group[INPUT_SCALE]
            scale = scale.mean([dim for dim in SAMPLE_DIMS if dim in scale.dims])
            return scale if scale.dims == ("feature",) else None
    return None


def _inputs(tree: xr.DataTree, scale: xr.DataArray) -> pd.DataFrame:
    eta = scale.to_numpy().astype(float)
    constants = group_variables(tree, "constant_data")
    if "X" not in constants or constants["X"].sizes.get("feature") != len(eta):
        raise InputError(
            "relevance of the inputs needs their spread: this tree has scales for "
            f"{len(eta)} inputs and no such table `X` in `constant_data`. Keep that group, or ask "
            'for relevance(tree, of="weights").'
        )
    inputs = constants["X"].transpose(..., "feature").to_numpy()
    distance = 2 * eta * inputs.var(axis=0)
    largest = distance.max(initial=0.0)
    share = distance / largest if largest > 0 else np.zeros_like(distance)
    index = pd.Index(element_labels(scale), name="feature")
    return pd.DataFrame({"scale": eta, "relevance": share}, index=index)


# -------------------------------------------------------------------------- features of a process


def _has_ard(tree: xr.DataTree) -> bool:
    """Whether the tree has a kappa_a per feature, fitted, drawn or given."""
    groups = (group_variables(tree, group) for group in ("posterior", "constant_data"))
    return any(ARD in group and "feature" in group[ARD].dims for group in groups)


def _process(tree: xr.DataTree) -> pd.DataFrame:
    group = "posterior" if ARD in tree["posterior"] else "constant_data"
    kappa = tree[group].dataset[ARD]
    index = pd.Index(element_labels(kappa), name="feature")
    if "optima" in tree.children:
        optima = tree["optima"].dataset
        expected, sd = optima["expected_relevance"], optima["relevance_sd"]
        fitted = optima[ARD].isel(optimum=0) if ARD in optima else kappa
        columns = {"kappa": fitted, "relevance": expected, "sd": sd}
        return pd.DataFrame({name: np.ravel(value) for name, value in columns.items()}, index=index)
    values = draws_of(kappa) if group == "posterior" else np.tile(kappa.to_numpy(), (1, 2, 1))
    if "X" not in group_variables(tree, "constant_data"):
        raise InputError("relevance needs the spread of the inputs: keep `X` in `constant_data`.")
    share = values * tree["constant_data"]["X"].to_numpy().var(axis=0)
    mean, sd = moments(share / share.sum(axis=-1, keepdims=True))
    columns = {"kappa": values.mean(axis=(0, 1)), "relevance": mean, "sd": sd}
    return pd.DataFrame(columns, index=index)


# --------------------------------------------------------------------------- one block of weights


def feature_variables(tree: xr.DataTree) -> tuple[str, ...]:
    """Names of the weights that are ranked: vectors, or scalars if there are no others.

    In a user's graph a scalar may be a slope, so every weight is ranked.
    """
    posterior = tree["posterior"].dataset
    variables = weight_variables(tree)
    if not variables:
        raise InputError(
            "relevance: the tree does not say which variables are the weights; set"
            ' tree.attrs["weights"] = \'["name"]\' to one or more of '
            f"{', '.join(map(str, posterior.data_vars))}."
        )
    if tree.attrs.get("model") == USER_GRAPH:
        return variables
    vectors = tuple(
        name
        for name in variables
        if posterior[name].ndim > len(SAMPLE_DIMS) and set(posterior[name].dims[2:]) != {"class"}
    )
    return vectors or variables


def _one_variable(tree: xr.DataTree, name: str, *, prefix: bool) -> pd.DataFrame:
    weight = tree["posterior"].dataset[name]
    draws = draws_of(weight)
    mean, sd = moments(draws)
    columns = {
        "mean": mean,
        "sd": sd,
        "precision": _precision(tree, name),
        "inclusion": _inclusion(tree, name, draws),
        "relevance": relevance_of_weights(mean, sd),
    }
    index = pd.Index(element_labels(weight, name if prefix else None), name="feature")
    return pd.DataFrame(columns, index=index)


def relevance_of_weights(mean: Array, sd: Array) -> Array:
    """|mean| / sqrt(mean² + sd²), 0 for a weight that is always zero."""
    size = np.hypot(mean, sd)
    return np.divide(np.abs(mean), size, out=np.zeros_like(size), where=size > 0)


def _precision(tree: xr.DataTree, name: str) -> Array:
    """Precision of each weight: ``alpha_<name>`` or ``alpha`` of the same shape, as fitted."""
    weight = tree["posterior"].dataset[name]
    groups = (group_variables(tree, group) for group in ("posterior", "constant_data"))
    for group in (theta_variables(tree), *groups):
        for candidate in (f"alpha_{name}", "alpha"):
            if candidate not in group:
                continue
            alpha = group[candidate]
            if element_labels(alpha) == element_labels(weight):
                samples = [dim for dim in SAMPLE_DIMS if dim in alpha.dims]
                return np.asarray(alpha.mean(samples).to_numpy(), dtype=float).ravel()
    return np.full(len(element_labels(weight)), np.nan)


def _inclusion(tree: xr.DataTree, name: str, draws: Array) -> Array:
    weight = tree["posterior"].dataset[name]
    included: Any = tree["posterior"].data_vars.get("included")
    if included is not None and element_labels(included) == element_labels(weight):
        return np.asarray(draws_of(included).mean(axis=(0, 1)))
    if (active := group_variables(tree, "fit").get("active")) is not None:
        kept = dict(zip(element_labels(active), active.to_numpy().ravel(), strict=True))
        names = element_labels(weight, name)
        if all(element in kept for element in names):
            return np.array([float(kept[element]) for element in names])
    return np.asarray((draws != 0).mean(axis=(0, 1)))
