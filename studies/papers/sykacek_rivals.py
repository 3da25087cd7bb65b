"""Two rivals of Syk00's table 1: the chain that the paper very probably ran, and its MLP.

`paper_chain`: Gibbs updates (3) of the joint density, and jumps whose "lh. rt." in (5) and (6) is that
of P(t | x, Θ). No density has both as its conditionals: the chain has no joint target, so what it gives
is a property of its moves (how often each is tried matters) and no posterior. It is here because the
published counts of subsets cannot come from (2) in (5): on standardised inputs not one birth is
accepted then. New coefficients come from their priors. With `move_4` births and deaths also move the
kernel probabilities by (4) and its mirror, "no contribution" in the ratio, as printed.

`mlp_ard`: 25 tanh units, precisions of the weights of each input from a Gamma, sampled by NUTS:

    ω_j ~ Gamma(1/2, 1/2),  u_jh ~ N(0, 1/ω_j),  v_kh ~ N(0, s²/25),  s ~ HalfNormal(5),  biases ~ N(0, 1)

The paper has Neal's hybrid Monte Carlo and does not print its priors.

| Syk00            | here                                  |
|------------------|---------------------------------------|
| (3)              | `mixture/kernels.py: gibbs_sweep`     |
| (4)              | `move_probabilities`                  |
| (5), (6)         | `try_jump`, ratio of P(t | x, Θ)      |
"""  # noqa: E501

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ardvark.inference.mixture.chains import class_probabilities, empty_state, log_classes
from ardvark.inference.mixture.kernels import (
    Problem,
    State,
    choose,
    copy_state,
    fill_prior,
    fill_priors,
    gibbs_sweep,
    log_size_ratio,
    rung,
)
from ardvark.inference.sites.arrays import Array, Index, Mask

__all__ = ["PaperChain", "mlp_ard", "paper_chain"]

BETA = (1.0, 1.0)  # b_a, b_b of (4), which the paper does not state
BIRTH, DEATH, EXCHANGE = 0, 1, 2


class PaperChain(NamedTuple):
    """What the paper's chain leaves after its first third."""

    visited: Mask  # (sweep, input)
    states: State  # (draw, ...)
    accepted: Array  # share by move


def paper_chain(
    p: Problem, n_classes: int, n_kernels: int, sweeps: int, draws: int, seed: int, move_4: bool
) -> PaperChain:
    """Run the chain from one input at random; burn-in is a third, as in the paper."""
    rng = np.random.default_rng(seed)
    n_inputs, n_rows = p.z.shape
    s = rung(empty_state((1,), n_classes, n_kernels, n_inputs, n_rows), 0)
    s.c[:], s.on[rng.integers(n_inputs)] = p.label, True
    s.P[:], s.w[:] = 1 / n_classes, rng.dirichlet(np.ones(n_kernels), n_classes)
    fill_priors(rng, p, s.mean, s.tau, s.beta)
    kept = sweeps - sweeps // 3
    visited = np.zeros((kept, n_inputs), np.bool_)
    stored = empty_state((draws,), n_classes, n_kernels, n_inputs, n_rows)
    counts = np.zeros((2, 3))
    run_paper(rng, p, s, sweeps, move_4, visited, stored, counts)
    return PaperChain(visited, stored, counts[1] / np.maximum(counts[0], 1))


def accuracy(chain: PaperChain, z: Array, label: Index) -> Any:
    """Which rows are right, by the average of P(t | x) over the draws."""
    return class_probabilities(chain.states, z).argmax(axis=1) == label


