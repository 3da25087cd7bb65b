"""Compile small graphs fast, and keep what was made for a graph as long as the graph lives.

FAST_COMPILE without a C compiler: these functions are called tens of times, not thousands, and
compile time is what the user waits for. Data are shared variables, read at call time, so
`pm.set_data` needs no new compilation.

PyTensor's settings are global and its compiled functions keep their arguments in one place, so
neither may be used by two threads at once: both are behind a lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cached_property, reduce
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import rvs_in_graph
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.rewriting.basic import SequentialGraphRewriter, in2out, node_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add, Clip, Mul, Second
from pytensor.scalar.math import Log1mexp, Softplus
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.special import LogSumExp

from ardvark.errors import UnreadableModel

__all__ = [
    "SETTINGS",
    "built_once",
    "compile_graph",
    "differentiable",
    "kept_with",
    "named_tensor",
    "quick",
]

_PLAIN = (Elemwise, DimShuffle, CAReduce)
_PLAIN_NAMES = {
    "AdvancedSubtensor", "AdvancedSubtensor1", "Alloc", "CheckParameterValue", "Dot", "Join",
    "MakeVector", "Reshape", "ScalarFromTensor", "Shape", "Shape_i", "SpecifyShape", "Subtensor",
    "TensorFromScalar", "ViewOp",
}  # fmt: skip
_LAST = 48  # place of a rewrite after all others but those that work in place

# Held while a graph is built or compiled: PyTensor changes its own settings in both.
SETTINGS = RLock()

_PLACE = "_ardvark_kept"  # attribute of the owner


class Kept(dict[Hashable, Any]):
    """What was made for an owner, by key, and the names of its variables at that time.

    It lives on its owner, so that the two may refer to each other and are freed together; it does
    not go along when the owner is copied or sent to another process.
    """

    owner: Any = None  # a shallow copy of the owner has this very object too
    names: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()


if TYPE_CHECKING:
    built_once = cached_property
else:

    class built_once(cached_property):
        """A cached property whose graph is built and compiled by one thread at a time."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Give the value; once it is there, it is found without coming here."""
            with SETTINGS:
                return super().__get__(instance, owner)


@contextmanager
def differentiable(what: str) -> Iterator[None]:
    """Refuse what PyTensor cannot differentiate: the pullback of Split ends in a TypeError."""
    try:
        yield
    except TypeError as error:
        if "NullType" not in str(error):  # another fault, not a missing gradient
            raise
        raise UnreadableModel(
            f"PyTensor has no derivatives of {what} of the order that this method needs. Use "
            f"NUTS(), which needs the first alone."
        ) from error


def kept_with[T](owner: Any, key: Hashable, make: Callable[[], T]) -> T:
    """Give what `make` made for `owner` under `key`; made once, by one thread at a time.

    `owner` is a model or a reading of one. All that is kept with a model is dropped when the model
    gets another variable: it belongs to the graph as it was.
    """
    names = tuple(getattr(owner, "named_vars", ()))
    with SETTINGS:
        kept: Kept | None = getattr(owner, _PLACE, None)
        if kept is None or kept.owner is not owner or kept.names != names:
            kept = Kept()
            kept.owner, kept.names = owner, names
            setattr(owner, _PLACE, kept)
        if key not in kept:
            kept[key] = make()
        found: T = kept[key]
        return found


def named_tensor(name: str, dtype: str, shape: tuple[int | None, ...]) -> Any:
    """Make an input of this name; `pt.tensor` would look whether the name is that of a dtype."""
    made = pt.tensor(dtype=dtype, shape=shape)
    made.name = name  # such as bambi's 1|group
    return made


@contextmanager
def quick() -> Iterator[None]:
    """Context in which PyTensor compiles without a C compiler and without rewriting much.

    Nodes made in it do not remember the lines that made them: those are ours, not the user's, and
    to keep them is a tenth of the time.
    """
    settings = {"cxx": "", "mode": "FAST_COMPILE", "traceback__limit": 0}
    with SETTINGS, pytensor.config.change_flags(**settings):
        yield


