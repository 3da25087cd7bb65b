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
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.graph.conjugacy import Noise, noise_of
from ardvark.inference.graph.gamma_form import first_other_form
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.pymc_models.compile import compile_graph
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites, Sites
from ardvark.inference.sites.model import least_noise
from ardvark.inference.vb.blocks import Gamma
from ardvark.inference.vb.linear import PrecisionPlan
from ardvark.inference.vb.rows import FreeNoise, GaussianRows, Rows, bounded

__all__ = ["Roles", "fixed_plan", "log_prior", "read_roles", "rows_of"]

_CONSTANT = 1e-12  # sd of a target, relative to its size: less is rounding
_NOTHING = 1e-14  # of the noise's sd: a mean this near to zero was read off as zero
_INSTEAD = "Use EP(), Laplace() or NUTS(), or fix it: VB(hyper=Fixed({...}))"


class Roles(NamedTuple):
    """Every hyperparameter in its place."""

    plan: PrecisionPlan
    groups: dict[str, slice]  # name of the precisions -> their groups in the plan
    noise: Noise | None
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


def rows_of(sites: Sites, n_rows: int, roles: Roles, latent: LatentGaussian) -> Rows:
    """Give the likelihood its bound, with values to start from; refuse one without."""
    rows = bounded(sites, n_rows)
    if rows is None:
        raise UnsupportedPair(
            "vb: no bound is known for this likelihood; there is one for Gaussian noise, logistic "
            "and probit classes. Use EP(), Laplace() or NUTS(), which take any likelihood."
        )
    found = roles.noise
    if found is None or not isinstance(sites, GaussianSites):
        return rows
    target = sites.mean
    if np.all(np.abs(target) <= _NOTHING / np.sqrt(sites.precision)):
        raise InputError(
            "vb: the target is zero everywhere: its noise has no scale. Fix it (noise=...)."
        )
    size = float(target @ target)
    squares = float(np.sum((target - np.mean(target)) ** 2))
    if squares <= _CONSTANT**2 * size:
        squares = size
    of_value = log_prior(latent, found.name)
    scale = float(np.sqrt(squares / len(target)))
    noise = FreeNoise.around(
        lambda s: of_value(found.value_of(s)) + found.log_slope(s),
        scale,
        len(target),
        squares,
        least_noise(target),
    )
    return GaussianRows(target, noise)


def log_prior(latent: LatentGaussian, name: str) -> Callable[[Array], Array]:
    """Log prior density of a scalar hyperparameter, at many values."""
    variable, term, others = _prior_term(latent, name)
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


def _noise(latent: LatentGaussian, name: str, known: Noise | None) -> Noise:
    what = f"vb: {name} is part of the likelihood"
    if known is not None or latent.shapes[name] != ():
        raise UnsupportedPair(f"{what}, and is not its only scalar. {_INSTEAD}.")
    if found := noise_of(latent, (name,)):
        return found
    raise UnsupportedPair(
        f"{what}, but is neither sd, precision nor variance of Gaussian noise. {_INSTEAD}."
    )


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
    """Shape and rate of a Gamma prior, x d log p(x) / dx = (a - 1) - b x, from two points."""
    variable, term, others = _prior_term(latent, name)
    rng, start = np.random.default_rng(5), latent.initial_theta()[name]
    first, _, last = (start * rng.uniform(0.5, 2.0, start.shape) * k for k in (0.1, 1.0, 10.0))
    if not (depends(term, others) or first_other_form(term, variable)):
        slope = compile_graph([variable], pt.grad(term.sum(), variable))
        low, high = (x * np.asarray(slope(x)) for x in (first, last))
        rate = (low - high) / (last - first)
        shape = 1.0 + low + rate * first
        if np.all(rate > 0) and np.all(shape > 0):
            return Gamma(np.ravel(shape), np.ravel(rate))
    raise UnsupportedPair(
        f"vb: the prior of {name}, a precision of weights, is not Gamma. {_INSTEAD}."
    )


def _prior_term(latent: LatentGaussian, name: str) -> tuple[Any, Any, list[Any]]:
    """A hyperparameter, its log prior density, and all other hyperparameters."""
    reading = latent.reading
    variable = reading.theta[latent.hyper.index(name)]
    return variable, reading.terms[name], [v for v in reading.theta if v is not variable]
