"""Sweeps of the RBF mixture in numba: Gibbs updates at a subset, and jumps between subsets.

Units: z_j = (x_j - ξ_j) / R_j, in which ξ = 0 and κ = 1 for every input. Arrays are (input, row)
for z and (input, kernel) for coefficients, so that inner loops run over neighbouring numbers.

Jumps hold the allocations d. With them the new coefficients of input j are drawn nearly from
their full conditional, and the mean is integrated out of the ratio: n, x̄ and S = Σ(x - x̄)² of a
kernel's rows give

    q(log β)     Student-t at the mode of  g u - h e^u + Σ_d [a u - (a + ν_d) log(e^u + S_d/2)],
                 cut off at the smallest β
    q(τ_d | β)   Gamma(a + ν_d, β + S_d/2),                      ν = max(n - 1, 0) / 2
    q(m_d | τ_d) its full conditional, N(n τ x̄ / (1 + n τ), 1 / (1 + n τ))

    log W_j = log [p(x_j | d, m, τ) p(m) p(τ | β) p(β) / q(m, τ, β)]                 `log_weight`
    birth   log W_j - log p0(x_j) + log λ/(k + 1)                 death: minus the same, k before
    exchange of i for j   log W_j - log p0(x_j) - log W_i + log p0(x_i)

W does not depend on m, which is why it may be drawn after the decision. p0(x_j) is the evidence of
the background, a number for each input (`background.py`).

| Syk00                                       | here                 |
|---------------------------------------------|----------------------|
| (3): p(c_m | ...), p(d_n | ...)             | `allocate`           |
| (3): p(w_k | ...), p(P | ...)               | `draw_probabilities` |
| (3): p(m | ...), p(σ^-2 | ...), p(β | ...)  | `draw_coefficients`  |
| (5), (6), with errors put right             | `data_ratio`         |
| (5), (6), coefficients from their priors    | `prior_ratio`        |

(4), new w in a jump, is left out: the Gibbs update follows at once, and needs no Jacobian.

A power s of the likelihood (`ladder.py`) makes n rows count as s n.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.running.machine_code import njit

__all__ = ["Problem", "State", "data_ratio", "log_weight", "prior_ratio"]

LOG_2_PI = math.log(2 * math.pi)
DEGREES = 4.0  # of the Student-t for log β
MOST_TRIES = 100_000  # of a loop that ends by chance long before: only a NaN gets there
T_CONSTANT = math.lgamma(2.5) - math.lgamma(2.0) - 0.5 * math.log(4 * math.pi)
BIRTH, DEATH, EXCHANGE = 0, 1, 2


class Problem(NamedTuple):
    """Data and prior in the units of z."""

    z: Any  # (input, row)
    label: Any  # class of each row, -1: unlabelled
    log_p0: Any  # evidence of the background, by input
    log_prior: Any  # of one subset, by its size
    shape: float  # a
    g: float
    h: Any  # by input
    log_p_beta: Any  # log of g's normaliser h^g / Γ(g) / P(β > floor), by input
    floor: float  # smallest β
    power: float = 1.0  # of the likelihood


class State(NamedTuple):
    """Where a chain is; coefficients of inputs outside the subset mean nothing."""

    on: Any  # inputs of the subset
    c: Any  # class of each row
    d: Any  # kernel of each row
    P: Any  # (class,)
    w: Any  # (class, kernel)
    mean: Any  # (input, kernel)
    tau: Any
    beta: Any  # (input,)


# --- draws -------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def positive(value: float) -> float:
    """Keep a gamma draw of small shape from being an exact 0."""
    return max(value, 1e-300)


@njit(cache=True, nogil=True, error_model="numpy")
def pick(rng: Any, weight: Any) -> int:
    """Draw an index in proportion to the weights."""
    left = rng.random() * weight.sum()
    for k in range(weight.shape[0] - 1):
        left -= weight[k]
        if left < 0:
            return k
    return int(weight.shape[0] - 1)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_dirichlet(rng: Any, counts: Any, out: Any) -> None:
    """Draw from a Dirichlet."""
    for k in range(out.shape[0]):
        out[k] = positive(rng.standard_gamma(counts[k]))
    out /= out.sum()


@njit(cache=True, nogil=True, error_model="numpy")
def draw_rate(rng: Any, shape: float, rate: float, floor: float) -> float:
    """Draw from a Gamma above `floor`.

    Near its mode the exponential below has next to no slope and is hardly ever accepted; up to the
    mean a Gamma is above the floor at least once in three draws.
    """
    if (shape > 1.0 and floor * rate <= shape) or (shape <= 1.0 and floor * rate < 0.1):
        for _ in range(MOST_TRIES):
            value = rng.standard_gamma(shape) / rate
            if value > floor:
                return float(value)
        return np.nan
    # Beyond the mode the density falls faster than this exponential that touches it at the floor.
    slope = rate - max(shape - 1.0, 0.0) / floor
    for _ in range(MOST_TRIES):
        value = floor + rng.standard_exponential() / slope
        more = value / floor - 1.0
        below = (shape - 1.0) * math.log1p(more) - max(shape - 1.0, 0.0) * more
        if math.log(rng.random()) < below:
            return float(value)
    return np.nan


@njit(cache=True, nogil=True, error_model="numpy")
def draw_mean(rng: Any, n: float, centre: float, tau: float) -> float:
    """Draw a kernel's mean from its full conditional."""
    precision = 1.0 + n * tau
    return float(n * tau * centre / precision + rng.standard_normal() / math.sqrt(precision))


