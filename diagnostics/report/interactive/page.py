"""The interactive page: numbers of the sections, template, style, plotly.js and our own script.

Names of columns are user input. They are in the page as JSON text (`<`, `>` and `&` escaped), the
script writes them as text only, and the page's own policy lets a browser run the two scripts whose
hashes it lists and load nothing at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ardvark.diagnostics.reading import installed
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.interactive.hyperparameters import hyperparameters_section
from ardvark.diagnostics.report.interactive.paths import paths_section
from ardvark.diagnostics.report.interactive.weights import weights_section
from ardvark.diagnostics.report.page import Part, environment
from ardvark.diagnostics.words import visible
from ardvark.errors import InputError

__all__ = ["beside", "render_interactive", "require_plotly"]

DIGITS = 5  # of a number in the page: a screen shows fewer
NEEDED = ("plotly", "webcolors")  # what ArviZ's plotly backend imports


def beside(target: Path) -> Path:
    """Where the interactive page of a report is."""
    return target.with_name(f"{target.stem}.interactive{target.suffix}")


def require_plotly() -> None:
    """Refuse an interactive page where it cannot be made, before anything is computed."""
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        raise InputError(
            f"interactive: {' and '.join(missing)} cannot be found. Install the extra: "
            "pip install 'ardvark[interactive]'; the static report needs nothing more"
        )


def render_interactive(
    case: Case, header: Mapping[str, str], parts: Mapping[str, Part], static: str
) -> str:
    """Fill the template; `static` is the file name of the report beside it."""
    numbers: dict[str, Any] = {
        "methods": [{"name": name, "reference": name == case.reference} for name in case.summaries],
        "weights": _attempt(lambda: weights_section(case)),
        "hyperparameters": _attempt(lambda: hyperparameters_section(case)),
        "paths": _attempt(lambda: paths_section(case, parts["relevance"])),
    }
    library, own = visible(_plotly()), _template("interactive.js")
    return (
        environment()
        .get_template("interactive.html.j2")
        .render(
            header={key: value for key, value in header.items() if key != "Date"},
            verdict=parts["verdict"],
            untrusted=case.untrusted,
            numbers=numbers,
            embedded=_safe_json(numbers),
            library=library,
            own=own,
            hashes=[_hash(script) for script in (library, own)],
            static=static,
            static_link=quote(static),
            version=installed("ardvark"),
        )
    )


def _attempt(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Make a section, or one with the reason why it could not be made."""
    try:
        return make()
    except Exception as error:
        return {"failed": f"This section could not be made. {type(error).__name__}: {error}"}


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _template(name: str) -> str:
    return (files("ardvark.diagnostics.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """The hash by which a page names a script that may run."""
    # A browser reads line ends as \n before it hashes.
    seen = script.replace("\r\n", "\n").replace("\r", "\n")
    return "sha256-" + base64.b64encode(hashlib.sha256(seen.encode()).digest()).decode()


def _safe_json(numbers: Any) -> str:
    """JSON that cannot end its script element, whatever a column is called."""
    text = json.dumps(_short(numbers), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _short(value: Any) -> Any:
    """Round numbers to what a screen shows; what is not finite is None."""
    if isinstance(value, Mapping):
        return {str(key): _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
