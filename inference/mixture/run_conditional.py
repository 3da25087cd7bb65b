"""The RBF mixture by `target="conditional"`: the posterior under P(t | x), by jumps and NUTS.

There are no Gibbs updates for P(t | x, Θ, I): a sweep is one step of NUTS on every coefficient and
a few jumps of `SubsetJump` over the subset, in `pm.sample`, in the product space of the graph. The
coefficients of an input outside the subset have their prior, so births propose from the prior:
right, and fit for small problems. It is the reference for what the joint density's answer means.

`conditional_evidence` is a second route to the same posterior for few rows: the mean of
P(t | x, Θ, I) over draws of Θ from the prior, subset by subset.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from ardvark.errors import UnsupportedPair
from ardvark.inference.approximate import Run
from ardvark.inference.mixture.chains import Scale, log_labels
from ardvark.inference.mixture.kernels import State
from ardvark.inference.progress import progress
from ardvark.inference.sites.likelihoods import Array
from ardvark.inference.steps.subset import SubsetJump
from ardvark.models.mixture import MixturePrior

__all__ = ["Drawn", "conditional_evidence", "sample_conditional", "states_of"]

TARGET_ACCEPT = 0.9
_NAMES = (
    "included",
    "class_probability",
    "kernel_probability",
    "kernel_mean",
    "kernel_precision",
)


class Drawn(NamedTuple):
    """Draws of `pm.sample`: those kept, the subset of every sweep, how it went."""

    posterior: xr.Dataset
    visited: Any  # (chain, sweep, input)
    accepted: float
    divergences: int


def sample_conditional(model: Any, name: str, settings: Any, run: Run) -> Drawn:
    """Sample by `SubsetJump` and NUTS."""
    import pymc as pm

    if settings.proposals == "prior" or settings.rungs > 1:
        raise UnsupportedPair(
            f"{name}: proposals={settings.proposals!r}, rungs={settings.rungs}: with "
            "target='conditional' births come from the prior, without a ladder. Leave both out."
        )
    plan = settings.plan(run.draws)
    rng = np.random.default_rng(run.seed)
    n_inputs = len(model.coords["feature"])
    starts = [
        {"included": (rng.random(n_inputs) < share).astype(np.int64)}
        for share in np.linspace(0.0, 1.0, run.chains)
    ]
    with progress(name, run.progressbar) as tick, model:
        tick("jumps with NUTS")
        step = SubsetJump([model["included"]], jumps=settings.jumps)
        tree = pm.sample(
            plan.draws * plan.thin, tune=plan.tune, chains=run.chains, step=[step],
            cores=min(run.chains, os.cpu_count() or 1), initvals=starts, random_seed=run.seed,
            progressbar=False, compute_convergence_checks=False, quiet=True,
            nuts={"target_accept": TARGET_ACCEPT}, idata_kwargs={"log_likelihood": False},
        )  # fmt: skip
    posterior = tree["posterior"].to_dataset()
    names = [rv.name for rv in model.free_RVs]
    kept = posterior[names].isel(draw=slice(plan.thin - 1, None, plan.thin))
    stats = tree["sample_stats"].to_dataset()
    return Drawn(
        kept.assign_coords(draw=np.arange(plan.draws)),
        posterior["included"].transpose("chain", "draw", "feature").values.astype(bool),
        float(stats["subset_accept"].mean()),
        int(stats["diverging"].sum()),
    )


def states_of(posterior: xr.Dataset, scale: Scale) -> State:
    """Draws of a tree as states (draw, ...) in the units of z; allocations are not among them."""
    flat = posterior.stack(sample=("chain", "draw"), create_index=False)
    parts = {
        name: np.ascontiguousarray(flat[name].transpose("sample", ...).values) for name in _NAMES
    }
    spread = scale.spread[:, None]
    nothing = np.zeros((len(parts["included"]), 0), np.int64)
    return State(
        parts["included"].astype(np.bool_), nothing, nothing,
        parts["class_probability"], parts["kernel_probability"],
        (parts["kernel_mean"] - scale.centre[:, None]) / spread,
        parts["kernel_precision"] * spread**2, nothing,
    )  # fmt: skip


def conditional_evidence(
    z: Array, label: Any, prior: MixturePrior, draws: Any, subsets: Any, seed: int
) -> tuple[Array, Array]:
    """Log P(t | x, I) of each subset and its error, by draws (m, τ) from the prior.

    `draws` are means and precisions (draw, input, kernel) in the units of z.
    """
    rng = np.random.default_rng(seed)
    mean, tau = draws
    number = len(mean)
    P = rng.dirichlet(np.ones(prior.n_classes), size=number)
    w = rng.dirichlet(np.ones(prior.n_kernels), size=(number, prior.n_classes))
    nothing = np.zeros((number, 0), np.int64)
    known = np.flatnonzero(np.asarray(label) >= 0)
    rows, labels = np.ascontiguousarray(z[:, known]), np.asarray(label)[known]
    value, error = np.empty(len(subsets)), np.empty(len(subsets))
    for i, on in enumerate(np.asarray(subsets, bool)):
        state = State(np.tile(on, (number, 1)), nothing, nothing, P, w, mean, tau, nothing)
        log_t = log_labels(state, rows, labels).sum(axis=1)
        value[i] = logsumexp(log_t) - np.log(number)
        weight = np.exp(log_t - value[i])
        error[i] = weight.std() / np.sqrt(number)
    return value, error
