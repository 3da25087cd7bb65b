"""The RBF mixture as groups of a tree: reversible jump, enumeration, prediction.

The graph is one space for all subsets: an input outside the subset still has kernel coefficients,
one inside still has a background. Draws are completed to draws of that graph: what the data do not
reach is drawn from its prior, the background of an excluded input from its own posterior, which
depends on nothing else. Kernels have the names under which draws agree.

| group | here |
|---|---|
| `posterior` | every free variable of the graph |
| `log_likelihood` | `t`: log p(t_n | x_n, ...) of the labelled rows |
| `sample_stats` | `n_inputs` by draw; `tried`, `accepted` by (move, size); `power`, `swaps` |
| `subsets` | `included`, `probability`, `mcse`, from every sweep after tuning |
| `fit` | `log_background` and its error by input, `inclusion` with its error |
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from ardvark.errors import InputError, InputWarning, UnsupportedPair
from ardvark.inference.beliefs import class_table
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.mixture.background import Evidence, mixture_evidence
from ardvark.inference.mixture.chains import (
    Scale,
    background_draws,
    class_probabilities,
    draw_at,
    joined,
    prior_draws,
    relabelled,
    run_chains,
)
from ardvark.inference.mixture.enumerate import MOST_INPUTS, Enumeration, enumerate_mixture
from ardvark.inference.mixture.kernels import Problem, State
from ardvark.inference.mixture.reading import Reading, read_mixture
from ardvark.inference.mixture.run_conditional import conditional_evidence, sample_conditional
from ardvark.inference.mixture.run_given import given_scale, label_likelihood, states_of
from ardvark.inference.reversible_jump import ReversibleJump
from ardvark.inference.running.progress import progress
from ardvark.inference.samplers.convergence import rhat_problems
from ardvark.inference.sites.arrays import Array, Mask
from ardvark.inference.tally import (
    Tally,
    ladder_counts,
    share_error,
    subsets_group,
    visited_subsets,
)
from ardvark.inference.tree import draws_dataset
from ardvark.models.card import card_of
from ardvark.models.checks import as_seed, positive_integer
from ardvark.models.mixture import MixtureCard, MixturePrior

__all__ = ["conditional_posterior", "fit_enumerated", "fit_mixture", "predict_mixture"]

MOVES = ("birth", "death", "exchange", "leap")
ERROR_MAX = 0.5  # nats of a background's evidence beyond which its error is a problem
MANY = 50_000  # inputs times the terms of a permanent: half a minute for the backgrounds
_PLAIN = ReversibleJump()


def fit_mixture(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample subsets and coefficients together."""
    read = read_mixture(model, name, settings)
    if read.target == "conditional":
        return _fit_conditional(model, name, settings, run, read)
    prior, plan = read.prior, settings.plan(run.draws)
    jumps = settings.jumps or len(read.z)
    _warn_of_inputs(len(read.z), prior.n_background, f"{name}: sweeps of {jumps} jumps each, and")
    seeds = [int(s) for s in np.random.SeedSequence(run.seed).generate_state(4)]
    with progress(name, run.progressbar) as tick:
        tick("evidence of the background")
        evidence = mixture_evidence(
            read.z, prior.n_background, prior.shape, prior.g, read.h,
            max(prior.resolution**2, 1e-300), seeds[0],
        )  # fmt: skip
        problem = read.problem(evidence)
        tick("chains")
        chains = run_chains(
            problem, prior.n_classes, prior.n_kernels, plan,
            jumps=jumps,
            from_data=settings.proposals == "data",
            rungs=settings.rungs or 1, scouts=settings.scouts, chains=run.chains, seed=seeds[1],
        )  # fmt: skip
        tick("draws of the background")
        states = [chain.states for chain in chains]
        groups = _groups(model, read, problem, states, seeds[2:])
    visited = np.stack([chain.visited for chain in chains])
    groups["posterior"].attrs["sampling_kind"] = "mcmc"
    counts, rates = ladder_counts(chains, MOVES)
    groups["sample_stats"] = groups["sample_stats"].merge(counts)
    groups["subsets"] = visited_subsets(visited, model.coords["feature"])
    groups["fit"] = _fit_group(model, evidence, visited.mean(axis=(0, 1)), share_error(visited))
    problems, numbers = _problems(visited, evidence, list(model.coords["feature"]))
    return groups, Facts("posterior", problems=problems, sampler=numbers | rates)


