"""What a check has found: how serious it is, what it is, and what to do about it."""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["LEVELS", "Finding", "worst_level"]

LEVELS = ("good", "warn", "bad")


class Finding(NamedTuple):
    """A level of `LEVELS` or "info", a text that can stand alone, and advice where there is any."""

    level: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.advice}".rstrip()


def worst_level(levels: Iterable[str]) -> str:
    """The most serious of some levels; without any, or where none applies (""), "good"."""
    return max((level for level in levels if level), key=LEVELS.index, default="good")
