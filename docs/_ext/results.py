"""The directive `results STUDY TABLE`: a table of studies/results/tables/STUDY.json.

`results validation/LANE TABLE` takes it from studies/results/validation/LANE.json.
"""

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).resolve().parents[2] / "studies" / "results"


def place_of(study: str) -> Path:
    """Where the tables of a study are."""
    return RESULTS / (f"{study}.json" if "/" in study else f"tables/{study}.json")


def load(study: str, table: str) -> dict[str, Any]:
    """Return one table of a study: caption, command, columns, rows."""
    found: dict[str, Any] = json.loads(place_of(study).read_text())["tables"][table]
    return found


def as_markdown(table: dict[str, Any]) -> list[str]:
    """Lines of a Markdown table, and the command that repeats it."""
    head, rows = table["columns"], table["rows"]
    marks = ["---", *["---:" if numeric(rows, k) else "---" for k in range(1, len(head))]]
    shown = [[cell or "–" for cell in row] for row in rows]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, marks, *shown)]
    return [f"*{table['caption']}*", "", *lines, "", f"Repeat with `{table['command']}`."]


def numeric(rows: list[list[str]], column: int) -> bool:
    """Whether most cells of a column are numbers: they begin with one and have no word."""
    cells = [row[column].lstrip("*+-−") for row in rows if row[column]]
    numbers = [c for c in cells if c[:1].isdigit() and not re.search(r"[a-z]{3}", c)]
    return len(numbers) > len(cells) / 2


class Results(SphinxDirective):
    """Put a stored table into the page."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Parse the table as Markdown where the directive stands."""
        study, table = self.arguments
        path = place_of(study)
        self.env.note_dependency(str(path))
        try:
            lines = as_markdown(load(study, table))
        except (OSError, KeyError) as error:
            raise self.error(f"no stored table {table!r} of {study!r}: {error}") from error
        box = nodes.container(classes=["results"])
        self.state.nested_parse(StringList(lines, str(path)), 0, box)
        return [box]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("results", Results)
    return {"parallel_read_safe": True}
