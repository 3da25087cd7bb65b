"""The command line: `ardvark list | fit | report | diagnose | compare | sbc | replicate | doctor`.

Nothing heavy is imported before a command needs it, so `ardvark --help` answers at once. Nothing
long is done unless it is requested. Results go to standard output (one JSON document with
`--json`), progress and warnings to standard error. An error is one line and exit code 2, a command
that cannot be understood also shows its usage; `--debug` shows the traceback.
"""

import json
import logging
import os
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError

from ardvark.commands.board import board
from ardvark.commands.checks import diagnose, sbc
from ardvark.commands.kept import Kept, data_key, request_of
from ardvark.commands.own import is_own
from ardvark.commands.studies import replicate
from ardvark.commands.tasks import (
    STANDARD_OUTPUT,
    Flag,
    Output,
    Task,
    UsageError,
    as_lines,
    at_same_hyperparameters,
    command_again,
    fit_all,
    known,
    known_methods,
    outcome,
    own_methods,
    prepare,
)
from ardvark.errors import AccuracyWarning, ConvergenceWarning, InputError, InputWarning

__all__ = ["app", "main"]

PACKAGES = [
    *("ardvark", "pymc", "pytensor", "arviz", "nutpie", "numba", "numpy", "scipy", "xarray"),
    *("pandas", "scikit-learn", "matplotlib", "zarr"),
]
STANDARD_TASK = Task()
USAGE = {
    "list": "ardvark list",
    "fit": "ardvark fit [DATA] [--model MODEL] [--method METHOD,...] [--out FOLDER]",
    "report": "ardvark report [DATA] [--model MODEL] [--method METHOD,...] [--out FILE.html]",
    "diagnose": "ardvark diagnose TREE_OR_FOLDER ...",
    "compare": "ardvark compare TREE TREE ... [--reference NAME]",
    "sbc": "ardvark sbc MODEL [--method METHOD] [--replications N] [--out FOLDER]",
    "replicate": "ardvark replicate STUDY ... [--quick]",
    "doctor": "ardvark doctor",
}


def _version() -> str:
    from importlib.metadata import version

    return version("ardvark")


app = App(
    name="ardvark",
    help="Sparse Bayesian models on PyMC: one graph, every inference method, compared with NUTS.",
    version=_version,
    result_action="return_value",
)


@app.command(name="list")
def list_(output: Output = STANDARD_OUTPUT) -> int:
    """Show the models, methods and data sets there are."""
    from ardvark.inference.methods import METHODS
    from ardvark.models.data.datasets import names_at_hand, names_to_download
    from ardvark.models.registry import MODELS

    there = {
        "models": sorted(MODELS),
        "methods": sorted(METHODS),
        "datasets": sorted([*names_at_hand(), *names_to_download()]),
    }
    output.show(there, lambda: "\n".join(f"{kind}: {', '.join(v)}" for kind, v in there.items()))
    return 0


