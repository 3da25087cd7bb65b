"""Models and trees as arguments: what is neither is refused by name before anything is done.

A tree that was read from a file or put together by hand may hold anything: what every caller relies
on (a posterior, a time in seconds) is looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from ardvark.errors import InputError
from ardvark.inference.pymc_models.own import check_model
from ardvark.models.tables import is_number

__all__ = ["check_model", "check_tree", "check_trees"]


def check_tree(tree: Any, argument: str = "tree", *, group: str | None = "posterior") -> None:
    """Refuse what is no tree, or lacks the group that is needed."""
    if not isinstance(tree, xr.DataTree):
        raise InputError(
            f"{argument} must be the tree that fit gives (an xr.DataTree), found "
            f"{type(tree).__name__}"
        )
    if group is not None and group not in tree.children:
        maker = "sbc" if group == "prior_sbc" else "a fit"
        raise InputError(f"{argument} has no {group} group: it is not the tree of {maker}")
    seconds = tree.attrs.get("seconds", 0.0)
    if not is_number(seconds):
        raise InputError(
            f"{argument} has the attribute seconds={seconds!r}, which is no number: a tree of fit "
            f"holds the time it took"
        )


def check_trees(trees: Any) -> None:
    """Refuse what is no mapping of names to trees of fits."""
    if isinstance(trees, xr.DataTree | xr.Dataset) or not isinstance(trees, Mapping):
        raise InputError(
            f"trees must be results of fit by name, {{'ep': tree}}, got {type(trees).__name__}"
        )
    if not trees:
        raise InputError("trees is empty: expected fits by name, {'ep': tree}, found none")
    for name, tree in trees.items():
        if not isinstance(name, str):
            raise InputError(f"trees must have names (str) as keys, found {name!r}")
        check_tree(tree, f"trees[{name!r}]")
