"""Jumps of the RBF mixture between subsets under P(t | x).

The base of a jump is the point without the input that leaves. What enters is drawn given the base:
there each row belongs to the kernels by

    r_nd ∝ w_{t_n, d} N_d(x_n, base)

and n_d, x̄_d, S_d are count, mean and scatter of the new input's rows by r. A row says less of
P(t | x) than of the density of x, so the rows count by a power ω too:

    q(β, τ, m) = ρ_0 prior + Σ_ω ρ_ω q_ω,        q_ω = `kernels.py` with ω n, x̄, ω S in the place of n, x̄, S

The prior in q bounds prior/q: no input is born where its death would never be accepted (a defensive
mixture, Hesterberg 1995). With V_j = p(β, τ, m) / q(β, τ, m) of input j given the base,

    birth of j       log V_j + log λ/(k + 1) + f' - f             f = s Σ_n log P(t_n | x_n)
    death of i       minus the same, k before
    exchange, i -> j log V_j - log V_i + f' - f
    renewal of j     the exchange of j for j

q is a density of the very coefficients, so no Jacobian is left over.

Which input enters is drawn in proportion to `chance`, which tuning has settled by how often each was
in a subset at any power; which leaves is drawn uniformly. With C the sum of the chances outside,

    birth of j       the choice gives C / c_j in the place of n - k
    exchange, i -> j c_i C / (c_j (C - c_j + c_i))

An exchange draws j given the rows' kernels with i still there, and its way back given them with j:
an input that says the same of the rows as i does is then drawn where it must be.
"""  # noqa: E501

import math
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.mixture.conditional.density import Point, Work, fill_rows, log_labels
from ardvark.inference.mixture.conditional.exponential import exponentials
from ardvark.inference.mixture.kernels import (
    DEGREES,
    MOST_TRIES,
    T_CONSTANT,
    Problem,
    add_input,
    choose,
    draw_mean,
    fill_prior,
    pick,
    positive,
    rate_proposal,
)
from ardvark.inference.running.machine_code import njit

__all__ = [
    "MOVES",
    "TRIES",
    "Coefficients",
    "choice_ratio",
    "draw_new",
    "jump",
    "jump_ratio",
    "log_v",
]

MOVES = ("birth", "death", "exchange", "renewal")
TRIES = (0.3, 0.3, 0.3, 0.1)  # how often each is tried; births as often as deaths
BIRTH, DEATH, EXCHANGE, RENEWAL = 0, 1, 2, 3
POWERS = (0.0, 0.1, 1.0)  # ω; 0 is the prior
SHARES = (0.2, 0.4, 0.4)  # ρ


class Coefficients(NamedTuple):
    """Of one input."""

    mean: Any  # (kernel,)
    tau: Any
    beta: Any  # (1,)


@njit(cache=True, nogil=True, error_model="numpy")
def allocate_softly(p: Problem, work: Work) -> None:
    """Fill r of work.rows into work.other."""
    rows, out, log_w, top = work.rows, work.other, work.log_w, work.by_row[0]
    n_kernels, n_rows = rows.shape
    top[:] = -np.inf
    for e in range(n_kernels):
        for n in range(n_rows):
            out[e, n] = log_w[p.label[n], e] + rows[e, n]
            top[n] = max(top[n], out[e, n])
    for e in range(n_kernels):
        own = out[e]
        for n in range(n_rows):
            own[n] -= top[n]
        exponentials(own, work.by_row[3])
    top[:] = 0.0
    for e in range(n_kernels):
        for n in range(n_rows):
            top[n] += out[e, n]
    for e in range(n_kernels):
        for n in range(n_rows):
            out[e, n] /= top[n]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def soft_statistics(x: Any, r: Any) -> Any:
    """Count, mean and scatter of one input's rows, by kernel."""
    n_kernels = r.shape[0]
    count, centre, scatter = np.zeros(n_kernels), np.zeros(n_kernels), np.zeros(n_kernels)
    for e in range(n_kernels):
        number, first, second = 0.0, 0.0, 0.0
        for n in range(x.shape[0]):
            number += r[e, n]
            first += r[e, n] * x[n]
        middle = first / max(number, 1e-300)
        for n in range(x.shape[0]):
            second += r[e, n] * (x[n] - middle) ** 2
        count[e], centre[e], scatter[e] = number, middle, second
    return count, centre, scatter