@app.command
def fit(
    data: str | None = None,
    *,
    out: Path = Path("run"),
    task: Task = STANDARD_TASK,
    output: Output = STANDARD_OUTPUT,
) -> int:
    """Fit a data set (a name of `ardvark list` or a CSV file) and store one zarr tree per method.

    Or a model of your own with its data inside: `ardvark fit --model my_model.py:model`, where
    `model` is a pm.Model, a model of bambi, or a function that gives one.

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
    data = _asked_for("fit", data, task)
    prepared = prepare(data, task, output)
    methods = own_methods(prepared.name, task) or methods
    kept = Kept(out, data, prepared, task, output)
    kept.open(methods)
    left_out: dict[str, str] | None = {} if task.nothing_asked else None
    with board(output, methods) as shown:
        trees = fit_all(prepared.model, methods, task, output, left_out, kept, shown)
    stored: dict[str, Any] = {
        name: {"path": str(kept.path(name)), "new": name not in kept.there, **outcome(tree)}
        for name, tree in trees.items()
    }
    for name, place in kept.set_aside.items():
        stored[name]["damaged"] = str(place)
    stored |= {name: {"left_out": why} for name, why in (left_out or {}).items()}
    output.show(stored, lambda: as_lines(stored))
    return 0


@app.command
def report(
    data: str | None = None,
    *,
    out: Path = Path("report.html"),
    strict: Flag = False,
    taddaa: Flag = False,
    keep: Flag = False,
    interactive: Flag = False,
    task: Task = STANDARD_TASK,
    output: Output = STANDARD_OUTPUT,
) -> int:
    """Fit a data set by several methods and write a report that compares them with NUTS.

    Of a folder that `ardvark fit` has filled, the trees in it are reported and nothing is fitted.
    Else each tree is kept in a folder beside the page (report.html.fits) until the page is written:
    a report that was killed goes on with the same command.

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
    keep
        leave the folder of trees beside the page.
    interactive
        also write a page in which weights can be chosen: report.interactive.html.
    """
    methods = known_methods(task.method)  # before anything heavy is imported
    from ardvark.diagnostics.report.interactive.page import beside, require_plotly
    from ardvark.diagnostics.report.page import check_target
    from ardvark.diagnostics.report.report import report as write_report
    from ardvark.diagnostics.storage.atomic import locked

    check_target(out)
    if interactive:
        require_plotly()
        check_target(beside(out))
    data = _asked_for("report", data, task)
    kept: Kept | None = None
    given: dict[str, Any]
    with locked(out, output.say), locked(out.with_suffix(".json"), output.say):
        if data and Path(data).is_dir():
            trees, given = _stored(Path(data), output)
            command = shlex.join(["ardvark", "report", data, "--out", out.name])
        else:
            prepared = prepare(data, task, output)
            methods = own_methods(prepared.name, task) or methods
            left_out: dict[str, str] | None = {} if task.nothing_asked else None
            kept = Kept(out.with_name(f"{out.name}.fits"), data, prepared, task, output, own=True)
            kept.open(methods)
            asked = (task, output)
            with board(output, methods) as shown:
                trees = fit_all(prepared.model, methods, *asked, left_out, kept, shown)
                trees |= at_same_hyperparameters(prepared.model, trees, *asked, kept, shown)
            command = command_again(data, prepared.name, out, task)
            given = {"model": prepared.model, "data": prepared.data, "test": prepared.test}
            given["left_out"] = left_out
        command += (" --taddaa" if taddaa else "") + (" --interactive" if interactive else "")
        given |= {"command": command, "taddaa": taddaa, "interactive": interactive}
        output.say("writing the report ...")
        path = write_report(trees, out, **given)
        if kept is not None and not keep:
            kept.remove()
    numbers = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    level = numbers["verdict"]["level"]
    result = {"report": str(path), "level": level, "verdict": numbers["verdict"]["sentence"]}
    written = [str(path)]
    if interactive:
        result["interactive"] = str(beside(path))
        written.append(result["interactive"])
    said = numbers["verdict"].get("said", [])
    lines = [numbers["verdict"]["lead"], *said] if said else [result["verdict"]]
    output.show(result, lambda: "\n".join([*written, *lines]))
    return {"good": 0, "warn": 1, "bad": 2}[level] if strict else 0


def _stored(folder: Path, output: Output) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load the trees of a folder, and build their model again if the folder names its data."""
    from ardvark.diagnostics.storage.trees import has_checksums, refuse_mixed, trees_in

    trees, asked = trees_in(folder), request_of(folder)
    refuse_mixed(trees, folder)
    unsure = [name for name in trees if not has_checksums(folder / f"{name}.zarr")]
    if unsure:
        output.say(f"{folder}: no checksums, so damage would not be detected: {', '.join(unsure)}")
    if asked is None:
        return trees, {}
    task = Task(model=asked["model"], target=asked["target"], raw=asked["raw"])
    try:
        prepared = prepare(asked["data"], task, output)
    except (ValueError, OSError) as error:
        output.say(f"the data cannot be found, so the trees are reported alone: {error}")
        return trees, {}
    if asked["fingerprint"] not in (None, data_key(prepared)):
        raise InputError(
            f"{folder} holds fits of {asked['data'] or asked['model']} as it was "
            f"({asked['size']}), and it has changed. Fit it again into another --out, or remove "
            f"{folder / 'run.json'} to report the trees alone"
        )
    return trees, {"model": prepared.model, "data": prepared.data, "test": prepared.test}


