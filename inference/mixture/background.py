"""Evidence of the background: log p0(z_j), one number for each input outside the subset.

One kernel: β and the mean are integrated out, which leaves one integral over log τ,

    p0(z) = ∫ dτ p(τ) N(z; 0, 1/τ + 11'),
    p(τ) = h^g Γ(g+a) / (Γ(g) Γ(a)) τ^(a-1) (h + τ)^-(g+a) Q(g+a, (h+τ) b) / Q(g, h b)

with b the smallest β and Q the upper incomplete gamma ratio. It is done by the trapezium rule,
whose error falls exponentially for such a bell.

A mixture of D kernels: bridge sampling (`bridge/bridge.py`) between the posterior of
Θ = (v, β, τ, m), allocations summed out, and a density made of Gibbs draws of the allocations,

    q(Θ) = 1/M Σ_i q(β | d_i) 1/D! Σ_π Π_e q(v_e, τ_e, m_e | component π(e) of d_i, β)

whose factors are those of a birth (`kernels.py`) and a Dirichlet. The sum over all D!
names of the kernels is the permanent of a D x D matrix, 2^D D steps; with it, it does not matter
whether labels have switched (Frühwirth-Schnatter 2004). Several independent runs, each from its
own start, give the evidence as the mean of theirs and its error by their spread. A run that is more
than MISSED below the best has not found the main mode, of which it says nothing, and is left out.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincc, gammaln, logsumexp

from ardvark.inference.bridge.bridge import meet
from ardvark.inference.mixture.kernels import (
    LOG_2_PI,
    MOST_TRIES,
    T_CONSTANT,
    draw_mean,
    draw_rate,
    fill_dirichlet,
    pick,
    positive,
    rate_proposal,
    statistics,
)
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import STOP, Watch, go_on, in_threads
from ardvark.inference.sites.arrays import Array

__all__ = ["BackgroundPrior", "Evidence", "gaussian_evidence", "mixture_evidence"]

RUNS = 4
MISSED = 3.0  # nats
NEGLIGIBLE = 40.0  # nats below the largest term


class Evidence(NamedTuple):
    """Log evidence by input, and its Monte Carlo error."""

    value: Array
    error: Array


class BackgroundPrior(NamedTuple):
    """Prior of one input in the units of z."""

    a: float
    g: float
    h: float
    floor: float
    log_p_beta: float  # log h^g / Γ(g) / P(β > floor)


class Components(NamedTuple):
    """Gibbs draws of the allocations by what a proposal needs of them."""

    count: Any  # (draw, kernel)
    centre: Any
    scatter: Any
    rate: Any  # (draw, 3): place, scale, log mass of the Student-t of log β


def log_rate_constant(g: float, h: Array, floor: float) -> Array:
    """Log normaliser of the prior of β, by input."""
    return np.asarray(g * np.log(h) - gammaln(g) - np.log(gammaincc(g, h * floor)))


def gaussian_evidence(z: Array, a: float, g: float, h: Array, floor: float) -> Evidence:
    """One Gaussian as background; z is (input, row)."""
    n = z.shape[1]
    centre = z.mean(axis=1, keepdims=True)
    scatter = np.square(z - centre).sum(axis=1, keepdims=True)
    u = np.linspace(-60.0, 60.0, 24001)  # log τ; z has a range of 1
    tau = np.exp(u)
    log_value = (
        (log_rate_constant(g, h, floor) + gammaln(g + a) - gammaln(a))[:, None]
        + a * u
        - (g + a) * np.log(h[:, None] + tau)
        + np.log(gammaincc(g + a, (h[:, None] + tau) * floor) + 1e-300)
        + 0.5 * n * (u - LOG_2_PI)
        - 0.5 * tau * scatter
        - 0.5 * np.log1p(n * tau)
        - 0.5 * n * tau / (1 + n * tau) * centre**2
    )
    value = logsumexp(log_value, axis=1) + math.log(u[1] - u[0])
    return Evidence(value, np.zeros(len(z)))


def mixture_evidence(
    z: Array,
    n_kernels: int,
    a: float,
    g: float,
    h: Array,
    floor: float,
    seed: int,
    draws: int = 400,
) -> Evidence:
    """A mixture of `n_kernels` as background, by RUNS bridges of `draws` draws on either side."""
    if n_kernels == 1:
        return gaussian_evidence(z, a, g, h, floor)
    constant = log_rate_constant(g, h, floor)
    seeds = np.random.SeedSequence(seed).spawn(len(z))

    def one(j: int, watch: Watch) -> tuple[float, float]:
        rng = np.random.default_rng(seeds[j])
        p = BackgroundPrior(a, g, h[j], floor, constant[j])
        logs = np.array([bridge(rng, z[j], n_kernels, p, draws, watch) for _ in range(RUNS)])
        go_on(watch)
        logs = logs[logs > logs.max() - MISSED]
        error = logs.std(ddof=1) / math.sqrt(len(logs)) if len(logs) > 1 else MISSED
        return logsumexp(logs) - math.log(len(logs)), error

    found = np.array(in_threads(one, len(z)))
    return Evidence(found[:, 0], found[:, 1])


@njit(cache=True, nogil=True, error_model="numpy")
def bridge(rng: Any, z: Any, n_kernels: int, p: BackgroundPrior, draws: int, watch: Any) -> float:
    """One run of bridge sampling: its log evidence."""
    d = slices(rng, z, n_kernels)
    v, tau, mean = np.empty(n_kernels), np.ones(n_kernels), np.zeros(n_kernels)
    beta = gibbs(rng, z, p, 200, d, v, tau, mean, -1.0)
    parts = components(draws // 4, n_kernels)
    for i in range(parts.rate.shape[0]):
        if watch[STOP]:
            return np.nan
        beta = gibbs(rng, z, p, 5, d, v, tau, mean, beta)
        count, centre, scatter = statistics(z, d, n_kernels)
        parts.count[i], parts.centre[i], parts.scatter[i] = count, centre, scatter
        parts.rate[i] = rate_proposal(count, scatter, p.a, p.g, p.h, p.floor)
    posterior, proposal = np.empty(draws), np.empty(draws)  # log p(z, Θ) - log q(Θ)
    for i in range(draws):
        if watch[STOP]:
            return np.nan
        beta = gibbs(rng, z, p, 2, d, v, tau, mean, beta)
        posterior[i] = log_joint(z, p, v, beta, tau, mean) - log_mixture(
            p, parts, v, beta, tau, mean
        )
    for i in range(draws):
        if watch[STOP]:
            return np.nan
        beta = draw_from(rng, p, parts, int(rng.random() * parts.rate.shape[0]), v, tau, mean)
        proposal[i] = log_joint(z, p, v, beta, tau, mean) - log_mixture(
            p, parts, v, beta, tau, mean
        )
    return meet(posterior, proposal)


@njit(cache=True, nogil=True, error_model="numpy")
def components(number: int, n_kernels: int) -> Components:
    """Room for the components of the proposal."""
    shape = (number, n_kernels)
    return Components(np.empty(shape), np.empty(shape), np.empty(shape), np.empty((number, 3)))


@njit(cache=True, nogil=True, error_model="numpy")
def slices(rng: Any, z: Any, n_kernels: int) -> Any:
    """Start: neighbouring values share a kernel, cut at random places."""
    weight = np.empty(n_kernels)
    fill_dirichlet(rng, np.full(n_kernels, 3.0), weight)
    edge = np.cumsum(weight) * z.shape[0]
    d = np.empty(z.shape[0], np.int64)
    order = np.argsort(z)
    for rank in range(z.shape[0]):
        d[order[rank]] = min(np.searchsorted(edge, rank + 0.5), n_kernels - 1)
    return d


@njit(cache=True, nogil=True, error_model="numpy")
def gibbs(
    rng: Any, z: Any, p: BackgroundPrior, sweeps: int, d: Any, v: Any, tau: Any, mean: Any,
    beta: float,
) -> float:  # fmt: skip
    """Gibbs sweeps of one input's mixture, in place; β is given back. β < 0: a start from d."""
    n_kernels = v.shape[0]
    weight = np.empty(n_kernels)
    if beta < 0:
        count, _, scatter = statistics(z, d, n_kernels)
        beta = math.exp(rate_proposal(count, scatter, p.a, p.g, p.h, p.floor)[0]) * 1.001
        for k in range(n_kernels):
            tau[k] = (p.a + 0.5 * count[k]) / (beta + 0.5 * scatter[k])
    for _ in range(sweeps):
        count, centre, scatter = statistics(z, d, n_kernels)
        fill_dirichlet(rng, count + 1.0, v)
        total = 0.0
        for k in range(n_kernels):
            n = count[k]
            mean[k] = draw_mean(rng, n, centre[k], tau[k])
            rate = beta + 0.5 * (scatter[k] + n * (centre[k] - mean[k]) ** 2)
            tau[k] = positive(rng.standard_gamma(p.a + 0.5 * n) / rate)
            total += tau[k]
        beta = draw_rate(rng, p.g + p.a * n_kernels, p.h + total, p.floor)
        for n in range(z.shape[0]):
            for k in range(n_kernels):
                weight[k] = 0.5 * math.log(tau[k]) - 0.5 * tau[k] * (z[n] - mean[k]) ** 2
            top = weight.max()
            for k in range(n_kernels):
                weight[k] = v[k] * math.exp(weight[k] - top)
            d[n] = pick(rng, weight)
    return beta


