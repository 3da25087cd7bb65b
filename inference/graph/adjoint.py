"""Gradients of an evidence with respect to the hyperparameters of a graph.

An approximation knows its evidence as a function of arrays (m0, P0 or K, A, o, sites) and gives
the adjoint of it, `Cotangents`. The graph knows the arrays as functions of θ. One compiled
function contracts the two:

    d log Z / dθ = m̄·dm0/dθ + P̄·dP0/dθ + Ā·dA/dθ + ō·do/dθ + Σ_n c0 dℓ_n + c1 dℓ'_n + c2 dℓ''_n

θ is on its natural scale; `chart` (`chart.py`) leads to one vector on the real line, where
optimisers live, `unconstrain` and `constrain` do so by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph

from ardvark.inference.graph.chart import Chart, Transforms
from ardvark.inference.pymc_models.compile import built_once, compile_graph, differentiable
from ardvark.inference.sites.approximation import Cotangents
from ardvark.inference.sites.arrays import Array

if TYPE_CHECKING:
    from ardvark.inference.graph.latent import LatentGaussian

__all__ = ["Adjoint", "pull_of_sites"]

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
        linked: list[tuple[Callable[..., list[Array]], Array, Array]] = []
        if self.latent.chained:
            bar, map_bar = self._along_chain(theta, bar)
            linked.append((self._pull_means, map_bar, bar.mean))
        if self.latent.eta_depends:
            linked.append((self._pull_map, bar.projection, bar.offset))
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
        for pulled, map_bar, offset_bar in linked:
            for rows, shares in self._map_parts(map_bar, offset_bar):
                parts = pulled(rows, shares, *values)
                total = [np.asarray(t) + p for t, p in zip(total, parts, strict=True)]
        return self._named(total)

    def _along_chain(self, theta: Theta, bar: Cotangents) -> tuple[Cotangents, Array]:
        """Adjoints of c, D and M from those of m0 = T c and K = T D T', T = (I - M)^-1.

        c̄ = T' m̄,    D̄ = T' K̄ T,    M̄ = T' (2 K̄ K + m̄ m0')
        """
        towards, mean, covariance = self.latent.chain(theta)
        assert bar.covariance is not None
        symmetric = 0.5 * (bar.covariance + bar.covariance.T)
        own = towards.T @ symmetric @ towards
        linked = towards.T @ (2.0 * symmetric @ covariance + np.outer(bar.mean, mean))
        return bar._replace(mean=towards.T @ bar.mean, covariance=own), linked

    def _map_parts(self, map_bar: Array, offset_bar: Array) -> Iterator[tuple[Array, Array]]:
        """Weights to push through an affine map, and cotangents: the offset, then the columns.

        Only columns that matter, a few at a time: the gradient of one is of the size of the map.
        """
        columns = np.flatnonzero(map_bar.any(axis=0))
        d = self.latent.n_weights
        yield np.zeros((1, d)), (offset_bar - map_bar.sum(axis=1))[None, :]
        size = max(1, _ELEMENTS // map_bar.size)
        for begin in range(0, len(columns), size):
            part = columns[begin : begin + size]
            rows = np.zeros((len(part), d))
            rows[np.arange(len(part)), part] = 1.0
            yield rows, np.ascontiguousarray(map_bar[:, part].T)

    @built_once
    def _pull_means(self) -> Callable[..., list[Array]]:
        return self._pull_through(self.latent.batched_means)

    @built_once
    def _pull_map(self) -> Callable[..., list[Array]]:
        return self._pull_through(self.latent.batched_eta)

    def _pull_through(self, batched: Callable[[Any], Any]) -> Callable[..., list[Array]]:
        """Gradient of a map of weights in some rows, contracted with shares of its values."""
        theta = self.latent.reading.theta
        rows, shares = (pt.matrix(name, dtype="float64") for name in ("U", "C"))
        total = (batched(rows) * shares).sum()
        gradient = pt.grad(total, theta, disconnected_inputs="ignore")
        return compile_graph([rows, shares, *theta], gradient)

    @built_once
    def _pull(self) -> Callable[..., list[Array]]:
        mean, precision = (pt.vector(name, dtype="float64") for name in ("m", "p"))
        covariance = pt.matrix("K", dtype="float64")
        total = self._prior_part(mean, precision, covariance)
        return pull_of_sites(self.latent, [mean, precision, covariance], total)

    def _prior_part(self, mean: Any, precision: Any, covariance: Any) -> Any:
        latent, reading = self.latent, self.latent.reading
        total = pt.constant(0.0)
        for name, dense, (mu, scale) in zip(
            latent.weights, reading.dense, reading.priors, strict=True
        ):
            block, shape = latent.blocks[name], latent.shapes[name]
            scale = scale.astype("float64")
            if not latent.chained:
                total += (mu * mean[block].reshape(shape)).sum()
            if dense:
                total += (scale * covariance[block, block]).sum()
            elif any(reading.dense) or latent.chained:
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
        inside = {*reading.weights, *(part.name for part in reading.rows)}
        terms = [term for name, term in reading.terms.items() if name not in inside]
        excess = self.latent.excess if self.latent.sparse else reading.excess
        total = sum((term.sum() for term in (*terms, *excess)), pt.constant(0.0))
        gradient = pt.grad(total, reading.theta, disconnected_inputs="ignore")
        return compile_graph(reading.theta, [total, *gradient])

    # Natural scale <-> the real line ----------------------------------------------------------

    @built_once
    def transforms(self) -> Transforms:
        """The transforms of the graph, compiled on first use."""
        return Transforms(self.latent)

    def chart(self, names: Sequence[str] | None = None, known: Theta | None = None) -> Chart:
        """The named hyperparameters (all) as one vector on PyMC's unconstrained scale."""
        return Chart(self.transforms, names, known)

    def unconstrain(self, theta: Theta) -> dict[str, Array]:
        """Natural-scale θ to the real line by name, by the transforms of the graph."""
        return self._named(self.transforms.forward(*self.latent.ordered(theta)))

    def constrain(self, free: Theta) -> dict[str, Array]:
        """Real-line values by name to natural-scale θ."""
        return self._named(self.transforms.backward(*(free[name] for name in self.latent.hyper)))


def pull_of_sites(
    latent: LatentGaussian, inputs: list[Any], total: Any
) -> Callable[..., list[Array]]:
    """Compile the gradient in θ of `total` and of Σ_n c0 ℓ_n + c1 ℓ'_n + c2 ℓ''_n.

    Inputs are those of `total`, then where the sites are looked at, c0, c1 and c2, then θ.
    """
    reading = latent.reading
    at, c0, c1, c2 = (pt.matrix(name, dtype="float64") for name in ("at", "c0", "c1", "c2"))
    with differentiable(f"log p({latent.observed})"):
        if latent.cut_depends:
            value = vectorize_graph(reading.cut, {reading.inside: at})
            first = pt.grad(value.sum(), at)  # rows are separable
            second = pt.grad(first.sum(), at, disconnected_inputs="ignore")
            total += (c0 * value).sum() + (c1 * first).sum() + (c2 * second).sum()
        gradient = pt.grad(total, reading.theta, disconnected_inputs="ignore")
    return compile_graph([*inputs, at, c0, c1, c2, *reading.theta], gradient)
