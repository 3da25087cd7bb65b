"""Moves over subsets with the weights integrated out, whole sweeps in machine code.

For Gaussian noise, and for the probit given its latent utilities z ~ N(eta, 1), t = [z > 0]
(Albert & Chib 1993). The evidence of every subset one input away comes from `subset_factor`, so a
move that is rejected costs next to nothing. One sweep:

| what | how |
|---|---|
| replace (probit, every sixth sweep) | a member by an input like it, without z: `replace.py` |
| z given the weights (probit) | truncated normals |
| add or delete | an input at random changes sides, Metropolis: log p(I') - log p(I) ± gain |
| exchange | a member at random leaves; who comes instead (itself among them) is drawn from the conditional probabilities of all, so there is nothing to reject |
| P(j in I given the other inputs) | from the gains, for each j: the Rao-Blackwellised inclusion |
| weights | from their Gaussian |
| sigma given the weights | slice sampling of log sigma |
| alpha given the weights | its Gamma; of an excluded input: from the prior |

Add and delete choose uniformly among all d inputs, so do the two steps of an exchange back and
forth: no proposal ratio is left in either.
"""  # noqa: E501

from math import exp, isfinite, log, log1p, sqrt

import numpy as np
from numba import njit

from ardvark.inference.subset.factor import (
    gain,
    gain_of_member,
    push,
    remove,
    solve_weights,
    start,
    without_member,
)
from ardvark.inference.subset.laplace_fit import FIXED, ONE_EACH, SHARED
from ardvark.inference.subset.replace import replace_member
from ardvark.inference.threads import DONE, STOP

__all__ = ["ADD", "DELETE", "EXCHANGE", "FIXED", "ONE_EACH", "SHARED", "run_collapsed"]

ADD, DELETE, EXCHANGE, REPLACE = 0, 1, 2, 3
REPLACE_EVERY = 6  # sweeps: it costs two fits
MOST_STEPS = 1000  # of a loop that ends by chance long before: only a NaN gets there


@njit(cache=True, nogil=True, error_model="numpy")
def flip(j, k, log_prior, rng, rows, beta, s, q, members, place, A, gram, tau, alpha, direction,  # type: ignore[no-untyped-def]
         moves):  # fmt: skip
    """Let column j change sides, or not; k counts the members, the bias among them."""
    size = k - 1
    if place[j] < 0:
        moves[ADD, size, 0] += 1
        log_ratio = log_prior[size + 1] - log_prior[size] + gain(alpha[j], s[j], q[j])
        if log_ratio >= 0.0 or rng.random() < exp(log_ratio):
            push(j, k, rows, beta, s, q, members, A, gram, tau, alpha)
            place[j] = k
            moves[ADD, size, 1] += 1
            return k + 1
        return k
    moves[DELETE, size, 0] += 1
    brought = gain_of_member(place[j], k, rows, beta, members, alpha, direction)
    log_ratio = log_prior[size - 1] - log_prior[size] - brought
    if log_ratio >= 0.0 or rng.random() < exp(log_ratio):
        leave(j, k, rows, beta, s, q, members, place, A, gram, tau, alpha)
        moves[DELETE, size, 1] += 1
        return k - 1
    return k


@njit(cache=True, nogil=True, error_model="numpy")
def leave(j, k, rows, beta, s, q, members, place, A, gram, tau, alpha):  # type: ignore[no-untyped-def]
    """Take column j out and keep the places of the others."""
    remove(place[j], k, rows, beta, s, q, members, A, gram, tau, alpha)
    for r in range(place[j], k - 1):
        place[members[r]] = r
    place[j] = -1


