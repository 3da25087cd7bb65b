"""The command line: `ardvark list | fit | report | compare | doctor`.

Nothing heavy is imported before a command needs it, so `ardvark --help` answers at once. Results
go to standard output (one JSON document with `--json`), progress and warnings to standard error. An
error is one line and exit code 2; `--debug` shows the traceback.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

__all__ = ["app", "main"]

DEFAULT_METHODS = "laplace,nuts"
DEFAULT_MODELS = {"binary": "ard_classification", "regression": "ard_regression"}
PACKAGES = [
    *("ardvark", "pymc", "pytensor", "arviz", "nutpie", "numba", "numpy", "scipy", "xarray"),
    *("pandas", "scikit-learn", "matplotlib", "zarr"),
]


def _version() -> str:
    from importlib.metadata import version

    return version("ardvark")


app = App(
    name="ardvark",
    help="Sparse Bayesian models on PyMC: one graph, every inference method, held against NUTS.",
    version=_version,
    result_action="return_value",
)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command writes and where."""

    json: Annotated[bool, Parameter(negative="")] = False
    "Print one JSON document instead of text."
    quiet: Annotated[bool, Parameter(negative="")] = False
    "No progress on standard error."
    debug: Annotated[bool, Parameter(negative="")] = False
    "Show the traceback of an error and every warning."

    @property
    def progress(self) -> bool:
        """Whether to tell what is going on."""
        return not (self.json or self.quiet)

    def say(self, text: str) -> None:
        """Progress, on standard error."""
        if self.progress:
            print(text, file=sys.stderr, flush=True)

    def show(self, numbers: Any, text: Callable[[], str]) -> None:
        """Put the result on standard output."""
        print(json.dumps(numbers, indent=2, default=str) if self.json else text())


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is fitted, and how long."""

    model: str | None = None
    "Model of `ardvark list`; by default the one for this kind of target."
    method: str = DEFAULT_METHODS
    "Methods of `ardvark list`, with commas between."
    target: str | None = None
    "Column of a CSV file that is to be explained; by default the last."
    raw: Annotated[bool, Parameter(negative="")] = False
    "Do not standardise the inputs."
    seed: int = 1
    "Seed of every random number."
    draws: int = 2000
    "Draws per chain."
    chains: int = 4
    "Chains."


STANDARD_OUTPUT = Output()
STANDARD_TASK = Task()


@app.command(name="list")
def list_(output: Output = STANDARD_OUTPUT) -> int:
    """Show the models, methods and data sets there are."""
    import ardvark as av
    from ardvark.inference.fit import METHODS
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

    Parameters
    ----------
    data
        data set or CSV file.
    out
        folder for the trees: out/laplace.zarr, ...
    """
    methods = _methods(task.method)
    taken = [str(out / f"{name}.zarr") for name in methods if (out / f"{name}.zarr").exists()]
    if taken:
        raise FileExistsError(f"{', '.join(taken)} exists: choose another --out or remove it")
    _, _, model = _prepare(data, task, output)
    stored = {}
    for name, tree in _fit_all(model, methods, task, output).items():
        stored[name] = {"path": str(_store(tree, out / f"{name}.zarr")), **_outcome(tree)}
    output.show(stored, lambda: _lines(stored))
    return 0


@app.command
def report(
    data: str = "wdbc",
    *,
    out: Path = Path("report.html"),
    strict: Annotated[bool, Parameter(negative="")] = False,
    task: Task = STANDARD_TASK,
    output: Output = STANDARD_OUTPUT,
) -> int:
    """Fit a data set by several methods and write a report that holds them against NUTS.

    Parameters
    ----------
    data
        data set of `ardvark list` or a CSV file.
    out
        the HTML file; the numbers go beside it as JSON.
    strict
        exit code 1 if the report has warnings, 2 if a check failed.
    """
    from ardvark.diagnostics.report import report as write_report

    methods = _methods(task.method)
    if not out.absolute().parent.is_dir():
        raise FileNotFoundError(f"--out {out}: there is no folder {out.absolute().parent}")
    dataset, name, model = _prepare(data, task, output)
    trees = _fit_all(model, methods, task, output)
    trees.update(_at_same_hyperparameters(model, trees, task, output))
    command = _command(data, name, out, task)
    path = write_report(trees, out, model=model, data=dataset, command=command)
    numbers = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    level = numbers["verdict"]["level"]
    result = {"report": str(path), "level": level, "verdict": numbers["verdict"]["sentence"]}
    output.show(result, lambda: f"{path}\n{result['verdict']}")
    return {"good": 0, "warn": 1, "bad": 2}[level] if strict else 0


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
    import xarray as xr

    from ardvark.diagnostics.agreement import compare as compare_trees
    from ardvark.diagnostics.agreement import verdict
    from ardvark.diagnostics.describe import choose_reference

    if len(trees) < 2:
        raise ValueError(f"compare needs two or more trees, got {len(trees)}")
    for path in trees:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such tree; `ardvark fit` stores them")
    loaded = {path.stem: xr.open_datatree(path, engine="zarr").load() for path in trees}
    if len(loaded) < len(trees):
        raise ValueError("two trees have the same file name: rename one")
    judge = choose_reference(loaded, reference)
    if judge is None:
        raise ValueError("no Markov chain among the trees: name the --reference")
    table = compare_trees(loaded, judge)
    said = {name: verdict(row)[1] for name, row in table.iterrows()}
    numbers = {
        n: row | {"verdict": said[n]}
        for n, row in json.loads(table.to_json(orient="index")).items()
    }
    output.show(numbers, lambda: "\n".join([table.T.to_string(na_rep="-"), "", *said.values()]))
    return 0