@njit(cache=True, nogil=True, error_model="numpy")
def fill_prior(rng: Any, a: float, g: float, h: float, floor: float, mean: Any, tau: Any) -> float:
    """Draw m and τ of one input from their prior, in place, and give β."""
    beta = draw_rate(rng, g, h, floor)
    for k in range(mean.shape[0]):
        tau[k] = positive(rng.standard_gamma(a) / beta)
        mean[k] = rng.standard_normal()
    return beta


# --- Gibbs updates at a subset, Syk00 (3) -----------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def fill_priors(rng: Any, p: Any, mean: Any, tau: Any, beta: Any) -> None:
    """Draw the coefficients of every input from their prior, in place."""
    for j in range(p.z.shape[0]):
        beta[j] = fill_prior(rng, p.shape, p.g, p.h[j], p.floor, mean[j], tau[j])


@njit(cache=True, nogil=True, error_model="numpy")
def log_rows(p: Problem, s: State, out: Any) -> None:
    """Log density of each row under each kernel, (kernel, row), without the constant 2π."""
    out[:] = 0.0
    for j in range(p.z.shape[0]):
        if s.on[j]:
            add_input(p.z[j], s.mean[j], s.tau[j], p.power, out)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=True)
def add_input(x: Any, mean: Any, tau: Any, power: float, out: Any) -> None:
    """Add a power of the log density of one input under each kernel."""
    for k in range(mean.shape[0]):
        top, half, middle = power * 0.5 * math.log(tau[k]), power * 0.5 * tau[k], mean[k]
        for n in range(x.shape[0]):
            out[k, n] += top - half * (x[n] - middle) ** 2


@njit(cache=True, nogil=True, error_model="numpy")
def allocate(rng: Any, label: Any, s: State, rows: Any) -> None:
    """Draw the class of each unlabelled row, then the kernel of every row."""
    n_kernels, n_rows = rows.shape
    density = np.empty(n_kernels)
    by_class = np.empty(s.P.shape[0])
    for n in range(n_rows):
        top = rows[:, n].max()
        for k in range(n_kernels):
            density[k] = math.exp(rows[k, n] - top)
        if label[n] < 0:
            for k in range(s.P.shape[0]):
                by_class[k] = s.P[k] * (s.w[k] * density).sum()
            s.c[n] = pick(rng, by_class)  # collapsed over d, so it comes first
        for k in range(n_kernels):
            density[k] *= s.w[s.c[n], k]
        s.d[n] = pick(rng, density)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_probabilities(rng: Any, s: State) -> None:
    """Draw P and every w_k from their Dirichlets."""
    counts, of_class = np.ones_like(s.w), np.ones_like(s.P)
    for n in range(s.c.shape[0]):
        counts[s.c[n], s.d[n]] += 1.0
        of_class[s.c[n]] += 1.0
    fill_dirichlet(rng, of_class, s.P)
    for k in range(s.P.shape[0]):
        fill_dirichlet(rng, counts[k], s.w[k])


