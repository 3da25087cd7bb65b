"""The RBF mixture under P(t | x): its log density, the gradient by hand, HMC within a subset.

    π(I, Θ) ∝ p(I) p(Θ | I) Π_n P(t_n | x_n, Θ, I)^s                     over the labelled rows, s = 1

    P(t = k | x) = P_k Σ_d w_kd N_d(x) / Σ_l P_l Σ_d w_ld N_d(x)         Syk00 (1)

The power s is that of a rung of the ladder (`conditional_chains.py`). An unlabelled row says nothing
of t given x: it does not enter. Units and names are those of `kernels.py`. Coordinates of HMC:

    A_k, B_kd    P and w_k are the softmax of A and of B_k, and e^A, e^B are Gamma(1, 1): so P and w_k
                 are Dirichlet(1), without a bound and without a corner
    m_jd         Normal(0, 1)
    u_jd         log τ_jd: a u - β_j e^u, the Jacobian τ included

β_j is held and drawn from its conditional, a Gamma above its floor (`draw_rates`). With
E_nd = N_d(x_n) and f_n = log P(t_n | x_n),

    G_nd = ∂f_n / ∂log N_d(x_n) = P_t w_td E_nd / Σ_e P_t w_te E_ne - Σ_k P_k w_kd E_nd / Σ_ke P_k w_ke E_ne
    ∂f/∂m_jd = Σ_n G_nd τ_jd (x_nj - m_jd),     ∂f/∂u_jd = Σ_n G_nd (1 - τ_jd (x_nj - m_jd)²) / 2

which takes O(N D (|I| + K)) a step. The kernels are exchangeable, so a chain may keep to one of the
D! orders: neither I nor P(t | x) depends on it.
"""  # noqa: E501

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ardvark.inference.mixture.kernels import Problem, add_input, draw_rate

__all__ = ["Metric", "Point", "Work", "density", "draw_rates", "hmc", "log_weights", "make_work"]

DIVERGED = 1000.0  # nats of energy
SMALL_STEPS, SMALL = 0.1, 0.2  # share of the trajectories with small steps, and how small


class Point(NamedTuple):
    """Where a chain is; coefficients of inputs outside the subset mean nothing."""

    on: Any  # inputs of the subset
    A: Any  # (class,)
    B: Any  # (class, kernel)
    mean: Any  # (input, kernel)
    tau: Any
    beta: Any  # (input,)


class Metric(NamedTuple):
    """Step and masses of HMC, and what tuning has gathered of them."""

    step: Any  # (3,): the step; while tuning, sum and number of its latest logs
    mass: Any  # (input + 1, 2): of m and u by input, of A and B at the end
    total: Any  # sum of squared gradients, like `mass`
    seen: Any  # (input + 1,): gradients in it


class Work(NamedTuple):
    """Room for one chain."""

    rows: Any  # (kernel, row): log density of each row under each kernel
    slope: Any  # G, (kernel, row)
    other: Any  # (kernel, row)
    log_w: Any  # log P_k w_kd, (class, kernel)
    by_weight: Any  # derivative by log P_k w_kd
    q: Any  # position, momentum, gradient: as many as there can be
    p: Any
    grad: Any


def make_work(n_classes: int, n_kernels: int, n_inputs: int, n_rows: int) -> Work:
    """Make room."""
    rows = (n_kernels, n_rows)
    most = n_classes * (1 + n_kernels) + 2 * n_inputs * n_kernels
    return Work(
        np.empty(rows), np.empty(rows), np.empty(rows),
        np.empty((n_classes, n_kernels)), np.empty((n_classes, n_kernels)),
        np.empty(most), np.empty(most), np.empty(most),
    )  # fmt: skip


# --- the labels given the inputs ---------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def log_weights(s: Point, out: Any) -> None:
    """Fill log P_k w_kd."""
    top = s.A.max()
    total = top + math.log(np.exp(s.A - top).sum())
    for k in range(s.B.shape[0]):
        high = s.B[k].max()
        own = high + math.log(np.exp(s.B[k] - high).sum())
        for e in range(s.B.shape[1]):
            out[k, e] = s.A[k] - total + s.B[k, e] - own


@njit(cache=True, nogil=True, error_model="numpy")
def fill_rows(p: Problem, s: Point, without: int, rows: Any) -> None:
    """Log density of each row under each kernel, one input of the subset left out (-1: none)."""
    rows[:] = 0.0
    for j in range(p.z.shape[0]):
        if s.on[j] and j != without:
            add_input(p.z[j], s.mean[j], s.tau[j], 1.0, rows)


