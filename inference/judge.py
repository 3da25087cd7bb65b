"""Who can judge an approximation at its own hyperparameters: exact methods, the cheapest first.

| posterior at θ                | judge                                                     |
|-------------------------------|-----------------------------------------------------------|
| Gaussian sites                | `Exact`: a closed form                                    |
| probit sites                  | `Exact`: independent draws, where they are within reach    |
| a Gaussian process            | `EllipticalSlice`: gradients fail at its margins           |
| any other                     | `NUTS`                                                    |
"""

from __future__ import annotations

from typing import Any

import xarray as xr

from ardvark.errors import InputError, UnreadableModel
from ardvark.inference.elliptical_slice import EllipticalSlice
from ardvark.inference.exact import Exact
from ardvark.inference.graph import read_model
from ardvark.inference.hyper import Fixed, fixed_values
from ardvark.inference.nuts import NUTS
from ardvark.inference.routes import family_of
from ardvark.inference.sites import GaussianSites, ProbitSites
from ardvark.inference.target import told_names

__all__ = ["judges_at"]

THIN = 5  # sweeps per draw of a process: its neighbours are alike


def judges_at(model: Any, tree: xr.DataTree) -> list[tuple[str, Any]]:
    """Give (name, settings) of the methods that sample the posterior at the tree's θ, by cost.

    The first may refuse by `UnsupportedPair`; the last takes all that can be read.
    """
    names, hyper = told_names(tree), Fixed(tree)
    family = family_of(model)
    if family == "process":
        return [("elliptical_slice", EllipticalSlice(hyper=hyper, thin=THIN, **names))]
    nuts = ("nuts", NUTS(hyper=hyper, **names))
    if family != "sites":
        return [nuts]
    try:
        latent = read_model(model, **names)
        sites = latent.at(fixed_values(hyper, latent.hyper)).sites
    except (UnreadableModel, InputError):  # NUTS says itself what is wrong
        return [nuts]
    closed = isinstance(sites, GaussianSites | ProbitSites)
    return [("exact", Exact(hyper=hyper, **names)), nuts] if closed else [nuts]
