"""Weights and hyperparameters drawn in turn: the full posterior, with an approximation as kernel.

Two loops draw from the same posterior. Where θ is nothing but ARD precisions with Gamma priors and
the sites are probit, logit or Gaussian, whole sweeps run in machine code (`kernels.py`), or
with exact draws of the weights. Any other graph is swept in Python: weights by `sites/moves.py`,
each θ from its Gamma conditional where it has one, else by a slice on the real line.

Chains have random numbers of their own, spawned from the seed: the draws do not depend on how many
of them run at a time.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ardvark.errors import InputWarning, UnsupportedPair
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.hyper.settings import Sampled
from ardvark.inference.running.progress import Tick
from ardvark.inference.running.threads import Watch, in_threads
from ardvark.inference.sampled.exact_kernels import MOST_PROPOSALS, run_exact_chain
from ardvark.inference.sampled.kernels import (
    FREEDOM,
    LOGIT,
    PROBIT,
    Plan,
    State,
    Store,
    problem_of,
    run_chain,
    site_arrays,
    store_of,
)
from ardvark.inference.sampled.theta import ThetaSweep
from ardvark.inference.sites.approximation import Approximation
from ardvark.inference.sites.arrays import Array, Index, Mask
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.moves import KERNELS, approximate_or_prior, move_block

__all__ = ["Chains", "sample_chains"]

SMALL = 200  # weights or rows: up to here a second thread of BLAS makes a sweep slower
LOOK_EVERY = 20  # sweeps
MANY_ROWS = 150  # more, and fewer weights: exact sweeps are dear, and are said to be

type Chain = tuple[Array, dict[str, Array], Index]  # weights, θ, trials


class Chains(NamedTuple):
    """Draws of all chains: arrays (chain, draw, ...)."""

    weights: Array
    theta: dict[str, Array]
    trials: Index  # of a slice; for independence 1 if accepted, else 0
    compiled: bool


class _Hierarchy(NamedTuple):
    """A model whose θ are ARD precisions with Gamma priors, as arrays."""

    model: SiteModel
    family: int
    label: Array
    extra: Array
    shape: Array
    rate: Array  # 0: the precision is fixed


def sample_chains(
    latent: LatentGaussian,
    rule: Approximation,
    hyper: Sampled,
    *,
    draws: int,
    chains: int,
    seed: int,
    tick: Tick,
) -> Chains:
    """Draw from the posterior of weights and hyperparameters."""
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(chains)]
    hierarchy = _as_hierarchy(latent)
    if hierarchy is None or type(rule).__name__ != "EP":
        if hyper.kernel == "exact" and hierarchy is None:
            raise UnsupportedPair(
                "Sampled(kernel='exact') needs a probit or logit likelihood and no hyperparameter "
                "beside ARD precisions with Gamma priors. Use kernel='elliptical'."
            )
        if hyper.kernel != "exact":
            run = _chains_in_python(latent, rule, hyper, draws, streams, tick)
            return _stacked(run, compiled=False)
    assert hierarchy is not None
    if hyper.kernel == "exact" and hierarchy.family not in (PROBIT, LOGIT):
        raise UnsupportedPair(
            f"Sampled(kernel='exact') needs a probit or logit likelihood; this one is read as "
            f"{type(hierarchy.model.sites).__name__}. Use kernel='elliptical'."
        )
    total = chains * (hyper.tune + draws)
    if hyper.kernel == "exact":
        _warn_of_rows(hierarchy.model, total)
    run = in_threads(
        lambda i, watch: _chain_in_machine_code(latent, hierarchy, hyper, draws, streams[i], watch),
        chains,
        look=lambda done: tick(f"sweep {done} of {total}", done / total),
    )
    return _stacked(run, compiled=True)


def _warn_of_rows(model: SiteModel, sweeps: int) -> None:
    """Say what exact sweeps cost before they start, where another sampler would be cheaper."""
    rows, weights = model.projection.shape
    if rows > MANY_ROWS and weights < rows:
        warnings.warn(
            f"Sampled(kernel='exact') works with a matrix of {rows} x {rows} in each of {sweeps} "
            f"sweeps: it is for more weights than rows, and here are {weights} weights. NUTS() or "
            f"kernel='elliptical' costs less.",
            InputWarning,
            stacklevel=2,
        )


def _stacked(run: list[Chain], compiled: bool) -> Chains:
    weights, theta, trials = zip(*run, strict=True)
    names = theta[0]
    return Chains(
        np.stack(weights),
        {name: np.stack([part[name] for part in theta]) for name in names},
        np.stack(trials),
        compiled,
    )


# ARD precisions with Gamma priors ----------------------------------------------------------------


def _as_hierarchy(latent: LatentGaussian) -> _Hierarchy | None:
    """Give the arrays of such a model, None if this is another one."""
    precisions = latent.ard_precisions
    if not latent.hyper or set(precisions) != set(latent.hyper):
        return None
    theta = latent.initial_theta()
    model = latent.at(theta)
    arrays = site_arrays(model.sites, len(model.offset))
    if arrays is None or model.precision is None or model.mean.any():
        return None
    shape, rate = np.zeros(latent.n_weights), np.zeros(latent.n_weights)
    conditionals = latent.gamma_conditionals(np.zeros(latent.n_weights), theta)
    for name, block in precisions.items():
        if name not in conditionals:
            return None
        shape[latent.blocks[block]] = np.ravel(conditionals[name].shape) - 0.5
        rate[latent.blocks[block]] = np.ravel(conditionals[name].rate)
    return _Hierarchy(model, *arrays, shape, rate)


def _start(hierarchy: _Hierarchy, rng: np.random.Generator) -> tuple[Array, Array]:
    """Dispersed: precisions from their prior, weights at zero.

    A vague prior has precisions of 1e-100, at which no Cholesky factor exists: a start need not
    be further out than a prior variance of 1e8 in the predictor.
    """
    free = hierarchy.rate > 0
    assert hierarchy.model.precision is not None
    alpha = np.array(hierarchy.model.precision)
    alpha[free] = rng.standard_gamma(hierarchy.shape[free]) / hierarchy.rate[free]
    vaguest = 1e-8 * np.sum(hierarchy.model.projection**2, axis=0)
    alpha[free] = np.maximum(alpha, np.maximum(vaguest, 1e-300))[free]
    return np.zeros(alpha.size), alpha


def _chain_in_machine_code(
    latent: LatentGaussian,
    hierarchy: _Hierarchy,
    hyper: Sampled,
    draws: int,
    rng: np.random.Generator,
    watch: Watch,
) -> Chain:
    model, exact = hierarchy.model, hyper.kernel == "exact"
    on = np.isfinite(model.precision)  # type: ignore[arg-type]
    X, offset, sign = model.projection[:, on], model.offset, hierarchy.label
    if exact:
        X, offset = sign[:, None] * X, sign * offset
    arrays = hierarchy.family, sign, hierarchy.extra
    problem = problem_of(X, offset, arrays, hierarchy.shape[on], hierarchy.rate[on])
    w, alpha = (part[on] for part in _start(hierarchy, rng))
    store = store_of(draws, alpha.size)
    kernel = 0 if exact else list(KERNELS).index(hyper.kernel)
    plan = Plan(hyper.tune, hyper.sweeps, kernel, hyper.scale)
    if not exact:
        run_chain(problem, State(w, alpha), plan, store, rng, watch)
    elif not run_exact_chain(problem, alpha, np.ones(len(sign)), plan, store, rng, watch):
        raise RuntimeError(
            f"none of {MOST_PROPOSALS} proposals of exact draws was accepted, for {len(sign)} "
            f"rows and {alpha.size} weights. Use Sampled(kernel='elliptical')."
        )
    return _everywhere(latent, on, store)


def _everywhere(latent: LatentGaussian, on: Mask, store: Store) -> Chain:
    """Weights that are not active are zero, at an infinite precision."""
    weights = np.zeros((len(store.weights), on.size))
    precisions = np.full(weights.shape, np.inf)
    weights[:, on], precisions[:, on] = store.weights, store.precisions
    theta = {
        name: precisions[:, latent.blocks[block]].reshape((-1, *latent.shapes[name]))
        for name, block in latent.ard_precisions.items()
    }
    return weights, theta, store.trials


# Any graph ---------------------------------------------------------------------------------------


def _chains_in_python(
    latent: LatentGaussian,
    rule: Approximation,
    hyper: Sampled,
    draws: int,
    streams: list[np.random.Generator],
    tick: Tick,
) -> list[Chain]:
    """Sweep chain after chain; small matrices get one thread of BLAS, more would only wait."""
    each = hyper.tune + draws
    total, sweep, run = each * len(streams), ThetaSweep(latent), list[Chain]()
    small = min(latent.n_weights, len(latent.affine_map(latent.initial_theta())[1])) < SMALL
    with threadpool_limits(1, "blas") if small else nullcontext():
        for rng in streams:
            theta = sweep.start(rng)
            w = latent.prior(theta)[0]
            weights, trials = np.empty((draws, latent.n_weights)), np.empty(draws, np.int64)
            kept: dict[str, list[Array]] = {name: [] for name in latent.hyper}
            for i in range(-hyper.tune, draws):
                model = latent.at(theta)
                q, _ = approximate_or_prior(rule, model)
                moved = move_block(model, q, w, rng, hyper.kernel, FREEDOM)
                w = moved.weights
                theta = sweep.move(w, theta, rng)
                if i >= 0:
                    weights[i] = w
                    trials[i] = moved.trials if hyper.kernel == "elliptical" else moved.moved
                    for name, value in theta.items():
                        kept[name].append(value)
                if i % LOOK_EVERY == 0:
                    done = each * len(run) + i + hyper.tune
                    tick(f"sweep {done} of {total}", done / total)
            run.append((weights, {name: np.array(kept[name]) for name in kept}, trials))
    return run
