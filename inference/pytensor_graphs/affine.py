"""Is a PyTensor variable affine in some of its ancestors? A static walk over the operations.

Random points cannot tell `clip(X @ w, -50, 50)` from `X @ w`; this walk can. It knows the
operations that keep a map affine and names the first one that it does not know.

`Notes` has the answer for every node of a graph from one pass over it, inputs first: graphs may be
thousands of nodes deep, so nothing here calls itself along a path.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.traversal import toposort, walk
from pytensor.tensor import TensorConstant

__all__ = [
    "INDEXED",
    "JOINED",
    "MOVED",
    "RESHAPED",
    "Note",
    "Notes",
    "depends",
    "operation",
    "parents",
]

# The elements of the only input, as they are or moved.
MOVED = {"Identity", "ViewOp", "DeepCopyOp", "TensorFromScalar", "ScalarFromTensor"}
MOVED |= {"DimShuffle", "ExpandDims", "Squeeze", "Transpose", "MatrixTranspose"}
MOVED |= {"SplitDims", "JoinDims"}
# Those of the first input, moved or repeated; shapes or indices follow.
RESHAPED = {"Reshape", "SpecifyShape", "Alloc", "Repeat"}
INDEXED = {"Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1"}
JOINED = {"Join", "Stack", "MakeVector"}
# Affine if every input is: sums, moves of elements.
_LINEAR = {"Add", "Sub", "Neg", "Sum", "Mean", "CumOp", "Diff", "Cast", *MOVED, *JOINED}
_LINEAR |= {"Split", "ExtractDiag", "AllocDiag"}
# Affine in the first input if nothing else depends on the weights: indices, shapes, conditions,
# divisors.
_LINEAR_IN_FIRST = {"CheckAndRaise", "Assert", "TrueDiv", "Roll", *RESHAPED, *INDEXED}
# Affine in one input at a time: products.
_BILINEAR = {"Mul", "Dot", "Matmul", "BatchedDot", "Kron", "KroneckerProduct", "Outer"}
_BILINEAR |= {"StructuredDot"}  # with a sparse matrix, which only a sparse reading evaluates
# Affine in the second input if the first (the matrix) does not depend on the weights.
_LINEAR_IN_SECOND = {"SolveTriangular", "CholeskySolve", "Solve"}
# Affine in the branches if the condition does not depend on the weights.
_LINEAR_BUT_FIRST = {"Switch"}
# Affine in the first two inputs (the array and what is written into it).
_LINEAR_IN_FIRST_TWO = {"IncSubtensor", "AdvancedIncSubtensor", "AdvancedIncSubtensor1"}

_SHAPES = {"Shape", "Shape_i"}


def operation(op: Any) -> str:
    """Name of an operation, seen through `Elemwise` and `Blockwise`."""
    for inner in ("scalar_op", "core_op"):
        if hasattr(op, inner) and type(op).__name__ in (
            "Elemwise",
            "Blockwise",
            "BlockwiseWithCoreShape",
        ):
            return operation(getattr(op, inner))
    name = type(op).__name__
    return "CumProd" if name == "CumOp" and op.mode == "mul" else name


def parents(node: Any) -> list[Any]:
    """Inputs on whose value the outputs of an operation depend; a shape is no dependence."""
    if type(node.op).__name__ in _SHAPES:
        return []
    # Second gives its second input in the shape of the first.
    return list(node.inputs[1:] if operation(node.op) == "Second" else node.inputs)


def depends(variable: Any, on: Iterable[Any]) -> bool:
    """Whether the *value* of `variable` depends on any of `on`; a shape is no dependence."""
    on = set(on)

    def above(v: Any) -> Any:
        return None if v in on or v.owner is None else parents(v.owner)

    return any(v in on for v in walk([variable], above))


class Note(NamedTuple):
    """What is known of a node."""

    held: frozenset[Any]  # which of the variables its value depends on
    fault: str | None  # the operation that makes it not affine in them
    number: int  # equal for nodes that are the same expression


class Notes:
    """Notes on the nodes of a graph: what they hold of `on`, and whether they are affine in it."""

    def __init__(self, on: Iterable[Any], stop: Collection[Any] = ()) -> None:
        self.on = frozenset(on)
        self.stop = self.on.union(stop)
        self._known: dict[Any, Note] = {}
        self._numbers: dict[Any, int] = {}

    def __getitem__(self, variable: Any) -> Note:
        """The note on a node; those on all nodes behind it are made on the way."""
        if variable not in self._known:
            for node in toposort([variable], blockers={*self.stop, *self._known}):
                self._write(node)
            if variable not in self._known:
                self._known[variable] = self._leaf(variable)
        return self._known[variable]

    def _leaf(self, variable: Any) -> Note:
        held = self.on.intersection([variable])
        known = isinstance(variable, TensorConstant)
        key = (variable.type, variable.signature()) if known else variable
        return Note(held, None, self._number(key))

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _write(self, node: Any) -> None:
        notes = []
        for variable in node.inputs:
            if variable not in self._known:
                self._known[variable] = self._leaf(variable)
            notes.append(self._known[variable])
        counted = set(map(id, parents(node)))
        pairs = zip(notes, node.inputs, strict=True)
        carrying = [bool(note.held) and id(v) in counted for note, v in pairs]
        held = frozenset[Any]().union(*(n.held for n, c in zip(notes, carrying, strict=True) if c))
        fault = _fault(node.op, carrying) if held else None
        for note, carries in zip(notes, carrying, strict=True):
            fault = fault or (note.fault if carries else None)
        for place, output in enumerate(node.outputs):
            if output not in self.stop:
                number = self._number((node.op, place, *(n.number for n in notes)))
                self._known[output] = Note(held, fault, number)


def _fault(op: Any, dependent: list[bool]) -> str | None:
    """Name of an operation that is not affine in its dependent inputs."""
    name = operation(op)
    if isinstance(op, OpFromGraph):  # einsum is one
        inner = [i for i, d in zip(op.inner_inputs, dependent, strict=True) if d]
        notes = Notes(inner)
        return next((notes[o].fault for o in op.inner_outputs if notes[o].fault), None)
    if name in _LINEAR or name == "Second":
        return None
    if name in _BILINEAR:
        return f"{name} of two terms that both hold the weights" if sum(dependent) > 1 else None
    for known, free in (
        (_LINEAR_IN_FIRST, slice(1, None)),
        (_LINEAR_BUT_FIRST, slice(0, 1)),
        (_LINEAR_IN_FIRST_TWO, slice(2, None)),
    ):
        if name in known:
            return name if any(dependent[free]) else None
    if name in _LINEAR_IN_SECOND:
        return name if dependent[0] or any(dependent[2:]) else None
    return name
