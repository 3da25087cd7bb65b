"""Whole sweeps with exact draws in machine code: hierarchical ARD, more weights d than rows N.

    w_j | alpha_j ~ N(0, 1 / alpha_j),   alpha_j ~ Gamma(a_j, b_j)
    y = s (A w + o) + e,   e ~ N(0, I),   the data say y > 0

B = s A has the signed rows. Without w, y is N(s o, G), G = I + B diag(1/alpha) B'.

| part of a sweep | what it does | cost |
|---|---|---|
| `draw_above` (`exact/`) | y given alpha and the data, w integrated out: exact | N³ |
| `_draw_precisions_without` | each alpha_j given y and the others, w integrated out | N² d |
| `_draw_weights` | w given y and alpha: a prior draw, corrected by its own data | N d |
| `rescale_all`, `draw_precisions` | as in `kernels.py` | N d |
| `_draw_variances` | of the noise, for a logit | N |

The second part is what makes it fast. Given w, a precision hardly leaves its place: a weight that
is small asks for a large alpha, and a large alpha keeps the weight small. Without w one alpha_j
changes G by a matrix of rank one, so that with G without j, q = x'G⁻¹x and t = x'G⁻¹y

    log p(y | alpha) = -log(1 + q / alpha_j) / 2 + (t² / alpha_j) / (1 + q / alpha_j) / 2 + const

and a slice in log alpha_j needs no more than these two numbers (a partially collapsed sampler: van
Dyk & Park 2008). G is assembled afresh once a sweep, G⁻¹ follows the moves by rank one.

A logit is a probit whose noise has a random variance in each row: with e ~ N(0, lambda_n) and
sqrt(lambda_n) / 2 from Kolmogorov's distribution, e is logistic (Andrews & Mallows 1974; Holmes &
Held 2006). Given lambda the rows are divided by its root and all of the above holds; lambda is
moved given w, by a slice for each row.

Exactness asks that y be a draw given alpha and the data, whatever went before. It is one: the tilt
of its proposals is found from alpha alone, by a cold start at each sweep, to rounding.
"""

from math import exp, log, log1p, pi

import numpy as np

from ardvark.inference.exact.truncated_normal import draw_above, standard_excess
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import DONE, STOP
from ardvark.inference.sampled.kernels import (
    FAST,
    LOGIT,
    PROBIT,
    Problem,
    State,
    draw_precisions,
    rescale_all,
)

__all__ = ["MOST_PROPOSALS", "run_exact_chain"]

MOST_PROPOSALS = 1_000_000
MOST_TRIALS = 200
WIDTH = 4.0  # of a slice's first bracket: about the spread of log alpha and of log lambda
# Beyond this q / alpha a rank-one update loses too many digits (six of sixteen here). Slices stay
# below it, precisions beyond are left to the other moves.
LARGEST = 1e6


@njit(cache=True, error_model="numpy")
def _log_precision(u, shape, rate, q, square):  # type: ignore[no-untyped-def]
    """Log density of u = log alpha_j given y and the other precisions."""
    alpha = exp(u)
    ratio = q / alpha
    if not ratio <= LARGEST:
        return -np.inf
    told = square / (alpha * (1.0 + ratio)) - log(1.0 + ratio)
    return shape * u - rate * alpha + 0.5 * told


@njit(cache=True, error_model="numpy")
def _slice_precision(alpha, shape, rate, q, square, rng):  # type: ignore[no-untyped-def]
    """Move one precision by a slice in its logarithm: stepping out, then shrinking."""
    here = log(alpha)
    level = _log_precision(here, shape, rate, q, square) - rng.standard_exponential()
    low = here - WIDTH * rng.random()
    high = low + WIDTH
    for _ in range(MOST_TRIALS):
        if not _log_precision(low, shape, rate, q, square) > level:
            break
        low -= WIDTH
    for _ in range(MOST_TRIALS):
        if not _log_precision(high, shape, rate, q, square) > level:
            break
        high += WIDTH
    for _ in range(MOST_TRIALS):
        new = low + (high - low) * rng.random()
        if _log_precision(new, shape, rate, q, square) >= level:
            return exp(new)
        if new < here:
            low = new
        else:
            high = new
    return alpha


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _times(R, x, y, product):  # type: ignore[no-untyped-def]
    """R x into `product`; x'R x and x'y."""
    rows = len(x)
    q, t = 0.0, 0.0
    for n in range(rows):
        total = 0.0
        for m in range(rows):
            total += R[n, m] * x[m]
        product[n] = total
        q += total * x[n]
        t += y[n] * x[n]
    return q, t


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _change(R, r, c, product, t):  # type: ignore[no-untyped-def]
    """R - c (R x)(R x)' and r - c t (R x), in place."""
    rows = len(r)
    for n in range(rows):
        factor = c * product[n]
        r[n] -= t * factor
        for m in range(rows):
            R[n, m] -= factor * product[m]