@njit(cache=True, nogil=True, error_model="numpy")
def draw_new(rng: Any, p: Problem, j: int, r: Any, new: Coefficients) -> None:
    """Draw the coefficients of input j from q."""
    power = POWERS[pick(rng, np.array(SHARES))]
    if power == 0.0:
        new.beta[0] = fill_prior(rng, p.shape, p.g, p.h[j], p.floor, new.mean, new.tau)
        return
    count, centre, scatter = soft_statistics(p.z[j], r)
    count *= power
    scatter *= power
    u, scale, _ = rate_proposal(count, scatter, p.shape, p.g, p.h[j], p.floor)
    for _ in range(MOST_TRIES):
        t = rng.standard_normal() / math.sqrt(rng.standard_gamma(0.5 * DEGREES) / (0.5 * DEGREES))
        new.beta[0] = math.exp(u + scale * t)
        if new.beta[0] > p.floor:
            break
    for e in range(count.shape[0]):
        shape = p.shape + 0.5 * max(count[e] - 1.0, 0.0)
        new.tau[e] = positive(rng.standard_gamma(shape) / (new.beta[0] + 0.5 * scatter[e]))
        new.mean[e] = draw_mean(rng, count[e], centre[e], new.tau[e])


@njit(cache=True, nogil=True, error_model="numpy")
def log_v(p: Problem, j: int, r: Any, c: Coefficients) -> float:
    """Log of prior over proposal of the coefficients of input j."""
    count, centre, scatter = soft_statistics(p.z[j], r)
    part = np.empty(len(POWERS))
    part[0] = math.log(SHARES[0])
    for i in range(1, len(POWERS)):
        power = POWERS[i]
        found = log_q_over_p(p, j, power * count, centre, power * scatter, c)
        part[i] = math.log(SHARES[i]) + found
    top = part.max()
    return float(-top - math.log(np.exp(part - top).sum()))


@njit(cache=True, nogil=True, error_model="numpy")
def log_q_over_p(
    p: Problem, j: int, count: Any, centre: Any, scatter: Any, c: Coefficients
) -> float:
    """Log q_ω - log p; densities of log β, τ, m."""
    u, scale, log_mass = rate_proposal(count, scatter, p.shape, p.g, p.h[j], p.floor)
    beta = c.beta[0]
    log_beta = math.log(beta)
    t = (log_beta - u) / scale
    total = T_CONSTANT - math.log(scale) - 2.5 * math.log1p(t * t / DEGREES) - log_mass
    total -= p.log_p_beta[j] + p.g * log_beta - p.h[j] * beta
    for e in range(count.shape[0]):
        n, tau, mean, a = count[e], c.tau[e], c.mean[e], p.shape
        more, half = 0.5 * max(n - 1.0, 0.0), 0.5 * scatter[e]
        total += (a + more) * math.log(beta + half) - a * log_beta + more * math.log(tau)
        total += math.lgamma(a) - math.lgamma(a + more) - half * tau
        precision = 1.0 + n * tau
        gap = mean - n * tau * centre[e] / precision
        total += 0.5 * (math.log(precision) - precision * gap**2 + mean**2)
    return float(total)


