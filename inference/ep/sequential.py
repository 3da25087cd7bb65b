"""Sequential EP in machine code: one site after the other, each followed by a rank-one update.

For sites of known families (`known_sites/kernels.py`); their cost is a rank-one update, plus some
thirty evaluations of a site that has no closed form. Notation for one row: (mean, variance) of eta
under q, site exp(-tau eta^2 / 2 + nu eta), cavity N(mu, lambda), and z, h, c of the truncated
normal of a probit Phi(slope eta + shift), here with slope 1 and shift 0.

| Qi, Minka, Picard & Ghahramani 2004 | code                                                    |
|-------------------------------------|---------------------------------------------------------|
| (4) cavity                           | lambda = v / (1 - tau v)                                |
| (5) cavity                           | mu = mean - lambda (nu - tau mean)                      |
| (6), (7), (8) with the *new* mean    | `_probit_site`: 1 / tau = (1 + lambda (1 - c)) / c > 1  |
| (9)                                  | `_probit_site`: nu = tau mu + (1 + lambda tau) rho      |
| (8), (9) of any other family         | `new_site`                                              |
| (6) the update of V_w and m_w        | `sweep_weights`, `sweep_functions`                    |

The prior is whitened (X = A C, K = C C'), so the weights' kernel starts from the unit matrix. Every
few sweeps and before anything is returned q is made afresh from the sites, by Cholesky.
"""

from math import isfinite, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.known_sites.kernels import (
    BASE_MEAN,
    BASE_PRECISION,
    BETA,
    DOUBLE_EXPONENTIAL,
    GAUSSIAN,
    PROBIT,
    STEP,
    STUDENT,
    row_of,
    site_derivatives,
    truncation,
)
from ardvark.inference.known_sites.known import KnownSites
from ardvark.inference.known_sites.moments import tilted_site
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import STOP, Watch, aside, unwatched
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.posterior import Posterior

__all__ = [
    "KNOWN",
    "LONG",
    "SMALL",
    "Rows",
    "cost_of_sweep",
    "fresh_functions",
    "fresh_weights",
    "inverse_factor",
    "run_weights",
    "sequential",
    "sweep_functions",
    "sweep_weights",
]

REFRESH = 6  # sweeps between two fresh factorisations
LONG = 1e8  # operations of one sweep, about a hundredth of a second
NODES_COST = 1e4  # of the moments of one site, in the same unit
MOST_PRECISION = 1e30  # only steps that contradict each other ask for more
KNOWN = 1e-9  # a site that changes a small variance by less leaves eta as good as known
SMALL = 1e-6  # variance above which matched moments do not cancel even then
# A site can be updated; its cavity is no distribution; its moments are not finite.
FINE, NEGATIVE, IMPROPER = 0, 1, 2
# No flag that would let the compiler forget NaN or infinity.
FAST = {"contract", "reassoc", "nsz", "arcp"}


class Rows(NamedTuple):
    """The end of a search: the sites, and what is known of each row."""

    sweeps: int
    change: float  # of the sites, relative, in one further full update
    negative_cavities: int  # met on the way
    skipped: int  # updates left out: those, and tilted moments that are not finite
    unresolved: int  # rows like that at the end
    tau: Array
    nu: Array
    cavity_mean: Array
    cavity_variance: Array
    log_z: Array
    posterior: Posterior | None = None


@njit(cache=True, error_model="numpy")
def _probit_site(noise, slope, shift, mu, lam):  # type: ignore[no-untyped-def]
    """Natural parameters that match Phi(u) N(mu, lam), u = slope eta + shift, Qi04 (6) to (9)."""
    centre, spread = slope * mu + shift, slope * slope * lam  # of u
    scale = sqrt(noise + spread)
    h, c, slack = truncation(centre / scale)  # Qi04 (7)
    tau = c / (noise + spread * slack)  # Qi04 (8), no cancellation
    nu = tau * centre + (1.0 + spread * tau) * h / scale  # Qi04 (9) times tau
    return slope * slope * tau, slope * (nu - tau * shift)


