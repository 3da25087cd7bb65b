"""`bridge`: the evidence of any graph from the draws of a sampler (`bridge.py`, `target.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.arguments import check_model, check_tree
from ardvark.inference.bridge.bridge import bridge_evidence
from ardvark.inference.bridge.orders import orders_of
from ardvark.inference.bridge.target import target_of
from ardvark.inference.sites.arrays import Array
from ardvark.models.checks import Seed, as_seed

__all__ = ["BridgeEvidence", "bridge"]

LARGEST_ERROR = 0.5  # nats beyond which the banks hardly meet


@dataclass(frozen=True, slots=True)
class BridgeEvidence:
    """The evidence by bridge sampling.

    ``log_evidence`` with its ``error`` (nats, one standard error); ``of`` is "p(t)", or "p(t | θ)"
    where the tree was sampled at given hyperparameters; ``effective`` draws of the posterior;
    ``overlap`` of the posterior with its Gaussian, 1 = the same; ``reliable``: the error is small
    enough to be believed itself.
    """

    log_evidence: float
    error: float
    of: str
    effective: float
    overlap: float
    reliable: bool

    def __str__(self) -> str:
        doubt = "" if self.reliable else "; the banks hardly meet, do not trust it"
        return f"log {self.of} = {self.log_evidence:.3f} ± {self.error:.3f} (bridge{doubt})"


def bridge(
    model: Any, tree: xr.DataTree, *, warp: bool = False, random_seed: Seed = 1
) -> BridgeEvidence:
    """Estimate the evidence of a model from draws of its posterior, by bridge sampling.

    Parameters
    ----------
    model : pm.Model
        The graph that was sampled; a user's own will do.
    tree
        Of `NUTS`, `SMC`, `EllipticalSlice` or `Exact`, or with `hyper=Sampled()`; with
        hyperparameters held, the evidence is p(t | θ). Draws of an approximation are refused.
    warp
        Bridge to the posterior made symmetric about its mean (warp-III): twice the evaluations,
        and better where it is skewed.
    random_seed
        Of the proposal's draws.

    Returns
    -------
    BridgeEvidence
    """
    check_tree(tree)
    model = check_model(model)
    kind, method = tree["posterior"].attrs.get("sampling_kind"), tree.attrs.get("method")
    if kind == "iid" and method != "exact":
        raise UnsupportedPair(
            f"bridge needs draws of the posterior itself; these are of the approximation {method}. "
            "Give it a tree of NUTS(hyper=Fixed(tree)), EllipticalSlice or Exact."
        )
    target = target_of(model, tree)
    draws, orders = target.pack(tree["posterior"].dataset), orders_of(model, target)
    if orders is not None and warp:
        raise UnsupportedPair(
            "bridge: warp=True mirrors the posterior, which the orders of a mixture's kernels do "
            "not allow. Leave warp out."
        )
    try:
        found = bridge_evidence(
            target.log_density,
            draws,
            np.random.default_rng(as_seed(random_seed)),
            effective=(lambda draws: float(draws.size)) if kind == "iid" else _effective,
            warp=warp,
            orders=orders,
        )
    except (ValueError, np.linalg.LinAlgError) as error:
        raise InputError(f"bridge: {error}") from error
    reliable = bool(found.error < LARGEST_ERROR)
    return BridgeEvidence(
        found.log_evidence, found.error, target.evidence, found.effective, found.overlap, reliable
    )


def _effective(quantity: Array) -> float:
    """Effective number of draws of a quantity (chain, draw), for its mean."""
    if not np.isfinite(quantity).all() or np.ptp(quantity) == 0:
        return 1.0
    arviz: Any = import_module("arviz_stats")  # slow to import: not before it is needed
    return float(arviz.ess(quantity, method="mean", chain_axis=0, draw_axis=1))