@app.command
def doctor(output: Output = STANDARD_OUTPUT) -> int:
    """Show versions, compilers, back-ends and where data are looked for."""
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
    output.show(facts, lambda: _lines(facts))
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
    from ardvark.errors import ConvergenceWarning, InputWarning

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    warnings.simplefilter("ignore")
    for category in (InputWarning, ConvergenceWarning):
        warnings.simplefilter("always", category)
    warnings.showwarning = show


def _methods(names: str) -> list[str]:
    """Split an option into method names that the registry knows."""
    from ardvark.inference.fit import METHODS

    wanted = dict.fromkeys(name.strip() for name in names.split(","))
    return [_known("method", name, METHODS) for name in wanted]


def _known(kind: str, name: str, registry: Iterable[str]) -> str:
    if name not in (known := sorted(registry)):
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(known)}")
    return name


def _prepare(data: str, task: Task, output: Output) -> tuple[Any, str, Any]:
    """Load and scale the data, choose and build the model."""
    import ardvark as av
    from ardvark.models.registry import MODELS

    if task.model is not None:
        _known("model", task.model, MODELS)
    dataset = av.load(data, target=task.target)
    name = task.model or DEFAULT_MODELS.get(dataset.task)
    if name is None:
        raise ValueError(
            f"{data}: no model for a {dataset.task} target yet; "
            f"there are models for {' and '.join(DEFAULT_MODELS)} targets"
        )
    dataset = _training_rows(dataset)
    if not task.raw:
        dataset = av.standardise(dataset)
    output.say(f"{dataset.name}: {len(dataset.X)} rows, {dataset.X.shape[1]} columns; model {name}")
    return dataset, name, getattr(av.models, name)(dataset.X, dataset.t)


def _training_rows(dataset: Any) -> Any:
    """Keep the training rows of a set with one split; of several splits none is special."""
    if len(dataset.splits) != 1:
        return dataset
    train = dataset.splits[0].train
    name = f"{dataset.name} (training rows)"
    return replace(dataset, name=name, X=dataset.X[train], t=dataset.t[train], splits=(), truth={})


def _fit_all(model: Any, methods: Iterable[Any], task: Task, output: Output) -> dict[str, Any]:
    """Fit by each method; a name or a (name, settings) pair."""
    import ardvark as av

    trees = {}
    for method in methods:
        name, settings = method if isinstance(method, tuple) else (method, method)
        output.say(f"{name}: fitting ...")
        start = time.perf_counter()
        trees[name] = av.fit(
            model,
            settings,
            draws=task.draws,
            chains=task.chains,
            random_seed=task.seed,
            progressbar=output.progress and sys.stderr.isatty(),
        )
        output.say(f"{name}: done in {time.perf_counter() - start:.1f} s")
    return trees


def _at_same_hyperparameters(
    model: Any, trees: Mapping[str, Any], task: Task, output: Output
) -> dict[str, Any]:
    """NUTS at the hyperparameters that each approximation found: like is held against like."""
    import ardvark as av

    if "nuts" not in trees:
        return {}
    found = [name for name, tree in trees.items() if tree.attrs.get("hyper") == "evidence"]
    names = ["nuts_fixed"] if len(found) == 1 else [f"nuts_fixed_{name}" for name in found]
    fixed = [av.NUTS(hyper=av.Fixed(trees[name])) for name in found]
    return _fit_all(model, zip(names, fixed, strict=True), task, output)


def _store(tree: Any, path: Path) -> Path:
    """Write a tree under a temporary name, then rename it: no half-written result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    tree.to_zarr(partial)
    os.replace(partial, path)
    return path


def _outcome(tree: Any) -> dict[str, Any]:
    attributes = tree.attrs
    return {
        "converged": bool(attributes.get("converged", False)),
        "seconds": float(attributes.get("seconds", float("nan"))),
        "hyper": str(attributes.get("hyper", "")),
    }


def _command(data: str, model: str, out: Path, task: Task) -> str:
    """Write the command that gives this report again."""
    import shlex

    words = ["ardvark", "report", data, "--model", model, "--method", task.method]
    words += ["--target", task.target] if task.target else []
    words += ["--raw"] if task.raw else []
    words += ["--seed", str(task.seed), "--draws", str(task.draws), "--chains", str(task.chains)]
    return shlex.join([*words, "--out", out.name])


def _lines(facts: Mapping[str, Any], indent: str = "") -> str:
    """Write a nested mapping as indented lines."""
    lines = []
    for key, value in facts.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}", _lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {value}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