@njit(cache=True, nogil=True, error_model="numpy")
def refresh_empty(rng: Any, label: Any, s: State) -> None:
    """At the empty subset kernels mean nothing: draw P, w, classes and d, in this order."""
    of_class = np.ones_like(s.P)
    for n in range(label.shape[0]):
        if label[n] >= 0:
            of_class[label[n]] += 1.0
    fill_dirichlet(rng, of_class, s.P)
    for k in range(s.P.shape[0]):
        fill_dirichlet(rng, np.ones(s.w.shape[1]), s.w[k])
    for n in range(label.shape[0]):
        s.c[n] = label[n] if label[n] >= 0 else pick(rng, s.P)
        s.d[n] = pick(rng, s.w[s.c[n]])


@njit(cache=True, nogil=True, error_model="numpy")
def draw_coefficients(rng: Any, p: Problem, s: State, j: int) -> None:
    """Draw means, precisions and rate of one input."""
    n_kernels = s.mean.shape[1]
    count, centre, scatter = rows_of(p, s, j)
    total = 0.0
    for k in range(n_kernels):
        n = count[k]
        s.mean[j, k] = draw_mean(rng, n, centre[k], s.tau[j, k])
        rate = s.beta[j] + 0.5 * (scatter[k] + n * (centre[k] - s.mean[j, k]) ** 2)
        s.tau[j, k] = positive(rng.standard_gamma(p.shape + 0.5 * n) / rate)
        total += s.tau[j, k]
    s.beta[j] = draw_rate(rng, p.g + p.shape * n_kernels, p.h[j] + total, p.floor)


@njit(cache=True, nogil=True, error_model="numpy")
def statistics(x: Any, d: Any, n_kernels: int) -> Any:
    """Count, mean and scatter of one input's rows, by kernel."""
    count, centre, scatter = np.zeros(n_kernels), np.zeros(n_kernels), np.zeros(n_kernels)
    for n in range(x.shape[0]):
        count[d[n]] += 1.0
        centre[d[n]] += x[n]
    for k in range(n_kernels):
        if count[k] > 0:
            centre[k] /= count[k]
    for n in range(x.shape[0]):
        scatter[d[n]] += (x[n] - centre[d[n]]) ** 2
    return count, centre, scatter


@njit(cache=True, nogil=True, error_model="numpy")
def rows_of(p: Problem, s: State, j: int) -> Any:
    """Count, mean and scatter of input j by kernel, rows counting by the power."""
    count, centre, scatter = statistics(p.z[j], s.d, s.tau.shape[1])
    return p.power * count, centre, p.power * scatter


# --- what a birth proposes ---------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def rate_proposal(count: Any, scatter: Any, a: float, g: float, h: float, floor: float) -> Any:
    """Place, scale and log mass above the floor of the Student-t for log β."""
    lowest = math.log(floor)
    u = max(math.log(g / h), lowest)
    slope, bend = 0.0, -1.0
    for _ in range(50):
        e = math.exp(u)
        slope, bend = g - h * e, -h * e
        for k in range(count.shape[0]):
            power = a + 0.5 * max(count[k] - 1.0, 0.0)
            share = e / (e + 0.5 * scatter[k])
            slope += a - power * share
            bend -= power * share * (1.0 - share)
        step = min(max(-slope / bend, -2.0), 2.0)  # concave, but flat far out
        if u == lowest and step < 0:
            break
        u = max(u + step, lowest)
        if abs(step) < 1e-6:
            break
    scale = 1.0 / max(math.sqrt(-bend), -slope)  # at the floor the density falls by its slope
    t = (u - lowest) / scale
    root = math.sqrt(1.0 + t * t / 4.0)
    below = 0.375 * t / root * (1.0 - t * t / (12.0 * root * root))  # four degrees of freedom
    return u, scale, math.log(0.5 + below)


