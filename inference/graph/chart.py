"""Hyperparameters θ on PyMC's own unconstrained scale: one flat vector φ.

    θ = g(φ),   p(φ | t) ∝ p(t | θ) p(θ) |dθ/dφ|

Every transform that PyMC has will do: those that change the size (a simplex of k values has k - 1
numbers in φ), those that couple elements (ordered values) and those whose bounds are other
hyperparameters.

| here | meaning |
|---|---|
| `Chart.to_line`, `from_line` | θ → φ and back |
| `Chart.log_jacobian` | log |dθ/dφ| by the transforms themselves, and its gradient |
| `Chart.pull` | gradient in φ from one in θ: a product of a vector with the Jacobian |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.utils import replace_rvs_by_values
from pytensor.graph.replace import clone_replace

from ardvark.errors import UnsupportedPair
from ardvark.inference.pymc_models.compile import built_once, compile_graph, named_tensor
from ardvark.inference.sites.arrays import Array

if TYPE_CHECKING:
    from ardvark.inference.graph.latent import LatentGaussian

__all__ = ["Chart", "Transforms", "discrete_hyper", "improper_hyper"]

_IMPROPER = ("FlatRV", "HalfFlatRV")

Theta = Mapping[str, Any]


def discrete_hyper(latent: LatentGaussian) -> list[str]:
    """Names of the hyperparameters that are whole numbers: they have no real line."""
    model = latent.model
    return [n for n in latent.hyper if model[n].dtype.startswith(("int", "uint", "bool"))]


def improper_hyper(latent: LatentGaussian) -> list[str]:
    """Names of the hyperparameters with a flat prior, whose density has no constant."""
    model = latent.model
    return [n for n in latent.hyper if type(model[n].owner.op).__name__ in _IMPROPER]


class Transforms:
    """The transforms of every hyperparameter of a graph, compiled on first use."""

    def __init__(self, latent: LatentGaussian) -> None:
        self.latent = latent

    def named(self, values: Sequence[Any]) -> dict[str, Array]:
        """Values in the order of `hyper`, by name."""
        return dict(zip(self.latent.hyper, map(np.asarray, values), strict=True))

    @built_once
    def _graphs(self) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Graphs: φ of θ, the inputs φ by name, θ of these, and each one's log |dθ/dφ|."""
        model, theta = self.latent.model, self.latent.reading.theta
        known = {model[n]: v for n, v in zip(self.latent.hyper, theta, strict=True)}
        forward, free, backward, jacobians = list[Any](), list[Any](), list[Any](), list[Any]()
        for name, natural in zip(self.latent.hyper, theta, strict=True):
            rv, transform = model[name], model.rvs_to_transforms[model[name]]
            # A transform may change the length of an axis: no static shape.
            u = named_tensor(f"{name}_free", natural.dtype, (None,) * natural.ndim)
            free.append(u)
            if transform is None:
                forward.append(natural)
                backward.append(pt.specify_shape(u, natural.type.shape))
                continue
            arguments = replace_rvs_by_values(
                list(rv.owner.inputs), rvs_to_values=known, rvs_to_transforms={}
            )
            forward.append(transform.forward(natural, *arguments))
            # A transform's bounds may hold earlier hyperparameters: those are known by now.
            bounds = clone_replace(arguments, dict(zip(theta, backward, strict=False)))
            value = transform.backward(u, *bounds)
            backward.append(pt.specify_shape(value, natural.type.shape))
            jacobians.append(transform.log_jac_det(u, *bounds).sum())
        return forward, free, backward, jacobians

    @built_once
    def forward(self) -> Callable[..., list[Array]]:
        """Free values of θ, in the order of `hyper`."""
        return compile_graph(self.latent.reading.theta, self._graphs[0])

    @built_once
    def backward(self) -> Callable[..., list[Array]]:
        """Natural-scale θ of free values."""
        _, free, backward, _ = self._graphs
        return compile_graph(free, backward)

    @built_once
    def log_jacobian(self) -> Callable[..., list[Array]]:
        """Log |dθ/dφ| of free values, and its gradient in each."""
        _, free, _, jacobians = self._graphs
        total = sum(jacobians, pt.constant(0.0, dtype="float64"))
        return compile_graph(free, [total, *_gradient(total, free)])

    @built_once
    def pull(self) -> Callable[..., list[Array]]:
        """Gradient in each free value from those in θ and the free values."""
        _, free, backward, _ = self._graphs
        along = [b.type(name="along") for b in backward]
        total = sum(((a * b).sum() for a, b in zip(along, backward, strict=True)), pt.constant(0.0))
        return compile_graph([*along, *free], _gradient(total, free))


