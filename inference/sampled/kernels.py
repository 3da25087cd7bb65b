"""Whole sweeps over weights and their precisions in machine code: a hierarchical ARD posterior.

    w_j | alpha_j ~ N(0, 1 / alpha_j),   alpha_j ~ Gamma(a_j, b_j),   eta = A w + o

| part of a sweep | what it does | cost |
|---|---|---|
| `_approximate_*` | q of w given alpha: a fixed number of cold EP sweeps | N k² or N³ |
| `_slide` | elliptical slice of w on q; the ratio needs the predictors alone | N a trial |
| `draw_precisions` | alpha given w: Gamma(a + 1/2, b + w²/2) | d |
| `_rescale_each` | alpha_j from its prior, w_j sqrt(alpha_j) held; accepted by the sites | N d |
| `rescale_all` | every w times c and every alpha over c²: a slice in log c | N a trial |

The two rescalings are alpha's update in the non-centred form of the model: where the data say much
of a weight the centred draw of alpha mixes well, where they say little the other one does, and a
sweep that has both (Yu & Meng 2011) has the better of the two.

q is a function of alpha and the data alone, so its quality is a matter of speed. A logit site is
given the probit Phi(eta / 1.702) in q, within 0.01 of it everywhere, and itself in the ratio.
"""

from math import cos, erfc, exp, isfinite, log, log1p, pi, sin, sqrt
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.ep.sequential import (
    fresh_functions,
    fresh_weights,
    inverse_factor,
    sweep_functions,
    sweep_weights,
)
from ardvark.inference.known_sites import kernels
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import DONE, STOP
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites, LogitSites, ProbitSites, Sites

__all__ = [
    "FREEDOM",
    "LOGIT",
    "PROBIT",
    "Plan",
    "Problem",
    "State",
    "Store",
    "draw_precisions",
    "problem_of",
    "refresh",
    "rescale",
    "rescale_all",
    "run_chain",
    "site_arrays",
    "store_of",
]

PROBIT, LOGIT = 1, 2  # and 0 is Gaussian
LOGIT_AS_PROBIT = 1.702
GAUSSIAN_ROWS, PROBIT_ROWS, COLUMNS = kernels.GAUSSIAN, kernels.PROBIT, kernels.COLUMNS  # of q
FREEDOM = 8.0  # of the Student-t that q is taken for: a logit's tails are heavier than a Gaussian's
SQRT_HALF, HALF_LOG_TWO_PI = sqrt(0.5), 0.5 * log(2.0 * pi)
MOST_TRIALS = 200  # a bracket is smaller than rounding by then, or larger than e^200
FAST = {"contract", "reassoc", "nsz", "arcp"}


class Problem(NamedTuple):
    """The model: projection, sites, and the Gamma prior of each precision (rate 0: fixed)."""

    A: Any  # (N, d)
    AT: Any  # the same, transposed and contiguous
    offset: Any
    family: int
    label: Any  # sign of a row, or its mean
    extra: Any  # its precision, for Gaussian sites
    shape: Any
    rate: Any


class State(NamedTuple):
    """Where a chain is; both arrays are moved in place."""

    w: Any
    alpha: Any


class Plan(NamedTuple):
    """How to run: kernel 0 is elliptical, 1 independence, 2 a draw of q."""

    tune: int
    sweeps: int  # of EP, for q
    kernel: int
    scale: bool  # rescale too


class Store(NamedTuple):
    """What a chain fills: `weights` and `precisions` (draws, d), `trials` (draws,)."""

    weights: Any
    precisions: Any
    trials: Any


class Q(NamedTuple):
    """Sites of the approximation, its mean, and a draw minus the mean."""

    tau: Any
    nu: Any
    mean: Any
    there: Any


@njit(cache=True, error_model="numpy")
def _log_site(family, label, extra, eta):  # type: ignore[no-untyped-def]
    """Log site up to a constant: label is the sign, or mean with precision `extra`."""
    if family == 0:
        gap = eta - label
        return -0.5 * extra * gap * gap
    z = label * eta
    if family == LOGIT:
        return -log1p(exp(-z)) if z > 0.0 else z - log1p(exp(z))
    if z > 9.0:
        return 0.0  # to the last digit of any sum
    if z > 0.0:
        return log1p(-0.5 * erfc(SQRT_HALF * z))
    if z > -5.0:
        return log(0.5 * erfc(-SQRT_HALF * z))
    x = -z  # Abramowitz & Stegun 26.2.14, to 1e-10 beyond 5
    rest = x
    for k in range(24, 0, -1):
        rest = x + k / rest
    return -0.5 * z * z - HALF_LOG_TWO_PI - log(rest)


