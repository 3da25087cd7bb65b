"""Forty-one bad inputs at every public door: each must be refused by name, and leave nothing.

    python -m ardvark.studies.validation.bad_inputs              all doors
    python -m ardvark.studies.validation.bad_inputs --quick      builders and checks alone

A `Bad` input has a slot: the inputs X, the target t, or a setting. A `Door` is a public function
with the slots it has, and with the kinds that are legal there (one row to predict, a constant
target of a regression). What may come back is an error of ours, or of scikit-learn's own validation
at an estimator, whose message names the argument. An error that another package raised, one that
names nothing, or no error at all is a failure; so is a file that is left.
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse

import ardvark as av
from ardvark.models.registry import MODELS
from ardvark.studies.experiments import say
from ardvark.studies.validation.lane import write_lane

__all__ = ["Bad", "Door", "Outcome", "bad_settings", "bad_tables", "bad_targets", "try_door"]

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python -m ardvark.studies.validation.bad_inputs"
GOOD = ("refused", "legal")
OURS = tuple(str(ROOT / part) for part in ("ardvark", "models", "inference", "diagnostics"))
THEIRS = ("sklearn/utils/validation.py", "sklearn/utils/multiclass.py")  # an estimator's own words
SLOW = 1.0  # seconds, in which a bad input must be refused

RNG = np.random.default_rng(2026)
X = RNG.normal(size=(12, 3))
SCORE = X[:, 0] - 0.5 * X[:, 2] + 0.4 * RNG.normal(size=12)
TARGETS = {
    "binary": (SCORE > 0).astype(int),
    "multiclass": np.argsort(np.argsort(SCORE)) * 3 // 12,
    "regression": SCORE,
}


class Bad(NamedTuple):
    """One bad value."""

    kind: str
    slot: str  # "X", "t" or the name of a setting
    value: Any


class Door(NamedTuple):
    """A public function that takes one slot."""

    name: str
    slot: str
    call: Callable[[Any], Any]
    legal: frozenset[str] = frozenset()  # kinds that are no fault here
    said: tuple[str, ...] = ()  # what a message may call the argument; empty: the slot


class Outcome(NamedTuple):
    """What a door did with a bad value."""

    door: str
    kind: str
    verdict: str  # "refused", "legal", "accepted", "foreign", "unnamed", "slow", "left a file"
    said: str


# --- the values ----------------------------------------------------------------------------------


def _with(value: Any, row: int = 3, column: int = 1) -> Any:
    table = X.copy()
    table[row, column] = value
    return table


def bad_tables() -> list[Bad]:
    """The inputs."""
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    values = {
        "X: None": None,
        "X: scalar": 3.0,
        "X: one dimension": X[:, 0],
        "X: three dimensions": X[None],
        "X: no rows": X[:0],
        "X: no columns": X[:, :0],
        "X: one row": X[:1],
        "X: NaN": _with(np.nan),
        "X: inf": _with(np.inf),
        "X: minus inf": _with(-np.inf),
        "X: objects": np.array([[object()] * 3] * 12),
        "X: strings": np.full((12, 3), "a"),
        "X: complex": X.astype(complex),
        "X: masked": np.ma.masked_greater(X, 0.5),
        "X: ragged": [[1.0, 2.0, 3.0]] * 11 + [[1.0, 2.0]],
        "X: sparse": scipy.sparse.csr_matrix(X),
        "X: a column of NaN": frame.assign(b=np.nan),
        "X: duplicate names": frame.set_axis(["a", "b", "a"], axis=1),
        "X: dates": frame.assign(c=pd.date_range("2020-01-01", periods=12)),
    }
    return [Bad(kind, "X", value) for kind, value in values.items()]


def bad_targets() -> list[Bad]:
    """The target; which of them are legal depends on the task."""
    t = np.array([0.0, 1.0] * 6)
    values = {
        "t: None": None,
        "t: another length": t[:7],
        "t: two dimensions": np.stack([t, t], axis=1),
        "t: NaN": np.where(np.arange(12) == 4, np.nan, t),
        "t: inf": np.where(np.arange(12) == 4, np.inf, t),
        "t: one class": np.ones(12),
        "t: three classes": np.arange(12.0) // 4,
        "t: fractions": np.where(t > 0, 0.7, 0.2),
        "t: strings": np.array(["a", "b"] * 6),
        "t: empty": np.array([]),
    }
    return [Bad(kind, "t", value) for kind, value in values.items()]


LEGAL_TARGETS = {
    "binary": {"t: strings"},
    "multiclass": {"t: strings", "t: three classes"},
    "regression": {"t: one class", "t: three classes", "t: fractions"},
}


def bad_settings() -> dict[str, list[Any]]:
    """Values of settings, by what they are."""
    number = [-1.0, 0.0, np.nan, np.inf, "a", None, True, [1.0], 1j]
    return {
        "scale": number[:5] + number[6:],  # None often means: infer it
        "tolerance": number,
        "count": [0, -1, 1.5, np.nan, "a", None, True, 2**70],
        "seed": ["a", -1, 1.5, np.nan, True, [1], 2**64],
        "name": ["no such thing", 5, [], b"x"],
        "flag": ["no", 0, None, np.nan],
    }


LEGAL_SETTINGS = {  # None stands for a choice of ours, 0 for none of it
    ("VB", "starts"): frozenset({"None"}),
    ("Integrated", "points"): frozenset({"None"}),
    ("Sampled", "tune"): frozenset({"0"}),
}


# --- the doors -----------------------------------------------------------------------------------


def builders() -> Iterator[Door]:
    """Every builder, with bad inputs and with bad targets."""
    for name, entry in MODELS.items():
        build = getattr(av.models, name)
        for task in entry.tasks:
            legal = frozenset(LEGAL_TARGETS[task])
            if "multiclass" in entry.tasks:
                legal |= {"t: three classes"}
            if name == "rbf_mixture":
                legal |= {"t: NaN"}  # unlabelled rows
            label = f"models.{name}" + (f", {task}" if len(entry.tasks) > 1 else "")
            yield Door(label, "X", partial(_on_inputs, build, TARGETS[task]))
            yield Door(label, "t", partial(build, X), legal)


def _on_inputs(function: Callable[..., Any], t: Any, x: Any) -> Any:
    return function(x, t)


def estimators() -> Iterator[Door]:
    """Fit and predict of every estimator."""
    for name in av.sklearn.__all__:
        kind = getattr(av.sklearn, name)
        real = name in ("RVR", "ARDRegressor")
        good = TARGETS["regression" if real else "binary"]
        legal = frozenset(LEGAL_TARGETS["regression" if real else "multiclass"])
        yield Door(f"{name}.fit", "X", partial(_on_inputs, kind().fit, good), said=("X", "y"))
        yield Door(f"{name}.fit", "t", partial(kind().fit, X), legal, ("y", "label", "t"))
        fitted = kind().fit(X, good)
        one_row = frozenset({"X: one row"})
        yield Door(f"{name}.predict", "X", fitted.predict, one_row, ("X", "feature"))
        yield Door(f"{name}.predict before fit", "setting", kind().predict, said=("not fitted",))


FITTED = {  # a model of each family, and a method that is quick on twelve rows
    "ard_classification": av.Laplace(),
    "ard_regression": av.VB(),
    "rvm_classification": av.EP(),
    "trigonometric_svm": av.Laplace(hyper=av.Evidence(max_steps=20)),
    "subset_regression": av.ReversibleJump(sweeps=400),
    "sample_feature_regression": av.VB(max_sweeps=30),
    "rbf_mixture": av.ReversibleJump(sweeps=400),
}


def fits() -> Iterator[Door]:
    """Predict, data of a fit, scores: each needs a small fit."""
    one_row = frozenset({"X: one row"})
    for name, method in FITTED.items():
        t = TARGETS[MODELS[name].task]
        model = getattr(av.models, name)(X, t)
        tree = _quietly(partial(av.fit, model, method, draws=50, random_seed=1))
        predict = partial(av.predict, model, tree)
        yield Door(f"predict, {name}", "X", predict, one_row, ("X_new",))
        others = partial(_always, predict, X[:, :2])
        yield Door(f"predict, {name}, other columns", "setting", others, said=("X_new",))
        data = partial(_with_data, model, method)
        yield Door(f"fit(data=), {name}", "X", data, said=("X", "data"))
        if name == "ard_classification":
            yield from _of_one_tree(model, tree, t)


def _of_one_tree(model: Any, tree: Any, t: Any) -> Iterator[Door]:
    scores = partial(av.diagnostics.scores, {"a": tree}, model)
    write = partial(av.report, {"a": tree}, "r.html", model=model)
    legal = frozenset({"t: one class"})
    yield Door("scores", "X", lambda x: scores((x, t)), said=("X", "test"))
    yield Door("scores", "t", lambda y: scores((X, y)), legal, ("t", "test"))
    yield Door("report", "X", lambda x: write(test=(x, t)), said=("X", "test"))
    nothing: Any = None
    before = partial(_always, partial(av.predict, model, nothing), X)
    yield Door("predict before fit", "setting", before, said=("tree",))


def _always(function: Callable[[Any], Any], value: Any, _: Any) -> Any:
    return function(value)


def _with_data(model: Any, method: Any, x: Any) -> Any:
    return av.fit(model, method, draws=50, data=[{"X": x}])


def tables() -> Iterator[Door]:
    """Functions of tables and labels."""
    t = TARGETS["binary"]
    legal = frozenset({"X: one row"})
    yield Door("standardise", "X", av.standardise, legal)
    yield Door("select_features", "X", lambda x: av.select_features(x, t, ranking="fisher"))
    yield Door(
        "select_features",
        "t",
        lambda y: av.select_features(X, y, ranking="fisher"),
        frozenset(LEGAL_TARGETS["binary"]),
    )
    yield Door(
        "stability",
        "X",
        lambda x: av.diagnostics.stability(
            "ard_classification", (x, t), resamples=2, progressbar=False
        ),
        said=("X", "data"),
    )
    yield Door(
        "stability",
        "t",
        lambda y: av.diagnostics.stability(
            "ard_classification", (X, y), resamples=2, progressbar=False
        ),
        frozenset(LEGAL_TARGETS["binary"]),
        ("t", "data"),
    )


def _named(call: Callable[[dict[str, Any]], Any], name: str, value: Any) -> Any:
    return call({name: value})


def _made(name: str, options: dict[str, Any]) -> Any:
    return getattr(av, name)(**options)


OF_CLASSES = {  # settings of methods and of treatments of hyperparameters, by what they are
    "Laplace": {
        "tolerance": "tolerance", "count": "max_iterations", "name": "space", "flag": "corrected",
    },
    "EP": {"tolerance": "tolerance damping", "count": "max_sweeps", "name": "space updates"},
    "VB": {"tolerance": "tolerance", "count": "max_sweeps starts"},
    "NUTS": {"scale": "target_accept"},
    "SMC": {"count": "cores"},
    "EllipticalSlice": {"count": "thin"},
    "ReversibleJump": {"count": "sweeps"},
    "Evidence": {
        "tolerance": "tolerance", "count": "max_steps max_rounds starts",
        "name": "algorithm with_prior",
    },
    "Predictive": {"name": "criterion"},
    "Integrated": {"count": "points"},
    "Sampled": {"count": "tune", "name": "kernel"},
}  # fmt: skip


def _built(build: str, t: Any, options: dict[str, Any]) -> Any:
    return getattr(av.models, build)(X, t, **options)


def settings() -> Iterator[tuple[Door, list[Any]]]:
    """Every setting of builders, methods, hyperparameter treatments, steps and functions."""
    values = bad_settings()
    t, r = TARGETS["binary"], TARGETS["regression"]
    model = av.models.ard_classification(X, t, alpha=np.ones(4))
    tree = _quietly(lambda: av.fit(model, "laplace", draws=50, random_seed=1))
    made: list[tuple[str, str, str, Callable[[Any], Any]]] = []

    def add(where: str, kind: str, names: str, call: Callable[[dict[str, Any]], Any]) -> None:
        for name in names.split():
            made.append((where, name, kind, partial(_named, call, name)))

    for build in ("ard_classification", "rvm_classification", "subset_classification"):
        add(build, "scale", "a b", partial(_built, build, t))
        add(build, "name", "link", partial(_built, build, t))
    for build in ("ard_regression", "rvm_regression"):
        add(build, "scale", "a b noise", partial(_built, build, r))
        add(build, "flag", "bias", partial(_built, build, r))
    add("subset_regression", "scale", "expected_inputs a b noise",
        lambda k: av.models.subset_regression(X, r, **({"slab": "ard"} | k)))  # fmt: skip
    add("rvm_regression", "name", "prior", lambda k: av.models.rvm_regression(X, r, **k))
    add("sample_feature_regression", "scale", "a b gamma",
        lambda k: av.models.sample_feature_regression(X, r, **k))  # fmt: skip
    add("rbf_mixture", "scale", "expected_inputs g h",
        lambda k: av.models.rbf_mixture(X, t, **k))  # fmt: skip
    add("rbf_mixture", "count", "n_kernels", lambda k: av.models.rbf_mixture(X, t, **k))
    add("rbf_mixture", "name", "background target", lambda k: av.models.rbf_mixture(X, t, **k))
    add("RBF", "scale", "width", lambda k: av.RBF(**k))
    add("kernels.Polynomial", "count", "degree", lambda k: av.kernels.Polynomial(**k))
    for name, kinds in OF_CLASSES.items():
        for kind, names in kinds.items():
            add(name, kind, names, partial(_made, name))
    add("fit", "count", "draws chains", lambda k: av.fit(model, "laplace", **k))
    add("fit", "seed", "random_seed", lambda k: av.fit(model, "laplace", draws=50, **k))
    add("fit", "flag", "progressbar extend", lambda k: av.fit(model, "laplace", draws=50, **k))
    add("fit", "name", "method", lambda k: av.fit(model, **k))
    add("predict", "seed", "random_seed", lambda k: av.predict(model, tree, X, **k))
    add("predict", "flag", "bayes_point", lambda k: av.predict(model, tree, X, **k))
    add("sbc", "count", "replications draws chains",
        lambda k: av.sbc(model, **({"replications": 2, "draws": 20} | k)))  # fmt: skip
    add("sbc", "seed", "random_seed", lambda k: av.sbc(model, "ep", 2, draws=20, **k))
    add("sbc", "name", "method", lambda k: av.sbc(model, replications=2, draws=20, **k))
    add("compare", "name", "reference", lambda k: av.compare({"a": tree}, **k))
    add("report", "name", "reference", lambda k: av.report({"a": tree}, "r.html", **k))
    add("report", "flag", "taddaa interactive", lambda k: av.report({"a": tree}, "r.html", **k))
    add("loo_table", "name", "reference", lambda k: av.loo_table({"a": tree}, **k))
    add("evidence", "seed", "random_seed", lambda k: av.evidence({"a": tree}, model, **k))
    add("stability", "count", "resamples draws",
        lambda k: av.diagnostics.stability("ard_classification", (X, t), progressbar=False,
                                           **({"resamples": 2, "draws": 20} | k)))  # fmt: skip
    add("stability", "name", "scheme",
        lambda k: av.diagnostics.stability("ard_regression", (X, r), draws=20, **k))  # fmt: skip
    add("select_features", "name", "ranking learner direction rule",
        lambda k: av.select_features(X, t, **({"ranking": "fisher"} | k)))  # fmt: skip
    add("select_features", "count", "patience",
        lambda k: av.select_features(X, t, ranking="fisher", **k))  # fmt: skip
    many = _quietly(lambda: av.fit(model, "laplace", draws=200, random_seed=1))
    add("taddaa", "seed", "random_seed", lambda k: av.diagnostics.taddaa(model, many, **k))
    exact = _quietly(lambda: av.fit(model, "exact", draws=50, random_seed=1))
    add("bridge", "seed", "random_seed", lambda k: av.diagnostics.bridge(model, exact, **k))
    for where, name, kind, call in made:
        legal = LEGAL_SETTINGS.get((where, name), frozenset())
        yield Door(f"{where}({name}=)", name, call, legal, (name,)), values[kind]


# --- trying --------------------------------------------------------------------------------------


def _quietly(work: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def try_door(door: Door, bad: Bad) -> Outcome:
    """Give one bad value to one door, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        begin = time.process_time()
        try:
            _quietly(lambda: door.call(bad.value))
        except Exception as error:
            verdict, said = _judge(door, error, time.process_time() - begin)
        else:
            verdict = "legal" if bad.kind in door.legal else "accepted"
            said = ""
        left = os.listdir(folder)
    if left and verdict != "legal":
        verdict, said = "left a file", left[0]
    return Outcome(door.name, bad.kind, verdict, said)


