"""One sweep over the hyperparameters of any graph, given the weights.

A θ whose conditional is a Gamma is drawn from it. Every other one is moved on the real line, where
its transform puts it, by a slice in each coordinate (Neal 2003: stepping out, then shrinking).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.utils import ParameterValueError, replace_rvs_by_values
from pytensor.graph.replace import clone_replace

from ardvark.errors import UnsupportedPair
from ardvark.inference.graph.conjugacy import gamma_conditional
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.pymc_models.compile import compile_graph, named_tensor
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.sites.arrays import Array

__all__ = ["ThetaSweep", "slice_move"]

_WIDTH = 1.0  # of the first bracket, on the real line
_MOST_STEPS = 50  # outwards on each side
_STARTS = 1000  # tried before none is found that the priors allow


def slice_move(log_density: Callable[[float], float], x: float, rng: np.random.Generator) -> float:
    """Move x by a slice under the density."""
    level = log_density(x) - rng.standard_exponential()
    low = x - _WIDTH * rng.random()
    high = low + _WIDTH
    for _ in range(_MOST_STEPS):
        if log_density(low) < level:
            break
        low -= _WIDTH
    for _ in range(_MOST_STEPS):
        if log_density(high) < level:
            break
        high += _WIDTH
    while True:
        new = low + (high - low) * rng.random()
        if log_density(new) >= level:
            return new
        if high - low < 1e-14 * (1.0 + abs(x)):
            return x
        low, high = (new, high) if new < x else (low, new)


class _Line:
    """One hyperparameter on the real line, where its transform puts it, all else held."""

    def __init__(self, latent: LatentGaussian, name: str) -> None:
        reading, model = latent.reading, latent.model
        self.place = latent.hyper.index(name)
        theta = reading.theta[self.place]
        known = {model[n]: v for n, v in zip(latent.hyper, reading.theta, strict=True)}
        transform = model.rvs_to_transforms[model[name]]
        u = named_tensor(f"{name}_free", theta.dtype, (None,) * theta.ndim)
        free, natural, log_jacobian = theta, u, pt.constant(0.0)
        if transform is not None:
            arguments = replace_rvs_by_values(
                list(model[name].owner.inputs), rvs_to_values=known, rvs_to_transforms={}
            )
            free = transform.forward(theta, *arguments)
            natural = transform.backward(u, *arguments)
            log_jacobian = transform.log_jac_det(u, *arguments).sum()
        terms = [term for term in reading.terms.values() if depends(term, [theta])]
        total = sum((term.sum() for term in terms), pt.constant(0.0))
        natural = pt.specify_shape(natural, theta.type.shape)
        total = clone_replace(total, {theta: natural}) + log_jacobian
        others = [v for v in reading.theta if v is not theta]
        self.free = compile_graph(reading.theta, free)
        self.natural = compile_graph([u, *others], natural)
        self.log_density = compile_graph([u, *reading.w, *others], total)


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
        self.lines = {n: _Line(latent, n) for n in latent.hyper if n not in latent.conjugate}

    def start(self, rng: np.random.Generator) -> dict[str, Array]:
        """Dispersed around the support point: uniform within 1 on the real line."""
        adjoint = self.latent.adjoint
        free = adjoint.unconstrain(self.latent.initial_theta())
        for _ in range(_STARTS):
            moved = {name: u + rng.uniform(-1.0, 1.0, np.shape(u)) for name, u in free.items()}
            theta = adjoint.constrain(moved)
            if not self.lines or np.isfinite(adjoint.log_prior(theta)[0]):
                return theta
        raise UnsupportedPair(
            f"hyper=Sampled(): none of {_STARTS} starts around the support point of "
            f"{', '.join(self.latent.hyper)} is possible under their priors and potentials. Give "
            f"them an initval= where the model allows one."
        )

    def move(
        self, w: Array, theta: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Array]:
        """Move every hyperparameter once."""
        theta = dict(theta)
        for name in self.conjugate:
            shape, rate = gamma_conditional(self.latent, name, w, theta)
            theta[name] = rng.standard_gamma(shape) / rate
        for name, line in self.lines.items():
            theta[name] = self._slices(line, w, theta, rng)
        return theta

    def _slices(
        self, line: _Line, w: Array, theta: dict[str, Array], rng: np.random.Generator
    ) -> Array:
        values, blocks = self.latent.ordered(theta), self.latent.in_blocks(w).values()
        others = values[: line.place] + values[line.place + 1 :]
        free = np.array(line.free(*values))
        for place in np.ndindex(free.shape):

            def log_density(value: float, place: tuple[int, ...] = place) -> float:
                moved = free.copy()
                moved[place] = value
                try:
                    total = float(line.log_density(moved, *blocks, *others))
                except ParameterValueError:  # rounded onto the edge of what is allowed
                    return -np.inf
                return total if np.isfinite(total) else -np.inf

            free[place] = slice_move(log_density, float(free[place]), rng)
        return np.asarray(line.natural(free, *others))
