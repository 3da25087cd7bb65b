"""News fragments: their names are right, and towncrier makes a list of them."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TYPES = {
    kind["directory"]
    for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
}
FRAGMENTS = sorted(
    p for p in (ROOT / "news").iterdir() if p.name not in ("README.md", "template.md")
)


def wrong_name(name: str) -> str:
    """Why a file's name is not that of a fragment; empty if it is."""
    match = re.fullmatch(r"[a-z0-9][a-z0-9_-]*\.([a-z]+)\.md", name)
    if match is None:
        return f"{name}: not <short-name>.<type>.md"
    return "" if match[1] in TYPES else f"{name}: the type is one of {', '.join(sorted(TYPES))}"


def test_fragments_have_a_name_a_type_and_a_text():
    assert not [why for path in FRAGMENTS if (why := wrong_name(path.name))]
    for path in FRAGMENTS:
        text = path.read_text().strip()
        assert text and not text.startswith(("-", "*", "#")), f"{path.name}: sentences, no list"


@pytest.mark.parametrize(
    "name", ["ties.bugfix.md", "ties.fixed.txt", "ties.md", "Ties now.fixed.md"]
)
def test_a_wrong_name_is_found(name):
    assert wrong_name(name)


def test_towncrier_makes_a_list_of_them(tmp_path):
    """In a copy, so that the release's own command can be tried."""
    shutil.copytree(ROOT / "news", tmp_path / "news")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "news" / "a-probe.fixed.md").write_text("A probe of the list.\nIt has two lines.\n")
    build = [sys.executable, "-m", "towncrier", "build", "--version", "9.9.9", "--keep"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "CHANGELOG.md").read_text()
    lists = text.partition("<!-- news -->")[2]
    assert "\n### Fixed\n\n- " in lists
    assert "\n- A probe of the list.\n  It has two lines.\n" in lists
    for path in FRAGMENTS:
        assert path.read_text().strip().splitlines()[0] in lists, path.name
    assert text.startswith("# Changes\n")
