"""Which methods are exact at the hyperparameters of an approximation, the cheapest first.

| posterior at θ                | references                                                |
|-------------------------------|-----------------------------------------------------------|
| Gaussian sites                | `Exact`: a closed form; `NUTS`                            |
| probit sites                  | `Exact` (independent draws), `EllipticalSlice`, `NUTS`    |
| any other sites               | `EllipticalSlice`, `NUTS`                                 |
| a Gaussian process            | `EllipticalSlice`: gradients fail at its margins          |
| any other                     | `NUTS`                                                    |

Chains go on until their checks pass. The cost is that of so many *effective* draws: independent
draws of a probit are rejected the more often the more rows there are, slices on EP's ellipse move
the less the fewer rows there are for a weight, NUTS is compiled first. The numbers of `COSTS` are
rough fits to simulated probits of 20 to 2000 rows and 2 to 1000 weights; only the order counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import InputError, UnreadableModel
from ardvark.inference.bridge.target import fitted_names
from ardvark.inference.exact.exact import Exact
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import Fixed
from ardvark.inference.hyper.settle import fixed_values
from ardvark.inference.methods import family_of
from ardvark.inference.samplers.elliptical_slice import EllipticalSlice
from ardvark.inference.samplers.nuts import NUTS
from ardvark.inference.sites.likelihoods import GaussianSites, ProbitSites

__all__ = ["by_cost", "exact_methods"]

THIN = 5  # sweeps per draw of a process: its neighbours are alike
CHAINS = 4  # that slices advance together
COMPILING = 8.0  # seconds that NUTS takes before its first draw


def exact_methods(model: Any, tree: xr.DataTree) -> list[tuple[str, Any]]:
    """Return (name, settings) of the methods that sample the posterior at the tree's θ, by cost.

    The first may refuse by `UnsupportedPair`, or not pass its own checks; NUTS takes all that can
    be read.
    """
    names: dict[str, Any] = fitted_names(tree) | {"hyper": Fixed(tree)}
    chains = names | {"until": "converged"}
    family = family_of(model)
    if family == "process":
        return [("elliptical_slice", EllipticalSlice(thin=THIN, **chains))]
    methods = {
        "exact": Exact(**names),
        "elliptical_slice": EllipticalSlice(**chains),
        "nuts": NUTS(**chains),
    }
    only_nuts = [("nuts", methods["nuts"])]
    if family != "sites":
        return only_nuts
    try:
        latent = read_model(model, **fitted_names(tree))
        site_model = latent.at(fixed_values(names["hyper"], latent.hyper))
    except (UnreadableModel, InputError):  # NUTS says itself what is wrong
        return only_nuts
    if isinstance(site_model.sites, GaussianSites):
        return [("exact", methods["exact"]), *only_nuts]
    if not isinstance(site_model.sites, ProbitSites):
        del methods["exact"]
    rows, weights = site_model.projection.shape
    if site_model.precision is not None:
        weights = int(np.isfinite(site_model.precision).sum())
    sizes = tree["posterior"].sizes
    order = by_cost(list(methods), rows, weights, sizes["chain"] * sizes["draw"])
    return [(name, methods[name]) for name in order]


def by_cost(methods: list[str], rows: int, weights: int, draws: int) -> list[str]:
    """Order methods by the seconds they take for so many effective draws of a probit."""
    return sorted(methods, key=lambda name: COSTS[name](rows, max(weights, 1), draws))


def _exact(rows: int, weights: int, draws: int) -> float:
    proposals = draws * float(max(1.0, rows / 15) ** 1.8)
    return 2e-5 * proposals + 3e-10 * rows**3


def _slices(rows: int, weights: int, draws: int) -> float:
    efficiency = min(0.5, 0.02 * float((rows / weights) ** 1.3))
    sweep = 4e-5 + CHAINS * (6e-8 * rows + 1e-9 * rows * weights)
    return sweep * draws / CHAINS / efficiency


def _nuts(rows: int, weights: int, draws: int) -> float:
    gradient = 1e-5 + 3e-9 * rows * weights
    return COMPILING + 20 * gradient * (draws + 4000)  # tuning of four chains


COSTS: dict[str, Callable[[int, int, int], float]] = {
    "exact": _exact,
    "elliptical_slice": _slices,
    "nuts": _nuts,
}
