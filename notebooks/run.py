"""Run every notebook: `python notebooks/run.py [01 ...]`.

The sources are jupytext scripts in percent format (NN_name.py), so that no output is ever
committed. Each is turned into a notebook in a temporary folder and executed there, cell by cell, in
a kernel of its own; the seconds are printed and the first error of each is shown. `ARDVARK_FAST=1`
(few draws) is handed on. The exit code is 1 if any notebook failed.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

HERE = Path(__file__).resolve().parent
SOURCES = sorted(HERE.glob("[0-9]*.py"))
CELL_SECONDS = 600  # a cell that takes longer is stuck


def run(source: Path, folder: Path) -> str:
    """Execute one notebook in `folder`; return its first error, empty if there was none."""
    notebook = jupytext.read(source)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return str(error)
    finally:
        jupytext.write(notebook, folder / f"{source.stem}.ipynb")
    return ""


def main() -> int:
    """Run the chosen notebooks one after the other."""
    parser = argparse.ArgumentParser(description="Run every notebook, or those named.")
    parser.add_argument("names", nargs="*", help="01_five_minutes or 01, ...; default: all")
    parser.add_argument("--keep", type=Path, help="folder for the executed notebooks")
    options = parser.parse_args()
    known = [s.stem for s in SOURCES]
    for name in options.names:
        if not any(stem.startswith(name) for stem in known):
            parser.error(f"no notebook {name}; there are: {', '.join(known)}")
    begins = tuple(options.names) or ("",)
    chosen = [s for s in SOURCES if s.stem.startswith(begins)]
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for source in chosen:
            start = time.perf_counter()
            error = run(source, folder)
            failed += bool(error)
            verdict = "FAILED" if error else "ok"
            print(f"{source.stem:<30}{time.perf_counter() - start:7.1f} s  {verdict}", flush=True)
            if error:
                print(error, file=sys.stderr)
    print(f"{len(chosen)} notebooks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
