"""Priors of members whose precision is sparse, as rows: what they deviate by, how much it weighs.

    log p(v) = -1/2 Σ_i q_i e_i(v)² + 1/2 log |P| - n/2 log 2π

| prior of v                | rows e                                  | weights q      |
|---------------------------|-----------------------------------------|----------------|
| random walk               | v_0 - μ_0, v_t - v_(t-1) - μ            | 1/σ_0², 1/σ²   |
| autoregression            | v_0 - μ_0, ..., v_t - c - Σ ρ_l v_(t-l) | 1/σ_0², 1/σ²   |
| ICAR                      | v_i - v_j of neighbours; Σ v            | 1/σ²; 1/(s n)² |
| CAR                       | v_i - μ_i; its differences over edges   | τ(1-α)d_i; τα  |
| MvNormal(μ, Σ), any batch | L⁻¹ (v - μ),  Σ = L L'                  | 1              |

A Normal is not here: its rows v - μ and weights 1/σ² are those of any member with an sd. Of ICAR,
with n nodes in one piece, |P| is known: the field's Laplacian has the eigenvector 1 of eigenvalue
0, and n times the determinant of a minor is the product of the others (Kirchhoff). Of CAR, with W
the neighbours and D their numbers d, the precision is τ (D - αW), and

    log |D - αW| = Σ log d_i + Σ log(1 - α λ_i),   λ eigenvalues of D^-1/2 W D^-1/2

found once. A negative α gives edges a negative weight, which the precision J'WJ may have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from scipy.sparse import csr_array, tril

__all__ = ["PriorRows", "own_params", "prior_rows"]

_LARGEST_FACTOR = 500  # of a covariance whose inverse root is full
_MOST_PLACES = 3000  # of CAR, whose eigenvalues take their cube: ten seconds


class PriorRows(NamedTuple):
    """Rows (m,) and weights (m,) of a member, log |P|, and what PyMC's own density has more."""

    residual: Any
    weight: Any
    log_det: Any
    excess: Any = None


def own_params(rv: Any) -> list[Any]:
    """The parameters that `prior_rows` needs, as nodes of the model's own graph."""
    name, inputs = type(rv.owner.op).__name__, rv.owner.inputs
    if name == "RandomWalkRV":
        start, step = inputs[:2]
        return [*_normal(start), *_normal(step)]
    if name == "AutoRegressiveRV":
        rho, sigma, start = inputs[:3]
        return [rho, sigma, *_normal(start)]
    if name in ("ICARRV", "CARRV", "MvNormalRV"):
        return list(rv.owner.op.dist_params(rv.owner))
    return []


def _normal(rv: Any) -> list[Any]:
    if rv.owner is None or type(rv.owner.op).__name__ != "NormalRV":
        return []
    return list(rv.owner.op.dist_params(rv.owner))


def prior_rows(rv: Any, params: list[Any], value: Any, shape: tuple[int, ...]) -> PriorRows | None:
    """Rows of a member, None if it has none of these kinds; `params` are values."""
    name = type(rv.owner.op).__name__
    if name == "RandomWalkRV" and len(shape) == 1 and len(params) == 4:
        mu_0, sd_0, mu, sd = params
        drift = pt.broadcast_to(mu, (shape[0] - 1,))
        residual = pt.concatenate([value[:1] - mu_0, value[1:] - value[:-1] - drift])
        return _weighted(residual, [(sd_0, 1), (sd, shape[0] - 1)])
    if name == "AutoRegressiveRV" and len(shape) == 1 and len(params) == 4:
        return _autoregression(rv.owner.op, params, value, shape[0])
    if name == "ICARRV" and isinstance(params[0], Constant):
        return _field(np.asarray(params[0].data), params[1], params[2], value)
    if name == "CARRV" and len(shape) == 1 and isinstance(params[1], Constant):
        return _proper_field(params, value)
    if name == "MvNormalRV" and shape[-1] <= _LARGEST_FACTOR:
        mean, covariance = params
        while covariance.ndim > 2 and covariance.type.broadcastable[0]:
            covariance = covariance[0]
        return _multivariate(mean, covariance, value, shape) if covariance.ndim == 2 else None
    return None


def _weighted(residual: Any, sds: list[tuple[Any, int]]) -> PriorRows:
    sd = pt.concatenate([pt.broadcast_to(s, (n,)).astype("float64") for s, n in sds])
    return PriorRows(residual, sd**-2.0, -2.0 * pt.log(sd).sum())