def _gradient(total: Any, free: list[Any]) -> list[Any]:
    """Gradient of a total in every free value that has one."""
    real = [u for u in free if u.dtype.startswith("float")]
    slopes = pt.grad(total, real, disconnected_inputs="ignore") if real else []
    found = dict(zip(real, slopes, strict=True))
    return [found.get(u, pt.zeros_like(u)) for u in free]


class Chart:
    """The map between θ and φ, for the named hyperparameters; the others are fixed at `known`."""

    def __init__(
        self,
        transforms: Transforms,
        names: Sequence[str] | None = None,
        known: Theta | None = None,
    ) -> None:
        latent = transforms.latent
        self.transforms, self.names = transforms, tuple(latent.hyper if names is None else names)
        discrete = [name for name in discrete_hyper(latent) if name in self.names]
        if discrete:
            raise UnsupportedPair(
                f"the discrete {discrete[0]!r} has no unconstrained scale: it can neither be "
                f"optimised nor integrated here. Fix it with Fixed(...), or use NUTS()."
            )
        known = latent.initial_theta() if known is None else known
        self.held = {n: known[n] for n in latent.hyper if n not in self.names}
        self._free = transforms.named(transforms.forward(*latent.ordered(known)))
        self.size = sum(self._free[name].size for name in self.names)

    @property
    def labels(self) -> list[str]:
        """One name for each element of φ."""
        found = []
        for name in self.names:
            places = np.ndindex(self._free[name].shape)
            found += [name + "".join(f"[{i}]" for i in place) for place in places]
        return found

    def to_line(self, theta: Theta) -> Array:
        """Give φ of natural-scale hyperparameters."""
        return self._flat(self.transforms.forward(*self.transforms.latent.ordered(theta)))

    def from_line(self, phi: Array) -> dict[str, Array]:
        """Give natural-scale θ."""
        return self.transforms.named(self.transforms.backward(*self._split(phi))) | self.held

    def log_jacobian(self, phi: Array) -> tuple[float, Array]:
        """Give log |dθ/dφ| and its gradient in φ."""
        value, *gradient = self.transforms.log_jacobian(*self._split(phi))
        return float(value), self._flat(gradient)

    def pull(self, phi: Array, gradient: Theta) -> Array:
        """Give the gradient in φ of a function whose gradient in θ is known."""
        # What is held has no gradient; at infinity (a pruned weight) it would not be a number.
        along = [
            np.zeros(np.shape(gradient[n])) if n in self.held else np.asarray(gradient[n], float)
            for n in self.transforms.latent.hyper
        ]
        return self._flat(self.transforms.pull(*along, *self._split(phi)))

    def _flat(self, values: Sequence[Any]) -> Array:
        named = self.transforms.named(values)
        return np.concatenate([np.ravel(named[name]) for name in self.names]).astype(float)

    def _split(self, phi: Array) -> list[Array]:
        free, at = dict(self._free), 0
        for name in self.names:
            part = free[name]
            free[name] = np.reshape(phi[at : at + part.size], part.shape).astype(part.dtype)
            at += part.size
        return [free[name] for name in self.transforms.latent.hyper]
