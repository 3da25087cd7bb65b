"""The tree of a sample-feature machine: draws of both blocks with their densities, and moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ardvark.inference.facts import Run
from ardvark.inference.sample_feature.basis import KernelBasis
from ardvark.inference.sample_feature.vb import State
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.sites.likelihoods import LogitSites
from ardvark.inference.tree import draws_dataset
from ardvark.inference.vb.blocks import Gamma
from ardvark.inference.vb.rows import GammaNoise, GaussianRows
from ardvark.models.card import card_of

__all__ = ["SIDES", "approximation_groups", "basis_of", "eta_of", "target_of"]

_TERMS = {"w": "sample_term", "lam": "feature_term"}
SIDES = tuple(_TERMS)
_LOG_2PI = float(np.log(2.0 * np.pi))
_CHUNK = 2**22  # numbers of eta or of the basis at a time


def basis_of(model: Any, X: Array | None = None) -> KernelBasis:
    """Phi as the graph has it, at its own rows or at new ones."""
    card: Any = card_of(model)
    value = {name: model[name].get_value() for name in ("X", "centres", "gamma")}
    return KernelBasis(
        card.kernel, value["X"] if X is None else X, value["centres"], float(value["gamma"])
    )


def target_of(model: Any) -> tuple[Array, bool]:
    """Targets, or signs ±1 of two classes; and which of the two."""
    observed = model["t_observed"].get_value()
    card: Any = card_of(model)
    if card.task == "binary":
        return 2.0 * np.asarray(observed, float) - 1.0, True
    return np.asarray(observed, float), False


def approximation_groups(
    model: Any, state: State, prior: Gamma | None, run: Run
) -> dict[str, xr.Dataset]:
    """Draws from q with both densities, and its moments."""
    rng, n = np.random.default_rng(run.seed), run.chains * run.draws
    drawn, log_p, log_q = _draw(state, prior, n, rng)
    named = _whole(model, state, drawn)
    beta = drawn.get("beta", np.full(n, np.nan))
    log_likelihood = _log_likelihood(model, drawn["w"], drawn["lam"], beta, state)
    posterior = draws_dataset(model, {v.name: run.by_chain(named[v.name]) for v in model.free_RVs})
    posterior.attrs["sampling_kind"] = "iid"
    stats = {
        "lp": run.by_chain(log_likelihood.sum(axis=1) + log_p),
        "log_approximation": run.by_chain(log_q),
    }
    rows = {"t": run.by_chain(log_likelihood)}
    return {
        "posterior": posterior,
        "log_likelihood": draws_dataset(model, rows, {"t": ("row",)}),
        "sample_stats": draws_dataset(model, stats),
        "theta": _mean_theta(model, state),
        "fit": _fit_group(model, state),
    }


def _draw(
    state: State, prior: Gamma | None, n: int, rng: np.random.Generator
) -> tuple[dict[str, Array], Array, Array]:
    """Draws of what is in the model; log p(weights, θ) and log q of both."""
    drawn, log_p, log_q = dict[str, Array](), np.zeros(n), np.zeros(n)
    for side in SIDES:
        q, alpha = getattr(state, side), getattr(state, f"alpha_{side}")
        w = drawn[side] = q.draws(n, rng)
        log_q += q.log_density(w)
        if isinstance(alpha, Gamma):
            assert prior is not None
            precision = drawn[f"alpha_{side}"] = alpha.draws(n, rng)
            log_q += alpha.log_density(precision).sum(axis=1)
            log_p += prior.log_density(precision).sum(axis=1)
        else:
            precision = drawn[f"alpha_{side}"] = np.tile(alpha.values, (n, 1))
        log_p += 0.5 * np.sum(np.log(precision) - _LOG_2PI - precision * w**2, axis=1)
    if isinstance(state.rows, GaussianRows):
        noise = state.rows.noise
        if isinstance(noise, GammaNoise):
            beta = noise.q.draws(n, rng)
            log_q += noise.q.log_density(beta)
            log_p += noise.prior.log_density(beta)
        else:
            beta = np.full(n, noise.mean)
        drawn["beta"] = beta
    return drawn, log_p, log_q


def _whole(model: Any, state: State, drawn: dict[str, Array]) -> dict[str, Array]:
    """Every weight of the graph: zero, with an infinite precision, if it has left."""
    whole = dict(drawn)
    for side, index in zip(SIDES, (state.samples, state.features), strict=True):
        size = len(model.coords[_TERMS[side]])
        for name, gone in ((side, 0.0), (f"alpha_{side}", np.inf)):
            values = np.full((len(drawn[name]), size), gone)
            values[:, index] = drawn[name]
            whole[name] = values
    return whole


def _mean_theta(model: Any, state: State) -> xr.Dataset:
    """Hyperparameters at their mean; of a side that has left, an infinite precision."""
    variables, coords = dict[str, Any](), dict[str, Any]()
    for side, index in zip(SIDES, (state.samples, state.features), strict=True):
        dim = _TERMS[side]
        coords[dim] = np.array(model.coords[dim])
        alpha = np.full(len(coords[dim]), np.inf)
        alpha[index] = getattr(state, f"alpha_{side}").mean
        variables[f"alpha_{side}"] = (dim, alpha)
    if isinstance(state.rows, GaussianRows):
        # 1 / E(1/beta), so that what a prediction adds is the mean noise variance
        variables["beta"] = 1.0 / _mean_variance(state.rows.noise)
    return xr.Dataset(variables, coords=coords)


def _fit_group(model: Any, state: State) -> xr.Dataset:
    """Mean and covariance of (w, lam), kept weights only."""
    labels, active = list[str](), list[Array]()
    means = np.concatenate([state.w.mean, state.lam.mean])
    covariance = np.zeros((len(means), len(means)))
    covariance[: len(state.w.mean), : len(state.w.mean)] = state.w.covariance
    covariance[len(state.w.mean) :, len(state.w.mean) :] = state.lam.covariance
    for side, index in zip(SIDES, (state.samples, state.features), strict=True):
        names = model.coords[_TERMS[side]]
        kept = np.zeros(len(names), bool)
        kept[index] = True
        active.append(kept)
        labels += [f"{side}[{name}]" for name in names]
    on, weight = np.concatenate(active), np.array(labels)
    variables: dict[str, Any] = {
        "mean_vector": ("rows", means),
        "covariance_matrix": (("rows", "columns"), covariance),
        "active": ("weight", on),
    }
    coords = {"rows": weight[on], "columns": weight[on], "weight": weight}
    dims = {d: np.array(model.coords[d]) for d in _TERMS.values()}
    return xr.Dataset(variables, coords={**coords, **dims})


def _mean_variance(noise: Any) -> float:
    if isinstance(noise, GammaNoise) and noise.q.shape > 1.0:
        return float(noise.q.rate / (noise.q.shape - 1.0))
    return 1.0 / float(noise.mean)


def _log_likelihood(model: Any, w: Array, lam: Array, beta: Array, state: State) -> Array:
    """Log p(t_n | ...) at draws of the weights that are in the model, (draw, row)."""
    target, classes = target_of(model)
    eta = eta_of(basis_of(model), w, lam, state.samples, state.features)
    if classes:
        return LogitSites(target).log(eta)
    precision = beta[:, None]
    return np.asarray(0.5 * (np.log(precision) - _LOG_2PI - precision * (target[None] - eta) ** 2))


def eta_of(basis: KernelBasis, w: Array, lam: Array, samples: Index, features: Index) -> Array:
    """Eta (draw, row) at draws of weights (draw, ...), some rows at a time."""
    rows, n = basis.shape[0], len(w)
    eta = np.empty((n, rows))
    step = max(1, _CHUNK // max(len(samples) * len(features), n * len(features)))
    for start in range(0, rows, step):
        chunk = slice(start, start + step)
        phi = basis.block(chunk, features, samples)  # (rows, J, I)
        seen = phi.reshape(-1, len(samples)) @ w.T  # (rows J, draw)
        eta[:, chunk] = np.sum(seen.reshape(*phi.shape[:2], n) * lam.T[None], axis=1).T
    return eta
