"""Mean-field VB of a Gaussian block times sites, from the graph to the groups of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.errors import UnsupportedPair
from ardvark.inference.approximate import named_dataset, row_dataset
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import Fixed
from ardvark.inference.hyper.settle import fixed_values
from ardvark.inference.running.progress import Tick, progress
from ardvark.inference.sites.arrays import Array
from ardvark.inference.tree import TREATMENTS, covariance_variables, draws_dataset, theta_dataset
from ardvark.inference.vb.blocks import Gamma
from ardvark.inference.vb.linear import LinearFit, ascend_linear
from ardvark.inference.vb.reading import Roles, fixed_plan, log_prior, read_roles, rows_of
from ardvark.inference.vb.rows import FixedRows, FreeNoise, GaussianRows

__all__ = ["ascend", "checked_hyper", "fit_vb", "hyper_draws", "reached_once", "why_not_converged"]

_SEARCH = 3.5  # how far from its prior mean a scale is looked for, in logs
_STEPS = 8  # of the scan; then the best interval is refined
_FINE = 0.02  # to this much in the log
_NEAR = 1.0  # nats below the best end, within which another start has found it too


class _Ended(NamedTuple):
    """An ascent, and the values of the hyperparameters that were not inferred in it."""

    fit: LinearFit
    theta: dict[str, Array]
    value: float  # ELBO, with the log prior of a scale that was searched for


def fit_vb(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Ascend the bound, and draw from q."""
    latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
    hyper = checked_hyper(settings.hyper, name)
    with progress(name, run.progressbar) as tick:
        roles, ended = ascend(latent, settings, hyper, tick)
        tick("draws")
        groups = _groups(latent, roles, ended, run)
    return groups, Facts(
        hyper=_treatment(latent, roles, hyper),
        caption=_caption(latent, roles, ended, hyper is not None),
        weights=latent.weights,
        problems=(*why_not_converged(ended.fit, settings), *_no_maximum(latent, roles, ended)),
        caution=_caution(roles, ended) or reached_once(ended.fit.ends),
    )


def checked_hyper(hyper: Any, name: str) -> Fixed | None:
    """Fixed or nothing: in VB the hyperparameters belong to the posterior."""
    if hyper is None or isinstance(hyper, Fixed):
        return hyper
    what = f"{type(hyper).__name__}()" if hasattr(hyper, "tolerance") else repr(hyper)
    raise UnsupportedPair(
        f"{name} with hyper={what}: it takes the hyperparameters into the posterior. Leave hyper "
        f"out, or fix them: VB(hyper=Fixed(tree)). Type-II maximum likelihood is Laplace() or EP()."
    )


def _treatment(latent: LatentGaussian, roles: Roles, hyper: Fixed | None) -> str:
    """What the hyperparameters are: given, a point that was searched for, or in the posterior."""
    if hyper or not latent.hyper:
        return "fixed"
    return "posterior" if roles.groups or roles.noise else "mode"


def _no_maximum(latent: LatentGaussian, roles: Roles, ended: _Ended) -> tuple[str, ...]:
    """Say so where a scale that was searched for is at an end of the search."""
    if roles.scale is None:
        return ()
    u, (low, high) = float(np.log(ended.theta[roles.scale])), _range(latent, roles.scale)
    if low + 2 * _FINE < u < high - 2 * _FINE:
        return ()
    what = "has collapsed" if u < 0.5 * (low + high) else "has grown without end"
    return (
        f"{roles.scale} {what}: ELBO plus log prior is largest at the end of the search, "
        f"{np.exp(u):.3g}. Mean-field VB does not see how {roles.scale} and the weights go "
        f"together: use EP(hyper=Integrated())",
    )


def why_not_converged(fit: Any, settings: Any) -> tuple[str, ...]:
    """The number of an ascent that was cut short."""
    if fit.converged:
        return ()
    return (
        f"not converged: after {len(fit.elbo)} sweeps the ELBO {fit.elbo[-1]:.6g} still grew by "
        f"{fit.gain:.2g} of its size in one (tolerance {settings.tolerance:.2g}). Raise "
        "max_sweeps.",
    )


def reached_once(ends: Sequence[float]) -> str:
    """Say that the best of several starts was reached by that one alone."""
    best, *others = sorted(ends, reverse=True)
    if not others or best - others[0] <= _NEAR:
        return ""
    return (
        f"of {len(ends)} starts one alone ends at the best ELBO, {best:.1f}, and the next "
        f"{best - others[0]:.1f} below: there may be better optima. Raise starts."
    )


