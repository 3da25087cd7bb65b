"""The parts of a graph that was read as a Gaussian block times sites, as graphs.

`read.py` makes a `Reading`, `compiled.py` compiles it, `latent.py` evaluates it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace

from ardvark.inference.pytensor_graphs.affine import INDEXED, MOVED, RESHAPED, operation
from ardvark.inference.sites.arrays import Array

__all__ = ["Line", "ModelHere", "Reading", "Rows", "expression", "stacked"]


class ModelHere:
    """The model that was read, in this process; a reading that is sent elsewhere goes without."""

    def __init__(self, model: Any = None) -> None:
        self._model = model

    def __call__(self) -> Any:
        """Give the model, None in another process."""
        return self._model

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the model: a step method in a worker needs the arrays alone."""
        return ModelHere, ()


class Rows(NamedTuple):
    """Rows of sites that come from one place: an observed variable, a potential, a prior."""

    name: str
    kind: str  # "observed" | "potential" | "prior"
    predictor: str | None  # its name in the graph, if it has one
    eta: Any
    cut_at: Any  # a free eta ...
    cut: Any  # ... and the log sites there
    log_sites: Callable[[Any], Any] | None  # of another observed value
    observed_value: Any
    coupled: bool = False  # a softmax over the last axis of eta


@dataclass(frozen=True, slots=True)
class Reading:
    """The parts of a graph, with natural-scale inputs in place of its free variables."""

    model: ModelHere
    rows: list[Rows]
    weights: tuple[str, ...]
    hyper: tuple[str, ...]
    marginalised: tuple[str, ...]  # free variables that nothing observed depends on
    reasons: dict[str, str]  # why a variable with a Gaussian prior is a hyperparameter
    kinds: dict[str, str]  # distribution of every random variable
    w: list[Any]  # inputs of the blocks
    theta: list[Any]  # inputs of the hyperparameters
    priors: list[tuple[Any, Any]]  # (mean, sd) of a block, or (mean, covariance) of a dense one
    dense: list[bool]
    eta: Any  # all rows, one vector
    inside: Any  # a free eta ...
    cut: Any  # ... and the log sites there
    terms: dict[str, Any]  # the model's own log density, by variable
    start: dict[str, Array]  # support points of the free variables
    lines: dict[str, Line]  # blocks that live on another scale than the graph's
    rows_of_priors: list[Any]  # `PriorRows` of blocks whose precision is sparse, or None
    excess: list[Any]  # what unnormalised priors of blocks have more than a Gaussian, in θ alone


class Line(NamedTuple):
    """A linear change of scale of one block, both ways, as graphs."""

    free: Any
    natural: Any  # the block on the graph's scale, as a function of `free`
    given: Any
    line: Any  # and back, as a function of `given`


def stacked(rows: list[Rows], ws: list[Any], shapes: list[tuple[int, ...]]) -> tuple[Any, Any, Any]:
    """All rows as one vector: eta, a free eta, and the log sites there."""
    if len(rows) == 1 and rows[0].eta.ndim == 1:
        return rows[0].eta, rows[0].cut_at, rows[0].cut
    inside = pt.vector("eta_input", dtype="float64")
    at_zero = {w: pt.zeros(shape) for w, shape in zip(ws, shapes, strict=True)}
    replacements, cuts, stop = {}, [], pt.constant(0)
    for part in rows:
        [still] = clone_replace([part.eta], at_zero)  # for its shape
        begin, stop = stop, stop + still.size
        replacements[part.cut_at] = inside[begin:stop].reshape(still.shape, ndim=still.ndim)
        cuts.append(part.cut)
    eta = pt.concatenate([part.eta.reshape((-1,)) for part in rows])
    cuts = clone_replace(cuts, replacements, rebuild_strict=False)
    return eta, inside, pt.concatenate([cut.reshape((-1,)) for cut in cuts])


def expression(variable: Any, depth: int = 4) -> str:
    """A short reading of an expression: X @ b + a."""
    if variable.name or variable.owner is None or depth == 0:
        if isinstance(variable, Constant) and np.size(variable.data) == 1:
            return f"{float(np.squeeze(variable.data)):g}"
        return variable.name or ("..." if variable.owner is not None else "data")
    name, inputs = operation(variable.owner.op), variable.owner.inputs
    infix = {"Add": " + ", "Sub": " - ", "Mul": " * ", "TrueDiv": " / ", "Dot": " @ "}
    if name in {"Cast", *MOVED, *RESHAPED}:
        return expression(inputs[0], depth)
    shown = [expression(i, depth - 1) for i in inputs]
    if name in infix or name == "Matmul":
        return infix.get(name, " @ ").join(shown)
    if name in INDEXED:
        return f"{shown[0]}[{', '.join(shown[1:]) or '...'}]"
    return f"{name.lower()}({', '.join(shown)})"
