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

import numpy as np
from numba import njit

from ardvark.inference.ep.sequential import (
    GAUSSIAN,
    fresh_functions,
    fresh_weights,
    inverse_factor,
    sweep_functions,
    sweep_weights,
)
from ardvark.inference.sites.likelihoods import Array, GaussianSites, LogitSites, ProbitSites, Sites
from ardvark.inference.threads import DONE, STOP

__all__ = [
    "FREEDOM",
    "LOGIT",
    "PROBIT",
    "draw_precisions",
    "refresh",
    "rescale",
    "rescale_all",
    "run_chain",
    "site_arrays",
]

PROBIT, LOGIT = 1, 2  # and 0 is Gaussian
LOGIT_AS_PROBIT = 1.702
FREEDOM = 8.0  # of the Student-t that q is taken for: a logit's tails are heavier than a Gaussian's
SQRT_HALF, HALF_LOG_TWO_PI = sqrt(0.5), 0.5 * log(2.0 * pi)
MOST_TRIALS = 200  # a bracket is smaller than rounding by then, or larger than e^200
FAST = {"contract", "reassoc", "nsz", "arcp"}


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
def _log_sites(family, label, extra, eta):  # type: ignore[no-untyped-def]
    total = 0.0
    for n in range(len(eta)):
        total += _log_site(family, label[n], extra[n], eta[n])
    return total


@njit(cache=True, error_model="numpy")
def _log_ratio(family, label, extra, tau, nu, eta):  # type: ignore[no-untyped-def]
    """Log of target over q, a function of the predictors alone."""
    total = 0.0
    for n in range(len(eta)):
        total += _log_site(family, label[n], extra[n], eta[n])
        total -= eta[n] * (nu[n] - 0.5 * tau[n] * eta[n])
    return total


@njit(cache=True, error_model="numpy")
def _approximate_weights(A, offset, s, label, extra, alpha, sweeps, rng, watch):  # type: ignore[no-untyped-def]
    """Sites of q, its mean, and a draw of w minus the mean: through k x k matrices."""
    rows, k = A.shape
    sd = 1.0 / np.sqrt(alpha)
    X = A * sd
    tau, nu = np.zeros(rows), np.zeros(rows)
    V, m = np.eye(k), np.zeros(k)
    for _ in range(sweeps):
        sweep_weights(X, offset, s, label, extra, tau, nu, V, m, 1.0, watch)
    V, m, inverse, _ = fresh_weights(X, offset, tau, nu)
    return tau, nu, sd * m, sd * np.dot(rng.standard_normal(k), inverse)


@njit(cache=True, error_model="numpy")
def _approximate_functions(A, offset, s, label, extra, alpha, sweeps, rng, watch):  # type: ignore[no-untyped-def]
    """Compute the same through N x N matrices; the draw by Matheron's rule."""
    rows, k = A.shape
    cross = A / alpha
    S = np.dot(cross, A.T)
    tau, nu = np.zeros(rows), np.zeros(rows)
    V, eta = S.copy(), offset.copy()
    for _ in range(sweeps):
        sweep_functions(s, label, extra, tau, nu, V, eta, 1.0, watch)
    _, _, _, r, _ = fresh_functions(S, offset, tau, nu)
    scale = np.sqrt(tau)
    B = scale.reshape(-1, 1) * S * scale
    for n in range(rows):
        B[n, n] += 1.0
    inverse, _ = inverse_factor(B)
    before = rng.standard_normal(k) / np.sqrt(alpha)
    surprise = scale * np.dot(A, before) + rng.standard_normal(rows)
    pull = scale * np.dot(np.dot(inverse, surprise), inverse)
    return tau, nu, np.dot(r, cross), before - np.dot(pull, cross)


@njit(cache=True, error_model="numpy")
def _inner(alpha, tau, one, two, eta_one, eta_two):  # type: ignore[no-untyped-def]
    """Give one' V^-1 two, V^-1 = diag(alpha) + A' T A."""
    return np.sum(alpha * one * two) + np.sum(tau * eta_one * eta_two)


