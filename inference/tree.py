"""Answers as ArviZ trees: the one place that knows the groups and their names.

| group | what is in it |
|---|---|
| `posterior` | draws under the graph's names; fixed hyperparameters too, constant |
| `log_likelihood` | log p(t_n | ...) for each draw and row |
| `sample_stats` | approximations: `lp` (joint of w and t given θ) and `log_approximation` (log q); samplers: their own |
| `theta` | the hyperparameters that a fit used, each under its name in the graph, and nothing else |
| `theta_nodes` | of `Integrated()`: their values at each node |
| `fit` | approximations: `mean_vector`, `covariance_matrix`, `active`, `log_evidence`, the sites |
| `observed_data`, `constant_data` | as ArviZ has them |

Only xarray is needed for it, so that a fit need not wait for ArviZ to be imported.
"""  # noqa: E501

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.hyper.settings import CRITERIA
from ardvark.inference.hyper.settle import Settled
from ardvark.inference.pymc_models.fingerprint import observed_values
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.posterior import FunctionPosterior, Posterior, condition

__all__ = [
    "FREE",
    "TREATMENTS",
    "assemble",
    "covariance_variables",
    "data_groups",
    "describe",
    "draws_dataset",
    "fit_dataset",
    "nodes_dataset",
    "path_group",
    "storable",
    "theta_dataset",
]

TREATMENTS = {  # of the hyperparameters → what a reader of the posterior must know
    "evidence": (
        "type-II posterior: the hyperparameters were set by maximising the evidence, and their "
        "uncertainty is not in it"
    ),
    "predictive": (
        "type-II posterior: the hyperparameters were chosen by leave-one-out along the path of the "
        "evidence, and their uncertainty is not in it"
    ),
    "integrated": (
        "approximate posterior: the hyperparameters are integrated out by weighted points, the "
        "weights are Gaussian at each of them"
    ),
    "mode": (
        "posterior at one value of the hyperparameters, the mode of their own posterior on the "
        "unconstrained scale: their uncertainty is not in it"
    ),
    "fixed": "posterior at fixed hyperparameters: their uncertainty is not in it",
    "mean field": (
        "mean-field posterior: weights, precisions and noise are taken as independent of each "
        "other, so sds are too small"
    ),
}
FREE = ("posterior", "integrated")  # treatments that leave draws of the hyperparameters
HELD = ("evidence", "predictive", "mode", "fixed")  # treatments that leave one value
_LARGEST_COVARIANCE = 2000  # kept weights; above it a low-rank factor is stored, never d x d
_PACKAGES = ("ardvark", "pymc", "pytensor", "arviz", "nutpie", "numpy", "scipy", "xarray")


def draws_dataset(
    model: Any, draws: Mapping[str, Array], extra_dims: Mapping[str, tuple[str, ...]] | None = None
) -> xr.Dataset:
    """Draws (chain, draw, ...) with the dims and coordinates of the model."""
    variables, coords = {}, {}
    for name, values in draws.items():
        dims = (extra_dims or {}).get(name) or dims_of(model, name, values.ndim - 2)
        variables[name] = (("chain", "draw", *dims), values)
        for dim in dims:
            if model.coords.get(dim) is not None:
                coords[dim] = np.array(model.coords[dim])
    first = next(iter(draws.values()))
    coords["chain"], coords["draw"] = np.arange(first.shape[0]), np.arange(first.shape[1])
    return xr.Dataset(variables, coords=coords)


def dims_of(model: Any, name: str, ndim: int) -> tuple[str, ...]:
    """Named dims of a variable, ArviZ's default names where it has none."""
    named = model.named_vars_to_dims.get(name) or (None,) * ndim
    return tuple(d if d is not None else f"{name}_dim_{i}" for i, d in enumerate(named))


