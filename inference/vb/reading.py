"""What VB must know of a graph: the block of q that each hyperparameter belongs to.

| the hyperparameter is                       | its block                                        |
|---------------------------------------------|--------------------------------------------------|
| a precision of weights, with a Gamma prior  | `Gamma`, conjugate: found and checked by value   |
| the sd, precision or variance of the noise  | `FreeNoise`, whatever its prior                  |
| one scale in the predictor (a kernel width) | a point, searched for outside                    |

Anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.pymc_models.compile import compile_graph
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites, LogitSites, ProbitSites, Sites
from ardvark.inference.sites.model import least_noise
from ardvark.inference.vb.blocks import Gamma
from ardvark.inference.vb.linear import PrecisionPlan
from ardvark.inference.vb.rows import (
    FixedRows,
    FreeNoise,
    GaussianRows,
    LogisticRows,
    Parabola,
    ProbitRows,
    Rows,
)

__all__ = ["NoiseReading", "Roles", "fixed_plan", "log_prior", "read_roles", "rows_of"]

_CONSTANT = 1e-12  # sd of a target, relative to its size: less is rounding
_NOTHING = 1e-14  # of the noise's sd: a mean this near to zero was read off as zero
_INSTEAD = "Use EP(), Laplace() or NUTS(), or fix it: VB(hyper=Fixed({...}))"
# sd of the noise -> value of the hyperparameter, and log of its derivative
_SCALES: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "sd": (lambda s: s, np.zeros_like),
    "precision": (lambda s: s**-2.0, lambda s: np.log(2.0) - 3.0 * np.log(s)),
    "variance": (lambda s: s**2.0, lambda s: np.log(2.0 * s)),
}


class NoiseReading(NamedTuple):
    """The noise's hyperparameter, and what of the noise it is."""

    name: str
    kind: str  # in _SCALES

    def value_of(self, sigma: Array) -> Array:
        """Value of the hyperparameter at this noise sd."""
        return _SCALES[self.kind][0](sigma)


class Roles(NamedTuple):
    """Every hyperparameter in its place."""

    plan: PrecisionPlan
    groups: dict[str, slice]  # name of the precisions -> their groups in the plan
    noise: NoiseReading | None
    scale: str | None  # in the predictor


def read_roles(latent: LatentGaussian) -> Roles:
    """Give each hyperparameter its block, or refuse it."""
    reading = latent.reading
    if any(reading.dense):
        raise UnsupportedPair(
            "vb: the weights are correlated a priori (MvNormal), and its blocks are for "
            "independent weights. Use Laplace() or EP()."
        )
    if latent.chained:
        raise UnsupportedPair(
            "vb: the prior mean of a weight holds another weight, so they are correlated a priori, "
            "and its blocks are for independent weights. Use Laplace() or EP()."
        )
    noise, scale, precisions = None, None, []
    for name, variable in zip(latent.hyper, reading.theta, strict=True):
        in_eta, in_noise = (depends(g, [variable]) for g in (reading.eta, reading.cut))
        in_prior = any(depends(p, [variable]) for pair in reading.priors for p in pair)
        if in_eta + in_noise + in_prior != 1:
            raise UnsupportedPair(
                f"vb: {name} is part of {in_eta + in_noise + in_prior} of predictor, likelihood "
                f"and prior of the weights; its blocks are for one of them. {_INSTEAD}."
            )
        if in_prior:
            precisions.append(name)
        elif in_noise:
            noise = _noise(latent, name, noise)
        elif scale is None and latent.shapes[name] == ():
            scale = name
        else:
            raise UnsupportedPair(
                f"vb: {name} is one of several scales in the predictor, and only one can be "
                f"searched for by the ELBO. Fix them (RBF(width=...)), or use Laplace()."
            )
    plan, groups = _precisions(latent, precisions)
    return Roles(plan, groups, noise, scale)


def fixed_plan(precision: Array) -> PrecisionPlan:
    """Plan of weights whose precisions are all given."""
    nothing = Gamma(np.empty(0), np.empty(0))
    return PrecisionPlan(np.full(len(precision), -1), precision, nothing)


def rows_of(sites: Sites, roles: Roles, latent: LatentGaussian) -> Rows:
    """Give the likelihood its bound, with values to start from; refuse one without."""
    if isinstance(sites, LogitSites):
        return LogisticRows(sites.sign, np.ones_like(sites.sign))
    if isinstance(sites, ProbitSites):
        return ProbitRows(sites.sign, np.zeros_like(sites.sign))
    if not isinstance(sites, GaussianSites):
        raise UnsupportedPair(
            "vb: no bound is known for this likelihood; there is one for Gaussian noise, logistic "
            "and probit classes. Use EP(), Laplace() or NUTS(), which take any likelihood."
        )
    if roles.noise is None:
        constant = sites.log_scale - 0.5 * sites.precision * sites.mean**2
        return FixedRows(Parabola(constant, sites.precision * sites.mean, sites.precision))
    target = sites.mean
    if np.all(np.abs(target) <= _NOTHING / np.sqrt(sites.precision)):
        raise InputError(
            "vb: the target is zero everywhere: its noise has no scale. Fix it (noise=...)."
        )
    size = float(target @ target)
    squares = float(np.sum((target - np.mean(target)) ** 2))
    if squares <= _CONSTANT**2 * size:
        squares = size
    value_of, log_slope = _SCALES[roles.noise.kind]
    of_value = log_prior(latent, roles.noise.name)
    scale = float(np.sqrt(squares / len(target)))
    noise = FreeNoise.around(
        lambda s: of_value(value_of(s)) + log_slope(s),
        scale,
        len(target),
        squares,
        least_noise(target),
    )
    return GaussianRows(target, noise)