@njit(cache=True, error_model="numpy")
def _log_sites(p, eta):  # type: ignore[no-untyped-def]
    total = 0.0
    for n in range(len(eta)):
        total += _log_site(p.family, p.label[n], p.extra[n], eta[n])
    return total


@njit(cache=True, error_model="numpy")
def _log_ratio(p, q, eta):  # type: ignore[no-untyped-def]
    """Log of target over q, a function of the predictors alone."""
    total = 0.0
    for n in range(len(eta)):
        total += _log_site(p.family, p.label[n], p.extra[n], eta[n])
        total -= eta[n] * (q.nu[n] - 0.5 * q.tau[n] * eta[n])
    return total


@njit(cache=True, error_model="numpy")
def _sites_of_q(p):  # type: ignore[no-untyped-def]
    """Rows of `known_sites/kernels.py`: Gaussian sites as they are, a logit as a probit."""
    rows = len(p.label)
    table = np.zeros((rows, COLUMNS))
    if p.family == 0:
        table[:, 0], table[:, 1] = p.label, p.extra
        return np.full(rows, GAUSSIAN_ROWS), table
    table[:, 0] = p.label / LOGIT_AS_PROBIT if p.family == LOGIT else p.label
    return np.full(rows, PROBIT_ROWS), table


@njit(cache=True, error_model="numpy")
def _approximate_weights(p, code, table, alpha, sweeps, rng, watch):  # type: ignore[no-untyped-def]
    """Q at these precisions, through k x k matrices."""
    offset = p.offset
    rows, k = p.A.shape
    sd = 1.0 / np.sqrt(alpha)
    X = p.A * sd
    tau, nu = np.zeros(rows), np.zeros(rows)
    V, m = np.eye(k), np.zeros(k)
    for _ in range(sweeps):
        sweep_weights(X, offset, code, table, tau, nu, V, m, 1.0, watch)
    V, m, inverse, _ = fresh_weights(X, offset, tau, nu)
    return Q(tau, nu, sd * m, sd * np.dot(rng.standard_normal(k), inverse))


@njit(cache=True, error_model="numpy")
def _approximate_functions(p, code, table, alpha, sweeps, rng, watch):  # type: ignore[no-untyped-def]
    """Compute the same through N x N matrices; the draw by Matheron's rule."""
    A, offset = p.A, p.offset
    rows, k = A.shape
    cross = A / alpha
    S = np.dot(cross, A.T)
    tau, nu = np.zeros(rows), np.zeros(rows)
    V, eta = S.copy(), offset.copy()
    for _ in range(sweeps):
        sweep_functions(code, table, tau, nu, V, eta, 1.0, watch)
    _, _, _, r, _ = fresh_functions(S, offset, tau, nu)
    scale = np.sqrt(tau)
    B = scale.reshape(-1, 1) * S * scale
    for n in range(rows):
        B[n, n] += 1.0
    inverse, _ = inverse_factor(B)
    before = rng.standard_normal(k) / np.sqrt(alpha)
    surprise = scale * np.dot(A, before) + rng.standard_normal(rows)
    pull = scale * np.dot(np.dot(inverse, surprise), inverse)
    return Q(tau, nu, np.dot(r, cross), before - np.dot(pull, cross))


@njit(cache=True, error_model="numpy")
def _inner(alpha, tau, one, two, eta_one, eta_two):  # type: ignore[no-untyped-def]
    """Give one' V^-1 two, V^-1 = diag(alpha) + A' T A."""
    return np.sum(alpha * one * two) + np.sum(tau * eta_one * eta_two)


@njit(cache=True, error_model="numpy")
def _tails(quadratic, k):  # type: ignore[no-untyped-def]
    """Log of q over the Student-t with its mean and shape, up to a constant."""
    return 0.5 * (FREEDOM + k) * log1p(quadratic / FREEDOM) - 0.5 * quadratic


