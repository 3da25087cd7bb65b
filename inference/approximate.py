"""How each kind of method becomes groups of a tree: approximations and exact draws.

`fit.py` calls these functions: a rule is applied to a `SiteModel`, and the result gets its names.
Samplers are in `samplers/run.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.errors import UnsupportedPair
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.pareto import HIGH, Smoothed, smooth
from ardvark.inference.hyper.settings import Fixed, Integrated, Sampled
from ardvark.inference.hyper.settle import Settled, default_hyper, fixed_values, settle
from ardvark.inference.methods import METHODS
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.pymc_models.forms import stored_names
from ardvark.inference.running.progress import Tick, progress, silent
from ardvark.inference.sites.approximation import mean_shifts, sd_shifts
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.model import SiteModel, least_noise
from ardvark.inference.tree import (
    TREATMENTS,
    dims_of,
    draws_dataset,
    fit_dataset,
    path_group,
    theta_dataset,
)
from ardvark.models.card import card_of

__all__ = [
    "Estimate",
    "GivenTheta",
    "accuracy",
    "affordable",
    "estimated",
    "fit_exact",
    "fit_gaussian",
    "gaussian_answer",
    "named_dataset",
    "posterior_dataset",
    "row_dataset",
]

_PERFECT = 1e-3  # residual, relative to the target's sd: less is no noise at all
_SHIFTED = 0.1  # sd: a larger shift of a mean is worth a warning
_FIRST_ORDER = 0.5  # sd: a first-order shift beyond which a tenth of an sd is left to higher orders
_NO_MEAN = 1.0  # k-hat beyond which the weights have no mean
_NARROWED = 0.1  # of an sd
_LARGEST_TREE = 2 * 10**8  # numbers in the draws of a sparse model, 1.6 GB
_LEAST_DRAWS = 25  # a chain
_WIDEST = 10.0  # prior sd of eta from one weight beyond which sites are all tail


def fit_gaussian(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Settle the hyperparameters, approximate the weights, and draw from the Gaussian."""
    if isinstance(settings.hyper, Sampled):
        from ardvark.inference.sampled.run import fit_sampled  # chains: not for the others

        return fit_sampled(model, name, settings, run)
    wanted = {"auto": None, "sparse": True}.get(settings.space, False)
    latent = read_model(
        model, weights=settings.weights, predictor=settings.predictor, sparse=wanted
    )
    hyper = default_hyper(latent) if settings.hyper is None else settings.hyper
    with progress(name, run.progressbar) as tick:
        if isinstance(hyper, Integrated):
            from ardvark.inference.hyper.run_integrated import fit_integrated  # SciPy's optimisers

            return fit_integrated(latent, settings, hyper, run, tick)
        settled = settle(latent, settings, hyper, tick)
        settled = settled._replace(fit=settings.completed(settled.model, settled.fit))
        return gaussian_answer(latent, settled, run, tick)


def gaussian_answer(latent: LatentGaussian, settled: Settled, run: Run, tick: Tick) -> Answer:
    """Draw from a Gaussian that was settled on, and give everything its name."""
    rng = np.random.default_rng(run.seed)
    run, fewer = affordable(run, settled.model)
    w = settled.fit.posterior.draws(run.chains * run.draws, rng)
    tick("log likelihood of the draws")
    eta = settled.model.predictor(w)
    log_likelihood = settled.model.sites.log(eta)
    joint = log_likelihood.sum(axis=-1) + settled.fit.posterior.prior.log_density(w)
    approximation = settled.fit.posterior.log_density(w)
    tail = smooth(joint - approximation)
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
        "theta": theta_dataset(latent, settled.theta),
        "fit": fit_dataset(latent, settled),
    }
    return groups, Facts(
        hyper=settled.treatment,
        caption=TREATMENTS[settled.treatment] if latent.hyper else "",
        weights=latent.weights,
        problems=() if settled.converged else (_why(settled),),
        caution="; ".join(filter(None, (_caution(latent, settled, tail), fewer))),
        extra={"k_hat": tail.k_hat, "k_hat_se": tail.error},
    )


def affordable(run: Run, site_model: SiteModel) -> tuple[Run, str]:
    """As many of the requested draws as a tree can hold, and a message if not all."""
    rows, weights = site_model.projection.shape
    if not site_model.sparse:
        return run, ""
    draws = _LARGEST_TREE // (run.chains * (2 * rows + weights))
    if draws >= run.draws:
        return run, ""
    draws = max(int(draws), _LEAST_DRAWS)
    size = 8e-9 * run.chains * run.draws * (2 * rows + weights)
    return run._replace(draws=draws), (
        f"{run.chains} x {run.draws} draws of {weights} weights and {rows} rows would take "
        f"{size:.0f} GB: {draws} a chain are in the tree; means and variances of all weights are "
        f"in its fit group"
    )


