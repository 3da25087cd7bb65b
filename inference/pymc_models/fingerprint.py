"""What a tree was fitted to: hashes that tell other data, or another model, from the same.

| part | what it holds |
|---|---|
| `rows` | number of observed rows |
| `target` | hash of the target; of two or more classes the hash of their labels, not of codes |
| `classes` | labels, null for a regression |
| `observed` | name of each observed variable → hash of its values |
| `inputs` | name of each column that has one value per row → hash: their order does not matter |
| `variables` | name of each random variable → distribution and dims |
| `constants`, `graph` | hash of the numbers written into the graph; of its operations too |

Numbers are hashed to nine digits: the same data from another file or another processor are the
same data. `graph` depends on how PyMC writes an operation, so it is compared between equal
versions only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import InputError
from ardvark.models.card import Card, card_of

__all__ = [
    "fingerprint",
    "graph_of",
    "observed_values",
    "require_data",
    "require_model",
    "require_same_data",
]

_BITS = 2.0**30  # nine digits of a number
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_CODES = ("t_observed", "label")  # the pm.Data that hold the target in `av.models`
_NO_INPUTS = (*_CODES, "centres")
_UNLABELLED = ""


# Hashes -------------------------------------------------------------------------------------------


def _hashed(*parts: bytes | str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def _of_array(values: Any) -> str:
    """Hash the shape of an array and its values to nine digits."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        return _of_labels(array.ravel())
    numbers = array.astype(np.float64)
    finite = np.isfinite(numbers)
    mantissa, exponent = np.frexp(np.where(finite, numbers, 0.0))
    mantissa = np.where(finite, np.rint(mantissa * _BITS), np.sign(np.nan_to_num(numbers)))
    exponent = np.where(finite, exponent, 9999 + np.isnan(numbers))
    return _hashed(
        str(array.shape), mantissa.astype(np.int64).tobytes(), exponent.astype(np.int32).tobytes()
    )


def _of_labels(labels: Iterable[Any]) -> str:
    """Hash labels as text; a missing one is a label too."""
    return _hashed(json.dumps([_UNLABELLED if v != v else str(v) for v in labels]))


# Of a model ---------------------------------------------------------------------------------------


def fingerprint(model: Any) -> dict[str, Any]:
    """Fingerprint of a model and of the data that it holds now."""
    observed = {rv.name: observed_values(model, rv) for rv in model.observed_RVs}
    rows = next((len(v) for v in observed.values() if v is not None and v.ndim), 0)
    return {
        **({"rows": rows} if rows else {}),
        "target": _target(model, observed),
        "observed": {name: None if v is None else _of_array(v) for name, v in observed.items()},
        "inputs": dict(_inputs(model, rows)),
        **graph_of(model),
    }


def graph_of(model: Any) -> dict[str, Any]:
    """Tell what a model is, whatever its data."""
    card = card_of(model)
    return {
        "classes": None if card is None or card.classes is None else list(map(str, card.classes)),
        "variables": {rv.name: _described(model, rv) for rv in model.basic_RVs},
        **_structure([*model.basic_RVs, *model.potentials], card),
    }


def observed_values(model: Any, rv: Any) -> Any:
    """Values of an observed variable, None if they are an expression of several."""
    value = model.rvs_to_values[rv]
    while value.owner is not None and len(value.owner.inputs) == 1:  # a cast of the data
        value = value.owner.inputs[0]
    held = value.get_value() if hasattr(value, "get_value") else getattr(value, "data", None)
    return None if held is None else np.asarray(held)


def _target(model: Any, observed: Mapping[str, Any]) -> str | None:
    card = card_of(model)
    codes = next((model[name] for name in _CODES if name in model.named_vars), None)
    if card is None or codes is None:
        known = [_of_array(v) for v in observed.values() if v is not None]
        return _hashed(*known) if known else None
    values = codes.get_value()
    if card.classes is None:
        return _of_array(values)
    labels = np.append(np.asarray(card.classes, dtype=object), _UNLABELLED)
    return _of_labels(labels[np.asarray(values, dtype=int)])


