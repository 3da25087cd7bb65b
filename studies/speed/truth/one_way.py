"""A logit with one grouping factor, exactly: quadrature in each group, importance for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp

from ardvark.studies.speed.large import data
from ardvark.studies.speed.truth.moments import Moments, nothing
from ardvark.studies.speed.truth.walks import hessian_of

__all__ = ["OneWay", "one_way_truth"]

NODES = 21  # of a quadrature over one effect
WEIGHED = 400  # draws of the four others


class OneWay:
    """log p(t, fixed, s) with the effects integrated out, and their moments given the rest."""

    def __init__(self, groups: int, nodes: int = NODES) -> None:
        d = data("one_way", groups)
        self.groups = groups
        self.X = np.column_stack([np.ones(10 * groups), d["x0"], d["x1"]])
        self.sign = (2.0 * d["t"] - 1.0).reshape(groups, 10)
        self.nodes, weights = np.polynomial.hermite_e.hermegauss(nodes)
        self.log_weights = np.log(weights)
        self.at = np.zeros(groups)

    def parts(self, x: Any) -> tuple[Any, Any, Any]:
        """Log integral of each group, its nodes and their shares, at x = (fixed, log s)."""
        eta, s = (self.X @ x[:3]).reshape(self.groups, 10), np.exp(x[3])
        u = self.at
        for _ in range(30):  # mode of each effect
            p = expit(self.sign * (eta + s * u[:, None]))
            slope = s * np.sum(self.sign * (1.0 - p), axis=1) - u
            curve = s**2 * np.sum(p * (1.0 - p), axis=1) + 1.0
            u = u + slope / curve
        self.at = u
        width = curve**-0.5
        places = u[:, None] + width[:, None] * self.nodes
        log_f = self.log_weights + 0.5 * self.nodes**2 - 0.5 * places**2 - 0.5 * np.log(2.0 * np.pi)
        for row in range(10):
            log_f += log_expit(self.sign[:, row, None] * (eta[:, row, None] + s * places))
        log_f += np.log(width)[:, None]
        total = logsumexp(log_f, axis=1)
        return total, places, np.exp(log_f - total[:, None])

    def loss(self, x: Any) -> float:
        """Minus the log joint density of data and x, priors and Jacobian with their constants."""
        prior = -0.5 * np.sum(x[:3] ** 2) / 25.0 - 3 * np.log(5.0 * np.sqrt(2.0 * np.pi))
        s = np.exp(x[3])
        prior += np.log(2.0 / np.sqrt(2.0 * np.pi)) - 0.5 * s**2 + x[3]
        return float(-self.parts(x)[0].sum() - prior)


def one_way_truth(groups: int, draws: int = WEIGHED) -> tuple[Moments, dict[str, Any]]:
    """Moments of everything, and the evidence: quadrature, and importance over four numbers."""
    model = OneWay(groups)
    start = np.array([0.3, 0.5, -0.4, np.log(0.7)])
    scale = 1.0 / np.sqrt(groups)  # near the sds: well-scaled for a search without gradient
    best = minimize(lambda z: model.loss(start + scale * z), np.zeros(4), method="BFGS")
    centre = start + scale * best.x
    root = np.linalg.cholesky(np.linalg.inv(hessian_of(model.loss, centre, 0.3 * scale)))
    z = np.random.default_rng(1).normal(size=(draws // 2, 4))
    z = np.concatenate([z, -z])  # antithetic: the mean of a Gaussian is then exact
    x = centre + z @ root.T
    log_q = -0.5 * np.sum(z**2, axis=1) - np.log(np.diag(root)).sum() - 2.0 * np.log(2.0 * np.pi)
    log_ratio = np.empty(len(x))
    first, second = np.empty((2, len(x), groups))
    for i, point in enumerate(x):
        log_ratio[i] = -model.loss(point) - log_q[i]
        _, places, share = model.parts(point)
        first[i] = np.sum(share * places, axis=1)
        second[i] = np.sum(share * places**2, axis=1)
    share = np.exp(log_ratio - logsumexp(log_ratio))
    x[:, 3] = np.exp(x[:, 3])
    names = {"a": x[:, 0], "b": x[:, 1:3], "s": x[:, 3]}
    found = nothing()
    for name, values in names.items():
        deviation = values - np.average(values, axis=0, weights=share)
        found.mean[name] = np.average(values, axis=0, weights=share)
        found.sd[name] = np.sqrt(np.average(deviation**2, axis=0, weights=share))
        found.mean_error[name] = found.sd[name] / np.sqrt(draws)  # an upper bound: antithetic
        found.sd_error[name] = found.sd[name] / np.sqrt(2.0 * draws)
    found.mean["u"] = share @ first
    found.sd["u"] = np.sqrt(share @ second - (share @ first) ** 2)
    found.mean_error["u"] = first.std(axis=0) / np.sqrt(draws)
    found.sd_error["u"] = second.std(axis=0) / np.sqrt(draws) / (2.0 * found.sd["u"])
    ess = 1.0 / float(np.sum(share**2))
    evidence = float(logsumexp(log_ratio) - np.log(draws))
    return found, {"log_evidence": evidence, "ess": ess}
