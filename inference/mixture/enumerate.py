"""The RBF mixture by enumeration: all subsets, all allocations, for a handful of rows and inputs.

    p(x_j | d) = ∫ dβ p(β) Π_k F_j(rows of kernel k; β)
    F_j(S; β)  = ∫ dτ Gamma(τ; a, β) N(x_S; 0, 1/τ + 11')             for each of the 2^N sets S
    p(d | t)   = Π_classes Γ(D) / Γ(D + N_c) Π_k Γ(1 + n_ck)

    p(I, t, x) = p(I) p(t) Σ_d p(d | t) Π_{j in I} p(x_j | d) Π_{j not in I} p0(x_j)

p0(x_j) is the same sum with one class for all rows. The integral over log β is by Gauss and
Legendre from the least β on, the one over log τ by the trapezium rule; no number is drawn here.
"""

import math
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from ardvark.errors import UnsupportedPair
from ardvark.inference.mixture.background import Evidence
from ardvark.inference.mixture.kernels import LOG_2_PI, Problem
from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array, Index, Mask

__all__ = ["Enumeration", "enumerate_mixture"]

MOST_SETS = 2**13  # of rows
MOST_ALLOCATIONS = 200_000
MOST_INPUTS = 6
NODES = 40


class Enumeration(NamedTuple):
    """The exact posterior over subsets, and what draws from it need."""

    subsets: Mask  # (subset, input)
    log_joint: Array  # log p(I, t, x) by subset, up to p(t)
    allocations: Index  # (allocation, row)
    log_labels: Array  # log p(d | t)
    log_inputs: Array  # log p(x_j | d), (input, allocation)
    background: Evidence

    @property
    def probability(self) -> Array:
        """Posterior of each subset."""
        return np.asarray(np.exp(self.log_joint - logsumexp(self.log_joint)))


def enumerate_mixture(p: Problem, n_classes: int, n_kernels: int, n_background: int) -> Enumeration:
    """Sum over everything."""
    n_inputs, n_rows = p.z.shape
    _refuse_more(p, n_kernels)
    log_beta, weight = _rate_nodes(p)
    sets = np.stack(
        [_of_sets(p.z[j], p.shape, np.exp(log_beta[j]), p.floor) for j in range(n_inputs)]
    )
    allocations = np.array(list(product(range(n_kernels), repeat=n_rows)), dtype=np.int64)
    log_inputs = np.stack(
        [_of_allocations(allocations, n_kernels, sets[j], weight[j]) for j in range(n_inputs)]
    )
    if n_background == 1:
        log_p0 = logsumexp(sets[:, -1] + weight, axis=1)
    else:
        together = _log_labels(allocations, np.zeros(n_rows, np.int64), 1, n_kernels)
        log_p0 = logsumexp(log_inputs + together, axis=1)
    log_labels = _log_labels(allocations, p.label, n_classes, n_kernels)
    subsets = np.array(list(product((False, True), repeat=n_inputs)))
    log_joint = np.array(
        [
            p.log_prior[on.sum()] + logsumexp(log_labels + log_inputs[on].sum(axis=0))
            + log_p0[~on].sum()
            for on in subsets
        ]
    )  # fmt: skip
    background = Evidence(log_p0, np.zeros(n_inputs))
    return Enumeration(subsets, log_joint, allocations, log_labels, log_inputs, background)


def _refuse_more(p: Problem, n_kernels: int) -> None:
    n_inputs, n_rows = p.z.shape
    if (p.label < 0).any():
        raise UnsupportedPair("exact: enumeration takes labelled rows only. Use reversible_jump.")
    too_many = n_kernels**n_rows > MOST_ALLOCATIONS or 2**n_rows > MOST_SETS
    if too_many or n_inputs > MOST_INPUTS:
        raise UnsupportedPair(
            f"exact enumerates {n_kernels}^{n_rows} allocations and 2^{n_inputs} subsets here; at "
            f"most {MOST_ALLOCATIONS} allocations, 13 rows and {MOST_INPUTS} inputs are within "
            f"reach. Use reversible_jump."
        )


def _rate_nodes(p: Problem) -> tuple[Array, Array]:
    """Nodes log β by input, and the log of their weight times the prior of log β."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    low = max(math.log(p.floor), -60.0)
    high = np.log(60.0 / p.h)  # beyond it the prior is below e^-60
    half = (high - low)[:, None] / 2
    u = low + half * (x + 1)
    log_prior = p.log_p_beta[:, None] + p.g * u - p.h[:, None] * np.exp(u)
    return u, np.log(w * half) + log_prior


@njit(cache=True, error_model="numpy")
def _of_sets(x: Any, a: float, beta: Any, floor: float) -> Any:
    """Log F of every set of rows (as a binary number) and every β."""
    n_rows = x.shape[0]
    nodes = 100
    # log τ: below, x has a range of 1; above, Gamma(τ; a, β) has ended
    u = np.linspace(-10.0, math.log(60.0 / max(floor, 1e-9)), nodes)
    gap = u[1] - u[0]
    out = np.empty((1 << n_rows, beta.shape[0]))
    value = np.empty(nodes)
    for which in range(1 << n_rows):
        n, total, square = 0.0, 0.0, 0.0
        for row in range(n_rows):
            if which >> row & 1:
                n += 1.0
                total += x[row]
        centre = total / max(n, 1.0)
        for row in range(n_rows):
            if which >> row & 1:
                square += (x[row] - centre) ** 2
        for b in range(beta.shape[0]):
            if n == 0:
                out[which, b] = 0.0
                continue
            top = -np.inf
            for i in range(nodes):
                tau = math.exp(u[i])
                value[i] = (
                    a * u[i] - (beta[b] + 0.5 * square) * tau + 0.5 * n * (u[i] - LOG_2_PI)
                    - 0.5 * math.log1p(n * tau) - 0.5 * n * tau / (1.0 + n * tau) * centre**2
                )  # fmt: skip
                top = max(top, value[i])
            total_value = np.exp(value - top).sum() * gap
            out[which, b] = top + math.log(total_value) + a * math.log(beta[b]) - math.lgamma(a)
    return out


@njit(cache=True, error_model="numpy")
def _of_allocations(allocations: Any, n_kernels: int, sets: Any, weight: Any) -> Any:
    """Log p(x_j | d) of each allocation."""
    out = np.empty(allocations.shape[0])
    for i in range(allocations.shape[0]):
        terms = weight.copy()
        for k in range(n_kernels):
            which = 0
            for row in range(allocations.shape[1]):
                which += (allocations[i, row] == k) << row
            terms += sets[which]
        top = terms.max()
        out[i] = top + math.log(np.exp(terms - top).sum())
    return out


def _log_labels(allocations: Any, label: Any, n_classes: int, n_kernels: int) -> Array:
    """Log p(d | t), the probabilities of the kernels integrated out."""
    total = np.zeros(len(allocations))
    for k in range(n_classes):
        rows = allocations[:, label == k]
        total += gammaln(n_kernels) - gammaln(n_kernels + rows.shape[1])
        for e in range(n_kernels):
            total += gammaln(1 + (rows == e).sum(axis=1))
    return total
