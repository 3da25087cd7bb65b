"""All subsets of a linear regression, each with its exact evidence: the reference of the samplers.

With the slab and sigma given, the evidence of a subset is Gaussian; all 2^d of them are visited in
the order of a Gray code, one input changing at a time (`factor.py`). A sigma with a half-normal
prior is integrated by the trapezoidal rule in log sigma, whose error falls exponentially for such
integrands: with STEP standard deviations between the nodes it is below 1e-9.
"""

from dataclasses import dataclass
from math import log, pi
from typing import Any

import numpy as np

from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array
from ardvark.inference.subset.collapsed import Subsets
from ardvark.inference.subset.factor import push, remove, solve_weights, start, workspace
from ardvark.inference.subset.kernels import residual_square, sample_sigma

__all__ = ["MOST_INPUTS", "AllSubsets", "Enumeration", "enumerate_subsets"]

MOST_INPUTS = 15
STEP = 0.7  # in units of 1 / sqrt(2 N), the sd of log sigma given the weights
DROP = 45.0  # nats below its maximum where an integrand is left
REFRESH = 3  # Gibbs updates of (weights, sigma) after a node has been drawn


@dataclass(frozen=True)
class AllSubsets:
    """The posterior over all subsets; subset i holds input j if bit j of i is set."""

    log_joint: Array  # log p(t, I), (2^d,)

    @property
    def total(self) -> float:
        """Log evidence of t under the whole model."""
        return float(np.logaddexp.reduce(self.log_joint))

    @property
    def probability(self) -> Array:
        """Posterior probability of each subset."""
        return np.exp(self.log_joint - self.total)

    @property
    def included(self) -> Any:
        """Indicators (2^d, d)."""
        d = len(self.log_joint).bit_length() - 1
        return np.arange(len(self.log_joint))[:, None] >> np.arange(d) & 1


@dataclass(frozen=True)
class Enumeration(AllSubsets):
    """Of a regression, sigma integrated out."""

    log_evidence: Array  # (2^d, nodes): of t given the subset and sigma, with sigma's own weight
    sigma: Array  # nodes


def enumerate_subsets(problem: Subsets) -> Enumeration:
    """Give the evidence of every subset of a regression with a fixed slab."""
    d = problem.n_inputs
    assert d <= MOST_INPUTS and problem.slab == 0 and not problem.probit
    sigma, log_weight = _nodes(problem)
    evidence = np.column_stack([_evidences(problem, x) for x in sigma]) + log_weight
    size = np.bitwise_count(np.arange(2**d))
    joint = np.logaddexp.reduce(evidence, axis=1) + problem.log_prior[size]
    return Enumeration(joint, evidence, sigma)


def draw_given_subsets(
    problem: Subsets, found: Enumeration, draws: int, rng: np.random.Generator
) -> tuple[Any, Array, Array]:
    """Independent draws: subsets (draws,), weights (draws, d + 1; excluded ones 0), sigma."""
    which = rng.choice(len(found.log_joint), size=draws, p=found.probability)
    weight = found.log_evidence[which]
    cumulative = np.cumsum(np.exp(weight - weight.max(axis=1, keepdims=True)), axis=1)
    node = (cumulative < rng.random((draws, 1)) * cumulative[:, -1:]).sum(axis=1)
    sigma = found.sigma[node]
    weights = _weights(
        which, sigma, problem.products, problem.alpha, problem.scale,
        workspace(problem.n_inputs + 1), rng,
    )  # fmt: skip
    return which, weights, sigma


def _evidences(problem: Subsets, sigma: float) -> Array:
    """Log evidence of t at this sigma, for every subset."""
    data, tau, rows = problem.products, sigma**-2, len(problem.t)
    constant = 0.5 * rows * log(tau / (2 * pi)) - 0.5 * tau * data.square
    found: Array = _gray_code(data, tau, problem.alpha, workspace(problem.n_inputs + 1))
    return constant + found


