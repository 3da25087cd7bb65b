"""The site: every public name has a page and an example, pages run, links and tables are there.

`make docs` builds it with warnings as errors; this is what can be checked in seconds.
"""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from test_documents import python_blocks, run_blocks
from test_package import public

from ardvark.commands.cli import app
from ardvark.commands.studies import _Asked as Asked
from ardvark.commands.studies import replicate
from ardvark.studies.experiments import experiments_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path[:0] = [str(DOCS), str(DOCS / "_ext")]

import examples  # noqa: E402
import optional_pages  # noqa: E402
import prepare  # noqa: E402

MADE = ("_build", "_generated", "generated")
PAGES = sorted(p for p in DOCS.rglob("*.md") if not set(MADE) & set(p.relative_to(DOCS).parts))
OUR_PAGES = [p for p in PAGES if "develop" not in p.parts]
WITH_CODE = [p for p in OUR_PAGES if "```python" in p.read_text()]
SPACES = set(examples.NAMESPACES)
NAMES = sorted(set(public()) - SPACES)


def name_of(path: Path) -> str:
    return path.relative_to(DOCS).with_suffix("").as_posix()


def listed(page: str) -> list[str]:
    """Names in the lists of an API page, with their namespace."""
    text = (DOCS / "api" / f"{page}.md").read_text()
    space = re.search(r"currentmodule:: ardvark\.?(\w*)", text)
    blocks = re.findall(r":toctree: generated\n\n((?:   \w+\n)+)", text)
    prefix = f"{space[1]}." if space and space[1] else ""
    return [prefix + name for block in blocks for name in block.split()]


API = [name for path in sorted((DOCS / "api").glob("*.md")) for name in listed(path.stem)]


def test_every_public_name_has_a_page():
    """`av.RBF`, `av.ARDGaussian` and `av.ARDLinear` have theirs in av.kernels."""
    assert sorted(API) == sorted(set(API))
    assert set(NAMES) - set(examples.ALSO_AT_THE_ROOT) == set(API)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name):
    assert examples.example_of(name), f"docs/api/examples.md has no block that uses av.{name}"


def test_a_name_without_an_example_is_found():
    assert examples.example_of("no_such_name") == ""
    assert examples.used_names("av.plot.path(av.fit(x)); av.RBF(1)") == {
        *("plot.path", "fit", "RBF", "kernels.RBF"),
    }


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)
    blocks = [block for block in python_blocks(page.read_text()) if not block.slow]
    assert blocks
    try:
        run_blocks(blocks, name_of(page))
    finally:
        plt.close("all")


