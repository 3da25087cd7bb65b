"""Graphs made again with some nodes replaced: the same numbers, in a form that can be cut.

| function | from | to |
|---|---|---|
| `lifted` | f(a)[g], f an elementwise function | f(a[g]): an affine node with all rows |
| | switch(known, f(a), f(b)), stack([f(a), f(b)]) | f(switch(known, a, b)), f(stack([a, b])) |
| `rebuilt` | y ~ Normal(mu, sigma), one mu for all rows | the same with a mu for each row |
| `by_row` | an error where any row is outside its domain | log p = -inf in the rows that are |
| `narrow` | a sum of 40 terms as one operation | a sum of sums |

Nodes are made again from the inputs on, and only those that change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.traversal import toposort

from ardvark.errors import UnreadableModel
from ardvark.inference.pytensor_graphs.affine import Notes, depends, operation

__all__ = ["by_row", "lifted", "narrow", "rebuilt"]

_OPERANDS = 30  # NumPy's loops take 32 arrays, outputs counted
_AXES = {"DimShuffle", "ExpandDims"}
_MOVES = {"Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1", "Reshape", *_AXES, "Squeeze"}
_ASKING = {"All", "MakeVector", "Join", "ScalarFromTensor"}
_BRANCHES = {"MakeVector": 0, "Join": 0, "Switch": 1}  # where the gathered inputs begin


def _made_again(
    variable: Any,
    rule: Callable[[Any, list[Any]], list[Any]],
    given: Mapping[Any, Any],
    leaves: Collection[Any] = (),
) -> Any:
    """`variable` with `given` nodes replaced; `rule` gives the outputs of a node at new inputs."""
    known = dict(given)
    blockers = {*leaves, *given}.difference([variable])
    for node in toposort([variable], blockers=blockers):
        inputs = [known.get(i, i) for i in node.inputs]
        known |= zip(node.outputs, rule(node, inputs), strict=True)
    return known.get(variable, variable)


def _outputs(node: Any, inputs: list[Any]) -> list[Any]:
    """Outputs of a node at new inputs: its own if they are the same."""
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return list(node.outputs)
    return list(_remade(node, inputs).outputs)


def _remade(node: Any, inputs: list[Any]) -> Any:
    try:
        made = node.op.make_node(*inputs)
    except Exception as error:  # an operation may refuse other shapes in its own way
        raise UnreadableModel(
            f"the predictor goes through {operation(node.op)}, which takes no other shape than it "
            f"has: give the predictor one element for each row of the data"
        ) from error
    for old, new in zip(node.outputs, made.outputs, strict=True):
        new.name = old.name
    return made


# f(a)[g] to f(a[g]) -------------------------------------------------------------------------------


def lifted(variable: Any, notes: Notes) -> Any:
    """Elementwise functions that are not affine after the moves of elements, not before them."""

    def rule(node: Any, inputs: list[Any]) -> list[Any]:
        return [_pushed(output, notes) for output in _outputs(node, inputs)]

    return _made_again(variable, rule, {}, notes.stop)


def _pushed(variable: Any, notes: Notes) -> Any:
    """One move of elements, pushed through the elementwise functions that it moves."""
    note, node = notes[variable], variable.owner
    if note.fault is None:
        return variable
    name = operation(node.op)
    begin = 0 if name in _MOVES else _BRANCHES.get(name, -1)
    end = 1 if name in _MOVES else len(node.inputs)
    branches = [_seen(i) for i in node.inputs[begin:end]]
    if begin < 0 or any(notes[i].held for i in (*node.inputs[:begin], *node.inputs[end:])):
        return variable
    function: Any = branches[0].owner and branches[0].owner.op
    if type(function).__name__ != "Elemwise" or notes[branches[0]].fault is None:
        return variable
    if any(b.owner is None or b.owner.op != function for b in branches):
        return variable

    def moved(column: tuple[Any, ...]) -> Any:
        first = notes[column[0]]
        alike = all(notes[argument].number == first.number for argument in column)
        if alike and not first.held and all(column[0].type.broadcastable):
            return column[0].dimshuffle()  # a number is the same wherever it is moved to
        full = [_spread(a, branch) for a, branch in zip(column, branches, strict=True)]
        made = _remade(node, [*node.inputs[:begin], *full, *node.inputs[end:]])
        return _pushed(made.outputs[0], notes)

    return function(*map(moved, zip(*(b.owner.inputs for b in branches), strict=True)))


def _seen(variable: Any) -> Any:
    """What a Deterministic is a view of."""
    while variable.owner is not None and operation(variable.owner.op) == "ViewOp":
        variable = variable.owner.inputs[0]
    return variable


def _spread(variable: Any, like: Any) -> Any:
    if variable.type.broadcastable == like.type.broadcastable:
        return variable
    return pt.broadcast_to(variable, like.shape)


# One number for each row --------------------------------------------------------------------------


def rebuilt(variable: Any, old: Collection[Any], new: Any, leaves: Collection[Any] = ()) -> Any:
    """`variable` with `new`, which has all axes of the data, in place of the narrower `old`."""

    def rule(node: Any, inputs: list[Any]) -> list[Any]:
        [first, *_], [output, *_] = inputs or [None], node.outputs
        if operation(node.op) in _AXES and first not in node.inputs and first.ndim >= output.ndim:
            return [first]  # an axis that was there to be broadcast is there already
        return _outputs(node, inputs)

    return _made_again(variable, rule, dict.fromkeys(old, new), leaves)


# -inf where a row is outside its domain -----------------------------------------------------------


def by_row(log_density: Any, inside: Any = None) -> Any:
    """Conditions on `inside` (all conditions if it is None) as -inf in place of an error.

    PyMC asks whether a condition holds in all rows; each row of `inside` must know it of its own.
    """

    def rule(node: Any, inputs: list[Any]) -> list[Any]:
        if not isinstance(node.op, CheckParameterValue) or not node.op.can_be_replaced_by_ninf:
            return _outputs(node, inputs)
        value, *conditions = inputs
        asked = [c for c in conditions if inside is None or depends(c, [inside])]
        for condition in (c for asking in asked for c in _elements(asking)):
            own = inside is not None and condition.ndim == value.ndim
            holds = condition if own and depends(condition, [inside]) else pt.all(condition)
            value = pt.switch(holds, value, -np.inf)
        left = [c for c in conditions if c not in asked]
        return [node.op(value, *left) if left else value]

    return _made_again(log_density, rule, {})


def _elements(condition: Any) -> list[Any]:
    """The conditions of which one asks whether they hold everywhere."""
    node = condition.owner
    if node is None or operation(node.op) not in _ASKING or getattr(node.op, "axis", None):
        return [pt.as_tensor(condition)]
    return [c for part in node.inputs for c in _elements(part)]


# Few operands ---------------------------------------------------------------------------------


def narrow(variable: Any) -> Any:
    """Sums and products of so few operands that Python mode takes them; PyMC flattens them."""

    def rule(node: Any, inputs: list[Any]) -> list[Any]:
        wide = operation(node.op) in {"Add", "Mul"} and len(inputs) > _OPERANDS
        return [_halved(node.op, inputs)] if wide else _outputs(node, inputs)

    return _made_again(variable, rule, {})


def _halved(op: Any, operands: list[Any]) -> Any:
    if len(operands) <= _OPERANDS:
        return op(*operands)
    half = len(operands) // 2
    return op(_halved(op, operands[:half]), _halved(op, operands[half:]))
