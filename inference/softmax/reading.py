"""A softmax graph as arrays: what its card and its present data say, at given hyperparameters.

The graph of `models/rvm.py` has a matrix of predictors, which the reader of sites refuses; its
builder has left the design on the card instead, so nothing needs to be walked or compiled. Columns
and weights stand as in all results: the bias first, then the basis, for one class after another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ardvark.errors import UnreadableModel, UnsupportedPair
from ardvark.inference.pymc_models.compile import compile_graph, kept_with
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.softmax.model import SoftmaxModel
from ardvark.models.card import card_of

__all__ = ["SoftmaxReading", "read_softmax"]

_BLOCKS = ("bias", "w")


class SoftmaxReading:
    """`.at(theta)` is a `SoftmaxModel`; names and shapes are those of the graph."""

    predictor, observed = "eta", "t"  # as in a reading of sites

    def __init__(self, model: Any, card: Any) -> None:
        self.model, self.design, self.classes = model, card.design, list(model.coords["class"])
        self.bias = "bias" in model.named_vars
        self.weights = _BLOCKS if self.bias else ("w",)
        parts = {name for block in self.weights for name in (block, f"{block}_active")}
        self.hyper = tuple(rv.name for rv in model.free_RVs if rv.name not in parts)
        self.shared = "alpha" in model.named_vars and model["alpha"].ndim == 0

    @property
    def scale(self) -> str | None:
        """Name of the kernel's scale, if it is a free variable."""
        scale = self.design.scale
        return scale.name if scale is not None and scale.name in self.hyper else None

    @property
    def codes(self) -> Index:
        """The classes of the rows."""
        return np.asarray(self.model["t_observed"].get_value(), dtype=np.int64)

    def by_observed(self, values: Array) -> dict[str, Array]:
        """Numbers of the rows by the name of the observed variable."""
        return {self.observed: values}

    @cached_property
    def weight_names(self) -> list[str]:
        """Names of all weights, class by class, the bias first."""
        return [
            name
            for c in self.classes
            for name in (
                *([f"bias[{c}]"] if self.bias else []),
                *(f"w[{c}, {basis}]" for basis in self.design.names),
            )
        ]

    @property
    def prior_data(self) -> dict[str, Array]:
        """Precisions that are data of the graph."""
        names = ("alpha_bias", "alpha")
        return {v.name: v.get_value() for v in self.model.data_vars if v.name in names}

    def gamma_of(self, name: str) -> tuple[float, float]:
        """Shape and rate of the hyperprior of `alpha` or `alpha_bias`."""
        node = self.model[name].owner
        shape, scale = (
            float(np.ravel(p.eval(mode="FAST_COMPILE"))[0]) for p in node.op.dist_params(node)
        )
        return shape, 1.0 / scale

    def basis(self, theta: Mapping[str, Any], values: Array | None = None) -> Array:
        """Phi at the present data, or at new values of them: a constant first if there is one."""
        if values is None:
            values = self.model[self.design.data].get_value()
        functions = self.design.basis_functions(np.asarray(values, float), *self._scales(theta))
        ones = np.ones((len(values), int(self.bias)))
        return np.hstack([ones, np.asarray(functions, float)])

    def _scales(self, theta: Mapping[str, Any]) -> tuple[Array, ...]:
        if self.design.scale is None:
            return ()
        name = self.design.scale.name
        value = theta[name] if name in self.hyper else self.model[name].get_value()
        return (np.asarray(value, float),)

    def precision(self, theta: Mapping[str, Any]) -> Array:
        """Precisions (K, d) of all weights."""
        known = self.prior_data | dict(theta)
        shape = (len(self.classes), len(self.design.names))
        alpha = np.broadcast_to(np.asarray(known["alpha"], float), shape)
        if not self.bias:
            return np.array(alpha)
        return np.column_stack([np.asarray(known["alpha_bias"], float), alpha])

    def theta_of(self, precision: Array) -> dict[str, Array]:
        """The hyperparameters `alpha` and `alpha_bias` of a table of precisions."""
        bias = int(self.bias)
        named = {"alpha_bias": precision[:, 0], "alpha": precision[:, bias:]}
        return {name: value for name, value in named.items() if name in self.hyper}

    def at(self, theta: Mapping[str, Any]) -> SoftmaxModel:
        """The model in arrays."""
        return SoftmaxModel(self.basis(theta), self.codes, self.precision(theta))

    def split(self, w: Array) -> dict[str, Array]:
        """Draws (..., K, d) by the names of the free variables."""
        bias, found = int(self.bias), dict[str, Array]()
        for block, values in (("bias", w[..., 0]), ("w", w[..., bias:])):
            found[block] = values
            active = f"{block}_active"
            if active in self.model.named_vars:
                alpha = self.prior_data["alpha" if block == "w" else "alpha_bias"]
                found[active] = values[..., np.isfinite(alpha)]
        return found

    def pull(self, theta: Mapping[str, Any], gradient: Array) -> Array:
        """d/d scale of a number whose gradient in the basis functions is given (N, M)."""
        pull = kept_with(
            self.model, "softmax pull", lambda: _compiled_pull(self.model, self.design)
        )
        return np.asarray(pull(gradient, *self._scales(theta)))


def _compiled_pull(model: Any, design: Any) -> Callable[..., Any]:
    import pytensor.tensor as pt

    outer = pt.matrix("gradient", dtype="float64")
    scale = pt.tensor("scale", dtype="float64", shape=np.shape(design.scale.typical))
    total = (outer * design.basis_functions(model[design.data], scale)).sum()
    return compile_graph([outer, scale], pt.grad(total, scale))


def read_softmax(model: Any, *, gaussian: bool = True) -> SoftmaxReading:
    """Read a graph of the family "softmax"; with `gaussian`, only if its weights are Gaussian."""
    card = card_of(model)
    if card is None or card.design is None:
        raise UnreadableModel(
            "this graph was not made by rvm_classification of three classes or more, and only such "
            "a softmax is read: use NUTS()"
        )
    reading = SoftmaxReading(model, card)
    known = {*reading.weights, *(f"{b}_active" for b in reading.weights), "t", "alpha_bias"}
    known |= {"alpha", "width", "input_scale"}
    extra = [v.name for v in (*model.basic_RVs, *model.potentials) if v.name not in known]
    if gaussian and extra:
        raise UnreadableModel(
            f"the graph has {extra[0]!r} beyond what its builder wrote, so its softmax is not all "
            f"of it: use NUTS()"
        )
    if gaussian and "alpha" not in model.named_vars:
        raise UnsupportedPair(
            "prior='student' leaves no Gaussian block of weights to approximate. Use NUTS() or "
            "SMC(), or prior='ard', of which it is the marginal."
        )
    return reading
