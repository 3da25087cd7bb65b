"""Pages that are made by a command and may not be there: links to them become plain text."""

import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
OPTIONAL = ("guide/own_models", "guide/scale", "ledger", "speeds")


def drop_missing(app: Sphinx, docname: str, source: list[str]) -> None:
    """Take links and entries of a table of contents out where the page is missing."""
    for page in OPTIONAL:
        if not (DOCS / f"{page}.md").exists():
            name = page.rpartition("/")[2]
            link = rf"\[([^\]]+)\]\((?:\.\./|guide/)*{name}\.md\)"
            source[0] = re.sub(link, r"\1", source[0])
            source[0] = re.sub(rf"^(?:\.\./|guide/)?{name}$\n", "", source[0], flags=re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to each page as it is read."""
    app.connect("source-read", drop_missing)
    return {"parallel_read_safe": True}
