"""Which of several results may judge the others, and which one to trust."""

from collections.abc import Mapping

import xarray as xr

from ardvark.errors import InputError

__all__ = ["choose_reference", "may_judge"]


def choose_reference(trees: Mapping[str, xr.DataTree], reference: str | None = None) -> str | None:
    """Name the tree to trust: as asked, else the exact posterior of all, else NUTS, else chains."""
    if reference is not None:
        if reference not in trees:
            raise InputError(f"reference: {reference!r} is not among the trees {', '.join(trees)}")
        return reference
    chains = [n for n, tree in trees.items() if may_judge(tree)]

    def preference(name: str) -> tuple[bool, bool, bool]:
        attributes = trees[name].attrs
        integrated = attributes.get("hyper") == "posterior"
        method = attributes.get("method")
        return not (method == "exact" and integrated), method != "nuts", not integrated

    return min(chains, key=preference, default=None)


def may_judge(tree: xr.DataTree) -> bool:
    """Whether its draws are of the posterior itself: Markov chains, or exact and independent."""
    kind = tree["posterior"].attrs.get("sampling_kind")
    return bool(kind != "iid" or tree.attrs.get("method") == "exact")