@njit(cache=True, error_model="numpy")
def new_site(code, row, mu, lam):  # type: ignore[no-untyped-def]
    """Natural parameters of the site that matches the tilted moments."""
    b = row[BASE_PRECISION]
    if code == GAUSSIAN:
        return row[1] + b, row[1] * row[0] + b * row[BASE_MEAN]
    if (code == PROBIT or code == STEP) and b == 0.0:
        noise, shift = (1.0, row[1]) if code == PROBIT else (0.0, 0.0)
        tau, nu = _probit_site(noise, row[0], shift, mu, lam)
        return (np.nan, np.nan) if tau > MOST_PRECISION else (tau, nu)
    _, mean, variance = tilted_site(code, row, mu, lam)
    if lam < SMALL and abs(variance - lam) <= KNOWN * lam and code != DOUBLE_EXPONENTIAL:
        first, second, _ = site_derivatives(code, row, mu)
        return -second, first - second * mu  # the limit of what follows, which would cancel
    tau = 1.0 / variance - 1.0 / lam  # Qi04 (8)
    if b == 0.0 and code != STUDENT and code != BETA:
        tau = max(tau, 0.0)  # of a log-concave site; less is rounding
    return tau, mean / variance - mu / lam  # Qi04 (9) times tau


@njit(cache=True, error_model="numpy")
def _moved(new_tau, new_nu, tau, nu, variance):  # type: ignore[no-untyped-def]
    """Change of a site, relative to itself or to what q knows without it."""
    first = abs(new_tau - tau) / (abs(new_tau) + 1.0 / variance)
    second = abs(new_nu - nu) / (abs(new_nu) + 1.0 / sqrt(variance))
    return max(first, second)


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _change(code, row, tau, nu, mean, variance, damping):  # type: ignore[no-untyped-def]
    """What a site's natural parameters change by, how much that is, and whether it can be done."""
    left = 1.0 - tau * variance
    if left <= 0.0:
        return 0.0, 0.0, 0.0, NEGATIVE
    lam = variance / left  # Qi04 (4)
    mu = mean - lam * (nu - tau * mean)  # Qi04 (5)
    new_tau, new_nu = new_site(code, row, mu, lam)
    if not (isfinite(new_tau) and isfinite(new_nu)):
        return 0.0, 0.0, 0.0, IMPROPER
    moved = _moved(new_tau, new_nu, tau, nu, variance)
    return damping * (new_tau - tau), damping * (new_nu - nu), moved, FINE


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _follow(V, m, u, mean, variance, step_tau, step_nu):  # type: ignore[no-untyped-def]
    """Covariance and mean after one site has changed; u is V times its row."""
    shrink = step_tau / (1.0 + step_tau * variance)
    push = (step_nu - step_tau * mean) / (1.0 + step_tau * variance)
    for i in range(len(u)):  # Qi04 (6)
        c = shrink * u[i]
        m[i] += push * u[i]
        for j in range(len(u)):
            V[i, j] -= c * u[j]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def sweep_weights(X, eta_0, code, table, tau, nu, V, m, damping, watch):  # type: ignore[no-untyped-def]
    """One pass over the rows; V and m are of the whitened weights. Change, negative cavities."""
    rows, k = X.shape
    worst, left_out = 0.0, np.zeros(3, np.int64)
    u = np.empty(k)
    for n in range(rows):
        if watch[STOP]:
            break
        u[:] = 0.0
        for i in range(k):
            x = X[n, i]
            for j in range(k):
                u[j] += x * V[i, j]
        variance, mean = 0.0, eta_0[n]
        for i in range(k):
            variance += X[n, i] * u[i]
            mean += X[n, i] * m[i]
        if variance <= 0.0:  # a row of zeros: its site tells nothing
            variance = 1e-300
        row = row_of(table, n)
        dt, dn, moved, how = _change(code[n], row, tau[n], nu[n], mean, variance, damping)
        left_out[how] += 1
        if how == FINE:
            worst = max(worst, moved)
            _follow(V, m, u, mean, variance, dt, dn)
            tau[n] += dt
            nu[n] += dn
    return worst, left_out[NEGATIVE], left_out[IMPROPER]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def sweep_functions(code, table, tau, nu, V, eta, damping, watch):  # type: ignore[no-untyped-def]
    """One pass over the rows; V and eta are of the predictor itself."""
    worst, left_out = 0.0, np.zeros(3, np.int64)
    u = np.empty(len(tau))
    for n in range(len(tau)):
        if watch[STOP]:
            break
        u[:] = V[n]
        variance, mean, row = max(u[n], 1e-300), eta[n], row_of(table, n)
        dt, dn, moved, how = _change(code[n], row, tau[n], nu[n], mean, variance, damping)
        left_out[how] += 1
        if how == FINE:
            worst = max(worst, moved)
            _follow(V, eta, u, mean, variance, dt, dn)
            tau[n] += dt
            nu[n] += dn
    return worst, left_out[NEGATIVE], left_out[IMPROPER]


