"""`fit`: one door for every model and every method; it alone puts the layers together.

    pm.Model → read_model → SiteModel → method → GaussianFit or draws → tree

A method is one file and one line of `METHODS`. Two kinds:

* "gaussian": its settings have `approximate(SiteModel) → GaussianFit` and the adjoint of the
  evidence; the hyperparameters are settled around it (`hyper.py`).
* "sampler": draws from the posterior, hyperparameters included unless `hyper=Fixed(...)`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.errors import ConvergenceWarning, InputError, UnreadableModel, UnsupportedPair
from ardvark.inference.compile import quick, replaced_data
from ardvark.inference.conditional import conditional_model
from ardvark.inference.graph import read_model
from ardvark.inference.hyper import Evidence, Fixed, Settled, fixed_values, settle
from ardvark.inference.latent import LatentGaussian
from ardvark.inference.nuts import stored_names
from ardvark.inference.progress import progress
from ardvark.inference.sites import Array
from ardvark.inference.tree import (
    CONDITIONAL,
    TYPE_II,
    assemble,
    data_groups,
    describe,
    dims_of,
    draws_dataset,
    fit_dataset,
    path_group,
    versions,
)
from ardvark.models.card import card_of
from ardvark.models.checks import as_seed, positive_integer
from ardvark.models.registry import MODELS

__all__ = ["METHODS", "MethodEntry", "fit"]


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """Where a method lives and what kind it is."""

    home: str  # module of ardvark.inference
    settings: str  # name of its settings class
    kind: str  # "gaussian" | "sampler"
    sample: str = ""  # samplers: name of the function that draws

    def load(self, name: str) -> Any:
        """Give a name of the method's module."""
        return getattr(import_module(f"ardvark.inference.{self.home}"), name)


METHODS: dict[str, MethodEntry] = {
    "laplace": MethodEntry("laplace", "Laplace", "gaussian"),
    "nuts": MethodEntry("nuts", "NUTS", "sampler", "sample_nuts"),
    "smc": MethodEntry("smc", "SMC", "sampler", "sample_smc"),
}


class _Run(NamedTuple):
    """What a fit was asked for, beside model and method."""

    draws: int
    chains: int
    seed: int
    progressbar: bool


def fit(
    model: Any,
    method: Any = "laplace",
    *,
    draws: int = 1000,
    chains: int = 4,
    random_seed: int | None = None,
    progressbar: bool = True,
    data: Iterable[Mapping[str, Any]] | None = None,
) -> Any:
    """Fit a model by a method; the answer is an ArviZ tree.

    Parameters
    ----------
    model : pm.Model
        From the zoo, or your own: a Gaussian block, an affine predictor, an elementwise likelihood.
    method : settings or str
        `av.Laplace()`, `av.NUTS(hyper=av.Fixed(tree))`, ... or a name with default settings.
    draws, chains : int
        Draws per chain. Approximations give independent draws in as many pseudo-chains.
    random_seed : int, optional
        Same seed, same result. Without one a seed is drawn and recorded in the tree.
    progressbar : bool
        Show what takes longer than two seconds.
    data : iterable of mappings, optional
        Fit each set of values (name of a `pm.Data` → array) on the same compiled graph, and give
        the list of trees. The model's own data come back afterwards.

    Returns
    -------
    xr.DataTree, or a list of them with `data=`
    """
    name, settings = _the_method(method)
    run = _Run(
        positive_integer(draws, "draws"),
        positive_integer(chains, "chains"),
        _the_seed(random_seed),
        bool(progressbar),
    )
    _check_model(model)
    _check_pair(model, name)
    if data is None:
        return _fit_one(model, name, settings, run)
    trees = []
    for values in data:
        with replaced_data(model, values):
            trees.append(_fit_one(model, name, settings, run))
    return trees


def _fit_one(model: Any, name: str, settings: Any, run: _Run) -> xr.DataTree:
    begin = time.perf_counter()
    fitted = _fit_gaussian if METHODS[name].kind == "gaussian" else _fit_sampler
    groups, facts = fitted(model, name, settings, run)
    if not facts["converged"]:
        warnings.warn(f"{name}: {facts['problems']}", ConvergenceWarning, stacklevel=4)
    card = card_of(model)
    attributes = {
        "method": name,
        "model": card.builder if card else "user graph",
        "settings": describe(settings),
        "random_seed": run.seed,
        "versions": versions(),
        "seconds": time.perf_counter() - begin,
        **facts,
    }
    return assemble({**groups, **data_groups(model)}, attributes)


# Approximations -------------------------------------------------------------------------------