@njit(cache=True, error_model="numpy")
def _draw_precisions_without(BT, R, r, alpha, shape, rate, rng):  # type: ignore[no-untyped-def]
    """Each free alpha_j given y, w integrated out. R = G^-1 and r = G^-1 y follow, in place."""
    product = np.empty(len(r))
    for j in range(len(alpha)):
        if rate[j] <= 0.0:  # fixed
            continue
        q, t = _times(R, BT[j], r, product)
        left = 1.0 - q / alpha[j]  # what G without j has and G has not: Sherman & Morrison
        if not left * (1.0 + LARGEST) > 1.0:
            continue
        new = _slice_precision(alpha[j], shape[j], rate[j], q / left, (t / left) ** 2, rng)
        more = 1.0 / new - 1.0 / alpha[j]
        _change(R, r, more / (1.0 + more * q), product, t)
        alpha[j] = new


@njit(cache=True, error_model="numpy")
def _utilities(B, alpha):  # type: ignore[no-untyped-def]
    """G, the covariance of the signed utilities."""
    H = B / np.sqrt(alpha)
    G = np.dot(H, H.T)
    for n in range(len(G)):
        G[n, n] += 1.0
    return G


@njit(cache=True, error_model="numpy")
def _draw_weights(B, R, y, alpha, rng):  # type: ignore[no-untyped-def]
    """W given y: Matheron's rule, with R = G^-1."""
    before = rng.standard_normal(len(alpha)) / np.sqrt(alpha)
    gap = y - np.dot(B, before) - rng.standard_normal(len(y))
    return before + np.dot(np.dot(R, gap), B) / alpha


@njit(cache=True, error_model="numpy")
def _log_kolmogorov(k):  # type: ignore[no-untyped-def]
    """Log density of Kolmogorov's distribution, by the series that converges faster."""
    if k > 0.8:
        rest = 0.0
        for n in range(5, 1, -1):
            rest += (-1.0) ** (n + 1) * n * n * exp(-2.0 * (n * n - 1) * k * k)
        return log(8.0 * k) - 2.0 * k * k + log1p(rest)
    c = pi * pi / (4.0 * k * k)
    total = c - 1.0 + (9.0 * c - 1.0) * exp(-4.0 * c) + (25.0 * c - 1.0) * exp(-12.0 * c)
    return 0.5 * log(2.0 * pi) - 2.0 * log(k) - 0.5 * c + log(total)


@njit(cache=True, error_model="numpy")
def _log_variance(u, square):  # type: ignore[no-untyped-def]
    """Log density of u = log lambda given the square of its row's noise."""
    return _log_kolmogorov(0.5 * exp(0.5 * u)) - 0.5 * square * exp(-u)


@njit(cache=True, error_model="numpy")
def _draw_variances(eta, variance, rng):  # type: ignore[no-untyped-def]
    """Noise given the signed predictors, then its variance in each row given the noise."""
    lower = -eta / np.sqrt(variance)
    noise = lower + standard_excess(lower, rng)
    for n in range(len(eta)):
        here, square = log(variance[n]), variance[n] * noise[n] ** 2
        level = _log_variance(here, square) - rng.standard_exponential()
        low = here - WIDTH * rng.random()
        high = low + WIDTH
        for _ in range(MOST_TRIALS):
            if not _log_variance(low, square) > level:
                break
            low -= WIDTH
        for _ in range(MOST_TRIALS):
            if not _log_variance(high, square) > level:
                break
            high += WIDTH
        for _ in range(MOST_TRIALS):
            new = low + (high - low) * rng.random()
            if _log_variance(new, square) >= level:
                variance[n] = exp(new)
                break
            if new < here:
                low = new
            else:
                high = new


@njit(cache=True, error_model="numpy", nogil=True)
def run_exact_chain(p, alpha, variance, plan, store, rng, watch):  # type: ignore[no-untyped-def]
    """Run a chain and fill `store`; True, or False where no proposal was accepted.

    A and offset of the problem have the signs of their rows; alpha and the variance of the noise
    (N,), which is 1 for a probit, are the state. Without `plan.scale` precisions are drawn given
    the weights alone.
    """
    ones = np.ones(len(p.A))
    rows, columns, shift = p.A, p.AT, p.offset
    for i in range(-plan.tune, len(store.weights)):
        if watch[STOP]:
            return False
        watch[DONE] += 1
        if p.family == LOGIT:
            root = np.sqrt(variance)
            rows, shift = p.A / root.reshape(-1, 1), p.offset / root
            columns = np.ascontiguousarray(rows.T)
        G = _utilities(rows, alpha)
        y, tried, found = draw_above(G, -shift, rng, MOST_PROPOSALS, watch)
        if not found:
            return False
        R = np.ascontiguousarray(np.linalg.inv(G))
        scaled = Problem(rows, columns, shift, PROBIT, ones, ones, p.shape, p.rate)
        if plan.scale:
            _draw_precisions_without(columns, R, np.dot(R, y), alpha, p.shape, p.rate, rng)
        state = State(_draw_weights(rows, R, y, alpha, rng), alpha)
        if plan.scale:
            rescale_all(scaled, state, rng)
        draw_precisions(scaled, state, rng)
        if p.family == LOGIT:
            _draw_variances(np.dot(p.A, state.w) + p.offset, variance, rng)
        if i >= 0:
            store.weights[i], store.precisions[i], store.trials[i] = state.w, alpha, tried
    return True
