"""Samplers as groups of a tree: of everything, or of the weights at fixed hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import UnreadableModel, UnsupportedPair
from ardvark.inference.approximate import GivenTheta, row_dataset
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.graph.conditional import conditional_model
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import Evidence, Fixed, Predictive
from ardvark.inference.methods import METHODS
from ardvark.inference.pymc_models.at_draws import log_likelihood_at
from ardvark.inference.running.progress import progress
from ardvark.inference.samplers.convergence import SamplerDraws, convergence
from ardvark.inference.samplers.nuts import NUTS
from ardvark.inference.tree import draws_dataset

__all__ = ["fit_sampler", "fit_slices"]


def fit_sampler(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample all, or the weights at fixed hyperparameters."""
    draw = METHODS[name].load(METHODS[name].sample)
    hyper = settings.hyper
    if hyper is None:
        return _sample_all(model, draw, settings, run)
    if isinstance(hyper, Fixed):
        return _sample_at(model, draw, settings, run)
    searched = isinstance(hyper, (Evidence, Predictive))
    what = f"{type(hyper).__name__}()" if searched else repr(hyper)
    raise UnsupportedPair(
        f"{name} with hyper={what}: a sampler takes the hyperparameters into the posterior. "
        f"Leave hyper out, or fix them: {METHODS[name].settings}(hyper=Fixed(tree))."
    )


def _sample_all(model: Any, draw: Callable[..., Any], settings: Any, run: Run) -> Answer:
    sampled = draw(
        model,
        settings,
        draws=run.draws,
        chains=run.chains,
        random_seed=run.seed,
        progressbar=run.progressbar,
    )
    groups = {
        "posterior": sampled.posterior.assign_attrs(sampling_kind="mcmc"),
        "sample_stats": sampled.sample_stats,
        "log_likelihood": _log_likelihood(model, sampled, settings),
        **_evidence_group(sampled.info),
    }
    weights, hyper = _names_of(model, settings)
    return groups, _facts(sampled, hyper="posterior" if hyper else "fixed", weights=weights)


def _sample_at(model: Any, draw: Callable[..., Any], settings: Any, run: Run) -> Answer:
    """Sample the weights at fixed hyperparameters, through the reading of the graph."""
    given = GivenTheta.of(model, settings)
    conditional = conditional_model(given.latent, given.theta)
    more = {"site_model": given.site_model} if isinstance(settings, NUTS) else {}
    sampled = draw(
        conditional.model, settings,
        draws=run.draws, chains=run.chains, random_seed=run.seed, progressbar=run.progressbar,
        **more,
    )  # fmt: skip
    w = conditional.lift(sampled.posterior["u"].transpose("chain", "draw", ...).values)
    groups = given.groups(w, "mcmc") | {"sample_stats": sampled.sample_stats}
    return groups | _evidence_group(sampled.info), _facts(sampled, **given.facts)


def fit_slices(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample the weights at given hyperparameters."""
    from ardvark.inference.samplers.elliptical_slice import slice_sample  # loads EP: not for NUTS

    why = (
        f"{name} samples the Gaussian block at given hyperparameters, and {{free}} is free. Give "
        f"values, or the tree of another fit: EllipticalSlice(hyper=Fixed(tree)). "
        f"EP(hyper=Sampled()) and NUTS sample them all."
    )
    given = GivenTheta.of(model, settings, why)
    with progress(name, run.progressbar) as tick:
        tick("slices")
        rng = np.random.default_rng(run.seed)
        found = slice_sample(given.site_model, settings, run.draws, run.chains, rng)
    groups = given.groups(found.weights, "mcmc")
    problems, numbers = convergence(groups["posterior"], xr.Dataset(), run.draws)
    facts = {"evaluations_per_sweep": found.evaluations} | numbers
    return groups, Facts(**given.facts, problems=problems, sampler=facts)


def _facts(sampled: SamplerDraws, **known: Any) -> Facts:
    numbers = {k: v for k, v in sampled.info.items() if isinstance(v, (int, float, str, bool))}
    return Facts(problems=sampled.problems, sampler=numbers, **known)


def _evidence_group(info: Mapping[str, Any]) -> dict[str, xr.Dataset]:
    names = [n for n in ("log_evidence", "log_evidence_error") if n in info]
    if not names:
        return {}
    return {
        "fit": xr.Dataset(
            {
                **{n: info[n] for n in names},
                "log_evidence_chain": ("chain", info["log_evidence_chain"]),
            }
        )
    }


def _log_likelihood(model: Any, sampled: SamplerDraws, settings: Any) -> xr.Dataset:
    if sampled.log_rows is not None:  # of the model's own reading
        latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
        return row_dataset(latent, sampled.log_rows)
    chains = {rv.name: sampled.posterior[rv.name].values for rv in model.free_RVs}
    flat = {name: v.reshape((-1, *v.shape[2:])) for name, v in chains.items()}
    rows, shape = log_likelihood_at(model, flat), next(iter(chains.values())).shape[:2]
    return draws_dataset(model, {n: v.reshape((*shape, *v.shape[1:])) for n, v in rows.items()})


def _names_of(model: Any, settings: Any) -> tuple[list[str], list[str]]:
    """Names of weights and hyperparameters, as far as the reader sees them."""
    try:
        latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    except UnreadableModel:  # a sampler needs no reading: tables then show every variable
        return [], [rv.name for rv in model.free_RVs]
    return list(latent.weights), list(latent.hyper)
