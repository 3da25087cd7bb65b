"""What was read of a graph, evaluated: `LatentGaussian.at(theta)` gives a `SiteModel`.

Every function is compiled when it is first needed and reads the data at call time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.initial_point import make_initial_point_fn
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from ardvark.errors import InputError
from ardvark.inference.graph.adjoint import Adjoint
from ardvark.inference.graph.affine import depends
from ardvark.inference.graph.compile import built_once, compile_graph, quick
from ardvark.inference.graph.conjugacy import GammaConditional, ard_precisions, gamma_conditionals
from ardvark.inference.sites.approximation import Cotangents
from ardvark.inference.sites.likelihoods import Array, Derivatives, GraphSites, Sites, recognise
from ardvark.inference.sites.model import SiteModel

__all__ = ["LatentGaussian", "Reading", "WeakModel"]

_CHUNK = 512  # rows of a batched evaluation at a time, so that memory stays O(N d)

Theta = Mapping[str, Any]


class WeakModel:
    """A reference that does not keep its model alive, and dies in another process."""

    def __init__(self, model: Any = None) -> None:
        self._model = (lambda: None) if model is None else weakref.ref(model)

    def __call__(self) -> Any:
        """Give the model, None if it is gone."""
        return self._model()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a dead reference: a step method in a worker needs the arrays alone."""
        return WeakModel, ()


@dataclass(frozen=True, slots=True)
class Reading:
    """The parts of a graph, with natural-scale inputs in place of its free variables."""

    model: WeakModel  # the cache of readings must not keep a model alive
    predictor: str
    observed: str
    weights: tuple[str, ...]
    hyper: tuple[str, ...]
    w: list[Any]  # inputs of the blocks
    theta: list[Any]  # inputs of the hyperparameters
    priors: list[tuple[Any, Any]]  # (mean, sd) of a block, or (mean, covariance) of a dense one
    dense: list[bool]
    eta: Any
    cut: Any  # log sites ...
    inside: Any  # ... of this free eta
    label: tuple[Any, Callable[[Any], Any]]  # a free observed value, and log sites of it
    observed_value: Any
    terms: dict[str, Any]  # the model's own log density, by variable