@njit(cache=True, nogil=True, error_model="numpy")
def propose(rng: Any, p: Problem, s: State, j: int) -> None:
    """Draw β and τ of input j near their conditional given the allocations."""
    count, _, scatter = rows_of(p, s, j)
    u, scale, _ = rate_proposal(count, scatter, p.shape, p.g, p.h[j], p.floor)
    for _ in range(MOST_TRIES):
        t = rng.standard_normal() / math.sqrt(rng.standard_gamma(0.5 * DEGREES) / (0.5 * DEGREES))
        s.beta[j] = math.exp(u + scale * t)
        if s.beta[j] > p.floor:
            break
    for k in range(s.tau.shape[1]):
        power = p.shape + 0.5 * max(count[k] - 1.0, 0.0)
        s.tau[j, k] = positive(rng.standard_gamma(power) / (s.beta[j] + 0.5 * scatter[k]))


@njit(cache=True, nogil=True, error_model="numpy")
def log_weight(p: Problem, s: State, j: int) -> float:
    """Likelihood times prior over proposal of the coefficients of input j, see the module."""
    count, centre, scatter = rows_of(p, s, j)
    u, scale, log_mass = rate_proposal(count, scatter, p.shape, p.g, p.h[j], p.floor)
    a, beta = p.shape, s.beta[j]
    log_beta = math.log(beta)
    t = (log_beta - u) / scale
    total = p.log_p_beta[j] + p.g * log_beta - p.h[j] * beta  # densities of log β, not β
    total -= T_CONSTANT - math.log(scale) - 2.5 * math.log1p(t * t / DEGREES) - log_mass
    for k in range(s.tau.shape[1]):
        n, tau = count[k], s.tau[j, k]
        if n == 0:
            continue  # prior and proposal are the same
        more = 0.5 * max(n - 1.0, 0.0)
        total += a * log_beta - math.lgamma(a)
        total += math.lgamma(a + more) - (a + more) * math.log(beta + 0.5 * scatter[k])
        total += (0.5 * n - more) * math.log(tau) - 0.5 * n * LOG_2_PI
        precision = 1.0 + n * tau
        total -= 0.5 * math.log(precision) + 0.5 * n * tau * centre[k] ** 2 / precision
    return float(total)


# --- jumps: `new` enters, `old` leaves, -1 is none ---------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def log_size_ratio(p: Problem, s: Any, new: int, old: int) -> float:
    """Prior of the sizes and choice of the inputs: λ/(k + 1) for a birth, 1 for an exchange."""
    n_inputs, size = s.on.shape[0], int(s.on.sum())
    if old < 0:
        odds = math.log(n_inputs - size) - math.log(size + 1.0)
        return float(p.log_prior[size + 1] - p.log_prior[size] + odds)
    if new < 0:
        odds = math.log(n_inputs - size + 1.0) - math.log(float(size))
        return float(p.log_prior[size - 1] - p.log_prior[size] - odds)
    return 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def data_ratio(p: Problem, s: State, new: int, old: int) -> float:
    """Log ratio of a jump at fixed allocations; the state holds the coefficients of `new`."""
    ratio = log_size_ratio(p, s, new, old)
    if new >= 0:
        ratio += log_weight(p, s, new) - p.power * p.log_p0[new]
    if old >= 0:
        ratio -= log_weight(p, s, old) - p.power * p.log_p0[old]
    return ratio


@njit(cache=True, nogil=True, error_model="numpy")
def prior_ratio(p: Problem, s: State, new: int, old: int, rows: Any) -> float:
    """Log ratio with coefficients from the prior, allocations summed out; `rows` is after it."""
    ratio = log_size_ratio(p, s, new, old)
    log_rows(p, s, rows)
    ratio -= log_likelihood(p.label, s, rows)
    constant = 0.5 * LOG_2_PI * p.z.shape[1]
    if new >= 0:
        add_input(p.z[new], s.mean[new], s.tau[new], p.power, rows)
        ratio -= p.power * (p.log_p0[new] + constant)
    if old >= 0:
        add_input(p.z[old], s.mean[old], s.tau[old], -p.power, rows)
        ratio += p.power * (p.log_p0[old] + constant)
    return ratio + log_likelihood(p.label, s, rows)


