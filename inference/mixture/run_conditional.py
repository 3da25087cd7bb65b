"""The RBF mixture by `target="conditional"`: the posterior under P(t | x), by jumps and HMC.

    π(I, Θ) ∝ p(I) p(Θ | I) Π_n P(t_n | x_n, Θ, I)

Which inputs tell the classes apart, as Syk00 asks. An unlabelled row does not enter: P(t | x) says
nothing of x, so that it informs the range of an input and no more. There are no Gibbs updates for
this target: chains are those of `conditional/chains.py`. Draws are completed to draws of the graph:
the coefficients of an input outside the subset come from their prior.

| group | here |
|---|---|
| `sample_stats` | `n_inputs` by draw; `log_t` of each draw's labels; `tried`, `accepted` by (move, size); `power`, `tilt` (log of a rung's λ over λ), `swaps` |
| `fit` | `inclusion` with its error |

`conditional_evidence` is a second route to the same posterior for few rows: the mean of
P(t | x, Θ, I) over draws of Θ from the prior, subset by subset.
"""  # noqa: E501

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import logsumexp, softmax

from ardvark.errors import UnsupportedPair
from ardvark.inference.facts import Run
from ardvark.inference.mixture.chains import log_labels, prior_draws
from ardvark.inference.mixture.conditional.chains import (
    ConditionalChain,
    Effort,
    run_conditional_chains,
)
from ardvark.inference.mixture.conditional.jumps import MOVES
from ardvark.inference.mixture.kernels import Problem, State
from ardvark.inference.running.progress import progress
from ardvark.inference.sites.arrays import Array
from ardvark.inference.tally import ladder_counts
from ardvark.models.mixture import MixturePrior

__all__ = ["Drawn", "conditional_evidence", "sample_conditional"]

RUNGS, LEAPFROGS, LEAST_JUMPS = 14, 10, 10
LEAST_HMC = 0.2  # acceptance of HMC below which it does not move


class Drawn(NamedTuple):
    """Chains, their draws in the units of x, and how they went."""

    chains: list[ConditionalChain]
    posterior: dict[str, Array]  # (chain, draw, ...)
    counts: xr.Dataset
    problems: list[str]
    numbers: dict[str, Any]


def sample_conditional(
    problem: Problem, prior: MixturePrior, name: str, settings: Any, run: Run
) -> Drawn:
    """Run the chains; `problem` has labelled rows only."""
    if settings.proposals == "prior":
        raise UnsupportedPair(
            f"{name}: proposals='prior': with target='conditional' births come from a mixture of "
            "the prior and of what the data say. Leave proposals out."
        )
    seeds = [int(s) for s in np.random.SeedSequence(run.seed).generate_state(2)]
    with progress(name, run.progressbar) as tick:
        tick("jumps with HMC")
        chains = run_conditional_chains(
            problem, prior.n_classes, prior.n_kernels, settings.plan(run.draws),
            effort=Effort(settings.jumps or max(LEAST_JUMPS, len(problem.z) // 2), LEAPFROGS),
            rungs=settings.rungs or RUNGS, chains=run.chains, seed=seeds[0],
        )  # fmt: skip
    rng = np.random.default_rng(seeds[1])
    parts = [_completed(chain, problem, prior, rng) for chain in chains]
    posterior = {key: np.stack([part[key] for part in parts]) for key in parts[0]}
    log_t = np.stack([chain.log_t for chain in chains])
    thin = max(log_t.shape[1] // run.draws, 1)
    counts, rates = ladder_counts(chains, MOVES)
    counts = counts.assign(
        log_t=(("chain", "draw"), log_t[:, thin - 1 :: thin][:, : run.draws]),
        tilt=(("chain", "rung"), np.stack([chain.tilts for chain in chains])),
    )
    numbers = rates | {
        "accepted_hmc": float(np.mean([chain.hmc_accepted for chain in chains])),
        "divergences": int(sum(chain.divergences for chain in chains)),
    }
    return Drawn(chains, posterior, counts, _problems(chains), numbers)


def _completed(
    chain: ConditionalChain, p: Problem, prior: MixturePrior, rng: np.random.Generator
) -> dict[str, Array]:
    """All variables of the graph in the units of x."""
    s = chain.states
    mean, tau, beta = prior_draws(p, s.on.shape, prior.n_kernels, rng)
    on, centre, spread = s.on[..., None], prior.centre[:, None], prior.spread[:, None]
    return {
        "included": s.on.astype(np.int64),
        "class_probability": softmax(s.A, axis=-1),
        "kernel_probability": softmax(s.B, axis=-1),
        "kernel_mean": centre + spread * np.where(on, s.mean, mean),
        "kernel_precision": np.where(on, s.tau, tau) / spread**2,
        "kernel_rate": np.where(s.on, s.beta, beta) * prior.spread**2,
    }


def _problems(chains: list[ConditionalChain]) -> list[str]:
    worst = min(chain.hmc_accepted for chain in chains)
    if worst >= LEAST_HMC:
        return []
    return [f"HMC accepts {worst:.2f} of its proposals in one chain (limit {LEAST_HMC}): tune more"]


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