class LatentGaussian:
    """A model as Gaussian block times sites."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.predictor, self.observed = reading.predictor, reading.observed
        self.weights, self.hyper = reading.weights, reading.hyper
        self.eta_depends = depends(reading.eta, reading.theta)
        self.shapes = {name: np.shape(value) for name, value in self._start.items()}
        stops = np.cumsum([int(np.prod(self.shapes[n])) for n in self.weights]).tolist()
        starts = [0, *stops[:-1]]
        self.blocks = {n: slice(*ab) for n, *ab in zip(self.weights, starts, stops, strict=True)}
        self.n_weights: int = stops[-1]
        self._known_map: tuple[list[Any], Array, Array] | None = None
        self._known_sites: tuple[list[Any], Sites] | None = None

    @property
    def model(self) -> Any:
        """The model that was read."""
        model = self.reading.model()
        if model is None:
            raise ReferenceError("the model of this reading is gone: read it again")
        return model

    def __repr__(self) -> str:
        theta = ", ".join(self.hyper) or "none"
        return (
            f"LatentGaussian(weights: {', '.join(self.weights)}; predictor: {self.predictor}; "
            f"θ: {theta})"
        )

    # Names and shapes -------------------------------------------------------------------------

    @property
    def weight_names(self) -> tuple[str, ...]:
        """One name per scalar weight: `bias`, `w[x0]`, `w[x1]`, ..."""
        return tuple(label for name in self.weights for label in self._labels(name))

    def _labels(self, name: str) -> list[str]:
        shape, model = self.shapes[name], self.model
        dims = model.named_vars_to_dims.get(name) or (None,) * len(shape)
        labels = [""]
        for dim, n in zip(dims, shape, strict=True):
            axis = [str(x) for x in model.coords.get(dim) or range(n)]
            labels = [f"{left}, {right}" if left else right for left in labels for right in axis]
        return [f"{name}[{label}]" if label else name for label in labels]

    def split(self, w: Array) -> dict[str, Array]:
        """Weights (..., d) as one array per block, in the shapes of the graph."""
        return {
            name: w[..., block].reshape((*w.shape[:-1], *self.shapes[name]))
            for name, block in self.blocks.items()
        }

    @property
    def predictor_data(self) -> list[str]:
        """Names of the `pm.Data` that the predictor is made of."""
        return [v.name for v in self._eta_data if v.name in self.model.named_vars]

    @property
    def observed_data(self) -> list[Any]:
        """The `pm.Data` that hold the observed values."""
        return [
            v for v in ancestors([self.reading.observed_value]) if isinstance(v, SharedVariable)
        ]

    @property
    def prior_data(self) -> dict[str, Array]:
        """Values of the `pm.Data` in the prior of the weights: precisions that were fixed."""
        inputs = ancestors([p for pair in self.reading.priors for p in pair])
        return {v.name: v.get_value() for v in inputs if isinstance(v, SharedVariable) and v.name}

    # Arrays at given hyperparameters ----------------------------------------------------------

    def at(self, theta: Theta | None = None) -> SiteModel:
        """Arrays of the latent Gaussian at natural-scale hyperparameters `theta`."""
        projection, offset = self.affine_map(theta)
        mean, precision, covariance = self.prior(theta)
        return SiteModel(
            mean=mean,
            projection=projection,
            offset=offset,
            sites=self._own_sites(theta),
            precision=precision,
            covariance=covariance,
        )

    def _own_sites(self, theta: Theta | None) -> Sites:
        """Sites of the model's own data; those without θ are made once."""
        if depends(self.reading.cut, self.reading.theta):
            return self.sites(theta)
        data = [v.get_value() for v in self._site_data]
        known = self._known_sites
        if known is None or not all(map(np.array_equal, known[0], data)):
            known = self._known_sites = (data, self.sites(theta))
        return known[1]

    def prior(self, theta: Theta | None = None) -> tuple[Array, Array | None, Array | None]:
        """Prior mean with a diagonal precision, or with a dense covariance."""
        params = self._base(*self.ordered(theta))
        means, variances = [], []
        for name, dense, mu, scale in zip(
            self.weights, self.reading.dense, params[::2], params[1::2], strict=True
        ):
            shape = self.shapes[name]
            means.append(np.broadcast_to(mu, shape).ravel())
            full = scale if dense else np.square(np.broadcast_to(scale, shape).ravel())
            variances.append(np.asarray(full, float))
        mean = np.concatenate(means).astype(float)
        if not any(self.reading.dense):
            with np.errstate(divide="ignore"):  # sd 0: the weight is off
                return mean, 1.0 / np.concatenate(variances), None
        covariance = np.zeros((len(mean), len(mean)))
        for block, variance in zip(self.blocks.values(), variances, strict=True):
            covariance[block, block] = np.diag(variance) if variance.ndim == 1 else variance
        return mean, None, covariance

    def affine_map(self, theta: Theta | None = None) -> tuple[Array, Array]:
        """Projection A (N, d) and offset o (N,): eta = A w + o."""
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

        With `observed` the sites of these values instead of the model's own.
        """
        values = self.ordered(theta)
        own = observed is None
        if not own:
            values = [np.asarray(observed, self.reading.label[0].dtype), *values]

        def log(eta: Array, /) -> Array:
            eta = np.asarray(eta, float)
            evaluate = self._log_sites if own else self._log_sites_of
            flat = eta.reshape((-1, eta.shape[-1]))
            parts = [evaluate(part, *values) for part in _chunks(flat)]
            return np.concatenate(parts).reshape(eta.shape)

        def derivatives(eta: Array, /) -> Derivatives:  # compiled only where no closed form is
            derive = self._derivatives if own else self._derivatives_of
            return Derivatives(*(np.asarray(d)[0] for d in derive(eta[None, :], *values)))

        rows = len(self.affine_map(theta)[1])
        return recognise(log, rows) or GraphSites(log, derivatives)

    def log_sites(self, eta: Array, theta: Theta | None = None) -> Array:
        """Log sites (Q, N) of the graph itself, no closed form."""
        return np.asarray(self._log_sites(eta, *self.ordered(theta)))

    def eta_at(self, w: Array, theta: Theta | None = None) -> Array:
        """Predictor of the graph itself at weights (Q, d), no affine map."""
        return np.asarray(self._eta_batch(w, *self.ordered(theta)))

    def log_density(self, w: Array, theta: Theta | None = None) -> float:
        """Give log p(t | w, θ) + log p(w | θ) of the model itself."""
        return float(self._log_density(*self.split(w).values(), *self.ordered(theta)))

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
        return {name: np.array(self._start[name]) for name in self.hyper}

    @built_once
    def _start(self) -> dict[str, Array]:
        with quick():
            return dict(make_initial_point_fn(model=self.model, return_transformed=False)(0))

    # At draws, each with its own hyperparameters ----------------------------------------------

    def eta_of(self, draws: Mapping[str, Array]) -> Array:
        """Predictor (S, N) at draws (S, ...) of every weight and hyperparameter."""
        names = (*self.weights, *self.hyper)
        return np.concatenate(
            [self._eta_draws(*parts) for parts in _chunked([draws[n] for n in names])]
        )

    def log_sites_of(self, eta: Array, theta: Mapping[str, Array], observed: Array) -> Array:
        """Log sites (S, N) of observed values (N,) at predictors (S, N) and draws of θ (S, ...)."""
        labels = np.asarray(observed, self.reading.label[0].dtype)
        draws = [eta, *(theta[n] for n in self.hyper)]
        return np.concatenate([self._sites_draws(labels, *parts) for parts in _chunked(draws)])

    @property
    def two_classes(self) -> bool:
        """Whether the observed value is 0 or 1: the probabilities of the two sum to one."""
        if not np.issubdtype(np.dtype(self.reading.label[0].dtype), np.integer):
            return False
        theta = self.initial_theta()
        rows = len(self.affine_map(theta)[1])
        eta = np.random.default_rng(3).standard_normal((1, rows))
        values = self.ordered(theta)
        zero, one = (self._log_sites_of(eta, np.full(rows, k), *values) for k in (0, 1))
        return bool(np.allclose(np.logaddexp(zero, one), 0.0, atol=1e-6))

    # Gradients and conjugacy, each in its own file --------------------------------------------

    @built_once
    def adjoint(self) -> Adjoint:
        """Gradients with respect to the hyperparameters, and their way to the real line."""
        return Adjoint(self)

    def pull(self, theta: Theta, cotangents: Cotangents) -> dict[str, Array]:
        """Gradient in θ from the adjoint of a function of the arrays."""
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

    # Compiled on first use --------------------------------------------------------------------

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
        return compile_graph(self.reading.theta, params)

    def batched_eta(self, U: Any) -> Any:
        """Graph of the predictor (batch, N) at a matrix U (batch, d) of weights."""
        blocks = {
            w: U[:, self.blocks[n]].reshape((U.shape[0], *self.shapes[n]))
            for w, n in zip(self.reading.w, self.weights, strict=True)
        }
        return vectorize_graph(self.reading.eta, blocks)

    @built_once
    def _eta_batch(self) -> Callable[..., Array]:
        U = pt.matrix("U", dtype="float64")
        return compile_graph([U, *self.reading.theta], self.batched_eta(U))

    @built_once
    def _pulled_back(self) -> Callable[..., Array]:
        c, C = pt.vector("c", dtype="float64"), pt.matrix("C", dtype="float64")
        w = self.reading.w
        rows = pt.grad((self.reading.eta * c).sum(), w, disconnected_inputs="ignore")
        at_zero = {v: pt.zeros(self.shapes[n]) for v, n in zip(w, self.weights, strict=True)}
        flat = pt.concatenate([g.reshape((-1,)) for g in clone_replace(rows, at_zero)])
        return compile_graph([C, *self.reading.theta], vectorize_graph(flat, {c: C}))

    def _vectorised_sites(self, log_sites: Any) -> tuple[Any, Any]:
        E = pt.matrix("E", dtype="float64")
        return E, vectorize_graph(log_sites, {self.reading.inside: E})

    @built_once
    def _log_sites(self) -> Callable[..., Array]:
        E, value = self._vectorised_sites(self.reading.cut)
        return compile_graph([E, *self.reading.theta], value)

    @built_once
    def _derivatives(self) -> Callable[..., list[Array]]:
        E, value = self._vectorised_sites(self.reading.cut)
        return compile_graph([E, *self.reading.theta], _orders(value, E))

    @built_once
    def _labelled(self) -> tuple[Any, Any]:
        label, log_sites = self.reading.label
        return label, log_sites(label)

    @built_once
    def _log_sites_of(self) -> Callable[..., Array]:
        label, log_sites = self._labelled
        E, value = self._vectorised_sites(log_sites)
        return compile_graph([E, label, *self.reading.theta], value)

    @built_once
    def _derivatives_of(self) -> Callable[..., list[Array]]:
        label, log_sites = self._labelled
        E, value = self._vectorised_sites(log_sites)
        return compile_graph([E, label, *self.reading.theta], _orders(value, E))

    @built_once
    def _eta_draws(self) -> Callable[..., Array]:
        inputs = [*self.reading.w, *self.reading.theta]
        batch = [_batch_of(v) for v in inputs]
        eta = vectorize_graph(self.reading.eta, dict(zip(inputs, batch, strict=True)))
        return compile_graph(batch, eta)

    @built_once
    def _sites_draws(self) -> Callable[..., Array]:
        label, log_sites = self._labelled
        inputs = [self.reading.inside, *self.reading.theta]
        batch = [_batch_of(v) for v in inputs]
        value = vectorize_graph(log_sites, dict(zip(inputs, batch, strict=True)))
        return compile_graph([label, *batch], value)

    @built_once
    def _log_density(self) -> Callable[..., Array]:
        terms = self.reading.terms
        total = sum((terms[n].sum() for n in (*self.weights, self.observed)), pt.constant(0.0))
        return compile_graph([*self.reading.w, *self.reading.theta], total)


def _batch_of(variable: Any) -> Any:
    """Input like `variable` with one more axis in front."""
    return pt.tensor(
        f"{variable.name}_draws", dtype=variable.dtype, shape=(None,) * (variable.ndim + 1)
    )


def _orders(value: Any, E: Any) -> list[Any]:
    """A function and three derivatives: of separable rows the gradient of the sum is each one's."""
    orders = [value]
    for _ in range(3):
        orders.append(pt.grad(orders[-1].sum(), E, disconnected_inputs="ignore"))
    return orders


def _chunks(matrix: Array) -> Iterator[Array]:
    for start in range(0, len(matrix), _CHUNK):
        yield matrix[start : start + _CHUNK]


def _chunked(arrays: list[Array]) -> Iterator[list[Array]]:
    for start in range(0, len(arrays[0]), _CHUNK):
        yield [array[start : start + _CHUNK] for array in arrays]
