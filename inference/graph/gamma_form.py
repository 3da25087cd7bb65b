"""Is a log density that of a Gamma, as a function of one positive variable? A static walk.

The log density of a Gamma is a sum of 1, log α and α, each times something that does not hold α. No
number of points can tell this from a density that is cut, bent or bounded elsewhere; the operations
can. The walk knows those that PyMC writes around a precision or a rate, keeps account of which
powers of α an expression is a sum of, and names the first operation that it does not know.

    tau=alpha           |α|^-½ sign(α), its logarithm and the square of w over it
    Gamma(a, b)         (a - 1) log α - b α, and a log b - b α as a function of b

Every element of a term may hold one element of α, or a sum over them that is left as it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Constant

from ardvark.inference.pytensor_graphs.affine import (
    INDEXED,
    JOINED,
    MOVED,
    RESHAPED,
    depends,
    operation,
)

__all__ = ["first_other_form"]


class _Form(NamedTuple):
    """What an expression is a sum of."""

    powers: frozenset[float]  # of α; 0 is a constant
    log: bool = False
    single: bool = True  # each element is one power of one element, times a constant


class _Other(Exception):
    """An operation after which nothing is known."""


_CONSTANT, _ALPHA = _Form(frozenset({0.0})), _Form(frozenset({1.0}))
_POWERS = {"Sqr": 2.0, "Sqrt": 0.5, "Reciprocal": -1.0}
_SUMS = {"Sum", "Mean"}
_MOVED = {*MOVED, *RESHAPED, *INDEXED}
_SAME = {"DimShuffle", "ExpandDims", "Squeeze", "Alloc"}  # values of a constant stay
_CHECKS = {"CheckParameterValue", "CheckAndRaise", "Assert"}
_COMPARED = {"GT", "GE", "LT", "LE", "EQ", "NEQ"}
_LOGIC = {"AND", "OR", "XOR", "Invert", "All", "Any", *_MOVED, *JOINED}


def first_other_form(term: Any, alpha: Any, log_alpha: Any = None) -> str | None:
    """Name of what keeps `term` from being a sum of 1, log α and α; None if it is one.

    With `log_alpha` the graph holds its logarithm instead, and α as the exponential of that.
    """
    try:
        form = _Walk(alpha, log_alpha).form(term)
    except _Other as other:
        return str(other)
    odd = sorted(form.powers - {0.0, 1.0})
    return f"its power {odd[0]:g}" if odd else None


class _Walk:
    """One walk over a graph."""

    def __init__(self, alpha: Any, log_alpha: Any) -> None:
        self.alpha, self.log_alpha = alpha, log_alpha
        self.origin = [v for v in (alpha, log_alpha) if v is not None]
        self.known: dict[Any, _Form] = {}

    def form(self, v: Any) -> _Form:
        if v not in self.known:
            self.known[v] = self._of(v)
        return self.known[v]

    def _of(self, v: Any) -> _Form:
        if v is self.alpha:
            return _ALPHA
        if v is self.log_alpha:
            return _Form(frozenset({0.0}), log=True, single=False)
        if not depends(v, self.origin):
            return _CONSTANT
        name, inputs = operation(v.owner.op), list(v.owner.inputs)
        if name == "Exp" and inputs[0] is self.log_alpha:
            return _ALPHA
        if name in _CHECKS:
            if not all(self._settled(condition) for condition in inputs[1:]):
                raise _Other(name)
            return self.form(inputs[0])
        if name == "Switch":
            if not self._settled(inputs[0]):
                raise _Other("a condition on it")
            return self._sum(inputs[1:])
        if name == "Cast" and v.type.dtype.startswith("float"):
            return self.form(inputs[0])
        if name in _MOVED:
            if any(depends(rest, self.origin) for rest in inputs[1:]):
                raise _Other(name)
            return self.form(inputs[0])
        return self._arithmetic(name, inputs)

    def _arithmetic(self, name: str, inputs: list[Any]) -> _Form:
        if name in ("Add", "Sub"):
            return self._sum(inputs)
        if name in JOINED:
            single = all(self.form(part).single for part in inputs)
            return self._sum(inputs)._replace(single=single)
        if name in _SUMS:
            return self.form(inputs[0])._replace(single=False)
        if name == "Neg" or (name == "Abs" and self.form(inputs[0]).single):
            return self.form(inputs[0])
        if name == "Sign" and self.form(inputs[0]).single:
            return _CONSTANT
        if name == "Log" and self.form(inputs[0]).single:
            return _Form(frozenset({0.0}), log=True, single=False)
        if name == "Mul":
            held = [form for form in map(self.form, inputs) if form != _CONSTANT]
            if len(held) <= 1:
                return held[0] if held else _CONSTANT
        if name == "TrueDiv":
            above, below = map(self.form, inputs)
            if below == _CONSTANT:
                return above
            if above == _CONSTANT:
                return self._power(below, [-1.0], name)
        if name in _POWERS:
            return self._power(self.form(inputs[0]), [_POWERS[name]], name)
        if name == "Pow" and (exponents := _value(inputs[1])) is not None:
            return self._power(self.form(inputs[0]), np.unique(exponents), name)
        raise _Other(name)

    def _sum(self, parts: list[Any]) -> _Form:
        forms = [self.form(part) for part in parts]
        powers = frozenset[float]().union(*(form.powers for form in forms))
        log = any(form.log for form in forms)
        return _Form(powers, log, single=powers == {0.0} and not log)

    def _power(self, form: _Form, exponents: Any, name: str) -> _Form:
        if not form.single:
            raise _Other(name)
        return _Form(frozenset(float(p * e) for p in form.powers for e in exponents))

    def _settled(self, condition: Any) -> bool:
        """Whether a condition is the same for all α > 0, true or not."""
        if not depends(condition, self.origin):
            return True
        name, inputs = operation(condition.owner.op), list(condition.owner.inputs)
        if name in _LOGIC:
            return all(self._settled(part) for part in inputs)
        if name not in _COMPARED:
            return False
        for one, bound in (inputs, inputs[::-1]):
            value = _value(bound)
            if value is not None and np.all(np.isinf(value)):
                self.form(one)  # finite wherever α is
                return True
            if value is not None and np.all(value == 0.0) and self.form(one).single:
                return True  # the sign of a power is that of its constant
        return False


def _value(variable: Any) -> Any:
    """Give the value of a constant, seen through moves of its elements; None for anything else."""
    while variable.owner is not None and operation(variable.owner.op) in _SAME:
        variable = variable.owner.inputs[0]
    return np.asarray(variable.data) if isinstance(variable, Constant) else None
