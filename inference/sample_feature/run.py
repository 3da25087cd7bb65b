"""The sample-feature machines by VB, by Laplace (the RSFM) and by samplers, and what they predict.

Weights are no invariants: eta does not change under (w, lam) -> (c w, lam / c), c of either sign.
In every tree the sign is fixed so that the lam of the largest mean size is positive; the scale is
the one of q. What can be compared are the products w_i lam_j.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import expit

from ardvark.errors import UnsupportedPair
from ardvark.inference.beliefs import Average, class_table, in_blocks, row_table
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.hyper.settings import Evidence, Fixed
from ardvark.inference.hyper.settle import fixed_values
from ardvark.inference.hyper.stored import stored_theta
from ardvark.inference.running.progress import progress
from ardvark.inference.sample_feature.basis import KernelBasis
from ardvark.inference.sample_feature.rsfm import rsfm, rsfm_state
from ardvark.inference.sample_feature.search import ascend, first_rows
from ardvark.inference.sample_feature.tree import (
    SIDES,
    approximation_groups,
    basis_of,
    eta_of,
    target_of,
)
from ardvark.inference.sample_feature.vb import State, eta_moments
from ardvark.inference.samplers import run as sampler
from ardvark.inference.samplers.convergence import convergence
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import LogitSites
from ardvark.inference.sites.quadrature import quadrature_tilted
from ardvark.inference.tree import TREATMENTS
from ardvark.inference.vb.blocks import Gamma, GaussianBlock, Known
from ardvark.inference.vb.rows import LogisticRows
from ardvark.inference.vb.run import checked_hyper, reached_once, why_not_converged
from ardvark.models.card import card_of

__all__ = ["fit_laplace", "fit_sampler", "fit_vb", "invariants", "predict"]


# --- VB -------------------------------------------------------------------------------------------


def fit_vb(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Ascend from several starts, and draw from the best q."""
    card: Any = card_of(model)
    hyper = checked_hyper(settings.hyper, name)
    given = _given(model, hyper)
    basis, prior = basis_of(model), Gamma(np.array(card.a), np.array(card.b))
    with progress(name, run.progressbar) as tick:
        fit = ascend(
            basis,
            first_rows(*target_of(model), prior, given.get("beta")),
            prior,
            pruning=settings.pruning(sparse=hyper is None),
            starts=settings.starts or 3,
            tolerance=settings.tolerance,
            max_sweeps=settings.max_sweeps,
            memory=settings.memory,
            random_seed=run.seed,
            alpha_w=given.get("alpha_w"),
            alpha_lam=given.get("alpha_lam"),
            tick=tick,
        )
        state = _positive(fit.state)
        groups = approximation_groups(model, state, prior, run)
    groups["fit"] = groups["fit"].assign(
        elbo=("iteration", fit.elbo),
        elbo_whole=fit.whole,
        elbo_starts=("start", np.array(list(fit.ends.values()))),
        n_samples=("iteration", fit.size[:, 0]),
        n_features=("iteration", fit.size[:, 1]),
    )
    return groups, Facts(
        hyper="posterior" if hyper is None else "fixed",
        caption=TREATMENTS["mean field" if hyper is None else "fixed"] + _WITHOUT_TIES,
        weights=SIDES,
        problems=why_not_converged(fit, settings),
        caution=_caution(state) or reached_once(list(fit.ends.values())),
    )


_WITHOUT_TIES = "; w and lam are taken as independent, and mean nothing but by their products"


def _given(model: Any, hyper: Fixed | None) -> dict[str, Array]:
    if hyper is None:
        return {}
    names = tuple(rv.name for rv in model.free_RVs if rv.name not in SIDES)
    return fixed_values(hyper, names)


def _positive(state: State) -> State:
    """Fix the sign: the largest lam, the constant's aside, is positive."""
    own = np.where(state.features > 0, np.abs(state.lam.mean), -1.0)
    if state.lam.mean[np.argmax(own)] >= 0:
        return state
    return state._replace(
        w=state.w._replace(mean=-state.w.mean), lam=state.lam._replace(mean=-state.lam.mean)
    )


def _caution(state: State) -> str:
    if np.any(state.samples > 0) and np.any(state.features > 0):
        return ""
    return (
        "no sample or no feature but the constant is left: the fit is a constant, and no feature "
        "is relevant. Try another gamma, prune=None, or more starts."
    )


# --- Laplace: the RSFM ----------------------------------------------------------------------------


