"""What was read of a graph, evaluated: `LatentGaussian.at(theta)` gives a `SiteModel`.

Every function is compiled when it is first needed and reads the data at call time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from scipy.special import gammaln

from ardvark.errors import InputError, UnreadableModel
from ardvark.inference.graph.adjoint import Adjoint
from ardvark.inference.graph.compiled import Compiled
from ardvark.inference.graph.conjugacy import GammaConditional, ard_precisions, gamma_conditionals
from ardvark.inference.graph.parts import Reading, expression
from ardvark.inference.graph.sparse import choose_sparse
from ardvark.inference.known_sites.recognition import Group, recognise
from ardvark.inference.pymc_models.compile import built_once
from ardvark.inference.pymc_models.fingerprint import observed_values
from ardvark.inference.sites.approximation import Cotangents
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import (
    Derivatives,
    GraphSites,
    LogitSites,
    ProbitSites,
    Sites,
)
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.softmax import SoftmaxSites
from ardvark.inference.sites.trigonometric import TrigonometricSites

__all__ = ["LatentGaussian", "element_names"]

_CHUNK = 512  # rows of a batched evaluation at a time, so that memory stays O(N d) ...
# Rows for which PyTensor's rewrites cost more than to look twice. The links of classification have
# no numbers that could lose digits, so they are taken from the graph as it is written.
_FEW = 2000
_NUMBERS = 2 * 10**7  # ... and no more than so many numbers

Theta = Mapping[str, Any]


class Chain(NamedTuple):
    """Blocks whose prior means hold others: T = (I - M)^-1, and the joint prior T c, T D T'."""

    towards: Array
    mean: Array
    covariance: Array


