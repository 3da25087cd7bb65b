"""The command line: `ardvark list | fit | report | diagnose | compare | sbc | replicate | doctor`.

Nothing heavy is imported before a command needs it, so `ardvark --help` answers at once. Results
go to standard output (one JSON document with `--json`), progress and warnings to standard error. An
error is one line and exit code 2; `--debug` shows the traceback.
"""

import json
import os
import shlex
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ardvark.commands import diagnose, replicate, sbc
from ardvark.tasks import (
    KEY,
    Output,
    Task,
    already_there,
    as_lines,
    at_same_hyperparameters,
    command_again,
    fit_all,
    keep_request,
    known_methods,
    outcome,
    own_methods,
    prepare,
    request_of,
    run_key,
    store,
)

__all__ = ["app", "main"]

PACKAGES = [
    *("ardvark", "pymc", "pytensor", "arviz", "nutpie", "numba", "numpy", "scipy", "xarray"),
    *("pandas", "scikit-learn", "matplotlib", "zarr"),
]
STANDARD_OUTPUT = Output()
STANDARD_TASK = Task()


def _version() -> str:
    from importlib.metadata import version

    return version("ardvark")


app = App(
    name="ardvark",
    help="Sparse Bayesian models on PyMC: one graph, every inference method, held against NUTS.",
    version=_version,
    result_action="return_value",
)


@app.command(name="list")
def list_(output: Output = STANDARD_OUTPUT) -> int:
    """Show the models, methods and data sets there are."""
    import ardvark as av
    from ardvark.inference.methods import METHODS
    from ardvark.models.registry import MODELS

    known = {
        "models": sorted(MODELS),
        "methods": sorted(METHODS),
        "datasets": sorted(map(str, av.datasets()["name"])),
    }
    output.show(known, lambda: "\n".join(f"{kind}: {', '.join(v)}" for kind, v in known.items()))
    return 0


@app.command
def fit(
    data: str = "wdbc",
    *,
    out: Path = Path("run"),
    task: Task = STANDARD_TASK,
    output: Output = STANDARD_OUTPUT,
) -> int:
    """Fit a data set (a name of `ardvark list` or a CSV file) and store one zarr tree per method.

    Each tree is stored the moment it is done. A run that was killed goes on with the same command:
    trees that are there already, of the same data and settings, are not fitted again.

    Parameters
    ----------
    data
        data set or CSV file.
    out
        folder for the trees: out/laplace.zarr, ...
    """
    methods = known_methods(task.method)
    prepared = prepare(data, task, output)
    methods = own_methods(prepared.name, task) or methods
    keys = {name: run_key(prepared, name, task) for name in methods}
    found = {name: already_there(out / f"{name}.zarr", keys[name]) for name in methods}
    there = {name: tree for name, tree in found.items() if tree is not None}
    keep_request(out, data, prepared.name, task)

    def keep(name: str, tree: Any) -> None:
        tree.attrs[KEY] = keys[name]
        store(tree, out / f"{name}.zarr")

    left_out: dict[str, str] | None = {} if task.nothing_asked else None
    trees = fit_all(prepared.model, methods, task, output, left_out, there, keep)
    stored: dict[str, Any] = {
        name: {"path": str(out / f"{name}.zarr"), "new": name not in there, **outcome(tree)}
        for name, tree in trees.items()
    }
    stored |= {name: {"left_out": why} for name, why in (left_out or {}).items()}
    output.show(stored, lambda: as_lines(stored))
    return 0


@app.command
def report(
    data: str = "wdbc",
    *,
    out: Path = Path("report.html"),
    strict: Annotated[bool, Parameter(negative="")] = False,
    taddaa: Annotated[bool, Parameter(negative="")] = False,
    task: Task = STANDARD_TASK,
    output: Output = STANDARD_OUTPUT,
) -> int:
    """Fit a data set by several methods and write a report that holds them against NUTS.

    Of a folder that `ardvark fit` has filled, the trees in it are reported and nothing is fitted.

    Parameters
    ----------
    data
        data set of `ardvark list`, a CSV file, or a folder of trees.
    out
        the HTML file; the numbers go beside it as JSON.
    strict
        exit code 1 if the report has warnings, 2 if a check failed.
    taddaa
        also run short chains from the draws of each approximation.
    """
    from ardvark.diagnostics.report import report as write_report

    methods = known_methods(task.method)
    if not out.absolute().parent.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no folder {out.absolute().parent}")
    given: dict[str, Any]
    if Path(data).is_dir():
        trees, given = _stored(Path(data), output)
        command = shlex.join(["ardvark", "report", data, "--out", out.name])
    else:
        prepared = prepare(data, task, output)
        methods = own_methods(prepared.name, task) or methods
        left_out: dict[str, str] | None = {} if task.nothing_asked else None
        trees = fit_all(prepared.model, methods, task, output, left_out)
        trees.update(at_same_hyperparameters(prepared.model, trees, task, output))
        command = command_again(data, prepared.name, out, task)
        given = {"model": prepared.model, "data": prepared.data, "test": prepared.test}
        given["left_out"] = left_out
    command += " --taddaa" if taddaa else ""
    path = write_report(trees, out, **given, command=command, taddaa=taddaa)
    numbers = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    level = numbers["verdict"]["level"]
    result = {"report": str(path), "level": level, "verdict": numbers["verdict"]["sentence"]}
    output.show(result, lambda: f"{path}\n{result['verdict']}")
    return {"good": 0, "warn": 1, "bad": 2}[level] if strict else 0


