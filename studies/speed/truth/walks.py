"""Random walks: NUTS for counts in coordinates of their own, Kalman's smoother under noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from scipy.linalg import solveh_banded
from scipy.optimize import minimize
from scipy.special import logsumexp

from ardvark.studies.speed.truth.models import observed_counts, walked
from ardvark.studies.speed.truth.moments import Moments, chain_facts

__all__ = [
    "grid_of_walk",
    "hessian_of",
    "nuts_of_walk",
    "sites_of_walk",
    "smoother",
    "walk_density",
]


@njit(cache=True)
def walk_density(x, t, weight, force):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Log density of (z, log s) with its gradient, the walk v, and the log Jacobian of v."""
    n = len(t)
    z, s = x[:n], np.exp(x[n])
    q = 1.0 / s**2
    d, e, dd, de = np.empty(n), np.zeros(n), np.empty(n), np.zeros(n)
    dp = np.empty(n)
    for i in range(n):  # L, and its derivative in log s
        ends = 1.0 if i in (0, n - 1) else 2.0
        p = ends * q + weight[i] + (0.25 if i == 0 else 0.0)
        dp[i] = -2.0 * ends * q
        if i:
            e[i] = -q / d[i - 1]
            de[i] = (2.0 * q - e[i] * dd[i - 1]) / d[i - 1]
        d[i] = np.sqrt(p - e[i] ** 2)
        dd[i] = (dp[i] - 2.0 * e[i] * de[i]) / (2.0 * d[i])
    v = np.empty(n)
    for i in range(n):
        v[i] = (force[i] - (e[i] * v[i - 1] if i else 0.0)) / d[i]
    for i in range(n - 1, -1, -1):
        v[i] = (v[i] + z[i] - (e[i + 1] * v[i + 1] if i < n - 1 else 0.0)) / d[i]
    total = -(v[0] ** 2) / 8.0 - (n - 1) * x[n] - s**2 / 0.08 + x[n]
    slope = np.empty(n)
    rough, jacobian = 0.0, 0.0
    for i in range(n):
        rate = np.exp(v[i])
        total += t[i] * v[i] - rate
        slope[i] = t[i] - rate
        jacobian -= np.log(d[i])
    slope[0] -= v[0] / 4.0
    for i in range(1, n):
        step = v[i] - v[i - 1]
        rough += step**2
        slope[i] -= q * step
        slope[i - 1] += q * step
    total += jacobian - 0.5 * q * rough
    gradient = np.empty(n + 1)
    for i in range(n):
        gradient[i] = (slope[i] - (e[i] * gradient[i - 1] if i else 0.0)) / d[i]
    gradient[n] = q * rough - (n - 1) - s**2 / 0.04 + 1.0
    after = 0.0
    for i in range(n - 1, -1, -1):  # P⁻¹ slope, against dL z - dP v
        after = (gradient[i] - (e[i + 1] * after if i < n - 1 else 0.0)) / d[i]
        moved = dd[i] * z[i] - dp[i] * v[i]
        if i:
            moved += de[i] * z[i - 1] - 2.0 * q * v[i - 1]
        if i < n - 1:
            moved -= 2.0 * q * v[i + 1]
        gradient[n] += after * moved - dd[i] / d[i]
    return total, gradient, v, jacobian


def sites_of_walk(t: Any, s: float) -> tuple[Any, Any]:
    """Gaussian sites (precision, shift) at the mode of the walk given s."""
    n, v = len(t), np.log(t + 0.5)
    ends = np.full(n, 2.0)
    ends[[0, -1]] = 1.0
    diagonal = ends / s**2
    diagonal[0] += 0.25
    for _ in range(50):
        rate = np.exp(v)
        bands = np.stack([diagonal + rate, np.full(n, -1.0 / s**2)])
        new = solveh_banded(bands, rate * v + t - rate, lower=True)
        v = v + np.clip(new - v, -1.0, 1.0)
    return np.exp(v), np.exp(v) * v + t - np.exp(v)


