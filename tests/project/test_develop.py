"""The pages for contributors: their examples run as they stand, and CONTRIBUTING stays short."""

import ast
import re
from pathlib import Path

import pytest

from ardvark.models.registry import MODELS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "develop").glob("add_a_*.md"))


def example(page: Path) -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return code


@pytest.fixture
def registry():
    """An example may add a model; the other tests must not see it."""
    before = dict(MODELS)
    yield
    MODELS.clear()
    MODELS.update(before)


def test_there_is_a_page_for_each_thing_to_add():
    assert [page.stem for page in PAGES] == ["add_a_method", "add_a_model", "add_a_study"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_example_runs_and_is_short(page, registry):
    code = example(page)
    assert len(code.splitlines()) < 60 and "assert" in code
    exec(compile(code, page.name, "exec"), {"__name__": page.stem})


@pytest.mark.parametrize(
    "page", [ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / "develop").glob("*.md")]
)
def test_files_that_a_page_names_exist(page):
    """Paths in backticks and links; a shortened one (`run*.py`) is no path."""
    text = page.read_text()
    for path in re.findall(
        r"`((?:ardvark|models|inference|diagnostics|studies|tests)/[\w/.]+)`", text
    ):
        assert (ROOT / path).exists(), path
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        generated = target.startswith("../_generated/")  # by docs/prepare.py
        assert generated or (page.parent / target).exists(), target


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 120


REFERENCES = re.findall(
    r"`([\w/]+\.py):(\w+)`", (ROOT / "docs" / "develop" / "day_of_a_fit.md").read_text()
)


@pytest.mark.parametrize("path, name", REFERENCES, ids=lambda value: value)
def test_the_day_of_a_fit_names_functions_that_are_there(path, name):
    tree = ast.parse((ROOT / path).read_text())
    found = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert name in found
