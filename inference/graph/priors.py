"""The prior of a member of the Gaussian block: its mean, its scale, and a site where it is needed.

| prior of v | base | site |
|---|---|---|
| Normal(μ, σ) | N(μ, σ²) | |
| MvNormal(μ, Σ), one vector or a batch | N(μ, Σ) | |
| random walks, AR, CAR, ICAR, matrix, Kronecker | N(P⁻¹b, P⁻¹), log p = -v'Pv/2 + b'v + c | |
| ZeroSumNormal(σ) | N(0, σ²) on PyMC's unconstrained scale, an isometry | |
| StudentT, Cauchy, Laplace, Logistic, Gumbel | N(μ, s²), s near the scale | p(v) / N(v; μ, s²) |
| Flat | N(0, s²) | 1 / N(v; 0, s²) |

μ may be affine in other members: the block is then a chain, v = M v + c + e with e ~ N(0, D), which
is jointly Gaussian. The base of a site cancels from posterior and evidence whatever s is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.basic import conditional_logp
from pytensor.graph.replace import clone_replace, vectorize_graph

__all__ = ["Base", "base_of", "described", "is_member_kind", "kind", "locations_and_rest"]

_SERIES = {"RandomWalkRV", "AutoRegressiveRV"}
_UNNORMALISED = {"ICARRV", "CARRV"}
_QUADRATIC = {*_SERIES, *_UNNORMALISED, "MatrixNormalRV", "KroneckerNormalRV"}
_NORMAL = {"NormalRV", "MvNormalRV"}
_FLAT_SD = 1e3  # of the base under a flat prior; it cancels
# kind → place of the location among the parameters, and the sd of the base from all of them.
_OVER_BASE: dict[str, tuple[int | None, Callable[..., Any]]] = {
    "StudentTRV": (1, lambda nu, mu, sigma: 2.0 * sigma),
    "CauchyRV": (0, lambda alpha, beta: 3.0 * beta),
    "LaplaceRV": (0, lambda mu, b: np.sqrt(2.0) * b),
    "LogisticRV": (0, lambda mu, s: np.pi / np.sqrt(3.0) * s),
    "GumbelRV": (0, lambda mu, beta: np.pi / np.sqrt(6.0) * beta),
    "FlatRV": (None, lambda: pt.constant(_FLAT_SD)),
}
_LOCATION = {
    **dict.fromkeys((*_NORMAL, "CARRV", "MatrixNormalRV", "KroneckerNormalRV"), 0),
    **{name: place for name, (place, _) in _OVER_BASE.items()},
}


class Base(NamedTuple):
    """A Gaussian base: mean, and sd by element or a dense covariance; `site` if it needs one.

    `site` is the location of the residual v - location that the site is a function of, and the log
    site as a function of a free residual. `excess` is what the logarithm of a density that PyMC
    leaves unnormalised has more than the Gaussian: a function of θ alone.
    """

    mean: Any
    scale: Any
    dense: bool
    site: tuple[Any, Callable[[Any], Any]] | None = None
    excess: Any = None


def kind(rv: Any) -> str:
    """Name of the operation that draws a variable."""
    return type(rv.owner.op).__name__


def described(rv: Any) -> str:
    """Name of a variable with its distribution."""
    return f"{rv.name} ({kind(rv).removesuffix('RV')})"


def is_member_kind(model: Any, rv: Any) -> bool:
    """Whether the prior of a free variable is Gaussian, or a site over a Gaussian."""
    name = kind(rv)
    if name == "ZeroSumNormalRV":
        return True
    if model.rvs_to_transforms[rv] is not None or not rv.dtype.startswith("float"):
        return False
    if any(kind(start) not in _NORMAL for start in _inner(rv)):
        return False
    return name in {*_NORMAL, *_QUADRATIC, *_OVER_BASE}


def _inner(rv: Any) -> list[Any]:
    """Variables without a name from which a random walk or an autoregression is made."""
    if kind(rv) not in _SERIES:
        return []
    drawn = (i for i in rv.owner.inputs if i.owner is not None and i.name is None)
    return [i for i in drawn if hasattr(i.owner.op, "dist_params")]


def locations_and_rest(rv: Any) -> tuple[list[Any], list[Any]]:
    """The parameters that shift the mean of a member and nothing else, and all others."""
    inputs = list(rv.owner.inputs)
    if inner := _inner(rv):
        shifts = [start.owner.op.dist_params(start.owner)[0] for start in inner]
        own = [i for start in inner for i in start.owner.inputs]
        return shifts, [i for i in (*own, *inputs) if i not in shifts and i not in inner]
    place = _LOCATION.get(kind(rv))
    if place is None:
        return [], inputs
    location = rv.owner.op.dist_params(rv.owner)[place]
    return [location], [i for i in inputs if i is not location]


def base_of(
    rv: Any,
    params: list[Any],
    values: Mapping[Any, Any],
    shape: tuple[int, ...],
    at_zero: Mapping[Any, Any],
) -> Base:
    """The prior of a member in terms of values; `params` are its parameters as such.

    `at_zero` has zeros for the value of each member: the scale of one must not hold another.
    """
    name = kind(rv)
    if name == "NormalRV":
        return Base(params[0], params[1], False)
    if name == "ZeroSumNormalRV":
        return Base(pt.constant(0.0), params[0], False)
    if name == "MvNormalRV":
        mean, covariance = params
        return _multivariate(mean, covariance, shape)
    if name in _QUADRATIC:
        log_density = conditional_logp(dict(values), warn_rvs=False)[values[rv]]
        base = _quadratic(values[rv], log_density, shape, name in _UNNORMALISED)
        still = [base.scale, base.excess] if base.excess is not None else [base.scale]
        scale, *excess = clone_replace(still, dict(at_zero))
        return base._replace(scale=scale, excess=excess[0] if excess else None)
    place, sd = _OVER_BASE[name]
    location = pt.constant(0.0) if place is None else params[place]
    scale = sd(*params)

    def log_site(residual: Any) -> Any:
        base = -0.5 * (residual / scale) ** 2 - pt.log(scale) - 0.5 * np.log(2.0 * np.pi)
        return _centred_log_density(rv, params, place, residual) - base

    return Base(location, scale, False, (location, log_site))


def _centred_log_density(rv: Any, params: list[Any], place: int | None, residual: Any) -> Any:
    """Log prior density as a function of v - location."""
    centred = list(params)
    if place is not None:
        centred[place] = pt.zeros_like(params[place], dtype="float64")
    # make_node: to call the operation would hide its second output, with a warning.
    moved = rv.owner.op.make_node(rv.owner.inputs[0], residual.shape, *centred).outputs[1]
    value = residual.type(name="residual")
    log_density = conditional_logp({moved: value}, warn_rvs=False)[value]
    [log_density] = clone_replace([log_density], {value: residual})
    return log_density


def _multivariate(mean: Any, covariance: Any, shape: tuple[int, ...]) -> Base:
    """One vector, or a batch of them: then the covariance is block diagonal."""
    if len(shape) == 1 and covariance.ndim == 2:
        return Base(mean, covariance, True)
    size, batch = shape[-1], int(np.prod(shape[:-1]))
    blocks = pt.broadcast_to(covariance, (*shape[:-1], size, size)).reshape((batch, size, size))
    eye = pt.eye(batch)
    wide = eye[:, None, :, None] * blocks[:, :, None, :]  # (batch, size, batch, size)
    return Base(mean, wide.reshape((batch * size, batch * size)), True)


def _quadratic(value: Any, log_density: Any, shape: tuple[int, ...], excessive: bool) -> Base:
    """Mean and covariance of a density whose logarithm is -v'Pv/2 + b'v + c."""
    size = int(np.prod(shape))
    flat = pt.vector("flat", dtype="float64", shape=(size,))
    [total] = clone_replace([log_density.sum()], {value: flat.reshape(shape)})
    slope = pt.grad(total, flat)
    rows = vectorize_graph(slope, {flat: pt.concatenate([pt.zeros((1, size)), pt.eye(size)])})
    force = rows[0]
    precision = force[None, :] - rows[1:]
    # By Cholesky: an inverse by LU loses the small eigenvalues of ICAR's covariance.
    white = pt.linalg.solve_triangular(pt.linalg.cholesky(precision), pt.eye(size), lower=True)
    covariance = white.T @ white
    mean = covariance @ force
    excess = None
    if excessive:
        [at_zero] = clone_replace([total], {flat: pt.zeros((size,))})
        log_det = pt.linalg.slogdet(precision)[1]
        excess = at_zero + 0.5 * (force @ mean - log_det + size * np.log(2.0 * np.pi))
    return Base(mean.reshape(shape), covariance, True, None, excess)
