"""The directive `how-to-read SECTION`: the words that the report itself folds under a section."""

from pathlib import Path

from docutils import nodes
from jinja2 import Environment, FileSystemLoader
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

TEMPLATES = Path(__file__).resolve().parents[2] / "diagnostics" / "report" / "templates"


def words(section: str) -> str:
    """HTML of one section; empty if there is none of that name."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)
    module = environment.get_template("how_to_read.html.j2").module
    return str(module.how_to_read(section)).strip()  # type: ignore[attr-defined]


class HowToRead(SphinxDirective):
    """Put the explanation of a section into the page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Give the HTML as it is in the report."""
        self.env.note_dependency(str(TEMPLATES / "how_to_read.html.j2"))
        text = words(self.arguments[0])
        if not text:
            raise self.error(f"the report has no section {self.arguments[0]!r}")
        return [nodes.raw("", text, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("how-to-read", HowToRead)
    return {"parallel_read_safe": True}
