"""A sampler on a sample-feature machine: the sign is folded, the chains are judged by invariants.

Both signs of (w, lam) are equally probable, and so is nearly every scale: draws of weights from
two chains need not agree where their functions do. The sign is fixed draw by draw, so that the lam
of the largest mean size is positive, which changes no expectation of what the data can tell; the
scale is left to the prior, as the graph has it. R-hat and effective sizes are those of the products
w_i lam_j, of each row's log likelihood, and of the noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import UnsupportedPair
from ardvark.inference.approximate import Answer, Run
from ardvark.inference.methods import METHODS
from ardvark.inference.samplers.convergence import convergence
from ardvark.inference.samplers.run import fit_sampler as sample

__all__ = ["fit_sampler", "invariants"]


def fit_sampler(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample all with the sign folded; the chains are judged by products and by eta."""
    if settings.hyper is not None:
        raise UnsupportedPair(
            f"{name} with hyper=Fixed(...): w and lam are no one Gaussian block, so there is no "
            "conditional form of a sample-feature machine. Fix the hyperparameters in the graph, "
            "by pm.do(model, {...}), or leave hyper out."
        )
    if getattr(settings, "until", None) is not None:  # `fit_until` looks at what is judged here
        settings = replace(settings, until=None, most_draws=None)
    groups, facts = sample(model, name, settings, run)
    posterior = groups["posterior"]
    largest = np.argmax(np.abs(posterior["lam"].values[..., 1:]).mean(axis=(0, 1))) + 1
    sign = np.where(posterior["lam"].values[..., largest] < 0, -1.0, 1.0)
    for side in ("w", "lam"):
        posterior[side] = posterior[side] * xr.DataArray(sign, dims=("chain", "draw"))
    groups["posterior"] = posterior
    if METHODS[name].home == "nuts":
        stats = groups["sample_stats"]
        judged = _judged(posterior, groups["log_likelihood"])
        problems, numbers = convergence(judged, stats, run.draws)
        facts |= {"converged": not problems, "problems": "; ".join(problems)}
        facts["sampler"] = {**facts["sampler"], **numbers}
    return groups, facts | {"weights": list(("w", "lam"))}


def _judged(posterior: xr.Dataset, log_likelihood: xr.Dataset) -> xr.Dataset:
    """What does not depend on sign and scale: the products, and the fit of each row."""
    judged = {"product": invariants(posterior), "log_likelihood": log_likelihood["t"]}
    return xr.Dataset(judged | ({"beta": posterior["beta"]} if "beta" in posterior else {}))


def invariants(posterior: xr.Dataset) -> xr.DataArray:
    """Products w_i lam_j (chain, draw, sample, feature) of samples and features, no constants."""
    w, lam = posterior["w"][..., 1:], posterior["lam"][..., 1:]
    return (w * lam).transpose("chain", "draw", "sample_term", "feature_term")
