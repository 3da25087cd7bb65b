"""Priors of hyperparameters as sites of φ: log θ, or θ itself where PyMC has no transform.

The Jacobian dθ/dφ is included. The numbers of a prior are those of its operation in the graph, in
PyMC's order.

| prior of θ              | of φ = log θ                                    | site           |
|-------------------------|-------------------------------------------------|----------------|
| Gamma(a, b)             | a φ - b e^φ + a log b - log Γ(a)                | `exponential`  |
| Exponential(b)          | the same with a = 1                             | `exponential`  |
| InverseGamma(a, b)      | -a φ - b e^-φ + a log b - log Γ(a)              | `exponential`  |
| HalfNormal(s)           | φ - e^2φ / 2s² + ½ log(2 / π s²)                | `exponential`  |
| LogNormal(m, s)         | log N(φ; m, s²)                                 | `gaussian`     |
| HalfStudentT(ν, s)      | v = 2φ - log ν s²: ½ log σ(v) + ν/2 log σ(-v)   | `logistic`     |
| HalfCauchy(s)           | the same with ν = 1                             | `logistic`     |
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pymc.pytensorf import rvs_in_graph
from scipy.special import gammaln

from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.known_sites import known as sites_of
from ardvark.inference.known_sites.known import KnownSites
from ardvark.inference.pymc_models.compile import compile_graph, kept_with
from ardvark.inference.sites.arrays import Array

__all__ = ["is_log", "kind_of", "numbers_of_prior", "prior_on_line"]

LOG_2_PI = float(np.log(2 * np.pi))


def is_log(latent: LatentGaussian, name: str) -> bool | None:
    """Whether φ = log θ; False if φ = θ, None for any other transform."""
    transform = latent.model.rvs_to_transforms[latent.model[name]]
    if transform is None:
        return False
    return True if type(transform).__name__ == "LogTransform" else None


def kind_of(latent: LatentGaussian, name: str) -> str:
    """Name of the operation that draws a variable."""
    return type(latent.model[name].owner.op).__name__


def numbers_of_prior(latent: LatentGaussian, name: str) -> list[Array] | None:
    """Numbers of the prior of a hyperparameter, one per element; None if others decide them."""
    rv, size = latent.model[name], int(np.prod(latent.shapes[name]))
    numbers = list(rv.owner.op.dist_params(rv.owner))
    if rvs_in_graph(numbers):
        return None
    values = kept_with(latent, ("prior", name), lambda: compile_graph([], numbers, True))()
    shape = latent.shapes[name]
    return [np.broadcast_to(np.asarray(v, float), shape).reshape(size) for v in values]


def prior_on_line(latent: LatentGaussian, name: str) -> KnownSites | None:
    """Prior of one hyperparameter in φ, a site per element; None if it is of no known family."""
    families = ON_LOG_SCALE if is_log(latent, name) else AS_WRITTEN
    make, numbers = families.get(kind_of(latent, name)), numbers_of_prior(latent, name)
    return None if make is None or numbers is None else make(*numbers)


def _gamma(a: Array, scale: Array) -> KnownSites:
    b = 1.0 / scale
    return sites_of.exponential(a, 1.0, np.log(b), a * np.log(b) - gammaln(a))


def _inverse_gamma(a: Array, b: Array) -> KnownSites:
    return sites_of.exponential(-a, -1.0, np.log(b), a * np.log(b) - gammaln(a))


def _half_normal(loc: Array, s: Array) -> KnownSites | None:
    if np.any(loc != 0):
        return None
    return sites_of.exponential(1.0, 2.0, -np.log(2 * s**2), 0.5 * np.log(2 / (np.pi * s**2)))


def _normal(mean: Array, s: Array) -> KnownSites:
    return sites_of.gaussian(mean, s**-2.0, -np.log(s) - 0.5 * LOG_2_PI)


def _half_student(nu: Array, s: Array) -> KnownSites:
    constant = np.log(2.0) + gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi)
    return sites_of.logistic(0.5, 0.5 * nu, 2.0, -np.log(nu * s**2), constant)


def _half_cauchy(s: Array) -> KnownSites:
    return _half_student(np.ones_like(s), s)


type Family = Callable[..., KnownSites | None]
ON_LOG_SCALE: dict[str, Family] = {
    "GammaRV": _gamma,
    "ExponentialRV": lambda scale: _gamma(np.ones_like(scale), scale),
    "InvGammaRV": _inverse_gamma,
    "HalfNormalRV": _half_normal,
    "LogNormalRV": _normal,
    "HalfStudentTRV": _half_student,
    "HalfCauchyRV": _half_cauchy,
}
AS_WRITTEN: dict[str, Family] = {"NormalRV": _normal}
