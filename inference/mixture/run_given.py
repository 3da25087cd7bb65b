"""The RBF mixture at a given subset, `rbf_mixture(..., included=[...])`: NUTS, SMC, VB, prediction.

The posterior has D! copies, one for each order of the kernels, and a chain of NUTS keeps to one.
So its draws get common names before chains are compared (`chains.relabelled`), by the kernel to
which each row most likely belongs: R-hat then says whether chains agree on anything else. Particles
of SMC start in all copies and keep their names; one Gaussian cannot propose for all of them, so
`SMC(kernel="independent")` is refused. On 13 rows and two inputs (conditional target, log evidence
-8.37(5) by draws from the prior) it gave -8.75(7) with 1000 particles and -8.50(4) with 6000, and
random walks -8.44(4) with 2000, or -8.37(3) with `threshold=0.8, correlation_threshold=0.001`.

What takes long is the compiler, half a minute of CPU time whatever the number of rows:
2 x 1000 draws of NUTS on 62 rows of four inputs (wine, joint target) then take one second.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from ardvark.errors import UnsupportedPair
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.mixture.chains import Scale, log_labels, relabelled
from ardvark.inference.mixture.kernels import State
from ardvark.inference.mixture.mean_field import MeanField, ascend, draw_factors
from ardvark.inference.mixture.reading import refuse_hyper
from ardvark.inference.running.progress import progress
from ardvark.inference.samplers.convergence import convergence
from ardvark.inference.samplers.run import fit_sampler
from ardvark.inference.sites.arrays import Array
from ardvark.inference.tree import draws_dataset
from ardvark.models.card import card_of
from ardvark.models.mixture import MixtureCard

__all__ = ["fit_mean_field", "given_scale", "label_likelihood", "sample_mixture", "states_of"]

STARTS = 10  # of VB: a mixture has many local bounds


def sample_mixture(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample at a given subset, with kernels by common names."""
    if name == "smc" and settings.kernel == "independent":
        raise UnsupportedPair(
            "smc with kernel='independent': the posterior of a mixture has a copy for each order "
            "of its kernels, and one Gaussian cannot propose for all of them; the evidence comes "
            "out too low. Use SMC(kernel='random_walk', threshold=0.8, "
            "correlation_threshold=0.001)."
        )
    groups, facts = fit_sampler(model, name, settings, run)
    _, scale, z, label = _given(model)
    states = states_of(groups["posterior"], scale)
    if name == "nuts":
        states = relabelled(states._replace(d=_usual_kernels(states, z, label)))
        groups["posterior"] = _renamed(groups["posterior"], states, scale)
        draws = groups["posterior"].sizes["draw"]
        problems, numbers = convergence(groups["posterior"], groups["sample_stats"], draws)
        facts = replace(facts, problems=problems, sampler={**facts.sampler, **numbers})
    groups["log_likelihood"] = label_likelihood(model, states, z, label, run.chains)
    return groups, facts


def _given(model: Any) -> tuple[MixtureCard, Scale, Array, Any]:
    """Card, and units, values and labels of the inputs of the given subset."""
    card = card_of(model)
    assert isinstance(card, MixtureCard)
    assert card.included is not None  # the registry refuses others
    scale, columns = given_scale(card), list(card.included)
    X, label = (np.asarray(model[part].get_value()) for part in ("X", "label"))
    return card, scale, scale.to_z(np.asarray(X, float)[:, columns]), label.astype(np.int64)