def data_groups(model: Any) -> dict[str, xr.Dataset]:
    """`observed_data` and `constant_data` of a model."""
    observed = {}
    for rv in model.observed_RVs:
        array = observed_values(model, rv)
        if array is not None:
            observed[rv.name] = (dims_of(model, rv.name, array.ndim), array)
    constant = {
        v.name: (dims_of(model, v.name, v.ndim), np.asarray(v.get_value())) for v in model.data_vars
    }
    return {
        "observed_data": _with_coords(model, observed),
        "constant_data": _with_coords(model, constant),
    }


def _with_coords(model: Any, variables: dict[str, Any]) -> xr.Dataset:
    used = {dim for dims, _ in variables.values() for dim in dims}
    coords = {d: np.array(model.coords[d]) for d in used if model.coords.get(d) is not None}
    return xr.Dataset(variables, coords=coords)


def fit_dataset(latent: LatentGaussian, settled: Settled) -> xr.Dataset:
    """The `fit` group of a Gaussian approximation."""
    posterior = settled.fit.posterior
    names = np.array(latent.weight_names)
    kept = posterior.prior.on
    variables: dict[str, Any] = {
        "mean_vector": ("rows", posterior.mean[kept]),
        "active": ("weight", kept),
        "log_evidence": settled.fit.log_evidence,
        "site_precision": ("row", settled.fit.site_precision),
        "site_shift": ("row", settled.fit.site_shift),
        "iterations": settled.fit.iterations,
        **covariance_variables(posterior, kept),
        **{name: ("row", values) for name, values in settled.fit.by_row.items()},
        **{name: ("weight", values) for name, values in settled.fit.by_weight.items()},
        **{name: ("sweep", values) for name, values in settled.fit.by_sweep.items()},
        **{n: float(v) for n, v in settled.fit.info.items() if n not in settled.fit.by_row},
    }
    coords: dict[str, Any] = {"rows": names[kept], "columns": names[kept], "weight": names}
    if posterior.prior.variance is not None:  # gamma: 1 = by the data, 0 = by the prior alone
        determined = 1.0 - posterior.marginal_variance[kept] / posterior.prior.variance
        variables["well_determined"] = ("rows", determined)
    if "covariance_matrix" not in variables:
        del coords["columns"]
    return xr.Dataset(variables, coords=coords)


def theta_dataset(latent: LatentGaussian, theta: Mapping[str, Array]) -> xr.Dataset:
    """The hyperparameters that a fit used, and given ones that are data of the graph.

    They have a group to themselves: a graph may call them, and their dims, as it likes.
    """
    return _by_name(latent, latent.prior_data | dict(theta))


def nodes_dataset(latent: LatentGaussian, theta: Mapping[str, Array]) -> xr.Dataset:
    """Hyperparameters (node, ...) of an integration."""
    return _by_name(latent, theta, "node")


def _by_name(latent: LatentGaussian, theta: Mapping[str, Array], *first: str) -> xr.Dataset:
    model, variables, coords = latent.model, dict[str, Any](), dict[str, Any]()
    for name, value in theta.items():
        dims = dims_of(model, name, np.ndim(value) - len(first))
        variables[name] = ((*first, *dims), value)
        coords |= {d: np.array(model.coords[d]) for d in dims if model.coords.get(d) is not None}
    return xr.Dataset(variables, coords=coords)


def path_group(latent: LatentGaussian, settled: Settled) -> dict[str, xr.Dataset]:
    """The `selection_path` of a fit that added and deleted weights one at a time."""
    if settled.path is None:
        return {}
    steps, names = settled.path.path, np.array(latent.weight_names)
    active = np.array([step.active for step in steps])
    variables = {
        "action": ("step", np.array([step.action for step in steps])),
        "feature_changed": (
            "step",
            np.array([names[s.weight] if s.weight >= 0 else "" for s in steps]),
        ),
        "active": (("step", "feature"), active),
        "n_active": ("step", active.sum(axis=1)),
        "precision": (("step", "feature"), np.array([step.precision for step in steps])),
        "log_evidence": ("step", np.array([step.log_evidence for step in steps])),
    }
    for number in ("loo_error", "log_loo_probability", *CRITERIA.values()):
        if all(number in step.info for step in steps):
            variables[number] = ("step", np.array([step.info[number] for step in steps]))
    path = xr.Dataset(variables, coords={"step": np.arange(len(steps)), "feature": names})
    chosen = settled.chosen if settled.chosen >= 0 else len(steps) - 1
    return {"selection_path": path.assign_attrs(chosen=chosen)}


