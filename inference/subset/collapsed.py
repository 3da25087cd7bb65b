"""Posterior over the subsets of a linear model, with the weights integrated out.

`Subsets` is the problem on arrays: the first column of `A` is the constant, which is always in. A
chain starts from a subset of its own (the first from none, the last from many), has its own stream
of random numbers and its own thread: the machine code holds no lock, and the draws do not depend on
how many run at a time. The moves are in `kernels.py`; `laplace.py` has those of
likelihoods for which no weight can be integrated out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ardvark.errors import InputError
from ardvark.inference.reversible_jump import Plan
from ardvark.inference.running.threads import Watch, in_threads
from ardvark.inference.sites.arrays import Array
from ardvark.inference.subset.factor import Products, workspace
from ardvark.inference.subset.kernels import FIXED, Prior, Store, run_collapsed
from ardvark.inference.subset.laplace_fit import Slab
from ardvark.inference.subset.replace import likeness

__all__ = ["MOVES", "Subsets", "finite_chain", "run_chains", "sample_collapsed"]

MOVES = ("add", "delete", "exchange", "replace")
MOST_PRODUCTS = 3000  # columns: up to here A'A is kept
MOST_LIKE = 1000  # columns: up to here inputs like a member are proposed in its place
FEW = 20  # inputs, at most, of the fullest start


@dataclass(frozen=True)
class Subsets:
    """A linear model over subsets of its inputs, as arrays."""

    A: Array  # (N, d + 1), the constant first
    t: Array  # target less the prior mean of the bias; signs for two classes
    log_prior: Array  # (d + 1,): of one subset, by size
    alpha: Array  # (d + 1,) prior precisions; where they are inferred: to start with
    slab: int = FIXED
    a: float = 2.0
    b: float = 1.0
    sigma: float = 1.0
    scale: float = 0.0  # of sigma's half-normal; 0: sigma is known
    probit: bool = False

    @property
    def n_inputs(self) -> int:
        """Number of inputs, the constant not counted."""
        return int(self.A.shape[1]) - 1

    @cached_property
    def products(self) -> Products:
        """The data with their products; A'A is left out if it is too large."""
        A = np.ascontiguousarray(self.A, dtype=np.float64)
        gram = A.T @ A if A.shape[1] <= MOST_PRODUCTS else np.empty((0, 0))
        squares, c, square = np.einsum("nj,nj->j", A, A), A.T @ self.t, float(self.t @ self.t)
        return Products(A, self.t, self.probit, gram, squares, c, square)

    def prior(self) -> Prior:
        """Give the prior with a copy of the precisions, which a chain overwrites."""
        slab = Slab(self.slab, self.a, self.b)
        return Prior(self.log_prior, self.alpha.copy(), slab, self.sigma, self.scale)


def sample_collapsed(
    problem: Subsets,
    plan: tuple[int, int, int],
    chains: int,
    seed: int,
    jumps: int | None = None,
    threads: int | None = None,
) -> list[Store]:
    """Sample a regression, or a probit through its latent utilities.

    `plan` is a `Plan`. `jumps` inputs may change sides in a sweep (None: as many as there are
    inputs); with each 16 goes one exchange, up to 8 of them. `threads` chains run at a time: the
    draws do not depend on it.
    """
    data = problem.products
    replaces = problem.probit and data.A.shape[1] <= MOST_LIKE
    near = likeness(data.A) if replaces else np.empty((0, 0))

    def one(first: Any, rng: np.random.Generator, watch: Watch) -> Store:
        own, factor = data._replace(c=data.c.copy()), workspace(data.A.shape[1])
        tries = jumps or problem.n_inputs
        found = run_collapsed(
            own,
            problem.prior(),
            Plan(*plan),
            tries,
            near,
            first,
            np.zeros(1 + len(first)),
            factor,
            rng,
            watch,
        )
        return finite_chain(*found)

    return run_chains(one, problem, chains, seed, threads)


def run_chains(
    one: Callable[[Any, np.random.Generator, Watch], Store],
    problem: Subsets,
    chains: int,
    seed: int,
    threads: int | None = None,
) -> list[Store]:
    """Run chains from dispersed subsets, each with a stream of random numbers of its own."""
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(chains)]
    fullest = min(problem.n_inputs, len(problem.t) // 2, FEW)
    sizes = np.linspace(0, fullest, chains).round().astype(int)
    starts = [
        1 + rng.permutation(problem.n_inputs)[:size]
        for rng, size in zip(streams, sizes, strict=True)
    ]
    return in_threads(lambda i, watch: one(starts[i], streams[i], watch), chains, threads)


def finite_chain(store: Store, finite: bool) -> Store:
    """Give what a chain has found, if its numbers stayed finite."""
    if not finite:
        raise InputError(
            "a chain over subsets has met numbers that are not finite: sums of squares of the "
            "inputs or of the target overflow, or some inputs explain the target and nothing is "
            "left for noise. Bring the columns of X, and t, to a scale near 1, or fix the noise."
        )
    return store