def nuts_of_walk(points: int) -> dict[str, Any]:
    """Draws of the walk and its sd, four chains."""
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    t = observed_counts(points)
    weight, force = sites_of_walk(t, 0.05)

    def density(x: Any) -> tuple[float, Any]:
        total, gradient, _, _ = walk_density(x, t, weight, force)
        return float(total), gradient

    def expanded(x: Any) -> dict[str, Any]:
        return {"all": np.append(walk_density(x, t, weight, force)[2], np.exp(x[-1]))}

    compiled = from_pyfunc(
        points + 1, lambda: density, lambda *_: expanded,
        [np.dtype("float64")], [(points + 1,)], ["all"],
        make_initial_point_fn=lambda seed: np.append(
            np.random.default_rng(seed).normal(size=points), np.log(0.05)
        ),
    )  # fmt: skip
    tree = nutpie.sample(
        compiled, draws=1000, tune=500, chains=4, cores=1, seed=1, progress_bar=False,
        save_warmup=False,
    )  # fmt: skip
    found = chain_facts(tree, ["all"])
    both = found["draws"].pop("all")
    return found | {"draws": {"s": both[..., -1], "v": both[..., :-1]}}


@njit(cache=True)
def smoother(t, start, step, noise):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Log density of a walk under noise, and means and variances given all of it."""
    n, total = len(t), 0.0
    mean, variance = np.empty(n), np.empty(n)
    m, p = 0.0, start**2
    for i in range(n):
        if i:
            p = variance[i - 1] + step**2
        spread = p + noise**2
        total -= 0.5 * (np.log(2.0 * np.pi * spread) + (t[i] - m) ** 2 / spread)
        m += p / spread * (t[i] - m)
        mean[i], variance[i] = m, p * noise**2 / spread
    for i in range(n - 2, -1, -1):
        ahead = variance[i] + step**2
        gain = variance[i] / ahead
        mean[i] += gain * (mean[i + 1] - mean[i])
        variance[i] += gain**2 * (variance[i + 1] - ahead)
    return total, mean, variance


def grid_of_walk(points: int) -> tuple[Moments, dict[str, Any]]:
    """θ on a grid of 25 x 25 around its mode, in logs; the walk at each."""
    t = walked(points)

    def loss(phi: Any) -> float:
        s, r = np.exp(phi)
        return float(-smoother(t, 2.0, s, r)[0] + 0.5 * (s**2 + r**2) - phi.sum())

    best = minimize(loss, np.log([0.3, 0.5]), method="Nelder-Mead", options={"xatol": 1e-6})
    hessian = hessian_of(loss, best.x, 0.01)
    root = np.linalg.cholesky(np.linalg.inv(hessian))
    line = np.linspace(-6.0, 6.0, 25)
    phis = best.x + np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2) @ root.T
    log_p = -np.array([loss(phi) for phi in phis])
    step = np.log(np.linalg.det(root) * (line[1] - line[0]) ** 2)
    share = np.exp(log_p - logsumexp(log_p))
    first = second = np.zeros(points)
    for p, phi in zip(share, phis, strict=True):
        if p > 1e-9:
            _, mean, variance = smoother(t, 2.0, *np.exp(phi))
            first, second = first + p * mean, second + p * (variance + mean**2)
    theta = np.exp(phis)
    mean = {"v": first, **dict(zip("sr", share @ theta, strict=True))}
    sds = np.sqrt(share @ (theta - share @ theta) ** 2)
    sd = {"v": np.sqrt(second - first**2), **dict(zip("sr", sds, strict=True))}
    evidence = logsumexp(log_p) + step + 2 * np.log(2.0 * np.sqrt(1.0 / (2.0 * np.pi)))
    nothing = dict.fromkeys(mean, 0.0)
    return Moments(mean, sd, nothing, nothing), {"log_evidence": float(evidence)}


def hessian_of(loss: Callable[[Any], float], x: Any, step: float) -> Any:
    """Second differences of a function, which must be smooth on the scale of the step."""
    d = len(x)
    moves = step * np.eye(d)
    found = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            found[i, j] = (
                loss(x + moves[i] + moves[j]) - loss(x + moves[i] - moves[j])
                - loss(x - moves[i] + moves[j]) + loss(x - moves[i] - moves[j])
            ) / (4.0 * step**2)  # fmt: skip
    return 0.5 * (found + found.T)
