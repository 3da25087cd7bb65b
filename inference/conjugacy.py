"""What can be said of a hyperparameter without looking at how it was written: found by value.

* ARD precisions: the prior precisions of a block ARE the hyperparameter. The evidence can prune
  these.
* Gamma conditionals: with f(α) the log density, α f'(α) = (A - 1) - B α if and only if α given
  everything else is Gamma(A, B). Two evaluations give A and B, a third checks. These can be
  drawn by Gibbs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pytensor.tensor as pt

from ardvark.inference.affine import depends
from ardvark.inference.compile import compile_graph
from ardvark.inference.sites import Array

if TYPE_CHECKING:
    from ardvark.inference.latent import LatentGaussian

__all__ = ["GammaConditional", "ard_precisions", "gamma_conditionals"]

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
    slopes = _compiled_slopes(latent)
    blocks = list(latent.split(np.asarray(w, float)).values())
    base = dict(zip(latent.hyper, latent.ordered(theta), strict=True))
    found, rng = {}, np.random.default_rng(0)
    for index, (name, value) in enumerate(base.items()):
        if not _on_half_line(latent, name):
            continue

        def slope(x: Array, name: str = name, index: int = index) -> Array:
            moved = {**base, name: x}
            return x * np.asarray(slopes(*blocks, *moved.values())[index])

        one, two, three = (value * rng.uniform(0.5, 2.0, value.shape) for _ in range(3))
        at_one, at_two, at_three = slope(one), slope(two), slope(three)
        rate = (at_one - at_two) / (two - one)
        shape = 1.0 + at_one + rate * one
        # Rounding of two differences; three moves all elements, so it sees a coupling of them too.
        scale = 1e-8 * (1.0 + np.abs(at_three) + np.abs(rate * three))
        straight = np.abs(at_three - (shape - 1.0 - rate * three)) <= scale
        if np.all(straight) and np.all(rate > 0) and np.all(shape > 0):
            found[name] = GammaConditional(shape, rate)
    return found


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
