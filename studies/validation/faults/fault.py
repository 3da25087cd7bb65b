"""A fault as data: the text that it changes, and the tests that must see it."""

from typing import NamedTuple

__all__ = ["Fault"]


class Fault(NamedTuple):
    """One change of one file that makes the library wrong."""

    name: str
    area: str
    file: str
    old: str  # occurs exactly once in the file
    new: str
    tests: tuple[str, ...]  # node ids; one that fails is enough
    origin: str = ""  # which print or earlier defect this is; "" where it was made up
    hangs: bool = False  # it shows in a test that does not end
