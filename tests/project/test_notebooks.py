"""Notebooks with their pictures: each agrees with its script, is small and names no machine."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
SCRIPTS = sorted(NOTEBOOKS.glob("[0-9]*.py"))
sys.path.insert(0, str(NOTEBOOKS))

import run  # noqa: E402


def kept(script: Path) -> dict:
    return json.loads(script.with_suffix(".ipynb").read_text())


def test_there_is_a_notebook_for_each_script_and_no_other():
    assert len(SCRIPTS) == 12
    assert [p.stem for p in sorted(NOTEBOOKS.glob("*.ipynb"))] == [p.stem for p in SCRIPTS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_script(script):
    """Words only: `python notebooks/run.py --text`; code: `make notebooks`."""
    cells = [(c["cell_type"], "".join(c["source"])) for c in kept(script)["cells"]]
    assert cells == [(cell.cell_type, cell.source) for cell in run.read(script).cells]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_was_run_to_its_end_is_small_and_names_no_machine(script):
    text = script.with_suffix(".ipynb").read_text()
    assert len(text) < run.MOST_BYTES
    cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs and not [o for o in outputs if o["output_type"] == "error"]
    said = "".join("".join(o.get("text", [])) for o in outputs)
    assert not re.search(r"site-packages|/(tmp|home|root)/|0x[0-9a-f]{8}", said)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_opens_with_a_question_and_ends_with_what_to_remember(script):
    words = [c for c in run.read(script).cells if c.cell_type == "markdown"]
    assert re.match(r"# .*\n\n\*\*[^*]*\?\*\*\n", words[0].source)
    assert words[-1].source.startswith("## To remember\n\n- ")


def test_words_may_change_without_a_run_and_code_may_not(tmp_path):
    script = NOTEBOOKS / "12_priors.py"
    copy = tmp_path / script.name
    copy.write_text(script.read_text().replace("# ## To remember", "# ## To keep in mind"))
    notebook, error = run.new_words(copy, script.with_suffix(".ipynb"))
    assert error == "" and "To keep in mind" in notebook.cells[-1].source
    assert sum(len(c.get("outputs", [])) for c in notebook.cells) > 0
    copy.write_text(script.read_text().replace("geomspace(0.05, 50", "geomspace(0.06, 50"))
    assert "code has changed" in run.new_words(copy, script.with_suffix(".ipynb"))[1]
