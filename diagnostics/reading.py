"""How to read a tree of a fit: its weights, draws and labels, and what it holds at one value.

The weights of a tree are found in this order: the root attribute ``weights`` (a JSON list of
variable names), the names in its ``fit`` group, the names in `av.models` (``WEIGHT_NAMES``).
"""

import hashlib
import json
import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from ardvark.inference.sites.arrays import Array, Mask

__all__ = [
    "SAMPLE_DIMS",
    "USER_GRAPH",
    "WITHOUT_WEIGHTS",
    "arviz",
    "constant_columns",
    "draws_of",
    "element_labels",
    "fingerprint",
    "group_variables",
    "has_rows",
    "held_values",
    "installed",
    "moments",
    "sampling_kind",
    "weight_variables",
]

SAMPLE_DIMS = ("chain", "draw")
WEIGHT_NAMES = ("bias", "w", "lam", "f")  # names of the weights in the models of this package
WITHOUT_WEIGHTS = ("rbf_mixture",)  # models in which an input is in the subset or not
USER_GRAPH = "user graph"  # root attribute `model`: here those names may mean anything


def weight_variables(tree: xr.DataTree) -> tuple[str, ...]:
    """Names of the weight variables in the posterior, () if the tree has no such names."""
    posterior = tree["posterior"].data_vars
    for names in (json.loads(tree.attrs.get("weights", "[]")), _in_fit_group(tree)):
        variables = tuple(dict.fromkeys(re.sub(r"\[.*\]$", "", str(name)) for name in names))
        if variables and all(name in posterior for name in variables):
            return variables
    if tree.attrs.get("model") == USER_GRAPH:
        return ()
    return tuple(name for name in WEIGHT_NAMES if name in posterior)


def _in_fit_group(tree: xr.DataTree) -> list[str]:
    """Names of all weights, or of the kept ones where the fit does not list all."""
    for name in ("active", "mean_vector"):
        if "fit" in tree.children and name in tree["fit"].data_vars:
            return element_labels(tree["fit"].dataset[name])
    return []


def sampling_kind(tree: xr.DataTree) -> str:
    """``"iid"`` for independent draws, else ``"mcmc"``, which assumes less."""
    return "iid" if tree["posterior"].attrs.get("sampling_kind") == "iid" else "mcmc"


def element_labels(variable: xr.DataArray, name: str | None = None) -> list[str]:
    """Label each element of a variable by its coordinates: ``x0``, or ``w[x0]`` with a name."""
    dims = [dim for dim in variable.dims if dim not in SAMPLE_DIMS]
    if not dims:
        return [name or str(variable.name)]
    values = [
        variable[d].to_numpy() if d in variable.coords else range(variable.sizes[d]) for d in dims
    ]
    labels = [", ".join(map(str, combination)) for combination in product(*values)]
    return [f"{name}[{label}]" for label in labels] if name else labels


def draws_of(variable: xr.DataArray) -> Array:
    """Draws as an array (chain, draw, element), elements in the order of ``element_labels``."""
    values = variable.transpose(*SAMPLE_DIMS, ...).to_numpy()
    return values.reshape(*values.shape[:2], -1).astype(float)


def constant_columns(draws: Array) -> Mask:
    """Which elements are constant; by equality, since the range of an infinite value is NaN."""
    return np.asarray((draws == draws[:1, :1]).all(axis=(0, 1)))


def moments(draws: Array) -> tuple[Array, Array]:
    """Mean and sd of each element; what never moves has an sd of exactly zero."""
    with np.errstate(invalid="ignore"):  # infinite draws, which have no sd
        mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1), ddof=1)
    return mean, np.where(constant_columns(draws), 0.0, sd)


def held_values(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    """Hyperparameters of the posterior group that never move, by value."""
    posterior = tree["posterior"].dataset
    names = set(map(str, posterior.data_vars)) - set(weight_variables(tree))
    return {
        name: posterior[name].isel(chain=0, draw=0, drop=True)
        for name in names
        if not has_rows(tree, posterior[name]) and constant_columns(draws_of(posterior[name])).all()
    }


def has_rows(tree: xr.DataTree, variable: xr.DataArray) -> bool:
    """Whether a variable has the dimension of the observations, as a predictor has."""
    groups = group_variables(tree, "log_likelihood"), group_variables(tree, "observed_data")
    rows = {dim for group in groups for observed in group.values() for dim in observed.dims}
    return bool((rows - set(SAMPLE_DIMS)) & set(variable.dims))


def group_variables(tree: xr.DataTree, name: str) -> dict[Any, xr.DataArray]:
    """Variables of a group, none if the tree has no such group."""
    return dict(tree[name].data_vars) if name in tree.children else {}


def theta_variables(tree: xr.DataTree) -> dict[Any, xr.DataArray]:
    """Hyperparameters at the values that a fit used; they stood in `fit` until version 0.2."""
    return group_variables(tree, "theta" if "theta" in tree.children else "fit")


def arviz() -> Any:
    """Import ArviZ's statistics when they are needed: they take seconds."""
    return import_module("arviz_stats")


def fingerprint(*arrays: Any) -> str:
    """SHA-256 over shapes, types and values of arrays, in this order."""
    digest = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array)
        if values.dtype.hasobject or values.dtype.kind in "UST":
            digest.update(json.dumps([str(v) for v in values.ravel()]).encode())
            digest.update(str(values.shape).encode())
        else:
            digest.update(f"{values.dtype.str}{values.shape}".encode())
            digest.update(values.tobytes())
    return digest.hexdigest()


def installed(package: str) -> str:
    """Return the version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
