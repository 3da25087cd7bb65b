"""The RBF mixture under P(t | x): its log density, the gradient by hand, HMC within a subset.

    π(I, Θ) ∝ p(I) p(Θ | I) Π_n P(t_n | x_n, Θ, I)^s                     over the labelled rows, s = 1

    P(t = k | x) = P_k Σ_d w_kd N_d(x) / Σ_l P_l Σ_d w_ld N_d(x)         Syk00 (1)

The power s is that of a rung of the ladder (`chains.py`). An unlabelled row says nothing
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

from ardvark.inference.mixture.conditional.exponential import exponentials
from ardvark.inference.mixture.kernels import Problem, add_input, draw_rate
from ardvark.inference.running.machine_code import njit

__all__ = ["Metric", "Point", "Work", "density", "draw_rates", "hmc", "log_weights", "make_work"]

DIVERGED = 1000.0  # nats of energy
FAR = 1e-250  # a row's likelihood that must be computed from its own top
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
    near: Any  # exp of rows, from the highest of each row
    by_row: Any  # (4, row): the highest, sums over kernels, room
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
        np.empty(rows), np.empty(rows), np.empty(rows), np.empty(rows), np.empty((4, n_rows)),
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
def weigh(log_w: Any, label: Any, work: Work) -> None:
    """Fill near = exp(rows - top), own = Σ_d w_td near_d, whole = Σ_kd P_k w_kd near_d by row."""
    n_kernels, n_rows = work.rows.shape
    weight = np.exp(log_w)
    top, own, whole = work.by_row[0], work.by_row[1], work.by_row[2]
    top[:] = work.rows[0]
    for e in range(1, n_kernels):
        for n in range(n_rows):
            top[n] = max(top[n], work.rows[e, n])
    own[:], whole[:] = 0.0, 0.0
    for e in range(n_kernels):
        near = work.near[e]
        for n in range(n_rows):
            near[n] = work.rows[e, n] - top[n]
        exponentials(near, work.by_row[3])
        anyone = weight[:, e].sum()
        for n in range(n_rows):
            own[n] += weight[label[n], e] * near[n]
            whole[n] += anyone * near[n]


@njit(cache=True, nogil=True, error_model="numpy")
def log_labels(label: Any, work: Work) -> float:
    """Σ_n log P(t_n | x_n) of work.rows and work.log_w."""
    weigh(work.log_w, label, work)
    top, own, whole = work.by_row[0], work.by_row[1], work.by_row[2]
    total = 0.0
    for n in range(label.shape[0]):
        if own[n] < FAR:  # every kernel of its class is far away: once more from its own top
            joint = work.log_w[label[n]] + work.rows[:, n]
            high = joint.max()
            total += high + math.log(np.exp(joint - high).sum()) - top[n] - math.log(whole[n])
        else:
            total += math.log(own[n] / whole[n])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def label_slopes(label: Any, work: Work) -> None:
    """Fill G and the derivatives by log P_k w_kd, right after `log_labels`."""
    n_kernels, n_rows = work.rows.shape
    weight = np.exp(work.log_w)
    own, whole = work.by_row[1], work.by_row[2]
    per_own, per_whole = work.by_row[0], work.by_row[3]
    for n in range(n_rows):
        per_own[n], per_whole[n] = 1.0 / own[n], 1.0 / whole[n]
    work.by_weight[:] = 0.0
    for e in range(n_kernels):
        near, slope = work.near[e], work.slope[e]
        for n in range(n_rows):
            slope[n] = weight[label[n], e] * near[n] * per_own[n]
    for n in range(n_rows):
        if own[n] < FAR:
            joint = work.log_w[label[n]] + work.rows[:, n]
            share = np.exp(joint - joint.max())
            work.slope[:, n] = share / share.sum()
    for e in range(n_kernels):
        near, slope, seen, anyone = work.near[e], work.slope[e], 0.0, weight[:, e].sum()
        for n in range(n_rows):
            work.by_weight[label[n], e] += slope[n]
        for n in range(n_rows):
            near[n] *= per_whole[n]
            slope[n] -= anyone * near[n]
        for n in range(n_rows):
            seen += near[n]
        for k in range(weight.shape[0]):
            work.by_weight[k, e] -= weight[k, e] * seen


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
    total = p.power * log_labels(p.label, work)
    label_slopes(p.label, work)
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