def _asked_for(command: str, data: str | None, task: Task) -> str:
    """Return the data set that was named; without a name nothing is fitted."""
    from ardvark.models.registry import MODELS

    if is_own(task.model):
        given = [*([data] if data else []), *(["--target"] if task.target else [])]
        if given or task.raw:
            raise UsageError(
                command,
                f"--model {task.model} has its data inside: {' '.join(given) or '--raw'} is not "
                f"for it",
            )
        return ""
    if task.model is not None:
        known("model", task.model, MODELS)
    if data is None:
        raise UsageError(
            command,
            f"{command} needs data: `ardvark {command} wdbc` takes a data set of `ardvark list`, "
            f"`ardvark {command} people.csv --target sick` a table of your own",
        )
    if data in MODELS and not Path(data).exists():
        raise UsageError(
            command, f"{data} is a model. Did you mean `ardvark {command} DATA --model {data}`?"
        )
    return data


def _wrong_tokens(tokens: list[str], error: CycloptsError) -> UsageError:
    """Name the words of a command that were not understood, and suggest what was meant."""
    from ardvark.inference.methods import METHODS
    from ardvark.models.registry import MODELS

    command = tokens[0] if tokens and tokens[0] in USAGE else ""
    first = next((i for i, t in enumerate(tokens) if t.startswith("-")), len(tokens))
    words = tokens[1:first]
    if not (command and error.unused_tokens):
        return UsageError(command, str(error))
    said = f"{command}: {shlex.join(error.unused_tokens)} was not expected"
    models = [word for word in words if word in MODELS]
    methods = [word for word in words if word in METHODS]
    rest = [word for word in words if word not in (*models, *methods)]
    if command in ("fit", "report") and (models or methods) and len(rest) < 2:
        meant = ["ardvark", command, *(rest or ["DATA"])]
        meant += ["--model", models[0]] if models else []
        meant += ["--method", ",".join(methods)] if methods else []
        said += f". Did you mean `{shlex.join([*meant, *tokens[first:]])}`?"
    elif command in ("fit", "report"):
        said += f": {command} takes one data set"
    return UsageError(command, said)


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
    from ardvark.diagnostics.compare.compare import READ_FIRST
    from ardvark.diagnostics.compare.compare import compare as compare_trees
    from ardvark.diagnostics.compare.reference import choose_reference
    from ardvark.diagnostics.compare.verdict import verdict
    from ardvark.diagnostics.storage.trees import read_tree

    if len(trees) < 2:
        raise ValueError(f"compare needs two or more trees, got {len(trees)}")
    loaded = {path.stem: read_tree(path) for path in trees}
    if len(loaded) < len(trees):
        names = [path.stem for path in trees]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two trees have the file name {twice!r}: rename one of them")
    chosen = choose_reference(loaded, reference)
    if chosen is None:
        raise ValueError(
            f"no Markov chain among the trees {', '.join(loaded)}: name one as --reference"
        )
    table = compare_trees(loaded, chosen, detail=True)
    said = {name: verdict(row).text for name, row in table.iterrows()}
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
def doctor(*, warm_up: Flag = False, output: Output = STANDARD_OUTPUT) -> int:
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
    with _own_warnings_only(not debug):
        try:
            result = _run(tokens)
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
            if isinstance(error, UsageError):
                print(f"usage: {USAGE.get(error.command, 'ardvark COMMAND')}", file=sys.stderr)
            print(f"ardvark: {message}", file=sys.stderr)
            return 2
    return result if isinstance(result, int) else 0


def _run(tokens: list[str]) -> Any:
    try:
        return app(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise _wrong_tokens(tokens, error) from error


@contextmanager
def _own_warnings_only(quiet: bool) -> Iterator[None]:
    """Ardvark's own warnings as one line each; those of other packages only with --debug."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    if not quiet:
        yield
        return
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for category in (InputWarning, ConvergenceWarning, AccuracyWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


if __name__ == "__main__":
    sys.exit(main())