def _autoregression(op: Any, params: list[Any], value: Any, size: int) -> PriorRows | None:
    rho, sigma, mu_0, sd_0 = params
    order = int(op.ar_order)
    if rho.ndim != 1 or size <= order:
        return None
    constant, lags = (rho[0], rho[1:]) if op.constant_term else (pt.constant(0.0), rho)
    centre = constant
    for lag in range(1, order + 1):
        centre = centre + lags[lag - 1] * value[order - lag : size - lag]
    residual = pt.concatenate([value[:order] - mu_0, value[order:] - centre])
    return _weighted(residual, [(sd_0, order), (sigma, size - order)])


def _field(W: Any, sigma: Any, zero_sum: Any, value: Any) -> PriorRows | None:
    from ardvark.inference.sparse.factor import Factor, plan  # of sparse rows only

    node, neighbour = np.nonzero(np.tril(W) == 1)
    n, edges = len(W), len(node)
    index = np.arange(edges)
    differences = csr_array(
        (np.repeat([1.0, -1.0], edges), (np.tile(index, 2), np.concatenate([node, neighbour]))),
        shape=(edges, n),
    )
    minor = csr_array(differences[:, 1:])
    minor.sort_indices()
    alone = n < 2 or not np.all(np.bincount(minor.indices, minlength=n - 1))
    if sigma.ndim or zero_sum.ndim or alone:
        return None
    made = plan(minor)
    try:
        factor = Factor(made, made.assembled(made.values(minor.data), np.ones(edges)))
    except np.linalg.LinAlgError:  # more than one piece: the prior has no density
        return None
    spread = zero_sum.astype("float64") * n
    residual = pt.concatenate([value[node] - value[neighbour], value.sum().reshape((1,))])
    weight = pt.concatenate(
        [pt.broadcast_to(sigma.astype("float64") ** -2.0, (edges,)), (spread**-2.0).reshape((1,))]
    )
    pieces = np.log(n) + factor.log_det  # Σ log of the eigenvalues above 0, at σ = 1
    log_det = pieces - 2.0 * (n - 1) * pt.log(sigma) + np.log(n) - 2.0 * pt.log(spread)
    own = -0.5 * np.log(2.0 * np.pi) - pt.log(spread)  # PyMC's log density at v = 0
    excess = own - 0.5 * log_det + 0.5 * n * np.log(2.0 * np.pi)
    return PriorRows(residual, weight, log_det, excess)


def _proper_field(params: list[Any], value: Any) -> PriorRows | None:
    mean, W, alpha, tau = params[:4]
    if alpha.ndim or tau.ndim or W.ndim != 2 or W.data.shape[0] > _MOST_PLACES:
        return None
    neighbours = csr_array(W.data).astype(float)
    count = np.asarray(neighbours.sum(axis=0)).ravel()
    if not np.all(count > 0):
        return None
    root = count**-0.5
    eigenvalues = np.linalg.eigvalsh(root[:, None] * neighbours.toarray() * root)
    node, other = tril(neighbours, -1).nonzero()
    n, tau, alpha = len(count), tau.astype("float64"), alpha.astype("float64")
    deviation = value - mean
    residual = pt.concatenate([deviation, deviation[node] - deviation[other]])
    weight = pt.concatenate([tau * (1.0 - alpha) * count, pt.broadcast_to(tau * alpha, node.shape)])
    own = 0.5 * (n * pt.log(tau) + pt.log1p(-alpha * eigenvalues).sum())  # PyMC's, at v = μ
    log_det = 2.0 * own + np.log(count).sum()
    return PriorRows(residual, weight, log_det, own - 0.5 * log_det + 0.5 * n * np.log(2.0 * np.pi))


def _multivariate(mean: Any, covariance: Any, value: Any, shape: tuple[int, ...]) -> PriorRows:
    size, batch = shape[-1], int(np.prod(shape[:-1]))
    lower = pt.linalg.cholesky(covariance)
    root = pt.linalg.solve_triangular(lower, pt.eye(size), lower=True)
    deviation = (value - mean).reshape((batch, size))
    residual = (deviation @ root.T).reshape((-1,))
    log_det = -2.0 * batch * pt.log(pt.diagonal(lower)).sum()
    return PriorRows(residual, pt.ones((batch * size,)), log_det)