def _warn_of_inputs(inputs: int, kernels: int, first: str) -> None:
    """Say before anything starts what many backgrounds cost, and what costs less."""
    if kernels > 1 and inputs * kernels * 2**kernels > MANY:
        warnings.warn(
            f"{first} before them the evidence of {inputs} backgrounds of {kernels} kernels, a "
            "third of a second of processor time for six kernels and twice as much for each more. "
            "background='gaussian' has it in closed form, ReversibleJump(jumps=) makes sweeps "
            "shorter; or choose inputs first (av.select_features).",
            InputWarning,
            stacklevel=2,
        )


def _fit_conditional(model: Any, name: str, settings: Any, run: Run, read: Reading) -> Answer:
    """Sample under P(t | x); kernels keep the names they have."""
    known = np.flatnonzero(read.label >= 0)  # the others say nothing of t given x
    labelled = read._replace(z=np.ascontiguousarray(read.z[:, known]), label=read.label[known])
    none = np.zeros(len(read.z))
    problem = labelled.problem(Evidence(none, none))
    found = sample_conditional(problem, read.prior, name, settings, run)
    visited = np.stack([chain.visited for chain in found.chains])
    values = {rv.name: found.posterior[rv.name] for rv in model.free_RVs}
    groups = {"posterior": draws_dataset(model, values)}
    states = states_of(groups["posterior"], read.scale)
    size = states.on.sum(axis=1).reshape((run.chains, run.draws))
    groups |= {
        "log_likelihood": label_likelihood(model, states, read.z, read.label, run.chains),
        "sample_stats": draws_dataset(model, {"n_inputs": size}).merge(found.counts),
        "subsets": visited_subsets(visited, model.coords["feature"]),
        "fit": _fit_group(model, None, visited.mean(axis=(0, 1)), share_error(visited)),
    }
    groups["posterior"].attrs["sampling_kind"] = "mcmc"
    problems, numbers = _problems(visited, None, list(model.coords["feature"]))
    return groups, Facts(
        "posterior", problems=problems + found.problems, sampler=numbers | found.numbers
    )


