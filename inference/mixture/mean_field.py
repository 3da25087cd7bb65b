"""Mean-field VB of the RBF mixture at a given subset, joint target: Syk00 (3) with means for draws.

    q = q(P) q(w) Π_n q(c_n, d_n) Π_jd q(m_jd) q(τ_jd) Π_j q(β_j)

Units are those of `kernels.py`. Every factor is of the family of its full conditional in Syk00 (3):

    q(P), q(w_k)   Dirichlet(1 + counts)
    q(m_jd)        N(μ, 1/λ),     λ = 1 + E[τ] N_d,       μ = E[τ] Σ_n r_nd x_nj / λ
    q(τ_jd)        Gamma(a + N_d/2, E[β_j] + ½ Σ_n r_nd E(x_nj - m_jd)²)
    q(β_j)         Gamma(g + D a, h_j + Σ_d E[τ_jd]) above its floor
    r_nkd          ∝ exp(E log P_k + E log w_kd + Σ_j E log N(x_nj; m_jd, 1/τ_jd)),   k = t_n if known

In the bound E log β cancels, so that no integral is left: D a + g - 1 of it come from the priors of τ and
β, and g' - 1 = g + D a - 1 from the entropy. It is a bound on log p(t, x_I): q sits in one of the D!
orders of the kernels, and where these are apart log D! of the evidence is out of its sight.
"""  # noqa: E501

from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, gammaincc, gammainccinv, gammaln, logsumexp

from ardvark.inference.sites.arrays import Array, Index

__all__ = ["Factors", "MeanField", "ascend", "draw_factors"]

LOG_2_PI = float(np.log(2 * np.pi))
SETTLED = 3  # sweeps in a row that gain next to nothing


class MeanField(NamedTuple):
    """Data and prior in the units of z, of the given inputs."""

    z: Array  # (input, row)
    label: Index  # -1: unlabelled
    n_classes: int
    n_kernels: int
    shape: float
    g: float
    h: Array
    floor: float


class Factors(NamedTuple):
    """The parameters of q, its bound by sweep, and whether it settled."""

    P: Array  # (class,)
    w: Array  # (class, kernel)
    mean: Array  # (input, kernel)
    precision: Array
    a: Array  # of τ, (kernel,): all inputs have the same rows
    b: Array  # (input, kernel)
    rate: Array  # h' of β, (input,)
    bound: Array
    settled: bool


def ascend(
    p: MeanField, rng: np.random.Generator, starts: int, tolerance: float, sweeps: int
) -> Factors:
    """Climb from random allocations, `starts` times; the best bound is kept."""
    ends = [_climb(p, rng, tolerance, sweeps) for _ in range(starts)]
    return max(ends, key=lambda end: float(end.bound[-1]))


def _first(p: MeanField, rng: np.random.Generator) -> Array:
    """Responsibilities (row, class, kernel) by the nearest of D rows, softened."""
    n_rows = p.z.shape[1]
    chosen = rng.choice(n_rows, size=p.n_kernels, replace=n_rows < p.n_kernels)
    gap = ((p.z[:, :, None] - p.z[:, None, chosen]) ** 2).sum(axis=0)
    near = 0.9 * (gap == gap.min(axis=1, keepdims=True)) + 0.1 * rng.random(gap.shape)
    r = np.repeat(near[:, None, :], p.n_classes, axis=1)
    return _kept(p, r)


def _kept(p: MeanField, r: Array) -> Array:
    """Only the class of a labelled row, and sums of 1."""
    allowed = (p.label[:, None] < 0) | (p.label[:, None] == np.arange(p.n_classes))
    r = r * allowed[:, :, None]
    return np.asarray(r / r.sum(axis=(1, 2), keepdims=True))