@njit(cache=True, nogil=True, error_model="numpy")
def exchange_gains(at, k, rows, beta, s, q, members, place, alpha, direction, gains):  # type: ignore[no-untyped-def]
    """Give the gain of each column outside, and of the member at `at`, once that one has left."""
    own = members[at]
    own_s, own_q = without_member(at, k, rows, beta, members, direction)
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
def exchange(k, rng, rows, beta, s, q, members, place, A, gram, tau, alpha, direction, gains,  # type: ignore[no-untyped-def]
             moves):  # fmt: skip
    """Let a member go and draw who comes instead, by the conditional probabilities of all."""
    moves[EXCHANGE, k - 1, 0] += 1
    at = 1 + int(rng.random() * (k - 1))
    exchange_gains(at, k, rows, beta, s, q, members, place, alpha, direction, gains)
    top, total = gains.max(), 0.0
    for j in range(gains.size):
        gains[j] = exp(gains[j] - top)
        total += gains[j]
    left, chosen = rng.random() * total, members[at]
    for j in range(gains.size):
        left -= gains[j]
        if left < 0.0:
            chosen = j
            break
    if chosen != members[at]:
        leave(members[at], k, rows, beta, s, q, members, place, A, gram, tau, alpha)
        push(chosen, k - 1, rows, beta, s, q, members, A, gram, tau, alpha)
        place[chosen] = k - 1
        moves[EXCHANGE, k - 1, 1] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def add_inclusion(k, log_prior, rows, beta, s, q, members, place, alpha, direction, total):  # type: ignore[no-untyped-def]
    """Add P(j in I given the other inputs) to `total`, for each input."""
    size = k - 1
    for j in range(1, s.size):
        if place[j] < 0:
            log_odds = log_prior[size + 1] - log_prior[size] + gain(alpha[j], s[j], q[j])
        else:
            brought = gain_of_member(place[j], k, rows, beta, members, alpha, direction)
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
def sample_precisions(k, members, place, weights, slab, a, b, alpha, rng):  # type: ignore[no-untyped-def]
    """Draw the precisions given the weights; `alpha[0]` is the bias's and stays."""
    if slab == ONE_EACH:
        for j in range(1, alpha.size):
            alpha[j] = rng.standard_gamma(a) / b if place[j] < 0 else alpha[j]
        for r in range(1, k):
            alpha[members[r]] = rng.standard_gamma(a + 0.5) / (b + 0.5 * weights[r] ** 2)
    elif slab == SHARED:
        square = 0.0
        for r in range(1, k):
            square += weights[r] ** 2
        alpha[1:] = rng.standard_gamma(a + 0.5 * (k - 1)) / (b + 0.5 * square)


