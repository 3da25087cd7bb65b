"""What was read of a graph, compiled: every function when it is first needed.

The data are read at call time, so `pm.set_data` needs no new compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from ardvark.errors import UnsupportedPair
from ardvark.inference.graph.parts import Reading
from ardvark.inference.pymc_models.compile import (
    built_once,
    compile_graph,
    differentiable,
    named_tensor,
)
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.sites.arrays import Array

if TYPE_CHECKING:
    from ardvark.inference.graph.sparse import SparseReading

__all__ = ["Compiled"]


class Compiled:
    """The functions of a reading, and where each block stands among the weights."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        first = reading.rows[0]
        self.predictor = first.predictor or "the predictor"
        self.observed = first.name
        self.weights, self.hyper = reading.weights, reading.hyper
        self.eta_depends = depends(reading.eta, reading.theta)
        self.cut_depends = depends(reading.cut, reading.theta)
        # Whether the prior mean of a block holds another: the blocks are a chain.
        self.chained = any(depends(mean, reading.w) for mean, _ in reading.priors)
        self.shapes = {name: np.shape(value) for name, value in reading.start.items()}
        for name, line in reading.lines.items():
            self.shapes[name] = tuple(int(n) for n in line.free.type.shape)
        stops = np.cumsum([int(np.prod(self.shapes[n])) for n in self.weights]).tolist()
        starts = [0, *stops[:-1]]
        self.blocks = {n: slice(*ab) for n, *ab in zip(self.weights, starts, stops, strict=True)}
        self.n_weights: int = stops[-1]
        self.sparse: SparseReading | None = None

    @built_once
    def _observed_value(self) -> Callable[[], Array]:
        return compile_graph([], self.reading.rows[0].observed_value)

    @built_once
    def _eta_data(self) -> list[Any]:
        return [v for v in ancestors([self.reading.eta]) if isinstance(v, SharedVariable)]

    @built_once
    def _site_data(self) -> list[Any]:
        return [v for v in ancestors([self.reading.cut]) if isinstance(v, SharedVariable)]

    @built_once
    def _projection_depends(self) -> bool:
        """Whether A itself moves with θ, and not only the offset."""
        rows = pt.grad(self.reading.eta.sum(), self.reading.w, disconnected_inputs="ignore")
        return any(depends(row, self.reading.theta) for row in rows)

    @built_once
    def _base(self) -> Callable[..., list[Array]]:
        params = [p for pair in self.reading.priors for p in pair]
        return compile_graph(self.reading.theta, clone_replace(params, self._at_zero()))

    @built_once
    def _base_sds(self) -> Callable[..., list[Array]]:
        priors = dict(zip(self.weights, self.reading.priors, strict=True))
        names = [part.name for part in self.reading.rows if part.kind == "prior"]
        sds = clone_replace([priors[name][1] for name in names], self._at_zero())
        return compile_graph(self.reading.theta, sds)

    @property
    def excess(self) -> list[Any]:
        """What unnormalised priors have more than a Gaussian, without a dense matrix if it can."""
        own = [r.excess for r in self.reading.rows_of_priors if r is not None]
        known = [e for e in own if e is not None]
        return known if len(known) == len(self.reading.excess) else self.reading.excess

    def _at_zero(self) -> dict[Any, Any]:
        named = zip(self.reading.w, self.weights, strict=True)
        return {w: pt.zeros(self.shapes[name]) for w, name in named}

    @built_once
    def _lengths(self) -> Callable[..., list[Array]]:
        etas = clone_replace([part.eta for part in self.reading.rows], self._at_zero())
        return compile_graph(self.reading.theta, [eta.size for eta in etas])

    @built_once
    def _naturals(self) -> dict[str, Callable[..., Array]]:
        """Blocks on their own scale to the graph's, by name, for a batch of values."""
        return {n: _batched([v.free], v.natural) for n, v in self.reading.lines.items()}

    @built_once
    def _to_lines(self) -> dict[str, Callable[..., Array]]:
        return {n: _batched([v.given], v.line) for n, v in self.reading.lines.items()}

    def batched_means(self, U: Any) -> Any:
        """Graph of the prior means (batch, d) of all blocks at a matrix U (batch, d) of weights."""
        means = [
            pt.broadcast_to(mean, self.shapes[name]).reshape((-1,)).astype("float64")
            for name, (mean, _) in zip(self.weights, self.reading.priors, strict=True)
        ]
        return vectorize_graph(pt.concatenate(means), self._rows_of(U))

    @built_once
    def _mean_batch(self) -> Callable[..., Array]:
        U = pt.matrix("U", dtype="float64")
        return compile_graph([U, *self.reading.theta], self.batched_means(U))

    def _rows_of(self, U: Any) -> dict[Any, Any]:
        return {
            w: U[:, self.blocks[n]].reshape((U.shape[0], *self.shapes[n]))
            for w, n in zip(self.reading.w, self.weights, strict=True)
        }

    def batched_eta(self, U: Any) -> Any:
        """Graph of the predictor (batch, N) at a matrix U (batch, d) of weights."""
        return vectorize_graph(self.reading.eta, self._rows_of(U))

    @built_once
    def _eta_batch(self) -> Callable[..., Array]:
        U = pt.matrix("U", dtype="float64")  # without θ the map is made once: not worth rewrites
        return compile_graph([U, *self.reading.theta], self.batched_eta(U), not self.eta_depends)

    @built_once
    def _pulled_back(self) -> Callable[..., Array]:
        c, C = pt.vector("c", dtype="float64"), pt.matrix("C", dtype="float64")
        w = self.reading.w
        rows = pt.grad((self.reading.eta * c).sum(), w, disconnected_inputs="ignore")
        flat = pt.concatenate([g.reshape((-1,)) for g in clone_replace(rows, self._at_zero())])
        return compile_graph([C, *self.reading.theta], vectorize_graph(flat, {c: C}))

    def _vectorised_sites(self, log_sites: Any) -> tuple[Any, Any]:
        E = pt.matrix("E", dtype="float64")
        return E, vectorize_graph(log_sites, {self.reading.inside: E})

    @built_once
    def _log_sites(self) -> Callable[..., Array]:
        return self._own_sites_at(False)

    @built_once
    def _log_sites_as_written(self) -> Callable[..., Array]:
        return self._own_sites_at(True)

    def _own_sites_at(self, as_written: bool) -> Callable[..., Array]:
        E, value = self._vectorised_sites(self.reading.cut)
        return compile_graph([E, *self.reading.theta], value, as_written)

    @built_once
    def _derivatives(self) -> Callable[..., list[Array]]:
        E, value = self._vectorised_sites(self.reading.cut)
        return compile_graph([E, *self.reading.theta], _orders(value, E))

    @built_once
    def _labelled(self) -> tuple[Any, Any, Any]:
        """A free observed value, the free eta and the log sites, of the first observed variable."""
        part = self.reading.rows[0]
        assert part.log_sites is not None
        value = part.observed_value
        label = value.type.clone(shape=(None,) * value.ndim)(name="observed_input")
        return label, part.cut_at, part.log_sites(label)

    def _vectorised_labels(self) -> tuple[Any, Any, Any]:
        label, inside, log_sites = self._labelled
        E = pt.matrix("E", dtype="float64")
        rows = E if inside.ndim == 1 else E.reshape((E.shape[0], *label.shape))
        value = vectorize_graph(log_sites, {inside: rows})
        return label, E, value.reshape((E.shape[0], -1)) if inside.ndim != 1 else value

    @built_once
    def _log_sites_of(self) -> Callable[..., Array]:
        label, E, value = self._vectorised_labels()
        return compile_graph([E, label, *self.reading.theta], value)

    @built_once
    def _derivatives_of(self) -> Callable[..., list[Array]]:
        label, E, value = self._vectorised_labels()
        return compile_graph([E, label, *self.reading.theta], _orders(value, E))

    @built_once
    def _eta_draws(self) -> Callable[..., Array]:
        return _batched([*self.reading.w, *self.reading.theta], self.reading.eta)

    @built_once
    def _sites_draws(self) -> Callable[..., Array]:
        label, inside, log_sites = self._labelled
        if inside.ndim != 1:
            raise UnsupportedPair(
                f"{self.observed!r} has {inside.ndim} dimensions: other values than its own can be "
                f"given to one row of data only. Use pm.sample_posterior_predictive."
            )
        return _batched([inside, *self.reading.theta], log_sites, label)

    @built_once
    def _own_sites_draws(self) -> Callable[..., Array]:
        return _batched([self.reading.inside, *self.reading.theta], self.reading.cut)

    @built_once
    def _log_density(self) -> Callable[..., Array]:
        return self._own_density(False)

    @built_once
    def _log_density_as_written(self) -> Callable[..., Array]:
        return self._own_density(True)

    def _own_density(self, as_written: bool) -> Callable[..., Array]:
        terms = self.reading.terms
        used = {*self.weights, *(part.name for part in self.reading.rows)}
        total = sum((terms[n].sum() for n in terms if n in used), pt.constant(0.0))
        total -= sum(self.excess if self.sparse else self.reading.excess, pt.constant(0.0))
        return compile_graph([*self.reading.w, *self.reading.theta], total, as_written)


def _batched(inputs: list[Any], value: Any, *single: Any) -> Callable[..., Array]:
    """Compile for inputs with one more axis in front, behind those that have none."""
    batch = [named_tensor(f"{v.name}_draws", v.dtype, (None,) * (v.ndim + 1)) for v in inputs]
    value = vectorize_graph(value, dict(zip(inputs, batch, strict=True)))
    return compile_graph([*single, *batch], value)


def _orders(value: Any, E: Any) -> list[Any]:
    """A function and three derivatives: of separable rows the gradient of the sum is each one's."""
    orders = [value]
    with differentiable("the likelihood"):
        for _ in range(3):
            orders.append(pt.grad(orders[-1].sum(), E, disconnected_inputs="ignore"))
    return orders