def fit_enumerated(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Independent draws from the posterior of a tiny problem."""
    read = read_mixture(model, name, settings)
    if read.target == "conditional":
        raise UnsupportedPair(
            f"{name}: P(t | x) has no sum over allocations in closed form. Use reversible_jump."
        )
    prior = read.prior
    zeros = Evidence(np.zeros(len(read.z)), np.zeros(len(read.z)))
    with progress(name, run.progressbar) as tick:
        tick("all subsets, all allocations")
        found = enumerate_mixture(
            read.problem(zeros), prior.n_classes, prior.n_kernels, prior.n_background
        )
        problem = read.problem(found.background)
        seeds = [int(s) for s in np.random.SeedSequence(run.seed).generate_state(3)]
        rng = np.random.default_rng(seeds[0])
        states = [_exact_states(rng, problem, found, prior, run.draws) for _ in range(run.chains)]
        groups = _groups(model, read, problem, states, seeds[1:])
    groups["posterior"].attrs["sampling_kind"] = "iid"
    known = Tally(found.subsets, found.probability, np.zeros(len(found.subsets)))
    groups["subsets"] = subsets_group(known, model.coords["feature"])
    inclusion = found.probability @ found.subsets
    groups["fit"] = _fit_group(model, found.background, inclusion, np.zeros(len(inclusion)))
    return groups, Facts("posterior")


def conditional_posterior(model: Any, draws: int = 40_000, random_seed: int = 0) -> xr.Dataset:
    """The posterior over all subsets under P(t | x), for few rows and inputs, without a chain.

    Parameters
    ----------
    model : pm.Model
        Of `rbf_mixture`.
    draws : int
        From the prior: the evidence of each subset is a mean over them.

    Returns
    -------
    xr.Dataset
        By subset: `included`, `probability`, its `mcse`, `log_evidence` and the `error` of that.
    """
    if not isinstance(card_of(model) if hasattr(model, "free_RVs") else None, MixtureCard):
        raise InputError(f"model must be a pm.Model of rbf_mixture, got {type(model).__name__}")
    positive_integer(draws, "draws")
    seed = as_seed(random_seed) or 0
    read = read_mixture(model, "conditional_posterior", _PLAIN)
    n_inputs = len(read.z)
    if n_inputs > MOST_INPUTS:
        raise UnsupportedPair(
            f"conditional_posterior goes through 2^{n_inputs} subsets; at most {MOST_INPUTS} "
            "inputs are within reach. Use reversible_jump."
        )
    rng = np.random.default_rng(seed)
    nothing = read.problem(Evidence(np.zeros(n_inputs), np.zeros(n_inputs)))
    mean, tau, _ = prior_draws(nothing, (draws, n_inputs), read.prior.n_kernels, rng)
    subsets = np.array(list(np.ndindex(*(2,) * n_inputs)), bool)
    value, error = conditional_evidence(read.z, read.label, read.prior, (mean, tau), subsets, seed)
    log_p = value + nothing.log_prior[subsets.sum(axis=1)]
    probability = np.exp(log_p - logsumexp(log_p))
    found = Tally(subsets, probability, probability * error)
    return subsets_group(found, model.coords["feature"]).assign(
        log_evidence=("subset", value), error=("subset", error)
    )


def predict_mixture(model: Any, tree: xr.DataTree, X_new: Array, random_seed: int) -> xr.DataArray:
    """Class probabilities of new rows, averaged over draws and so over subsets."""
    card = card_of(model)
    assert isinstance(card, MixtureCard)
    assert card.prior is not None
    if card.included is not None:
        scale, X_new = given_scale(card), np.asarray(X_new)[:, list(card.included)]
    else:
        scale = Scale(card.prior.centre, card.prior.spread)
    states = states_of(tree["posterior"].to_dataset(), scale)
    return class_table(model, class_probabilities(states, scale.to_z(X_new)))


# --- draws as groups ---------------------------------------------------------------------------


def _groups(
    model: Any, read: Reading, problem: Problem, states: list[State], seeds: list[int]
) -> dict[str, xr.Dataset]:
    """`posterior`, `log_likelihood` and what is known of each draw."""
    chains, draws = len(states), len(states[0].on)
    both = relabelled(joined(states))
    values = _completed(read, problem, both, np.random.default_rng(seeds[0]), seeds[1])
    shaped = {n: v.reshape((chains, draws, *v.shape[1:])) for n, v in values.items()}
    named = {rv.name: shaped[rv.name] for rv in model.free_RVs}
    size = both.on.sum(axis=1).reshape((chains, draws))
    return {
        "posterior": draws_dataset(model, named),
        "log_likelihood": label_likelihood(model, both, read.z, read.label, chains),
        "sample_stats": draws_dataset(model, {"n_inputs": size}),
    }


def _completed(
    read: Reading, p: Problem, s: State, rng: np.random.Generator, seed: int
) -> dict[str, Array]:
    """All variables of the graph in the units of x; see the module."""
    prior = read.prior
    shape = (len(s.on), len(read.z))
    v, tau0, mean0, beta0 = background_draws(p, prior.n_background, shape[0], seed)
    mean, tau, beta = prior_draws(p, shape, prior.n_kernels, rng)
    other = prior_draws(p, shape, prior.n_background, rng)
    fresh = rng.dirichlet(np.ones(prior.n_background), size=shape)
    on = s.on[..., None]
    v, tau0, mean0 = (
        np.where(on, *pair) for pair in ((fresh, v), (other[1], tau0), (other[0], mean0))
    )
    order = np.argsort(mean0, axis=-1)  # kernels of a background go by their means
    v, tau0, mean0 = (np.take_along_axis(part, order, axis=-1) for part in (v, tau0, mean0))
    centre, spread = prior.centre[:, None], prior.spread[:, None]
    return {
        "included": s.on.astype(np.int64),
        "class_probability": s.P,
        "kernel_probability": s.w,
        "kernel_mean": centre + spread * np.where(on, s.mean, mean),
        "kernel_precision": np.where(on, s.tau, tau) / spread**2,
        "kernel_rate": np.where(s.on, s.beta, beta) * prior.spread**2,
        "background_probability": v,
        "background_mean": centre + spread * mean0,
        "background_precision": tau0 / spread**2,
        "background_rate": np.where(s.on, other[2], beta0) * prior.spread**2,
    }


def _exact_states(
    rng: np.random.Generator, p: Problem, found: Enumeration, prior: MixturePrior, draws: int
) -> State:
    """Independent draws: a subset, allocations given it, all else given them."""
    which = rng.choice(len(found.subsets), size=draws, p=found.probability)
    d = np.empty((draws, p.z.shape[1]), np.int64)
    for number in np.unique(which):
        log_p = found.log_labels + found.log_inputs[found.subsets[number]].sum(axis=0)
        weight = np.exp(log_p - log_p.max())
        place = np.flatnonzero(which == number)
        chosen = rng.choice(len(weight), size=len(place), p=weight / weight.sum())
        d[place] = found.allocations[chosen]
    return draw_at(rng, p, found.subsets[which], d, prior.n_classes, prior.n_kernels)


# --- inclusion, checks ------------------------------------------------------------------------


def _fit_group(model: Any, evidence: Evidence | None, inclusion: Array, mcse: Array) -> xr.Dataset:
    values = {"inclusion": inclusion, "inclusion_mcse": mcse}
    if evidence is not None:
        values |= {"log_background": evidence.value, "log_background_error": evidence.error}
        # An error of δ in a log odds is one of p (1 - p) δ in its probability.
        values["inclusion_mcse"] = np.hypot(mcse, inclusion * (1 - inclusion) * evidence.error)
    return xr.Dataset(
        {name: ("feature", value) for name, value in values.items()},
        coords={"feature": np.asarray(model.coords["feature"])},
    )


def _problems(
    visited: Mask, evidence: Evidence | None, names: list[str]
) -> tuple[list[str], dict[str, Any]]:
    """Say where chains disagree: on the size of the subset, on an input."""
    size = visited.sum(axis=2, keepdims=True).astype(float)
    elements = np.concatenate([size, visited.astype(float)], axis=2)
    labels = ["size", *(f"included[{name}]" for name in names)]
    alone = len(visited) < 2  # which is a problem also where nothing moves
    moving = [i for i in range(elements.shape[2]) if alone or np.ptp(elements[:, :, i]) > 0]
    problems: list[str] = []
    numbers: dict[str, Any] = {}
    if moving:
        problems, numbers = rhat_problems([labels[i] for i in moving], elements[:, :, moving])
    if evidence is None:
        return problems, numbers
    worst = int(np.argmax(evidence.error))
    numbers["background_error_max"] = float(evidence.error[worst])
    if evidence.error[worst] > ERROR_MAX:
        problems.append(
            f"The evidence of the background of {names[worst]} is known to "
            f"{evidence.error[worst]:.2f} nats only (limit {ERROR_MAX})"
        )
    return problems, numbers