@njit(cache=True, error_model="numpy", fastmath=FAST)
def inverse_factor(matrix):  # type: ignore[no-untyped-def]
    """L^-1 for matrix = L L', and the log determinant of L."""
    lower = np.linalg.cholesky(matrix)
    size = len(lower)
    inverse = np.zeros_like(lower)
    half = 0.0
    for i in range(size):
        half += log(lower[i, i])
        for k in range(i):
            c = lower[i, k]
            for j in range(k + 1):
                inverse[i, j] -= c * inverse[k, j]
        c = 1.0 / lower[i, i]
        for j in range(i):
            inverse[i, j] *= c
        inverse[i, i] = c
    return inverse, half


@njit(cache=True, error_model="numpy")
def fresh_weights(X, eta_0, tau, nu):  # type: ignore[no-untyped-def]
    """V, m, L^-1 and 1/2 log |M| of the whitened weights, M = I + X'TX = L L'."""
    k = X.shape[1]
    M = np.dot(np.ascontiguousarray((X * tau.reshape(-1, 1)).T), X)
    for i in range(k):
        M[i, i] += 1.0
    inverse, half = inverse_factor(M)
    V = np.dot(np.ascontiguousarray(inverse.T), inverse)
    return V, np.dot(V, np.dot(nu - tau * eta_0, X)), inverse, half


@njit(cache=True, error_model="numpy")
def fresh_functions(S, eta_0, tau, nu):  # type: ignore[no-untyped-def]
    """V, eta, diagonal of B^-1, r and 1/2 log |B|, B = I + T^1/2 S T^1/2 = L L' (all tau >= 0)."""
    rows = len(tau)
    scale = np.sqrt(tau)
    B = scale.reshape(-1, 1) * S * scale
    for n in range(rows):
        B[n, n] += 1.0
    inverse, half = inverse_factor(B)
    taken = np.dot(inverse * scale, S)
    V = S - np.dot(np.ascontiguousarray(taken.T), taken)
    # r = nu - tau eta = (I + T S)^-1 (nu - tau eta_0), as T^1/2 B^-1 T^-1/2 where a site is there
    pull = nu - tau * eta_0
    whitened, rest = np.zeros(rows), np.zeros(rows)
    for n in range(rows):
        if scale[n] > 0.0:
            whitened[n] = pull[n] / scale[n]
        else:
            rest[n] = pull[n]
    whitened -= scale * np.dot(S, rest)
    r = scale * np.dot(np.ascontiguousarray(inverse.T), np.dot(inverse, whitened)) + rest
    left = np.empty(rows)
    for n in range(rows):
        left[n] = 0.0
    for i in range(rows):
        for n in range(i + 1):
            left[n] += inverse[i, n] * inverse[i, n]
    return V, eta_0 + np.dot(S, r), left, r, half


@njit(cache=True, error_model="numpy")
def _look(code, table, tau, nu, eta, variance, left, r):  # type: ignore[no-untyped-def]
    """Cavities and log masses from a fresh q, and the relative residual of the fixed point."""
    rows = len(tau)
    mu, lam, log_z = np.empty(rows), np.empty(rows), np.empty(rows)
    worst, unresolved = 0.0, 0
    for n in range(rows):
        if not left[n] > 0.0:
            unresolved += 1
            lam[n] = mu[n] = log_z[n] = np.nan
            continue
        lam[n] = variance[n] / left[n]
        row = row_of(table, n)
        mu[n] = eta[n] - lam[n] * r[n]
        new_tau, new_nu = new_site(code[n], row, mu[n], lam[n])
        if not (isfinite(new_tau) and isfinite(new_nu)):
            unresolved += 1
            lam[n] = mu[n] = log_z[n] = np.nan
            continue
        worst = max(worst, _moved(new_tau, new_nu, tau[n], nu[n], max(variance[n], 1e-300)))
        log_z[n] = tilted_site(code[n], row, mu[n], lam[n])[0]
    return mu, lam, log_z, worst, unresolved


