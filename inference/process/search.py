"""Maximise an evidence with jumps from several starts, and weigh the optima that are found.

Laplace's evidence of an SVM jumps where a row enters the support (`support.py`). A line search
that meets a jump stops short of the optimum or lands beyond it, so here

* every point that is evaluated may become the best one: steps are accepted by value alone;
* L-BFGS is begun anew at the best point, with its memory wiped, until that gains nothing;
* then a few steps of different length along the slope try to get past a jump.

| Chu, Keerthi, Ong & Ghahramani 2006       | code                                                |
|-------------------------------------------|-----------------------------------------------------|
| ten random starts, table 1 and section 4   | `search`                                            |
| weights of the optima (18)                 | `weigh`, by log-sum-exp; equal optima count once    |
| expected relevance (19)                    | `Optima.expected_relevance`, and its spread         |

Two ends are one optimum if their relevances differ by less than 0.02 and their log evidences by
less than 0.1: else the number of starts that run into it would act as its weight. The weights are
those of a density in κ under a flat prior and ignore how wide an optimum is.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from ardvark.inference.running.threads import Watch, go_on, in_threads
from ardvark.inference.sites.approximation import REJECTED
from ardvark.inference.sites.arrays import Array

__all__ = ["End", "Optima", "climb", "search", "weigh"]

SAME_RELEVANCE = 0.02
SAME_EVIDENCE = 0.1  # nats: a jump's worth
HOPS = (0.3, 0.1, 0.03)  # steps of the logarithm that may lead past a jump
WORTH_A_ROUND = 0.05  # nats

type Objective = Callable[[Array], tuple[float, Array]]  # u -> value, gradient


class End(NamedTuple):
    """Where a climb has ended."""

    u: Array
    value: float
    gradient: Array
    evaluations: int
    converged: bool


class Optima(NamedTuple):
    """The different ends, the best one first."""

    ends: tuple[End, ...]
    found: Array  # how many starts led to each
    weight: Array  # Chu06 (18)
    relevance: Array  # (optimum, feature), Chu06 (16)

    @property
    def expected_relevance(self) -> Array:
        """Chu06 (19)."""
        return np.asarray(self.weight @ self.relevance)

    @property
    def relevance_spread(self) -> Array:
        """Weighted sd of the relevances over the optima."""
        away = np.square(self.relevance - self.expected_relevance)
        return np.sqrt(self.weight @ away)


def climb(
    objective: Objective,
    start: Array,
    bounds: tuple[Array, Array],
    *,
    tolerance: float = 1e-6,
    max_steps: int = 5000,
    max_rounds: int = 50,
    jumps: bool = True,
    watch: Watch | None = None,
) -> End:
    """Maximise from one start; the gradient is right between jumps.

    `tolerance` is the gain, in nats, at which a round is the last one. With `jumps` a round that
    gains less than a twentieth of a nat is, since the teeth of the saw are larger than that.
    """
    best_value, best_u, best_gradient, count = -np.inf, start, np.zeros_like(start), 0

    def falling(u: Array) -> tuple[float, Array]:
        nonlocal best_value, best_u, best_gradient, count
        if watch is not None:
            go_on(watch)
        value, gradient = objective(u)
        count += 1
        if value > best_value:
            best_value, best_u, best_gradient = value, u.copy(), gradient.copy()
        return (-value, -gradient) if np.isfinite(value) else (REJECTED, np.zeros_like(u))

    low, high = bounds
    least = max(tolerance, WORTH_A_ROUND if jumps else 0.0)
    coarse = 1e-2 * WORTH_A_ROUND if jumps else tolerance
    options = {"ftol": 0.1 * coarse, "gtol": 1e-5, "maxcor": 20, "maxls": 6 if jumps else 20}
    converged = False
    for _ in range(max_rounds):
        before = best_value
        found = optimize.minimize(
            falling, np.clip(best_u, low, high), jac=True, method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options=options | {"maxiter": max(max_steps - count, 1)},
        )  # fmt: skip
        if count >= max_steps:
            break
        if jumps and best_value - before < least:
            before, uphill = best_value, best_gradient / max(np.abs(best_gradient).max(), 1e-300)
            for size in HOPS:
                falling(np.clip(best_u + size * uphill, low, high))
        if best_value - before < least or (found.success and not jumps):
            converged = True
            break
    return End(best_u, best_value, best_gradient, count, converged)


def search(
    climbs: Sequence[Callable[[Watch], End]],
    workers: int = 1,
    done: Callable[[int, End], None] | None = None,
) -> list[End]:
    """Run the climbs, some at a time: what they compute is in LAPACK, which threads share well.

    LAPACK itself has one thread in each: its own would wait for each other, and where a climb ends
    would depend on their number.
    """

    def climbed(number: int, watch: Watch) -> End:
        end = climbs[number](watch)
        if done is not None:
            done(number, end)
        return end

    with threadpool_limits(1, "blas"):
        return in_threads(climbed, len(climbs), workers)


def weigh(ends: Sequence[End], relevance: Array) -> Optima:
    """Merge equal ends and weigh what is left; `relevance` is (end, feature)."""
    order = np.argsort([-end.value for end in ends], kind="stable")
    kept: list[int] = []
    found: list[int] = []
    for k in order:
        for place, other in enumerate(kept):
            apart = np.abs(relevance[k] - relevance[other]).max(initial=0.0)
            if apart <= SAME_RELEVANCE and ends[other].value - ends[k].value <= SAME_EVIDENCE:
                found[place] += 1
                break
        else:
            kept.append(int(k))
            found.append(1)
    values = np.array([ends[k].value for k in kept])
    weight = np.exp(values - logsumexp(values))  # Chu06 (18)
    return Optima(tuple(ends[k] for k in kept), np.array(found), weight, relevance[kept])