def log_prior(latent: LatentGaussian, name: str) -> Callable[[Array], Array]:
    """Log prior density of a scalar hyperparameter, at many values."""
    reading = latent.reading
    variable = reading.theta[latent.hyper.index(name)]
    term = reading.terms[name]
    others = [v for v in reading.theta if v is not variable]
    if depends(term, others):
        raise UnsupportedPair(
            f"vb: the prior of {name} depends on other hyperparameters. {_INSTEAD}."
        )
    values = pt.vector(f"{name}_values", dtype=variable.dtype)
    function = compile_graph([values], vectorize_graph(term, {variable: values}))

    def evaluate(points: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(np.asarray(points, float)), float)

    return evaluate


def _noise(latent: LatentGaussian, name: str, known: NoiseReading | None) -> NoiseReading:
    """Find by value whether the hyperparameter is sd, precision or variance of the noise."""
    what = f"vb: {name} is part of the likelihood"
    if known is not None or latent.shapes[name] != ():
        raise UnsupportedPair(f"{what}, and is not its only scalar. {_INSTEAD}.")
    start = latent.initial_theta()
    found = []
    for value in (0.7, 1.3, 2.1):
        sites = latent.sites({**start, name: np.asarray(value)})
        if not isinstance(sites, GaussianSites):
            raise UnsupportedPair(f"{what}, which is not Gaussian noise. {_INSTEAD}.")
        found.append((value, sites))
    for kind, (value_of, _) in _SCALES.items():
        if all(
            np.allclose(value_of(s.precision**-0.5), v, rtol=1e-6)
            and np.allclose(s.mean, found[0][1].mean, atol=1e-6)
            for v, s in found
        ):
            return NoiseReading(name, kind)
    raise UnsupportedPair(f"{what}, but is neither sd, precision nor variance of it. {_INSTEAD}.")


def _precisions(latent: LatentGaussian, names: list[str]) -> tuple[PrecisionPlan, dict[str, slice]]:
    """Match weights and precisions by value, and read the Gamma hyperpriors off the graph."""
    start, rng = latent.initial_theta(), np.random.default_rng(4)
    given = latent.prior(start)[1]
    assert given is not None
    group, shapes, rates = np.full(latent.n_weights, -1), list[Array](), list[Array]()
    groups, at = dict[str, slice](), 0
    for name in names:
        moved = start[name] * rng.uniform(0.5, 2.0, start[name].shape)
        precision = latent.prior({**start, name: moved})[1]
        assert precision is not None
        changed = np.flatnonzero(~np.isclose(precision, given, rtol=1e-12, atol=0.0))
        match = np.isclose(precision[changed, None], moved.ravel()[None], rtol=1e-12, atol=0.0)
        if not match.any(axis=1).all():
            raise UnsupportedPair(
                f"vb: {name} is part of the prior of the weights, but not their precision itself "
                f"(as in sigma=alpha**-0.5). {_INSTEAD}."
            )
        size = moved.size
        group[changed] = at + match.argmax(axis=1)
        groups[name] = slice(at, at + size)
        prior = _gamma_prior(latent, name)
        shapes.append(prior.shape)
        rates.append(prior.rate)
        at += size
    empty = [np.empty(0)]
    prior = Gamma(np.concatenate(shapes or empty), np.concatenate(rates or empty))
    return PrecisionPlan(group, given, prior), groups


def _gamma_prior(latent: LatentGaussian, name: str) -> Gamma:
    """Shape and rate of a Gamma prior: x d log p(x) / dx = (a - 1) - b x at three points."""
    reading = latent.reading
    variable = reading.theta[latent.hyper.index(name)]
    term = reading.terms[name]
    refusal = f"vb: the prior of {name}, a precision of weights, is not Gamma. {_INSTEAD}."
    if depends(term, [v for v in reading.theta if v is not variable]):
        raise UnsupportedPair(refusal)
    slope = compile_graph([variable], pt.grad(term.sum(), variable))
    rng, start = np.random.default_rng(5), latent.initial_theta()[name]
    points = [start * rng.uniform(0.5, 2.0, start.shape) * k for k in (0.1, 1.0, 10.0)]
    low, middle, high = (x * np.asarray(slope(x)) for x in points)
    rate = (low - high) / (points[2] - points[0])
    shape = 1.0 + low + rate * points[0]
    straight = np.abs(middle - (shape - 1.0 - rate * points[1])) <= 1e-9 * (1.0 + np.abs(middle))
    if not (np.all(straight) and np.all(rate > 0) and np.all(shape > 0)):
        raise UnsupportedPair(refusal)
    return Gamma(np.ravel(shape), np.ravel(rate))
