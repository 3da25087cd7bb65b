"""The posterior of the weights at given hyperparameters, as a small `pm.Model` of its own.

    u ~ N(0, I),   w = m0 + C u,   C C' = P0^-1,   log p(t | η(u), θ) as a potential

It is built from the *reading* of a graph, so any readable graph can be sampled at any θ: the
standard Normal is easiest for a sampler whatever the precisions are, and a weight with
infinite precision is simply not there. This is the reference for an approximation at the same θ.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import get_ident
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from ardvark.errors import UnsupportedPair
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.pymc_models.compile import kept_with
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import Prior

__all__ = ["ConditionalModel", "conditional_model"]


class ConditionalModel:
    """`.model` to sample, `.lift` to turn draws of u into weights."""

    def __init__(self, model: Any, prior: Prior) -> None:
        self.model, self._prior = model, prior

    def lift(self, u: Array) -> Array:
        """Draws u (..., k) to weights (..., d); an inactive weight keeps its prior mean."""
        prior = self._prior
        w = np.broadcast_to(prior.model.mean, (*u.shape[:-1], len(prior.model.mean))).copy()
        w[..., prior.on] += prior.coloured(u)
        return w


def conditional_model(latent: LatentGaussian, theta: Mapping[str, Any]) -> ConditionalModel:
    """Model of the weights of `latent` given `theta`, with the data as they are now."""
    prior = Prior(latent.at(theta))
    size = int(prior.on.sum())
    if size == 0:
        raise UnsupportedPair(
            "every weight is switched off (infinite precision) at these hyperparameters: "
            "nothing is left to sample"
        )
    log_sites, eta = latent.reading.cut, latent.reading.inside
    shared = [v for v in ancestors([log_sites]) if isinstance(v, SharedVariable)]
    values = {
        "projection": prior.white_projection,
        "offset": prior.eta_mean,
        **{f"theta_{name}": np.asarray(theta[name], float) for name in latent.hyper},
        **{f"data_{i}": v.get_value() for i, v in enumerate(shared)},
    }

    def build() -> Any:
        with pm.Model() as model:
            data = {name: pm.Data(name, value) for name, value in values.items()}
            u = pm.Normal("u", 0.0, 1.0, shape=size)
            replacements = {eta: data["projection"] @ u + data["offset"]}
            for variable, name in zip(latent.reading.theta, latent.hyper, strict=True):
                replacements[variable] = data[f"theta_{name}"].astype(variable.dtype)
            for i, variable in enumerate(shared):
                replacements[variable] = data[f"data_{i}"].astype(variable.dtype)
            # Not clone_replace: it would copy u, and the copy would be drawn at random.
            [likelihood] = graph_replace([log_sites], replacements, strict=False)
            pm.Potential("log_likelihood", likelihood.sum())
        return model

    # One small model for each reading, number of weights and thread: a second fit only hands new
    # data over, and no thread writes into the model of another.
    model = kept_with(latent, ("conditional", size, get_ident()), build)
    for name, value in values.items():  # PyMC keeps whole numbers in fewer bits
        model[name].set_value(np.asarray(value).astype(model[name].dtype))
    return ConditionalModel(model, prior)
