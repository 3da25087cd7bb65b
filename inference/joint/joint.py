"""The density of a model in machine code, and the map between its x and the graph's variables.

`parts.py` makes a `Joint` of a reading: weights and hyperparameters φ in one vector x, some
precisions integrated out. Here are its two uses, and the check that both pass: `differs` holds the
density against PyMC's own, compiled from the graph that the user wrote and by nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from ardvark.inference.known_sites.joint_density import gradient_at, group_rates, log_rows
from ardvark.inference.known_sites.packed import Packed
from ardvark.inference.pymc_models.compile import compile_graph, kept_with, quick
from ardvark.inference.pymc_models.terms import natural_terms
from ardvark.inference.sites.arrays import Array

__all__ = ["Integrated", "Joint", "Piece", "Uncompiled", "differs"]

CLOSE = 1e-9  # relative, between this density and PyMC's, but for a constant ...
CONSTANT = 1e-6  # ... that may be this large: PyTensor keeps some numbers in single precision
# How far from the start the points lie at which the two are compared: a weight at random up to
# NEAR, and each hyperparameter as far as FAR, up and down, where what looked linear may bend.
NEAR = (0.1, 0.3, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0)
FAR = (0.1, -0.3, 1.0, -1.0, 2.5, -2.5, 5.0, -5.0)
LEAST_COMPARED = 3  # PyMC's own may be -inf further out, where ours is not: then it was rounded


class Uncompiled(Exception):
    """Why a model has no density in machine code."""


class Piece(NamedTuple):
    """The position of a variable in x, its shape, and whether x has its logarithm."""

    at: slice
    shape: tuple[int, ...]
    log: bool


class Integrated(NamedTuple):
    """A precision that is not in x: its groups, its Gamma's shape given x, its own shape."""

    groups: slice
    gamma: Array
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Joint:
    """A density in machine code; `rows` of the reading, of which `row_at` are no priors."""

    packed: Packed
    pieces: dict[str, Piece]
    integrated: dict[str, Integrated]
    start: Array
    row_at: NDArray[np.int64]
    rows: int

    def natural(self, x: Array, rng: np.random.Generator) -> dict[str, Array]:
        """Give the variables of the graph at points x (..., n); what is integrated out is drawn."""
        found, lead = dict[str, Array](), x.shape[:-1]
        for name, piece in self.pieces.items():
            part = x[..., piece.at].reshape((*lead, *piece.shape))
            found[name] = np.exp(part) if piece.log else part
        rates = group_rates(self.packed, x) if self.integrated else np.zeros(0)
        for name, (groups, gamma, shape) in self.integrated.items():
            found[name] = rng.gamma(gamma, 1.0 / rates[..., groups]).reshape((*lead, *shape))
        return found

    def point(self, values: Mapping[str, Any]) -> Array:
        """Give x where these variables have these values and the others their start."""
        x = self.start.copy()
        for name, value in values.items():
            if (piece := self.pieces.get(name)) is not None:
                part = np.broadcast_to(np.asarray(value, float), piece.shape).ravel()
                x[piece.at] = np.log(part) if piece.log else part
        return x

    def log_density(self, x: Array) -> float:
        """Log density at one point."""
        return gradient_at(self.packed, x)[0]

    def log_rows(self, x: Array) -> Array:
        """Log sites of all rows of the reading at points x (..., n); 0 for those of a prior."""
        given = log_rows(self.packed, x)
        if given.shape[-1] == self.rows:
            return given
        found = np.zeros((*x.shape[:-1], self.rows))
        found[..., self.row_at] = given
        return found

    def log_conditional(self, x: Array, values: Mapping[str, Array]) -> float:
        """Log density of log α given x, summed over the precisions that are integrated out."""
        rates, total = group_rates(self.packed, x), 0.0
        for name, (groups, a, _) in self.integrated.items():
            b, alpha = rates[groups], np.ravel(values[name])
            total += float(np.sum(a * np.log(b) - gammaln(a) + xlogy(a, alpha) - b * alpha))
        return total


def differs(joint: Joint, model: Any, points: Array | None = None) -> str:
    """Say where this density is not PyMC's own, at random points or at those given; "" if nowhere.

    A precision that is integrated out is drawn from its conditional, whose density is added: the
    sum is that of all variables, whatever was drawn. A constant matters to no sampler. At random
    points far out PyMC may lose a likelihood to rounding; points that are given are held to it.

    PyMC's graph is first taken as it is written, which compiles in a fifth of the time. Where the
    two differ it is compiled again with PyTensor's rewrites, some of which save digits.
    """
    return _gap(joint, model, points, True) and _gap(joint, model, points, False)


def _gap(joint: Joint, model: Any, points: Array | None, as_written: bool) -> str:
    rng = np.random.default_rng(20261118)
    given = points is not None
    if points is None:
        away = np.array(NEAR)[:, None] * rng.uniform(-1.0, 1.0, (len(NEAR), joint.start.size))
        for piece in joint.pieces.values():
            if piece.log:
                away[:, piece.at] += np.array(FAR)[:, None]
        points = joint.start + away
    reference, gaps = _own_log_density(joint, model, as_written), list[float]()
    for x in points:
        values = joint.natural(x, rng)
        ours = joint.log_density(x) + joint.log_conditional(x, values)
        theirs = reference(values)
        if not given and not np.isfinite(theirs):
            continue
        size = max(1.0, abs(theirs))
        gaps.append(ours - theirs)
        if not (abs(gaps[-1]) <= CONSTANT * size and abs(gaps[-1] - gaps[0]) <= CLOSE * size):
            return f"its log density is {ours:.12g} in machine code and {theirs:.12g} by PyMC"
    enough = given or len(gaps) >= LEAST_COMPARED
    return "" if enough else f"PyMC's log density is finite at {len(gaps)} of {len(points)} points"


def _own_log_density(
    joint: Joint, model: Any, as_written: bool
) -> Callable[[Mapping[str, Array]], float]:
    """PyMC's log density as a function of natural values, on the scales that x has."""
    inputs, terms = natural_terms(model, model.free_RVs)

    def compile_sum() -> Callable[..., Array]:
        with quick():
            total = sum((term.sum() for term in terms.values()), pt.constant(0.0))
            return compile_graph(list(inputs.values()), total, as_written)

    compiled = kept_with(model, ("log density of PyMC", as_written), compile_sum)
    logs = [*joint.integrated, *(name for name, piece in joint.pieces.items() if piece.log)]

    def log_density(values: Mapping[str, Array]) -> float:
        with np.errstate(all="ignore"):
            slopes = sum(float(np.sum(np.log(values[name]))) for name in logs)  # dα = α d log α
            return float(compiled(*(values[rv.name] for rv in inputs))) + slopes

    return log_density