@njit(cache=True, error_model="numpy")
def _tails(quadratic, k):  # type: ignore[no-untyped-def]
    """Log of q over the Student-t with its mean and shape, up to a constant."""
    return 0.5 * (FREEDOM + k) * log1p(quadratic / FREEDOM) - 0.5 * quadratic


@njit(cache=True, error_model="numpy")
def _slide(A, offset, family, label, extra, tau, nu, mean, there, w, alpha, rng):  # type: ignore[no-untyped-def]
    """Elliptical slice on the Student-t of q: w is moved in place; the number of trials."""
    k = len(w)
    centre, here = np.dot(A, mean) + offset, w - mean
    eta_here, eta_there = np.dot(A, here), np.dot(A, there)
    q_here = _inner(alpha, tau, here, here, eta_here, eta_here)
    scale = sqrt((FREEDOM + q_here) / (2.0 * rng.standard_gamma(0.5 * (FREEDOM + k))))
    there, eta_there = scale * there, scale * eta_there
    q_there = _inner(alpha, tau, there, there, eta_there, eta_there)
    q_cross = _inner(alpha, tau, here, there, eta_here, eta_there)
    level = _log_ratio(family, label, extra, tau, nu, eta_here + centre) + _tails(q_here, k)
    level -= rng.standard_exponential()
    angle = 2.0 * pi * rng.random()
    low, high = angle - 2.0 * pi, angle
    for trial in range(1, MOST_TRIALS):
        c, s = cos(angle), sin(angle)
        quadratic = c * c * q_here + 2.0 * c * s * q_cross + s * s * q_there
        eta = c * eta_here + s * eta_there + centre
        if _log_ratio(family, label, extra, tau, nu, eta) + _tails(quadratic, k) >= level:
            w[:] = mean + c * here + s * there
            return trial
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * rng.random()
    return MOST_TRIALS


@njit(cache=True, error_model="numpy")
def _propose(A, offset, family, label, extra, tau, nu, mean, there, w, alpha, rng):  # type: ignore[no-untyped-def]
    """Metropolis-Hastings with a draw of the Student-t of q; 1 if it was accepted."""
    k = len(w)
    there = there * sqrt(0.5 * FREEDOM / rng.standard_gamma(0.5 * FREEDOM))
    centre, here = np.dot(A, mean) + offset, w - mean
    eta_here, eta_there = np.dot(A, here), np.dot(A, there)
    gain = _log_ratio(family, label, extra, tau, nu, eta_there + centre)
    gain += _tails(_inner(alpha, tau, there, there, eta_there, eta_there), k)
    gain -= _log_ratio(family, label, extra, tau, nu, eta_here + centre)
    gain -= _tails(_inner(alpha, tau, here, here, eta_here, eta_here), k)
    if gain > -rng.standard_exponential():
        w[:] = mean + there
        return 1
    return 0


@njit(cache=True, error_model="numpy")
def draw_precisions(w, alpha, shape, rate, rng):  # type: ignore[no-untyped-def]
    """Draw each free alpha_j given w_j, in place."""
    for j in range(len(w)):
        if rate[j] > 0.0:  # else it is fixed
            alpha[j] = rng.standard_gamma(shape[j] + 0.5) / (rate[j] + 0.5 * w[j] * w[j])


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _rescale_each(AT, family, label, extra, eta, w, alpha, shape, rate, rng):  # type: ignore[no-untyped-def]
    """Each free alpha_j from its prior, w_j sqrt(alpha_j) held; the number accepted."""
    rows = len(eta)
    accepted = 0
    before = _log_sites(family, label, extra, eta)
    for j in range(len(w)):
        if rate[j] <= 0.0:
            continue
        new = rng.standard_gamma(shape[j]) / rate[j]
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
def _log_scale(move, family, label, extra, still, swing, shapes, weighted):  # type: ignore[no-untyped-def]
    """Log density along w e^move, alpha e^(-2 move), the z_j = w_j sqrt(alpha_j) held."""
    prior = -2.0 * shapes * move - weighted * exp(-2.0 * move)
    return prior + _log_sites(family, label, extra, still + exp(move) * swing)


