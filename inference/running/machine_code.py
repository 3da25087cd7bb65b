"""Machine code: numba's `njit`, which loads numba when a kernel is first called.

To import numba and to have it read its registries takes 0.3 s. A fit without a kernel (Laplace of a
probit or logit with few rows) does without, and a module may import kernels that it will not call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any

from ardvark.loading import loading

__all__ = ["njit"]


class _Kernel:
    """A function that is compiled, or found in numba's cache, at its first call."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func, self._options = function, options

    @cached_property
    def _compiled(self) -> Any:
        with loading():
            from numba import njit as compiled

        return compiled(**self._options)(self.py_func)

    def __call__(self, *arguments: Any) -> Any:
        return self._compiled(*arguments)

    def __reduce__(self) -> str:
        return self.py_func.__qualname__  # by its name, as a function is

    def __getattr__(self, name: str) -> Any:
        """What a dispatcher has: by `_numba_type_` one kernel calls another."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._compiled, name)


if TYPE_CHECKING:
    from numba import njit
else:

    def njit(**options: Any) -> Callable[[Callable[..., Any]], _Kernel]:
        """Give the decorator `numba.njit(**options)`, which a kernel loads when it is called."""
        return lambda function: _Kernel(function, options)
