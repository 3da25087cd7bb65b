"""Is a PyTensor variable affine in some of its ancestors? A static walk over the operations.

Random points cannot tell `clip(X @ w, -50, 50)` from `X @ w`; this walk can. It knows the
operations that keep a map affine and names the first one that it does not know.

Graph layer: with `read.py` the only place that walks a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.traversal import walk

__all__ = ["depends", "first_nonaffine", "operation"]

# Affine if every input is: sums, moves of elements, views.
_LINEAR = {
    "Add",
    "Sub",
    "Neg",
    "Identity",
    "Cast",
    "ViewOp",
    "DeepCopyOp",
    "DimShuffle",
    "ExpandDims",
    "Squeeze",
    "Transpose",
    "MatrixTranspose",
    "Sum",
    "Mean",
    "CumOp",
    "Join",
    "Stack",
    "MakeVector",
    "Split",
    "SplitDims",
    "JoinDims",
    "TensorFromScalar",
    "ScalarFromTensor",
    "ExtractDiag",
    "AllocDiag",
    "Diff",
}
# Affine in the first input if nothing else depends on the weights: indices, shapes, conditions,
# divisors.
_LINEAR_IN_FIRST = {
    "Subtensor",
    "AdvancedSubtensor",
    "AdvancedSubtensor1",
    "Reshape",
    "SpecifyShape",
    "CheckAndRaise",
    "Assert",
    "Alloc",
    "Repeat",
    "TrueDiv",
    "Roll",
}
# Affine in one input at a time: products.
_BILINEAR = {"Mul", "Dot", "Matmul", "BatchedDot", "Kron", "KroneckerProduct", "Outer"}
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
    return type(op).__name__


def depends(variable: Any, on: Iterable[Any]) -> bool:
    """Whether the *value* of `variable` depends on any of `on`; a shape is no dependence."""
    on = set(on)

    def parents(v: Any) -> Any:
        if v in on or v.owner is None or type(v.owner.op).__name__ in _SHAPES:
            return None
        return v.owner.inputs

    return any(v in on for v in walk([variable], parents))


def first_nonaffine(variable: Any, on: Iterable[Any]) -> str | None:
    """Name of the first operation that makes `variable` not affine in `on`, None if it is."""
    on = set(on)
    seen: set[Any] = set()

    def visit(v: Any) -> str | None:
        if v in on or v in seen or v.owner is None or not depends(v, on):
            return None
        seen.add(v)
        return _check(v.owner, [depends(i, on) for i in v.owner.inputs], visit)

    return visit(variable)


def _check(node: Any, dependent: list[bool], visit: Callable[[Any], str | None]) -> str | None:
    """Check one operation; then the inputs that carry the weights."""
    op, name = node.op, operation(node.op)
    if isinstance(op, OpFromGraph):  # einsum is one
        inner = {i for i, d in zip(op.inner_inputs, dependent, strict=True) if d}
        for output in op.inner_outputs:
            if (found := first_nonaffine(output, inner)) is not None:
                return found
    elif name in _LINEAR:
        pass
    elif name in _LINEAR_IN_FIRST:
        if any(dependent[1:]):
            return name
    elif name in _LINEAR_IN_SECOND:
        if dependent[0] or any(dependent[2:]):
            return name
    elif name in _LINEAR_BUT_FIRST:
        if dependent[0]:
            return name
    elif name in _LINEAR_IN_FIRST_TWO:
        if any(dependent[2:]):
            return name
    elif name in _BILINEAR:
        if sum(dependent) > 1:
            return f"{name} of two terms that both hold the weights"
    else:
        return name
    for parent, needed in zip(node.inputs, dependent, strict=True):
        if needed and (found := visit(parent)) is not None:
            return found
    return None
