"""All subsets of a two-class linear model with their evidences: the reference of reversible jump.

    p(t | I) = ∫ p(t | w) p(w | I) dw = E_q[p(t, w | I) / q(w)]

q is the Student-t around the mode of p(t, w | I) with the Laplace precision (`laplace_fit.py`), whose
tails are heavier than those of the posterior, so that the weights p/q are bounded and their mean has
an error that can be told. Precisions of the slab are given, or integrated out of p(w | I). A subset
gets PILOT proposals; those that may hold more than SMALL of the probability get LONG.

A second route has no chance in it: EP's evidence with its second-order correction
(`ep/correction.py`), of the subsets that hold probability and a slab that is given. The largest
difference of the two is told.

Draws: a subset by its probability, then one of LONG fresh proposals by its weight p/q.
"""  # noqa: E501

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.ep.correction import evidence_correction
from ardvark.inference.ep.ep import EP
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import DONE, STOP, Watch, go_on, in_threads
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.sites.likelihoods import LogitSites, ProbitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.subset.collapsed import Subsets
from ardvark.inference.subset.enumerate import AllSubsets
from ardvark.inference.subset.kernels import FIXED, sample_precisions
from ardvark.inference.subset.laplace_fit import (
    Slab,
    TwoClasses,
    draw_weights,
    empty_fit,
    laplace,
    log_joint,
    log_proposal,
)

__all__ = ["MOST_INPUTS", "Weighed", "draw_from_subsets", "ep_evidences", "weigh_subsets"]

MOST_INPUTS = 12
PILOT, LONG = 200, 5000  # proposals for a subset
SMALL = 1e-4  # of the probability of the best subset
MOST_ERROR = 0.02  # of a probability
HELD = 1e-3  # probability from which EP is asked too


@dataclass(frozen=True)
class Weighed(AllSubsets):
    """Of a two-class model, with its errors."""

    log_evidence: Array  # (2^d,)
    error: Array  # standard error of it

    @property
    def total_error(self) -> float:
        """Standard error of the log evidence of t."""
        return float(np.sqrt(np.sum((self.probability * self.error) ** 2)))

    @property
    def probability_error(self) -> Array:
        """Standard error of each probability: its own evidence and that of all others vary."""
        p, own = self.probability, (self.probability * self.error) ** 2
        others = own.sum() - own
        return np.sqrt((1 - p) ** 2 * own + p**2 * others)


class Evidences(NamedTuple):
    """What the kernel fills, (2^d,) each."""

    value: Array
    error: Array


def weigh_subsets(problem: Subsets, link: str, seed: int) -> Weighed:
    """Give the evidence of every subset of a two-class model, and its error."""
    number = 1 << problem.n_inputs
    data, slab = _numbers(problem, link)
    prior = problem.log_prior[np.bitwise_count(np.arange(number))]
    pilot, long = np.random.SeedSequence(seed).spawn(2)
    found = Evidences(np.empty(number), np.empty(number))

    def some(which: Index, proposals: int, source: Any) -> None:
        def work(_: int, watch: Watch) -> None:
            rng = np.random.default_rng(source)
            weigh(which, proposals, data, problem.alpha, slab, found, rng, watch)
            go_on(watch)

        in_threads(work, 1)

    some(np.arange(number), PILOT, pilot)
    joint = found.value + prior
    some(np.flatnonzero(joint > joint.max() + log(SMALL)), LONG, long)
    return Weighed(found.value + prior, *found)


def ep_evidences(problem: Subsets, link: str, found: Weighed) -> Array:
    """Log evidences by corrected EP, of subsets with probability above `HELD`; else NaN."""
    assert problem.slab == FIXED
    sites = (ProbitSites if link == "probit" else LogitSites)(problem.t)
    values = np.full(len(found.log_evidence), np.nan)
    for code in np.flatnonzero(found.probability >= HELD).tolist():
        columns = [0, *(j + 1 for j in range(problem.n_inputs) if code >> j & 1)]
        model = SiteModel(
            mean=np.zeros(len(columns)),
            projection=np.ascontiguousarray(problem.A[:, columns]),
            offset=np.zeros(len(problem.t)),
            sites=sites,
            precision=problem.alpha[columns],
        )
        fit = EP().approximate(model)
        values[code] = fit.log_evidence + evidence_correction(fit).value
    return values


