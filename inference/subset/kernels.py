"""Moves over subsets with the weights integrated out, whole sweeps in machine code.

For Gaussian noise, and for the probit given its latent utilities z ~ N(eta, 1), t = [z > 0]
(Albert & Chib 1993). The evidence of every subset one input away comes from `factor.py`, so a
move that is rejected costs next to nothing. One sweep:

| what | how |
|---|---|
| replace (probit, every sixth sweep) | a member by an input like it, without z: `replace.py` |
| z given the weights (probit) | truncated normals |
| add or delete | an input at random changes sides, Metropolis: log p(I') - log p(I) ± gain |
| exchange | swap a member at random for an input outside, or for itself, by their conditional probabilities (Gibbs): nothing to reject |
| P(j in I given the other inputs) | from the gains, for each j: the Rao-Blackwellised inclusion |
| weights | from their Gaussian |
| sigma given the weights | slice sampling of log sigma |
| alpha given the weights | its Gamma; of an excluded input: from the prior |

Add and delete choose uniformly among all d inputs, so do the two steps of an exchange back and
forth: no proposal ratio is left in either.
"""  # noqa: E501

from math import exp, isfinite, log, log1p, sqrt
from typing import NamedTuple

import numpy as np

from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import DONE, STOP
from ardvark.inference.sites.arrays import Array
from ardvark.inference.subset.factor import (
    gain,
    gain_of_member,
    push,
    remove,
    solve_weights,
    start,
    without_member,
)
from ardvark.inference.subset.laplace_fit import FIXED, ONE_EACH, SHARED, Slab, empty_fit
from ardvark.inference.subset.replace import Room, replace_member

__all__ = [
    "ADD",
    "DELETE",
    "EXCHANGE",
    "FIXED",
    "ONE_EACH",
    "SHARED",
    "Prior",
    "Store",
    "new_store",
    "residual_square",
    "run_collapsed",
    "sample_precisions",
    "sample_sigma",
]

ADD, DELETE, EXCHANGE, REPLACE = 0, 1, 2, 3
REPLACE_EVERY = 6  # sweeps: it costs two fits
MOST_STEPS = 1000  # of a loop that ends by chance long before: only a NaN gets there


class Prior(NamedTuple):
    """Prior of subset, weights and noise; `alpha` and `sigma` are where a chain starts."""

    log_subset: Array  # (d + 1,): of one subset, by size
    alpha: Array  # (d + 1,), overwritten unless the slab is FIXED
    slab: Slab
    sigma: float
    scale: float  # of sigma's half-normal; 0: sigma is known


class Store(NamedTuple):
    """What one chain has found."""

    weights: Array  # (draws, d + 1), the bias first; excluded: draws of the slab
    included: Array  # (draws, d)
    alpha: Array  # (draws, d + 1)
    sigma: Array  # (draws,)
    inclusion: Array  # (draws, d): P(included given the other inputs), averaged between draws
    visited: Array  # (sweeps, d): the subset of every sweep
    moves: Array  # (move, size, 2): tried and accepted, by the size before


