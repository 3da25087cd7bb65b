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
from typing import Any, NamedTuple

import numpy as np

from ardvark.errors import InputError
from ardvark.inference.sites.likelihoods import Array
from ardvark.inference.subset.factor import workspace
from ardvark.inference.subset.kernels import FIXED, run_collapsed
from ardvark.inference.subset.replace import likeness
from ardvark.inference.threads import Watch, in_threads

__all__ = ["MOVES", "Chain", "Subsets", "run_chains", "sample_collapsed", "whole_chain"]

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
    def products(self) -> tuple[Array, Array, Array, Array, float]:
        """A, A'A (empty if too large), its diagonal, A't, t't."""
        A = np.ascontiguousarray(self.A, dtype=np.float64)
        gram = A.T @ A if A.shape[1] <= MOST_PRODUCTS else np.empty((0, 0))
        return A, gram, np.einsum("nj,nj->j", A, A), A.T @ self.t, float(self.t @ self.t)


class Chain(NamedTuple):
    """What one chain has found."""

    weights: Array  # (draws, d + 1), the bias first; excluded: draws of the slab
    included: Array  # (draws, d)
    alpha: Array  # (draws, d + 1)
    sigma: Array  # (draws,)
    inclusion: Array  # (draws, d): P(included given the other inputs), averaged between draws
    visited: Array  # (sweeps, d): the subset of every sweep
    moves: Array  # (move, size, 2): tried and made, by the size before


def sample_collapsed(
    problem: Subsets,
    plan: tuple[int, int, int],
    chains: int,
    seed: int,
    jumps: int | None = None,
    threads: int | None = None,
) -> list[Chain]:
    """Sample a regression, or a probit through its latent utilities.

    Parameters
    ----------
    plan
        Sweeps thrown away, draws kept, sweeps for each draw.
    jumps
        Inputs that may change sides in a sweep; None: as many as there are inputs. With each 16
        goes one exchange, up to 8 of them.
    threads
        Chains at a time; the draws do not depend on it.
    """
    A, gram, diagonal, c, square = problem.products
    tune, draws, thin = plan
    replaces = problem.probit and A.shape[1] <= MOST_LIKE
    near = likeness(A) if replaces else np.empty((0, 0))

    def one(first: Any, rng: np.random.Generator, watch: Watch) -> Chain:
        return whole_chain(
            run_collapsed(
                A, gram, diagonal, c.copy(), square, problem.t, problem.probit, problem.log_prior,
                problem.alpha.copy(), problem.slab, problem.a, problem.b, problem.sigma,
                problem.scale, first, tune, draws, thin, jumps or problem.n_inputs,
                near, workspace(A.shape[1]), rng, watch,
            )
        )  # fmt: skip

    return run_chains(one, problem, chains, seed, threads)


def run_chains(
    one: Callable[[Any, np.random.Generator, Watch], Chain],
    problem: Subsets,
    chains: int,
    seed: int,
    threads: int | None = None,
) -> list[Chain]:
    """Run chains from dispersed subsets, each with a stream of random numbers of its own."""
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(chains)]
    fullest = min(problem.n_inputs, len(problem.t) // 2, FEW)
    sizes = np.linspace(0, fullest, chains).round().astype(int)
    starts = [
        1 + rng.permutation(problem.n_inputs)[:size]
        for rng, size in zip(streams, sizes, strict=True)
    ]
    return in_threads(lambda i, watch: one(starts[i], streams[i], watch), chains, threads)


def whole_chain(found: tuple[Any, ...]) -> Chain:
    """Give the arrays of a chain; the last of `found` says whether its numbers stayed finite."""
    *arrays, finite = found
    if not finite:
        raise InputError(
            "a chain over subsets has met numbers that are not finite: sums of squares of the "
            "inputs or of the target overflow. Bring the columns of X, and t, to a scale near 1."
        )
    return Chain(*arrays)