@njit(cache=True, nogil=True, error_model="numpy")
def run_weights(X, eta_0, code, table, tau, nu, damping, tolerance, max_sweeps, watch):  # type: ignore[no-untyped-def]
    """Sweep until the sites, which are overwritten, stay; m and L^-1 are of white weights."""
    rows = len(tau)
    met, skipped, done = 0, 0, 0
    V, m, inverse, half = fresh_weights(X, eta_0, tau, nu)
    while True:
        for _ in range(REFRESH):
            change, negative, improper = sweep_weights(
                X, eta_0, code, table, tau, nu, V, m, damping, watch
            )
            done += 1
            met += negative
            skipped += negative + improper
            if change <= tolerance or done >= max_sweeps or watch[STOP]:
                break
        V, m, inverse, half = fresh_weights(X, eta_0, tau, nu)
        if change <= 100.0 * tolerance or done >= max_sweeps or watch[STOP]:
            eta = eta_0 + np.dot(X, m)
            root = np.dot(X, np.ascontiguousarray(inverse.T))
            variance = np.empty(rows)
            for n in range(rows):
                variance[n] = np.dot(root[n], root[n])
            left = 1.0 - tau * variance
            r = nu - tau * eta
            mu, lam, log_z, change, unresolved = _look(code, table, tau, nu, eta, variance, left, r)
            settled = change <= tolerance and unresolved == 0
            if settled or done >= max_sweeps or watch[STOP]:
                return (
                    done, change, met, skipped, unresolved, half, eta, mu, lam, log_z, m, inverse,
                )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _run_functions(S, eta_0, code, table, tau, nu, damping, tolerance, max_sweeps, watch):  # type: ignore[no-untyped-def]
    rows = len(tau)
    met, skipped, done = 0, 0, 0
    V, eta, left, r, half = fresh_functions(S, eta_0, tau, nu)
    while True:
        for _ in range(REFRESH):
            change, negative, improper = sweep_functions(
                code, table, tau, nu, V, eta, damping, watch
            )
            done += 1
            met += negative
            skipped += negative + improper
            if change <= tolerance or done >= max_sweeps or watch[STOP]:
                break
        V, eta, left, r, half = fresh_functions(S, eta_0, tau, nu)
        if change <= 100.0 * tolerance or done >= max_sweeps or watch[STOP]:
            variance = np.empty(rows)
            for n in range(rows):
                strong = tau[n] * S[n, n] > 1.0  # of two equal forms the one that rounds less
                variance[n] = (1.0 - left[n]) / tau[n] if strong else V[n, n]
            mu, lam, log_z, change, unresolved = _look(code, table, tau, nu, eta, variance, left, r)
            settled = change <= tolerance and unresolved == 0
            if settled or done >= max_sweeps or watch[STOP]:
                return done, change, met, skipped, unresolved, half, eta, mu, lam, log_z


def cost_of_sweep(matrix: Array, sites: KnownSites) -> float:
    """Operations of one pass over the rows of X."""
    rows, k = matrix.shape
    by_nodes = int(np.count_nonzero(sites.code > STEP))  # all but GAUSSIAN, PROBIT and STEP
    return float(2.0 * rows * k * k + NODES_COST * by_nodes)


def sequential(
    matrix: Array,
    in_functions: bool,
    eta_0: Array,
    sites: KnownSites,
    start: tuple[Array, Array],
    settings: tuple[float, float, int],
) -> Rows:
    """Sweep until the sites stay.

    Parameters
    ----------
    matrix
        X = A C (N, k) of the whitened weights; in function space S = A K A' (N, N).
    sites
        Of known families; in function space log-concave ones only, whose tau stay >= 0.
    start
        Site precisions and shifts to begin with.
    settings
        Damping, tolerance, most sweeps.
    """
    tau, nu = start[0].copy(), start[1].copy()
    run = _run_functions if in_functions else run_weights
    matrix = np.ascontiguousarray(matrix)

    def work(watch: Watch) -> tuple[Any, ...]:
        found: tuple[Any, ...] = run(
            matrix, eta_0, sites.code, sites.table, tau, nu, *settings, watch
        )
        return found

    # else most sweeps end in two seconds
    found = aside(work) if cost_of_sweep(matrix, sites) > LONG else work(unwatched())
    done, change, met, skipped, unresolved, _, _, mu, lam, log_z = found[:10]
    return Rows(done, change, met, skipped, unresolved, tau, nu, mu, lam, log_z)
