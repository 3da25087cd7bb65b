"""A line on stderr for what takes longer than two seconds; nothing at all for what does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["progress"]

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


def _status() -> Any:
    from rich.console import Console

    return Console(stderr=True).status("")
