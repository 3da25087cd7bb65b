"""What can be said of a hyperparameter without looking at how it was written: found by value.

* ARD precisions: the prior precisions of a block ARE the hyperparameter. The evidence can prune
  these.
* Gamma conditionals: with f(α) the log density, α f'(α) = (A - 1) - B α if and only if α given
  everything else is Gamma(A, B). Two evaluations give A and B, a third checks. These can be
  drawn by Gibbs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pytensor.tensor as pt

from ardvark.inference.affine import depends
from ardvark.inference.compile import compile_graph
from ardvark.inference.sites import Array

if TYPE_CHECKING:
    from ardvark.inference.latent import LatentGaussian

__all__ = ["GammaConditional", "ard_precisions", "gamma_conditional", "gamma_conditionals"]

_SLOPES: WeakKeyDictionary[LatentGaussian, Any] = WeakKeyDictionary()


class GammaConditional(NamedTuple):
    """Gamma(shape, rate), elementwise."""

    shape: Array
    rate: Array


def ard_precisions(latent: LatentGaussian) -> dict[str, str]:
    """Hyperparameters that are the precisions of one zero-mean block each: name → block."""
    reading = latent.reading
    if any(reading.dense):
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
    found, rng = {}, np.random.default_rng(0)
    for name in latent.hyper:
        if not _on_half_line(latent, name):
            continue
        conditional = gamma_conditional(latent, name, w, theta)
        slope = _slope_of(latent, name, w, theta)
        three = np.asarray(theta[name]) * rng.uniform(0.5, 2.0, np.shape(theta[name]))
        at_three, (shape, rate) = slope(three), conditional
        # Rounding of two differences; three moves all elements, so it sees a coupling of them too.
        scale = 1e-8 * (1.0 + np.abs(at_three) + np.abs(rate * three))
        straight = np.abs(at_three - (shape - 1.0 - rate * three)) <= scale
        if np.all(straight) and np.all(rate > 0) and np.all(shape > 0):
            found[name] = conditional
    return found


def gamma_conditional(
    latent: LatentGaussian, name: str, w: Array, theta: Mapping[str, Any]
) -> GammaConditional:
    """A and B of a hyperparameter whose conditional is known to be a Gamma: not checked again."""
    slope, value = _slope_of(latent, name, w, theta), np.asarray(theta[name])
    one, two = value * 0.75, value * 1.5
    at_one, at_two = slope(one), slope(two)
    rate = (at_one - at_two) / (two - one)
    return GammaConditional(1.0 + at_one + rate * one, rate)


def _slope_of(
    latent: LatentGaussian, name: str, w: Array, theta: Mapping[str, Any]
) -> Callable[[Array], Array]:
    """α f'(α) as a function of α, everything else as it is."""
    slopes, index = _compiled_slopes(latent), latent.hyper.index(name)
    blocks = list(latent.split(np.asarray(w, float)).values())
    base = dict(zip(latent.hyper, latent.ordered(theta), strict=True))

    def slope(x: Array) -> Array:
        return x * np.asarray(slopes(*blocks, *{**base, name: x}.values())[index])

    return slope


def _compiled_slopes(latent: LatentGaussian) -> Any:
    """Gradient of the joint log density in every hyperparameter; kept with the reading."""
    if latent not in _SLOPES:
        reading = latent.reading
        total = sum((term.sum() for term in reading.terms.values()), pt.constant(0.0))
        slopes = [
            pt.grad(total, v, disconnected_inputs="ignore")
            if v.dtype.startswith("float")
            else pt.zeros_like(v)
            for v in reading.theta
        ]
        _SLOPES[latent] = compile_graph([*reading.w, *reading.theta], slopes)
    return _SLOPES[latent]