def _stored(folder: Path, output: Output) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load the trees of a folder, and build their model again if the folder says of what."""
    from ardvark.diagnostics.stored import trees_in

    trees, asked = trees_in(folder), request_of(folder)
    if asked is None:
        return trees, {}
    task = Task(model=asked["model"], target=asked["target"], raw=asked["raw"])
    try:
        prepared = prepare(asked["data"], task, output)
    except (ValueError, OSError) as error:
        output.say(f"the data are not there any more, so the trees are reported alone: {error}")
        return trees, {}
    return trees, {"model": prepared.model, "data": prepared.data, "test": prepared.test}


@app.command
def compare(*trees: Path, reference: str | None = None, output: Output = STANDARD_OUTPUT) -> int:
    """Compare two or more stored trees, one of them the reference.

    Parameters
    ----------
    trees
        zarr trees that `ardvark fit` stored.
    reference
        name of the reference (the file name without .zarr); by default the first NUTS tree.
    """
    from ardvark.diagnostics.agreement import READ_FIRST
    from ardvark.diagnostics.agreement import compare as compare_trees
    from ardvark.diagnostics.case import choose_reference
    from ardvark.diagnostics.stored import read_tree
    from ardvark.diagnostics.verdict import verdict

    if len(trees) < 2:
        raise ValueError(f"compare needs two or more trees, got {len(trees)}")
    loaded = {path.stem: read_tree(path) for path in trees}
    if len(loaded) < len(trees):
        raise ValueError("two trees have the same file name: rename one")
    judge = choose_reference(loaded, reference)
    if judge is None:
        raise ValueError("no Markov chain among the trees: name the --reference")
    table = compare_trees(loaded, judge, detail=True)
    said = {name: verdict(row)[1] for name, row in table.iterrows()}
    numbers = {
        n: row | {"verdict": said[n]}
        for n, row in json.loads(table.to_json(orient="index")).items()
    }
    short = table[READ_FIRST].T  # the rest is for --json
    output.show(numbers, lambda: "\n".join([short.to_string(na_rep="-"), "", *said.values()]))
    return 0


app.command(sbc)
app.command(diagnose)
app.command(replicate)


@app.command
def doctor(
    *, warm_up: Annotated[bool, Parameter(negative="")] = False, output: Output = STANDARD_OUTPUT
) -> int:
    """Show versions, compilers, back-ends and where data are looked for.

    Parameters
    ----------
    warm_up
        also compile all machine code now (about a minute, once), so that no first fit waits for it.
    """
    import platform
    import shutil
    from importlib.metadata import PackageNotFoundError, version

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "missing"

    folders = [folder for folder in os.environ.get("ARDVARK_DATA", "").split(os.pathsep) if folder]
    versions = {package: installed(package) for package in PACKAGES}
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads per process": os.environ.get("OMP_NUM_THREADS", "not limited"),
        "C++ compiler": shutil.which("g++") or shutil.which("clang++") or "none (numba is used)",
        "graphviz": shutil.which("dot") or "none (graphs of models cannot be drawn)",
        "ARDVARK_DATA": {
            folder: "found" if Path(folder).is_dir() else "no such folder" for folder in folders
        }
        or "not set (embedded data sets and simulators only)",
        "versions": versions,
    }
    facts["ready"] = "missing" not in versions.values()
    if warm_up:
        from ardvark.warmup import warm_up as compile_all

        output.say("compiling machine code ...")
        compile_all()
        facts["machine code"] = "compiled"
    output.show(facts, lambda: as_lines(facts))
    return 0 if facts["ready"] else 2


def main(arguments: Iterable[str] | None = None) -> int:
    """Run a command and give its exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    debug, as_json = "--debug" in tokens, "--json" in tokens
    with warnings.catch_warnings():
        if not debug:
            _plain_warnings()
        try:
            result = app(tokens, exit_on_error=False, print_error=False)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:  # the reader (head, less) has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as error:
            if debug:
                raise
            message = " ".join(str(error).split()) or type(error).__name__
            if as_json:
                print(json.dumps({"error": message, "kind": type(error).__name__}))
            print(f"ardvark: {message}", file=sys.stderr)
            return 2
    return result if isinstance(result, int) else 0


def _plain_warnings() -> None:
    """Ardvark's own warnings as one line each; those of other packages are for --debug."""
    from ardvark.errors import AccuracyWarning, ConvergenceWarning, InputWarning

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    warnings.simplefilter("ignore")
    for category in (InputWarning, ConvergenceWarning, AccuracyWarning):
        warnings.simplefilter("always", category)
    warnings.showwarning = show


if __name__ == "__main__":
    sys.exit(main())
