"""The loops of `gaussian_ard.py` in machine code: one weight at a time, or all at once.

Notation of Faul & Tipping 2003 (FT03): beta = 1/sigma^2, Phi the k active of w columns phi_m,

    Sigma = (A + beta Phi'Phi)^-1,   mu = beta Sigma Phi't,   C = I/beta + Phi A^-1 Phi'
    S_m = phi_m'C^-1 phi_m,          Q_m = phi_m'C^-1 t       for every m
    s_j = 1/Sigma_jj - alpha_j,      q_j = mu_j/Sigma_jj      the same without w_j, for active j

A step needs of the data only the products phi_m'phi_j with active columns, kept as rows of `gram`;
a deleted column keeps its row, so that adding it again costs nothing. FT03, appendix:

|       | alpha_j becomes a (infinite: kappa = 1/Sigma_jj)     | i is added with alpha             |
|-------|------------------------------------------------------|-----------------------------------|
|       | kappa = (a - alpha_j) / (1 + Sigma_jj (a - alpha_j)) | v = 1/(alpha + S_i)               |
|       | s = Sigma_.j                                         | u = beta Sigma Phi'phi_i          |
| e_m   | beta s'Phi'phi_m                                     | beta (phi_m'phi_i - u'Phi'phi_m)  |
| Sigma | - kappa s s'                                         | + v u u'; new: column -v u, v     |
| mu    | - kappa mu_j s                                       | - v Q_i u; new: v Q_i             |
| S_m   | + kappa e_m^2                                        | - v e_m^2                         |
| Q_m   | + kappa mu_j e_m                                     | - v Q_i e_m                       |

Together (`slopes`), with a = log alpha and v = log sigma^2:
d Sigma_ii / d a_j = -alpha_j Sigma_ij^2,   d Sigma / dv = Sigma - Sigma A Sigma,
d mu_i / d a_j = -alpha_j mu_j Sigma_ij,    d mu / dv = -Sigma A mu.
"""

import math
from typing import NamedTuple

import numpy as np

from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array, Index, Mask

__all__ = [
    "ADD",
    "DELETE",
    "LEAST_NEW",
    "RE_ESTIMATE",
    "Products",
    "State",
    "choose",
    "climb",
    "walk",
]

ADD, RE_ESTIMATE, DELETE = 1, 2, 3  # what a step did
TIE = 1e-10  # relative: gains closer than this are equal, and the first weight is taken
LEAST_KNOWN = 1e-10  # share of its precision below which what the data add to it is rounding
LEAST_NEW = 1e-12  # share of phi_m'phi_m below which what is new in a column is rounding
FARTHEST = 3.0  # that a joint step moves the logarithm of a precision


class State(NamedTuple):
    """The search at one noise over w columns, of which the first k of `active` are in use."""

    size: Index  # (1,), k
    active: Index  # (w,) weights in the model, in the order of Sigma
    place: Index  # (w,) where a weight stands in `active`, -1 = out of the model
    precision: Array  # (w,) alpha, inf = out of the model
    free: Mask  # (w,) whose precision is optimised
    squares: Array  # (w,) phi_m'phi_m
    columns: Array  # (w, N) phi_m, contiguous along w
    known: Mask  # (w,) whose row of `gram` is there
    gram: Array  # (w, w) phi_j'phi_m
    covariance: Array  # (w, w) Sigma, its first k rows and columns
    mean: Array  # (w,) mu, its first k
    S: Array  # (w,) used for weights out of the model only, as Q
    Q: Array  # (w,)
    work: Array  # (w,)


@njit(cache=True, error_model="numpy")
def gain_of(alpha, s, q):  # type: ignore[no-untyped-def]
    """What a weight with precision alpha adds to the log evidence, FT03's l(alpha)."""
    if math.isinf(alpha):
        return 0.0
    return 0.5 * (q * q / (alpha + s) - math.log1p(s / alpha))


@njit(cache=True, error_model="numpy")
def best_of(s, q, low, high):  # type: ignore[no-untyped-def]
    """The precision at which `gain_of` is largest."""
    relevance = q * q - s
    if relevance <= 0.0:
        return math.inf
    alpha = max(s * (s / relevance), low)  # s² alone may overflow
    return alpha if alpha <= high else math.inf


