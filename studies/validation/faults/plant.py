"""Copy the code, spoil the copy, run tests there.

A copy is a folder of hard links with a package `ardvark` that holds all sub-packages, as an
installed one does. It stands first on the path of the process that runs the tests, before the
editable install. A file is never written in place, by nobody: the one with the fault is a new file,
Python and numba write their caches under a temporary name first. So a copy costs nothing, has all
compiled code of the original, and leaves the original alone.

numba looks at one file to tell whether compiled code is old, but a kernel has its callees inlined.
So the compiled code of every module that imports the spoilt one, by however many steps, is removed.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ardvark.errors import InputError
from ardvark.studies.validation.faults.fault import Fault

__all__ = ["CAUGHT", "ROOT", "Outcome", "control", "make_copy", "plant", "run_fault", "tests_in"]

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("models", "inference", "diagnostics", "studies")  # of the package, beside it
OTHERS = ("ardvark", "tests", "docs", "notebooks")
FILES = ("pyproject.toml", "README.md", "Makefile", "setup.py", "CITATION.cff", "CHANGELOG.md")
NOT_NEEDED = shutil.ignore_patterns(
    "_build", "_generated", ".hypothesis", "*.ipynb", "*.png", "*.part", "*.lock"
)
CAUGHT, SURVIVED, NO_SUCH_TEXT, ENDLESS, BROKEN = (
    "caught", "survived", "does not apply", "did not end", "no verdict",
)  # fmt: skip
LIMIT = 300.0  # seconds of a run
HANGS = 120.0  # of one that need not end; its test takes seconds without the fault


class Outcome(NamedTuple):
    """What became of one fault."""

    name: str
    verdict: str
    by: str  # the test that failed first, and its last words
    seconds: float


def make_copy(folder: Path) -> Path:
    """Make a copy of the code under `folder`; refuse where there is no checkout."""
    if not (ROOT / "tests").is_dir():
        raise InputError(f"planted faults need a checkout with its tests; {ROOT} has none")
    shutil.rmtree(folder, ignore_errors=True)
    for name in (*PARTS, *OTHERS):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, copy_function=_link, ignore=NOT_NEEDED)
    for name in FILES:
        if (ROOT / name).exists():
            _link(str(ROOT / name), str(folder / name))
    for name in PARTS:
        (folder / "ardvark" / name).symlink_to(Path("..") / name)
    return folder


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def plant(copy: Path, fault: Fault) -> bool:
    """Put the fault into the copy; False if its text is not there exactly once."""
    path = copy / fault.file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text.count(fault.old) != 1:
        return False
    spoilt = path.with_suffix(".spoilt")
    spoilt.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    os.replace(spoilt, path)
    for module in _importers(copy, fault.file):
        cache = module.parent / "__pycache__"
        for kernel in cache.glob(f"{module.stem}.*.nb[ic]"):
            kernel.unlink()
    return True


def _importers(copy: Path, file: str) -> set[Path]:
    """The module of a file and all that import it, by any number of steps."""
    imports: dict[str, set[str]] = {}
    paths: dict[str, Path] = {}
    for part in PARTS:
        for path in (copy / part).rglob("*.py"):
            name = _module(path.relative_to(copy))
            paths[name], imports[name] = path, _imported(path)
    found, new = set[str](), {_module(Path(file))}
    while new:
        found |= new
        new = {name for name, needs in imports.items() if needs & new} - found
    return {paths[name] for name in found if name in paths}


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("ardvark", *parts)) if parts[0] != "ardvark" else ".".join(parts)


def _imported(path: Path) -> set[str]:
    """Modules that a file names in an import, also `from package import module`."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def run_fault(fault: Fault, folder: Path) -> Outcome:
    """Plant one fault in a copy of its own, and run its tests there."""
    start, limit = time.monotonic(), HANGS if fault.hangs else LIMIT
    copy = make_copy(folder / fault.name.replace(" ", "_"))
    try:
        if not plant(copy, fault):
            return Outcome(fault.name, NO_SUCH_TEXT, "", 0.0)
        verdict, by = tests_in(copy, fault.tests, limit)
        if verdict == ENDLESS and fault.hangs:
            verdict, by = CAUGHT, f"{fault.tests[0]}: did not end in {limit:.0f} s"
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return Outcome(fault.name, verdict, by, round(time.monotonic() - start, 1))


def control(faults: Sequence[Fault], folder: Path, jobs: int = 1, limit: float = 3600.0) -> Outcome:
    """Run the tests of all faults in a copy without any: they must pass."""
    start = time.monotonic()
    copy = make_copy(folder / "no_fault")
    wanted = dict.fromkeys(test for fault in faults for test in fault.tests)
    try:
        verdict, by = tests_in(copy, list(wanted), limit, jobs)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return Outcome("no fault", verdict, by, round(time.monotonic() - start, 1))


def tests_in(copy: Path, tests: Sequence[str], limit: float, jobs: int = 1) -> tuple[str, str]:
    """Run tests in a copy until one fails: a verdict, and that test with its last words."""
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-rfE",
        "-p", "no:cacheprovider", "-m", "", "--timeout", str(limit),
        "-n", str(jobs if jobs > 1 else 0), *tests,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    where = subprocess.run(
        [sys.executable, "-c", "import ardvark.inference as i; print(i.__file__)"],
        cwd=copy, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    if not where.stdout.startswith(str(copy)):
        raise RuntimeError(f"the copy is not what is imported, but {where.stdout.strip()}")
    try:
        run = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True,
            timeout=limit + 60.0, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ENDLESS, ""
    if run.returncode == 0:
        return SURVIVED, ""
    failed = re.search(r"^(?:FAILED|ERROR) (.*)$", run.stdout, re.MULTILINE)
    if run.returncode in (1, 2) and failed and "rror collecting" not in run.stdout:
        return CAUGHT, " ".join(failed[1].split())[:300]
    return BROKEN, (run.stdout + run.stderr)[-400:]