@njit(cache=True, error_model="numpy")
def rescale_all(A, offset, family, label, extra, w, alpha, shape, rate, rng):  # type: ignore[no-untyped-def]
    """One scale for all free weights and their precisions: slice in its logarithm."""
    shapes, weighted = 0.0, 0.0
    moving = np.zeros(len(w))
    for j in range(len(w)):
        if rate[j] > 0.0:
            moving[j] = w[j]
            shapes += shape[j]
            weighted += rate[j] * alpha[j]
    swing = np.dot(A, moving)
    still = np.dot(A, w - moving) + offset
    level = _log_scale(0.0, family, label, extra, still, swing, shapes, weighted)
    level -= rng.standard_exponential()
    low = -rng.random()
    high = low + 1.0
    for _ in range(MOST_TRIALS):
        if not _log_scale(low, family, label, extra, still, swing, shapes, weighted) > level:
            break
        low -= 1.0
    for _ in range(MOST_TRIALS):
        if not _log_scale(high, family, label, extra, still, swing, shapes, weighted) > level:
            break
        high += 1.0
    for _ in range(MOST_TRIALS):
        move = low + (high - low) * rng.random()
        if _log_scale(move, family, label, extra, still, swing, shapes, weighted) >= level:
            factor = exp(move)
            for j in range(len(w)):
                if rate[j] > 0.0:
                    w[j] *= factor
                    alpha[j] /= factor * factor
            return
        if move < 0.0:
            low = move
        else:
            high = move


@njit(cache=True, error_model="numpy", nogil=True)
def run_chain(  # type: ignore[no-untyped-def]
    A, AT, offset, family, label, extra, shape, rate, w, alpha,
    tune, sweeps, kernel, scale, rng, weights, precisions, trials, watch,
):  # fmt: skip
    """Fill `weights`, `precisions` (draws, d) and `trials` (draws,); w and alpha are the state.

    kernel: 0 elliptical, 1 independence, 2 a draw of q. rate 0: this precision is fixed.
    """
    s = LOGIT_AS_PROBIT if family == LOGIT else (1.0 if family == PROBIT else GAUSSIAN)
    functions = A.shape[1] > A.shape[0]
    for i in range(-tune, len(weights)):
        if watch[STOP]:
            return
        watch[DONE] += 1
        if functions:
            tau, nu, mean, there = _approximate_functions(
                A, offset, s, label, extra, alpha, sweeps, rng, watch
            )
        else:
            tau, nu, mean, there = _approximate_weights(
                A, offset, s, label, extra, alpha, sweeps, rng, watch
            )
        tried = 1
        begin = tune > 0 and i == -tune  # where q is, not where the slice is steep
        if begin or kernel == 2 or family == 0:  # q of Gaussian sites is the posterior itself
            w[:] = mean + there
        elif kernel == 0:
            tried = _slide(A, offset, family, label, extra, tau, nu, mean, there, w, alpha, rng)
        else:
            tried = _propose(A, offset, family, label, extra, tau, nu, mean, there, w, alpha, rng)
        refresh(A, AT, offset, family, label, extra, shape, rate, w, alpha, scale, rng)
        if i >= 0:
            weights[i], precisions[i], trials[i] = w, alpha, tried


@njit(cache=True, error_model="numpy")
def rescale(A, AT, offset, family, label, extra, shape, rate, w, alpha, rng):  # type: ignore[no-untyped-def]
    """Both moves at fixed w sqrt(alpha), in place; the number of coordinates that moved."""
    eta = np.dot(A, w) + offset
    accepted = _rescale_each(AT, family, label, extra, eta, w, alpha, shape, rate, rng)
    rescale_all(A, offset, family, label, extra, w, alpha, shape, rate, rng)
    return accepted


@njit(cache=True, error_model="numpy")
def refresh(A, AT, offset, family, label, extra, shape, rate, w, alpha, scale, rng):  # type: ignore[no-untyped-def]
    """Precisions given weights, in the centred form and, with `scale`, in the other one too."""
    if scale:
        rescale(A, AT, offset, family, label, extra, shape, rate, w, alpha, rng)
    draw_precisions(w, alpha, shape, rate, rng)


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