@njit(cache=True, nogil=True, error_model="numpy")
def run_paper(
    rng: Any, p: Problem, s: State, sweeps: int, move_4: bool, visited: Any, stored: State,
    counts: Any,
) -> None:  # fmt: skip
    """Sweeps of (3), each with a birth or a death, and an exchange."""
    rows = np.empty((s.w.shape[1], p.z.shape[1]))
    first, thin = sweeps - visited.shape[0], max(visited.shape[0] // stored.P.shape[0], 1)
    for i in range(sweeps):
        gibbs_sweep(rng, p, s, rows)
        for move in (int(rng.random() * 2), EXCHANGE):
            counts[0, move] += 1
            counts[1, move] += try_jump(rng, p, s, move, move_4)
        if i >= first:
            visited[i - first] = s.on
            if (i - first + 1) % thin == 0 and (i - first + 1) // thin <= stored.P.shape[0]:
                copy_state(s, rung(stored, (i - first + 1) // thin - 1))


@njit(cache=True, nogil=True, error_model="numpy")
def log_conditional(p: Problem, s: State) -> float:
    """Σ_n log P(t_n | x_n, Θ)."""
    out = np.empty((p.z.shape[1], s.P.shape[0]))
    log_classes(s.on, s.P, s.w, s.mean, s.tau, p.z, out)
    total = 0.0
    for n in range(p.z.shape[1]):
        total += out[n, p.label[n]]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def try_jump(rng: Any, p: Problem, s: State, move: int, move_4: bool) -> bool:
    """Try a birth, a death or an exchange; coefficients from the prior, Syk00 (5), (6)."""
    new = -1 if move == DEATH else choose(rng, s.on, False)
    old = -1 if move == BIRTH else choose(rng, s.on, True)
    if (new < 0 and move != DEATH) or (old < 0 and move != BIRTH):
        return False
    before, w = log_conditional(p, s), s.w.copy()
    ratio = log_size_ratio(p, s, new, old)
    if new >= 0:
        s.beta[new] = fill_prior(rng, p.shape, p.g, p.h[new], p.floor, s.mean[new], s.tau[new])
        s.on[new] = True
    if old >= 0:
        s.on[old] = False
    if move_4 and move != EXCHANGE:
        size = int(s.on.sum()) - (move == BIRTH)
        move_probabilities(rng.beta(BETA[0], BETA[1] + size), move == DEATH, s.w)
    if math.log(rng.random()) < ratio + log_conditional(p, s) - before:
        return True
    s.w[:] = w
    if new >= 0:
        s.on[new] = False
    if old >= 0:
        s.on[old] = True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def move_probabilities(share: float, mirror: bool, w: Any) -> None:
    """Move a share of the smaller half of w_k to the larger half, or back, Syk00 (4)."""
    n_kernels = w.shape[1]
    for k in range(w.shape[0]):
        order = np.argsort(w[k])
        for d in range(n_kernels // 2):
            low, high = order[d], order[n_kernels - 1 - d]
            giver, taker = (high, low) if mirror else (low, high)
            w[k, taker] += w[k, giver] * share
            w[k, giver] *= 1.0 - share


def mlp_ard(
    X: Array, label: Index, X_new: Array, *, hidden: int, draws: int, chains: int, seed: int
) -> dict[str, Any]:
    """Class probabilities of new rows by an MLP under ARD priors; inputs are standardised."""
    import nutpie
    import pymc as pm
    import pytensor.tensor as pt

    from ardvark.inference.samplers.chain_statistics import rhat

    n_classes = int(label.max()) + 1
    outputs = 1 if n_classes == 2 else n_classes
    with pm.Model() as model:
        precision = pm.Gamma("precision", 0.5, 0.5, shape=X.shape[1])
        u = pm.Normal("u", 0, 1, shape=(X.shape[1], hidden)) * precision[:, None] ** -0.5
        u_bias = pm.Normal("u_bias", 0, 1, shape=hidden)
        scale = pm.HalfNormal("scale", 5.0)
        v = pm.Normal("v", 0, 1, shape=(hidden, outputs)) * scale / hidden**0.5
        v_bias = pm.Normal("v_bias", 0, 1, shape=outputs)
        eta = pt.tanh(X @ u + u_bias) @ v + v_bias
        if outputs == 1:
            pm.Bernoulli("t", logit_p=eta[:, 0], observed=label)
        else:
            pm.Categorical("t", logit_p=eta, observed=label)
    compiled = nutpie.compile_pymc_model(model)
    tree = nutpie.sample(
        compiled, draws=draws, tune=draws, chains=chains, cores=1, seed=seed, progress_bar=False
    )
    posterior = tree.posterior.to_dataset().stack(sample=("chain", "draw"), create_index=False)

    def part(name: str) -> Array:
        return np.asarray(posterior[name].transpose("sample", ...).values)

    total = np.zeros((len(X_new), n_classes))
    weights = part("u") * part("precision")[:, :, None] ** -0.5
    out = part("v") * part("scale")[:, None, None] / hidden**0.5
    for u_i, b_i, v_i, c_i in zip(weights, part("u_bias"), out, part("v_bias"), strict=True):
        eta_new = np.tanh(X_new @ u_i + b_i) @ v_i + c_i
        if outputs == 1:
            eta_new = np.column_stack([np.zeros(len(X_new)), eta_new])
        eta_new -= eta_new.max(axis=1, keepdims=True)
        p = np.exp(eta_new)
        total += p / p.sum(axis=1, keepdims=True)
    log_precision = np.log(tree.posterior["precision"].values)
    return {
        "probability": total / len(weights),
        "relevance": np.median(part("precision") ** -0.5, axis=0),
        "rhat": float(np.max(rhat(log_precision))),
        "divergences": int(tree.sample_stats["diverging"].values.sum()),
    }
