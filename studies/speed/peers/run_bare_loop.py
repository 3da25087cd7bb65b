# mypy: ignore-errors
"""The least that EP can be: sequential probit sweeps in numba, w ~ N(0, I), and nothing else.

No checks, no refresh, no leave-one-out, no evidence during the sweeps: what Ardvark's EP costs more
than this is the price of being safe. Sites exp(-tau eta^2 / 2 + nu eta); V and m of the weights.
"""

from math import erfc, exp, log, pi, sqrt

import numpy as np
from numba import njit
from protocol import main

TOLERANCE = 1e-10  # Ardvark's default, and its measure of change


@njit(cache=True, fastmath=True, error_model="numpy")
def sweeps(X, sign, tolerance):
    """Posterior mean, covariance, sites and number of sweeps."""
    rows, k = X.shape
    V, m, u = np.eye(k), np.zeros(k), np.empty(k)
    tau, nu = np.zeros(rows), np.zeros(rows)
    done, change = 0, 1.0
    while change > tolerance:
        change = 0.0
        done += 1
        for n in range(rows):
            u[:] = 0.0
            mean = 0.0
            for i in range(k):
                x = X[n, i]
                mean += x * m[i]
                for j in range(k):
                    u[j] += x * V[i, j]
            variance = 0.0
            for i in range(k):
                variance += X[n, i] * u[i]
            lam = variance / (1.0 - tau[n] * variance)
            mu = mean - lam * (nu[n] - tau[n] * mean)
            scale = sqrt(1.0 + lam)
            z = sign[n] * mu / scale
            h = sqrt(2.0 / pi) * exp(-0.5 * z * z) / erfc(-z * sqrt(0.5))
            c = h * (z + h)
            new_tau = c / (1.0 + lam * (1.0 - c))
            new_nu = new_tau * mu + (1.0 + lam * new_tau) * sign[n] * h / scale
            step, push = new_tau - tau[n], new_nu - nu[n]
            change = max(change, abs(step) / (new_tau + 1.0 / variance))
            change = max(change, abs(push) / (abs(new_nu) + 1.0 / sqrt(variance)))
            push = (push - step * mean) / (1.0 + step * variance)
            shrink = step / (1.0 + step * variance)
            for i in range(k):
                c = shrink * u[i]
                m[i] += push * u[i]
                for j in range(k):
                    V[i, j] -= c * u[j]
            tau[n], nu[n] = new_tau, new_nu
    return m, V, tau, nu, done


def log_evidence(X, sign, m, V, tau, nu):
    """Outside the timing: the same formula that Ardvark uses."""
    eta, variance = X @ m, np.sum((X @ V) * X, axis=1)
    lam = variance / (1.0 - tau * variance)
    force = nu - tau * eta
    mu = eta - lam * force
    log_z = [log(0.5 * erfc(-z * sqrt(0.5))) for z in sign * mu / np.sqrt(1.0 + lam)]
    half_log_det = -0.5 * np.linalg.slogdet(V)[1]
    return np.sum(log_z) + 0.5 * np.log1p(tau * lam).sum() - half_log_det - 0.5 * mu @ force


def ep(X, t, **_):
    """Prior precisions one."""
    sign = 2.0 * t - 1.0

    def answer(result):
        m, V, tau, nu, done = result
        return {
            "mean": m,
            "sd": np.sqrt(np.diag(V)),
            "log_evidence": log_evidence(X, sign, m, V, tau, nu),
            "sweeps": done,
        }

    return lambda: sweeps(X, sign, TOLERANCE), answer


if __name__ == "__main__":
    main({"ep": ep}, "numba")
