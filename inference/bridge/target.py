"""The posterior of a model up to its constant, as a function of one unconstrained vector.

| target    | vector x                                          | log density                      |
|-----------|---------------------------------------------------|----------------------------------|
| at θ      | u, where w = m0 + C u, C C' = prior covariance    | log N(u; 0, I) + log p(t | w, θ) |
| the graph | PyMC's value variables on the unconstrained scale | `model.logp()`, Jacobians        |
|           | (precisions integrated out where the builder can) | included                         |

Both are normalised priors times the likelihood, so the integral over x is the evidence: p(t | θ) in
the first row, p(t) in the second. Many vectors are evaluated at a time; no sampler is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import pytensor.tensor as pt
import xarray as xr
from pymc.initial_point import make_initial_point_fn
from pytensor.graph.replace import graph_replace, vectorize_graph

from ardvark.errors import InputError, UnreadableModel, UnsupportedPair
from ardvark.inference.graph.latent import LatentGaussian, element_names
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.stored import stored_theta
from ardvark.inference.methods import family_of
from ardvark.inference.pymc_models.compile import compile_graph, named_tensor, quick
from ardvark.inference.pymc_models.forms import form_to_sample
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import Prior
from ardvark.inference.softmax.reading import read_softmax
from ardvark.inference.tree import FREE

__all__ = ["GraphTarget", "SiteTarget", "SoftmaxTarget", "Target", "fitted_names", "target_of"]

CHUNK = 512  # vectors at a time
LOG_2_PI = float(np.log(2 * np.pi))


class Target(Protocol):
    """What bridge sampling and short chains need of a posterior."""

    names: list[str]  # of the natural quantities
    evidence: str  # what the integral is

    def pack(self, posterior: xr.Dataset) -> Array:
        """Draws as vectors (chain, draw, d)."""

    def natural(self, x: Array) -> Array:
        """Vectors (n, d) as the quantities of `names` (n, k)."""

    def log_density(self, x: Array) -> Array:
        """Log p(t, x) at vectors (n, d)."""


def target_of(model: Any, tree: xr.DataTree) -> Target:
    """Give the posterior that a tree is about, at the tree's own hyperparameters if it has some."""
    if tree.attrs.get("coupling") == "one_against_rest":
        raise UnsupportedPair(
            "bridge: one class against the rest is no posterior of the graph, so it has no "
            "evidence. Use a tree of NUTS()."
        )
    fixed = tree.attrs.get("hyper", "posterior") not in FREE
    family = family_of(model)
    if family == "softmax" and fixed:
        return SoftmaxTarget(model, tree)
    if fixed and family in ("sites", "process"):
        try:
            return SiteTarget(read_model(model, **fitted_names(tree)), tree)
        except UnreadableModel:  # nothing was fixed in it either: the graph is the target
            return GraphTarget(model, tree)
    if fixed and family != "subset":
        raise UnsupportedPair(
            f"bridge: the posterior of a {family} model at fixed hyperparameters has no form of "
            f"its own. Use a tree with free hyperparameters."
        )
    return GraphTarget(model, tree)


def fitted_names(tree: xr.DataTree) -> dict[str, Any]:
    """Names of weights and predictor, as given to the fit."""
    settings = json.loads(tree.attrs.get("settings", "{}"))
    weights = settings.get("weights")
    return {
        "weights": tuple(weights) if isinstance(weights, list) else weights,
        "predictor": settings.get("predictor"),
    }


def _theta(tree: xr.DataTree, names: tuple[str, ...]) -> dict[str, Array]:
    """Hyperparameters that a tree was made at: those that it keeps, else constant draws."""
    stored, posterior, values = stored_theta(tree), tree["posterior"].dataset, {}
    for name in names:
        if name in stored:
            values[name] = stored[name].astype(float)
        elif name in posterior:
            values[name] = posterior[name].isel(chain=0, draw=0).to_numpy().astype(float)
        else:
            raise InputError(f"tree has no value of {name!r}: it is the tree of another model")
    return values


def _rows(posterior: xr.Dataset, name: str) -> Array:
    if name not in posterior:
        raise InputError(f"tree has no draws of {name!r}: it is the tree of another model")
    return posterior[name].transpose("chain", "draw", ...).to_numpy().astype(float)


class SiteTarget:
    """Weights of a Gaussian block times sites, at given θ."""

    evidence = "p(t | θ)"

    def __init__(self, latent: LatentGaussian, tree: xr.DataTree) -> None:
        self.latent = latent
        self.model = latent.at(_theta(tree, latent.hyper))
        self.prior = Prior(self.model)
        self.names = [n for n, on in zip(latent.weight_names, self.prior.on, strict=True) if on]

    def pack(self, posterior: xr.Dataset) -> Array:
        """White weights (chain, draw, k)."""
        blocks = [_rows(posterior, name) for name in self.latent.weights]
        w = np.concatenate([b.reshape((*b.shape[:2], -1)) for b in blocks], axis=-1)
        if w.shape[-1] != self.prior.on.size:
            raise InputError(
                f"tree has {w.shape[-1]} weights, the model has {self.prior.on.size}: it is the "
                "tree of another model"
            )
        away = w[..., self.prior.on] - self.prior.mean
        if self.prior.variance is not None:
            return np.asarray(away / self.prior.factor)
        flat = np.linalg.lstsq(self.prior.factor, away.reshape(-1, away.shape[-1]).T)[0]
        return np.asarray(flat.T.reshape(away.shape))

    def natural(self, x: Array) -> Array:
        """Active weights."""
        return self.prior.mean + self.prior.coloured(x)

    def log_density(self, x: Array) -> Array:
        """Log p(t | w, θ) N(u; 0, I)."""
        eta = x @ self.prior.white_projection.T + self.prior.eta_mean
        rows = self.model.sites.log(eta).sum(axis=-1)
        return np.asarray(rows - 0.5 * np.square(x).sum(axis=-1) - 0.5 * x.shape[1] * LOG_2_PI)


