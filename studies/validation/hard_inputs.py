"""Sixteen hard but legal data sets for every pair of model and method: an answer, or a reason.

    python -m ardvark.studies.validation.hard_inputs                     what is not good or lacks
    python -m ardvark.studies.validation.hard_inputs --method laplace    some of it
    python -m ardvark.studies.validation.hard_inputs --minutes 10        as far as that goes

Good ends are a finite posterior that says it has converged, a finite one that says it has not (with
a warning that has the number), and a refusal of ours. NaN, infinities, an error of another package,
and more than a minute of processor time are not.

The fits run in a process of their own. Each may take `LIMIT` seconds of processor time; the system
ends the process that takes more, and the next fit goes to another one.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import ardvark as av
from ardvark.models.registry import MODELS
from ardvark.studies.validation.bad_inputs import OURS
from ardvark.studies.validation.lane import RESULTS, write_lane

__all__ = ["KINDS", "PAIRS", "Kind", "build", "ended", "settings"]

LIMIT = 60  # seconds of processor time
type Task = tuple[str, str, str]  # model, method, kind
GOOD = ("converged", "not converged, said so", "refused by name", "not for this model")
WEIGHT_FOR_A_ROW = ("rvm", "trigonometric_svm", "sample_feature")
EXACT_PROBIT = ("ard_classification", "exact")  # a truncated normal of as many dimensions
MIXTURE, FEW_BACKGROUNDS = ("rbf_mixture", "reversible_jump"), 60  # each an evidence by bridge
COMPILED = ("trigonometric_svm", "sample_feature")  # their density is not known in machine code
MANY_DENSITIES = ("nuts", "smc")  # each is of rows x rows numbers for these models
CHEAP = ("laplace", "ep", "vb", "exact", "elliptical_slice", "reversible_jump", "nuts", "smc")


class Kind(NamedTuple):
    """A hard data set: inputs, a score that makes the target, and options of kernel machines."""

    name: str
    make: Callable[..., tuple[Any, Any]]
    kernel: float | None = None  # width: only for machines with a kernel
    rows: tuple[int, int, int] | None = None  # where each row is a weight; and chains of such


def _plain(rng: np.random.Generator, rows: int = 30, columns: int = 4) -> tuple[Any, Any]:
    X = rng.normal(size=(rows, columns))
    return X, X[:, 0] - X[:, 1] + 0.7 * rng.normal(size=rows)


def _changed(change: Callable[[Any], None]) -> Callable[[np.random.Generator], tuple[Any, Any]]:
    def make(rng: np.random.Generator) -> tuple[Any, Any]:
        X, score = _plain(rng)
        change(X)
        return X, score

    return make


def _set(column: int, value: Callable[[Any], Any]) -> Callable[[np.random.Generator], Any]:
    def change(X: Any) -> None:
        X[:, column] = value(X)

    return _changed(change)


def _separable(rng: np.random.Generator, touching: bool) -> tuple[Any, Any]:
    X, _ = _plain(rng)
    score = X[:, 0].copy()
    if touching:  # two rows on the boundary, one of each class
        X[:2, 0], score[:2] = 0.0, (-1e-9, 1e-9)
    return X, score


def _many(rng: np.random.Generator, rows: int) -> tuple[Any, Any]:
    return _plain(rng, rows, 2)


def _few(rng: np.random.Generator, rows: int) -> tuple[Any, Any]:
    X = rng.normal(size=(rows, 3))
    return X, np.where(np.arange(rows) == 7, 1.0, -1.0) + 0.01 * rng.normal(size=rows)


def _scaled(rng: np.random.Generator) -> tuple[Any, Any]:
    X, score = _plain(rng)
    return X * np.array([1e-8, 1.0, 1e8, 1.0]), score


def _outlier(rng: np.random.Generator) -> tuple[Any, Any]:
    X, score = _plain(rng)
    X[3, 2] = 1e6
    return X, score


KINDS = (
    Kind("separable", lambda rng: _separable(rng, False)),
    Kind("quasi-separable", lambda rng: _separable(rng, True)),
    Kind("duplicate columns", _set(3, lambda X: X[:, 0])),
    Kind("collinear to 1e-12", _set(3, lambda X: X[:, 0] + 1e-12 * X[:, 1])),
    Kind("constant column", _set(2, lambda X: np.full(len(X), 3.0))),
    Kind("column of zeros", _set(2, lambda X: np.zeros(len(X)))),
    Kind("5 rows, 500 columns", lambda rng: _plain(rng, 5, 500)),
    Kind("many rows, 2 columns", _many, rows=(5000, 300, 60)),
    Kind("scales of 1e-8 and 1e8", _scaled),
    Kind("an outlier of 1e6", _outlier),
    Kind("one row of a class", _few, rows=(1000, 200, 60)),
    Kind("equal rows", lambda rng: (np.ones((12, 3)), rng.normal(size=12))),
    Kind("labels at random", lambda rng: (_plain(rng)[0], rng.normal(size=30))),
    Kind("kernel nearly the identity", _plain, 1e-6),
    Kind("kernel nearly all ones", _plain, 1e6),
    Kind("integers", lambda rng: (rng.integers(-3, 4, size=(30, 4)), rng.normal(size=30))),
)
PAIRS = [(model, method) for model, entry in MODELS.items() for method in entry.methods]


def data_of(model: str, method: str, kind: Kind) -> tuple[Any, Any]:
    """Inputs and target of a kind; fewer rows or columns where such work is honestly dear."""
    cubes = model.startswith(WEIGHT_FOR_A_ROW) or (model, method) == EXACT_PROBIT
    often = model.startswith(COMPILED) and method in MANY_DENSITIES
    rows = () if kind.rows is None else (kind.rows[2 if often else cubes],)
    X, score = kind.make(np.random.default_rng(16), *rows)
    X = X[:, :FEW_BACKGROUNDS] if (model, method) == MIXTURE else X
    return X, score if MODELS[model].task == "regression" else (score > 0).astype(int)


def ended(model: str, method: str, kind: Kind) -> tuple[str, str]:
    """Fit one pair to one data set: a verdict, and what was said."""
    if kind.kernel is not None and not model.startswith("rvm"):
        return "not for this model", ""
    X, t = data_of(model, method, kind)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            tree = av.fit(
                _compiled(model, method, build(model, method, X, t, kind.kernel)),
                settings(model, method, X.shape[1]),
                draws=100,
                chains=2,
                random_seed=1,
                progressbar=False,
            )
        except Exception as error:
            return _judge(error)
    draws = tree["posterior"].to_dataset()
    bad = [str(n) for n, v in draws.data_vars.items() if not _is_legal(str(n), v.values)]
    if bad:
        return "not finite", bad[0]
    if tree.attrs["converged"]:
        return "converged", str(tree.attrs.get("caution", ""))[:200]
    said = [str(w.message) for w in heard if w.category is av.errors.ConvergenceWarning]
    return ("not converged, said so", said[0][:200]) if said else ("not converged, silent", "")


def _is_legal(name: str, values: Any) -> bool:
    """Whether a posterior is finite; a precision of plus infinity switches its weight off."""
    off = np.isposinf(values) if name.startswith("alpha") else np.zeros(np.shape(values), bool)
    return bool(np.all(np.isfinite(values) | off))


def build(model: str, method: str, X: Any, t: Any, width: float | None = None) -> Any:
    """Give a model with the options that a method needs."""
    options: dict[str, Any] = {}
    if model.startswith("rvm"):
        options["kernel"] = av.RBF(width=width or 1.0)
    if method in ("exact", "elliptical_slice") and model.startswith(("ard", "rvm")):
        weights = len(X) if model.startswith("rvm") else np.shape(X)[1]
        options["alpha"] = np.ones(weights + 1)  # they take hyperparameters as given
        options |= {"noise": 0.5} if MODELS[model].task == "regression" else {}
    if (model, method) == ("rvm_classification", "exact"):
        options["link"] = "probit"  # no exact draws are known for the logit
    return getattr(av.models, model)(X, t, **options)


_FIRST: dict[Any, Any] = {}  # model, method, shapes -> the graph that was compiled


def _compiled(model: str, method: str, fresh: Any) -> Any:
    """Give the graph of equal shapes that NUTS has compiled (twenty seconds), with the new data."""
    if method != "nuts" or not model.startswith(COMPILED):
        return fresh
    data = {v.name: v.get_value() for v in fresh.data_vars}
    shapes = tuple((name, value.shape) for name, value in data.items())
    first = _FIRST.setdefault((model, method, shapes), fresh)
    for name, value in data.items():
        first[name].set_value(value)
    return first


def settings(model: str, method: str, inputs: int) -> Any:
    """Give a method with short chains: what is asked is how a fit ends."""
    if method == "reversible_jump":
        return av.ReversibleJump(sweeps=200)
    if method == "nuts":
        return av.NUTS(tune=50, cores=1)
    if method == "elliptical_slice" and model == "trigonometric_svm":
        fixed = {"kappa_0": 1.0, "kappa_a": np.full(inputs, 0.5), "kappa_b": 1.0}
        return av.EllipticalSlice(hyper=av.Fixed(fixed))
    return method


def _judge(error: Exception) -> tuple[str, str]:
    said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    raised = traceback.extract_tb(error.__traceback__)[-1].filename
    named = isinstance(
        error, av.errors.InputError | av.errors.UnsupportedPair | av.errors.UnreadableModel
    )
    ours = raised.startswith(OURS)
    return ("refused by name" if named and ours else "foreign error"), said


# --- in a process that may be ended ---------------------------------------------------------------


def _work(tasks: Sequence[Task]) -> None:
    """Fit, and write a line for each."""
    kinds = {kind.name: kind for kind in KINDS}
    for model, method, name in tasks:
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + LIMIT + 1, hard))
        begin = time.process_time()
        verdict, said = ended(model, method, kinds[name])
        seconds = round(time.process_time() - begin, 2)
        sys.stdout.write(json.dumps({"verdict": verdict, "said": said, "seconds": seconds}) + "\n")
        sys.stdout.flush()


def fit_all(tasks: list[Task]) -> Iterator[dict[str, Any]]:
    """Fit them all; one that is ended by the system took too long."""
    while tasks:
        command = [sys.executable, "-m", "ardvark.studies.validation.hard_inputs", "--work"]
        with (
            tempfile.TemporaryFile("w+") as words,
            subprocess.Popen(
                [*command, json.dumps(tasks)], stdout=subprocess.PIPE, stderr=words, text=True
            ) as process,
        ):
            assert process.stdout is not None
            try:
                for text in process.stdout:
                    if text.startswith("{"):
                        yield _named(tasks.pop(0)) | json.loads(text)
                killed = process.wait() < 0
            finally:  # also when nobody asks for more
                process.kill()
            words.seek(0)
            last = (words.read().strip().splitlines() or [""])[-1][:200]
        if tasks:
            verdict = f"more than {LIMIT} s" if killed else "ended the process"
            found = {"verdict": verdict, "said": "" if killed else last, "seconds": LIMIT}
            yield _named(tasks.pop(0)) | found


def _named(task: Task) -> dict[str, Any]:
    return dict(zip(("model", "method", "kind"), task, strict=True))


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One line for each method: how its fits ended."""
    columns = [*GOOD[:3], "not good"]
    lines = []
    for method in CHEAP:
        mine = [r for r in rows if r["method"] == method and r["verdict"] != GOOD[3]]
        counts = [sum(r["verdict"] == verdict for r in mine) for verdict in GOOD[:3]]
        bad = len(mine) - sum(counts)
        if mine:
            lines.append([f"`{method}`", *map(str, counts), str(bad)])
    return {
        "caption": "How fits to the sixteen data sets ended, by method over all models tried",
        "command": "python -m ardvark.studies.validation.hard_inputs",
        "columns": ["method", *columns],
        "rows": lines,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill up the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--method", action="append", choices=CHEAP)
    parser.add_argument("--model", action="append", choices=sorted(MODELS))
    parser.add_argument("--again", action="store_true", help="also what the record has")
    parser.add_argument("--minutes", type=float, default=1e9)
    asked = parser.parse_args(arguments)
    if asked.work:
        _work(json.loads(asked.work))
        return 0
    place = RESULTS / "hard_inputs.json"
    rows = json.loads(place.read_text(encoding="utf-8"))["fits"] if place.exists() else []
    lines = {(r["model"], r["method"], r["kind"]): r for r in rows}
    every = [
        (model, method, kind.name)
        for model, method in sorted(PAIRS, key=lambda pair: CHEAP.index(pair[1]))
        for kind in KINDS
    ]
    begin = time.monotonic()
    todo = [
        task
        for task in every
        if task[0] in (asked.model or MODELS) and task[1] in (asked.method or CHEAP)
        if asked.again or lines.get(task, {}).get("verdict") not in GOOD
    ]
    for r in fit_all(todo):
        task = (r["model"], r["method"], r["kind"])
        lines[task] = r
        if r["verdict"] not in GOOD:
            sys.stdout.write(f"{' '.join(task)} | {r['verdict']} | {r['said']}\n")
            sys.stdout.flush()
        _write([lines[task] for task in every if task in lines])
        if time.monotonic() - begin > 60 * asked.minutes:
            break
    return int(any(r["verdict"] not in GOOD for r in lines.values()))


def _write(rows: list[dict[str, Any]]) -> None:
    summary = {
        "pairs": len(PAIRS),
        "pairs_tried": len({(r["model"], r["method"]) for r in rows}),
        "not_good": sum(r["verdict"] not in GOOD for r in rows),
        "fits": rows,
        "tables": {"by_method": table(rows)},
    }
    write_lane("hard_inputs", summary, "python -m ardvark.studies.validation.hard_inputs")


if __name__ == "__main__":
    sys.exit(main())