@njit(cache=True, nogil=True, error_model="numpy")
def log_labels(label: Any, log_w: Any, rows: Any, slope: Any, by_weight: Any) -> float:
    """Σ_n log P(t_n | x_n); fills G and the derivatives by log P_k w_kd."""
    n_kernels, n_rows = rows.shape
    weight = np.exp(log_w)
    anyone, seen = np.zeros(n_kernels), np.zeros(n_kernels)
    for k in range(weight.shape[0]):
        anyone += weight[k]
    by_weight[:] = 0.0
    near = np.empty(n_kernels)
    total = 0.0
    for n in range(n_rows):
        k, top = label[n], rows[0, n]
        for e in range(1, n_kernels):
            top = max(top, rows[e, n])
        own, whole = 0.0, 0.0
        for e in range(n_kernels):
            near[e] = math.exp(rows[e, n] - top)
            own += weight[k, e] * near[e]
            whole += anyone[e] * near[e]
        if own < 1e-250:  # every kernel of its class is far away: once more from its own top
            total += far_row(log_w[k], rows[:, n], top, near, anyone, slope[:, n], by_weight[k])
        else:
            total += math.log(own / whole)
            for e in range(n_kernels):
                share = weight[k, e] * near[e] / own
                by_weight[k, e] += share
                slope[e, n] = share - anyone[e] * near[e] / whole
        for e in range(n_kernels):
            seen[e] += near[e] / whole
    for k in range(weight.shape[0]):
        by_weight[k] -= weight[k] * seen
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def far_row(
    log_w: Any, row: Any, top: float, near: Any, anyone: Any, slope: Any, by_weight: Any
) -> float:
    """Give a row's log P(t | x) where it would underflow."""
    joint = log_w + row
    high = joint.max()
    own = np.exp(joint - high)
    own_sum, whole = own.sum(), (anyone * near).sum()
    for e in range(row.shape[0]):
        by_weight[e] += own[e] / own_sum
        slope[e] = own[e] / own_sum - anyone[e] * near[e] / whole
    return float(high + math.log(own_sum) - top - math.log(whole))


# --- the density on the coordinates of HMC -----------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def pack(s: Point, q: Any) -> int:
    """Write the coordinates of a point behind each other; give their number."""
    n_classes, n_kernels = s.B.shape
    at = n_classes
    q[:at] = s.A
    for k in range(n_classes):
        q[at : at + n_kernels] = s.B[k]
        at += n_kernels
    for j in range(s.on.shape[0]):
        if s.on[j]:
            q[at : at + n_kernels] = s.mean[j]
            q[at + n_kernels : at + 2 * n_kernels] = np.log(s.tau[j])
            at += 2 * n_kernels
    return int(at)


@njit(cache=True, nogil=True, error_model="numpy")
def unpack(q: Any, s: Point) -> None:
    """Write coordinates into a point; subset and rates stay as they are."""
    n_classes, n_kernels = s.B.shape
    at = n_classes
    s.A[:] = q[:at]
    for k in range(n_classes):
        s.B[k] = q[at : at + n_kernels]
        at += n_kernels
    for j in range(s.on.shape[0]):
        if s.on[j]:
            s.mean[j] = q[at : at + n_kernels]
            s.tau[j] = np.exp(q[at + n_kernels : at + 2 * n_kernels])
            at += 2 * n_kernels


