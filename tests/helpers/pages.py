"""Pages of reports: written, taken apart by section, or without most of their parts."""

import json
from pathlib import Path
from typing import Any

__all__ = ["few_parts", "section", "written"]

VERDICT = {"sentence": "", "lead": "", "level": "good"}


def written(trees: Any, folder: Path, **settings: Any) -> tuple[str, Any]:
    """Write a report; its page, and its numbers."""
    from ardvark.diagnostics.report.report import report

    path = report(trees, folder / "report.html", **settings)
    return path.read_text("utf-8"), json.loads(path.with_suffix(".json").read_text("utf-8"))


def section(page: str, name: str) -> str:
    return page[page.index(f'<section id="{name}"') :].partition("</section>")[0]


def few_parts(monkeypatch, *kept):
    """Leave only these parts of a report, and of the page nothing; "verdict" has to be in it."""
    from ardvark.diagnostics.report import report as module

    parts = {"verdict": lambda _: VERDICT} | {name: module.PARTS[name] for name in kept}
    monkeypatch.setattr(module, "PARTS", parts)
    monkeypatch.setattr(module, "render", lambda *_: "page")