class SoftmaxTarget:
    """Weights of all classes at given precisions."""

    evidence = "p(t | θ)"

    def __init__(self, model: Any, tree: xr.DataTree) -> None:
        self.reading = read_softmax(model)
        self.model = self.reading.at(_theta(tree, self.reading.hyper))
        self.scale = 1.0 / np.sqrt(self.model.precision[self.model.on])
        names = np.array(self.reading.weight_names).reshape(self.model.on.shape)
        self.names = list(map(str, names[self.model.on]))

    def pack(self, posterior: xr.Dataset) -> Array:
        """Whitened active weights."""
        blocks = [_rows(posterior, name) for name in self.reading.weights]
        columns = [b[..., None] if b.ndim == 3 else b for b in blocks]  # a bias has no columns
        w = np.concatenate(columns, axis=-1)
        return np.asarray(w[..., self.model.on] / self.scale)

    def natural(self, x: Array) -> Array:
        """Active weights."""
        return np.asarray(x * self.scale)

    def log_density(self, x: Array) -> Array:
        """Log p(t | w, α) N(u; 0, I)."""
        values = np.empty(len(x))
        for part in _chunks(len(x)):
            w = np.zeros((len(x[part]), *self.model.on.shape))
            w[:, self.model.on] = x[part] * self.scale
            values[part] = self.model.log_likelihood(self.model.predictor(w)).sum(axis=-1)
        white = 0.5 * np.square(x).sum(axis=-1) + 0.5 * x.shape[1] * LOG_2_PI
        return np.asarray(values - white)


class GraphTarget:
    """Every free variable of a graph on its unconstrained scale."""

    evidence = "p(t)"

    def __init__(self, model: Any, tree: xr.DataTree) -> None:
        posterior = tree["posterior"].dataset
        form = form_to_sample(model, "auto").model
        if not all(rv.name in posterior for rv in form.free_RVs):
            form = model
        self.model, self.variables = form, list(form.free_RVs)
        for rv in self.variables:
            if not str(rv.dtype).startswith("float"):
                raise UnsupportedPair(
                    f"{rv.name} is discrete: the posterior has no density in one vector. Models of "
                    "subsets are summed over, by Exact() or ReversibleJump()."
                )
        with quick():
            start = make_initial_point_fn(model=form)(0)
            natural = make_initial_point_fn(model=form, return_transformed=False)(0)
        self.values = [form.rvs_to_values[rv] for rv in self.variables]
        self.shapes = [np.shape(start[value.name]) for value in self.values]
        stops = np.cumsum([int(np.prod(shape)) for shape in self.shapes]).tolist()
        self.parts = [slice(a, b) for a, b in zip([0, *stops[:-1]], stops, strict=True)]
        dims = (form.named_vars_to_dims.get(rv.name) for rv in self.variables)
        each = zip((value.name for value in self.values), self.shapes, dims, strict=True)
        self.names = [label for one in each for label in element_names(form, *one)]
        self._natural_ndim = [np.ndim(natural[rv.name]) for rv in self.variables]
        self._log_density, self._forward = self._compiled(), self._forwards()

    def _compiled(self) -> Callable[..., Array]:
        U = pt.matrix("U", dtype="float64")
        inputs = {
            value: U[:, part].reshape((U.shape[0], *shape)).astype(value.dtype)
            for value, part, shape in zip(self.values, self.parts, self.shapes, strict=True)
        }
        return compile_graph([U], vectorize_graph(self.model.logp(), inputs))

    def _forwards(self) -> Callable[..., list[Array]]:
        """From the natural scale to PyMC's own, for draws of all variables together."""
        single, batch = {}, []
        for rv, ndim in zip(self.variables, self._natural_ndim, strict=True):
            single[rv] = named_tensor(f"{rv.name}_one", rv.dtype, (None,) * ndim)
            batch.append(named_tensor(f"{rv.name}_all", rv.dtype, (None,) * (ndim + 1)))
        moved = []
        for rv in self.variables:
            transform = self.model.rvs_to_transforms[rv]
            value = single[rv]
            if transform is not None:
                forward = transform.forward(value, *rv.owner.inputs)
                [value] = graph_replace([forward], single, strict=False)
            moved.append(value)
        every = vectorize_graph(moved, dict(zip(single.values(), batch, strict=True)))
        return compile_graph(batch, every)

    def pack(self, posterior: xr.Dataset) -> Array:
        """Draws on the unconstrained scale."""
        draws = [_rows(posterior, rv.name) for rv in self.variables]
        chains, n = draws[0].shape[:2]
        flat = [d.reshape((chains * n, *d.shape[2:])) for d in draws]
        moved = self._forward(*flat)
        return np.concatenate([np.reshape(m, (chains, n, -1)) for m in moved], axis=-1)

    def natural(self, x: Array) -> Array:
        """Give the vector itself: names are those of PyMC's unconstrained values."""
        return x

    def log_density(self, x: Array) -> Array:
        """Log p(t, x), Jacobians included."""
        return np.concatenate([np.asarray(self._log_density(x[part])) for part in _chunks(len(x))])


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, CHUNK):
        yield slice(start, start + CHUNK)
