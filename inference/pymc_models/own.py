"""A user's own model as an argument: a `pm.Model`, or a bambi model, which contains one.

bambi keeps its graph in `model.backend.model` once `model.build()` has made it. It is recognised by
these two names and never imported.
"""

from __future__ import annotations

from typing import Any

from ardvark.errors import InputError

__all__ = ["as_pymc", "check_model", "is_bambi"]


def is_bambi(model: Any) -> bool:
    """Whether this is a model of bambi."""
    return hasattr(model, "backend") and callable(getattr(model, "build", None))


def as_pymc(model: Any) -> Any:
    """Give the graph of a model of bambi, which is built if it was not; all else as it is."""
    if not is_bambi(model):
        return model
    if model.backend is None:
        model.build()
    return model.backend.model


def check_model(model: Any) -> Any:
    """Give the `pm.Model`, also of a model of bambi; refuse what is none."""
    graph = as_pymc(model)
    if not hasattr(graph, "free_RVs"):
        raise InputError(
            f"model must be a pm.Model or a model of bambi, got {type(model).__name__}"
        )
    return graph