def _inputs(model: Any, rows: int) -> Iterator[tuple[str, str]]:
    """Name and hash of every column with one value per row that is not observed itself."""
    from pytensor.graph.traversal import ancestors

    seen = set(ancestors([model.rvs_to_values[rv] for rv in model.observed_RVs]))
    for variable in model.data_vars:
        values = np.asarray(variable.get_value())
        by_row = values.ndim > 0 and len(values) == rows
        x = variable.name == "X"  # which a mixture observes
        if not by_row or variable.name in _NO_INPUTS or (variable in seen and not x):
            continue
        if values.ndim != 2:
            yield variable.name, _of_array(values)
            continue
        dims = model.named_vars_to_dims.get(variable.name) or (None, None)
        labels = model.coords.get(dims[1]) or range(values.shape[1])
        for label, column in zip(labels, values.T, strict=True):
            yield str(label) if x else f"{variable.name}[{label}]", _of_array(column)


def _described(model: Any, rv: Any) -> str:
    kind = type(rv.owner.op).__name__.removesuffix("RV")
    dims = model.named_vars_to_dims.get(rv.name) or ()
    rows = {d for seen in model.observed_RVs for d in model.named_vars_to_dims.get(seen.name) or ()}
    told = [d if d in rows else f"{d}: {len(model.coords.get(d) or ())}" for d in dims]
    return f"{kind}({', '.join(told)})" if told else kind


def _structure(variables: list[Any], card: Card | None) -> dict[str, str]:
    """Hash a graph from its inputs up, whatever the order in which it was written."""
    from pytensor.graph.basic import Constant
    from pytensor.graph.traversal import toposort

    known: dict[Any, str] = {}
    constants = set()
    if card is not None and card.scaling is not None:  # of the inputs: no graph knows it
        constants |= {_of_array(card.scaling.centre), _of_array(card.scaling.scale)}
    for node in toposort(variables):
        for value in node.inputs:
            if value not in known:
                known[value] = _of_leaf(value)
                if isinstance(value, Constant):
                    constants.add(known[value])
        name = _ADDRESS.sub("", str(node.op))
        for place, out in enumerate(node.outputs):
            known[out] = _hashed(name, str(place), *(known[v] for v in node.inputs))
    return {
        "constants": _hashed(*sorted(constants)),
        "graph": _hashed(*sorted(known.get(v) or _of_leaf(v) for v in variables)),
    }


def _of_leaf(value: Any) -> str:
    """Hash a constant by its value, data by their name, anything else by its type."""
    if hasattr(value, "data"):
        data = value.data
        return _of_array(data) if isinstance(data, (np.ndarray, np.generic)) else _hashed(str(data))
    return _hashed(str(value.name) if hasattr(value, "get_value") else str(value.type))


# Of trees -----------------------------------------------------------------------------------------


def _print_of(tree: xr.DataTree) -> dict[str, Any]:
    """The fingerprint of a tree; for one made elsewhere, what its data imply."""
    if "fingerprint" in tree.attrs:
        return dict(json.loads(tree.attrs["fingerprint"]))
    if "observed_data" not in tree.children:
        return {}
    found = {str(n): v.values for n, v in tree["observed_data"].data_vars.items()}
    rows = {len(v) for v in found.values() if v.ndim}
    known = {"observed": {name: _of_array(values) for name, values in found.items()}}
    return known | ({"rows": rows.pop()} if len(rows) == 1 else {})


def require_same_data(
    trees: Mapping[str, xr.DataTree], *, inputs: bool = True, observed: bool = False
) -> None:
    """Refuse trees of different data, by name.

    `inputs`: columns that two trees both have must be equal too. `observed`: the random variables
    that were observed must be the same ones, as they must where densities are compared.
    """
    (first, *others) = [(name, _print_of(tree)) for name, tree in trees.items()]
    for other in others:
        if why := _difference(first, other, inputs=inputs, observed=observed):
            raise InputError(f"trees: {why}. Only fits to the same data can be compared.")


