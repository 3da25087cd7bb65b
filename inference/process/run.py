"""A Gaussian process under the trigonometric likelihood: how it is fitted, and what it predicts.

Laplace works on the support vectors (`dual.py`, `support.py`); at the same κ it is what
the general route gives (a test), faster. Evidence is maximised from several starts, and the tree
keeps every optimum. For a process the predictor is itself the Gaussian block, so new rows x* go by
their covariance k with the training rows:

    f* ~ N(k'r, k** - k'R k),   r = ν - τ m,   R = (K + T⁻¹)⁻¹     Gaussian sites (τ, ν), T = diag τ
    f* | f ~ N(k'K⁻¹f, k** - k'K⁻¹k)                               each draw of a sampler

and the probability of a class is the mass of its site under that Gaussian (the paper has no such
formula). With Laplace τ = Λ, so r and R live on the support vectors.

The settings of `Laplace` (tolerance, max_iterations, space) are for the general route; here the
mode is as good as its duality gap, which is in the tree. Leave-one-out is by the cavities of the
Gaussian sites: importance weights from draws would miss the part of the cavity where a row has no
probability at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy.linalg import cho_solve, solve_triangular

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.approximate import fit_gaussian, gaussian_answer
from ardvark.inference.beliefs import Average, class_table, in_blocks
from ardvark.inference.facts import Answer, Run
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import UNCONSTRAINED, Evidence, Fixed, Sampled
from ardvark.inference.hyper.settle import Settled, fixed_values, settle
from ardvark.inference.hyper.stored import theta_of
from ardvark.inference.laplace import Laplace
from ardvark.inference.process.dual import GAP, curvature
from ardvark.inference.process.evidence import Found, Process, Theta, maximise, random_starts
from ardvark.inference.process.support import support_evidence
from ardvark.inference.running.progress import Tick, progress
from ardvark.inference.samplers.run import fit_sampler, fit_slices
from ardvark.inference.sites.approximation import GaussianFit
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sites.posterior import Posterior, checked_cholesky, condition
from ardvark.inference.sites.trigonometric import TrigonometricSites
from ardvark.models.card import card_of

__all__ = ["fit_process", "predict_process", "sample_process", "slice_process"]

STARTS = 10  # Chu06 section 4


def fit_process(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Approximate f by a Gaussian, at given κ or at those of the largest evidence."""
    if isinstance(settings.hyper, Sampled):
        return _by_cavity(fit_gaussian(model, name, settings, run))
    latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    process = process_of(model)
    found = None
    with progress(name, run.progressbar) as tick:
        hyper = settings.hyper or (Evidence() if latent.hyper else Fixed())
        if isinstance(hyper, Evidence) and latent.hyper:
            settled, found = _by_evidence(latent, process, settings, hyper, tick)
        elif isinstance(hyper, Fixed) and isinstance(settings, Laplace):
            settled = _at(latent, process, fixed_values(hyper, latent.hyper), "fixed")
        else:
            settled = settle(latent, settings, hyper, tick)
        if not isinstance(settings, Laplace):  # a mode at a kink has no third derivative
            settled = settled._replace(fit=settings.completed(settled.model, settled.fit))
        groups, facts = gaussian_answer(latent, settled, run, tick)
    groups["theta"] = groups["theta"].drop_vars("X")
    fit = groups["fit"].assign_coords(row=list(model.coords["row"]))
    if "multiplier" in fit:
        fit["support"] = fit["multiplier"] > 0
    groups["fit"] = fit
    if found is not None:
        groups["optima"] = _optima_group(model, process, found)
    return _by_cavity((groups, facts))


