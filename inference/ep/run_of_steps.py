"""A run of steps of sequential ARD in machine code: each gives one weight a new precision.

Most steps of a path change the precision of a weight that stays in the model. Then only one column
of the whitened design moves, so that choice (`ard/kernels.py`), sweeps (`sequential.py`) and
evidence need nothing from Python. What is left to the caller is whatever else a step may do: add,
delete, or come back to where the path was.
"""

from math import inf, log1p, sqrt
from typing import NamedTuple

import numpy as np

from ardvark.inference.ard.kernels import best_precisions
from ardvark.inference.ep.sequential import LONG, Rows, cost_of_sweep, run_weights
from ardvark.inference.known_sites.known import KnownSites
from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array, Index, Mask

__all__ = ["Steps", "Weights", "run_of_steps"]

MOST = 50  # steps between two looks at Ctrl-C and progress


class Weights(NamedTuple):
    """Those in the model, in the order of their columns; overwritten on the way."""

    columns: Array  # A (N, k)
    alpha: Array  # (k,) prior precision
    mean: Array  # (k,) posterior, as the next
    variance: Array
    free: Mask  # whose precision is optimised
    least: Array  # of the precision
    largest: Array


class Steps(NamedTuple):
    """The steps made, one in each row."""

    weight: Index  # (m,) place among the weights in the model
    gain: Array  # (m,) promised under fixed sites
    precision: Array  # (m, k) after the step, as all that follows
    log_evidence: Array  # (m,)
    sweeps: Index
    negative_cavities: Index
    skipped: Index
    change: Array
    tau: Array  # (m, N)
    nu: Array
    cavity_mean: Array
    cavity_variance: Array
    log_z: Array

    def rows(self, i: int) -> Rows:
        """The sites after the i-th of them."""
        return Rows(
            int(self.sweeps[i]), float(self.change[i]), int(self.negative_cavities[i]),
            int(self.skipped[i]), 0, self.tau[i], self.nu[i],
            self.cavity_mean[i], self.cavity_variance[i], self.log_z[i],
        )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _log_evidence(eta_0, eta, tau, nu, mu, lam, log_z, half_log_det):  # type: ignore[no-untyped-def]
    """Qi04 (10), (11), as `_log_evidence` of `ep.py`."""
    value = -half_log_det
    for n in range(len(tau)):
        force = nu[n] - tau[n] * eta[n]
        value += log_z[n] + 0.5 * log1p(tau[n] * lam[n]) - 0.5 * (mu[n] - eta_0[n]) * force
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _run(weights, eta_0, code, table, tau, nu, floor, most, settings):  # type: ignore[no-untyped-def]
    A, alpha, mean, variance, free, least, largest = weights
    damping, tolerance, max_sweeps = settings
    watch = np.zeros(2, np.int64)
    rows, k = A.shape
    X = A * np.sqrt(1.0 / alpha)
    weight, gain, evidence, change = (
        np.empty(most, np.int64), np.empty(most), np.empty(most), np.empty(most),
    )  # fmt: skip
    precision, counts = np.empty((most, k)), np.empty((3, most), np.int64)
    by_row = np.empty((5, most, rows))
    made = 0
    while made < most:
        best, gains = best_precisions(
            alpha, free, 1.0 / variance - alpha, mean / variance, least, largest
        )
        j = np.argmax(gains)
        if not gains[j] > floor or best[j] == inf:
            break
        alpha[j] = best[j]
        root = sqrt(1.0 / best[j])
        for n in range(rows):
            X[n, j] = A[n, j] * root
        if not np.all(tau >= 0.0):  # by rounding: as at any other start
            tau[:], nu[:] = 0.0, 0.0
        found = run_weights(X, eta_0, code, table, tau, nu, damping, tolerance, max_sweeps, watch)
        done, moved, met, skipped, unresolved, half, eta, mu, lam, log_z, shift, inverse = found
        if unresolved > 0:
            break
        for i in range(k):
            factor, square = sqrt(1.0 / alpha[i]), 0.0
            for a in range(i, k):
                square += inverse[a, i] * inverse[a, i]
            mean[i], variance[i] = shift[i] * factor, square * factor * factor
        weight[made], gain[made], precision[made] = j, gains[j], alpha
        evidence[made] = _log_evidence(eta_0, eta, tau, nu, mu, lam, log_z, half)
        counts[0, made], counts[1, made], counts[2, made] = done, met, skipped
        change[made] = moved
        by_row[0, made], by_row[1, made] = tau, nu
        by_row[2, made], by_row[3, made], by_row[4, made] = mu, lam, log_z
        made += 1
    return (
        weight[:made], gain[:made], precision[:made], evidence[:made], counts[:, :made],
        change[:made], by_row[:, :made],
    )  # fmt: skip


def run_of_steps(
    weights: Weights,
    eta_0: Array,
    sites: KnownSites,
    start: tuple[Array, Array],
    floor: float,
    most: int,
    settings: tuple[float, float, int],
) -> Steps:
    """Re-estimate at most so often, while that promises more than `floor` and deletes nothing.

    Parameters
    ----------
    start
        Site precisions and shifts.
    settings
        Damping, tolerance, most sweeps.
    """
    weights = Weights._make(np.array(one, order="C") for one in weights)
    # Ctrl-C is heard between two runs.
    most = min(most, MOST, int(LONG / cost_of_sweep(weights.columns, sites)))
    tau, nu = (array.copy() for array in start)
    found = _run(weights, eta_0, sites.code, sites.table, tau, nu, floor, most, settings)
    weight, gain, precision, evidence, counts, change, by_row = found
    sweeps, negative, skipped = counts
    return Steps(weight, gain, precision, evidence, sweeps, negative, skipped, change, *by_row)
