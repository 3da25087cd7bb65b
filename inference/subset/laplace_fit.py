"""The Laplace Gaussian of one subset of a two-class linear model, and its log density, in numba.

Weights are in the order of `members`, columns of A, the bias (column 0) first. The precisions of
the slab are given (FIXED), or integrated out: a Student-t for each weight (ONE_EACH), or one
multivariate t for all (SHARED). Proposals are a Student-t of the Gaussian's shape with TAILS
degrees of freedom.
"""

from math import exp, lgamma, log, log1p, pi, sqrt
from typing import NamedTuple

import numpy as np

from ardvark.inference.known_sites.kernels import log_cdf, truncation
from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array

__all__ = [
    "FIXED",
    "ONE_EACH",
    "SHARED",
    "Fit",
    "Slab",
    "TwoClasses",
    "draw_weights",
    "empty_fit",
    "laplace",
    "log_joint",
    "log_proposal",
]

FIXED, ONE_EACH, SHARED = 0, 1, 2  # precisions of the slab
TAILS = 8.0
STEPS = 60  # of Newton's search, at most
TOLERANCE = 1e-10  # squared length of a step, in posterior sds
HALF_LOG_TWO_PI = 0.5 * log(2 * pi)


class TwoClasses(NamedTuple):
    """Data of a two-class model; `Products` has the same fields and may stand for it."""

    A: Array  # (N, d + 1), the constant first
    t: Array  # signs
    probit: bool  # else logit


class Slab(NamedTuple):
    """Prior of the precisions of the included weights."""

    kind: int  # FIXED, ONE_EACH or SHARED
    a: float  # shape and rate of their Gamma
    b: float


class Fit(NamedTuple):
    """The Gaussian of one subset of k members, in the first k places, and room to find it."""

    mode: Array
    L: Array  # lower factor of the precision at the mode
    force: Array
    white: Array
    step: Array
    trial: Array