def sample_process(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample by a general sampler."""
    return _by_cavity(fit_sampler(model, name, settings, run))


def slice_process(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample by elliptical slices."""
    groups, facts = fit_slices(model, name, settings, run)
    groups["theta"] = groups["theta"].drop_vars("X")
    return _by_cavity((groups, facts))


def _by_cavity(answer: Answer) -> Answer:
    """Tell diagnostics that importance sampling is not valid here: leave-one-out is by cavities."""
    groups, facts = answer
    return groups, facts.with_extra(loo="cavity")


def process_of(model: Any) -> Process:
    """Rows, labels and covariance of a graph, with its present data."""
    card = card_of(model)
    assert card is not None and card.covariance is not None
    X = np.asarray(model["X"].get_value())
    sign = np.where(model["t_observed"].get_value() == 1, 1.0, -1.0)
    process = Process.of(X, sign, card.covariance)
    return process.given({v.name: v.get_value() for v in model.data_vars})


# Laplace on the support vectors -----------------------------------------------------------------


def _at(
    latent: LatentGaussian, process: Process, theta: dict[str, Array], treatment: str
) -> Settled:
    """Laplace's Gaussian at given κ, from the dual's mode."""
    site_model = latent.at(theta)
    assert site_model.covariance is not None
    found = support_evidence(site_model.covariance, process.sign)
    mode, on = found.mode, found.mode.support
    precision = np.where(on, curvature(mode.alpha), 0.0)
    shift = precision * mode.f + process.sign * mode.alpha
    posterior = condition(Prior(site_model), precision, shift, "functions")
    certified = mode.gap <= GAP * (1.0 + abs(mode.objective))
    fit = GaussianFit(
        posterior=posterior,
        log_evidence=found.log_evidence,
        iterations=mode.iterations,
        converged=bool(certified),
        site_precision=precision,
        site_shift=shift,
        info={"duality_gap": mode.gap, "support_vectors": float(on.sum())},
        by_row={"multiplier": mode.alpha, **_cavities(site_model, posterior)},
    )
    reason = "" if certified else f"the duality gap is {mode.gap:.2g}: the mode is not certified."
    return Settled(theta, site_model, fit, bool(certified), treatment, reason)


def _cavities(model: SiteModel, posterior: Posterior) -> dict[str, Array]:
    """Each row's posterior without its own site, and the probability of its label under that."""
    tau, nu = posterior.site_precision, posterior.site_shift
    variance = np.maximum(posterior.eta_variance, 1e-300)
    cavity = variance / (1.0 - tau * variance)
    mean = posterior.eta_mean - cavity * (nu - tau * posterior.eta_mean)
    log_p = model.sites.tilted(mean, cavity).log_z
    return {
        "cavity_mean": mean,
        "cavity_variance": cavity,
        "log_loo_probability": log_p,
        "loo_probability": np.exp(log_p),
    }


# Evidence, from several starts ------------------------------------------------------------------


def _by_evidence(
    latent: LatentGaussian,
    process: Process,
    settings: Any,
    hyper: Evidence,
    tick: Tick,
) -> tuple[Settled, Found]:
    if hyper.with_prior == UNCONSTRAINED:
        raise UnsupportedPair(
            "the evidence of a process is searched on the natural scale of its kappas: use "
            "Evidence(with_prior=True)."
        )
    support = isinstance(settings, Laplace)
    with_prior = latent.adjoint.log_prior if hyper.with_prior else None
    found = maximise(
        process,
        None if support else settings,
        starts=_starts(process, hyper.start, STARTS if support else 1),
        log_prior=with_prior,
        tolerance=hyper.tolerance,
        max_steps=hyper.max_steps,
        max_rounds=hyper.max_rounds,
        workers=1 if with_prior else os.cpu_count() or 1,  # PyTensor is not for threads
        tick=tick,
    )
    theta, end = found.theta[0], found.optima.ends[0]
    if support:
        settled = _at(latent, process, theta, "evidence")
    else:
        site_model = latent.at(theta)
        fit = settings.approximate(site_model)
        settled = Settled(theta, site_model, fit, fit.converged, "evidence", "")
    if not end.converged:
        reason = f"the search stopped after {end.evaluations} evaluations. Raise max_steps."
        settled = settled._replace(converged=False, reason=reason)
    return settled, found


def _starts(process: Process, start: Any, default: int) -> list[Theta]:
    """The starts asked for: ("random", k[, seed]), a mapping, a list of these, or None."""
    if start is None:
        return list(random_starts(process, default))
    if isinstance(start, list):
        return [one for given in start for one in _starts(process, given, 1)]
    if isinstance(start, Mapping):
        free = {scale.name: scale for scale in process.free}
        if unknown := [name for name in start if name not in free]:
            raise InputError(
                f"start has {unknown[0]!r}, which is no free hyperparameter; these are "
                f"{', '.join(free)}"
            )
        given = {
            n: np.broadcast_to(v, free[n].typical.shape).astype(float) for n, v in start.items()
        }
        return [{**random_starts(process, 1)[0], **given}]
    if isinstance(start, tuple) and start[0] == "random":
        return list(random_starts(process, *start[1:]))
    raise InputError(
        f"start={start!r} is for models whose weights have precisions; here it is ('random', k), "
        f"('random', k, seed), a mapping name → values, or a list of these."
    )


def _optima_group(model: Any, process: Process, found: Found) -> xr.Dataset:
    """Every different optimum, the best first, and the relevances over them."""
    optima = found.optima
    variables: dict[str, Any] = {
        "log_evidence": ("optimum", [end.value for end in optima.ends]),
        "weight": ("optimum", optima.weight),
        "found": ("optimum", optima.found),
        "converged": ("optimum", [end.converged for end in optima.ends]),
        "evaluations": ("optimum", [end.evaluations for end in optima.ends]),
        "relevance": (("optimum", "feature"), optima.relevance),
        "expected_relevance": ("feature", optima.expected_relevance),
        "relevance_sd": ("feature", optima.relevance_spread),
    }
    for scale in process.free:
        dims = ("optimum",) if scale.dims is None else ("optimum", scale.dims)
        variables[scale.name] = (dims, np.array([theta[scale.name] for theta in found.theta]))
    coords = {"feature": list(model.coords["feature"])}
    return xr.Dataset(variables, coords, {"dropped_starts": found.dropped})


# New rows -----------------------------------------------------------------------------------------


def predict_process(
    model: Any, tree: xr.DataTree, X_new: Array, random_seed: int = 0
) -> xr.DataArray:
    """Class probabilities (row, class) at new rows."""
    card = card_of(model)
    assert card is not None
    X = tree["constant_data"].dataset["X"].to_numpy()
    if X.shape[1] != X_new.shape[1]:
        raise InputError(
            f"X_new has {X_new.shape[1]} columns, the tree was fitted to {X.shape[1]}: give it the "
            f"same columns"
        )
    gaussian = "mean_vector" in tree.children.get("fit", {})
    of = _from_gaussian if gaussian else _from_draws
    positive = of(card.covariance, tree, X, np.asarray(X_new, float))
    return class_table(model, np.stack([1.0 - positive, positive], axis=1))


def _from_gaussian(covariance: Any, tree: xr.DataTree, X: Array, X_new: Array) -> Array:
    fit, kappa = tree["fit"].to_dataset(), theta_of(tree, covariance.NAMES)
    tau, mean = fit["site_precision"].values, fit["mean_vector"].values
    pull = fit["site_shift"].values - tau * mean  # K⁻¹ m without the inverse
    cross = covariance(X_new, X, kappa)
    on = np.flatnonzero(tau > 0)
    scale = np.sqrt(tau[on])
    matrix = covariance(X[on], X[on], kappa) * scale * scale[:, None]
    matrix.flat[:: on.size + 1] += 1.0 + covariance.jitter * tau[on]
    lower = checked_cholesky(matrix)
    explained = solve_triangular(lower, (cross[:, on] * scale).T, lower=True)
    variance = covariance.variance(X_new, kappa) - np.square(explained).sum(axis=0)
    return _mass(cross @ pull, variance)


def _from_draws(covariance: Any, tree: xr.DataTree, X: Array, X_new: Array) -> Array:
    posterior = tree["posterior"].to_dataset().stack(sample=("chain", "draw"), create_index=False)
    names = covariance.NAMES
    free = [n for n in names if n in posterior and np.ptp(posterior[n].values, axis=-1).any()]
    constant = tree["constant_data"].to_dataset()
    f = posterior["f"].transpose("sample", ...).values
    at = {n: posterior[n].transpose("sample", ...).values for n in names if n in posterior}

    def belief(sample: int, functions: Array) -> Array:
        kappa = {n: at[n][sample] if n in at else constant[n].values for n in names}
        lower = checked_cholesky(covariance.train(X, kappa, np.eye(len(X))))
        cross = covariance(X_new, X, kappa)
        explained = solve_triangular(lower, cross.T, lower=True)
        variance = covariance.variance(X_new, kappa) - np.square(explained).sum(axis=0)
        mean = cross @ cho_solve((lower, True), functions.T)
        return _mass(mean.T, variance)

    positive = Average()
    if free:  # a Cholesky factor for each draw, as the sampler needed for each of its steps
        for sample in range(len(f)):
            positive.add(belief(sample, f[sample][None]))
    else:
        for block in in_blocks({"f": f}):
            positive.add(belief(0, block["f"]))
    return positive.mean


def _mass(mean: Array, variance: Array) -> Array:
    """Probability of the second class under f* ~ N(mean, variance)."""
    sites = TrigonometricSites(np.ones(mean.shape[-1]))
    return np.exp(sites.tilted(mean, np.maximum(variance, 1e-12)).log_z)