@njit(cache=True, error_model="numpy")
def choose(state, beta, low, high, tolerance):  # type: ignore[no-untyped-def]
    """The weight whose change gains most, its best precision, the gain; weight -1 = none.

    Out of the model the gain at the best precision, (x - 1 - log x)/2 with x = q^2/s, grows with
    x, so one logarithm is enough. A weight that gains nothing is deleted, last of all.
    """
    weight, best, most, ratio = -1, math.inf, tolerance, 1.0
    for m in range(state.place.size):
        s, q = state.S[m], state.Q[m]
        if q * q > ratio * s and state.place[m] < 0 and state.free[m]:
            if s > LEAST_NEW * beta * state.squares[m] and best_of(s, q, low, high) < math.inf:
                weight, ratio = m, q * q / s * (1.0 + TIE)
    if weight >= 0:
        best = best_of(state.S[weight], state.Q[weight], low, high)
        most = gain_of(best, state.S[weight], state.Q[weight])
        if most <= tolerance:
            weight, most = -1, tolerance
    unwanted, saved = -1, -tolerance
    for j in range(state.size[0]):
        m = state.active[j]
        variance = state.covariance[j, j]
        s = max(1.0 / variance - state.precision[m], 0.0)
        q = state.mean[j] / variance
        if not state.free[m]:
            continue
        lost = s <= LEAST_KNOWN * state.precision[m]
        wanted = math.inf if lost else best_of(s, q, low, high)
        gain = gain_of(wanted, s, q) - gain_of(state.precision[m], s, q)
        if math.isinf(wanted) and gain > saved:
            unwanted, saved = m, gain
        if gain > most * (1.0 + TIE) or (0 <= m < weight and gain >= most * (1.0 - TIE)):
            weight, best, most = m, wanted, gain
    if weight < 0 and unwanted >= 0:
        return unwanted, math.inf, saved
    return weight, best, most


@njit(cache=True, error_model="numpy")
def change(state, beta, j, kappa):  # type: ignore[no-untyped-def]
    """The j-th active precision moves (or becomes infinite: kappa = 1/Sigma_jj)."""
    k, e = state.size[0], state.work
    column = state.covariance[j, :k].copy()
    e[:] = 0.0
    for a in range(k):
        share, products = beta * column[a], state.gram[state.active[a]]
        for m in range(e.size):
            e[m] += share * products[m]
    moved = kappa * state.mean[j]
    for m in range(e.size):
        state.S[m] += kappa * e[m] * e[m]
        state.Q[m] += moved * e[m]
    for a in range(k):
        share = kappa * column[a]
        for b in range(k):
            state.covariance[a, b] -= share * column[b]
        state.mean[a] -= moved * column[a]


@njit(cache=True, error_model="numpy")
def remove(state, j):  # type: ignore[no-untyped-def]
    """Take the j-th active weight out; the last one takes its place."""
    last = state.size[0] - 1
    out, moved = state.active[j], state.active[last]
    state.covariance[j, : last + 1] = state.covariance[last, : last + 1]
    state.covariance[: last + 1, j] = state.covariance[: last + 1, last]
    state.mean[j] = state.mean[last]
    state.active[j], state.place[moved] = moved, j
    state.place[out], state.precision[out] = -1, math.inf
    state.size[0] = last


