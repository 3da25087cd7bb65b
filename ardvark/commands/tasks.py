"""The work behind the commands: what is asked, what is fitted, where it is stored.

Like the command line itself this imports nothing heavy before it is needed.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from ardvark.commands.board import Board
from ardvark.commands.own import is_own, own_model
from ardvark.errors import UnreadableModel, UnsupportedPair

if TYPE_CHECKING:
    from ardvark.commands.kept import Kept

__all__ = [
    "STANDARD_OUTPUT",
    "Flag",
    "Output",
    "Prepared",
    "Task",
    "UsageError",
    "as_lines",
    "at_same_hyperparameters",
    "command_again",
    "fit_all",
    "known",
    "known_methods",
    "outcome",
    "own_methods",
    "prepare",
    "settings_of",
]

DEFAULT_METHODS = "laplace,ep,vb,nuts"
DEFAULT_MODELS = {
    "binary": "ard_classification",
    "regression": "rvm_regression",
    "multiclass": "rbf_mixture",
}
SHORT = {"elliptical_slice": "slices"}  # short names of references: a table has to hold them
OWN_METHODS = {"rbf_mixture": "reversible_jump"}  # of a model that the default methods refuse
METHODS_OF_OWN = ["laplace", "ep", "nuts"]  # of a model of one's own
Flag = Annotated[bool, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command writes and where."""

    json: Flag = False
    "Print one JSON document instead of text."
    quiet: Flag = False
    "No progress on standard error."
    debug: Flag = False
    "Show the traceback of an error and every warning."

    @property
    def progress(self) -> bool:
        """Whether to show progress."""
        return not (self.json or self.quiet)

    def say(self, text: str) -> None:
        """Progress, on standard error."""
        if self.progress:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes how much is done; a bar is drawn on a terminal only."""
        if not (self.progress and sys.stderr.isatty()):
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task(title, total=total)
            yield lambda done: progress.update(task, completed=done)

    def show(self, numbers: Any, text: Callable[[], str]) -> None:
        """Put the result on standard output."""
        print(json.dumps(numbers, indent=2, default=str) if self.json else text())


STANDARD_OUTPUT = Output()


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is fitted, and how long."""

    model: str | None = None
    "Model of `ardvark list`, by default the one for this kind of target; or my_model.py:model."
    method: str = DEFAULT_METHODS
    "Methods of `ardvark list`, with commas between; of the default ones those that fit the model."
    target: str | None = None
    "Column of a CSV file that is to be explained; by default the last."
    raw: Flag = False
    "Do not standardise the inputs."
    seed: int = 1
    "Seed of every random number."
    draws: int = 2000
    "Draws per chain."
    most_draws: int | None = None
    "NUTS goes on until its checks pass, up to so many draws per chain; by default 8 x --draws."
    chains: int = 4
    "Chains."
    target_accept: float | None = None
    "Acceptance that NUTS adapts its steps to, by default 0.9; raise it where draws diverge."
    tune: int | None = None
    "Draws per chain by which NUTS adapts, by default 1000; raise it where R-hat stays high."

    @property
    def nothing_asked(self) -> bool:
        """Whether the methods are the default ones: those that refuse a model are left out."""
        return self.method == DEFAULT_METHODS

    @property
    def of_nuts(self) -> dict[str, Any]:
        """What was asked of NUTS, the rest by default."""
        asked = {name: getattr(self, name) for name in ("most_draws", "target_accept", "tune")}
        return {name: value for name, value in asked.items() if value is not None}


class UsageError(ValueError):
    """A command with too few or too many words: its usage is shown."""

    def __init__(self, command: str, message: str) -> None:
        super().__init__(message)
        self.command = command


def known_methods(names: str) -> list[str]:
    """Split an option into method names that the registry knows."""
    from ardvark.inference.methods import METHODS

    wanted = dict.fromkeys(name.strip() for name in names.split(","))
    return [known("method", name, METHODS) for name in wanted]


def own_methods(model: str, task: Task) -> list[str]:
    """The model's own method if none was requested; []: the default ones."""
    if is_own(model):
        return METHODS_OF_OWN if task.nothing_asked else []
    return [OWN_METHODS[model]] if task.nothing_asked and model in OWN_METHODS else []


def known(kind: str, name: str, registry: Iterable[str]) -> str:
    """Check a name against a registry; the message lists what there is."""
    if name not in (known := sorted(registry)):
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(known)}")
    return name


class Prepared(NamedTuple):
    """Data, the name of the model, the model, and the rows that were kept back, if any."""

    data: Any  # None: they are inside a model of one's own
    name: str
    model: Any
    test: tuple[Any, Any] | None


def prepare(data: str, task: Task, output: Output) -> Prepared:
    """Load and scale the data, choose and build the model; "": the model has its data inside."""
    if task.model is not None and is_own(task.model):
        model = own_model(task.model)
        observed = ", ".join(rv.name for rv in model.observed_RVs) or "nothing"
        output.say(f"{task.model}: {len(model.free_RVs)} free variables; observed: {observed}")
        return Prepared(None, task.model, model, None)
    import ardvark as av
    from ardvark.models.checks import models_for
    from ardvark.models.registry import MODELS

    if task.model is not None:
        known("model", task.model, MODELS)
    dataset = av.load(data, target=task.target)
    name = task.model or DEFAULT_MODELS.get(dataset.task)
    if name is None:
        raise ValueError(
            f"{data}: no default model for a {dataset.task} target; name one of "
            f"{models_for(dataset.task)} by --model"
        )
    dataset, test = _training_rows(dataset)
    if not task.raw:
        dataset = av.standardise(dataset)
    output.say(f"{dataset.name}: {len(dataset.X)} rows, {dataset.X.shape[1]} columns; model {name}")
    return Prepared(dataset, name, getattr(av.models, name)(dataset.X, dataset.t), test)


