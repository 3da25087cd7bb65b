"""The hyperparameters of a tree: what `tree.py` wrote into its group `theta`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ardvark.errors import InputError
from ardvark.inference.sites.arrays import Array

__all__ = ["stored_theta", "theta_of"]


def stored_theta(tree: Any) -> dict[str, Array]:
    """Each hyperparameter at the value that the fit used; none if the tree keeps none."""
    group = "theta" if "theta" in tree.children else "fit"  # there until version 0.2
    return {n: v.values for n, v in tree[group].items()} if group in tree.children else {}


def theta_of(tree: Any, names: Iterable[str]) -> dict[str, Array]:
    """Those of a model, which the tree must have."""
    stored = stored_theta(tree)
    if missing := [name for name in names if name not in stored]:
        raise InputError(f"tree has no value of {missing[0]!r}: it is the tree of another model")
    return {name: stored[name] for name in names}