@njit(cache=True, error_model="numpy")
def add(state, beta, weight, alpha):  # type: ignore[no-untyped-def]
    """A weight comes in with precision alpha."""
    k, e = state.size[0], state.work
    if not state.known[weight]:
        state.gram[weight] = np.dot(state.columns, np.ascontiguousarray(state.columns[weight]))
        state.known[weight] = True
    variance = 1.0 / (alpha + state.S[weight])
    mean = variance * state.Q[weight]
    u = np.zeros(k)
    for a in range(k):
        product = beta * state.gram[state.active[a], weight]
        for b in range(k):
            u[b] += product * state.covariance[a, b]
    own = state.gram[weight]
    for m in range(e.size):
        e[m] = beta * own[m]
    for a in range(k):
        share, products = beta * u[a], state.gram[state.active[a]]
        for m in range(e.size):
            e[m] -= share * products[m]
    for m in range(e.size):
        state.S[m] -= variance * e[m] * e[m]
        state.Q[m] -= mean * e[m]
    for a in range(k):
        for b in range(k):
            state.covariance[a, b] += variance * u[a] * u[b]
        state.covariance[a, k] = -variance * u[a]
        state.covariance[k, a] = -variance * u[a]
        state.mean[a] -= mean * u[a]
    state.covariance[k, k] = variance
    state.mean[k] = mean
    state.active[k], state.place[weight], state.precision[weight] = weight, k, alpha
    state.size[0] = k + 1


@njit(cache=True, error_model="numpy")
def walk(state, beta, tolerance, low, high, actions, weights, gains):  # type: ignore[no-untyped-def]
    """Steps of largest gain until none gains more, or the record is full: how many were made."""
    for n in range(actions.size):
        weight, best, gain = choose(state, beta, low, high, tolerance)
        if weight < 0:
            return n
        j = state.place[weight]
        if j < 0:
            add(state, beta, weight, best)
            actions[n] = ADD
        elif math.isinf(best):
            change(state, beta, j, 1.0 / state.covariance[j, j])
            remove(state, j)
            actions[n] = DELETE
        else:
            step = best - state.precision[weight]
            change(state, beta, j, step / (1.0 + state.covariance[j, j] * step))
            state.precision[weight] = best
            actions[n] = RE_ESTIMATE
        weights[n], gains[n] = weight, gain
    return actions.size


@njit(cache=True, error_model="numpy")
def factorised(matrix):  # type: ignore[no-untyped-def]
    """Lower Cholesky factor, and whether there is one."""
    k = len(matrix)
    factor = np.zeros((k, k))
    for i in range(k):
        for j in range(i):
            left = matrix[i, j] - np.dot(factor[i, :j], factor[j, :j])
            factor[i, j] = left / factor[j, j]
        pivot = matrix[i, i] - np.dot(factor[i, :i], factor[i, :i])
        if not pivot > 1e-14 * abs(matrix[i, i]):
            return factor, False
        factor[i, i] = math.sqrt(pivot)
    return factor, True


@njit(cache=True, error_model="numpy")
def uphill(bent, gradient):  # type: ignore[no-untyped-def]
    """Newton's direction for -Hessian `bent`, with |curvature| where it is not definite."""
    if factorised(bent)[1]:
        return np.linalg.solve(bent, gradient)
    curvature, axes = np.linalg.eigh(bent)
    return np.dot(axes, np.dot(axes.T, gradient) / np.maximum(np.abs(curvature), 1e-8))


class Products(NamedTuple):
    """The data at the active columns.

    The misfit |t - Phi mu|^2 is expanded about `centre`, where it is `misfit` with slope
    -2 `force`: no cancellation when it is small.
    """

    rows: int  # N
    inner: Array  # (k, k) Phi'Phi
    moments: Array  # (k,) Phi't
    centre: Array  # (k,)
    misfit: float
    force: Array  # (k,)


@njit(cache=True, error_model="numpy")
def posterior(data, alpha, beta):  # type: ignore[no-untyped-def]
    """Sigma, mu, |t - Phi mu|^2 and log evidence but for N log(beta / 2 pi) / 2."""
    inner, k = data.inner, alpha.size
    scale = 1.0 / np.sqrt(alpha + beta * np.diag(inner))
    information = beta * inner * np.outer(scale, scale)
    for j in range(k):
        information[j, j] = 1.0  # by the choice of scale
    factor, definite = factorised(information)
    if not definite:
        return information, data.centre, data.misfit, -math.inf
    covariance = np.linalg.inv(information) * np.outer(scale, scale)
    mean = beta * np.dot(covariance, data.moments)
    away = mean - data.centre
    left = data.misfit - 2.0 * np.dot(away, data.force) + np.dot(away, np.dot(inner, away))
    log_det = 0.0
    for j in range(k):
        log_det += 2.0 * math.log(factor[j, j] / scale[j]) - math.log(alpha[j])
    return covariance, mean, left, -0.5 * (log_det + beta * left + np.sum(alpha * mean**2))