class LatentGaussian(Compiled):
    """A model as Gaussian block times sites."""

    def __init__(self, reading: Reading, sparse: bool | None = False) -> None:
        super().__init__(reading)
        self.sparse = choose_sparse(self, sparse)
        self._known_map: tuple[list[Any], Array, Array] | None = None
        self._known_sites: tuple[list[Any], Sites | None] | None = None

    @property
    def model(self) -> Any:
        """The model that was read."""
        model = self.reading.model()
        if model is None:
            raise ReferenceError("the model of this reading is in another process: read it again")
        return model

    def __repr__(self) -> str:
        """What was found: block, predictors with their likelihoods, θ, and what was left out."""
        reading, sizes = self.reading, {n: int(np.prod(self.shapes[n])) for n in self.shapes}

        def listed(names: tuple[str, ...]) -> str:
            return ", ".join(f"{n} ({reading.kinds[n]}, {sizes[n]})" for n in names) or "none"

        lines = [f"  Gaussian block    {listed(self.weights)}"]
        for part in reading.rows:
            what = reading.kinds.get(part.name, "Potential")
            shown = part.predictor or expression(part.eta)
            lines.append(f"  {part.kind:<17} {part.name} ({what}) at {shown}")
        lines.append(f"  hyperparameters   {listed(self.hyper)}")
        lines += [f"    {name}: {reason}" for name, reason in reading.reasons.items()]
        if self.sparse is not None:
            lines.append(f"  sparse arrays     {self.sparse}")
        if reading.marginalised:
            lines.append(f"  drawn afterwards  {', '.join(reading.marginalised)}")
        return "\n".join(["LatentGaussian", *lines])

    # Names and shapes -------------------------------------------------------------------------

    @property
    def weight_names(self) -> tuple[str, ...]:
        """One name per scalar weight: `bias`, `w[x0]`, `w[x1]`, ..."""
        model, names = self.model, list[str]()
        for name, shape in ((n, self.shapes[n]) for n in self.weights):
            moved = name in self.reading.lines  # another scale has other elements
            dims = None if moved else model.named_vars_to_dims.get(name)
            names += element_names(model, name, shape, dims)
        return tuple(names)

    def in_blocks(self, w: Array) -> dict[str, Array]:
        """Weights (..., d) as one array per block."""
        return {
            name: w[..., block].reshape((*w.shape[:-1], *self.shapes[name]))
            for name, block in self.blocks.items()
        }

    def split(self, w: Array) -> dict[str, Array]:
        """Weights (..., d) as one array per block, as the graph has it."""
        blocks = self.in_blocks(w)
        for name, natural in self._naturals.items():
            flat = blocks[name].reshape((-1, *self.shapes[name]))
            moved = np.asarray(natural(flat))
            blocks[name] = moved.reshape((*w.shape[:-1], *moved.shape[1:]))
        return blocks

    def row_slices(self, theta: Theta | None = None) -> dict[str, slice]:
        """Which rows are whose: an observed variable's, a potential's, a prior's."""
        names = [part.name for part in self.reading.rows]
        if self.reading.rows[0].coupled:
            return {names[0]: slice(0, len(self._observed_value()))}
        if len(names) == 1:
            return {names[0]: slice(0, len(self.affine_map(theta)[1]))}
        stops = np.cumsum([int(n) for n in self._lengths(*self.ordered(theta))]).tolist()
        return {n: slice(*ab) for n, *ab in zip(names, [0, *stops[:-1]], stops, strict=True)}

    def by_observed(self, values: Array) -> dict[str, Array]:
        """Numbers of all rows (..., N) as arrays of the observed variables, in their shapes."""
        slices, model = self.row_slices(self.initial_theta()), self.model
        found = {}
        for part in self.reading.rows:
            if part.kind == "observed":
                shape = np.shape(observed_values(model, model[part.name]))[: part.cut.ndim]
                found[part.name] = values[..., slices[part.name]].reshape(
                    (*values.shape[:-1], *shape)
                )
        return found

    @property
    def predictor_data(self) -> list[str]:
        """Names of the `pm.Data` that the predictor is made of."""
        return [v.name for v in self._eta_data if v.name in self.model.named_vars]

    @property
    def observed_data(self) -> list[Any]:
        """The `pm.Data` that hold the observed values."""
        values = [part.observed_value for part in self.reading.rows if part.kind == "observed"]
        return [v for v in ancestors(values) if isinstance(v, SharedVariable)]

    @property
    def prior_data(self) -> dict[str, Array]:
        """Values of the `pm.Data` in the prior of the weights: precisions that were fixed."""
        inputs = ancestors([p for pair in self.reading.priors for p in pair])
        return {v.name: v.get_value() for v in inputs if isinstance(v, SharedVariable) and v.name}

    # Arrays at given hyperparameters ----------------------------------------------------------

    def at(self, theta: Theta | None = None, sites: Sites | None = None) -> SiteModel:
        """Arrays of the latent Gaussian at natural-scale hyperparameters `theta`.

        `sites`, if they are known from a reading at the same θ, are not read again.
        """
        if self.sparse is not None:
            return self.sparse.at(theta)
        projection, offset = self.affine_map(theta)
        mean, precision, covariance = self.prior(theta)
        return SiteModel(
            mean=mean,
            projection=projection,
            offset=offset,
            sites=self.sites(theta) if sites is None else sites,
            precision=precision,
            covariance=covariance,
        )

    def prior(self, theta: Theta | None = None) -> tuple[Array, Array | None, Array | None]:
        """Prior mean with a diagonal precision, or with a dense covariance; sparse: the mean."""
        if self.sparse is not None:
            return self.sparse.mean_at(theta), None, None
        if self.chained:
            chain = self.chain(theta)
            return chain.mean, None, chain.covariance
        mean, variances = self._own_priors(theta)
        if not any(self.reading.dense):
            with np.errstate(divide="ignore"):  # sd 0: the weight is not active
                return mean, 1.0 / np.concatenate(variances), None
        return mean, None, self._block_diagonal(variances)

    def chain(self, theta: Theta | None = None) -> Chain:
        """Blocks whose prior means hold others, w = M w + c + e with e ~ N(0, D), jointly."""
        values, d = self.ordered(theta), self.n_weights
        constant, variances = self._own_priors(theta)
        parts = [self._mean_batch(part, *values) for part in _chunks(np.eye(d))]
        towards = np.linalg.inv(np.eye(d) - (np.concatenate(parts) - constant).T)
        covariance = towards @ self._block_diagonal(variances) @ towards.T
        return Chain(towards, towards @ constant, 0.5 * (covariance + covariance.T))

    def _own_priors(self, theta: Theta | None) -> tuple[Array, list[Array]]:
        """Mean where all other blocks are zero, and the variances or covariance of each block."""
        params = self._base(*self.ordered(theta))
        means, variances = [], []
        for name, dense, mu, scale in zip(
            self.weights, self.reading.dense, params[::2], params[1::2], strict=True
        ):
            shape = self.shapes[name]
            means.append(np.broadcast_to(mu, shape).ravel())
            scale = np.asarray(scale, float)  # PyTensor keeps an sd of 100 as int8
            variances.append(scale if dense else np.square(np.broadcast_to(scale, shape).ravel()))
        return np.concatenate(means).astype(float), variances

    def prior_rows(self, theta: Theta | None = None) -> tuple[Array | None, Array, Array]:
        """Prior as rows e = (I - M) w - c: I - M (None if M is 0), c and the variances of e."""
        constant, variances = self._own_priors(theta)
        if not self.chained:
            return None, constant, np.concatenate(variances)
        means = [self._mean_batch(p, *self.ordered(theta)) for p in _chunks(np.eye(self.n_weights))]
        towards = np.eye(self.n_weights) - (np.concatenate(means) - constant).T
        return towards, constant, np.concatenate(variances)

    def _block_diagonal(self, variances: list[Array]) -> Array:
        covariance = np.zeros((self.n_weights, self.n_weights))
        for block, variance in zip(self.blocks.values(), variances, strict=True):
            covariance[block, block] = np.diag(variance) if variance.ndim == 1 else variance
        return covariance

    def affine_map(self, theta: Theta | None = None) -> tuple[Array, Array]:
        """Projection A (N, d) and offset o (N,): eta = A w + o."""
        if self.sparse is not None:
            rows, shift, read = self.sparse.map_at(theta)
            return rows[read.rows :], shift[read.rows :]
        data = [v.get_value() for v in self._eta_data]
        known = None
        if self._known_map is not None and not self._projection_depends:
            before, *known_map = self._known_map
            if all(np.array_equal(a, b) for a, b in zip(before, data, strict=True)):
                known = known_map
        if known is not None and not self.eta_depends:
            return known[0], known[1]
        values, d = self.ordered(theta), self.n_weights
        offset = np.array(self._eta_batch(np.zeros((1, d)), *values)[0])
        if known is not None:
            return known[0], offset
        if d <= len(offset):  # push unit weights forward
            parts = [self._eta_batch(part, *values) for part in _chunks(np.eye(d))]
            projection = np.ascontiguousarray((np.concatenate(parts) - offset).T)
        else:  # pull unit rows back: never d x d
            parts = [self._pulled_back(part, *values) for part in _chunks(np.eye(len(offset)))]
            projection = np.ascontiguousarray(np.concatenate(parts))
        self._known_map = (data, projection, offset)
        return projection, offset

    def sites(self, theta: Theta | None = None, observed: Any = None) -> Sites:
        """The likelihood as sites: a closed form if the values are those of one, else the graph.

        With `observed` the sites of these values instead of the model's own. Those without θ are
        read once; else those at the start hint at the families, always from the same θ, so that an
        answer does not depend on what was asked before.
        """
        if observed is not None:
            return self._read_sites(theta, observed)
        first = self._sites_at_start()
        if first is not None and not self.cut_depends:
            return first
        return self._read_sites(theta, hint=first)

    def _sites_at_start(self) -> Sites | None:
        data = [v.get_value() for v in self._site_data]
        known = self._known_sites
        if known is None or not all(map(np.array_equal, known[0], data)):
            try:
                first = self._read_sites(self.initial_theta())
            except (ValueError, ArithmeticError):  # a start without a density gives no hint
                first = None
            known = self._known_sites = (data, first)
        return known[1]

    def _read_sites(
        self, theta: Theta | None, observed: Any = None, hint: Sites | None = None
    ) -> Sites:
        values = self.ordered(theta)
        own = observed is None
        if not own:
            values = [np.asarray(observed, self._labelled[0].dtype), *values]

        def log(eta: Array, /) -> Array:
            eta = np.asarray(eta, float)
            evaluate = self._log_sites if own else self._log_sites_of
            flat = eta.reshape((-1, eta.shape[-1]))
            parts = [evaluate(part, *values) for part in _chunks(flat)]
            return np.concatenate(parts).reshape((*eta.shape[:-1], -1))

        def derivatives(eta: Array, /) -> Derivatives:  # compiled only where no closed form is
            derive = self._derivatives if own else self._derivatives_of
            return Derivatives(*(np.asarray(d)[0] for d in derive(eta[None, :], *values)))

        if self.reading.rows[0].coupled:
            return self._softmax(log, len(self.affine_map(theta)[1]))
        if not own:
            return recognise(log, np.size(observed)) or GraphSites(log, derivatives)
        rows = len(self.affine_map(theta)[1])
        unknown = GraphSites(log, derivatives)
        if len(self.reading.rows) == 1:
            if rows <= _FEW and not self.cut_depends:
                quickly = recognise(lambda eta: self._log_sites_as_written(eta, *values), rows)
                if isinstance(quickly, ProbitSites | LogitSites | TrigonometricSites):
                    return quickly
            return recognise(log, rows, hint=hint) or unknown
        sites = recognise(
            log,
            rows,
            groups=self._groups(theta),
            other=lambda part: _part_of(unknown, part, rows),
            hint=hint,
        )
        return sites or unknown

    def _groups(self, theta: Theta | None) -> list[Group]:
        """Rows by their origin; the sites of a prior were divided by its Gaussian base."""
        variances = self._base_variances(theta)
        slices = self.row_slices(theta)
        return [
            Group(slices[part.name], (0.0, variances[part.name]) if part.kind == "prior" else None)
            for part in self.reading.rows
        ]

    def _base_variances(self, theta: Theta | None) -> dict[str, Array]:
        """Variances of the bases of priors that are sites."""
        names = [part.name for part in self.reading.rows if part.kind == "prior"]
        sds = self._base_sds(*self.ordered(theta)) if names else []
        return {
            name: np.square(np.broadcast_to(np.asarray(sd, float), self.shapes[name]).ravel())
            for name, sd in zip(names, sds, strict=True)
        }

    def _softmax(self, log: Callable[[Array], Array], rows: int) -> SoftmaxSites:
        """Sites of a softmax over the predictors of each row, held against the graph's values."""
        value = np.asarray(self._observed_value())
        classes = rows // len(value)
        counts = value if value.ndim == 2 else np.eye(classes)[value.astype(int)]
        total = counts.sum(axis=1)
        constant = gammaln(total + 1.0) - gammaln(counts + 1.0).sum(axis=1)
        sites = SoftmaxSites(counts.astype(float), constant)
        eta = np.random.default_rng(4).normal(size=(3, rows))
        gap = log(eta) - sites.log(eta)
        # Of small integers PyMC takes the multinomial coefficient in single precision.
        coefficient = np.all(np.abs(gap) <= 1e-5 * (1.0 + np.abs(constant)))
        if not (coefficient and np.all(np.abs(gap - gap[0]) <= 1e-7 * (1.0 + total))):
            raise UnreadableModel(
                f"log p({self.observed}) is no softmax of its predictors: it differs by "
                f"{np.abs(gap).max():.3g}. "
                f"Use NUTS, which takes any graph."
            )
        return sites

    def log_sites(self, eta: Array, theta: Theta | None = None, as_written: bool = False) -> Array:
        """Log sites (Q, N) of the graph itself, no closed form."""
        evaluate = self._log_sites_as_written if as_written else self._log_sites
        return np.asarray(evaluate(eta, *self.ordered(theta)))

    def eta_at(self, w: Array, theta: Theta | None = None) -> Array:
        """Predictor of the graph itself at weights (Q, d), no affine map."""
        if self.sparse is not None:
            return self.sparse.eta_at(w, theta)
        return np.asarray(self._eta_batch(w, *self.ordered(theta)))

    def log_density(self, w: Array, theta: Theta | None = None, as_written: bool = False) -> float:
        """Give log p(t | w, θ) + log p(w | θ) of the model itself."""
        evaluate = self._log_density_as_written if as_written else self._log_density
        return float(evaluate(*self.in_blocks(w).values(), *self.ordered(theta)))

    def ordered(self, theta: Theta | None) -> list[Array]:
        """Values of every hyperparameter, checked, in the order of `hyper`."""
        theta = theta or {}
        if missing := [n for n in self.hyper if n not in theta]:
            raise InputError(
                f"theta needs a value for {', '.join(missing)}: the hyperparameters of this model "
                f"are {', '.join(self.hyper)}"
            )
        values = []
        for variable, name in zip(self.reading.theta, self.hyper, strict=True):
            value = np.asarray(theta[name], dtype=variable.dtype)
            if value.shape != self.shapes[name]:
                raise InputError(
                    f"theta[{name!r}] has shape {value.shape}, the model's {name} has "
                    f"{self.shapes[name]}"
                )
            values.append(value)
        return values

    def initial_theta(self) -> dict[str, Array]:
        """Natural-scale starting values of the hyperparameters: the support point of the prior."""
        return {name: np.array(self.reading.start[name]) for name in self.hyper}

    # At draws, each with its own hyperparameters ----------------------------------------------

    def eta_of(self, draws: Mapping[str, Array]) -> Array:
        """Predictor (S, N) at draws (S, ...) of every weight and hyperparameter."""
        values = dict(draws)
        for name, line in self._to_lines.items():
            values[name] = np.asarray(line(draws[name]))
        names = (*self.weights, *self.hyper)
        return np.concatenate(
            [self._eta_draws(*parts) for parts in _chunked([values[n] for n in names])]
        )

    def log_sites_at(self, eta: Array, theta: Mapping[str, Array]) -> Array:
        """Log sites (S, N) of the model's own data, at draws of θ (S, ...)."""
        draws = [eta, *(theta[n] for n in self.hyper)]
        return np.concatenate([self._own_sites_draws(*parts) for parts in _chunked(draws)])

    def log_sites_of(self, eta: Array, theta: Mapping[str, Array], observed: Array) -> Array:
        """Log sites of other values of the (first) observed variable, at draws of θ (S, ...)."""
        labels = np.asarray(observed, self._labelled[0].dtype)
        draws = [eta, *(theta[n] for n in self.hyper)]
        return np.concatenate([self._sites_draws(labels, *parts) for parts in _chunked(draws)])

    @property
    def two_classes(self) -> bool:
        """Whether the observed value is 0 or 1: the probabilities of the two sum to one."""
        if not np.issubdtype(np.dtype(self._labelled[0].dtype), np.integer):
            return False
        theta = self.initial_theta()
        part = self.row_slices(theta)[self.observed]
        rows = part.stop - part.start
        eta = np.random.default_rng(3).standard_normal((1, rows))
        values = self.ordered(theta)
        zero, one = (self._log_sites_of(eta, np.full(rows, k), *values) for k in (0, 1))
        return bool(np.allclose(np.logaddexp(zero, one), 0.0, atol=1e-6))

    # Gradients and conjugacy, each in its own file --------------------------------------------

    @built_once
    def adjoint(self) -> Adjoint:
        """Gradients with respect to the hyperparameters, and their transforms to the real line."""
        return Adjoint(self)

    def pull(self, theta: Theta, cotangents: Cotangents) -> dict[str, Array]:
        """Gradient in θ from the adjoint of a function of the arrays."""
        if self.sparse is not None:
            return self.sparse.pull(theta, cotangents)
        return self.adjoint.pull(theta, cotangents)

    @built_once
    def ard_precisions(self) -> dict[str, str]:
        """Hyperparameters that ARE the prior precisions of a zero-mean block: name → block."""
        return ard_precisions(self)

    @built_once
    def conjugate(self) -> tuple[str, ...]:
        """Names of the hyperparameters with a Gamma conditional."""
        w = np.random.default_rng(2).standard_normal(self.n_weights)
        return tuple(gamma_conditionals(self, w, self.initial_theta()))

    def gamma_conditionals(self, w: Array, theta: Theta) -> dict[str, GammaConditional]:
        """Gamma conditionals of the hyperparameters that have one, given weights and the rest."""
        return gamma_conditionals(self, w, theta)


