"""Samplers: the posterior of everything, or of the weights at fixed hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import xarray as xr

from ardvark.errors import UnreadableModel, UnsupportedPair
from ardvark.inference.approximate import Answer, Run, posterior_dataset, row_dataset
from ardvark.inference.graph.compile import quick
from ardvark.inference.graph.conditional import conditional_model
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import Evidence, Fixed, Predictive, fixed_values
from ardvark.inference.methods import METHODS
from ardvark.inference.tree import TREATMENTS

__all__ = ["fit_sampler"]


def fit_sampler(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample all, or the weights at fixed hyperparameters."""
    draw = METHODS[name].load(METHODS[name].sample)
    hyper = settings.hyper
    if hyper is None:
        return _sample_all(model, draw, settings, run)
    if isinstance(hyper, Fixed):
        return _sample_at(model, draw, settings, run, hyper)
    searched = isinstance(hyper, (Evidence, Predictive))
    what = f"{type(hyper).__name__}()" if searched else repr(hyper)
    raise UnsupportedPair(
        f"{name} with hyper={what}: a sampler takes the hyperparameters into the posterior. "
        f"Leave hyper out, or "
        f"fix them: {METHODS[name].settings}(hyper=Fixed(tree))."
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
        "log_likelihood": _log_likelihood(model, sampled.posterior),
        **_evidence_group(sampled.info),
    }
    weights, hyper = _names_of(model, settings)
    facts = {"hyper": "posterior" if hyper else "fixed", "caption": "", "weights": weights}
    return groups, facts | _record(sampled)


def _sample_at(
    model: Any, draw: Callable[..., Any], settings: Any, run: Run, hyper: Fixed
) -> Answer:
    """Sample the weights at fixed hyperparameters, through the reading of the graph."""
    latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    theta = fixed_values(hyper, latent.hyper)
    conditional = conditional_model(latent, theta)
    sampled = draw(
        conditional.model, settings,
        draws=run.draws, chains=run.chains, random_seed=run.seed, progressbar=run.progressbar,
    )  # fmt: skip
    w = conditional.lift(sampled.posterior["u"].transpose("chain", "draw", ...).values)
    site_model = latent.at(theta)
    log_likelihood = site_model.sites.log(site_model.predictor(w))
    posterior = posterior_dataset(latent, w, theta)
    posterior.attrs["sampling_kind"] = "mcmc"
    groups = {
        "posterior": posterior,
        "sample_stats": sampled.sample_stats,
        "log_likelihood": row_dataset(latent, log_likelihood),
        **_evidence_group(sampled.info),
    }
    facts = {
        "hyper": "fixed",
        "caption": TREATMENTS["fixed"] if latent.hyper else "",
        "weights": list(latent.weights),
    }
    return groups, facts | _record(sampled)


def _record(sampled: Any) -> dict[str, Any]:
    numbers = {k: v for k, v in sampled.info.items() if isinstance(v, (int, float, str, bool))}
    return {
        "converged": sampled.converged,
        "problems": "; ".join(sampled.problems),
        "sampler": numbers,
    }


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


def _log_likelihood(model: Any, posterior: xr.Dataset) -> xr.Dataset:
    import pymc as pm

    with quick():
        tree = pm.compute_log_likelihood(
            xr.DataTree.from_dict({"posterior": posterior}),
            model=model,
            extend_inferencedata=False,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    return tree.to_dataset() if isinstance(tree, xr.DataTree) else tree


def _names_of(model: Any, settings: Any) -> tuple[list[str], list[str]]:
    """Names of weights and hyperparameters, as far as the reader sees them."""
    try:
        latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    except UnreadableModel:  # a sampler needs no reading: tables then show every variable
        return [], [rv.name for rv in model.free_RVs]
    return list(latent.weights), list(latent.hyper)
