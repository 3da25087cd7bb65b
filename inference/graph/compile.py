"""Compile small graphs fast.

FAST_COMPILE without a C compiler: these functions are called tens of times, not thousands, and
compile time is what the user waits for. Data are shared variables, read at call time, so
`pm.set_data` needs no new compilation.

PyTensor's settings are global and its compiled functions keep their arguments in one place, so
neither may be used by two threads at once: both are behind a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import pytensor
from pymc.pytensorf import rvs_in_graph

from ardvark.errors import UnreadableModel

__all__ = ["SETTINGS", "built_once", "compile_graph", "quick"]

# Held while a graph is built or compiled: PyTensor changes its own settings in both.
SETTINGS = RLock()


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
def quick() -> Iterator[None]:
    """Context in which PyTensor compiles without a C compiler and without rewriting much."""
    with SETTINGS, pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        yield


def compile_graph(inputs: list[Any], outputs: Any) -> Callable[..., Any]:
    """Compile; refuse a graph in which a random variable was left or cloned."""
    left = rvs_in_graph(outputs if isinstance(outputs, list) else [outputs])
    if left:
        names = ", ".join(sorted(v.name or str(v) for v in left))
        raise UnreadableModel(
            f"{names}: a random variable is left in the graph, its value would be drawn at random"
        )
    with quick():
        function = pytensor.function(inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore")
    return _OneAtATime(function)


class _OneAtATime:
    """A compiled function behind a lock; in another process its copy has a lock of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._lock = function, Lock()

    def __call__(self, *values: Any) -> Any:
        with self._lock:
            return self._function(*values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _OneAtATime, (self._function,)
