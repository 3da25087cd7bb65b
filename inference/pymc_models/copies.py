"""Private copies of a model: new data never go into a graph that someone else may hold.

A `pm.Data` lives in the model, so to swap it there changes what every other thread computes with
the model. Whoever needs other data borrows a copy instead:

    with private_copy(model) as own:
        put_data(own, {"X": X_new})
        ...

Copies are made in milliseconds and kept beside the model with all that was compiled for them. A
borrower has its copy alone: two threads get two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymc as pm
from pymc.model.fgraph import deepcopy_shared_variable
from pymc.util import treedict, treelist
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import clone_get_equiv
from pytensor.graph.traversal import ancestors

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.pymc_models.compile import SETTINGS, kept_with, quick
from ardvark.models.card import hand_on
from ardvark.models.tables import as_array

__all__ = [
    "copy_data",
    "copy_of",
    "private_copy",
    "put_data",
    "require_one_length",
    "rows_fit",
    "without_starts",
]


@contextmanager
def private_copy(model: Any) -> Iterator[Any]:
    """Borrow a copy of `model` with the data it holds now."""
    free: list[Any] = kept_with(model, "copies that are free", list)
    try:
        own = free.pop()
    except IndexError:
        own = None
    if own is not None:
        copy_data(model, own)
    if own is None or _lengths(own) != _lengths(model):
        with SETTINGS:
            own = copy_of(model)
    try:
        yield own
    finally:
        free.append(own)


def copy_of(model: Any) -> Any:
    """Copy a model: the same graph and order of variables, data and generators of its own.

    Not PyMC's `clone_model`: it refuses starting values, changes the order of the variables and
    takes a Deterministic out from between two of them.
    """
    if model.parent is not None:
        raise UnsupportedPair(
            f"the model {model.name!r} is nested in another one, and a part cannot be copied: give "
            f"the outer model"
        )
    named = [*model.named_vars.values(), *model.values_to_rvs, *model.dim_lengths.values()]
    shared = [v for v in ancestors(named) if isinstance(v, SharedVariable)]
    memo = clone_get_equiv([], named, memo={v: deepcopy_shared_variable(v) for v in shared})
    own = pm.Model(name=model.name, check_bounds=model.check_bounds, model=None)
    for kind in ("free_RVs", "observed_RVs", "deterministics", "potentials", "data_vars"):
        setattr(own, kind, treelist([memo[v] for v in getattr(model, kind)]))
    for kind in ("values_to_rvs", "rvs_to_values", "named_vars", "rvs_to_transforms"):
        items = getattr(model, kind).items()
        setattr(own, kind, treedict({memo.get(k, k): memo.get(v, v) for k, v in items}))
    own.rvs_to_initial_values = treedict(
        {memo[rv]: value for rv, value in model.rvs_to_initial_values.items()}
    )
    own.named_vars_to_dims = treedict(model.named_vars_to_dims)
    own._coords = dict(model._coords)
    own._dim_lengths = {dim: memo[length] for dim, length in model.dim_lengths.items()}
    hand_on(model, own)
    return own


def without_starts(model: Any) -> Any:
    """Give the model, or a copy without the `initval=` that PyMC's transforms of models refuse."""
    if all(start is None for start in model.rvs_to_initial_values.values()):
        return model
    own = copy_of(model)
    own.rvs_to_initial_values = treedict(dict.fromkeys(own.rvs_to_initial_values))
    return own


def _lengths(model: Any) -> dict[str, int]:
    return {dim: len(labels) for dim, labels in model.coords.items() if labels is not None}


def put_data(own: Any, values: Mapping[str, Any]) -> None:
    """Give a copy other values, of any length, of its `pm.Data`."""
    if not isinstance(values, Mapping):
        raise InputError(f"new data must be a mapping name → array, got {type(values).__name__}")
    known = [v.name for v in own.data_vars]
    if unknown := [name for name in values if name not in known]:
        listed = ", ".join(known) or "none: its inputs are constants. Wrap them in pm.Data"
        raise InputError(f"the model has no pm.Data named {unknown[0]!r}; it has {listed}")
    for name, value in values.items():
        _check_values(own[name], name, value)
    for name, value in values.items():
        _set(own, name, value, {})