def _judge(door: Door, error: Exception, seconds: float) -> tuple[str, str]:
    """Whether an error is ours, names its argument, and came in time."""
    said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    raised = traceback.extract_tb(error.__traceback__)[-1].filename
    ours = raised.startswith(OURS) or raised.endswith(THEIRS)
    if not ours or not isinstance(error, ValueError | TypeError | OSError):
        return "foreign", f"{said} ({raised.rsplit('site-packages/', 1)[-1]})"
    named = raised.endswith(THEIRS) or any(w in str(error) for w in door.said or (door.slot,))
    if not named:
        return "unnamed", said
    return ("slow", f"{seconds:.1f} s, {said}") if seconds > SLOW else ("refused", said)


def everything(quick: bool = False) -> Iterator[Outcome]:
    """Try all doors."""
    doors = [*builders(), *tables()] if quick else [*builders(), *tables(), *estimators(), *fits()]
    for door in doors:
        slots = {"X": bad_tables, "t": bad_targets}
        for bad in slots[door.slot]() if door.slot in slots else [Bad(door.name, door.slot, None)]:
            yield try_door(door, bad)
    for door, values in settings():
        for value in values:
            yield try_door(door, Bad(f"{value!r}", door.slot, value))


def table(found: Sequence[Outcome]) -> dict[str, Any]:
    """How often each kind of door was tried, and how it ended."""
    groups: dict[str, list[str]] = {}
    for outcome in found:
        groups.setdefault(_group(outcome.door), []).append(outcome.verdict)
    rows = [
        [name, *(str(ends.count(v)) for v in GOOD), str(sum(e not in GOOD for e in ends))]
        for name, ends in groups.items()
    ]
    return {
        "caption": "Bad values tried, by the kind of function that they were given to",
        "command": COMMAND,
        "columns": ["functions", "refused by name", "legal there", "anything else"],
        "rows": rows,
    }


def _group(door: str) -> str:
    if door.startswith("models."):
        return "builders: X and t"
    if "(" in door and door.endswith("=)"):
        return "settings of builders, methods and functions"
    if door.startswith(tuple(av.sklearn.__all__)):
        return "estimators"
    return "fit, predict, report and other functions of rows"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, record, print what failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="writes no record")
    asked = parser.parse_args(arguments)
    found: list[Outcome] = []
    for outcome in everything(asked.quick):
        found.append(outcome)
        if outcome.verdict not in GOOD:
            say(" | ".join(outcome))
    bad = [outcome._asdict() for outcome in found if outcome.verdict not in GOOD]
    say(f"{len(found)} tried, {len(bad)} not refused by name")
    if not asked.quick:
        kinds = {o.kind for o in found if o.kind.startswith(("X: ", "t: "))}
        record = {
            "tried": len(found),
            "doors": len({o.door for o in found}),
            "kinds": len(kinds),
            "failed": bad,
            "tables": {"by_door": table(found)},
        }
        write_lane("bad_inputs", record, COMMAND)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