@njit(cache=True, error_model="numpy")
def _slide(p, q, s, rng):  # type: ignore[no-untyped-def]
    """Elliptical slice on the Student-t of q: w is moved in place; the number of trials."""
    alpha, tau, k = s.alpha, q.tau, len(s.w)
    centre, here = np.dot(p.A, q.mean) + p.offset, s.w - q.mean
    eta_here, eta_there = np.dot(p.A, here), np.dot(p.A, q.there)
    q_here = _inner(alpha, tau, here, here, eta_here, eta_here)
    scale = sqrt((FREEDOM + q_here) / (2.0 * rng.standard_gamma(0.5 * (FREEDOM + k))))
    there, eta_there = scale * q.there, scale * eta_there
    q_there = _inner(alpha, tau, there, there, eta_there, eta_there)
    q_cross = _inner(alpha, tau, here, there, eta_here, eta_there)
    level = _log_ratio(p, q, eta_here + centre) + _tails(q_here, k)
    level -= rng.standard_exponential()
    angle = 2.0 * pi * rng.random()
    low, high = angle - 2.0 * pi, angle
    for trial in range(1, MOST_TRIALS):
        c, d = cos(angle), sin(angle)
        quadratic = c * c * q_here + 2.0 * c * d * q_cross + d * d * q_there
        eta = c * eta_here + d * eta_there + centre
        if _log_ratio(p, q, eta) + _tails(quadratic, k) >= level:
            s.w[:] = q.mean + c * here + d * there
            return trial
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * rng.random()
    return MOST_TRIALS


@njit(cache=True, error_model="numpy")
def _propose(p, q, s, rng):  # type: ignore[no-untyped-def]
    """Metropolis-Hastings with a draw of the Student-t of q; 1 if it was accepted."""
    alpha, tau, k = s.alpha, q.tau, len(s.w)
    there = q.there * sqrt(0.5 * FREEDOM / rng.standard_gamma(0.5 * FREEDOM))
    centre, here = np.dot(p.A, q.mean) + p.offset, s.w - q.mean
    eta_here, eta_there = np.dot(p.A, here), np.dot(p.A, there)
    gain = _log_ratio(p, q, eta_there + centre)
    gain += _tails(_inner(alpha, tau, there, there, eta_there, eta_there), k)
    gain -= _log_ratio(p, q, eta_here + centre)
    gain -= _tails(_inner(alpha, tau, here, here, eta_here, eta_here), k)
    if gain > -rng.standard_exponential():
        s.w[:] = q.mean + there
        return 1
    return 0


@njit(cache=True, error_model="numpy")
def draw_precisions(p, s, rng):  # type: ignore[no-untyped-def]
    """Draw each free alpha_j given w_j, in place."""
    w, alpha = s.w, s.alpha
    for j in range(len(w)):
        if p.rate[j] > 0.0:  # else it is fixed
            alpha[j] = rng.standard_gamma(p.shape[j] + 0.5) / (p.rate[j] + 0.5 * w[j] * w[j])


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _rescale_each(p, s, eta, rng):  # type: ignore[no-untyped-def]
    """Each free alpha_j from its prior, w_j sqrt(alpha_j) held; the number accepted."""
    AT, w, alpha = p.AT, s.w, s.alpha
    family, label, extra = p.family, p.label, p.extra
    rows = len(eta)
    accepted = 0
    before = _log_sites(p, eta)
    for j in range(len(w)):
        if p.rate[j] <= 0.0:
            continue
        new = rng.standard_gamma(p.shape[j]) / p.rate[j]
        step = w[j] * (sqrt(alpha[j] / new) - 1.0)
        after = 0.0
        for n in range(rows):
            after += _log_site(family, label[n], extra[n], eta[n] + step * AT[j, n])
        if isfinite(after) and after - before > -rng.standard_exponential():
            for n in range(rows):
                eta[n] += step * AT[j, n]
            before, w[j], alpha[j] = after, w[j] + step, new
            accepted += 1
    return accepted


@njit(cache=True, error_model="numpy")
def _log_scale(move, p, still, swing, shapes, weighted):  # type: ignore[no-untyped-def]
    """Log density along w e^move, alpha e^(-2 move), the z_j = w_j sqrt(alpha_j) held."""
    prior = -2.0 * shapes * move - weighted * exp(-2.0 * move)
    return prior + _log_sites(p, still + exp(move) * swing)


