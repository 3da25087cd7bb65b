"""A reading as sparse arrays: `SparseReading.at(theta)` is a `SparseModel`.

    h = J w + k,   h = (rows of the prior, predictor)      `sparse/model.py`

The pattern of J is found once by a walk over the graph (`pytensor_graphs/structure.py`). Its
numbers are the graph's own: columns that never meet in a row have one colour, and the graph is
evaluated once for each colour (`colours`). At every θ the graph is evaluated at random weights too,
and must agree there. Gradients go the same way back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.sparse.type import SparseTensorType

from ardvark.errors import UnreadableModel
from ardvark.inference.graph.adjoint import pull_of_sites
from ardvark.inference.pymc_models.compile import built_once, compile_graph
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.pytensor_graphs.structure import NoStructure, pattern_of, side_inputs
from ardvark.inference.sites.approximation import Cotangents
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.sparse.factor import colours
from ardvark.inference.sparse.model import Layout, SparseModel, TooDense, layout
from ardvark.inference.sparse.posterior import SparsePosterior

if TYPE_CHECKING:
    from ardvark.inference.graph.latent import LatentGaussian

__all__ = ["SparseReading", "choose_sparse"]

MOST_COLOURS = 128  # evaluations of the graph at each value of the hyperparameters
FEW_WEIGHTS = 100  # below, and ...
CHEAP = 2e7  # ... below so many products in one factorisation, dense arrays are as good
DEARER = 5.0  # a sparse product, by one of LAPACK's
LARGEST = 2.5e8  # numbers of a dense projection, 2 GB, beyond which it is not tried
MOST_FULL = 5000  # weights under a prior with a dense covariance: minutes, at the cube of it
_TOLERANCE = 1e-9  # relative: what is read must be the model

Theta = Mapping[str, Any]


class _Read(NamedTuple):
    """What the data, not θ, decide."""

    data: list[Any]  # values of the shared variables at that time
    layout: Layout
    probes: list[Array]  # w, one for each colour
    entries: list[tuple[Index, Index]]  # for each colour: entries of J, and their rows
    test: Array  # random w
    rows: int  # of the prior


class SparseReading:
    """The sparse arrays of a latent Gaussian, and their adjoint."""

    def __init__(self, latent: LatentGaussian) -> None:
        self.latent = latent
        self._read: _Read | None = None
        self._known: tuple[_Read, Array, Array] | None = None
        self.plan()

    def __repr__(self) -> str:
        """How much there is, and how it is factorised."""
        made = self.plan().layout
        columns = f"{len(made.columns)} weights eliminated sparsely"
        border = f", {len(made.border)} apart" if len(made.border) else ""
        return f"{len(made.indices)} entries, {columns}{border}"

    # Graphs -----------------------------------------------------------------------------------

    @built_once
    def _prior_parts(self) -> tuple[Any, Any, Any]:
        """Rows of the prior, their weights, and log |P0|."""
        latent, reading = self.latent, self.latent.reading
        residuals, weights, log_det = [], [], pt.constant(0.0, dtype="float64")
        for w, name, (mean, scale), dense, own in zip(
            reading.w, latent.weights, reading.priors, reading.dense, reading.rows_of_priors,
            strict=True,
        ):  # fmt: skip
            if own is not None:
                residuals.append(own.residual)
                weights.append(own.weight)
                log_det = log_det + own.log_det
                continue
            if dense:
                raise NoStructure(f"the prior of {name!r}, a full covariance")
            sd = pt.broadcast_to(scale.astype("float64"), latent.shapes[name]).reshape((-1,))
            residuals.append((w - mean).reshape((-1,)))
            weights.append(sd**-2.0)
            log_det = log_det - 2.0 * pt.log(sd).sum()
        join = pt.concatenate if len(residuals) > 1 else (lambda parts: parts[0])
        return join(residuals), join(weights), log_det

    @built_once
    def _rows_graph(self) -> Any:
        return pt.concatenate([self._prior_parts[0], self.latent.reading.eta.reshape((-1,))])

    @built_once
    def _rows_depend(self) -> bool:
        return depends(self._rows_graph, self.latent.reading.theta)

    @built_once
    def _rows(self) -> Callable[..., Array]:
        reading = self.latent.reading
        return compile_graph([*reading.w, *reading.theta], self._rows_graph)

    @built_once
    def _weights(self) -> Callable[..., list[Array]]:
        _, weight, log_det = self._prior_parts
        return compile_graph(self.latent.reading.theta, [weight, log_det])

    @built_once
    def _shared(self) -> list[Any]:
        return [v for v in ancestors([self._rows_graph]) if isinstance(v, SharedVariable)]

    # Once for the data ------------------------------------------------------------------------

    def plan(self) -> _Read:
        """Pattern, layout and colours at the data that the model holds; `TooDense` if none."""
        data = [v.get_value(borrow=True) for v in self._shared]
        read = self._read
        if read is not None and all(map(_same, read.data, data)):
            return read
        pattern = self._pattern()
        made = layout(pattern)
        colour = colours(pattern, MOST_COLOURS)
        if colour is None:
            raise TooDense(
                f"more than {MOST_COLOURS} evaluations of the graph would be needed to read it"
            )
        rng = np.random.default_rng(20261118)
        of_entry = colour[pattern.indices]
        row = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
        count = int(colour.max(initial=-1)) + 1
        entries = [np.flatnonzero(of_entry == c) for c in range(count)]
        self._read = _Read(
            [np.copy(v) if isinstance(v, np.ndarray) else v for v in data],
            made,
            [(colour == c).astype(float) for c in range(count)],
            [(some, row[some]) for some in entries],
            rng.standard_normal(pattern.shape[1]),
            pattern.shape[0] - self._observed_rows(),
        )
        return self._read

    def _observed_rows(self) -> int:
        start = self.latent.ordered(self.latent.initial_theta())
        return sum(int(n) for n in self.latent._lengths(*start))

    def _pattern(self) -> Any:
        latent, reading = self.latent, self.latent.reading
        side = side_inputs(self._rows_graph, reading.w)
        open_ = [v for v in side if not isinstance(v, Constant)]
        found = compile_graph(reading.theta, open_)(*latent.ordered(latent.initial_theta()))
        values = {v: v.data for v in side if isinstance(v, Constant)}
        values |= dict(zip(open_, found, strict=True))
        moving = {v for v in open_ if depends(v, reading.theta)}
        shapes = [latent.shapes[name] for name in latent.weights]
        return pattern_of(self._rows_graph, reading.w, shapes, values, lambda v: v not in moving)

    # Arrays at given hyperparameters ----------------------------------------------------------

    def rows_at(self, w: Array, theta: Theta | None) -> Array:
        """H (prior rows, predictor) of the graph itself at weights (d,)."""
        blocks = self.latent.in_blocks(np.asarray(w, float))
        return np.asarray(self._rows(*blocks.values(), *self.latent.ordered(theta)), float)

    def eta_at(self, w: Array, theta: Theta | None) -> Array:
        """Predictor (Q, N) of the graph itself at weights (Q, d)."""
        begin = self.plan().rows
        return np.stack([self.rows_at(row, theta)[begin:] for row in w])

    def map_at(self, theta: Theta | None) -> tuple[Any, Array, _Read]:
        """J, k and the plan, held against the graph at random weights."""
        read = self.plan()
        known = self._known
        if known is not None and known[0] is read and not self._rows_depend:
            return read.layout.matrix(known[1]), known[2], read
        shift = self.rows_at(np.zeros(read.layout.shape[1]), theta)
        data = np.empty(len(read.layout.indices))
        for probe, (entries, row) in zip(read.probes, read.entries, strict=True):
            data[entries] = (self.rows_at(probe, theta) - shift)[row]
        J = read.layout.matrix(data)
        self._agrees(J @ read.test + shift, self.rows_at(read.test, theta))
        self._known = (read, data, shift)
        return J, shift, read

    def _agrees(self, mapped: Array, own: Array) -> None:
        if not np.isfinite(own).all():
            raise UnreadableModel(
                f"the predictor is not finite at these values of "
                f"{', '.join(self.latent.hyper) or 'the data'}: give them another initval="
            )
        gap = np.abs(mapped - own)
        if gap.max(initial=0.0) > _TOLERANCE * (1.0 + np.abs(own).max()):
            raise UnreadableModel(
                f"row {int(gap.argmax())} of the sparse map is off by {gap.max():.3g} at random "
                f"weights: this graph holds something that the reader does not see. Use "
                f"space='weights' or NUTS()."
            )

    def at(self, theta: Theta | None) -> SparseModel:
        """Arrays at natural-scale hyperparameters."""
        return self._arrays(theta, self.latent.sites(theta))

    def mean_at(self, theta: Theta | None) -> Array:
        """Mean of the prior, whatever the rows are."""
        return self._arrays(theta, None).mean

    def _arrays(self, theta: Theta | None, sites: Any) -> SparseModel:
        J, shift, read = self.map_at(theta)
        weight, log_det = self._weights(*self.latent.ordered(theta))
        m = read.rows
        model = SparseModel(
            mean=np.zeros(J.shape[1]),
            projection=J[m:],
            offset=shift[m:],
            sites=sites,
            rows=J,
            shift=shift,
            weight=np.asarray(weight, float),
            half_log_det=0.5 * float(log_det),
            layout=read.layout,
        )
        return self._centred(model) if shift[:m].any() else model

    def _centred(self, model: SparseModel) -> SparseModel:
        """With the mean of the prior, at which all of its rows are zero."""
        m, nothing = len(model.weight), np.zeros(len(model.offset))
        prior = SparsePosterior(model.prior(), nothing, nothing)
        mean = -prior.solve(model.rows[:m].T @ (model.weight * model.shift[:m]))
        left = model.rows[:m] @ mean + model.shift[:m]
        if np.abs(left).max() > 1e-6 * (1.0 + np.abs(model.shift[:m]).max()):
            raise UnreadableModel(
                "the rows of the prior have no common zero: this graph holds something that the "
                "reader does not see. Use space='weights' or NUTS()."
            )
        return replace(model, mean=mean)

    # Gradients --------------------------------------------------------------------------------

    def pull(self, theta: Theta, bar: Cotangents) -> dict[str, Array]:
        """Gradient in θ (natural scale) from the adjoint in the rows."""
        latent, rows, read = self.latent, bar.rows, self.plan()
        values = latent.ordered(theta)
        total = self._pull(
            rows.weight, bar.site_eta, bar.site_value, bar.site_first, bar.site_second, *values
        )
        total = [np.asarray(t, float) for t in total]
        if self._rows_depend:
            left = rows.shift.copy()
            for probe, (entries, row) in zip(read.probes, read.entries, strict=True):
                share = np.zeros(len(left))
                share[row] = rows.entries[entries]
                left -= share
                self._add(total, share, probe, values)
            self._add(total, left, np.zeros(len(read.test)), values)
        return dict(zip(latent.hyper, total, strict=True))

    def _add(self, total: list[Array], share: Array, w: Array, values: list[Array]) -> None:
        blocks = self.latent.in_blocks(w).values()
        for i, part in enumerate(self._pull_rows(share, *blocks, *values)):
            total[i] = total[i] + part

    @built_once
    def _pull_rows(self) -> Callable[..., list[Array]]:
        reading = self.latent.reading
        share = pt.vector("c", dtype="float64")
        gradient = pt.grad(
            (share * self._rows_graph).sum(), reading.theta, disconnected_inputs="ignore"
        )
        return compile_graph([share, *reading.w, *reading.theta], gradient)

    @built_once
    def _pull(self) -> Callable[..., list[Array]]:
        _, weight, log_det = self._prior_parts
        bar = pt.vector("q", dtype="float64")
        return pull_of_sites(self.latent, [bar], (bar * weight).sum() + 0.5 * log_det)


def _same(before: Any, now: Any) -> bool:
    if isinstance(now, np.ndarray):
        return bool(np.array_equal(before, now))
    return before is now


def choose_sparse(latent: LatentGaussian, wanted: bool | None) -> SparseReading | None:
    """The sparse reading if it is wanted, or (None) if it is cheaper than dense arrays."""
    d = latent.n_weights
    if any(isinstance(v.type, SparseTensorType) for v in ancestors([latent.reading.eta])):
        if wanted is False:
            raise UnreadableModel(
                f"the predictor of {latent.observed!r} holds a sparse matrix, which only Laplace() "
                f"and EP() read. Use a dense one, or NUTS()."
            )
        wanted = True
    if wanted is None and d < FEW_WEIGHTS:
        return None
    rows = sum(int(n) for n in latent._lengths(*latent.ordered(latent.initial_theta())))
    products = float(min(rows * float(d) ** 2, float(rows) ** 2 * d))
    if wanted is False or (wanted is None and products < CHEAP):
        _check_dense(
            latent,
            rows,
            "which this method needs. Laplace() and EP() read such a model sparsely where it has "
            "the structure; NUTS() and SMC() compile the graph itself.",
        )
        return None
    try:
        if latent.reading.rows[0].coupled:
            raise NoStructure("a softmax, which couples the predictors of a row")
        found = SparseReading(latent)
    except (NoStructure, TooDense) as error:
        if wanted:
            raise UnreadableModel(f"space='sparse': no sparse arrays, because of {error}") from None
        _check_dense(
            latent,
            rows,
            f"and there are no sparse ones, because of {error}. Write effects by indexing "
            f"(b[group]), walks as pm.GaussianRandomWalk, or use NUTS().",
        )
        return None
    if wanted or DEARER * found.plan().layout.flops < products:
        return found
    return None


def _check_dense(latent: LatentGaussian, rows: int, why: str) -> None:
    """Refuse what is to be read densely and is too large for it."""
    d = latent.n_weights
    full = any(latent.reading.dense) or latent.chained
    if float(rows) * d > LARGEST or (full and d > MOST_FULL):
        raise UnreadableModel(
            f"{rows} rows and {d} weights are too large for dense arrays, {why}"
        ) from None
