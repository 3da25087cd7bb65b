"""A line on stderr for what takes longer than two seconds; nothing at all for what does not.

`silent` keeps other packages from telling there what is no news to a caller of this one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["progress", "silent"]

_PATIENCE = 2.0  # seconds before anything is shown

Tick = Callable[[str], None]


@contextmanager
def progress(title: str, enabled: bool) -> Iterator[Tick]:
    """Give a function that shows its text beside `title` once two seconds have passed."""
    started, live = time.monotonic(), None

    def tick(text: str) -> None:
        nonlocal live
        if not enabled or time.monotonic() - started < _PATIENCE:
            return
        if live is None:
            live = _status()
            live.start()
        live.update(f"{title}: {text} ({time.monotonic() - started:.0f} s)")

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
    from rich.console import Console

    return Console(stderr=True).status("")