@pytest.mark.validate
@pytest.mark.parametrize(
    "page", [p for p in WITH_CODE if "<!-- slow -->" in p.read_text()], ids=name_of
)
def test_all_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(python_blocks(page.read_text()), name_of(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_resolve(page):
    """Made pages are known by name: documents of the root, the gallery, the notebooks."""
    made = {f"{name.lower()}.md" for name in prepare.DOCUMENTS} | {"gallery.md"}
    made |= {f"{path.stem}.ipynb" for path in (ROOT / "notebooks").glob("[0-9]*.py")}
    text = re.sub(r"```python.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)\)", text):
        place = (page.parent / target).resolve()
        there = place.exists() or (place.parent.name == "_generated" and place.name in made)
        if not there:
            assert place.relative_to(DOCS).with_suffix("").as_posix() in optional_pages.OPTIONAL


@pytest.mark.parametrize("page", OUR_PAGES, ids=name_of)
def test_public_names_on_a_page_exist(page):
    used = examples.used_names(page.read_text())
    assert {name for name in used if name not in SPACES and name != "__version__"} <= set(NAMES)


def test_every_page_is_in_a_table_of_contents():
    entries = {"index"}
    for page in PAGES:
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            found = [re.sub(r".*<(.*)>$", r"\1", line) for line in lines]
            entries |= {
                (page.parent / entry).resolve().relative_to(DOCS).as_posix() for entry in found
            }
    assert {name_of(page) for page in PAGES} <= entries


# --- stored tables ------------------------------------------------------------------------------

RESULTS = ROOT / "studies" / "results"
USED = [
    tuple(found.split())
    for page in PAGES
    for found in re.findall(r"^```\{results\} (.*)$", page.read_text(), re.MULTILINE)
]


def test_every_stored_table_is_on_a_page_and_complete():
    stored = set()
    for path in [*RESULTS.glob("tables/*.json"), *RESULTS.glob("validation/*.json")]:
        content = json.loads(path.read_text())
        if "tables" not in content:  # another kind of result, with a page of its own
            continue
        study = path.stem if path.parent.name == "tables" else f"{path.parent.name}/{path.stem}"
        for name, table in content["tables"].items():
            stored.add((study, name))
            assert table["command"] and table["caption"]
            assert all(len(row) == len(table["columns"]) for row in table["rows"]), (path, name)
    assert len(USED) == len(set(USED))
    assert set(USED) == stored


def refused(command: str) -> str:
    """Why a command cannot be run as it stands; empty if it can."""
    words = shlex.split(command)
    if words[0] == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return "" if words[1] in targets else "no such target"
    if words[:2] == ["python", "-m"]:
        source = ROOT / f"{words[2].removeprefix('ardvark.').replace('.', '/')}.py"
        if source.with_suffix("").is_dir():
            source = source.with_suffix("") / "__main__.py"
        text = source.read_text() if source.exists() else ""
        unknown = [w for w in words[3:] if w.startswith("--") and f'"{w}"' not in text]
        return "nothing to run" if "__main__" not in text else " ".join(unknown)
    function, bound, _ = app.parse_args(words[1:], print_error=False, exit_on_error=False)
    given = bound.arguments
    if function is not replicate or words[0] != "ardvark":
        return "not a command that repeats a study"
    for paper in given["papers"]:
        asked = Asked(False, False, None, given.get("table"), given.get("only"), False, ROOT, None)
        if not any(asked.takes(e.name, e.place) for e in experiments_of(paper)[0]):
            return "no experiment of that name"
    return ""


def test_commands_of_stored_tables_exist():
    for study, name in USED:
        path = RESULTS / (f"{study}.json" if "/" in study else f"tables/{study}.json")
        command = json.loads(path.read_text())["tables"][name]["command"]
        assert not refused(command), command


@pytest.mark.parametrize(
    "command",
    [
        "make tea",
        "python -m ardvark.studies.papers.qi2004",
        "python -m ardvark.studies.choose --cases",
        "ardvark replicate mirzaei2017 --only boston_housing",
        "ardvark list",
    ],
)
def test_a_command_that_is_gone_is_found(command):
    assert refused(command)


# --- models and methods -------------------------------------------------------------------------


def test_every_model_and_method_has_a_page_and_a_graph():
    import pymc as pm
    from model_variants import builder, samples

    from ardvark.inference.methods import METHODS
    from ardvark.models.registry import MODELS

    assert {p.stem for p in (DOCS / "models").glob("*.md")} == {*MODELS, "index"}
    assert {p.stem for p in (DOCS / "methods").glob("*.md")} == {*METHODS, "index"}
    for name in MODELS:
        picture = (DOCS / "models" / "graphs" / f"{name}.svg").read_text()
        _, arguments = next(iter(samples(name)))
        model = builder(name)(**arguments)
        assert isinstance(model, pm.Model)
        drawn = set(re.findall(r"<title>(\w+)</title>", picture))
        assert {v.name for v in model.basic_RVs} <= drawn, f"run docs/draw_graphs.py: {name}"


def test_the_report_page_has_every_section():
    import how_to_read

    page = (DOCS / "guide" / "report.md").read_text()
    sections = re.findall(r"\{how-to-read\} (\w+)", page)
    source = (how_to_read.TEMPLATES / "how_to_read.html.j2").read_text()
    assert sorted(sections) == sorted(re.findall(r'id == "(\w+)"', source))
    assert all(how_to_read.words(section) for section in sections)
    assert how_to_read.words("nothing") == ""


def test_links_of_a_document_of_the_root_are_made_new():
    text = "[a](docs/develop/style.md) [b](CHANGELOG.md) [c](https://x)"
    assert prepare.relinked(text) == "[a](../develop/style.md) [b](changelog.md) [c](https://x)"