def _training_rows(dataset: Any) -> tuple[Any, tuple[Any, Any] | None]:
    """Keep the training rows of a set with one split; of several splits none is special."""
    if len(dataset.splits) != 1:
        return dataset, None
    train, test = dataset.splits[0].train, dataset.splits[0].test
    kept = replace(
        dataset, name=f"{dataset.name} (training rows)", X=dataset.X[train], t=dataset.t[train],
        splits=(), truth={},
    )  # fmt: skip
    return kept, (dataset.X[test], dataset.t[test]) if len(test) else None


def settings_of(method: str, task: Task) -> Any:
    """Return the settings of a method; NUTS is the reference and runs until its checks pass."""
    if method != "nuts":
        return method
    import ardvark as av

    return av.NUTS(until="converged", **task.of_nuts)


def fit_all(
    model: Any,
    methods: Iterable[Any],
    task: Task,
    output: Output,
    left_out: dict[str, str] | None = None,
    kept: "Kept | None" = None,
    board: Board | None = None,
) -> dict[str, Any]:
    """Fit by each method, a name or a (name, settings) pair.

    A method that refuses the model is noted in `left_out` with its reason; an error without it.
    What is `kept` already is not fitted again; each new tree is kept at once. `board` shows how it
    goes, by default in lines.
    """
    board = board or Board(output.say, output.progress)
    trees: dict[str, Any] = {}
    for method in methods:
        name, settings = (
            method if isinstance(method, tuple) else (method, settings_of(method, task))
        )
        with kept.claimed(name) if kept else nullcontext():
            there = kept.find(name, settings) if kept else None
            if there is not None:
                trees[name] = there
                board.found(name, there)
                continue
            try:
                trees[name] = _fit_one(model, name, settings, task, board)
            except (UnsupportedPair, UnreadableModel) as refusal:
                if left_out is None:
                    raise
                left_out[name] = str(refusal)
                board.leave(name, str(refusal))
                continue
            if kept:
                kept.keep(name, settings, trees[name])
            board.end(name, trees[name])
    if left_out and not trees:
        why = next(iter(left_out.values()))
        raise UnsupportedPair(f"no default method fits this model; name one by --method. {why}")
    return trees


def _fit_one(model: Any, name: str, settings: Any, task: Task, board: Board) -> Any:
    import ardvark as av
    from ardvark.inference.running.progress import listening

    board.start(name, _how_long(settings, task))
    try:
        with listening(partial(board.tick, name)):
            tree = av.fit(
                model,
                settings,
                draws=task.draws,
                chains=task.chains,
                random_seed=task.seed,
                progressbar=False,  # the board shows it
            )
    except BaseException:
        board.stop(name, "failed")
        raise
    board.stop(name)
    return tree


def _how_long(settings: Any, task: Task) -> str:
    """Name the budget of chains that go on until their checks pass."""
    if getattr(settings, "until", None) is None:
        return ""
    from ardvark.inference.running.until import looks_at

    most = looks_at(task.draws, settings.until, settings.most_draws)[-1]
    return f"until its checks pass, at most {most} draws a chain"


def at_same_hyperparameters(
    model: Any,
    trees: Mapping[str, Any],
    task: Task,
    output: Output,
    kept: "Kept | None" = None,
    board: Board | None = None,
) -> dict[str, Any]:
    """Fit a reference for each approximation at the hyperparameters that it found.

    It is the cheapest method that is exact there and passes its own checks; NUTS only if it was
    requested.
    """
    from ardvark.diagnostics.compare.exact_methods import exact_methods

    found = [
        name
        for name, tree in trees.items()
        if tree.attrs.get("hyper") in ("evidence", "predictive")
        and tree.attrs.get("coupling") != "one_against_rest"  # no posterior of the graph
    ]
    fitted: dict[str, Any] = {}
    for name in found:
        asked = [m for m in exact_methods(model, trees[name]) if m[0] != "nuts" or "nuts" in trees]
        for method, settings in asked:
            if method == "nuts":
                settings = replace(settings, **task.of_nuts)
            label = f"{SHORT.get(method, method)}_fixed" + (f"_{name}" if len(found) > 1 else "")
            try:
                made = fit_all(model, [(label, settings)], task, output, kept=kept, board=board)
            except UnsupportedPair as error:  # the next one is slower, and takes more
                output.say(f"{label}: {error}")
                continue
            if made[label].attrs.get("converged", True) or method == asked[-1][0]:
                fitted |= made
                break
            output.say(f"{label}: does not pass its own checks, so another method is tried")
    return fitted


def outcome(tree: Any) -> dict[str, Any]:
    """What is shown of a stored result."""
    attributes = tree.attrs
    return {
        "converged": bool(attributes.get("converged", False)),
        "seconds": float(attributes.get("seconds", float("nan"))),
        "hyper": str(attributes.get("hyper", "")),
        **{n: str(attributes[n]) for n in ("problems", "caution") if attributes.get(n)},
    }


def command_again(data: str, model: str, out: Path, task: Task) -> str:
    """Write the command that gives this report again."""
    import shlex

    words = ["ardvark", "report", *([data] if data else []), "--model", model]
    words += ["--method", task.method]
    words += ["--target", task.target] if task.target else []
    words += ["--raw"] if task.raw else []
    words += ["--seed", str(task.seed), "--draws", str(task.draws), "--chains", str(task.chains)]
    for name, value in task.of_nuts.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*words, "--out", out.name])


def as_lines(facts: Mapping[str, Any], indent: str = "") -> str:
    """Write a nested mapping as indented lines."""
    lines = []
    for key, value in facts.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}", as_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {value}")
    return "\n".join(lines)
