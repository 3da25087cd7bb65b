"""What of a result can be compared: weights mean something, or only their products do.

A sample-feature machine, eta_n = w' Phi_n lam, is the same for (w, lam) and (c w, lam / c), so two
right answers may differ in every weight. The products w_i lam_j of samples and features do not
depend on c, nor on its sign; the noise does not either. Precisions do.

The kernels of a mixture have no names of their own: two right answers may have them in any order.
Which inputs are included does not depend on it.
"""

import json

import xarray as xr

from ardvark.diagnostics.reading import WITHOUT_WEIGHTS

__all__ = ["in_invariants"]

_MOST = 2**25  # numbers; more draws are thinned


def in_invariants(tree: xr.DataTree) -> xr.DataTree:
    """Give products for the weights of a sample-feature machine, indicators for a mixture."""
    posterior = tree["posterior"].to_dataset()
    if tree.attrs.get("model") in WITHOUT_WEIGHTS and "included" in posterior:
        return _with_posterior(tree, {"included": posterior["included"].astype(float)})
    if "feature_term" not in posterior.dims or "lam" not in posterior:
        return tree
    pairs = (posterior.sizes["sample_term"] - 1) * (posterior.sizes["feature_term"] - 1)
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    thinned = posterior.isel(draw=slice(None, None, max(1, pairs * draws // _MOST)))
    w, lam = thinned["w"].isel(sample_term=slice(1, None)), thinned["lam"].isel(
        feature_term=slice(1, None)
    )  # fmt: skip
    product = (w * lam).transpose("chain", "draw", ...)
    kept = {"product": product} | ({"beta": thinned["beta"]} if "beta" in thinned else {})
    return _with_posterior(tree, kept)


def _with_posterior(tree: xr.DataTree, kept: dict[str, xr.DataArray]) -> xr.DataTree:
    """Give the tree with these variables in its posterior, the first of them for weights."""
    groups = {name: group.to_dataset() for name, group in tree.children.items()}
    groups["posterior"] = xr.Dataset(kept, attrs=tree["posterior"].attrs)
    changed = xr.DataTree.from_dict(groups)
    changed.attrs = tree.attrs | {"weights": json.dumps([next(iter(kept))])}
    return changed
