"""What can be said of a hyperparameter: whose precision it is, whether its conditional is known.

* ARD precisions: the prior precisions of a block ARE the hyperparameter, found by value. The
  evidence can prune these.
* Gamma conditionals: whether α given everything else is Gamma(A, B) is read from the operations of
  its log density f (`gamma_form.py`), for no values could tell. Then α f'(α) = (A - 1) - B α, and
  two evaluations give A and B. These can be drawn by Gibbs.
* Noise: the sd, variance or precision of Gaussian sites that share it, found by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from ardvark.inference.graph.gamma_form import first_other_form
from ardvark.inference.pymc_models.compile import compile_graph, kept_with
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.model import least_noise

if TYPE_CHECKING:
    from ardvark.inference.graph.latent import LatentGaussian

__all__ = [
    "GammaConditional",
    "Noise",
    "ard_precisions",
    "gamma_conditional",
    "gamma_conditionals",
    "noise_of",
]

_POWERS = (1.0, 2.0, -2.0)  # θ = sd ** power: sd, variance, precision
_NOTHING = 1e-14  # of the noise's sd: a mean this near to zero was read off as zero


class GammaConditional(NamedTuple):
    """Gamma(shape, rate), elementwise."""

    shape: Array
    rate: Array


def ard_precisions(latent: LatentGaussian) -> dict[str, str]:
    """Hyperparameters that are the precisions of one zero-mean block each: name → block."""
    reading = latent.reading
    if any(reading.dense) or latent.chained:
        return {}
    start, found = latent.initial_theta(), {}
    for name, variable in zip(latent.hyper, reading.theta, strict=True):
        elsewhere = depends(reading.eta, [variable]) or depends(reading.cut, [variable])
        if elsewhere or not _on_half_line(latent, name):
            continue
        users = [
            block
            for block, pair in zip(latent.weights, reading.priors, strict=True)
            if any(depends(p, [variable]) for p in pair)
        ]
        if len(users) == 1 and _is_precision(latent, name, users[0], start):
            found[name] = users[0]
    return found


def _on_half_line(latent: LatentGaussian, name: str) -> bool:
    """Whether the support is (0, inf): a bounded precision cannot be pruned, its Gamma is cut."""
    transform = latent.model.rvs_to_transforms[latent.model[name]]
    return type(transform).__name__ == "LogTransform"


def _is_precision(latent: LatentGaussian, name: str, block: str, start: dict[str, Array]) -> bool:
    """At two random values the precisions of the block equal the hyperparameter itself."""
    rng = np.random.default_rng(1)
    for _ in range(2):
        moved = start[name] * rng.uniform(0.5, 2.0, start[name].shape)
        mean, precision, _ = latent.prior({**start, name: moved})
        assert precision is not None
        of_block = precision[latent.blocks[block]]
        if of_block.shape != moved.ravel().shape or mean[latent.blocks[block]].any():
            return False
        if not np.allclose(of_block, moved.ravel(), rtol=1e-12, atol=0.0):
            return False
    return True


def gamma_conditionals(
    latent: LatentGaussian, w: Array, theta: Mapping[str, Any]
) -> dict[str, GammaConditional]:
    """Hyperparameters whose conditional given weights and all else is Gamma(A, B)."""
    found = {}
    for name, variable in zip(latent.hyper, latent.reading.theta, strict=True):
        if not _on_half_line(latent, name) or not _is_gamma(latent, variable):
            continue
        shape, rate = conditional = gamma_conditional(latent, name, w, theta)
        if np.all(rate > 0) and np.all(shape > 0):
            found[name] = conditional
    return found


def _is_gamma(latent: LatentGaussian, variable: Any) -> bool:
    """Whether every term that contains the variable has the form of a Gamma; no potential may."""
    potentials = {potential.name for potential in latent.model.potentials}
    terms = {n: t for n, t in latent.reading.terms.items() if depends(t, [variable])}
    if potentials & set(terms):
        return False
    return all(first_other_form(term, variable) is None for term in terms.values())


def gamma_conditional(
    latent: LatentGaussian, name: str, w: Array, theta: Mapping[str, Any]
) -> GammaConditional:
    """A and B of a hyperparameter whose conditional is known to be a Gamma."""
    slope, value = _slope_of(latent, name, w, theta), np.asarray(theta[name])
    one, two = value * 0.75, value * 1.5
    at_one, at_two = slope(one), slope(two)
    rate = (at_one - at_two) / (two - one)
    return GammaConditional(1.0 + at_one + rate * one, rate)


def _slope_of(
    latent: LatentGaussian, name: str, w: Array, theta: Mapping[str, Any]
) -> Callable[[Array], Array]:
    """α f'(α) as a function of α, everything else as it is."""
    slope, place = _compiled_slope(latent, name), latent.hyper.index(name)
    blocks, values = latent.in_blocks(np.asarray(w, float)).values(), latent.ordered(theta)

    def weighted(x: Array) -> Array:
        return x * np.asarray(slope(*blocks, *values[:place], x, *values[place + 1 :]))

    return weighted


