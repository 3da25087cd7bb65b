"""Softmax models in `fit` and `predict`: approximations, samplers, probabilities.

An answer of "one against the rest" is no posterior of the graph's softmax: `eta` of a class is then
the log odds of it against all others, and its probabilities are 1/(1 + exp(-eta)) divided by their
sum. The root attribute `coupling` says which of the two a tree holds, and so does its caption.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.linalg import block_diag
from scipy.special import log_expit, logsumexp, ndtri

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.approximate import posterior_dataset, row_dataset
from ardvark.inference.ard.sparse_logistic import Machine
from ardvark.inference.beliefs import class_table, flat_draws
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.hyper.settings import Fixed
from ardvark.inference.hyper.settle import fixed_values
from ardvark.inference.hyper.stored import theta_of
from ardvark.inference.methods import METHODS
from ardvark.inference.running.progress import progress
from ardvark.inference.samplers.run import fit_sampler
from ardvark.inference.sites.arrays import Array
from ardvark.inference.softmax.hyper import SettledSoftmax, settle_softmax
from ardvark.inference.softmax.laplace import MultinomialFit
from ardvark.inference.softmax.model import eta_covariance
from ardvark.inference.softmax.one_against_rest import log_odds, log_probabilities
from ardvark.inference.softmax.reading import SoftmaxReading, read_softmax
from ardvark.inference.tree import TREATMENTS, draws_dataset, theta_dataset

__all__ = ["fit_softmax", "mean_probabilities", "predict_softmax", "sample_softmax"]

SOFTMAX, AGAINST_REST = "softmax", "one_against_rest"
_LARGEST_COVARIANCE = 2000  # kept weights; beyond it predictions are made of the draws
NODES = 2048  # of the fixed rule that averages a softmax over a Gaussian
_SEED = 20  # of its scrambling
_CAPTION = (
    "one against the rest: each class has its own two-class machine, whose probabilities are "
    "divided by their sum. This is no posterior of the softmax graph; "
)


def fit_softmax(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Laplace on the softmax, or on K machines of one class against the rest."""
    reading: Any = read_softmax(model)  # has what is asked here of a reading of sites
    with progress(name, run.progressbar) as tick:
        settled = settle_softmax(reading, settings, tick)
    rng, number = np.random.default_rng(run.seed), run.chains * run.draws
    statistics: dict[str, Array] = {}
    if isinstance(settled.fit, MultinomialFit):
        w = settled.fit.draws(number, rng)
        log_likelihood = settled.model.log_likelihood(settled.model.predictor(w))
        statistics = {
            "lp": log_likelihood.sum(axis=-1) + settled.model.log_prior(w),
            "log_approximation": settled.fit.log_density(w),
        }
    else:
        w = _draws_of_machines(settled.fit, number, rng)
        log_likelihood = settled.model.log_likelihood(log_expit(settled.model.predictor(w)))
    posterior = posterior_dataset(reading, run.by_chain(w), settled.theta)
    posterior.attrs["sampling_kind"] = "iid"
    groups = {
        "posterior": posterior,
        "log_likelihood": row_dataset(reading, run.by_chain(log_likelihood)),
        "theta": theta_dataset(reading, settled.theta),
        "fit": _fit_group(reading, settled),
    }
    if statistics:
        named = {key: run.by_chain(value) for key, value in statistics.items()}
        groups["sample_stats"] = draws_dataset(model, named)
    joint = isinstance(settled.fit, MultinomialFit)
    caption = TREATMENTS[settled.treatment] if reading.hyper else ""
    return groups, Facts(
        hyper=settled.treatment,
        caption=caption if joint else _CAPTION + caption,
        weights=reading.weights,
        problems=() if settled.converged else (f"not converged: {settled.reason}",),
        extra={"coupling": SOFTMAX if joint else AGAINST_REST},
    )


def _draws_of_machines(machines: list[Machine], number: int, rng: np.random.Generator) -> Array:
    w = np.zeros((number, len(machines), machines[0].precision.size))
    for k, machine in enumerate(machines):
        if machine.active.size:
            root = np.linalg.cholesky(machine.covariance)
            noise = rng.standard_normal((number, machine.active.size)) @ root.T
            w[:, k, machine.active] = machine.mean + noise
    return w


