"""Compile small graphs fast, and swap the data under them.

FAST_COMPILE without a C compiler: these functions are called tens of times, not thousands, and
compile time is what the user waits for. Data are shared variables, read at call time, so
`pm.set_data` needs no new compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytensor
from pymc.pytensorf import rvs_in_graph

from ardvark.errors import InputError, UnreadableModel

__all__ = ["compile_graph", "quick", "replaced_data"]


def quick() -> Any:
    """Context in which PyTensor compiles without a C compiler and without rewriting much."""
    return pytensor.config.change_flags(cxx="", mode="FAST_COMPILE")


def compile_graph(inputs: list[Any], outputs: Any) -> Callable[..., Any]:
    """Compile; refuse a graph in which a random variable was left or cloned."""
    left = rvs_in_graph(outputs if isinstance(outputs, list) else [outputs])
    if left:
        names = ", ".join(sorted(v.name or str(v) for v in left))
        raise UnreadableModel(
            f"{names}: a random variable is left in the graph, its value would be drawn at random"
        )
    with quick():
        return pytensor.function(  # type: ignore[no-any-return]
            inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore"
        )


@contextmanager
def replaced_data(model: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Give the model's `pm.Data` other values, of any length, and put the old ones back."""
    if not isinstance(values, Mapping):
        raise InputError(f"new data must be a mapping name → array, got {type(values).__name__}")
    known = [v.name for v in model.data_vars]
    if unknown := [name for name in values if name not in known]:
        listed = ", ".join(known) or "none: its inputs are constants. Wrap them in pm.Data"
        raise InputError(f"the model has no pm.Data named {unknown[0]!r}; it has {listed}")
    for name, value in values.items():
        _check_values(model[name], name, value)
    before = {name: model[name].get_value() for name in values}
    coords = dict(model.coords)
    try:
        _set_data(model, values, {})
        yield
    finally:
        _set_data(model, before, coords)


def _check_values(variable: Any, name: str, value: Any) -> None:
    """Refuse what cannot be the values of a `pm.Data`, by name and first bad place."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InputError(f"new values of {name!r} must be numbers, got dtype {array.dtype}")
    if array.ndim != variable.ndim:
        raise InputError(
            f"new values of {name!r} have {array.ndim} dimensions, not {variable.ndim}"
        )
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        place = tuple(map(int, bad[0]))
        raise InputError(f"new values of {name!r} have {array[place]} at index {place}")
    whole = np.dtype(variable.dtype).kind in "biu"
    if whole and not np.array_equal(array, array.astype(variable.dtype)):
        raise InputError(f"new values of {name!r} must be whole numbers ({variable.dtype})")


def _set_data(model: Any, values: Mapping[str, Any], coords: Mapping[str, Any]) -> None:
    with quick():  # `set_data` compiles a function for each dim: seconds in the default mode
        for name, value in values.items():
            array = np.asarray(value).astype(model[name].dtype)
            dims = model.named_vars_to_dims.get(name) or ()
            own = {
                dim: coords.get(dim) or range(n)
                for dim, n in zip(dims, array.shape, strict=False)
                if model.coords.get(dim) is not None
                and (len(model.coords[dim]) != n or dim in coords)
            }
            if None in dims:  # which `set_data` cannot do
                for dim, labels in own.items():
                    model.set_dim(dim, len(labels), labels)
                model[name].set_value(array.astype(model[name].dtype))
            else:
                model.set_data(name, array, coords=own)
