"""How each kind of method becomes groups of a tree: approximations and exact draws.

`fit.py` is the door; here a `SiteModel` meets a rule, and the answer gets its names back. Samplers
are in `samplers/run.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.errors import UnsupportedPair
from ardvark.inference.graph.compile import quick
from ardvark.inference.graph.forms import stored_names
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import Fixed, Sampled, fixed_values, settle
from ardvark.inference.hyper.settled import Settled
from ardvark.inference.methods import METHODS
from ardvark.inference.progress import progress
from ardvark.inference.sites.likelihoods import Array, GaussianSites
from ardvark.inference.sites.model import least_noise
from ardvark.inference.tree import (
    TREATMENTS,
    dims_of,
    draws_dataset,
    fit_dataset,
    hyper_dataset,
    path_group,
)

__all__ = [
    "Answer",
    "Run",
    "fit_exact",
    "fit_gaussian",
    "gaussian_answer",
    "named_dataset",
    "posterior_dataset",
    "row_dataset",
]

_PERFECT = 1e-3  # residual, relative to the target's sd: less is no noise at all
_WIDEST = 10.0  # prior sd of eta from one weight beyond which sites are all tail

type Answer = tuple[dict[str, Any], dict[str, Any]]  # groups of the tree, facts for its root


class Run(NamedTuple):
    """What a fit was asked for, beside model and method."""

    draws: int
    chains: int
    seed: int
    progressbar: bool


def fit_gaussian(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Settle the hyperparameters, approximate the weights, and draw from the Gaussian."""
    if isinstance(settings.hyper, Sampled):
        from ardvark.inference.sampled.run import fit_sampled  # numba: not for the others

        return fit_sampled(model, name, settings, run)
    latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    with progress(name, run.progressbar) as tick:
        settled = settle(latent, settings, settings.hyper, tick)
        settled = settled._replace(fit=settings.completed(settled.fit))
        return gaussian_answer(latent, settled, run, tick)


def gaussian_answer(
    latent: LatentGaussian, settled: Settled, run: Run, tick: Callable[[str], None]
) -> Answer:
    """Draw from a Gaussian that was settled on, and give everything its name."""
    rng = np.random.default_rng(run.seed)
    w = settled.fit.posterior.draws(run.chains * run.draws, rng)
    tick("log likelihood of the draws")
    eta = settled.model.predictor(w)
    log_likelihood = settled.model.sites.log(eta)
    joint = log_likelihood.sum(axis=-1) + settled.fit.posterior.prior.log_density(w)
    approximation = settled.fit.posterior.log_density(w)
    shape = (run.chains, run.draws)
    posterior = posterior_dataset(latent, w.reshape((*shape, -1)), settled.theta)
    posterior.attrs["sampling_kind"] = "iid"
    groups = {
        "posterior": posterior,
        **path_group(latent, settled),
        "log_likelihood": row_dataset(latent, log_likelihood.reshape((*shape, -1))),
        "sample_stats": draws_dataset(
            latent.model,
            {
                "lp": joint.reshape(shape),
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
    if settled.treatment == "fixed":
        return ""
    if isinstance(settled.model.sites, GaussianSites):
        return _nothing_left(settled, settled.model.sites)
    prior = settled.fit.posterior.prior
    if settled.path is None or prior.variance is None:
        return ""
    spread = np.sqrt(prior.variance) * prior.projection.std(axis=0)  # prior sd of eta, by weight
    if not spread.size or spread.max() <= _WIDEST:
        return ""
    name = np.array(latent.weight_names)[prior.on][np.argmax(spread)]
    off = settled.fit.info.get("log_evidence_correction")
    known = "" if off is None else f" (EP's evidence by {off:+.2g} to second order)"
    return (
        f"the search has given {name} a prior under which eta has sd {spread.max():.3g}, as it "
        f"does on separable data: there EP and Laplace are off by tenths of a nat in the evidence "
        f"and in the tails{known}. Check the fit with Exact(hyper=Fixed(tree)) or "
        f"NUTS(hyper=Fixed(tree))."
    )


def _nothing_left(settled: Settled, sites: GaussianSites) -> str:
    """Say so where a target is explained to the last, or the noise is at its bound."""
    rows, weights = settled.fit.posterior.prior.projection.shape
    residual = np.sqrt(np.mean((settled.fit.posterior.eta_mean - sites.mean) ** 2))
    least = least_noise(sites.mean)
    at_bound = least > 0 and abs(float(np.max(sites.precision)) ** -0.5 / least - 1.0) < 1e-3
    perfect = settled.path is not None and residual <= _PERFECT * sites.mean.std()
    if not (perfect or at_bound):
        return ""
    bound = f" (it is at its bound, {least:.2g}: centre the target if that is much)"
    return (
        f"the search has explained {rows} targets by {weights} weights with a residual of "
        f"{residual:.1g}, where they have a size of {np.abs(sites.mean).max():.1g}: nothing is "
        f"left for noise{bound if at_bound else ''}, and the evidence has no maximum worth the "
        f"name. Fix the noise, or use NUTS."
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


def fit_exact(model: Any, name: str, settings: Any, run: Run) -> Answer:
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
    posterior = posterior_dataset(latent, w, theta)
    posterior.attrs["sampling_kind"] = "iid"
    log_likelihood = site_model.sites.log(site_model.predictor(w))
    numbers = {"log_evidence": found.log_evidence, "log_evidence_error": found.log_evidence_error}
    groups = {
        "posterior": posterior,
        "log_likelihood": row_dataset(latent, log_likelihood),
        "fit": hyper_dataset(latent, theta, numbers | found.info),
    }
    return groups, {
        "hyper": "fixed",
        "caption": TREATMENTS["fixed"] if latent.hyper else "",
        "weights": list(latent.weights),
        "converged": True,
        "problems": "",
    }


def posterior_dataset(latent: LatentGaussian, w: Array, theta: Mapping[str, Array]) -> xr.Dataset:
    """Draws of the weights; θ as constants, since PyMC would draw missing ones at random."""
    constant = {
        name: np.broadcast_to(value, (*w.shape[:2], *np.shape(value)))
        for name, value in theta.items()
    }
    return named_dataset(latent.model, {**constant, **latent.split(w)}, latent.predictor)


def named_dataset(model: Any, named: Mapping[str, Array], predictor: str) -> xr.Dataset:
    """Draws of every free variable, and of what else a tree stores."""
    posterior = draws_dataset(model, {rv.name: named[rv.name] for rv in model.free_RVs})
    derived = [n for n in stored_names(model, predictor) if n not in posterior]
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


def row_dataset(latent: LatentGaussian, values: Array) -> xr.Dataset:
    """Values (chain, draw, row) under the name and dims of the observed variable."""
    dims = {latent.observed: dims_of(latent.model, latent.observed, 1)}
    return draws_dataset(latent.model, {latent.observed: values}, dims)
