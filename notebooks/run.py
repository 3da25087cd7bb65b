"""Run every notebook and keep it with its pictures: `python notebooks/run.py [01 ...]`.

The sources are jupytext scripts in percent format (NN_name.py). Each is executed in a temporary
folder, cell by cell, in a kernel of its own, and written beside its script as NN_name.ipynb; the
seconds are printed and the first error of each is shown. The exit code is 1 if any failed.

    --text           only words have changed: keep the outputs, refuse if any code has
    --keep FOLDER    write the notebooks and what they make there instead
    ARDVARK_FAST=1   few draws: nothing is written
"""

import argparse
import base64
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

HERE = Path(__file__).resolve().parent
SOURCES = sorted(HERE.glob("[0-9]*.py"))
CELL_SECONDS = 600  # a cell that takes longer is stuck
MOST_BYTES = 500_000
HANDLE = re.compile(r"\[?<(?:matplotlib|Axes|arviz_plots)|Text\(|array\(\[\[?<Axes")
COLOURS = 96  # of a picture: enough for lines and a third of the size


def read(source: Path) -> Any:
    """Return the notebook of a script, the same one each time."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook["metadata"]["jupytext"] = {"formats": "ipynb,py:percent"}
    return notebook


def run(source: Path, folder: Path) -> tuple[Any, str]:
    """Execute one notebook in `folder`; return it and its first error, empty if there was none."""
    notebook = read(source)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources
    )
    error = ""
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as failure:
        error = str(failure)
    tidy(notebook, folder)
    return notebook, error


def tidy(notebook: Any, folder: Path) -> None:
    """Take out what differs between machines, and make pictures small."""
    notebook["metadata"]["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell["metadata"] = {}
        if "outputs" in cell:
            cell["outputs"] = [o for o in cell["outputs"] if not (is_handle(o) or is_progress(o))]
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = without_places(output["text"], folder)
            for kind, data in output.get("data", {}).items():
                if kind == "image/png":
                    output["data"][kind] = smaller(data)
                elif kind.startswith("text/"):
                    output["data"][kind] = without_places(data, folder)


def is_handle(output: Any) -> bool:
    """Whether an output only says that a figure has a legend, lines or axes."""
    data = output.get("data", {})
    return set(data) == {"text/plain"} and bool(HANDLE.match(data["text/plain"]))


def is_progress(output: Any) -> bool:
    """Whether an output is progress: a spinner, or what moves the cursor of a terminal."""
    return bool(re.search(r"\x1b\[(?:\?25[lh]|2K|\d*A|32m[⠀-⣿])", output.get("text", "")))


def without_places(text: str, folder: Path) -> str:
    """Remove the folder of a run, addresses in memory and the paths of installed packages."""
    text = text.replace(f"{folder}/", "")
    text = re.sub(r"/tmp/ipykernel_\d+/\d+\.py:\d+: ", "", text)
    text = re.sub(r"/\S*/site-packages/", "", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def smaller(data: str) -> str:
    """The same PNG with a palette."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(data))) as opened:
        white = Image.new("RGBA", opened.size, "white")
        white.alpha_composite(opened.convert("RGBA"))
    out = io.BytesIO()
    white.convert("RGB").quantize(COLOURS).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def new_words(source: Path, path: Path) -> tuple[Any, str]:
    """Return the notebook of a script with the outputs of the one that is there."""
    notebook, there = read(source), nbformat.read(path, as_version=4)
    code = [[c for c in book.cells if c.cell_type == "code"] for book in (notebook, there)]
    if [c.source for c in code[0]] != [c.source for c in code[1]]:
        return notebook, f"{source.name}: code has changed, run it"
    for new, old in zip(*code, strict=True):
        new["outputs"], new["execution_count"] = old["outputs"], old["execution_count"]
    tidy(notebook, path.parent)
    return notebook, ""


def main() -> int:
    """Run the chosen notebooks one after the other."""
    parser = argparse.ArgumentParser(description="Run every notebook, or those named.")
    parser.add_argument("names", nargs="*", help="01_five_minutes or 01, ...; default: all")
    parser.add_argument("--text", action="store_true", help="only words have changed")
    parser.add_argument("--keep", type=Path, help="folder for the executed notebooks")
    options = parser.parse_args()
    known = [s.stem for s in SOURCES]
    for name in options.names:
        if not any(stem.startswith(name) for stem in known):
            parser.error(f"no notebook {name}; there are: {', '.join(known)}")
    begins = tuple(options.names) or ("",)
    chosen = [s for s in SOURCES if s.stem.startswith(begins)]
    fast = os.environ.get("ARDVARK_FAST") == "1"
    target = options.keep or (None if fast else HERE)
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for source in chosen:
            start = time.perf_counter()
            path = HERE / f"{source.stem}.ipynb"
            notebook, error = new_words(source, path) if options.text else run(source, folder)
            text = nbformat.writes(notebook) + "\n"
            if len(text) > MOST_BYTES:
                error = error or f"{source.stem}: {len(text)} bytes, more than {MOST_BYTES}"
            if target is not None and not error:
                (target / path.name).write_text(text)
            failed += bool(error)
            verdict = "FAILED" if error else "ok"
            print(f"{source.stem:<30}{time.perf_counter() - start:7.1f} s  {verdict}", flush=True)
            if error:
                print(error, file=sys.stderr)
    print(f"{len(chosen)} notebooks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