@njit(cache=True, nogil=True, error_model="numpy")
def choice_ratio(p: Problem, on: Any, chance: Any, new: int, old: int) -> float:
    """Prior of the sizes, and the choice of the inputs there and back."""
    size, outside = int(on.sum()), 0.0
    for j in range(on.shape[0]):
        if not on[j]:
            outside += chance[j]
    if new == old:
        return 0.0
    if old < 0:
        odds = math.log(outside / chance[new]) - math.log(size + 1.0)
        return float(p.log_prior[size + 1] - p.log_prior[size] + odds)
    if new < 0:
        odds = math.log((outside + chance[old]) / chance[old]) - math.log(float(size))
        return float(p.log_prior[size - 1] - p.log_prior[size] - odds)
    back = chance[old] / (outside - chance[new] + chance[old])
    return math.log(back * outside / chance[new])


@njit(cache=True, nogil=True, error_model="numpy")
def jump_ratio(
    p: Problem, s: Point, new: int, old: int, born: Coefficients, left: Coefficients, work: Work
) -> Any:
    """Log ratio without choice and f, and f' after: `born` enters as `new`, `left` leaves as `old`.

    Given are, in work, rows and r from which `born` was drawn (`fill_base`) and log P_k w_kd.
    """
    ratio, exchange = 0.0, new >= 0 and old >= 0 and new != old
    if new >= 0:
        ratio += log_v(p, new, work.other, born)
    if exchange:
        fill_rows(p, s, old, work.rows)  # anew: what a huge τ added cannot be taken out again
    elif old >= 0:
        ratio -= log_v(p, old, work.other, left)
    if new >= 0:
        add_input(p.z[new], born.mean, born.tau, 1.0, work.rows)
    if exchange:
        allocate_softly(p, work)
        ratio -= log_v(p, old, work.other, left)
    return ratio, p.power * log_labels(p.label, work)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_base(p: Problem, s: Point, new: int, old: int, work: Work) -> None:
    """Rows and their soft allocations, from which `new` is drawn; log P_k w_kd are there."""
    exchange = new >= 0 and new != old
    fill_rows(p, s, -1 if exchange else old, work.rows)
    allocate_softly(p, work)


@njit(cache=True, nogil=True, error_model="numpy")
def pick_new(rng: Any, on: Any, chance: Any) -> int:
    """Choose an input outside the subset in proportion to its chance; -1 if there is none."""
    left, last = 0.0, -1
    for j in range(on.shape[0]):
        if not on[j]:
            left += chance[j]
    left *= rng.random()
    for j in range(on.shape[0]):
        if not on[j]:
            last = j
            left -= chance[j]
            if left < 0:
                break
    return last


@njit(cache=True, nogil=True, error_model="numpy")
def jump(rng: Any, p: Problem, s: Point, move: int, chance: Any, now: Any, work: Work) -> bool:
    """Try a move; `now` is f at the point (1,), log P_k w_kd are in work."""
    new = pick_new(rng, s.on, chance) if move == BIRTH or move == EXCHANGE else -1
    old = -1 if move == BIRTH else choose(rng, s.on, True)
    if (new < 0 and (move == BIRTH or move == EXCHANGE)) or (old < 0 and move != BIRTH):
        return False
    if move == RENEWAL:
        new = old
    n_kernels = s.tau.shape[1]
    born = Coefficients(np.empty(n_kernels), np.empty(n_kernels), np.empty(1))
    left = Coefficients(s.mean[old].copy(), s.tau[old].copy(), s.beta[old : old + 1].copy())
    fill_base(p, s, new, old, work)
    if new >= 0:
        draw_new(rng, p, new, work.other, born)
    ratio, after = jump_ratio(p, s, new, old, born, left, work)
    ratio += choice_ratio(p, s.on, chance, new, old)
    if not math.log(rng.random()) < ratio + after - now[0]:
        return False
    now[0] = after
    if old >= 0:
        s.on[old] = False
    if new >= 0:
        s.on[new] = True
        s.mean[new], s.tau[new], s.beta[new] = born.mean, born.tau, born.beta[0]
    return True