@njit(cache=True, error_model="numpy")
def slopes(alpha, beta, rows, covariance, mean, misfit):  # type: ignore[no-untyped-def]
    """Gradient and Hessian of the log evidence in (log alpha, log sigma^2)."""
    k = alpha.size
    gradient, hessian = np.empty(k + 1), np.empty((k + 1, k + 1))
    pulled = np.dot(covariance, alpha * mean)  # -d mu / d log sigma^2
    tight, tighter = 0.0, 0.0  # traces of A Sigma and of A Sigma A Sigma
    for i in range(k):
        second = alpha[i] * (covariance[i, i] + mean[i] ** 2)
        gradient[i] = 0.5 * (1.0 - second)
        for j in range(k):
            shared = covariance[i, j] * (0.5 * covariance[i, j] + mean[i] * mean[j])
            hessian[i, j] = alpha[i] * alpha[j] * shared
        hessian[i, i] -= 0.5 * second
        spread = np.sum(covariance[i] ** 2 * alpha)  # (Sigma A Sigma)_ii
        tight += alpha[i] * covariance[i, i]
        tighter += alpha[i] * spread
        grown = covariance[i, i] - spread - 2.0 * mean[i] * pulled[i]
        hessian[i, k] = hessian[k, i] = -0.5 * alpha[i] * grown
    gradient[k] = 0.5 * (beta * misfit - rows + k - tight)
    prior_force = np.sum(alpha * mean * pulled)
    hessian[k, k] = -0.5 * beta * misfit + prior_force - 0.5 * (tight - tighter)
    return gradient, hessian


@njit(cache=True, error_model="numpy")
def climb(data, alpha, beta, free, low, high, precise, limit):  # type: ignore[no-untyped-def]
    """Newton's ascent in the free (log alpha, log sigma^2): precisions, beta, steps made.

    `free` has k + 1 entries, the last for the noise; low and high are bounds on the logarithms.
    A step is shortened until the evidence does not fall.
    """
    k, rows = alpha.size, data.rows
    here = np.empty(k + 1)
    here[:k], here[k] = np.log(alpha), -math.log(beta)
    covariance, mean, left, value = posterior(data, alpha, beta)
    value -= 0.5 * rows * here[k]
    if value == -math.inf:
        return alpha, beta, 0
    for step in range(limit):
        gradient, hessian = slopes(
            np.exp(here[:k]), math.exp(-here[k]), rows, covariance, mean, left
        )
        held = ((here <= low) & (gradient < 0.0)) | ((here >= high) & (gradient > 0.0))
        chosen = np.flatnonzero(free & ~held)
        bent = np.empty((chosen.size, chosen.size))
        for a in range(chosen.size):
            for b in range(chosen.size):
                bent[a, b] = -hessian[chosen[a], chosen[b]]
        move = uphill(bent, gradient[chosen])
        promised = 0.5 * np.sum(gradient[chosen] * move)
        if chosen.size == 0 or promised < 1e-14 * (1.0 + abs(value)):
            return np.exp(here[:k]), math.exp(-here[k]), step
        direction = np.zeros(k + 1)
        direction[chosen] = move
        size = min(1.0, FARTHEST / np.max(np.abs(direction)))
        found = False
        for _ in range(12):
            there = np.minimum(np.maximum(here + size * direction, low), high)
            new = posterior(data, np.exp(there[:k]), math.exp(-there[k]))
            reached = new[3] - 0.5 * rows * there[k]
            if reached >= value - 1e-14 * abs(value):
                found = True
                break
            size *= 0.4
        if not found:
            return np.exp(here[:k]), math.exp(-here[k]), step
        small = abs(reached - value) < precise
        here, value = there, reached
        covariance, mean, left = new[0], new[1], new[2]
        if small and size == 1.0 and promised < precise:
            return np.exp(here[:k]), math.exp(-here[k]), step + 1
    return np.exp(here[:k]), math.exp(-here[k]), limit
