"""A line on stderr for what takes longer than two seconds, and nothing for what does not.

Code that knows how much of the work is done says so, and the line estimates the time left. Whoever
shows progress in another way asks for it by `listening`; then no line is drawn. `silent` mutes the
loggers of other packages.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

__all__ = ["Tick", "listening", "no_tick", "progress", "silent", "tell"]

_PATIENCE = 2.0  # seconds before anything is shown


class Tick(Protocol):
    """Shows a text; `share` is the part of the work that is done, 0 where it is not known."""

    def __call__(self, text: str, share: float = 0.0) -> None: ...  # noqa: D102


def no_tick(text: str, share: float = 0.0) -> None:
    """Show nothing: the `Tick` of a caller who asked for none."""


_listener: ContextVar[Tick] = ContextVar("listener", default=no_tick)


@contextmanager
def listening(listener: Tick) -> Iterator[None]:
    """Send reports of progress to `listener`, and draw no line."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(text: str, share: float = 0.0) -> None:
    """Report progress to the listener, if there is one."""
    _listener.get()(text, share)


@contextmanager
def progress(title: str, enabled: bool) -> Iterator[Tick]:
    """Give a function that shows its text beside `title` once two seconds have passed."""
    started, live = time.monotonic(), None
    if (listener := _listener.get()) is not no_tick:
        yield listener
        return

    def tick(text: str, share: float = 0.0) -> None:
        nonlocal live
        passed = time.monotonic() - started
        if not enabled or passed < _PATIENCE:
            return
        spent = f"{passed:.0f} s"
        if 0.0 < share <= 1.0:
            spent += f", about {passed * (1.0 - share) / share:.0f} s to go"
        if live is None:
            live = _status()
            live.start()
        live.update(f"{title}: {text} ({spent})")

    try:
        yield tick
    finally:
        if live is not None:
            live.stop()


@contextmanager
def silent(logger: str, on: bool = True) -> Iterator[None]:
    """Turn a logger of another package, and those below it, off for a while."""
    log = logging.getLogger(logger)
    before = log.level
    if on:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def _status() -> Any:
    from importlib.util import find_spec

    from rich.console import Console

    # In a notebook without ipywidgets rich would warn, or write the codes of a terminal.
    silent = "ipykernel" in sys.modules and find_spec("ipywidgets") is None
    forced = False if silent else None  # None: rich finds out
    return Console(stderr=True, force_jupyter=forced, force_terminal=forced).status("")