def _caution(latent: LatentGaussian, settled: Settled, tail: Smoothed) -> str:
    """Warn of a search that ended where no result can be trusted, or of a poor Gaussian."""
    own = ""
    if card_of(latent.model) is None:  # else `compare` and the report say it
        found, variance = settled.fit.by_weight, settled.fit.posterior.marginal_variance
        estimate = estimated(latent, found, variance)._replace(
            moved="mean_corrected" in settled.fit.info, laplace="decrement" in settled.fit.info
        )
        own = accuracy(estimate, tail.k_hat, tail.error)
    return "; ".join(filter(None, (_badly_settled(latent, settled), own)))


class Estimate(NamedTuple):
    """The errors that an approximation estimates of itself: the largest, and of which weight."""

    mean_shift: float = math.nan  # of a mean, in posterior sds
    mean_of: str = ""
    sd_shift: float = math.nan  # of an sd, as a share of it
    sd_of: str = ""
    theta_shift: float = math.nan  # of the mean of a hyperparameter φ, in posterior sds
    theta_of: str = ""
    moved: bool = False  # the means have been moved by the first
    laplace: bool = False  # of Laplace: there is a better rule, and a correction


def estimated(latent: LatentGaussian, found: Mapping[str, Array], variance: Array) -> Estimate:
    """The largest of `mean_correction` and `variance_correction`, by the posterior's variances."""
    estimate = Estimate()
    if "mean_correction" in found and variance.size:
        shift = mean_shifts(found["mean_correction"], variance)
        at = int(np.argmax(shift))
        estimate = estimate._replace(mean_shift=float(shift[at]), mean_of=latent.weight_names[at])
    if "variance_correction" in found and variance.size:
        shift = sd_shifts(found["variance_correction"], variance)
        at = int(np.argmax(shift))
        estimate = estimate._replace(sd_shift=float(shift[at]), sd_of=latent.weight_names[at])
    return estimate


def accuracy(own: Estimate, k_hat: float, error: float = math.nan) -> str:
    """A warning with the approximation's own estimate of its error where that is large, else ""."""
    said = []
    if own.moved and own.mean_shift > _FIRST_ORDER:
        said.append(
            f"the mean of {own.mean_of} was moved by {own.mean_shift:.2f} sd (more than "
            f"{_FIRST_ORDER}): what a correction of first order leaves is then no longer small"
        )
    if not own.moved and own.mean_shift > _SHIFTED:
        said.append(
            f"the approximation's own estimate is that the mean of {own.mean_of} is off by "
            f"{own.mean_shift:.2f} sd (more than {_SHIFTED})"
        )
    if own.sd_shift > _NARROWED:
        said.append(
            f"its own estimate is that the sd of {own.sd_of} is off by {own.sd_shift:.0%} (more "
            f"than {_NARROWED:.0%})"
        )
    if own.theta_shift > _SHIFTED:
        said.append(
            f"its own estimate is that the mean of the hyperparameter {own.theta_of} is off by "
            f"{own.theta_shift:.2f} sd, from what the evidence leaves out"
        )
    # Where means and sds have estimates of their own, k-hat is about the tails alone.
    high = HIGH if math.isnan(own.sd_shift) else _NO_MEAN
    if k_hat > high:
        sure = not k_hat - error <= high
        known = "" if math.isnan(error) else f" ± {error:.2f}"
        said.append(
            f"k-hat of the importance weights towards the posterior is {k_hat:.2f}{known} "
            f"({'more than' if sure else 'within its error of'} {high}): its tails "
            f"{'are not' if sure else 'may not be'} those of the approximation"
        )
    others = "NUTS()"
    if own.laplace:
        others = "EP() or NUTS()" if own.moved else "EP(), Laplace(corrected=True) or NUTS()"
    return "; ".join(said) + f". Compare with {others} before relying on it." if said else ""


def _badly_settled(latent: LatentGaussian, settled: Settled) -> str:
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
    """Warn of a target that is fitted perfectly, or of a noise at its bound."""
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
        f"left for noise{bound if at_bound else ''}, and the evidence has no maximum inside the "
        f"bounds. Fix the noise, or use NUTS."
    )


