"""The documents are true: their code runs, their names exist, their tables are the registry's."""

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ardvark

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BIBLIOGRAPHY = (ROOT / "docs" / "references.bib").read_text()
ROOT_DOCUMENTS = ("README", "CONTRIBUTING", "CHANGELOG", "CODE_OF_CONDUCT", "SECURITY")
DOCUMENTS = [ROOT / f"{name}.md" for name in ROOT_DOCUMENTS]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
PACKAGES = ("ardvark", "models", "inference", "diagnostics", "studies")
TABLE = re.compile(r"<!-- table: models and methods -->\n(.*?)<!-- end of table -->", re.DOTALL)


class Block(NamedTuple):
    code: str
    line: int
    slow: bool
    output: str = ""  # what the page says it prints


def python_blocks(text: str) -> list[Block]:
    """Fenced Python code; one behind the comment `<!-- slow -->` is slow.

    A fenced text right below a block is what it prints.
    """
    pattern = re.compile(
        r"^(<!-- slow -->\n)?```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?",
        re.DOTALL | re.MULTILINE,
    )
    return [
        Block(match[2], text[: match.start(2)].count("\n") + 1, bool(match[1]), match[3] or "")
        for match in pattern.finditer(text)
    ]


def run_blocks(blocks: list[Block], page: str = "README.md") -> dict[str, Any]:
    """Run the blocks one after the other, as a reader would; errors show the page's lines."""
    scope: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        source = "\n" * (block.line - 1) + block.code
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, page, "exec"), scope)
        if block.output:
            assert_printed(printed.getvalue(), block.output)
    return scope


def assert_printed(printed: str, promised: str) -> None:
    """Word for word, numbers to 2 % (another BLAS) or one in the last of two digits."""
    found, wanted = printed.split(), promised.split()
    assert len(found) == len(wanted), printed
    for left, right in zip(found, wanted, strict=True):
        try:
            numbers = [float(word.strip("[]")) for word in (left, right)]
        except ValueError:
            assert left == right, printed
        else:
            close = pytest.approx(numbers[1], rel=0.02, abs=0.011, nan_ok=True)
            assert numbers[0] == close, printed


def method_table() -> str:
    """Render the README's table of models and methods from the two registries."""
    from ardvark.inference.methods import METHODS
    from ardvark.models.registry import MODELS

    head = ["model", "target", "paper", *(f'`"{name}"`' for name in METHODS)]
    rows = [
        [f"`{name}`", ", ".join(entry.tasks), entry.paper]
        + ["yes" if method in entry.methods else "refused" for method in METHODS]
        for name, entry in MODELS.items()
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def test_blocks_are_found_with_their_lines_and_marks():
    text = "a\n```python\nx = 1\n```\n```text\nno\n```\n<!-- slow -->\n```python\ny = x\n```\n"
    assert python_blocks(text) == [Block("x = 1\n", 3, False), Block("y = x\n", 10, True)]
    with_output = "```python\nprint(1)\n```\n\n```text\n2\n```\n"
    assert python_blocks(with_output)[0].output == "2\n"
    with pytest.raises(AssertionError):
        run_blocks(python_blocks(with_output))
    assert run_blocks(python_blocks(text))["y"] == 1
    with pytest.raises(ZeroDivisionError):
        run_blocks([Block("1 / 0", 1, False)])


def test_readme_is_short():
    assert len(README.splitlines()) <= 150


def test_printed_numbers_are_compared_with_what_a_page_promises():
    assert_printed("x  1.001 nan\n[[0.04 1.]]", "x 1.0 NaN [[0.04 1.]]")
    for printed in ("x 1.1", "y 1.0", "x", "x 1.0 2"):
        with pytest.raises(AssertionError):
            assert_printed(printed, "x 1.0")


def test_readme_has_fast_and_slow_blocks():
    blocks = python_blocks(README)
    assert {block.slow for block in blocks} == {True, False}
    assert README.count("```python") == len(blocks)  # none that the pattern overlooks


def test_readme_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = run_blocks([block for block in python_blocks(README) if not block.slow])
    assert scope["laplace"].attrs["converged"]
    assert scope["tree"].attrs["converged"]
    kept = ardvark.relevance(scope["laplace"])["inclusion"].sum()
    assert f"{kept:.0f} of the 30 measurements are kept" in README


@pytest.mark.validate
def test_all_readme_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = run_blocks(python_blocks(README))
    assert scope["exact"].attrs["converged"]
    assert (tmp_path / "report.html").stat().st_size < 5_000_000


def test_table_of_models_and_methods_is_the_registrys():
    found = TABLE.search(README)
    assert found is not None
    wanted = f"\n{method_table()}\n"
    assert found[1] == wanted, f"put this into README.md:\n{wanted}"


def test_the_page_on_data_lists_the_sets_that_need_no_file():
    from ardvark.models.data.datasets import EMBEDDED
    from ardvark.models.data.simulators import SIMULATORS

    page = (ROOT / "docs" / "guide" / "data.md").read_text()
    listed = re.search(r"\*\*With the package, offline\*\*:(.*?)\n- ", page, re.DOTALL)
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed[1]) == [*EMBEDDED, *SIMULATORS]


@pytest.mark.parametrize("path", [*DOCUMENTS, *NOTEBOOKS], ids=lambda path: path.name)
def test_public_names_in_text_exist(path):
    for name in set(re.findall(r"\bav\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)", path.read_text())):
        first, _, second = name.partition(".")
        assert first in ardvark.__all__, name
        if second:
            assert hasattr(getattr(ardvark, first), second), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_make_targets_exist(path):
    text = path.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^ {4})make ([a-z]+)", text, re.MULTILINE)) <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_text_are_the_command_lines(path):
    from ardvark.commands.cli import app

    commands = {name for name in app if not name.startswith("-")}
    for listed in re.findall(r"ardvark ((?:[a-z]+\s*\|\s*)+[a-z]+)`", path.read_text()):
        assert set(re.split(r"\s*\|\s*", listed)) == commands


def test_newest_change_is_of_this_version():
    newest = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == ardvark.__version__


def test_every_cited_key_is_in_the_references():
    keys = set(re.findall(r"^@\w+\{(\w+),", BIBLIOGRAPHY, re.MULTILINE))
    assert "RW06" in keys
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            cited = set(re.findall(r"#.*?\b([A-Z][A-Za-z]{1,3}\d\d)\b", path.read_text()))
            assert cited <= keys, f"{path.relative_to(ROOT)}: {sorted(cited - keys)}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_uses_public_names_only(path):
    """Two imported functions of private modules."""
    public = {"ardvark", "ardvark.models", "ardvark.sklearn", "ardvark.steps"}
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not {m for m in modules if m and m.startswith("ardvark")} - public
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "av":
            assert node.attr in ardvark.__all__


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_tells_and_calls_but_defines_nothing(path):
    text = path.read_text()
    tree = ast.parse(text)
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    assert not [node for node in ast.walk(tree) if isinstance(node, defined)]
    cells = re.findall(r"^# %%(.*)\n(.*)", text, re.MULTILINE)
    assert cells[0][0].strip() == "[markdown]" and cells[0][1].startswith("# # ")
    assert "ARDVARK_FAST" in text


@pytest.mark.validate
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path):
    command = [sys.executable, ROOT / "notebooks" / "run.py", path.stem]
    environment = {**os.environ, "ARDVARK_FAST": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