@njit(cache=True, nogil=True, error_model="numpy")
def density(p: Problem, s: Point, q: Any, grad: Any, work: Work) -> float:
    """Log density at coordinates q, up to a constant of the subset; fills s, rows and gradient."""
    unpack(q, s)
    n_classes, n_kernels = s.B.shape
    log_weights(s, work.log_w)
    fill_rows(p, s, -1, work.rows)
    total = p.power * log_labels(p.label, work.log_w, work.rows, work.slope, work.by_weight)
    at = n_classes
    for k in range(n_classes):
        whole = work.by_weight[k].sum()
        share = np.exp(s.B[k] - s.B[k].max())
        share /= share.sum()
        grad[k] = p.power * whole + 1.0 - math.exp(s.A[k])  # Σ_k whole is 0
        total += s.A[k] - math.exp(s.A[k])
        for e in range(n_kernels):
            by_label = p.power * (work.by_weight[k, e] - share[e] * whole)
            grad[at] = by_label + 1.0 - math.exp(s.B[k, e])
            total += s.B[k, e] - math.exp(s.B[k, e])
            at += 1
    for j in range(s.on.shape[0]):
        if s.on[j]:
            slopes(p, s, j, work.slope, grad[at : at + 2 * n_kernels])
            for e in range(n_kernels):
                rate = s.beta[j] * s.tau[j, e]
                total += p.shape * q[at + n_kernels + e] - rate - 0.5 * s.mean[j, e] ** 2
                grad[at + e] -= s.mean[j, e]
                grad[at + n_kernels + e] += p.shape - rate
            at += 2 * n_kernels
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def slopes(p: Problem, s: Point, j: int, slope: Any, out: Any) -> None:
    """Derivatives of the labels by m_j and u_j."""
    n_kernels = slope.shape[0]
    x = p.z[j]
    for e in range(n_kernels):
        none, first, second, middle = 0.0, 0.0, 0.0, s.mean[j, e]
        for n in range(x.shape[0]):
            gap = x[n] - middle
            none += slope[e, n]
            first += slope[e, n] * gap
            second += slope[e, n] * gap * gap
        out[e] = p.power * s.tau[j, e] * first
        out[n_kernels + e] = p.power * 0.5 * (none - s.tau[j, e] * second)


# --- within a subset ---------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def draw_rates(rng: Any, p: Problem, s: Point) -> None:
    """Draw β of every input of the subset from its conditional, Syk00 (3)."""
    shape = p.g + p.shape * s.tau.shape[1]
    for j in range(s.on.shape[0]):
        if s.on[j]:
            s.beta[j] = draw_rate(rng, shape, p.h[j] + s.tau[j].sum(), p.floor)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_mass(s: Point, metric: Metric, out: Any) -> None:
    """Mass of each coordinate."""
    n_inputs, n_kernels = s.mean.shape
    at = s.B.shape[0]
    out[:at] = metric.mass[n_inputs, 0]
    out[at : at + s.B.size] = metric.mass[n_inputs, 1]
    at += s.B.size
    for j in range(n_inputs):
        if s.on[j]:
            out[at : at + n_kernels] = metric.mass[j, 0]
            out[at + n_kernels : at + 2 * n_kernels] = metric.mass[j, 1]
            at += 2 * n_kernels


@njit(cache=True, nogil=True, error_model="numpy")
def gather(s: Point, metric: Metric, grad: Any) -> None:
    """Add the squared gradient at a point to what the masses will be made of."""
    n_inputs, n_kernels = s.mean.shape
    at = s.B.shape[0]
    metric.total[n_inputs, 0] += (grad[:at] ** 2).mean()
    metric.total[n_inputs, 1] += (grad[at : at + s.B.size] ** 2).mean()
    metric.seen[n_inputs] += 1.0
    at += s.B.size
    for j in range(n_inputs):
        if s.on[j]:
            metric.total[j, 0] += (grad[at : at + n_kernels] ** 2).mean()
            metric.total[j, 1] += (grad[at + n_kernels : at + 2 * n_kernels] ** 2).mean()
            metric.seen[j] += 1.0
            at += 2 * n_kernels


@njit(cache=True, nogil=True, error_model="numpy")
def hmc(rng: Any, p: Problem, s: Point, metric: Metric, leapfrogs: int, work: Work) -> float:
    """One trajectory of all coefficients but β; its chance of acceptance, -1 if it diverged."""
    number = pack(s, work.q)
    q, momentum, grad = work.q[:number], work.p[:number], work.grad[:number]
    start, mass = q.copy(), np.empty(number)
    fill_mass(s, metric, mass)
    step = metric.step[0] * (0.6 + 0.6 * rng.random()) * number**-0.25
    if rng.random() < SMALL_STEPS:
        step *= SMALL  # where the density is steeper than its masses say
    for i in range(number):
        momentum[i] = rng.standard_normal() * math.sqrt(mass[i])
    before = density(p, s, q, grad, work) - 0.5 * (momentum**2 / mass).sum()
    after = before
    for _ in range(1 + int(rng.random() * (2 * leapfrogs - 1))):
        momentum += 0.5 * step * grad
        q += step * momentum / mass
        value = density(p, s, q, grad, work)
        momentum += 0.5 * step * grad
        after = value - 0.5 * (momentum**2 / mass).sum()
        if not after > before - DIVERGED:
            break
    rate = math.exp(min(0.0, after - before)) if after > before - DIVERGED else -1.0
    if not rng.random() < rate:
        unpack(start, s)
    return rate