def _fit_gaussian(
    model: Any, name: str, settings: Any, run: _Run
) -> tuple[dict[str, Any], dict[str, Any]]:
    latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    with progress(name, run.progressbar) as tick:
        settled = settle(latent, settings, settings.hyper, tick)
        rng = np.random.default_rng(run.seed)
        w = settled.fit.posterior.draws(run.chains * run.draws, rng)
        tick("log likelihood of the draws")
        eta = settled.model.predictor(w)
        log_likelihood = settled.model.sites.log(eta)
    joint = log_likelihood.sum(axis=-1) + settled.fit.posterior.prior.log_density(w)
    approximation = settled.fit.posterior.log_density(w)
    shape = (run.chains, run.draws)
    posterior = _posterior(latent, w.reshape((*shape, -1)), settled.theta)
    posterior.attrs["sampling_kind"] = "iid"
    groups = {
        "posterior": posterior,
        **path_group(latent, settled),
        "log_likelihood": _row_dataset(latent, log_likelihood.reshape((*shape, -1))),
        "sample_stats": draws_dataset(
            model,
            {
                "log_posterior": joint.reshape(shape),
                "log_approximation": approximation.reshape(shape),
            },
        ),
        "fit": fit_dataset(latent, settled),
    }
    return groups, {
        "hyper": settled.treatment,
        "caption": TYPE_II
        if settled.treatment == "evidence"
        else CONDITIONAL
        if latent.hyper
        else "",
        "weights": list(latent.weights),
        "converged": settled.converged,
        "problems": _why(settled),
    }


def _why(settled: Settled) -> str:
    if settled.converged:
        return ""
    if settled.reason:
        return f"not converged: {settled.reason}. Raise max_rounds or max_steps of Evidence()."
    numbers = ", ".join(f"{k} {v:.3g}" for k, v in settled.fit.info.items())
    count = settled.fit.iterations
    return f"not converged after {count} iterations ({numbers}). Raise max_iterations."


def _posterior(latent: LatentGaussian, w: Array, theta: Mapping[str, Array]) -> xr.Dataset:
    """Draws of the weights; θ as constants, since PyMC would draw missing ones at random."""
    constant = {
        name: np.broadcast_to(value, (*w.shape[:2], *np.shape(value)))
        for name, value in theta.items()
    }
    named, model = {**constant, **latent.split(w)}, latent.model
    posterior = draws_dataset(model, {rv.name: named[rv.name] for rv in model.free_RVs})
    derived = [n for n in stored_names(model, latent.predictor) if n not in posterior]
    if not derived:
        return posterior
    import pymc as pm

    with quick():
        return pm.compute_deterministics(  # type: ignore[no-any-return]
            posterior,
            var_names=derived,
            model=model,
            merge_dataset=True,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )


def _row_dataset(latent: LatentGaussian, values: Array) -> xr.Dataset:
    dims = {latent.observed: dims_of(latent.model, latent.observed, 1)}
    return draws_dataset(latent.model, {latent.observed: values}, dims)


# Samplers -------------------------------------------------------------------------------------


def _fit_sampler(
    model: Any, name: str, settings: Any, run: _Run
) -> tuple[dict[str, Any], dict[str, Any]]:
    draw = METHODS[name].load(METHODS[name].sample)
    hyper = settings.hyper
    if hyper is None:
        return _sample_all(model, draw, settings, run)
    if isinstance(hyper, Fixed):
        return _sample_at(model, draw, settings, run, hyper)
    what = "Evidence()" if isinstance(hyper, Evidence) else repr(hyper)
    raise UnsupportedPair(
        f"{name} with hyper={what}: a sampler takes the hyperparameters into the posterior. "
        f"Leave hyper out, or "
        f"fix them: {METHODS[name].settings}(hyper=Fixed(tree))."
    )


def _sample_all(
    model: Any, draw: Callable[..., Any], settings: Any, run: _Run
) -> tuple[dict[str, Any], dict[str, Any]]:
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
    model: Any, draw: Callable[..., Any], settings: Any, run: _Run, hyper: Fixed
) -> tuple[dict[str, Any], dict[str, Any]]:
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
    posterior = _posterior(latent, w, theta)
    posterior.attrs["sampling_kind"] = "mcmc"
    groups = {
        "posterior": posterior,
        "sample_stats": sampled.sample_stats,
        "log_likelihood": _row_dataset(latent, log_likelihood),
        **_evidence_group(sampled.info),
    }
    facts = {
        "hyper": "fixed",
        "caption": CONDITIONAL if latent.hyper else "",
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


# What was asked for ---------------------------------------------------------------------------


def _the_method(method: Any) -> tuple[str, Any]:
    if isinstance(method, str):
        name = method.lower()
        if name not in METHODS:
            raise InputError(f"method {method!r} is unknown; known: {', '.join(METHODS)}")
        return name, METHODS[name].load(METHODS[name].settings)()
    for name, entry in METHODS.items():
        if type(method).__name__ == entry.settings:
            return name, method
    raise InputError(
        f"method must be a name or settings such as "
        f"{', '.join(e.settings + '()' for e in METHODS.values())}; "
        f"got {method!r}"
    )


def _the_seed(random_seed: int | None) -> int:
    seed = as_seed(random_seed)
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else int(seed)


def _check_model(model: Any) -> None:
    if not hasattr(model, "free_RVs"):
        raise InputError(f"model must be a pm.Model, got {type(model).__name__}")


def _check_pair(model: Any, name: str) -> None:
    card = card_of(model)
    if card is None or name in MODELS[card.builder].methods:
        return
    entry = MODELS[card.builder]
    reason = entry.reasons.get(name, "no such pair has been built.")
    fits = ", ".join(m for m in entry.methods if m in METHODS)
    raise UnsupportedPair(f"{name} does not fit {card.builder}: {reason} It is fitted by {fits}.")