def compile_graph(inputs: list[Any], outputs: Any, as_written: bool = False) -> Callable[..., Any]:
    """Compile; refuse a graph in which a random variable was left or cloned.

    `as_written` leaves out PyTensor's own rewrites: compiled in a fifth of the time, and half as
    fast. It is for what is called a few times, and may lose digits that a rewrite saves. A graph
    that holds more than plain operations on arrays may need the rewrites, and gets them.
    """
    left = rvs_in_graph(outputs if isinstance(outputs, list) else [outputs])
    if left:
        names = ", ".join(sorted(v.name or str(v) for v in left))
        raise UnreadableModel(
            f"{names}: a random variable is left in the graph, its value would be drawn at random. "
            f"Give it a name in the model, and the data whole (no pm.Minibatch)"
        )
    late = [in2out(rule, name=rule.__name__) for rule in (by_axes, by_ufuncs)]  # as one: no pickle
    if as_written and _is_plain(outputs):
        mode = Mode(linker="py", optimizer=SequentialGraphRewriter(*late))
    else:
        mode = get_mode("FAST_COMPILE").register(*((rule, _LAST) for rule in late))
        if not _may_skip(outputs):
            mode = Mode(linker="py", optimizer=mode.provided_optimizer)
    with quick():
        function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    return _OneAtATime(function)


def _is_plain(outputs: Any) -> bool:
    """Whether NumPy can do all of a graph as it stands; pymc.dims, say, must be rewritten."""
    nodes = (v.owner for v in ancestors(outputs if isinstance(outputs, list) else [outputs]))
    ops = {node.op for node in nodes if node is not None}
    cores = [op.core_op if isinstance(op, Blockwise) else op for op in ops]
    return all(isinstance(op, _PLAIN) or type(op).__name__ in _PLAIN_NAMES for op in cores)


def _may_skip(outputs: Any) -> bool:
    """Whether not all nodes are computed: that takes PyTensor's virtual machine.

    The machine is slower to make, and the first one of a process loads setuptools.
    """
    nodes = (v.owner for v in ancestors(outputs if isinstance(outputs, list) else [outputs]))
    return any(node is not None and type(node.op).__name__ == "IfElse" for node in nodes)


@node_rewriter([Blockwise])  # type: ignore[untyped-decorator]
def by_axes(fgraph: Any, node: Any) -> list[Any] | None:
    """Sums of a mixture over a batch as one operation on later axes: else it is a loop too."""
    core, batch, [value, *_] = node.op.core_op, node.op.batch_ndim(node), node.inputs
    if isinstance(core, LogSumExp):
        axis = tuple(a % (value.ndim - batch) + batch for a in core.axis)
        return [pt.logsumexp(value, axis=axis)]
    return None


@node_rewriter([Elemwise])  # type: ignore[untyped-decorator]
def by_ufuncs(fgraph: Any, node: Any) -> list[Any] | None:
    """Write what NumPy has no ufunc for by such as it has: else it is a loop in Python.

    Sums and products that a rewrite has flattened are of two again, of which there may be any
    number of terms.
    """
    operation, values = node.op.scalar_op, node.inputs
    if isinstance(operation, Add | Mul) and len(values) > 2:
        return [reduce(node.op, values)]
    if isinstance(operation, Log1mexp):
        (x,) = values
        far = x < -math.log(2.0)
        return [pt.switch(far, pt.log1p(-pt.exp(x)), pt.log(-pt.expm1(x)))]
    if isinstance(operation, Softplus):
        (x,) = values
        return [pt.maximum(x, 0.0) + pt.log1p(pt.exp(-pt.abs(x)))]
    if isinstance(operation, Clip):
        return [pt.minimum(pt.maximum(values[0], values[1]), values[2])]
    if isinstance(operation, Second) and values[0].dtype == values[1].dtype:
        return [pt.switch(pt.constant(True), values[1], values[0])]
    return None


class _OneAtATime:
    """A compiled function behind a lock; in another process its copy has a lock of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._lock = function, Lock()

    def __call__(self, *values: Any) -> Any:
        with self._lock:
            return self._function(*values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _OneAtATime, (self._function,)
