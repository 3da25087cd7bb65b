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
from ardvark.inference.running.progress import progress
from ardvark.inference.samplers.convergence import convergence
from ardvark.inference.samplers.run import fit_sampler
from ardvark.inference.sites.arrays import Array
from ardvark.inference.tree import draws_dataset
from ardvark.models.card import card_of
from ardvark.models.mixture import MixtureCard

__all__ = ["fit_mean_field", "given_scale", "given_states", "sample_mixture"]

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
    card = card_of(model)
    assert isinstance(card, MixtureCard)
    assert card.included is not None  # the registry refuses others
    scale, columns = given_scale(card), list(card.included)
    X, label = (np.asarray(model[part].get_value()) for part in ("X", "label"))
    z = scale.to_z(np.asarray(X, float)[:, columns])
    states = given_states(groups["posterior"], scale)
    if name == "nuts":
        states = relabelled(states._replace(d=_usual_kernels(states, z, label)))
        groups["posterior"] = _renamed(groups["posterior"], states, scale)
        draws = groups["posterior"].sizes["draw"]
        problems, numbers = convergence(groups["posterior"], groups["sample_stats"], draws)
        facts = replace(facts, problems=problems, sampler={**facts.sampler, **numbers})
    groups["log_likelihood"] = _label_likelihood(model, groups["posterior"], states, z, label)
    return groups, facts


def fit_mean_field(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Mean-field VB at a given subset, joint target, and draws of q."""
    card = card_of(model)
    assert isinstance(card, MixtureCard)
    assert card.prior is not None
    assert card.included is not None  # the registry refuses others
    if settings.hyper is not None:
        raise UnsupportedPair(
            f"{name}: hyper={settings.hyper!r}: every coefficient of rbf_mixture belongs to the "
            "posterior. Leave hyper out."
        )
    prior, scale, columns = card.prior, given_scale(card), list(card.included)
    X, label = (np.asarray(model[part].get_value()) for part in ("X", "label"))
    z = np.ascontiguousarray(scale.to_z(np.asarray(X, float)[:, columns]))
    h = (prior.h * prior.spread**2)[columns]
    p = MeanField(
        z, label.astype(np.int64), prior.n_classes, prior.n_kernels, prior.shape, prior.g, h,
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
    shape = (run.chains, run.draws)
    posterior = draws_dataset(
        model, {n: v.reshape(*shape, *v.shape[1:]) for n, v in values.items()}
    )
    posterior.attrs["sampling_kind"] = "iid"
    problems = []
    if not q.settled:
        problems = [f"the bound still rises after {len(q.bound)} sweeps: raise max_sweeps"]
    groups = {
        "posterior": posterior,
        "fit": xr.Dataset({"elbo": ("sweep", q.bound - z.shape[1] * np.log(scale.spread).sum())}),
        "log_likelihood": _label_likelihood(
            model, posterior, given_states(posterior, scale), z, label
        ),
    }
    return groups, Facts(hyper="posterior", caption="", weights=(), problems=problems)


def _label_likelihood(
    model: Any, posterior: xr.Dataset, states: State, z: Array, label: Any
) -> xr.Dataset:
    """Log P(t | x) of the labelled rows, for each draw."""
    known = np.flatnonzero(label >= 0)
    log_t = log_labels(states, np.ascontiguousarray(z[:, known]), label[known].astype(np.int64))
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], len(known))
    return xr.Dataset(
        {"t": (("chain", "draw", "row"), log_t.reshape(shape))},
        coords={
            "chain": posterior["chain"].values,
            "draw": posterior["draw"].values,
            "row": np.asarray(model.coords["row"])[known],
        },
    )


def given_scale(card: MixtureCard) -> Scale:
    """Units of the inputs of a given subset."""
    assert card.prior is not None
    columns = list(card.included or ())
    return Scale(card.prior.centre[columns], card.prior.spread[columns])


def given_states(posterior: xr.Dataset, scale: Scale) -> State:
    """Draws as states (draw, ...) of the given inputs; allocations are not among them."""
    flat = posterior.stack(sample=("chain", "draw"), create_index=False)

    def part(name: str) -> Array:
        return np.ascontiguousarray(flat[name].transpose("sample", ...).values)

    mean, spread = part("kernel_mean"), scale.spread[:, None]
    nothing = np.zeros((len(mean), 0), np.int64)
    return State(
        np.ones(mean.shape[:2], np.bool_), nothing, nothing,
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