def require_one_length(own: Any) -> None:
    """Refuse data of different lengths along one dim, by name: only some of them were changed."""
    seen: dict[str, tuple[str, int]] = {}
    for variable in own.data_vars:
        dims = own.named_vars_to_dims.get(variable.name) or ()
        for dim, length in zip(dims, np.shape(variable.get_value()), strict=False):
            if dim is None:
                continue
            first, known = seen.setdefault(dim, (variable.name, length))
            if length != known:
                raise InputError(
                    f"data: {first} has {known} values along the dim {dim!r}, {variable.name} has "
                    f"{length}: give new values of both"
                )


def rows_fit(own: Any) -> bool:
    """Whether every observed variable can be drawn, and has the shape of its data."""
    for rv in own.observed_RVs:
        try:
            with quick():
                drawn = np.shape(pm.draw(rv, random_seed=0))
                held = tuple(own.rvs_to_values[rv].shape.eval())
        except NotImplementedError:  # a distribution without a generator is not judged
            continue
        except ValueError:  # shapes that do not go together
            return False
        if drawn != held:
            return False
    return True


def copy_data(source: Any, target: Any) -> None:
    """Give `target` the present data and coordinates of `source`, where they differ."""
    for variable in source.data_vars:
        name = variable.name
        if name not in target.named_vars:
            continue
        dims = source.named_vars_to_dims.get(name) or ()
        coords = {dim: source.coords[dim] for dim in dims if source.coords.get(dim) is not None}
        moved = any(target.coords.get(dim) != labels for dim, labels in coords.items())
        if moved or not np.array_equal(variable.get_value(), target[name].get_value()):
            _set(target, name, variable.get_value(), coords)


def _check_values(variable: Any, name: str, value: Any) -> None:
    """Refuse what cannot be the values of a `pm.Data`, by name and first bad place."""
    array = as_array(value, f"new values of {name!r}", "numbers")
    if array.dtype.kind not in "biuf":
        raise InputError(f"new values of {name!r} must be numbers, got dtype {array.dtype}")
    if array.ndim != variable.ndim:
        raise InputError(
            f"new values of {name!r} have {array.ndim} dimensions, not {variable.ndim}"
        )
    if not array.size and np.size(variable.get_value()):
        raise InputError(f"new values of {name!r} are empty: they have the shape {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        place = tuple(map(int, bad[0]))
        raise InputError(f"new values of {name!r} have {array[place]} at index {place}")
    whole = np.dtype(variable.dtype).kind in "biu"
    if whole and not np.array_equal(array, array.astype(variable.dtype)):
        odd = array[array != array.astype(variable.dtype)].flat[0]
        raise InputError(
            f"new values of {name!r} must be whole numbers ({variable.dtype}), and one is {odd}"
        )


def _set(own: Any, name: str, value: Any, coords: Mapping[str, Any]) -> None:
    """Set one `pm.Data`, with the labels in `coords`, else 0, 1, ... where a length changes."""
    array = np.asarray(value).astype(own[name].dtype)
    dims = own.named_vars_to_dims.get(name) or ()
    labels = {
        dim: coords.get(dim) or range(n)
        for dim, n in zip(dims, array.shape, strict=False)
        if own.coords.get(dim) is not None and (len(own.coords[dim]) != n or dim in coords)
    }
    if not labels:
        own[name].set_value(array)
        return
    with quick():  # `set_data` compiles a function for each dim: seconds in the default mode
        if None in dims:  # which `set_data` cannot do
            for dim, these in labels.items():
                own.set_dim(dim, len(these), these)
            own[name].set_value(array)
        else:
            own.set_data(name, array, coords=labels)
