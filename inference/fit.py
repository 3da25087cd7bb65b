"""`fit`: one door for every model and every method; it alone puts the layers together.

    pm.Model → read_model → SiteModel → method → GaussianFit or draws → tree

The hyperparameters are settled around an approximation (`hyper.py`); a sampler takes them into the
posterior unless they are fixed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.errors import (
    AccuracyWarning,
    ConvergenceWarning,
    InputError,
    UnreadableModel,
    UnsupportedPair,
)
from ardvark.inference.compile import quick, replaced_data
from ardvark.inference.conditional import conditional_model
from ardvark.inference.forms import stored_names
from ardvark.inference.graph import read_model
from ardvark.inference.hyper import Evidence, Fixed, Predictive, fixed_values, settle
from ardvark.inference.latent import LatentGaussian
from ardvark.inference.methods import METHODS
from ardvark.inference.progress import progress
from ardvark.inference.settled import Settled
from ardvark.inference.sites import Array, GaussianSites
from ardvark.inference.tree import (
    TREATMENTS,
    assemble,
    data_groups,
    describe,
    dims_of,
    draws_dataset,
    fit_dataset,
    hyper_dataset,
    path_group,
    versions,
)
from ardvark.models.card import card_of
from ardvark.models.checks import as_seed, positive_integer
from ardvark.models.registry import MODELS

__all__ = ["fit"]


_PERFECT = 1e-3  # residual, relative to the target: less is no noise at all
_WIDEST = 10.0  # prior sd of eta from one weight beyond which sites are all tail


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
    if isinstance(data, Mapping):
        raise InputError("data must be a list of mappings name → array, one for each fit; got one")
    trees = []
    for values in data:
        _check_labels(model, values)
        with replaced_data(model, values):
            trees.append(_fit_one(model, name, settings, run))
    return trees


def _fit_one(model: Any, name: str, settings: Any, run: _Run) -> xr.DataTree:
    begin = time.perf_counter()
    fitted = {"gaussian": _fit_gaussian, "exact": _fit_exact, "sampler": _fit_sampler}[
        METHODS[name].kind
    ]
    groups, facts = fitted(model, name, settings, run)
    if facts.get("caution"):
        warnings.warn(f"{name}: {facts['caution']}", AccuracyWarning, stacklevel=4)
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
        "caption": TREATMENTS[settled.treatment] if latent.hyper else "",
        "weights": list(latent.weights),
        "converged": settled.converged,
        "problems": _why(settled),
        "caution": _caution(latent, settled),
    }


def _caution(latent: LatentGaussian, settled: Settled) -> str:
    """Say so where a search has ended at a place that deserves no trust."""
    if settled.path is None:
        return ""
    prior = settled.fit.posterior.prior
    assert prior.variance is not None
    if isinstance(settled.model.sites, GaussianSites):
        rows, weights = prior.projection.shape
        fit = settled.fit.posterior.eta_mean - settled.model.sites.mean
        left = np.sqrt(np.mean(fit**2) / np.mean(settled.model.sites.mean**2))
        if left > _PERFECT:
            return ""
        return (
            f"the search has explained {rows} targets by {weights} weights with a residual of "
            f"{left:.1g} of their size: nothing is left for noise, and the evidence has no maximum "
            f"worth the name. Fix the noise, or use NUTS."
        )
    spread = np.sqrt(prior.variance) * prior.projection.std(axis=0)  # prior sd of eta, by weight
    if not spread.size or spread.max() <= _WIDEST:
        return ""
    name = np.array(latent.weight_names)[prior.on][np.argmax(spread)]
    return (
        f"the search has given {name} a prior under which eta has sd {spread.max():.3g}, as it "
        f"does on separable data: there EP and Laplace are off by tenths of a nat in the evidence "
        f"and in the tails. Check the fit with Exact(hyper=Fixed(tree)) or NUTS(hyper=Fixed(tree))."
    )


def _why(settled: Settled) -> str:
    if settled.converged:
        return ""
    if settled.reason:
        return f"not converged: {settled.reason}"
    numbers = ", ".join(f"{k} {v:.3g}" for k, v in settled.fit.info.items())
    return (
        f"the approximation did not converge in {settled.fit.iterations} iterations ({numbers}). "
        f"Raise its own limit (max_iterations, max_sweeps), or look at the data."
    )


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
            extend_dataset=True,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )


def _row_dataset(latent: LatentGaussian, values: Array) -> xr.Dataset:
    dims = {latent.observed: dims_of(latent.model, latent.observed, 1)}
    return draws_dataset(latent.model, {latent.observed: values}, dims)


# Exact draws -------------------------------------------------------------------------------------


def _fit_exact(
    model: Any, name: str, settings: Any, run: _Run
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Independent draws at given hyperparameters: a reference without a Markov chain."""
    latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    if latent.hyper and not isinstance(settings.hyper, Fixed):
        raise UnsupportedPair(
            f"{name} needs hyper=Fixed(...): no exact posterior is known with free "
            f"{', '.join(latent.hyper)}. Give values, or the tree of another fit: "
            f"{METHODS[name].settings}(hyper=Fixed(tree))."
        )
    theta = fixed_values(settings.hyper or Fixed(), latent.hyper)
    site_model = latent.at(theta)
    rng = np.random.default_rng(run.seed)
    with progress(name, run.progressbar) as tick:
        tick("independent draws")
        found = settings.sample(site_model, run.chains * run.draws, rng)
    w = found.weights.reshape((run.chains, run.draws, -1))
    posterior = _posterior(latent, w, theta)
    posterior.attrs["sampling_kind"] = "iid"
    log_likelihood = site_model.sites.log(site_model.predictor(w))
    numbers = {"log_evidence": found.log_evidence, "log_evidence_error": found.log_evidence_error}
    groups = {
        "posterior": posterior,
        "log_likelihood": _row_dataset(latent, log_likelihood),
        "fit": hyper_dataset(latent, theta, numbers | found.info),
    }
    return groups, {
        "hyper": "fixed",
        "caption": TREATMENTS["fixed"] if latent.hyper else "",
        "weights": list(latent.weights),
        "converged": True,
        "problems": "",
    }


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
    searched = isinstance(hyper, (Evidence, Predictive))
    what = f"{type(hyper).__name__}()" if searched else repr(hyper)
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


def _check_labels(model: Any, values: Mapping[str, Any]) -> None:
    """Refuse new labels of a two-class model that are no codes 0 and 1."""
    card = card_of(model)
    if card is None or card.task != "binary" or "t_observed" not in values:
        return
    codes = np.unique(np.asarray(values["t_observed"]))
    if not np.isin(codes, (0, 1)).all():
        raise InputError(
            f"data: t_observed must hold the codes 0 and 1 (for {card.classes[0]!r} and "  # type: ignore[index]
            f"{card.classes[1]!r}), found {codes[:5].tolist()}"  # type: ignore[index]
        )


def _check_pair(model: Any, name: str) -> None:
    card = card_of(model)
    if card is None or name in MODELS[card.builder].methods:
        return
    entry = MODELS[card.builder]
    reason = entry.reasons.get(name, "no such pair has been built.")
    fits = ", ".join(m for m in entry.methods if m in METHODS)
    raise UnsupportedPair(f"{name} does not fit {card.builder}: {reason} It is fitted by {fits}.")