def covariance_variables(posterior: Posterior, kept: Array) -> dict[str, Any]:
    """Dense up to 2000 kept weights, else diag(covariance_diagonal) - factor factor'.

    Of a sparse model that is larger the variances alone: the sites beside them give all the rest.
    """
    if kept.sum() > _LARGEST_COVARIANCE and posterior.prior.model.sparse:
        return {"variance_vector": ("rows", posterior.marginal_variance[kept])}
    if kept.sum() > _LARGEST_COVARIANCE and posterior.prior.variance is not None:
        wide = condition(
            posterior.prior, posterior.site_precision, posterior.site_shift, "functions"
        )
        if isinstance(wide, FunctionPosterior):  # negative site precisions have no such factor
            return {
                "covariance_diagonal": ("rows", posterior.prior.variance),
                "covariance_factor": (("rows", "factor"), wide.data_factor),
            }
    return {"covariance_matrix": (("rows", "columns"), posterior.covariance[np.ix_(kept, kept)])}


def assemble(groups: Mapping[str, xr.Dataset | None], attributes: Mapping[str, Any]) -> xr.DataTree:
    """Put the groups together; attributes that a file cannot store become text, or 0 and 1."""
    _mark_held(groups, str(attributes.get("hyper", "")))
    made = {"inference_library": "ardvark", "inference_library_version": version("ardvark")}
    tree = xr.DataTree.from_dict(
        {name: ds.assign_attrs(made) for name, ds in groups.items() if ds is not None}
    )
    # When it was made stands at the root alone: the same seed gives the same groups.
    tree.attrs.update(made, created_at=datetime.now(UTC).isoformat())
    tree.attrs.update({key: storable(value) for key, value in attributes.items()})
    return tree


def _mark_held(groups: Mapping[str, xr.Dataset | None], hyper: str) -> None:
    """Give each hyperparameter that stands at one value the attribute `held`: how it was found."""
    posterior, theta = groups.get("posterior"), groups.get("theta", groups.get("fit"))
    if posterior is None or hyper not in HELD:
        return
    for name, draws in posterior.items():
        values = draws.values
        if (theta is None or name in theta) and np.array_equal(
            values, np.broadcast_to(values[:1, :1], values.shape)
        ):
            draws.attrs["held"] = hyper


def storable(value: Any) -> str | int | float:
    """Give an attribute as text or a number: netCDF has neither booleans nor None."""
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    return value if _plain(value) else json.dumps(value)


def _plain(value: Any) -> bool:
    return isinstance(value, (str, bool, int, float))


def describe(method: Any) -> dict[str, Any]:
    """Settings of a method as plain numbers and text, for the JSON in the tree."""
    return {f.name: _as_json(getattr(method, f.name)) for f in dataclasses.fields(method)}


def _as_json(value: Any) -> Any:
    if value is None or _plain(value):
        return value
    if hasattr(value, "children"):
        return f"tree of {value.attrs.get('method', 'another fit')}"
    if dataclasses.is_dataclass(value):
        return {"kind": type(value).__name__, **describe(value)}
    if isinstance(value, Mapping):
        return {str(k): _as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(v) for v in value]
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return np.asarray(value).tolist()


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    return {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str:
    """A package that is loaded knows its version; to read its metadata takes a millisecond."""
    return getattr(sys.modules.get(name), "__version__", "") or version(name)
