"""Which inputs does each element of an affine node hold? A walk that follows elements, not values.

Every node on the way has a pattern, a sparse matrix with a row for each of its elements and a
column for each scalar input. What an operation does to elements it shows on an array of their
places:

| operation                                  | pattern of the result                             |
|--------------------------------------------|---------------------------------------------------|
| indexing, reshaping, broadcasting, joining | its rows, by the op on an array of places         |
| sums and products element by element       | union of rows; none where a known factor is zero  |
| sum or mean over axes                      | union over the axis                               |
| product with a matrix                      | product of patterns                               |

An element of a matrix that moves with the hyperparameters counts as not zero, so a pattern holds
for all of their values. Whatever is not in the table ends the walk by name: the map is then read
as a dense one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pytensor.graph.traversal import toposort
from scipy.sparse import csr_array, eye_array, issparse, kron, vstack

from ardvark.inference.pytensor_graphs.affine import INDEXED, MOVED, RESHAPED, Notes, operation
from ardvark.inference.sites.arrays import Array

__all__ = ["NoStructure", "pattern_of", "side_inputs"]

MOST_ENTRIES = 2e8  # of a pattern on the way

_SAME = {"Identity", "Cast", "ViewOp", "DeepCopyOp", "Neg", "CheckAndRaise", "Assert"}
_MOVES = {*MOVED, *RESHAPED, *INDEXED, "Roll", "ExtractDiag"} - _SAME
_UNIONS = {"Add", "Sub"}
_PRODUCTS = {"Mul", "TrueDiv"}
_MATRIX = {"Dot", "Matmul", "StructuredDot"}


class NoStructure(Exception):
    """An operation whose pattern is not known, or is full; its text says which."""


def side_inputs(variable: Any, on: list[Any]) -> list[Any]:
    """Inputs of the operations between `on` and `variable` that hold none of `on`."""
    notes = Notes(on)
    notes[variable]  # makes those on all nodes behind it
    found: dict[Any, None] = {}
    for node in toposort([variable], blockers=set(on)):
        if any(notes[o].held for o in node.outputs):
            found |= dict.fromkeys(v for v in node.inputs if not notes[v].held)
    return list(found)


def pattern_of(
    variable: Any,
    on: list[Any],
    shapes: list[tuple[int, ...]],
    values: Mapping[Any, Any],
    fixed: Callable[[Any], bool],
) -> Any:
    """Pattern (elements of `variable`, all elements of `on`) as a `csr_array` of ones.

    Parameters
    ----------
    on, shapes
        Inputs in which `variable` is affine, and their shapes.
    values
        Value of each of the `side_inputs`.
    fixed
        Which of these keep their zeros whatever the hyperparameters are.
    """
    walk = _Walk(on, shapes, values, fixed)
    for node in toposort([variable], blockers=set(on)):
        walk.visit(node)
    if variable not in walk.known:
        raise NoStructure("the node holds no weight")
    found = csr_array(walk.known[variable][1])
    found.sort_indices()
    return found


class _Walk:
    """Places and pattern of every node that holds an input."""

    def __init__(
        self, on: list[Any], shapes: list[tuple[int, ...]], values: Mapping[Any, Any], fixed: Any
    ) -> None:
        self.values, self.fixed = values, fixed
        sizes = [int(np.prod(shape)) for shape in shapes]
        self.width = sum(sizes)
        everything, begin = csr_array(eye_array(self.width)), 0
        self.known: dict[Any, tuple[tuple[int, ...], Any]] = {}  # shape, pattern
        for v, shape, size in zip(on, shapes, sizes, strict=True):
            self.known[v] = (shape, everything[begin : begin + size])
            begin += size

    def visit(self, node: Any) -> None:
        held = [v in self.known for v in node.inputs]
        if not any(held):
            return
        name = operation(node.op)
        if name in ("Shape", "Shape_i"):
            return
        if len(node.outputs) != 1:
            raise NoStructure(f"{name}, which has several results")
        shape, pattern = self._rule(name)(node, held)
        if pattern.nnz > MOST_ENTRIES:
            raise NoStructure(f"{name}, which leaves {pattern.nnz:.3g} entries")
        self.known[node.outputs[0]] = (shape, pattern)

    def _rule(self, name: str) -> Callable[[Any, list[bool]], tuple[tuple[int, ...], Any]]:
        for names, rule in (
            (_MOVES, self._moved),
            (_SAME, self._same),
            (_UNIONS, self._union),
            (_PRODUCTS, self._product),
            (_MATRIX, self._matrix),
            ({"Join", "MakeVector"}, self._joined),
            ({"Sum", "Mean"}, self._summed),
            ({"Second"}, self._second),
            ({"Switch"}, self._chosen),
        ):
            if name in names:
                return rule
        raise NoStructure(f"the operation {name}")

    # Each takes a node and says which of its inputs hold weights -------------------------------

    def _places(self, variable: Any) -> Array:
        shape, _ = self.known[variable]
        return np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)

    def _taken(self, pattern: Any, places: Array) -> tuple[tuple[int, ...], Any]:
        return np.shape(places), pattern[np.asarray(places, np.int64).ravel()]

    def _perform(self, node: Any, inputs: list[Any]) -> Array:
        storage: list[list[Any]] = [[None]]
        node.op.perform(node, inputs, storage)
        return np.asarray(storage[0][0])

    def _moved(self, node: Any, held: list[bool]) -> tuple[tuple[int, ...], Any]:
        if any(held[1:]):
            raise NoStructure(f"{operation(node.op)} by weights")
        source = node.inputs[0]
        rest = [self.values[v] for v in node.inputs[1:]]
        return self._taken(
            self.known[source][1], self._perform(node, [self._places(source), *rest])
        )

    def _same(self, node: Any, held: list[bool]) -> tuple[tuple[int, ...], Any]:
        return self.known[node.inputs[0]]

    def _shape(self, node: Any) -> tuple[int, ...]:
        return np.broadcast_shapes(
            *(
                self.known[v][0] if v in self.known else np.shape(self.values[v])
                for v in node.inputs
            )
        )

    def _spread(self, variable: Any, shape: tuple[int, ...]) -> Any:
        places = np.broadcast_to(self._places(variable), shape)
        return self._taken(self.known[variable][1], places)[1]

    def _union(self, node: Any, held: list[bool]) -> tuple[tuple[int, ...], Any]:
        shape = self._shape(node)
        parts = [self._spread(v, shape) for v, h in zip(node.inputs, held, strict=True) if h]
        return shape, _ones(sum(parts[1:], parts[0]))

    def _product(self, node: Any, held: list[bool]) -> tuple[tuple[int, ...], Any]:
        if sum(held) != 1 or (operation(node.op) == "TrueDiv" and not held[0]):
            raise NoStructure(f"{operation(node.op)} of two terms that both hold weights")
        shape, at = self._shape(node), held.index(True)
        alive = np.ones(shape, bool)
        if operation(node.op) == "Mul":
            for v in node.inputs[:at] + node.inputs[at + 1 :]:
                if self.fixed(v):
                    alive &= np.broadcast_to(np.asarray(self.values[v]) != 0, shape)
        pattern = self._spread(node.inputs[at], shape)
        return shape, pattern if alive.all() else _masked(pattern, alive.ravel())

    def _second(self, node: Any, held: list[bool]) -> tuple[tuple[int, ...], Any]:
        shape = self._shape(node)
        if not held[1]:
            return shape, csr_array((int(np.prod(shape)), self.width))
        return shape, self._spread(node.inputs[1], shape)

    def _chosen(self, node: Any, held: list[bool]) -> tuple[tuple[int, ...], Any]:
        if held[0]:
            raise NoStructure("a condition on weights")
        shape, condition = self._shape(node), self.values[node.inputs[0]]
        total = csr_array((int(np.prod(shape)), self.width))
        for v, h, side in zip(node.inputs[1:], held[1:], (True, False), strict=True):
            if h:
                part = self._spread(v, shape)
                if self.fixed(node.inputs[0]):
                    chosen = np.broadcast_to(np.asarray(condition, bool) == side, shape)
                    part = _masked(part, chosen.ravel())
                total = total + part
        return shape, _ones(total)

    def _joined(self, node: Any, held: list[bool]) -> tuple[tuple[int, ...], Any]:
        """Places of all inputs in one stack of patterns; what holds no weight has an empty row."""
        patterns, inputs, begin = [csr_array((1, self.width))], [], 1
        for v, h in zip(node.inputs, held, strict=True):
            if h:
                inputs.append(self._places(v) + begin)
                patterns.append(self.known[v][1])
                begin += self.known[v][1].shape[0]
            else:
                inputs.append(np.zeros(np.shape(self.values[v])))
        if operation(node.op) == "MakeVector":
            places = np.array([float(x) for x in inputs])
        else:
            places = np.concatenate(inputs, axis=node.op.axis)
        return self._taken(csr_array(vstack(patterns)), places)

    def _summed(self, node: Any, held: list[bool]) -> tuple[tuple[int, ...], Any]:
        [source] = node.inputs
        shape, pattern = self.known[source]
        axis = node.op.axis
        axes = tuple(range(len(shape))) if axis is None else tuple(np.atleast_1d(axis).tolist())
        axes = tuple(a % len(shape) for a in axes) if shape else ()
        kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
        size = int(np.prod(kept))
        target = np.broadcast_to(np.arange(size).reshape(kept), shape).ravel()
        gather = csr_array(
            (np.ones(target.size), (target, np.arange(target.size))), shape=(size, target.size)
        )
        out = tuple(n for a, n in enumerate(shape) if a not in axes)
        return out, _ones(gather @ pattern)

    def _matrix(self, node: Any, held: list[bool]) -> tuple[tuple[int, ...], Any]:
        left, right = node.inputs
        if all(held):
            raise NoStructure("a product of two terms that both hold weights")
        known, other = (left, right) if held[0] else (right, left)
        shape, pattern = self.known[known]
        matrix = self._support(other)
        if matrix.ndim > 2 or len(shape) > 2 or not shape or not matrix.ndim:
            raise NoStructure(f"{operation(node.op)} of a batch of matrices")
        if held[0]:  # (m, k) @ (k, l)
            inner = matrix.reshape((shape[-1], -1)) if matrix.ndim == 1 else matrix
            outer = eye_array(int(np.prod(shape[:-1])))
            across = kron(outer, inner.T, format="csr")
            result = shape[:-1] + (matrix.shape[1:] if matrix.ndim == 2 else ())
        else:  # (n, k) @ (k, l)
            inner = matrix.reshape((1, -1)) if matrix.ndim == 1 else matrix
            across = kron(inner, eye_array(int(np.prod(shape[1:]))), format="csr")
            result = (matrix.shape[:1] if matrix.ndim == 2 else ()) + shape[1:]
        return result, _ones(csr_array(across) @ pattern)

    def _support(self, variable: Any) -> Any:
        """Where a matrix is not zero, whatever the hyperparameters are."""
        value = self.values[variable]
        if issparse(value):
            return csr_array(value != 0).astype(float)
        value = np.asarray(value)
        full = not self.fixed(variable)
        support = np.ones(value.shape) if full else (value != 0).astype(float)
        if value.ndim == 2:
            if support.sum() > MOST_ENTRIES / 4:
                raise NoStructure(f"a product with a full matrix of {value.shape}")
            return csr_array(support)
        return support


def _ones(pattern: Any) -> Any:
    pattern = csr_array(pattern)
    pattern.data[:] = 1.0
    return pattern


def _masked(pattern: Any, alive: Any) -> Any:
    row = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    kept = csr_array(pattern, copy=True)
    kept.data = kept.data * alive[row]
    kept.eliminate_zeros()
    return kept
