"""Public names that are loaded when they are first used."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lazy_loader

__all__ = ["attach_stub", "loading"]


@contextmanager
def loading() -> Iterator[None]:
    """Import in it: what modules make stays, and to look through it for garbage takes a tenth."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def attach_stub(name: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], Any]:
    """Give `__getattr__`, `__dir__` and `__all__` of a package, from the stub beside its file."""
    load, listed, names = lazy_loader.attach_stub(name, file)

    def attribute(of: str) -> Any:
        with loading():
            return load(of)

    return attribute, listed, names