def _why(settled: Settled) -> str:
    if settled.reason:
        return f"not converged: {settled.reason}"
    numbers = ", ".join(f"{k} {v:.3g}" for k, v in settled.fit.info.items())
    return (
        f"the approximation did not converge in {settled.fit.iterations} iterations ({numbers}). "
        f"Raise its own limit (max_iterations, max_sweeps), or look at the data."
    )


class GivenTheta(NamedTuple):
    """A graph at given hyperparameters, and what any draws of its weights put into a tree."""

    latent: LatentGaussian
    theta: dict[str, Array]
    site_model: SiteModel

    @staticmethod
    def of(model: Any, settings: Any, why: str = "") -> GivenTheta:
        """Read the graph; free hyperparameters that are not given are refused for the reason."""
        latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
        if latent.hyper and not isinstance(settings.hyper, Fixed):
            raise UnsupportedPair(why.format(free=", ".join(latent.hyper)))
        theta = fixed_values(settings.hyper or Fixed(), latent.hyper)
        return GivenTheta(latent, theta, latent.at(theta))

    def groups(self, weights: Array, sampling_kind: str) -> dict[str, xr.Dataset]:
        """Draws (chain, draw, d) as groups of a tree."""
        posterior = posterior_dataset(self.latent, weights, self.theta)
        log_likelihood = self.site_model.sites.log(self.site_model.predictor(weights))
        return {
            "posterior": posterior.assign_attrs(sampling_kind=sampling_kind),
            "log_likelihood": row_dataset(self.latent, log_likelihood),
            "theta": theta_dataset(self.latent, self.theta),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What such a fit says of itself."""
        caption = TREATMENTS["fixed"] if self.latent.hyper else ""
        return {"hyper": "fixed", "caption": caption, "weights": self.latent.weights}


def fit_exact(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Independent draws at given hyperparameters: a reference without a Markov chain."""
    why = (
        f"{name} needs hyper=Fixed(...): no exact posterior is known with free {{free}}. Give "
        f"values, or the tree of another fit: {METHODS[name].settings}(hyper=Fixed(tree))."
    )
    given = GivenTheta.of(model, settings, why)
    rng = np.random.default_rng(run.seed)
    with progress(name, run.progressbar) as tick:
        tick("independent draws")
        found = settings.sample(given.site_model, run.chains * run.draws, rng)
    weights = found.weights.reshape((run.chains, run.draws, -1))
    numbers = {"log_evidence": found.log_evidence, "log_evidence_error": found.log_evidence_error}
    groups = given.groups(weights, "iid") | {"fit": xr.Dataset(numbers | found.info)}
    return groups, Facts(**given.facts)


def posterior_dataset(latent: LatentGaussian, w: Array, theta: Mapping[str, Array]) -> xr.Dataset:
    """Draws of the weights; θ as constants, since PyMC would draw missing ones at random."""
    constant = {
        name: np.broadcast_to(value, (*w.shape[:2], *np.shape(value)))
        for name, value in theta.items()
    }
    return named_dataset(latent.model, {**constant, **latent.split(w)}, latent.predictor)


def named_dataset(model: Any, named: Mapping[str, Array], predictor: str) -> xr.Dataset:
    """Draws of every free variable, and of what else a tree stores.

    Free variables that are not given, since nothing observed depends on them (imputed values), are
    drawn from their own distribution.
    """
    free = [rv.name for rv in model.free_RVs]
    posterior = draws_dataset(model, {name: named[name] for name in free if name in named})
    if missing := [name for name in free if name not in named]:
        posterior = posterior.merge(_forward(model, posterior, missing))[free]
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


def _forward(model: Any, posterior: xr.Dataset, names: list[str]) -> xr.Dataset:
    """Draws of variables given all others, one for each draw of the posterior."""
    import pymc as pm

    with quick(), silent("pymc.sampling.forward"):
        drawn = pm.sample_posterior_predictive(
            xr.DataTree.from_dict({"posterior": posterior}),
            model=model,
            var_names=names,
            random_seed=0,  # the draws that it starts from have the seed of the fit
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    made: xr.Dataset = drawn["posterior_predictive"].to_dataset()[names]
    return made


def row_dataset(latent: LatentGaussian, values: Array) -> xr.Dataset:
    """Values (chain, draw, row) under the names and dims of the observed variables."""
    model, draws = latent.model, latent.by_observed(values)
    dims = {n: dims_of(model, n, v.ndim - 2)[: v.ndim - 2] for n, v in draws.items()}
    return draws_dataset(model, draws, dims)
