"""`fit` with `hyper=Integrated()`: draws from the weighted nodes as groups of a tree.

Each draw takes a node θ_k by its weight and w from the node's Gaussian, so its log density under
the approximation and in the graph are known,

    log q(w, θ) = log q(w | θ) + log p̂(θ | t),     lp = log p(t, w | θ) + log p(θ)

both on the natural scale of θ, and k-hat of the joint with them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.approximate import (
    Estimate,
    accuracy,
    affordable,
    estimated,
    named_dataset,
    row_dataset,
)
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.graph.chart import improper_hyper
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.hyper.integrated import Mixture, Nested, Node
from ardvark.inference.hyper.pareto import HIGH, allocate, smooth
from ardvark.inference.hyper.settings import Integrated
from ardvark.inference.laplace import Laplace
from ardvark.inference.running.progress import Tick
from ardvark.inference.sites.approximation import mean_shifts
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import Posterior, condition
from ardvark.inference.tree import TREATMENTS, draws_dataset, nodes_dataset, theta_dataset

__all__ = ["fit_integrated"]

_KNOWN = 0.95  # of the mass, at whose nodes an estimate must be known
_LARGE = 2000  # weights of a sparse model, of which a tree may hold few draws
_COUNTS = 1e-3  # of the largest weight of a node
_OVERSAMPLED = 4  # draws from which a corrected one is taken


class _Draws(NamedTuple):
    """Draws (S, ...) of everything."""

    weights: Array
    node: NDArray[np.intp]  # its place in the mixture
    log_likelihood: Array  # (S, N)
    lp: Array
    log_approximation: Array

    def taken(self, places: NDArray[np.intp]) -> _Draws:
        return _Draws._make(part[places] for part in self)


def fit_integrated(
    latent: LatentGaussian, settings: Any, hyper: Integrated, run: Run, tick: Tick
) -> Answer:
    """Integrate the hyperparameters out, and draw from the mixture of Gaussians."""
    if not latent.hyper:
        raise UnsupportedPair(
            "hyper=Integrated() has nothing to integrate: the model has no free hyperparameter. "
            "Leave hyper out."
        )
    for name in latent.hyper:
        if "node" in (latent.model.named_vars_to_dims.get(name) or ()):
            raise InputError(
                f"model: the hyperparameter {name!r} has a dim 'node', which is how "
                "hyper=Integrated() calls its points. Give the dim of the model another name."
            )
    rng = np.random.default_rng(run.seed)
    run, fewer = affordable(run, latent.at(latent.initial_theta()))
    mixture = Nested(latent, settings, tick).run(hyper, rng)
    draws = _drawn(latent, settings, mixture, hyper, run, rng, tick)
    tail = smooth(draws.lp - draws.log_approximation)
    if hyper.correct:
        count = allocate(tail.log_weight, run.chains * run.draws, rng)
        draws = draws.taken(rng.permutation(np.repeat(np.arange(count.size), count)))
    improper = improper_hyper(latent)
    mended = hyper.correct and tail.k_hat <= HIGH
    own = estimated(latent, _errors(mixture), draws.weights.var(axis=0))
    shift, label = _theta_shift(mixture)
    moved = _moves(settings)
    laplace = isinstance(settings, Laplace)
    own = own._replace(moved=moved, theta_shift=shift, theta_of=label, laplace=laplace)
    groups = _groups(latent, mixture, draws, hyper, run, improper, own)
    if latent.sparse is not None and latent.n_weights > _LARGE:
        tick("means and variances of all weights")
        found = _marginals(latent, settings, mixture)
        named = groups["fit"].assign_coords(weight=list(latent.weight_names))
        groups["fit"] = named.assign({n: ("weight", v) for n, v in found.items()})
    return groups, Facts(
        hyper="integrated",
        caption=TREATMENTS["integrated"] + _more(hyper, improper),
        weights=latent.weights,
        problems=[f"hyperparameters: {problem}" for problem in mixture.problems],
        caution="; ".join(
            filter(None, ("" if mended else accuracy(own, tail.k_hat, tail.error), fewer))
        ),
        extra={"k_hat": tail.k_hat, "k_hat_se": tail.error},
    )


def _more(hyper: Integrated, improper: list[str]) -> str:
    corrected = "; draws resampled by importance weights" if hyper.correct else ""
    flat = f"; the prior of {', '.join(improper)} is improper, so there is no evidence"
    return corrected + (flat if improper else "")


def _drawn(
    latent: LatentGaussian,
    settings: Any,
    mixture: Mixture,
    hyper: Integrated,
    run: Run,
    rng: np.random.Generator,
    tick: Tick,
) -> _Draws:
    """Draws in random order: so many from each node as its weight says."""
    total = run.chains * run.draws * (_OVERSAMPLED if hyper.correct else 1)
    count = allocate(mixture.log_weight, total, rng)
    parts = []
    for k in np.flatnonzero(count):
        tick(f"draws of the weights, node {k + 1} of {count.size}")
        node = mixture.nodes[k]
        site_model = latent.at(node.theta, node.likelihood)
        posterior = _posterior_at(node, site_model, settings, mixture)
        w = posterior.draws(int(count[k]), rng)
        log_likelihood = site_model.sites.log(site_model.predictor(w))
        log_joint = log_likelihood.sum(axis=-1) + posterior.prior.log_density(w)
        log_theta = node.log_density - mixture.integral.log_integral - node.log_jacobian
        parts.append(
            _Draws(
                w,
                np.full(len(w), k),
                log_likelihood,
                log_joint + node.log_prior,
                posterior.log_density(w) + log_theta,
            )
        )
    every = _Draws(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return every.taken(rng.permutation(total).astype(np.intp))


def _posterior_at(node: Node, site_model: SiteModel, settings: Any, mixture: Mixture) -> Posterior:
    """The Gaussian of a node, from its sites or made again."""
    if node.has_sites:
        return condition(site_model, node.site_precision, node.site_shift, settings.space)
    method = settings.loosened()
    fit = method.approximate(site_model, mixture.warm)
    fit = method.completed(site_model, fit) if _moves(settings) else fit
    found: Posterior = fit.posterior
    return found


def _moves(settings: Any) -> bool:
    """Whether the means are moved by a correction."""
    return bool(getattr(settings, "corrected", False))


def _marginals(latent: LatentGaussian, settings: Any, mixture: Mixture) -> dict[str, Array]:
    """Means and variances of all weights of a large model, over the nodes that count."""
    weight = np.exp(mixture.log_weight)
    first, second, total = 0.0, 0.0, 0.0
    for share, node in zip(weight, mixture.nodes, strict=True):
        if share > _COUNTS * weight.max():
            site_model = latent.at(node.theta, node.likelihood)
            posterior = _posterior_at(node, site_model, settings, mixture)
            first = first + share * posterior.mean
            second = second + share * (posterior.marginal_variance + posterior.mean**2)
            total += share
    mean = np.asarray(first / total)
    return {"weight_mean": mean, "weight_variance": np.asarray(second / total - mean**2)}


def _errors(mixture: Mixture) -> dict[str, Array]:
    """Errors of means and variances that the approximation estimates, averaged over the nodes."""
    weight = np.exp(mixture.log_weight)
    found = dict[str, Array]()
    for name in ("mean_correction", "variance_correction"):
        at = [k for k, node in enumerate(mixture.nodes) if name in node.errors]
        if at:
            values = [mixture.nodes[k].errors[name] for k in at]
            found[name] = np.average(values, axis=0, weights=weight[at])
    return found


def _theta_shift(mixture: Mixture) -> tuple[float, str]:
    """How far the mean of a hyperparameter would move with what the evidence leaves out, in sds.

    On the unconstrained scale; NaN where that is not known of all the mass.
    """
    left_out = np.array([node.left_out for node in mixture.nodes])
    before, known = np.exp(mixture.log_weight), np.isfinite(left_out)
    if before[known].sum() < _KNOWN * before.sum():
        return math.nan, ""
    phi = mixture.phi[known]
    log_after = mixture.log_weight[known] + left_out[known]
    after = np.exp(log_after - logsumexp(log_after))
    mean = np.average(phi, axis=0, weights=before[known])
    variance = np.average((phi - mean) ** 2, axis=0, weights=before[known])
    shift = mean_shifts(after @ phi - mean, variance)
    at = int(np.argmax(shift))
    return float(shift[at]), mixture.labels[at]


def _groups(
    latent: LatentGaussian,
    mixture: Mixture,
    draws: _Draws,
    hyper: Integrated,
    run: Run,
    improper: list[str],
    own: Estimate,
) -> dict[str, Any]:
    model, nodes = latent.model, mixture.nodes
    by_node = {name: np.stack([node.theta[name] for node in nodes]) for name in latent.hyper}
    named = {name: run.by_chain(values[draws.node]) for name, values in by_node.items()}
    named |= latent.split(run.by_chain(draws.weights))
    posterior = named_dataset(model, named, latent.predictor)
    posterior.attrs["sampling_kind"] = "iid"
    stats = {"lp": run.by_chain(draws.lp)}
    if not hyper.correct:  # corrected draws are not the approximation's
        stats["log_approximation"] = run.by_chain(draws.log_approximation)
    return {
        "posterior": posterior,
        "log_likelihood": row_dataset(latent, run.by_chain(draws.log_likelihood)),
        "sample_stats": draws_dataset(model, stats),
        "theta": theta_dataset(latent, mixture.mode),
        "theta_nodes": nodes_dataset(latent, by_node),
        "fit": _fit_group(latent, mixture, improper, own),
    }


def _fit_group(
    latent: LatentGaussian, mixture: Mixture, improper: list[str], own: Estimate
) -> xr.Dataset:
    """Nodes, weights, evidence at each, and with the hyperparameters integrated out."""
    integral = mixture.integral
    correction = np.array([node.correction for node in mixture.nodes])
    shift = float(-logsumexp(mixture.log_weight - correction))  # of the integral, by the correction
    numbers = {
        "log_evidence": math.nan if improper else integral.log_integral - shift,
        "log_evidence_node_error": integral.error,
        "node_k_hat": integral.k_hat,
        "node_effective_size": integral.effective,
        "edge_mass": integral.edge,
        "mean_shift": own.mean_shift,
        "sd_shift": own.sd_shift,
        "hyper_shift": own.theta_shift,
    }
    if correction.any():
        numbers["log_evidence_correction"] = shift
    variables: dict[str, Any] = {
        "node_phi": (("node", "unconstrained"), mixture.phi),
        "node_weight": ("node", np.exp(mixture.log_weight)),
        "node_log_evidence": ("node", np.array([n.log_evidence for n in mixture.nodes])),
        "node_log_evidence_correction": ("node", correction),
        "node_log_prior": ("node", np.array([n.log_prior for n in mixture.nodes])),
        "node_converged": ("node", np.array([n.converged for n in mixture.nodes])),
    }
    errors = _errors(mixture)
    variables |= {name: ("weight", values) for name, values in errors.items()}
    coords = {"unconstrained": mixture.labels}
    if errors:
        coords["weight"] = list(latent.weight_names)
    return xr.Dataset(variables | numbers, coords=coords)