@njit(cache=True, nogil=True, error_model="numpy")
def residual_square(k, members, weights, square, c, A, gram, t):  # type: ignore[no-untyped-def]
    """|t - A w|²."""
    if gram.shape[0] == 0:
        total = 0.0
        for n in range(t.size):
            x = t[n]
            for r in range(k):
                x -= A[n, members[r]] * weights[r]
            total += x * x
        return total
    total = square
    for r in range(k):
        x = -2.0 * c[members[r]]
        for i in range(k):
            x += gram[members[r], members[i]] * weights[i]
        total += x * weights[r]
    return max(total, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def utilities(k, members, weights, sign, A, c, rng):  # type: ignore[no-untyped-def]
    """Draw z given the weights, and with it c = A'z."""
    c[:] = 0.0
    for n in range(A.shape[0]):
        eta = 0.0
        for r in range(k):
            eta += A[n, members[r]] * weights[r]
        z = sign[n] * above_zero(sign[n] * eta, rng)
        for j in range(c.size):
            c[j] += A[n, j] * z


@njit(cache=True, nogil=True, error_model="numpy")
def run_collapsed(A, gram, diagonal, c, square, t, probit, log_prior, alpha, slab, a, b, sigma,  # type: ignore[no-untyped-def]
                  scale, first, tune, draws, thin, jumps, near, space, rng, watch):  # fmt: skip
    """Run one chain from the members `first` (columns, the bias not among them).

    `scale` > 0 infers sigma with a half-normal of that scale. `probit`: t are signs. `alpha` and
    `c` are overwritten. All sweeps after tuning are in `visited`, `draws` of them in the rest.
    What comes last is False if the weights or sigma were not finite: the chain ended there.
    """
    columns = c.size
    rows, beta, s, q, members = space
    kept_w, kept_in = np.empty((draws, columns)), np.zeros((draws, columns - 1), np.uint8)
    kept_alpha, kept_sigma = np.empty((draws, columns)), np.empty(draws)
    inclusion = np.zeros((draws, columns - 1))
    visited = np.zeros((draws * thin, columns - 1), np.uint8)
    moves = np.zeros((4, columns, 2), np.int64)
    direction, gains = np.empty(columns), np.empty(columns)
    apart = max(16, jumps // 8)  # an exchange looks at every input: no more than a few in a sweep
    white, weights = np.empty(columns), np.zeros(columns)
    side = columns if near.shape[0] > 0 else 0
    room = (
        np.empty(side), np.empty((side, side)),
        (np.empty(side), np.empty(side), np.empty(side), np.empty(side)),
        np.empty(side, members.dtype), np.empty(side),
    )  # fmt: skip
    place = np.full(columns, -1, np.int64)
    members[0], place[0], k = 0, 0, 1
    for j in first:
        members[k], place[j], k = j, k, k + 1
    finite = True
    for sweep in range(-tune, draws * thin):
        watch[DONE] += 1
        if sweep == 0:
            moves[:] = 0
        tau = 1.0 / (sigma * sigma)
        if near.shape[0] > 0 and 1 < k < columns and sweep % REPLACE_EVERY == 0:
            moves[REPLACE, k - 1, 0] += 1
            moves[REPLACE, k - 1, 1] += replace_member(
                k, members, place, weights, A, t, alpha, near, room, rng
            )
        if probit:
            utilities(k, members, weights, t, A, c, rng)
        start(c, diagonal, tau, alpha, s, q)
        for r in range(k):
            push(members[r], r, rows, beta, s, q, members, A, gram, tau, alpha)
        for jump in range(jumps):
            if watch[STOP]:
                break
            j = 1 + int(rng.random() * (columns - 1))
            k = flip(j, k, log_prior, rng, rows, beta, s, q, members, place, A, gram, tau, alpha,
                     direction, moves)  # fmt: skip
            if jump % apart == 0 and 1 < k < columns:
                exchange(k, rng, rows, beta, s, q, members, place, A, gram, tau, alpha, direction,
                         gains, moves)  # fmt: skip
        for r in range(k):
            white[r] = beta[r] + rng.standard_normal()
        solve_weights(k, rows, white, members, weights)
        if sweep >= 0:
            draw = sweep // thin
            add_inclusion(k, log_prior, rows, beta, s, q, members, place, alpha, direction,
                          inclusion[draw])  # fmt: skip
            for r in range(1, k):
                visited[sweep, members[r] - 1] = 1
        if scale > 0.0:
            residual = residual_square(k, members, weights, square, c, A, gram, t)
            sigma = sample_sigma(sigma, residual, A.shape[0], scale, rng)
        finite = isfinite(weights[0]) and isfinite(sigma)  # the bias is solved for last
        if watch[STOP] or not finite:
            break
        sample_precisions(k, members, place, weights, slab, a, b, alpha, rng)
        if sweep >= 0 and (sweep + 1) % thin == 0:
            for j in range(columns):  # an excluded input: its slab, which no data see
                if place[j] < 0:
                    kept_w[draw, j] = rng.standard_normal() / sqrt(alpha[j])
            for r in range(k):
                kept_w[draw, members[r]] = weights[r]
            for r in range(1, k):
                kept_in[draw, members[r] - 1] = 1
            kept_alpha[draw], kept_sigma[draw] = alpha, sigma
            inclusion[draw] /= thin
    return kept_w, kept_in, kept_alpha, kept_sigma, inclusion, visited, moves, finite