def require_model(model: Any, trees: Mapping[str, xr.DataTree], *, data: bool = False) -> None:
    """Refuse trees of another model; with `data` also those of other data than it holds now."""
    mine = fingerprint(model) if data else graph_of(model)
    for name, tree in trees.items():
        theirs = _print_of(tree)
        if other := _other_model(mine, theirs, _same_versions(tree)):
            raise InputError(f"model: {name} is the fit of another model: {other}")
        if "fingerprint" not in tree.attrs:  # made elsewhere: its codes may be others
            theirs = {key: theirs[key] for key in ("rows",) if key in theirs}
        if data and (why := _difference((name, theirs), ("the model", mine))):
            raise InputError(f"model: it holds other data. {why}")


def require_data(data: Any, trees: Mapping[str, xr.DataTree]) -> None:
    """Refuse a `Dataset` whose rows or target are not what the trees were fitted to.

    Its inputs may be on another scale than the model's, and a user's own graph may use the target
    as it likes: neither is looked at.
    """
    classes = data.classes
    target = _of_labels(data.t) if classes is not None else _of_array(np.asarray(data.t, float))
    labels = None if classes is None else [str(c) for c in classes if c == c]
    mine = {"rows": len(data.t), "classes": labels, "target": target}
    for name, tree in trees.items():
        own_graph = tree.attrs.get("model", "user graph") == "user graph"
        known = {"rows": len(data.t)} if own_graph else mine
        if why := _difference((name, _print_of(tree)), (f"data {data.name!r}", known)):
            raise InputError(f"data: {why}")


type _Named = tuple[str, Mapping[str, Any]]


def _difference(
    one: _Named, two: _Named, *, inputs: bool = True, observed: bool = False
) -> str | None:
    """Say how the data of two fingerprints differ, None if they do not as far as is known."""
    (a, first), (b, second) = one, two
    both = first.keys() & second.keys()
    verb = "has" if " " in b else "was fitted to"
    if "rows" in both and first["rows"] != second["rows"]:
        again = "has" if verb == "has" else "to"
        return f"{a} was fitted to {first['rows']} rows, {b} {again} {second['rows']}"
    if "classes" in both and first["classes"] != second["classes"]:
        return f"{a} is {_task(first)}, {b} is {_task(second)}"
    if "target" in both and first["target"] != second["target"]:
        return f"{b} {verb} other values of the target than {a}"
    names, others = first.get("observed", {}), second.get("observed", {})
    if observed and names.keys() != others.keys():
        return f"{a} observes {', '.join(names)}, {b} observes {', '.join(others)}"
    differ = [n for n in names if n in others and names[n] != others[n]]
    if differ and "target" not in both:
        return f"{b} {verb} other values of {differ[0]!r} than {a}"
    columns, others = first.get("inputs", {}), second.get("inputs", {})
    differ = [n for n in columns if n in others and columns[n] != others[n]]
    if inputs and differ:
        return f"{b} {verb} other values of the input {differ[0]!r} than {a}"
    return None


def _task(known: Mapping[str, Any]) -> str:
    classes = known["classes"]
    return "no classifier" if classes is None else f"a classifier of {', '.join(classes)}"


def _same_versions(tree: xr.DataTree) -> bool:
    known = json.loads(tree.attrs.get("versions", "{}"))
    return all(known.get(name) == version(name) for name in ("pymc", "pytensor"))


def _other_model(mine: Mapping[str, Any], theirs: Mapping[str, Any], same_versions: bool) -> str:
    """Say how the model of a tree differs from this one, nothing if it does not."""
    if "variables" not in theirs:
        return ""
    if mine["classes"] != theirs["classes"]:
        return f"the tree's is {_task(theirs)}, this one is {_task(mine)}"
    ours, others = mine["variables"], theirs["variables"]
    for name in sorted(ours.keys() | others.keys()):
        if ours.get(name) != others.get(name):
            told = [known.get(name, "missing") for known in (others, ours)]
            return f"{name} is {told[0]} in the tree's and {told[1]} in this one"
    if mine["constants"] != theirs["constants"]:
        return "numbers written into it (centres, scaling, hyperpriors) differ"
    if same_versions and mine["graph"] != theirs["graph"]:
        return "it has the same variables and numbers, but other expressions between them"
    return ""
