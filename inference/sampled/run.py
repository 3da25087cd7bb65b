"""`fit` with `hyper=Sampled()`: the chains of `run_chains.py` as groups of a tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import UnsupportedPair
from ardvark.inference.approximate import row_dataset
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.read import read_model
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.pymc_models.forms import stored_names
from ardvark.inference.running.progress import progress
from ardvark.inference.sampled.run_chains import Chains, sample_chains
from ardvark.inference.samplers.convergence import convergence
from ardvark.inference.samplers.nuts import NUTS
from ardvark.inference.samplers.run import fit_sampler
from ardvark.inference.sites.arrays import Array
from ardvark.inference.tree import draws_dataset

__all__ = ["fit_sampled"]

INEXACT = (
    "the weights were drawn from the approximation itself (kernel='draw'), so this is not the "
    "posterior of the model. Use kernel='elliptical' for it."
)


def fit_sampled(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample weights and hyperparameters by the kernels of an approximation."""
    latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    if not latent.hyper:
        raise UnsupportedPair(
            "hyper=Sampled() has nothing to sample: the model has no free hyperparameter. Use "
            "Exact(), NUTS() or leave hyper out."
        )
    if settings.hyper.kernel == "nuts":
        return _by_nuts(model, settings, run)
    rule = settings.loosened()
    with progress(name, run.progressbar) as tick:
        chains = sample_chains(
            latent, rule, settings.hyper,
            draws=run.draws, chains=run.chains, seed=run.seed, tick=tick,
        )  # fmt: skip
        tick("log likelihood of the draws")
        posterior, log_likelihood = _posterior(latent, chains)
    sample_stats = draws_dataset(model, {"block_trials": chains.trials.astype(float)})
    problems, numbers = convergence(posterior, sample_stats, run.draws)
    exact = settings.hyper.kernel != "draw"
    groups = {
        "posterior": posterior.assign_attrs(sampling_kind="mcmc"),
        "sample_stats": sample_stats,
        "log_likelihood": row_dataset(latent, log_likelihood),
    }
    return groups, Facts(
        hyper="posterior",
        caption="" if exact else INEXACT,
        caution="" if exact else INEXACT,
        weights=latent.weights,
        problems=problems,
        sampler=numbers | {"compiled": chains.compiled, "kernel": settings.hyper.kernel},
    )


def _by_nuts(model: Any, settings: Any, run: Run) -> Answer:
    """Weights and hyperparameters by NUTS, with the settings that it shares with `Sampled`."""
    asked = NUTS(
        tune=max(1, settings.hyper.tune), weights=settings.weights, predictor=settings.predictor
    )
    groups, facts = fit_sampler(model, "nuts", asked, run)
    return groups, replace(facts, sampler={**facts.sampler, "kernel": "nuts"})


def _posterior(latent: LatentGaussian, chains: Chains) -> tuple[xr.Dataset, Array]:
    """Draws under the graph's names, with its Deterministics, and their log likelihood."""
    import pymc as pm

    model, named = latent.model, latent.split(chains.weights) | chains.theta
    posterior = draws_dataset(model, {rv.name: named[rv.name] for rv in model.free_RVs})
    shape = chains.weights.shape[:2]
    flat = {n: np.reshape(v, (-1, *np.shape(v)[2:])) for n, v in named.items()}
    eta = latent.eta_of(flat)
    theta = {n: flat[n] for n in latent.hyper}
    log_likelihood = latent.log_sites_at(eta, theta).reshape((*shape, -1))
    derived = [n for n in stored_names(model, latent.predictor) if n not in posterior]
    if derived:
        with quick():
            posterior = pm.compute_deterministics(
                posterior, var_names=derived, model=model, extend_dataset=True,
                progressbar=False, compile_kwargs={"mode": "FAST_COMPILE"},
            )  # fmt: skip
    return posterior, log_likelihood