def _compiled_slope(latent: LatentGaussian, name: str) -> Any:
    """Gradient of the joint log density in one hyperparameter; kept with the reading."""

    def compiled() -> Any:
        reading = latent.reading
        variable = reading.theta[latent.hyper.index(name)]
        terms = [term for term in reading.terms.values() if depends(term, [variable])]
        slope = pt.grad(sum((term.sum() for term in terms), pt.constant(0.0)), variable)
        return compile_graph([*reading.w, *reading.theta], slope)

    return kept_with(latent, ("slope", name), compiled)


class Noise(NamedTuple):
    """The hyperparameter that is the noise ("": it is fixed), as a power of its sd.

    The target stands here too: a noise near zero hides it, and even that the sites are Gaussian.
    """

    name: str
    power: float
    fixed_sd: float
    target: Array

    def sd(self, theta: Mapping[str, Any]) -> float:
        """The noise at these hyperparameters."""
        return self.fixed_sd if not self.name else float(theta[self.name]) ** (1 / self.power)

    def value_of(self, sd: Array) -> Array:
        """The hyperparameter at a noise sd."""
        return np.asarray(sd**self.power)

    def log_slope(self, sd: Array) -> Array:
        """Log of the derivative of the hyperparameter by the sd."""
        return np.asarray(np.log(abs(self.power)) + (self.power - 1.0) * np.log(sd))

    @property
    def least(self) -> Array:
        """The hyperparameter where the noise has its least sd."""
        return np.array(least_noise(self.target) ** self.power)


def noise_of(latent: LatentGaussian, rest: tuple[str, ...]) -> Noise | None:
    """The noise parameter of the graph, or None if its sites are not Gaussian with one noise."""
    start = latent.initial_theta()
    inputs = dict(zip(latent.hyper, latent.reading.theta, strict=True))
    names = [n for n in rest if depends(latent.reading.cut, [inputs[n]])]
    first = _mean_and_sd(latent, start)
    if first is None or len(names) > 1:
        return None
    mean, sd = first
    target = np.where(np.abs(mean) > _NOTHING * sd, mean, 0.0)
    if not names:
        return Noise("", 1.0, sd, target)
    [name] = names
    moved = [start[name] * factor for factor in (0.7, 1.3)]
    found = [_mean_and_sd(latent, {**start, name: value}) for value in moved]
    for power in _POWERS:
        pairs = zip(found, moved, strict=True)
        if all(at is not None and _is_power(at, value, power, mean) for at, value in pairs):
            return Noise(name, power, sd, target)
    return None


def _mean_and_sd(latent: LatentGaussian, theta: Mapping[str, Any]) -> tuple[Array, float] | None:
    sites = latent.sites(theta)
    if not isinstance(sites, GaussianSites):
        return None
    precision = np.asarray(sites.precision)
    same = np.allclose(precision, precision.flat[0], rtol=1e-9)
    return (sites.mean, float(precision.flat[0] ** -0.5)) if same else None


def _is_power(found: tuple[Array, float], value: Any, power: float, target: Array) -> bool:
    """Whether a value is this power of the sd that it gives, and leaves the target alone."""
    mean, sd = found
    still = np.allclose(mean, target, rtol=1e-6, atol=1e-6 * sd)
    return np.ndim(value) == 0 and still and bool(np.isclose(sd**power, value, rtol=1e-9))