@njit(cache=True, nogil=True, error_model="numpy")
def new_store(columns, plan, moves):  # type: ignore[no-untyped-def]
    """Give the arrays that a chain fills."""
    draws, sweeps = plan.draws, plan.draws * plan.thin
    return Store(
        np.empty((draws, columns)), np.zeros((draws, columns - 1), np.uint8),
        np.empty((draws, columns)), np.ones(draws), np.zeros((draws, columns - 1)),
        np.zeros((sweeps, columns - 1), np.uint8), np.zeros((moves, columns, 2), np.int64),
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def exchange_gains(at, k, f, alpha):  # type: ignore[no-untyped-def]
    """Give the gain of each column outside, and of the member at `at`, once that one has left."""
    own = f.members[at]
    own_s, own_q = without_member(at, k, f)
    rows, beta, s, q, place = f.rows, f.beta, f.s, f.q, f.place
    direction, gains = f.direction, f.gains
    along = 0.0
    for r in range(at, k):
        along += direction[r] * beta[r]
    for j in range(s.size):
        if j == own:
            gains[j] = gain(alpha[j], own_s, own_q)
        elif place[j] >= 0:
            gains[j] = -np.inf
        else:
            x = 0.0
            for r in range(at, k):
                x += direction[r] * rows[r, j]
            gains[j] = gain(alpha[j], s[j] + x * x, q[j] + x * along)


@njit(cache=True, nogil=True, error_model="numpy")
def exchange(k, f, data, tau, alpha, moves, rng):  # type: ignore[no-untyped-def]
    """Swap one included input for another, or for itself: a Gibbs step."""
    moves[EXCHANGE, k - 1, 0] += 1
    at = 1 + int(rng.random() * (k - 1))
    exchange_gains(at, k, f, alpha)
    gains, old = f.gains, f.members[at]
    top, total = gains.max(), 0.0
    for j in range(gains.size):
        gains[j] = exp(gains[j] - top)
        total += gains[j]
    left, new = rng.random() * total, old
    for j in range(gains.size):
        left -= gains[j]
        if left < 0.0:
            new = j
            break
    if new != old:
        remove(at, k, f, data, tau, alpha)
        push(new, k - 1, f, data, tau, alpha)
        moves[EXCHANGE, k - 1, 1] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def jump_about(k, jumps, f, data, tau, alpha, log_prior, moves, rng, watch):  # type: ignore[no-untyped-def]
    """Propose `jumps` times to add or delete an input, and a few exchanges; the new k."""
    s, q, place, columns = f.s, f.q, f.place, alpha.size
    apart = max(16, jumps // 8)  # an exchange looks at every input: no more than a few in a sweep
    for jump in range(jumps):
        if watch[STOP]:
            break
        j, size = 1 + int(rng.random() * (columns - 1)), k - 1
        if place[j] < 0:
            moves[ADD, size, 0] += 1
            log_ratio = log_prior[size + 1] - log_prior[size] + gain(alpha[j], s[j], q[j])
            if log_ratio >= 0.0 or rng.random() < exp(log_ratio):
                push(j, k, f, data, tau, alpha)
                moves[ADD, size, 1] += 1
                k += 1
        else:
            moves[DELETE, size, 0] += 1
            log_ratio = (
                log_prior[size - 1] - log_prior[size] - gain_of_member(place[j], k, f, alpha)
            )
            if log_ratio >= 0.0 or rng.random() < exp(log_ratio):
                remove(place[j], k, f, data, tau, alpha)
                moves[DELETE, size, 1] += 1
                k -= 1
        if jump % apart == 0 and 1 < k < columns:
            exchange(k, f, data, tau, alpha, moves, rng)
    return k


@njit(cache=True, nogil=True, error_model="numpy")
def add_inclusion(k, f, alpha, log_prior, total):  # type: ignore[no-untyped-def]
    """Add P(j in I given the other inputs) to `total`, for each input."""
    size, s, q, place = k - 1, f.s, f.q, f.place
    for j in range(1, s.size):
        if place[j] < 0:
            log_odds = log_prior[size + 1] - log_prior[size] + gain(alpha[j], s[j], q[j])
        else:
            brought = gain_of_member(place[j], k, f, alpha)
            log_odds = log_prior[size] - log_prior[size - 1] + brought
        total[j - 1] += 1.0 / (1.0 + exp(-log_odds))


@njit(cache=True, nogil=True, error_model="numpy")
def above_zero(mean, rng):  # type: ignore[no-untyped-def]
    """Draw from N(mean, 1) given that it is positive; NaN if the mean is no number."""
    if mean > -0.4:
        for _ in range(MOST_STEPS):
            x = mean + rng.standard_normal()
            if x > 0.0:
                return x
    low = -mean  # Robert 1995: the tail above `low` by an exponential
    rate = 0.5 * (low + sqrt(low * low + 4.0))
    for _ in range(MOST_STEPS):
        x = low - log1p(-rng.random()) / rate
        if rng.random() <= exp(-0.5 * (x - rate) ** 2):
            return x - low
    return np.nan


@njit(cache=True, nogil=True, error_model="numpy")
def sample_sigma(sigma, residual, n_rows, scale, rng):  # type: ignore[no-untyped-def]
    """Slice sampling of log sigma: sigma^-N exp(-residual / 2 sigma²) times its half-normal.

    NaN where the density at sigma is no number.
    """
    here = log(sigma)
    height = _log_sigma(here, residual, n_rows, scale) + log1p(-rng.random())
    width = 2.0 / sqrt(2.0 * n_rows + 1.0)
    low = here - width * rng.random()
    high = low + width
    if not isfinite(height):
        return np.nan
    for _ in range(MOST_STEPS):
        if not _log_sigma(low, residual, n_rows, scale) > height:
            break
        low -= width
    for _ in range(MOST_STEPS):
        if not _log_sigma(high, residual, n_rows, scale) > height:
            break
        high += width
    for _ in range(MOST_STEPS):
        x = low + (high - low) * rng.random()
        if _log_sigma(x, residual, n_rows, scale) > height:
            return exp(x)
        if x < here:
            low = x
        else:
            high = x
    return sigma


@njit(cache=True, nogil=True, error_model="numpy")
def _log_sigma(x, residual, n_rows, scale):  # type: ignore[no-untyped-def]
    square = exp(2.0 * x)
    return (1.0 - n_rows) * x - 0.5 * residual / square - 0.5 * square / (scale * scale)


@njit(cache=True, nogil=True, error_model="numpy")
def sample_precisions(k, members, place, weights, slab, alpha, rng):  # type: ignore[no-untyped-def]
    """Draw the precisions given the weights; `alpha[0]` is the bias's and stays."""
    kind, a, b = slab
    if kind == ONE_EACH:
        for j in range(1, alpha.size):
            alpha[j] = rng.standard_gamma(a) / b if place[j] < 0 else alpha[j]
        for r in range(1, k):
            alpha[members[r]] = rng.standard_gamma(a + 0.5) / (b + 0.5 * weights[r] ** 2)
    elif kind == SHARED:
        square = 0.0
        for r in range(1, k):
            square += weights[r] ** 2
        alpha[1:] = rng.standard_gamma(a + 0.5 * (k - 1)) / (b + 0.5 * square)


@njit(cache=True, nogil=True, error_model="numpy")
def residual_square(k, members, weights, data):  # type: ignore[no-untyped-def]
    """|t - A w|²."""
    A, t, gram, c = data.A, data.t, data.gram, data.c
    if gram.shape[0] == 0:
        total = 0.0
        for n in range(t.size):
            x = t[n]
            for r in range(k):
                x -= A[n, members[r]] * weights[r]
            total += x * x
        return total
    total = data.square
    for r in range(k):
        x = -2.0 * c[members[r]]
        for i in range(k):
            x += gram[members[r], members[i]] * weights[i]
        total += x * weights[r]
    return max(total, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def utilities(k, members, weights, data, rng):  # type: ignore[no-untyped-def]
    """Draw z given the weights, and with it c = A'z."""
    A, sign, c = data.A, data.t, data.c
    c[:] = 0.0
    for n in range(A.shape[0]):
        eta = 0.0
        for r in range(k):
            eta += A[n, members[r]] * weights[r]
        z = sign[n] * above_zero(sign[n] * eta, rng)
        for j in range(c.size):
            c[j] += A[n, j] * z


@njit(cache=True, nogil=True, error_model="numpy")
def keep_draw(store, draw, k, members, weights, alpha, rng):  # type: ignore[no-untyped-def]
    """Store one draw; the weight of an excluded input, which no data see, is one of its slab."""
    included, kept = store.included[draw], store.weights[draw]
    for r in range(1, k):
        included[members[r] - 1] = 1
    for j in range(1, alpha.size):
        if included[j - 1] == 0:
            kept[j] = rng.standard_normal() / sqrt(alpha[j])
    for r in range(k):
        kept[members[r]] = weights[r]


@njit(cache=True, nogil=True, error_model="numpy")
def run_collapsed(data, prior, plan, jumps, near, first, begin, f, rng, watch):  # type: ignore[no-untyped-def]
    """Run one chain from the members `first` (columns, the bias not among them), weights `begin`.

    `data` (its c) and `prior` (its alpha) are overwritten, `f` is a workspace. With `near` members
    of a probit are replaced by inputs like them. All sweeps after tuning are in `visited`. What
    comes last is False if the weights or sigma were not finite: the chain ended there.
    """
    columns, alpha, sigma, log_prior = data.c.size, prior.alpha, prior.sigma, prior.log_subset
    members, store = f.members, new_store(data.c.size, plan, 4)
    moves, visited, beta = store.moves, store.visited, f.beta
    white, weights = np.empty(columns), np.zeros(columns)
    side = columns if near.shape[0] > 0 else 0
    room = Room(empty_fit(side), np.empty(side, members.dtype), np.empty(side))
    members[0], f.place[0], k = 0, 0, 1
    for j in first:
        members[k], f.place[j], k = j, k, k + 1
    weights[:k] = begin
    finite = True
    for sweep in range(-plan.tune, plan.draws * plan.thin):
        watch[DONE] += 1
        if sweep == 0:
            moves[:] = 0
        tau = 1.0 / (sigma * sigma)
        if near.shape[0] > 0 and 1 < k < columns and sweep % REPLACE_EVERY == 0:
            moves[REPLACE, k - 1, 0] += 1
            moves[REPLACE, k - 1, 1] += replace_member(k, f, weights, data, alpha, near, room, rng)
        if data.probit:
            utilities(k, members, weights, data, rng)
        start(f, data, tau, alpha)
        for r in range(k):
            push(members[r], r, f, data, tau, alpha)
        k = jump_about(k, jumps, f, data, tau, alpha, log_prior, moves, rng, watch)
        for r in range(k):
            white[r] = beta[r] + rng.standard_normal()
        solve_weights(k, f, white, weights)
        if sweep >= 0:
            draw = sweep // plan.thin
            add_inclusion(k, f, alpha, log_prior, store.inclusion[draw])
            for r in range(1, k):
                visited[sweep, members[r] - 1] = 1
        if prior.scale > 0.0:
            residual = residual_square(k, members, weights, data)
            sigma = sample_sigma(sigma, residual, data.A.shape[0], prior.scale, rng)
        finite = isfinite(weights[0]) and isfinite(sigma)  # the bias is solved for last
        if watch[STOP] or not finite:
            break
        sample_precisions(k, members, f.place, weights, prior.slab, alpha, rng)
        if sweep >= 0 and (sweep + 1) % plan.thin == 0:
            keep_draw(store, draw, k, members, weights, alpha, rng)
            store.alpha[draw], store.sigma[draw] = alpha, sigma
            store.inclusion[draw] /= plan.thin
    return store, finite