@njit(cache=True, nogil=True, error_model="numpy")
def log_likelihood(label: Any, s: State, rows: Any) -> float:
    """Sum over rows of log Σ_d w_d p(x | d), the class summed too where it is not known."""
    anyone = np.zeros(s.w.shape[1])
    for k in range(s.P.shape[0]):
        anyone += s.P[k] * s.w[k]
    total = 0.0
    for n in range(label.shape[0]):
        top = rows[:, n].max()
        weight = anyone if label[n] < 0 else s.w[label[n]]
        value = 0.0
        for k in range(rows.shape[0]):
            value += weight[k] * math.exp(rows[k, n] - top)
        total += top + math.log(value)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def choose(rng: Any, on: Any, wanted: bool) -> int:
    """Choose one input that is in the subset (or is not), uniformly; -1 if there is none."""
    number = int(on.sum()) if wanted else on.shape[0] - int(on.sum())
    place = int(rng.random() * number)
    for j in range(on.shape[0]):
        if on[j] == wanted:
            if place == 0:
                return j
            place -= 1
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def jump(rng: Any, p: Problem, s: State, move: int, from_data: bool, rows: Any) -> bool:
    """Try a birth, a death or an exchange."""
    new = -1 if move == DEATH else choose(rng, s.on, False)
    old = -1 if move == BIRTH else choose(rng, s.on, True)
    if (move != DEATH and new < 0) or (move != BIRTH and old < 0):
        return False
    if new >= 0 and from_data:
        propose(rng, p, s, new)
    elif new >= 0:
        s.beta[new] = fill_prior(rng, p.shape, p.g, p.h[new], p.floor, s.mean[new], s.tau[new])
    if from_data:
        ratio = data_ratio(p, s, new, old)
    else:
        ratio = prior_ratio(p, s, new, old, rows)
    if not math.log(rng.random()) < ratio:
        return False
    if new >= 0:
        s.on[new] = True
    if old >= 0:
        s.on[old] = False
    if not from_data:
        allocate(rng, p.label, s, rows)
    elif new >= 0:
        count, centre, _ = rows_of(p, s, new)
        for k in range(s.tau.shape[1]):
            s.mean[new, k] = draw_mean(rng, count[k], centre[k], s.tau[new, k])
    return True


# --- a chain -----------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def gibbs_sweep(rng: Any, p: Problem, s: State, rows: Any) -> None:
    """Update all but the subset."""
    if s.on.any():
        log_rows(p, s, rows)
        allocate(rng, p.label, s, rows)
        draw_probabilities(rng, s)
    else:
        refresh_empty(rng, p.label, s)
    for j in range(p.z.shape[0]):
        if s.on[j]:
            draw_coefficients(rng, p, s, j)


@njit(cache=True, nogil=True, error_model="numpy")
def rung(s: State, t: int) -> State:
    """View one of the states of a ladder."""
    return State(s.on[t], s.c[t], s.d[t], s.P[t], s.w[t], s.mean[t], s.tau[t], s.beta[t])


@njit(cache=True, nogil=True, error_model="numpy")
def at_power(p: Problem, power: float) -> Problem:
    """Give the problem at another power of the likelihood."""
    return Problem(
        p.z, p.label, p.log_p0, p.log_prior, p.shape, p.g, p.h, p.log_p_beta, p.floor, power
    )


@njit(cache=True, nogil=True, error_model="numpy")
def copy_state(source: State, target: State) -> None:
    """Copy a state."""
    target.on[:], target.c[:], target.d[:] = source.on, source.c, source.d
    target.P[:], target.w[:] = source.P, source.w
    target.mean[:], target.tau[:], target.beta[:] = source.mean, source.tau, source.beta