def _fit_group(reading: SoftmaxReading, settled: SettledSoftmax) -> xr.Dataset:
    names, on = np.array(reading.weight_names), settled.model.on
    kept, bias = on.ravel(), int(reading.bias)
    fit, variables = settled.fit, dict[str, Any]()
    if isinstance(fit, MultinomialFit):
        mean, variance = fit.mean[on], fit.marginal_variance[on]
        covariance = fit.covariance if kept.sum() <= _LARGEST_COVARIANCE else None
        variables["log_evidence"] = fit.log_evidence
        variables["iterations"] = fit.iterations
        variables["decrement"] = fit.decrement
    else:
        mean = np.concatenate([machine.mean for machine in fit])
        variance = np.concatenate([machine.covariance.diagonal() for machine in fit])
        blocks = block_diag(*(machine.covariance for machine in fit))
        covariance = blocks.reshape(mean.size, mean.size)
        evidences = np.array([machine.log_evidence for machine in fit])
        variables["log_evidence_against_rest"] = ("class", evidences)
        variables["iterations"] = max(machine.steps for machine in fit)
    variables |= {
        "mean_vector": ("rows", mean),
        "active": ("weight", kept),
        "active_basis": (("class", reading.design.weights), on[:, bias:]),
        "well_determined": ("rows", 1.0 - variance * settled.model.precision[on]),
    }
    coords = {
        "rows": names[kept],
        "weight": names,
        "class": np.array(reading.classes),
        reading.design.weights: np.array(reading.design.names),
    }
    if covariance is not None and covariance.shape[0] <= _LARGEST_COVARIANCE:
        variables["covariance_matrix"] = (("rows", "columns"), covariance)
        coords["columns"] = names[kept]
    return xr.Dataset(variables, coords=coords)


# --- samplers ---------------------------------------------------------------------------------