def _caution(roles: Roles, ended: _Ended) -> str:
    if roles.noise is None or not _noise(ended).at_the_edge:
        return ""
    return (
        f"the weights explain the targets: nothing is left for noise (it is at its bound, "
        f"{np.exp(_noise(ended).nodes[0]):.2g}: centre the target if that is much), and the ELBO "
        f"has no maximum inside the bounds. Fix the noise."
    )


# The ascent ---------------------------------------------------------------------------------------


def ascend(
    latent: LatentGaussian,
    settings: Any,
    hyper: Fixed | None,
    tick: Tick,
    roles: Roles | None = None,
) -> tuple[Roles, _Ended]:
    """Ascend the bound, with the hyperparameters in the posterior or at given values.

    `roles` of an earlier ascent on the same graph spare their reading.
    """
    if hyper is not None:
        roles = Roles(fixed_plan(np.empty(0)), {}, None, None)
        return roles, _at(latent, roles, fixed_values(hyper, latent.hyper), settings, tick, True)
    roles = roles or read_roles(latent)
    if roles.scale is None:
        return roles, _at(latent, roles, {}, settings, tick)
    return roles, _search(latent, roles, settings, tick)


def _at(
    latent: LatentGaussian,
    roles: Roles,
    theta: dict[str, Array],
    settings: Any,
    tick: Tick,
    fixed: bool = False,
) -> _Ended:
    """Ascend at given values of what is not inferred."""
    full = {**latent.initial_theta(), **theta}
    arrays = latent.at(full)
    if arrays.precision is None:
        raise UnsupportedPair(
            "vb: the weights are correlated a priori (MvNormal). Use Laplace() or EP()."
        )
    fit = ascend_linear(
        arrays,
        fixed_plan(arrays.precision) if fixed else roles.plan,
        rows_of(arrays.sites, len(arrays.offset), roles, latent),
        pruning=settings.pruning(sparse=False),
        starts=settings.starts or 1,
        tolerance=settings.tolerance,
        max_sweeps=settings.max_sweeps,
        tick=tick,
    )
    return _Ended(fit, theta, float(fit.elbo[-1]))