def fit_laplace(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Type-II maximum likelihood with Laplace on each side in turn."""
    hyper = settings.hyper
    if hyper is not None and not isinstance(hyper, (Evidence, Fixed)):
        raise UnsupportedPair(
            f"{name} with hyper={type(hyper).__name__}(): a sample-feature machine takes "
            "Evidence(), which is the RSFM, or Fixed(...)."
        )
    given = _given(model, hyper if isinstance(hyper, Fixed) else None)
    target, classes = target_of(model)
    with progress(name, run.progressbar) as tick:
        fit = rsfm(
            basis_of(model),
            target,
            classes=classes,
            alpha_w=given.get("alpha_w"),
            alpha_lam=given.get("alpha_lam"),
            beta=float(given["beta"]) if "beta" in given else None,
            tick=tick,
        )
        state = rsfm_state(fit, target, classes)
        groups = approximation_groups(model, _positive(state), None, run)
    moving = (
        f"not converged: after {fit.sweeps} sweeps the fitted values still moved by "
        f"{fit.change:.2g} of their size in one."
    )
    treatment = "fixed" if given else "evidence"
    return groups, Facts(
        hyper=treatment,
        caption=TREATMENTS[treatment] + _WITHOUT_TIES,
        weights=SIDES,
        problems=() if fit.converged else (moving,),
        caution=_caution(state),
    )


# --- samplers -------------------------------------------------------------------------------------


def fit_sampler(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample all, with the sign fixed draw by draw.

    Both signs of (w, lam) are equally probable, and so is nearly every scale: draws of weights from
    two chains need not agree where their functions do. The sign is fixed so that the lam of the
    largest mean size is positive; the scale is left to the prior, as the graph has it. R-hat and
    effective sizes are those of the products w_i lam_j, of each row's log likelihood, and of the
    noise.
    """
    if settings.hyper is not None:
        raise UnsupportedPair(
            f"{name} with hyper=Fixed(...): w and lam are no one Gaussian block, so there is no "
            "conditional form of a sample-feature machine. Fix the hyperparameters in the graph, "
            "by pm.do(model, {...}), or leave hyper out."
        )
    if getattr(settings, "until", None) is not None:  # `fit` looks at the checks made here
        settings = replace(settings, until=None, most_draws=None)
    groups, facts = sampler.fit_sampler(model, name, settings, run)
    posterior = groups["posterior"]
    largest = np.argmax(np.abs(posterior["lam"].values[..., 1:]).mean(axis=(0, 1))) + 1
    sign = np.where(posterior["lam"].values[..., largest] < 0, -1.0, 1.0)
    for side in SIDES:
        posterior[side] = posterior[side] * xr.DataArray(sign, dims=("chain", "draw"))
    groups["posterior"] = posterior
    if name == "nuts":
        checked = _checked(posterior, groups["log_likelihood"])
        problems, numbers = convergence(checked, groups["sample_stats"], run.draws)
        facts = replace(facts, problems=problems, sampler={**facts.sampler, **numbers})
    return groups, replace(facts, weights=SIDES)


def _checked(posterior: xr.Dataset, log_likelihood: xr.Dataset) -> xr.Dataset:
    """What does not depend on sign and scale: the products, and the fit of each row."""
    checked = {"product": invariants(posterior), "log_likelihood": log_likelihood["t"]}
    return xr.Dataset(checked | ({"beta": posterior["beta"]} if "beta" in posterior else {}))


def invariants(posterior: xr.Dataset) -> xr.DataArray:
    """Products w_i lam_j (chain, draw, sample, feature) of samples and features, no constants."""
    w, lam = posterior["w"][..., 1:], posterior["lam"][..., 1:]
    return (w * lam).transpose("chain", "draw", "sample_term", "feature_term")


# --- predictions ----------------------------------------------------------------------------------


def predict(model: Any, tree: xr.DataTree, X_new: Array, random_seed: int) -> xr.DataArray:
    """Moments of eta under q, or averages over a sampler's draws.

    A class probability takes eta as Gaussian with these moments.
    """
    basis = basis_of(model, np.asarray(X_new, float))
    classes = target_of(model)[1]
    if "mean_vector" in tree.children.get("fit", {}):
        mean, variance, noise = _by_moments(basis, tree)
        if classes:
            ones = LogitSites(np.ones_like(mean))
            tilted = quadrature_tilted(ones.log, mean, np.maximum(variance, 1e-300))
            positive = np.exp(tilted.log_z)
    else:
        predictor, probability, noise = _by_draws(basis, tree)
        mean, variance, positive = predictor.mean, predictor.variance, probability.mean
    if classes:
        return class_table(model, np.stack([1.0 - positive, positive], axis=1))
    values = np.stack([mean, np.sqrt(variance + noise)], axis=1)
    return row_table(values, "statistic", ["mean", "sd"])


def _by_moments(basis: KernelBasis, tree: xr.DataTree) -> tuple[Array, Array, float]:
    fit = tree["fit"].to_dataset()
    covariance, mean = fit["covariance_matrix"].values, fit["mean_vector"].values
    on, at = fit["active"].values, fit.sizes["sample_term"]
    samples, features = np.flatnonzero(on[:at]), np.flatnonzero(on[at:])
    cut, nothing = len(samples), Known(np.empty(0))
    w, lam = (
        GaussianBlock.of(mean[part], covariance[part, part])
        for part in (slice(None, cut), slice(cut, None))
    )
    rows = LogisticRows(np.ones(basis.shape[0]), np.ones(basis.shape[0]))
    state = State(w, lam, nothing, nothing, rows, samples, features)
    first, second = eta_moments(basis, state)
    theta = stored_theta(tree)
    noise = 1.0 / float(theta["beta"]) if "beta" in theta else 0.0
    return first, np.maximum(second - first**2, 0.0), noise


def _by_draws(basis: KernelBasis, tree: xr.DataTree) -> tuple[Average, Average, float]:
    """Moments of eta and of the probability of the second class over all draws; the noise."""
    posterior = tree["posterior"].to_dataset()
    flat = {}
    for name in ("w", "lam"):
        values = posterior[name].transpose("chain", "draw", ...).values
        flat[name] = values.reshape(-1, values.shape[-1])
    predictor, positive = Average(), Average()
    samples, features = (np.arange(values.shape[1]) for values in flat.values())
    for block in in_blocks(flat):
        eta = eta_of(basis, block["w"], block["lam"], samples, features)
        predictor.add(eta)
        positive.add(expit(eta))
    noise = float((1.0 / posterior["beta"]).mean()) if "beta" in posterior else 0.0
    return predictor, positive, noise
