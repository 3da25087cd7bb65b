"""Two tests of a Markov kernel against the joint distribution of parameters and data.

A kernel K(θ' | θ, y) leaves p(θ | y) invariant for every y if and only if it leaves the joint
p(θ) p(y | θ) invariant, and from the joint independent draws can be had.

| test | sees | control of errors |
|---|---|---|
| `geweke` (Geweke 2004) | moments along a chain that draws θ by K and y by the model, in turn | z by batches |
| `two_samples` (Gandy & Scott 2020) | θ after some moves from a draw of the joint, beside fresh draws | sequential, false alarms 1e-5 |

The first runs a long chain, so that small faults add up; the second needs no estimate of a variance
and no mixing. Both see only the functions they look at, of which the likelihood is one, and no
fault of how a chain starts or is thinned.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ks_2samp

from ardvark.inference.sites.arrays import Array

__all__ = ["Kernel", "Sequential", "geweke", "two_samples"]

MORE, LOOKS = 4, 7  # times so many draws after the first look; looks at most
FALSE_ALARMS = 1e-5
BATCHES = 50
HELD = 1e-20  # variance of a number that a kernel holds, but for rounding

type Rng = np.random.Generator


@dataclass(frozen=True)
class Kernel:
    """What is moved, its data, the move, and what is looked at."""

    begin: Callable[[Rng], Any]  # a draw of the prior
    data: Callable[[Any, Rng], Any]  # of the state
    move: Callable[[Any, Any, Rng], Any]  # of state and data
    seen: Callable[[Any, Any], Array]  # bounded functions of state and data


class Sequential(NamedTuple):
    """How the sequential test ended."""

    rejected: bool
    p: float  # of the last look, the smallest of all functions, times their number
    looks: int
    draws: int


def geweke(kernel: Kernel, rounds: int, rng: Rng) -> Array:
    """|z| of each function: the chain of θ and y in turn against independent draws."""
    independent = np.array([_fresh(kernel, rng) for _ in range(rounds)])
    state = kernel.begin(rng)
    chain = np.empty_like(independent)
    for i in range(rounds):
        y = kernel.data(state, rng)
        chain[i] = kernel.seen(state, y)  # (θ, y) is a draw of the joint, after the first move
        state = kernel.move(state, y, rng)
    batches = chain[: rounds // BATCHES * BATCHES].reshape(BATCHES, -1, chain.shape[1])
    means = batches.mean(axis=1)
    variance = means.var(axis=0, ddof=1) / BATCHES + independent.var(axis=0) / rounds
    gap = np.abs(means.mean(axis=0) - independent.mean(axis=0))
    return np.where(variance > HELD, gap / np.sqrt(np.maximum(variance, HELD)), 0.0)


def two_samples(kernel: Kernel, rng: Rng, first: int = 1000, steps: int = 5) -> Sequential:
    """Look at `first` draws, and again at more as long as the answer is not clear."""
    limit = FALSE_ALARMS / LOOKS  # Gandy & Scott 2020, algorithm 1
    factor = limit ** (1 / LOOKS)
    number, drawn = first, 0
    for look in range(1, LOOKS + 1):
        p = _difference(kernel, number, steps, rng)
        drawn += number
        if p <= limit:
            return Sequential(True, p, look, drawn)
        if p > factor + limit:
            break
        limit /= factor
        number = first * MORE
    return Sequential(False, p, look, drawn)


def _difference(kernel: Kernel, number: int, steps: int, rng: Rng) -> float:
    moved = np.array([_moved(kernel, steps, rng) for _ in range(number)])
    fresh = np.array([_fresh(kernel, rng) for _ in range(number)])
    columns = zip(moved.T, fresh.T, strict=True)
    smallest = min(float(ks_2samp(a, b, method="asymp").pvalue) for a, b in columns)
    return float(min(1.0, smallest * moved.shape[1]))


def _fresh(kernel: Kernel, rng: Rng) -> Array:
    state = kernel.begin(rng)
    return kernel.seen(state, kernel.data(state, rng))


def _moved(kernel: Kernel, steps: int, rng: Rng) -> Array:
    state = kernel.begin(rng)
    y = kernel.data(state, rng)
    for _ in range(steps):
        state = kernel.move(state, y, rng)
    return kernel.seen(state, y)
