"""Plain facts about data, a model and a result tree: what the report shows before its checks.

Everything here returns JSON-ready dictionaries; the page and `report.json` show the same numbers.

Separation of a binary data set is a linear program (Konis 2007): with s_n = ±1 and x_n including
the constant, maximise Σ s_n x_n'b subject to s_n x_n'b ≥ 0, |b| ≤ 1. A maximum of zero is overlap.
"""

import json
import re
from typing import Any

import numpy as np
import xarray as xr

from ardvark.diagnostics.reading import fingerprint
from ardvark.inference.sites.arrays import Array, Mask

__all__ = [
    "describe_data",
    "describe_model",
    "describe_tree",
    "separation",
]


SEPARATION_LIMIT = 200_000  # n·d beyond which the linear program takes minutes instead of seconds
# PyMC prints the scale of these; users, and our builders, write the rate.
RATES = {"Gamma": ("shape {:.4g}, rate {:.4g}", 1), "Exponential": ("rate {:.4g}", 0)}


def describe_data(X: Any, t: Any, task: str, feature_names: Any) -> dict[str, Any]:
    """Size, balance, scales, collinear columns, separability: what may trouble a fit."""
    X = np.asarray(X, dtype=float)
    t = np.asarray(t)
    names = [str(name) for name in feature_names]
    scale = X.std(axis=0)
    constant = np.ptp(X, axis=0) == 0
    kept = (X - X.mean(axis=0))[:, ~constant] / scale[~constant]
    facts: dict[str, Any] = {
        "rows": len(X),
        "columns": X.shape[1],
        "task": task,
        "missing": int(np.isnan(X).sum()),
        "smallest_sd": float(scale.min()),
        "largest_sd": float(scale.max()),
        "largest_mean_over_sd": float(np.abs(X.mean(axis=0)[~constant] / scale[~constant]).max())
        if kept.size
        else 0.0,
        "condition_number": float(np.linalg.cond(kept)) if kept.size else float("inf"),
        "constant_columns": [name for name, flag in zip(names, constant, strict=True) if flag],
        "duplicate_columns": _duplicates(X, names),
    }
    if task == "regression":
        target = t.astype(float)
        facts["target"] = {"mean": float(target.mean()), "sd": float(target.std())}
    else:
        classes, counts = np.unique(t, return_counts=True)
        facts["classes"] = {str(c): int(n) for c, n in zip(classes, counts, strict=True)}
        if len(classes) == 2:
            facts["separation"] = separation(X, t == classes[1])
            facts["separation_limit"] = SEPARATION_LIMIT
    return facts


def separation(X: Array, positive: Mask) -> str:
    """How a hyperplane separates two classes: none, quasi-complete, complete, or not checked."""
    from scipy.optimize import linprog

    rows, columns = X.shape
    if rows * columns > SEPARATION_LIMIT:
        return "not checked"
    scale = np.maximum(np.abs(X).max(axis=0), 1e-300)
    signed = np.where(positive, 1.0, -1.0)[:, None] * np.column_stack([np.ones(rows), X / scale])
    best = linprog(-signed.sum(axis=0), A_ub=-signed, b_ub=np.zeros(rows), bounds=(-1.0, 1.0))
    if not best.success:
        return "not checked"
    if -best.fun < 1e-7 * rows:
        return "none"
    margin = np.full(rows, -1.0)  # a margin of one for every row: possible only if all are parted
    complete = linprog(
        np.zeros(columns + 1), A_ub=-signed, b_ub=margin, bounds=(None, None), method="highs"
    )
    return "complete" if complete.status == 0 else "quasi-complete"


def describe_model(model: Any) -> dict[str, Any]:
    """List the variables of a `pm.Model` (name, role, distribution, dims) and give its text."""
    dims = model.named_vars_to_dims
    roles = (
        (model.free_RVs, "free"),
        (model.deterministics, "deterministic"),
        (model.observed_RVs, "observed"),
    )
    rows = [
        {
            "name": variable.name,
            "role": role,
            "distribution": _distribution(variable),
            "dims": [str(dim) for dim in dims.get(variable.name) or _sizes(variable)],
        }
        for variables, role in roles
        for variable in variables
    ]
    return {"variables": rows, "text": model.str_repr()}


def _sizes(variable: Any) -> list[int | str]:
    """Sizes of a variable without named dimensions, where its type has them."""
    return ["?" if size is None else size for size in variable.type.shape]


def _budget(sampler: Any) -> int | None:
    """Draws per chain of a sampler that went on until its checks passed, at most."""
    settings = _loaded(sampler)
    return settings.get("most_draws") if isinstance(settings, dict) else None


def describe_tree(tree: xr.DataTree) -> dict[str, Any]:
    """How a result came about: method, settings, seed, versions, draws, and its fingerprint."""
    attributes = tree.attrs
    posterior = tree["posterior"].to_dataset()
    return {
        "method": str(attributes.get("method", "unknown")),
        "hyper": str(attributes.get("hyper", "unknown")),
        "model": str(attributes.get("model", "unknown")),
        "caption": str(attributes.get("caption", "")),
        "converged": bool(attributes.get("converged", True)),
        "seconds": float(attributes.get("seconds", float("nan"))),
        "random_seed": _plain(attributes.get("random_seed")),
        "settings": _loaded(attributes.get("settings", "{}")),
        "versions": _loaded(attributes.get("versions", "{}")),
        "sampling_kind": str(posterior.attrs.get("sampling_kind", "unknown")),
        "chains": int(posterior.sizes.get("chain", 1)),
        "draws": int(posterior.sizes.get("draw", 0)),
        "most_draws": _budget(attributes.get("sampler", "{}")),
        "fingerprint": fingerprint(
            *(posterior[name].values for name in sorted(map(str, posterior)))
        ),
    }


def _duplicates(X: Array, names: list[str]) -> list[list[str]]:
    """Group the columns that are equal, value for value."""
    groups: dict[bytes, list[str]] = {}
    for name, column in zip(names, np.ascontiguousarray(X.T), strict=True):
        groups.setdefault((column + 0.0).tobytes(), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _distribution(variable: Any) -> str:
    """Right-hand side of `name ~ ...`, with constants as numbers where PyMC prints `<constant>`."""
    text = str(variable.str_repr()).partition("~" if "~" in variable.str_repr() else "=")[2].strip()
    family = text.partition("(")[0]
    if family == "Deterministic":
        return text[len(family) + 1 : -1]
    if family in RATES or "<constant>" in text:
        values = _constants(variable)
        if family in RATES and None not in values:
            form, scale = RATES[family]
            values[scale] = 1.0 / values[scale]  # type: ignore[operator]
            return f"{family}({form.format(*values)})"
        arguments = re.split(r", (?![^()]*\))", text[len(family) + 1 : -1])
        shown = [
            argument if value is None or argument != "<constant>" else f"{value:.4g}"
            for argument, value in zip(arguments, values, strict=False)
        ]
        return f"{family}({', '.join(shown)})"
    return text


def _constants(variable: Any) -> list[float | None]:
    """Parameters of a random variable; None where one is no constant or not one number."""
    from pymc.pytensorf import constant_fold

    found: list[float | None] = []
    for parameter in variable.owner.op.dist_params(variable.owner):
        (folded,) = constant_fold([parameter], raise_not_constant=False)
        value = np.unique(folded) if isinstance(folded, np.ndarray | np.generic) else np.empty(0)
        found.append(float(value[0]) if value.size == 1 else None)
    return found


def _loaded(text: Any) -> Any:
    """Read a JSON attribute; whatever is no JSON stays text."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return str(text)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