def element_names(model: Any, name: str, shape: tuple[int, ...], dims: Any) -> list[str]:
    """One name for each element of a variable, by the coordinates of its dims."""
    labels = [""]
    for dim, n in zip(dims or (None,) * len(shape), shape, strict=False):
        known = model.coords.get(dim)
        axis = known if known is not None and len(known) == n else range(n)
        labels = [f"{left}, {right}" if left else str(right) for left in labels for right in axis]
    return [f"{name}[{label}]" if label else name for label in labels]


def _part_of(sites: GraphSites, part: slice, rows: int) -> GraphSites:
    """Sites of some rows of a graph, which is evaluated at all of them."""

    def full(eta: Array) -> Array:
        wide = np.zeros((*eta.shape[:-1], rows))
        wide[..., part] = eta
        return wide

    def derivatives(eta: Array, /) -> Derivatives:
        return Derivatives(*(values[part] for values in sites.derivatives(full(eta))))

    return GraphSites(lambda eta, /: sites.log(full(np.asarray(eta)))[..., part], derivatives)


def _chunks(matrix: Array) -> Iterator[Array]:
    for [part] in _chunked([matrix]):
        yield part


def _chunked(arrays: list[Array]) -> Iterator[list[Array]]:
    count = len(arrays[0])
    widest = max(array.size // max(count, 1) for array in arrays)
    size = max(1, min(_CHUNK, _NUMBERS // max(widest, 1)))
    for start in range(0, count, size):
        yield [array[start : start + size] for array in arrays]
