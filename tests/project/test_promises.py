"""The page of promises: all of them, and every test and lane that it names is there."""

import ast
import re
from pathlib import Path

from ardvark.studies.validation.__main__ import LANES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "validation" / "promises.md").read_text()


def named(text):
    """File and name of every test; `::name` alone is of the file before it."""
    path = ""
    for file, name in re.findall(r"`((?:tests/[\w/]+\.py)?)::(test_\w+)`", text):
        path = file or path
        yield path, name


def missing(path, name):
    place = ROOT / path
    tree = ast.parse(place.read_text()) if place.is_file() else ast.Module([], [])
    return name not in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}


def test_there_are_twenty_five_promises_and_each_says_where_it_is_kept():
    rows = [line.split(" | ") for line in PAGE.splitlines() if re.match(r"\| \d", line)]
    assert [int(row[0].strip("| ")) for row in rows] == list(range(1, 26))
    assert all(re.search(r"::test_|lane `|\]\(", row[2]) for row in rows)
    assert len(PAGE.splitlines()) <= 60


def test_every_test_and_lane_that_is_named_exists():
    assert [f"{path}::{name}" for path, name in named(PAGE) if missing(path, name)] == []
    assert set(re.findall(r"lane `(\w+)`", PAGE)) <= set(LANES)
    planted = "`tests/project/test_promises.py::test_nobody_wrote`, `::test_nor_this`"
    assert all(missing(path, name) for path, name in named(planted))