@njit(cache=True, nogil=True, error_model="numpy")
def empty_fit(columns):  # type: ignore[no-untyped-def]
    """Give the arrays of a fit of up to this many columns."""
    return Fit(
        np.empty(columns), np.zeros((columns, columns)), np.empty(columns), np.empty(columns),
        np.empty(columns), np.empty(columns),
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _site(probit, z):  # type: ignore[no-untyped-def]
    """Log likelihood at the signed predictor, its first derivative, minus its second."""
    if probit:
        h, c, _ = truncation(z)
        return log_cdf(z, h), h, c
    p = 1.0 / (1.0 + exp(z))
    value = -log1p(exp(-z)) if z > 0.0 else z - log1p(exp(z))
    return value, p, p * (1.0 - p)


@njit(cache=True, nogil=True, error_model="numpy")
def log_weights(k, weights, members, alpha, slab):  # type: ignore[no-untyped-def]
    """Log prior of the weights of the members, the precisions integrated out."""
    kind, a, b = slab
    total = 0.5 * log(alpha[0]) - HALF_LOG_TWO_PI - 0.5 * alpha[0] * weights[0] ** 2
    if kind == SHARED:
        square = 0.0
        for r in range(1, k):
            square += weights[r] ** 2
        shape = a + 0.5 * (k - 1)
        total += lgamma(shape) - lgamma(a) + a * log(b) - (k - 1) * HALF_LOG_TWO_PI
        return total - shape * log(b + 0.5 * square)
    for r in range(1, k):
        if kind == ONE_EACH:
            total += lgamma(a + 0.5) - lgamma(a) + a * log(b) - HALF_LOG_TWO_PI
            total -= (a + 0.5) * log(b + 0.5 * weights[r] ** 2)
        else:
            j = members[r]
            total += 0.5 * log(alpha[j]) - HALF_LOG_TWO_PI - 0.5 * alpha[j] * weights[r] ** 2
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def log_joint(k, weights, members, data, alpha, slab):  # type: ignore[no-untyped-def]
    """Log p(t, w given the subset)."""
    A, sign, probit = data.A, data.t, data.probit
    total = log_weights(k, weights, members, alpha, slab)
    for n in range(A.shape[0]):
        eta = 0.0
        for r in range(k):
            eta += A[n, members[r]] * weights[r]
        z = sign[n] * eta
        if probit:
            total += log_cdf(z, truncation(z)[0] if z <= -2.0 else 0.0)
        else:
            total += -log1p(exp(-z)) if z > 0.0 else z - log1p(exp(z))
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _expand(k, weights, members, data, alpha, slab, force, H):  # type: ignore[no-untyped-def]
    """Give the gradient of log_joint, and a precision H of its Gaussian (prior by its bound)."""
    A, sign, probit = data.A, data.t, data.probit
    kind, a, b = slab
    H[:k, :k] = 0.0
    force[:k] = 0.0
    for n in range(A.shape[0]):
        eta = 0.0
        for r in range(k):
            eta += A[n, members[r]] * weights[r]
        _, first, curvature = _site(probit, sign[n] * eta)
        for r in range(k):
            x = A[n, members[r]]
            force[r] += sign[n] * first * x
            x *= curvature
            for i in range(r + 1):
                H[r, i] += x * A[n, members[i]]
    square = 0.0
    for r in range(1, k):
        square += weights[r] ** 2
    for r in range(k):
        precision = alpha[members[r]]
        if r > 0 and kind == ONE_EACH:
            precision = (a + 0.5) / (b + 0.5 * weights[r] ** 2)
        elif r > 0 and kind == SHARED:
            precision = (a + 0.5 * (k - 1)) / (b + 0.5 * square)
        H[r, r] += precision
        force[r] -= precision * weights[r]


@njit(cache=True, nogil=True, error_model="numpy")
def _factor(k, H):  # type: ignore[no-untyped-def]
    """Cholesky in place of the lower triangle."""
    for i in range(k):
        for j in range(i + 1):
            x = H[i, j]
            for r in range(j):
                x -= H[i, r] * H[j, r]
            H[i, j] = sqrt(x) if i == j else x / H[j, j]


@njit(cache=True, nogil=True, error_model="numpy")
def solve_transposed(k, L, white, out):  # type: ignore[no-untyped-def]
    for r in range(k - 1, -1, -1):
        x = white[r]
        for i in range(r + 1, k):
            x -= L[i, r] * out[i]
        out[r] = x / L[r, r]


@njit(cache=True, nogil=True, error_model="numpy")
def laplace(k, members, data, alpha, slab, fit, tolerance=TOLERANCE):  # type: ignore[no-untyped-def]
    """Fit one subset from zero: the mode, the factor of the precision there, the log evidence."""
    mode, L, force, white, step, trial = fit
    mode[:k] = 0.0
    value = log_joint(k, mode, members, data, alpha, slab)
    for _ in range(STEPS):
        _expand(k, mode, members, data, alpha, slab, force, L)
        _factor(k, L)
        decrement = 0.0
        for r in range(k):
            x = force[r]
            for i in range(r):
                x -= L[r, i] * white[i]
            white[r] = x / L[r, r]
            decrement += white[r] ** 2
        if decrement < tolerance:
            break
        solve_transposed(k, L, white, step)
        share = 1.0
        while share > 1e-4:
            for r in range(k):
                trial[r] = mode[r] + share * step[r]
            new = log_joint(k, trial, members, data, alpha, slab)
            if new > value:
                break
            share *= 0.5
        if not share > 1e-4:
            break  # no better by any step: rounding
        mode[:k] = trial[:k]
        value = new
    evidence = value + k * HALF_LOG_TWO_PI
    for r in range(k):
        evidence -= log(L[r, r])
    return evidence


@njit(cache=True, nogil=True, error_model="numpy")
def log_proposal(k, weights, mode, L):  # type: ignore[no-untyped-def]
    """Log density of the Student-t around the mode."""
    square, total = 0.0, 0.0
    for r in range(k):
        x = 0.0
        for i in range(r, k):
            x += L[i, r] * (weights[i] - mode[i])
        square += x * x
        total += log(L[r, r])
    total += lgamma(0.5 * (TAILS + k)) - lgamma(0.5 * TAILS) - 0.5 * k * log(TAILS * pi)
    return total - 0.5 * (TAILS + k) * log1p(square / TAILS)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_weights(k, mode, L, white, weights, rng):  # type: ignore[no-untyped-def]
    """Draw from the Student-t around the mode."""
    wide = sqrt(0.5 * TAILS / rng.standard_gamma(0.5 * TAILS))
    for r in range(k):
        white[r] = wide * rng.standard_normal()
    solve_transposed(k, L, white, weights)
    for r in range(k):
        weights[r] += mode[r]
