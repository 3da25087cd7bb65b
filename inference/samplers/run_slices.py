"""Elliptical slice sampling of a graph's Gaussian block, as groups of a tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import UnsupportedPair
from ardvark.inference.approximate import Answer, Run, posterior_dataset, row_dataset
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import Fixed, fixed_values
from ardvark.inference.progress import progress
from ardvark.inference.samplers.convergence import convergence
from ardvark.inference.samplers.elliptical_slice import slice_sample
from ardvark.inference.sites.likelihoods import Array
from ardvark.inference.tree import TREATMENTS, hyper_dataset

__all__ = ["fit_slices", "sliced_answer"]


def fit_slices(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample the weights at given hyperparameters."""
    latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    if latent.hyper and not isinstance(settings.hyper, Fixed):
        raise UnsupportedPair(
            f"{name} samples the Gaussian block at given hyperparameters, and "
            f"{', '.join(latent.hyper)} is free. Give values, or the tree of another fit: "
            f"EllipticalSlice(hyper=Fixed(tree)). EP(hyper=Sampled()) and NUTS sample them all."
        )
    theta = fixed_values(settings.hyper or Fixed(), latent.hyper)
    site_model = latent.at(theta)
    with progress(name, run.progressbar) as tick:
        tick("slices")
        rng = np.random.default_rng(run.seed)
        found = slice_sample(site_model, settings, run.draws, run.chains, rng)
    log_likelihood = site_model.sites.log(site_model.predictor(found.weights))
    posterior = posterior_dataset(latent, found.weights, theta)
    groups, facts = sliced_answer(latent, posterior, log_likelihood, found.evaluations)
    groups["fit"] = hyper_dataset(latent, theta, {})
    caption = TREATMENTS["fixed"] if latent.hyper else ""
    return groups, {"hyper": "fixed", "caption": caption} | facts


def sliced_answer(
    latent: LatentGaussian, posterior: xr.Dataset, log_likelihood: Array, evaluations: float
) -> Answer:
    """Groups and facts of a Markov chain that has no statistics but its draws."""
    problems, numbers = convergence(posterior, xr.Dataset(), posterior.sizes["draw"])
    groups = {
        "posterior": posterior.assign_attrs(sampling_kind="mcmc"),
        "log_likelihood": row_dataset(latent, log_likelihood),
    }
    return groups, {
        "weights": list(latent.weights),
        "converged": not problems,
        "problems": "; ".join(problems),
        "sampler": {"evaluations_per_sweep": evaluations} | numbers,
    }