@njit(cache=True, nogil=True, error_model="numpy")
def draw_from(
    rng: Any, p: BackgroundPrior, parts: Components, i: int, v: Any, tau: Any, mean: Any
) -> float:
    """Draw Θ from component i of the proposal, in place; β is given back."""
    fill_dirichlet(rng, parts.count[i] + 1.0, v)
    u, scale, _ = parts.rate[i]
    beta = 0.0
    for _ in range(MOST_TRIES):
        if not beta <= p.floor:
            break
        t = rng.standard_normal() / math.sqrt(0.5 * rng.standard_gamma(2.0))
        beta = math.exp(u + scale * t)
    for k in range(v.shape[0]):
        power = p.a + 0.5 * max(parts.count[i, k] - 1.0, 0.0)
        tau[k] = positive(rng.standard_gamma(power) / (beta + 0.5 * parts.scatter[i, k]))
        mean[k] = draw_mean(rng, parts.count[i, k], parts.centre[i, k], tau[k])
    return beta


@njit(cache=True, nogil=True, error_model="numpy")
def log_joint(z: Any, p: BackgroundPrior, v: Any, beta: float, tau: Any, mean: Any) -> float:
    """Log p(z, v, log β, τ, m), allocations summed out."""
    n_kernels = v.shape[0]
    total = math.lgamma(float(n_kernels)) + p.log_p_beta + p.g * math.log(beta) - p.h * beta
    weight = np.empty(n_kernels)
    for k in range(n_kernels):
        total += p.a * math.log(beta) - math.lgamma(p.a) + (p.a - 1.0) * math.log(tau[k])
        total -= beta * tau[k] + 0.5 * LOG_2_PI + 0.5 * mean[k] ** 2
    for n in range(z.shape[0]):
        for k in range(n_kernels):
            weight[k] = 0.5 * math.log(tau[k]) - 0.5 * tau[k] * (z[n] - mean[k]) ** 2
        top = weight.max()
        value = 0.0
        for k in range(n_kernels):
            value += v[k] * math.exp(weight[k] - top)
        total += top + math.log(value) - 0.5 * LOG_2_PI
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def log_mixture(
    p: BackgroundPrior, parts: Components, v: Any, beta: float, tau: Any, mean: Any
) -> float:
    """Log q(v, log β, τ, m), the names of the kernels summed out."""
    number, n_kernels = parts.count.shape
    terms = np.full(number, -np.inf)
    entry, value = np.empty((n_kernels, n_kernels)), np.empty(1 << n_kernels)
    log_v, log_tau, largest = np.log(v), np.log(tau), -np.inf
    for i in range(number):
        u, scale, log_mass = parts.rate[i]
        t = (math.log(beta) - u) / scale
        total = T_CONSTANT - math.log(scale) - 2.5 * math.log1p(t * t / 4.0) - log_mass
        total += math.lgamma(parts.count[i].sum() + n_kernels) - math.lgamma(n_kernels + 1.0)
        for e in range(n_kernels):
            n, centre = parts.count[i, e], parts.centre[i, e]
            power, rate = p.a + 0.5 * max(n - 1.0, 0.0), beta + 0.5 * parts.scatter[i, e]
            total += power * math.log(rate) - math.lgamma(power) - math.lgamma(n + 1.0)
            for k in range(n_kernels):
                precision = 1.0 + n * tau[k]
                entry[k, e] = (
                    n * log_v[k]
                    + (power - 1.0) * log_tau[k]
                    - rate * tau[k]
                    + 0.5 * (math.log(precision) - LOG_2_PI)
                    - 0.5 * precision * (mean[k] - n * tau[k] * centre / precision) ** 2
                )
        bound = total
        for k in range(n_kernels):
            bound += entry[k].max() + math.log(float(n_kernels))
        if bound > largest - NEGLIGIBLE:
            terms[i] = total + log_permanent(entry, value)
            largest = max(largest, terms[i])
    return largest + math.log(np.exp(terms - largest).mean())


@njit(cache=True, nogil=True, error_model="numpy")
def log_permanent(entry: Any, value: Any) -> float:
    """Log of the permanent of exp(entry): rows are given, one by one, to sets of columns."""
    size, total = entry.shape[0], 0.0
    for row in range(size):
        top = entry[row].max()
        total += top
        for e in range(size):
            entry[row, e] = math.exp(entry[row, e] - top)
    value[:] = 0.0
    value[0] = 1.0
    for taken in range(1, 1 << size):  # as many rows as columns are taken: the last is its number
        row = -1
        for e in range(size):
            row += taken >> e & 1
        for e in range(size):
            if taken >> e & 1:
                value[taken] += value[taken ^ (1 << e)] * entry[row, e]
    return total + math.log(value[-1] + 1e-300)