def _search(latent: LatentGaussian, roles: Roles, settings: Any, tick: Tick) -> _Ended:
    """Maximise ELBO + log prior over one scale: a scan, then golden section where it is best."""
    assert roles.scale is not None
    density = log_prior(latent, roles.scale)
    seen: dict[float, _Ended] = {}

    def at(u: float) -> float:
        if u not in seen:
            theta = {roles.scale: np.array(np.exp(u))}
            ended = _at(latent, roles, theta, settings, tick)  # type: ignore[arg-type]
            seen[u] = ended._replace(value=ended.value + float(density(np.exp([u]))[0]))
        return seen[u].value

    grid = np.linspace(*_range(latent, roles.scale), _STEPS).tolist()
    best = int(np.argmax([at(u) for u in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    while high - low > _FINE:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if at(left) > at(right) else (left, high)
    return max(seen.values(), key=lambda ended: ended.value)


def _range(latent: LatentGaussian, scale: str) -> tuple[float, float]:
    """Where a scale is looked for, in logs."""
    centre = float(np.log(latent.initial_theta()[scale]))
    return centre - _SEARCH, centre + 0.5 * _SEARCH


# The tree -----------------------------------------------------------------------------------------


def _groups(latent: LatentGaussian, roles: Roles, ended: _Ended, run: Run) -> dict[str, Any]:
    """Draws of every factor, their densities, and the numbers of q."""
    state, model = ended.fit.state, latent.model
    rng = np.random.default_rng(run.seed)
    w = state.posterior.draws(run.chains * run.draws, rng)
    eta = state.posterior.prior.model.predictor(w)
    log_q = state.posterior.log_density(w)
    theta, log_p, log_q_theta = hyper_draws(latent, roles, ended, w, rng)
    log_likelihood = latent.log_sites_at(eta, theta)
    stats = {
        "lp": run.by_chain(log_likelihood.sum(axis=1) + log_p),
        "log_approximation": run.by_chain(log_q + log_q_theta),
    }
    named = {k: run.by_chain(v) for k, v in theta.items()} | latent.split(run.by_chain(w))
    posterior = named_dataset(model, named, latent.predictor)
    posterior.attrs["sampling_kind"] = "iid"
    if roles.scale is not None:  # a point among others that are drawn
        posterior[roles.scale].attrs["held"] = "mode"
    return {
        "posterior": posterior,
        "log_likelihood": row_dataset(latent, run.by_chain(log_likelihood)),
        "sample_stats": draws_dataset(model, stats),
        "theta": theta_dataset(latent, _mean_theta(latent, roles, ended)),
        "fit": _fit_group(latent, ended),
    }


def hyper_draws(
    latent: LatentGaussian, roles: Roles, ended: _Ended, w: Array, rng: np.random.Generator
) -> tuple[dict[str, Array], Array, Array]:
    """Draws of θ; log p(w, θ) and log q(θ) at draws of both, over what is in the model."""
    state, plan, n = ended.fit.state, roles.plan, len(w)
    prior = state.posterior.prior
    theta = {k: np.broadcast_to(v, (n, *np.shape(v))) for k, v in ended.theta.items()}
    log_q = np.zeros(n)
    if not roles.groups and roles.noise is None:
        return theta, prior.log_density(w), log_q
    assert isinstance(state.alpha, Gamma)
    alpha = state.alpha.draws(n, rng)
    alive = plan.sums(np.ones(len(prior.on)), prior.on) > 0
    log_q += state.alpha.kept(alive).log_density(alpha[:, alive]).sum(axis=1)
    log_p = plan.prior.kept(alive).log_density(alpha[:, alive]).sum(axis=1)
    precision = np.array([plan.spread(a, plan.given) for a in alpha])[:, prior.on]
    deviation = (w - prior.model.mean)[:, prior.on]
    log_p += 0.5 * np.sum(np.log(precision / (2 * np.pi)) - precision * deviation**2, axis=1)
    alpha[:, ~alive] = np.inf
    for name, place in roles.groups.items():
        theta[name] = alpha[:, place].reshape((n, *latent.shapes[name]))
    if roles.noise is not None:
        noise = _noise(ended)
        sigma, log_density = noise.draws(n, rng)
        log_q += log_density
        log_p += noise.log_prior(sigma)
        theta[roles.noise.name] = roles.noise.value_of(sigma)
    return theta, log_p, log_q


def _noise(ended: _Ended) -> FreeNoise:
    rows = ended.fit.state.rows
    assert isinstance(rows, GaussianRows) and isinstance(rows.noise, FreeNoise)
    return rows.noise


def _mean_theta(latent: LatentGaussian, roles: Roles, ended: _Ended) -> dict[str, Array]:
    """Hyperparameters at their mean under q, the noise at the root of its mean square."""
    state, theta = ended.fit.state, dict(ended.theta)
    kept = state.posterior.prior.on
    alive = roles.plan.sums(np.ones(len(kept)), kept) > 0 if roles.groups else np.empty(0, bool)
    for name, place in roles.groups.items():
        mean = np.where(alive, state.alpha.mean, np.inf)[place]
        theta[name] = mean.reshape(latent.shapes[name])
    if roles.noise is not None:
        sigma = np.array(np.sqrt(_noise(ended).mean_square))
        theta[roles.noise.name] = roles.noise.value_of(sigma)
    return theta


def _fit_group(latent: LatentGaussian, ended: _Ended) -> xr.Dataset:
    """Moments of q."""
    fit, names, kept = ended.fit, np.array(latent.weight_names), ended.fit.state.posterior.prior.on
    q = fit.state.posterior
    variables: dict[str, Any] = {
        "mean_vector": ("rows", q.mean[kept]),
        "active": ("weight", kept),
        "elbo": ("iteration", fit.elbo),
        "elbo_starts": ("start", np.array(fit.ends)),
        "iterations": len(fit.elbo),
        **covariance_variables(q, kept),
    }
    coords: dict[str, Any] = {"rows": names[kept], "columns": names[kept], "weight": names}
    if "covariance_matrix" not in variables:
        del coords["columns"]
    return xr.Dataset(variables, coords=coords)


def _caption(latent: LatentGaussian, roles: Roles, ended: _Ended, fixed: bool) -> str:
    exact = isinstance(ended.fit.state.rows, FixedRows)
    bound = "" if exact else "the likelihood enters by a bound, so sds are too small"
    point = ""
    if roles.scale is not None:
        value = float(ended.theta[roles.scale])
        point = f"{roles.scale} = {value:.3g} maximises ELBO plus log prior"
    if not fixed and roles.scale is not None and not (roles.groups or roles.noise):
        parts = [f"posterior at one value of a hyperparameter: {point}", bound]
        return "; ".join(filter(None, parts))
    if fixed or not (roles.groups or roles.noise):
        parts = [TREATMENTS["fixed"]] * bool(latent.hyper) + [bound] * bool(bound)
        return "; ".join(parts)
    caption = TREATMENTS["mean field"]
    return f"{caption}; {point}" if point else caption