def fit_mean_field(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Mean-field VB at a given subset, joint target, and draws of q."""
    refuse_hyper(name, settings)
    card, scale, z, label = _given(model)
    assert card.prior is not None
    prior = card.prior
    h = (prior.h * prior.spread**2)[list(card.included or ())]
    p = MeanField(
        z, label, prior.n_classes, prior.n_kernels, prior.shape, prior.g, h,
        max(prior.resolution**2, 1e-300),
    )  # fmt: skip
    rng = np.random.default_rng(run.seed)
    with progress(name, run.progressbar) as tick:
        tick("ascent")
        q = ascend(p, rng, settings.starts or STARTS, settings.tolerance, settings.max_sweeps)
    drawn = draw_factors(p, q, run.chains * run.draws, rng)
    spread = scale.spread[:, None]
    values = {
        "class_probability": drawn["P"],
        "kernel_probability": drawn["w"],
        "kernel_mean": scale.centre[:, None] + spread * drawn["mean"],
        "kernel_precision": drawn["tau"] / spread**2,
        "kernel_rate": drawn["beta"] * scale.spread**2,
    }
    posterior = draws_dataset(model, {n: run.by_chain(v) for n, v in values.items()})
    posterior.attrs["sampling_kind"] = "iid"
    problems = []
    if not q.settled:
        problems = [f"the bound still rises after {len(q.bound)} sweeps: raise max_sweeps"]
    groups = {
        "posterior": posterior,
        "fit": xr.Dataset({"elbo": ("sweep", q.bound - z.shape[1] * np.log(scale.spread).sum())}),
        "log_likelihood": label_likelihood(
            model, states_of(posterior, scale), z, label, run.chains
        ),
    }
    return groups, Facts(hyper="posterior", caption="", weights=(), problems=problems)


def label_likelihood(model: Any, states: State, z: Array, label: Any, chains: int) -> xr.Dataset:
    """Log P(t | x) of the labelled rows, for each draw."""
    known = np.flatnonzero(label >= 0)
    log_t = log_labels(states, np.ascontiguousarray(z[:, known]), label[known])
    log_t = log_t.reshape((chains, -1, len(known)))
    return xr.Dataset(
        {"t": (("chain", "draw", "row"), log_t)},
        coords={
            "chain": np.arange(chains),
            "draw": np.arange(log_t.shape[1]),
            "row": np.asarray(model.coords["row"])[known],
        },
    )


def given_scale(card: MixtureCard) -> Scale:
    """Units of the inputs of a given subset."""
    assert card.prior is not None
    columns = list(card.included or ())
    return Scale(card.prior.centre[columns], card.prior.spread[columns])


def states_of(posterior: xr.Dataset, scale: Scale) -> State:
    """Draws of a tree as states (draw, ...) in the units of z; allocations are not among them.

    Where the subset is given all inputs are in it.
    """
    flat = posterior.stack(sample=("chain", "draw"), create_index=False)

    def part(name: str) -> Array:
        return np.ascontiguousarray(flat[name].transpose("sample", ...).values)

    mean, spread = part("kernel_mean"), scale.spread[:, None]
    nothing = np.zeros((len(mean), 0), np.int64)
    on = part("included") if "included" in flat else np.ones(mean.shape[:2])
    return State(
        on.astype(np.bool_), nothing, nothing,
        part("class_probability"), part("kernel_probability"),
        (mean - scale.centre[:, None]) / spread, part("kernel_precision") * spread**2, nothing,
    )  # fmt: skip


def _usual_kernels(s: State, z: Array, label: Any) -> Any:
    """The kernel of each row that is most probable, (draw, row)."""
    out = np.empty((len(s.P), z.shape[1]), np.int64)
    for i in range(len(out)):
        gap = z[:, :, None] - s.mean[i][:, None, :]
        tau = s.tau[i][:, None, :]
        density = (0.5 * np.log(tau) - 0.5 * tau * gap**2).sum(axis=0)  # (row, kernel)
        anyone = logsumexp(np.log(s.P[i])[:, None] + np.log(s.w[i]), axis=0)
        weight = np.where(label[:, None] < 0, anyone, np.log(s.w[i])[np.maximum(label, 0)])
        out[i] = (density + weight).argmax(axis=1)
    return out


def _renamed(posterior: xr.Dataset, s: State, scale: Scale) -> xr.Dataset:
    """The draws with the kernels of `s`."""
    spread, new = scale.spread[:, None], posterior.copy()
    values = {
        "kernel_probability": s.w,
        "kernel_mean": scale.centre[:, None] + spread * s.mean,
        "kernel_precision": s.tau / spread**2,
    }
    for name, value in values.items():
        old = posterior[name].transpose("chain", "draw", ...)
        new[name] = old.copy(data=value.reshape(old.shape))
    return new