def sample_softmax(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample all, or the weights at fixed hyperparameters."""
    fixed = isinstance(settings.hyper, Fixed)
    reading: Any = read_softmax(model, gaussian=fixed)
    if not fixed:
        groups, facts = fit_sampler(model, name, settings, run)
        hyper = "posterior" if reading.hyper else "fixed"
        facts = replace(facts, hyper=hyper, weights=reading.weights)
        return groups, facts.with_extra(coupling=SOFTMAX)
    theta = fixed_values(settings.hyper, reading.hyper)
    softmax_model = reading.at(theta)
    sampled = METHODS[name].load(METHODS[name].sample)(
        _conditional(softmax_model), settings,
        draws=run.draws, chains=run.chains, random_seed=run.seed, progressbar=run.progressbar,
    )  # fmt: skip
    on = softmax_model.on
    u = sampled.posterior["u"].transpose("chain", "draw", ...).values
    w = np.zeros((*u.shape[:2], *on.shape))
    w[..., on] = u / np.sqrt(softmax_model.precision[on])
    posterior = posterior_dataset(reading, w, theta)
    log_likelihood = softmax_model.log_likelihood(softmax_model.predictor(w))
    groups = {
        "posterior": posterior.assign_attrs(sampling_kind="mcmc"),
        "sample_stats": sampled.sample_stats,
        "log_likelihood": row_dataset(reading, log_likelihood),
    }
    return groups, Facts(
        hyper="fixed",
        caption=TREATMENTS["fixed"] if reading.hyper else "",
        weights=reading.weights,
        problems=sampled.problems,
        extra={"coupling": SOFTMAX},
    )


def _conditional(softmax_model: Any) -> Any:
    """Build u ~ N(0, I), w = u / sqrt(alpha) where alpha is finite: easiest for a sampler."""
    import pymc as pm

    from ardvark.models.likelihoods import softmax

    on = softmax_model.on
    if not on.any():
        raise UnsupportedPair(
            "every weight is switched off (infinite precision) at these hyperparameters: nothing "
            "is left to sample"
        )
    place = np.full(on.size, int(on.sum()))
    place[on.ravel()] = np.arange(int(on.sum()))
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, 1.0, shape=int(on.sum()))
        scaled = u / np.sqrt(softmax_model.precision[on])
        w = pm.math.concatenate([scaled, [0.0]])[place.reshape(on.shape)]
        softmax("t", softmax_model.projection @ w.T, observed=softmax_model.codes)
    return model


# --- predictions ------------------------------------------------------------------------------


def predict_softmax(model: Any, tree: xr.DataTree, X_new: Any, random_seed: int) -> xr.DataArray:
    """Probabilities (row, class) at new rows: averaged over the Gaussian, or over the draws.

    The average of a softmax over a Gaussian is by a fixed rule (`mean_probabilities`), of one class
    against the rest in closed form or by quadrature; `random_seed` is not needed.
    """
    reading = read_softmax(model, gaussian=False)
    values = reading.design.new_data(X_new)[reading.design.data]
    fit = tree["fit"].to_dataset() if "fit" in tree.children else xr.Dataset()
    if "covariance_matrix" not in fit:
        return class_table(model, _from_draws(reading, tree, values))
    kept = fit["active"].values
    if kept.size != len(reading.weight_names):
        raise InputError(
            f"tree has {kept.size} weights, the model has {len(reading.weight_names)}: it is the "
            f"tree of another model"
        )
    on = kept.reshape(len(reading.classes), -1)
    theta = theta_of(tree, reading.hyper)
    weights = np.zeros(on.shape)
    weights[on] = fit["mean_vector"].values
    Phi = reading.basis(theta, values)
    mean = Phi @ weights.T
    covariance = eta_covariance(Phi, on, fit["covariance_matrix"].values)
    if tree.attrs.get("coupling") == AGAINST_REST:
        variance = np.maximum(np.einsum("nkk->nk", covariance), 1e-300)
        odds = [log_odds(m, v, "logit") for m, v in zip(mean.T, variance.T, strict=True)]
        return class_table(model, np.exp(log_probabilities(np.column_stack(odds))))
    return class_table(model, mean_probabilities(mean, covariance))


def _from_draws(reading: SoftmaxReading, tree: xr.DataTree, values: Array) -> Array:
    """Average the probabilities of the draws, each with its own kernel scale."""
    scale = () if reading.scale is None else (reading.scale,)
    scales = flat_draws(tree, (*reading.weights, *scale))
    *bias, w = (scales.pop(name) for name in reading.weights)
    w = np.concatenate([*(values[..., None] for values in bias), w], axis=-1)
    total = np.zeros((len(values), len(reading.classes)))
    for i in range(len(w)):
        here = {name: drawn[i] for name, drawn in scales.items()}
        if i == 0 or any(np.any(drawn[i] != drawn[i - 1]) for drawn in scales.values()):
            Phi = reading.basis(here, values)
        eta = Phi @ w[i].T
        if tree.attrs.get("coupling") == AGAINST_REST:
            total += np.exp(log_probabilities(eta))
        else:
            total += np.exp(eta - logsumexp(eta, axis=1, keepdims=True))
    return total / total.sum(axis=1, keepdims=True)


def mean_probabilities(mean: Array, covariance: Array) -> Array:
    """E softmax(eta) for eta_n ~ N(mean_n, covariance_n), RW06 algorithm 3.4: (N, K).

    By a fixed rule, quasi-Monte Carlo: the first `NODES` points of a scrambled Sobol sequence with
    a seed of its own, and their mirror images, taken to the Gaussian; the same for all rows and all
    calls, so equal calls give equal numbers. For predictors of sd 2 errors are near 3e-5 with
    three classes and 2e-4 with ten.
    """
    rows, classes = mean.shape
    centred = covariance - covariance.mean(axis=1, keepdims=True)  # what all share has no effect
    centred = centred - centred.mean(axis=2, keepdims=True)
    values, vectors = np.linalg.eigh(0.5 * (centred + np.swapaxes(centred, 1, 2)))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])[:, :, :0:-1]
    normal = _points(NODES, classes - 1)  # the first are its best: for the largest variances
    found = np.zeros((rows, classes))
    chunk = max(1, int(4e6 / (NODES * classes)))
    for begin in range(0, rows, chunk):
        here = slice(begin, begin + chunk)
        spread = normal @ np.swapaxes(root[here], 1, 2)  # (chunk, nodes, K)
        for sign in (1.0, -1.0):
            eta = mean[here, None, :] + sign * spread
            eta -= eta.max(axis=2, keepdims=True)
            np.exp(eta, out=eta)
            eta /= eta.sum(axis=2, keepdims=True)
            found[here] += eta.mean(axis=1)
    return found / found.sum(axis=1, keepdims=True)


def _points(nodes: int, dimensions: int) -> Array:
    """Standard normal points (nodes, dimensions) that cover it evenly."""
    from scipy.stats.qmc import Sobol  # heavy to import, and needed for predictions only

    power = int(np.ceil(np.log2(nodes)))
    uniform = Sobol(dimensions, rng=np.random.default_rng(_SEED)).random_base2(power)
    return np.asarray(ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12)))
