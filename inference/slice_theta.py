"""One sweep over the hyperparameters of any graph, given the weights.

A θ whose conditional is a Gamma is drawn from it. Every other one is moved on the real line, where
its transform puts it, by a slice in each coordinate (Neal 2003: stepping out, then shrinking).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from ardvark.errors import UnsupportedPair
from ardvark.inference.compile import compile_graph
from ardvark.inference.conjugacy import gamma_conditional
from ardvark.inference.latent import LatentGaussian
from ardvark.inference.sites import Array

__all__ = ["ThetaSweep", "slice_move"]

_WIDTH = 1.0  # of the first bracket, on the real line
_MOST_STEPS = 50  # outwards on each side


def slice_move(
    log_density: Callable[[float], float], x: float, rng: np.random.Generator, width: float = _WIDTH
) -> float:
    """Move x by a slice under the density."""
    level = log_density(x) - rng.standard_exponential()
    low = x - width * rng.random()
    high = low + width
    for _ in range(_MOST_STEPS):
        if log_density(low) < level:
            break
        low -= width
    for _ in range(_MOST_STEPS):
        if log_density(high) < level:
            break
        high += width
    while True:
        new = low + (high - low) * rng.random()
        if log_density(new) >= level:
            return new
        if high - low < 1e-14 * (1.0 + abs(x)):
            return x
        low, high = (new, high) if new < x else (low, new)


class ThetaSweep:
    """Markov moves of θ given the weights."""

    def __init__(self, latent: LatentGaussian) -> None:
        self.latent = latent
        whole = [v.name for v in latent.reading.theta if not v.dtype.startswith("float")]
        if whole:
            raise UnsupportedPair(
                f"hyper=Sampled() cannot move the discrete {whole[0]}. Use pm.sample with "
                f"ardvark.steps for the weights and a step of its own for {whole[0]}."
            )
        self.conjugate = [n for n in latent.hyper if n in latent.conjugate]
        self.others = [n for n in latent.hyper if n not in latent.conjugate]

    def start(self, rng: np.random.Generator) -> dict[str, Array]:
        """Dispersed around the support point: uniform within 1 on the real line."""
        free = self.latent.adjoint.unconstrain(self.latent.initial_theta())
        moved = {name: u + rng.uniform(-1.0, 1.0, np.shape(u)) for name, u in free.items()}
        return self.latent.adjoint.constrain(moved)[0]

    def move(
        self, w: Array, theta: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Array]:
        """Move every hyperparameter once."""
        theta = dict(theta)
        for name in self.conjugate:
            shape, rate = gamma_conditional(self.latent, name, w, theta)
            theta[name] = rng.standard_gamma(shape) / rate
        for name in self.others:
            theta = self._slices(name, w, theta, rng)
        return theta

    def _slices(
        self, name: str, w: Array, theta: dict[str, Array], rng: np.random.Generator
    ) -> dict[str, Array]:
        adjoint = self.latent.adjoint
        free = adjoint.unconstrain(theta)
        blocks = list(self.latent.split(w).values())
        for place in np.ndindex(np.shape(free[name])):

            def log_density(
                value: float,
                place: tuple[int, ...] = place,
                free: dict[str, Array] = free,
            ) -> float:
                moved = np.array(free[name])
                moved[place] = value
                natural, slope = adjoint.constrain({**free, name: moved})
                total = self._log_joint(*blocks, *self.latent.ordered(natural))
                log_jacobian = np.sum([np.sum(np.log(np.abs(slope[n]))) for n in slope])
                total = float(total) + float(log_jacobian)
                return total if np.isfinite(total) else -np.inf

            moved = np.array(free[name])
            moved[place] = slice_move(log_density, float(moved[place]), rng)
            free = {**free, name: moved}
        return adjoint.constrain(free)[0]

    @cached_property
    def _log_joint(self) -> Callable[..., Any]:
        reading = self.latent.reading
        total = sum((term.sum() for term in reading.terms.values()), pt.constant(0.0))
        return compile_graph([*reading.w, *reading.theta], total)