def _climb(p: MeanField, rng: np.random.Generator, tolerance: float, sweeps: int) -> Factors:
    r, tau = _first(p, rng), np.ones((len(p.z), p.n_kernels))
    beta, calm = np.maximum(p.g / p.h, 2 * p.floor), 0
    bound: list[float] = []
    for _ in range(sweeps):
        counts = r.sum(axis=0)  # (class, kernel)
        of_kernel, by_row = counts.sum(axis=0), r.sum(axis=1)
        P, w = 1 + counts.sum(axis=1), 1 + counts
        precision = 1 + tau * of_kernel
        mean = tau * (p.z @ by_row) / precision
        square = (p.z[:, :, None] - mean[:, None, :]) ** 2 + 1 / precision[:, None, :]
        a = p.shape + of_kernel / 2
        b = beta[:, None] + 0.5 * np.einsum("nd,jnd->jd", by_row, square)
        tau = a / b
        rate = p.h + tau.sum(axis=1)
        beta = _mean_above(p.g + p.n_kernels * p.shape, rate, p.floor)
        log_r = _log_responsibilities(p, P, w, a, b, square)
        top = logsumexp(log_r, axis=(1, 2), keepdims=True)
        r = np.exp(log_r - top)
        value = float(top.sum()) + _prior_terms(p, P, w, mean, precision, a, b, rate, beta)
        calm = calm + 1 if bound and value - bound[-1] < tolerance * abs(value) else 0
        bound.append(value)
        if calm == SETTLED:
            break
    return Factors(P, w, mean, precision, a, b, rate, np.array(bound), calm == SETTLED)


def _log_responsibilities(
    p: MeanField, P: Array, w: Array, a: Array, b: Array, square: Array
) -> Array:
    log_P = digamma(P) - digamma(P.sum())
    log_w = digamma(w) - digamma(w.sum(axis=1, keepdims=True))
    log_tau = digamma(a) - np.log(b)  # (input, kernel)
    normal = 0.5 * (log_tau - LOG_2_PI)[:, None, :] - 0.5 * (a / b)[:, None, :] * square
    log_r = log_P[:, None] + log_w + normal.sum(axis=0)[:, None, :]
    allowed = (p.label[:, None] < 0) | (p.label[:, None] == np.arange(p.n_classes))
    return np.asarray(np.where(allowed[:, :, None], log_r, -np.inf))


def _prior_terms(
    p: MeanField, P: Array, w: Array, mean: Array, precision: Array, a: Array, b: Array,
    rate: Array, beta: Array,
) -> float:  # fmt: skip
    """What the bound has beside the rows: minus the divergences from the priors."""
    total = -_dirichlet_divergence(P) - sum(_dirichlet_divergence(row) for row in w)
    total -= 0.5 * float(np.sum(1 / precision + mean**2 - 1 + np.log(precision)))
    tau, log_tau = a / b, digamma(a) - np.log(b)
    entropy = -(a * np.log(b) - gammaln(a) + (a - 1) * log_tau - a)
    given = -gammaln(p.shape) + (p.shape - 1) * log_tau - beta[:, None] * tau  # E log β below
    total += float(np.sum(given + entropy))
    shape = p.g + p.n_kernels * p.shape
    prior = p.g * np.log(p.h) - gammaln(p.g) - np.log(gammaincc(p.g, p.h * p.floor)) - p.h * beta
    own = shape * np.log(rate) - gammaln(shape) - np.log(gammaincc(shape, rate * p.floor))
    return total + float(np.sum(prior - own + rate * beta))


def _dirichlet_divergence(counts: Array) -> float:
    """KL of Dirichlet(counts) from Dirichlet(1)."""
    log_p = digamma(counts) - digamma(counts.sum())
    own = gammaln(counts.sum()) - gammaln(counts).sum() + ((counts - 1) * log_p).sum()
    return float(own - gammaln(len(counts)))


def _mean_above(shape: float, rate: Array, floor: float) -> Array:
    """Mean of a Gamma above its floor."""
    share = gammaincc(shape + 1, rate * floor) / gammaincc(shape, rate * floor)
    return np.asarray(shape / rate * share)


def draw_factors(p: MeanField, q: Factors, draws: int, rng: np.random.Generator) -> dict[str, Any]:
    """Independent draws of q in the units of z."""
    shape = p.g + p.n_kernels * p.shape
    above = gammaincc(shape, q.rate * p.floor)
    return {
        "P": rng.dirichlet(q.P, draws),
        "w": np.stack([rng.dirichlet(row, draws) for row in q.w], axis=1),
        "mean": q.mean + rng.standard_normal((draws, *q.mean.shape)) / np.sqrt(q.precision),
        "tau": rng.standard_gamma(q.a, (draws, *q.b.shape)) / q.b,
        "beta": gammainccinv(shape, rng.random((draws, len(q.rate))) * above) / q.rate,
    }