def draw_from_subsets(
    problem: Subsets, link: str, found: Weighed, draws: int, seed: int
) -> tuple[Index, Array, Array]:
    """Subsets (draws,), weights (draws, d + 1; excluded ones 0) and precisions (draws, d + 1)."""
    rng = np.random.default_rng(seed)
    which = rng.choice(len(found.log_evidence), size=draws, p=found.probability)
    data, slab = _numbers(problem, link)
    weights = np.zeros((draws, len(problem.alpha)))
    alpha = np.tile(problem.alpha, (draws, 1))
    order = np.argsort(which, kind="stable")

    def work(_: int, watch: Watch) -> None:
        resample(which[order], order, LONG, data, slab, weights, alpha, rng, watch)
        go_on(watch)

    in_threads(work, 1)
    return which, weights, alpha


def _numbers(problem: Subsets, link: str) -> tuple[TwoClasses, Slab]:
    data = TwoClasses(np.ascontiguousarray(problem.A), problem.t, link == "probit")
    return data, Slab(problem.slab, problem.a, problem.b)


# --- machine code -------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def fill_members(code, members, place):  # type: ignore[no-untyped-def]
    """Columns of a subset, the bias first; their number."""
    members[0], k = 0, 1
    place[:] = -1
    for j in range(1, members.size):
        if code >> (j - 1) & 1:
            members[k], place[j] = j, k
            k += 1
    return k


@njit(cache=True, nogil=True, error_model="numpy")
def weigh(which, proposals, data, alpha, slab, found, rng, watch):  # type: ignore[no-untyped-def]
    """Log evidence of each subset and its error, in place."""
    columns = alpha.size
    members, place = np.zeros(columns, np.int64), np.empty(columns, np.int64)
    fit, weights, log_weight = empty_fit(columns), np.zeros(columns), np.empty(proposals)
    for code in which:
        if watch[STOP]:
            return
        watch[DONE] += 1
        k = fill_members(code, members, place)
        laplace(k, members, data, alpha, slab, fit)
        for i in range(proposals):
            draw_weights(k, fit.mode, fit.L, fit.white, weights, rng)
            log_weight[i] = log_joint(k, weights, members, data, alpha, slab)
            log_weight[i] -= log_proposal(k, weights, fit.mode, fit.L)
        top = log_weight.max()
        first, second = 0.0, 0.0
        for i in range(proposals):
            x = exp(log_weight[i] - top)
            first += x / proposals
            second += x * x / proposals
        found.value[code] = top + log(first)
        found.error[code] = sqrt(max(second / first**2 - 1.0, 0.0) / proposals)


@njit(cache=True, nogil=True, error_model="numpy")
def resample(which, order, proposals, data, slab, out, alpha, rng, watch):  # type: ignore[no-untyped-def]
    """Weights and precisions of draws from these subsets, which are sorted."""
    columns = out.shape[1]
    members, place = np.zeros(columns, np.int64), np.empty(columns, np.int64)
    fit, given = empty_fit(columns), alpha[0].copy()
    tried, total = np.zeros((proposals, columns)), np.empty(proposals)
    k = 0
    for i in range(which.size):
        if i == 0 or which[i] != which[i - 1]:
            if watch[STOP]:
                return
            k = fill_members(which[i], members, place)
            laplace(k, members, data, given, slab, fit)
            for r in range(proposals):
                draw_weights(k, fit.mode, fit.L, fit.white, tried[r], rng)
                total[r] = log_joint(k, tried[r], members, data, given, slab)
                total[r] -= log_proposal(k, tried[r], fit.mode, fit.L)
            total[:] = np.cumsum(np.exp(total - total.max()))
        chosen = min(np.searchsorted(total, rng.random() * total[-1]), proposals - 1)
        for r in range(k):
            out[order[i], members[r]] = tried[chosen, r]
        sample_precisions(k, members, place, tried[chosen], slab, alpha[order[i]], rng)
