"""Gradients of an evidence with respect to the hyperparameters of a graph.

An approximation knows its evidence as a function of arrays (m0, P0 or K, A, o, sites) and gives
the adjoint of it, `Cotangents`. The graph knows the arrays as functions of θ. One compiled
function contracts the two:

    d log Z / dθ = m̄·dm0/dθ + P̄·dP0/dθ + Ā·dA/dθ + ō·do/dθ + Σ_n c0 dℓ_n + c1 dℓ'_n + c2 dℓ''_n

θ is on its natural scale; `unconstrain` and `constrain` lead to the real line, where optimisers
live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.utils import replace_rvs_by_values
from pytensor.graph.replace import clone_replace, vectorize_graph

from ardvark.inference.graph.affine import depends
from ardvark.inference.graph.compile import built_once, compile_graph
from ardvark.inference.sites.approximation import Cotangents
from ardvark.inference.sites.likelihoods import Array

if TYPE_CHECKING:
    from ardvark.inference.graph.latent import LatentGaussian

__all__ = ["Adjoint"]

_ELEMENTS = 10_000_000  # of a gradient at a time: 80 MB

Theta = Mapping[str, Any]


class Adjoint:
    """From cotangents of the arrays to gradients in θ."""

    def __init__(self, latent: LatentGaussian) -> None:
        self.latent = latent

    def _named(self, values: list[Array]) -> dict[str, Array]:
        return dict(zip(self.latent.hyper, map(np.asarray, values), strict=True))

    def pull(self, theta: Theta, cotangents: Cotangents) -> dict[str, Array]:
        """Gradient in θ (natural scale) from the adjoint in the arrays."""
        bar, values = cotangents, self.latent.ordered(theta)
        total = self._pull(
            bar.mean,
            np.zeros(0) if bar.precision is None else bar.precision,
            np.zeros((0, 0)) if bar.covariance is None else bar.covariance,
            bar.site_eta,
            bar.site_value,
            bar.site_first,
            bar.site_second,
            *values,
        )
        if self.latent.eta_depends:
            for rows, shares in self._map_parts(bar):
                parts = self._pull_map(rows, shares, *values)
                total = [np.asarray(t) + p for t, p in zip(total, parts, strict=True)]
        return self._named(total)

    def _map_parts(self, bar: Cotangents) -> Iterator[tuple[Array, Array]]:
        """Weights to push through eta and the cotangent of each: the offset, then the columns of A.

        Only columns that matter, a few at a time: the gradient of one is of the size of A.
        """
        columns = np.flatnonzero(bar.projection.any(axis=0))
        d = self.latent.n_weights
        yield np.zeros((1, d)), (bar.offset - bar.projection.sum(axis=1))[None, :]
        size = max(1, _ELEMENTS // bar.projection.size)
        for begin in range(0, len(columns), size):
            part = columns[begin : begin + size]
            rows = np.zeros((len(part), d))
            rows[np.arange(len(part)), part] = 1.0
            yield rows, np.ascontiguousarray(bar.projection[:, part].T)

    @built_once
    def _pull_map(self) -> Callable[..., list[Array]]:
        theta = self.latent.reading.theta
        rows, shares = (pt.matrix(name, dtype="float64") for name in ("U", "C"))
        total = (self.latent.batched_eta(rows) * shares).sum()
        gradient = pt.grad(total, theta, disconnected_inputs="ignore")
        return compile_graph([rows, shares, *theta], gradient)

    @built_once
    def _pull(self) -> Callable[..., list[Array]]:
        reading = self.latent.reading
        mean, precision = (pt.vector(name, dtype="float64") for name in ("m", "p"))
        covariance, at, c0, c1, c2 = (
            pt.matrix(name, dtype="float64") for name in ("K", "at", "c0", "c1", "c2")
        )
        total = self._prior_part(mean, precision, covariance)
        if depends(reading.cut, reading.theta):
            value = vectorize_graph(reading.cut, {reading.inside: at})
            first = pt.grad(value.sum(), at)  # rows are separable
            second = pt.grad(first.sum(), at, disconnected_inputs="ignore")
            total += (c0 * value).sum() + (c1 * first).sum() + (c2 * second).sum()
        inputs = [mean, precision, covariance, at, c0, c1, c2]
        gradient = pt.grad(total, reading.theta, disconnected_inputs="ignore")
        return compile_graph([*inputs, *reading.theta], gradient)

    def _prior_part(self, mean: Any, precision: Any, covariance: Any) -> Any:
        latent, reading = self.latent, self.latent.reading
        total = pt.constant(0.0)
        for name, dense, (mu, scale) in zip(
            latent.weights, reading.dense, reading.priors, strict=True
        ):
            block, shape = latent.blocks[name], latent.shapes[name]
            scale = scale.astype("float64")
            total += (mu * mean[block].reshape(shape)).sum()
            if dense:
                total += (scale * covariance[block, block]).sum()
            elif any(reading.dense):
                total += (scale**2 * pt.diagonal(covariance)[block].reshape(shape)).sum()
            else:
                total += (scale**-2 * precision[block].reshape(shape)).sum()
        return total

    def log_prior(self, theta: Theta) -> tuple[float, dict[str, Array]]:
        """Hyperprior log p(θ) on the natural scale, and its gradient."""
        value, *gradient = self._log_prior(*self.latent.ordered(theta))
        return float(value), self._named(gradient)

    @built_once
    def _log_prior(self) -> Callable[..., list[Array]]:
        reading = self.latent.reading
        inside = (*reading.weights, reading.observed)
        terms = [term for name, term in reading.terms.items() if name not in inside]
        total = sum((term.sum() for term in terms), pt.constant(0.0))
        gradient = pt.grad(total, reading.theta, disconnected_inputs="ignore")
        return compile_graph(reading.theta, [total, *gradient])

    # Natural scale <-> the real line ----------------------------------------------------------

    def unconstrain(self, theta: Theta) -> dict[str, Array]:
        """Natural-scale θ to the real line, by the transforms of the graph."""
        return self._named(self._chart[0](*self.latent.ordered(theta)))

    def constrain(self, free: Theta) -> tuple[dict[str, Array], dict[str, Array]]:
        """Real-line values to natural-scale θ, and the elementwise derivative dθ/du."""
        n = len(self.latent.hyper)
        out = self._chart[1](*(free[name] for name in self.latent.hyper))
        return self._named(out[:n]), self._named(out[n:])

    @built_once
    def _chart(self) -> tuple[Callable[..., list[Array]], Callable[..., list[Array]]]:
        model, theta = self.latent.model, self.latent.reading.theta
        known = {model[n]: v for n, v in zip(self.latent.hyper, theta, strict=True)}
        forward: list[Any] = []
        backward: list[Any] = []
        free = []
        for name, natural in zip(self.latent.hyper, theta, strict=True):
            rv, u = model[name], natural.type(name=f"{name}_free")
            transform = model.rvs_to_transforms[rv]
            arguments = replace_rvs_by_values(
                list(rv.owner.inputs), rvs_to_values=known, rvs_to_transforms={}
            )
            free.append(u)
            forward.append(natural if transform is None else transform.forward(natural, *arguments))
            # A transform's bounds may hold earlier hyperparameters: those are known by now.
            bounds = clone_replace(arguments, dict(zip(theta, backward, strict=False)))
            backward.append(u if transform is None else transform.backward(u, *bounds))
        slopes = [
            pt.grad(b.sum(), u) if u.dtype.startswith("float") else pt.zeros_like(u)
            for b, u in zip(backward, free, strict=True)
        ]
        return compile_graph(theta, forward), compile_graph(free, [*backward, *slopes])