@njit(cache=True, error_model="numpy")
def rescale_all(p, s, rng):  # type: ignore[no-untyped-def]
    """One scale for all free weights and their precisions: slice in its logarithm."""
    w, alpha = s.w, s.alpha
    shapes, weighted = 0.0, 0.0
    moving = np.zeros(len(w))
    for j in range(len(w)):
        if p.rate[j] > 0.0:
            moving[j] = w[j]
            shapes += p.shape[j]
            weighted += p.rate[j] * alpha[j]
    swing = np.dot(p.A, moving)
    still = np.dot(p.A, w - moving) + p.offset
    level = _log_scale(0.0, p, still, swing, shapes, weighted)
    level -= rng.standard_exponential()
    low = -rng.random()
    high = low + 1.0
    for _ in range(MOST_TRIALS):
        if not _log_scale(low, p, still, swing, shapes, weighted) > level:
            break
        low -= 1.0
    for _ in range(MOST_TRIALS):
        if not _log_scale(high, p, still, swing, shapes, weighted) > level:
            break
        high += 1.0
    for _ in range(MOST_TRIALS):
        move = low + (high - low) * rng.random()
        if _log_scale(move, p, still, swing, shapes, weighted) >= level:
            factor = exp(move)
            for j in range(len(w)):
                if p.rate[j] > 0.0:
                    w[j] *= factor
                    alpha[j] /= factor * factor
            return
        if move < 0.0:
            low = move
        else:
            high = move


@njit(cache=True, error_model="numpy", nogil=True)
def run_chain(p, s, plan, store, rng, watch):  # type: ignore[no-untyped-def]
    """Run a chain from the state `s`, which is moved in place, and fill `store`."""
    code, table = _sites_of_q(p)
    functions = p.A.shape[1] > p.A.shape[0]
    for i in range(-plan.tune, len(store.weights)):
        if watch[STOP]:
            return
        watch[DONE] += 1
        if functions:
            q = _approximate_functions(p, code, table, s.alpha, plan.sweeps, rng, watch)
        else:
            q = _approximate_weights(p, code, table, s.alpha, plan.sweeps, rng, watch)
        tried = 1
        begin = plan.tune > 0 and i == -plan.tune  # where q is, not where the slice is steep
        if begin or plan.kernel == 2 or p.family == 0:  # of Gaussian sites q is the posterior
            s.w[:] = q.mean + q.there
        elif plan.kernel == 0:
            tried = _slide(p, q, s, rng)
        else:
            tried = _propose(p, q, s, rng)
        refresh(p, s, plan.scale, rng)
        if i >= 0:
            store.weights[i], store.precisions[i], store.trials[i] = s.w, s.alpha, tried


@njit(cache=True, error_model="numpy")
def rescale(p, s, rng):  # type: ignore[no-untyped-def]
    """Both moves at fixed w sqrt(alpha), in place; the number of coordinates that moved."""
    accepted = _rescale_each(p, s, np.dot(p.A, s.w) + p.offset, rng)
    rescale_all(p, s, rng)
    return accepted


@njit(cache=True, error_model="numpy")
def refresh(p, s, scale, rng):  # type: ignore[no-untyped-def]
    """Precisions given weights, in the centred form and, with `scale`, in the other one too."""
    if scale:
        rescale(p, s, rng)
    draw_precisions(p, s, rng)


def problem_of(
    projection: Array, offset: Array, arrays: tuple[int, Array, Array], shape: Array, rate: Array
) -> Problem:
    """Arrays as the machine code takes them; `arrays` are those of `site_arrays`."""
    A = np.ascontiguousarray(projection)
    return Problem(A, np.ascontiguousarray(A.T), offset, *arrays, shape, rate)


def store_of(draws: int, d: int) -> Store:
    """Room for the draws of a chain."""
    return Store(np.empty((draws, d)), np.empty((draws, d)), np.empty(draws, np.int64))


def site_arrays(sites: Sites, rows: int) -> tuple[int, Array, Array] | None:
    """Family, label and extra of sites that the machine code knows, None for others."""
    if isinstance(sites, GaussianSites):
        family, label, extra = 0, sites.mean, sites.precision
    elif isinstance(sites, ProbitSites | LogitSites):
        family, label, extra = _FAMILIES[type(sites)], sites.sign, sites.sign
    else:
        return None
    label, extra = (np.broadcast_to(x, rows).astype(np.float64) for x in (label, extra))
    return family, label, extra


_FAMILIES: dict[type, int] = {ProbitSites: PROBIT, LogitSites: LOGIT}