def _nodes(problem: Subsets) -> tuple[Array, Array]:
    """Values of sigma, and the log weight of each in the integral (0 where sigma is known)."""
    if problem.scale == 0.0:
        return np.array([problem.sigma]), np.zeros(1)
    step = STEP / np.sqrt(2.0 * len(problem.t))
    x = np.arange(np.log(1e-4 * problem.scale), np.log(8.0 * problem.scale), step)
    sigma = np.exp(x)
    log_prior = 0.5 * np.log(2 / np.pi) - np.log(problem.scale) - 0.5 * (sigma / problem.scale) ** 2
    log_weight = log_prior + x + np.log(step)
    # The least and the largest residual belong to all inputs and to none: sigma lies between.
    ends = [_extremes(problem, float(value)) for value in sigma]
    worth = np.array(ends) + log_weight[:, None]
    used = np.any(worth > worth.max(axis=0) - DROP, axis=1)
    between = slice(int(np.argmax(used)), len(used) - int(np.argmax(used[::-1])))
    return sigma[between], log_weight[between]


def _extremes(problem: Subsets, sigma: float) -> list[float]:
    """Log evidence of the bias alone and of all inputs, at this sigma."""
    gram, c, square = problem.products.gram, problem.products.c, problem.products.square
    tau, values = sigma**-2, []
    for k in (1, len(c)):
        M = tau * gram[:k, :k] + np.diag(problem.alpha[:k])
        fit = 0.5 * tau**2 * c[:k] @ np.linalg.solve(M, c[:k])
        half_log_det = 0.5 * (np.linalg.slogdet(M)[1] - np.log(problem.alpha[:k]).sum())
        values.append(0.5 * len(problem.t) * log(tau) - 0.5 * tau * square + fit - half_log_det)
    return values


@njit(cache=True, error_model="numpy")
def _gray_code(data, tau, alpha, f):  # type: ignore[no-untyped-def]
    d = data.c.size - 1
    found = np.empty(1 << d)
    start(f, data, tau, alpha)
    push(0, 0, f, data, tau, alpha)
    k, code = 1, 0
    for step in range(1 << d):
        if step > 0:
            bit = 0
            while not step >> bit & 1:
                bit += 1
            code ^= 1 << bit
            if f.place[bit + 1] >= 0:
                remove(f.place[bit + 1], k, f, data, tau, alpha)
                k -= 1
            else:
                push(bit + 1, k, f, data, tau, alpha)
                k += 1
        value = 0.0
        for r in range(k):
            j = f.members[r]
            value += 0.5 * np.log(alpha[j]) - np.log(f.rows[r, j]) + 0.5 * f.beta[r] ** 2
        found[code] = value
        if step % 256 == 255:  # start afresh before rounding adds up
            start(f, data, tau, alpha)
            for r in range(k):
                push(f.members[r], r, f, data, tau, alpha)
    return found


@njit(cache=True, error_model="numpy")
def _weights(which, sigma, data, alpha, scale, f, rng):  # type: ignore[no-untyped-def]
    columns = alpha.size
    found = np.zeros((which.size, columns))
    white, weights = np.empty(columns), np.empty(columns)
    for draw in range(which.size):
        for turn in range(REFRESH + 1):
            tau, k = 1.0 / sigma[draw] ** 2, 1
            start(f, data, tau, alpha)
            push(0, 0, f, data, tau, alpha)
            for j in range(1, columns):
                if which[draw] >> (j - 1) & 1:
                    push(j, k, f, data, tau, alpha)
                    k += 1
            for r in range(k):
                white[r] = f.beta[r] + rng.standard_normal()
            solve_weights(k, f, white, weights)
            if scale == 0.0:
                break
            if turn < REFRESH:  # a node is right to 1e-9 as a whole: this makes each draw so
                residual = residual_square(k, f.members, weights, data)
                sigma[draw] = sample_sigma(sigma[draw], residual, data.t.size, scale, rng)
        for r in range(k):
            found[draw, f.members[r]] = weights[r]
    return found
