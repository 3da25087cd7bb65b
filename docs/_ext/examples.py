"""API pages get their examples from the pages that are run as tests (docs/api/examples.md first).

A block belongs to a name if it uses it as `av.name`. So no example is written twice, and none is
shown that does not run.
"""

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECTION = re.MULTILINE | re.DOTALL
NAMESPACES = ("models", "kernels", "plot", "steps", "sklearn", "diagnostics", "errors")
ALSO_AT_THE_ROOT = ("RBF", "ARDGaussian", "ARDLinear")


def used_names(code: str) -> set[str]:
    """Public names, without `av.`, that a piece of code uses."""
    first = rf"av\.((?:{'|'.join(NAMESPACES)})\.\w+|\w+)"
    found = set(re.findall(first, code))
    return found | {f"kernels.{name}" for name in found if name in ALSO_AT_THE_ROOT}


def example_of(name: str) -> str:
    """Return the block of the page of examples that is most about a name; empty if none uses it.

    That is the one with the fewest other names, and among those the shortest.
    """
    blocks = BLOCK.findall((DOCS / "api" / "examples.md").read_text())
    about = [block for block in blocks if name in used_names(block)]
    return min(about, key=lambda block: (len(used_names(block)), len(block)), default="")


def typed_returns(text: str, obj: Any) -> str:
    """A section Returns in plain words, as numpydoc wants it: a type, then the words below it."""
    found = re.search(r"^Returns\n-+\n(.*?)(?=^\w+\n---|\Z)", text, SECTION)
    if found is None or re.search(r"^ +", found[1], re.MULTILINE):
        return text
    kind = str(inspect.signature(obj).return_annotation).strip("'").rpartition(".")[2].strip("'>")
    if kind == "Any":  # says less than the words
        return text
    words = textwrap.indent(found[1], "    ")
    return f"{text[: found.start(1)]}{kind or 'result'}\n{words}{text[found.end(1) :]}"


def add_example(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Append the example to a docstring, as numpydoc has it."""
    block = example_of(name.removeprefix("ardvark."))
    text = typed_returns("\n".join(lines), obj)
    # A bar in a docstring is mathematics, not a substitution.
    lines[:] = re.sub(r"(?<![\\|])\|(?!\|)", r"\\|", text).split("\n")
    if block and "Examples\n---" not in text:
        code = [f"    {line}" if line else "" for line in block.rstrip().split("\n")]
        lines += ["", "Examples", "--------", ".. code-block:: python", "", *code, ""]
        lines += ["What this example uses is made earlier on :doc:`/api/examples`.", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen before numpydoc does."""
    app.connect("autodoc-process-docstring", add_example, priority=100)
    return {"parallel_read_safe": True}
