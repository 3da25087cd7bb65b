"""The entry to feature selection: a table with names in, a ranking and a path of subsets out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import ConvergenceWarning, InputError
from ardvark.inference.running.executor import check_executor
from ardvark.inference.running.progress import Tick, progress
from ardvark.inference.selection.filters import fisher_score, relief
from ardvark.inference.selection.learners import EvidenceLearner, LeaveOneOutLearner
from ardvark.inference.selection.svm import GridSVM
from ardvark.inference.selection.walk import (
    ByRelevance,
    Learner,
    Path,
    Ranking,
    backward,
    forward,
)
from ardvark.inference.sites.arrays import Array
from ardvark.models.checks import (
    Seed,
    as_binary,
    as_inputs,
    as_seed,
    one_of,
    positive,
    positive_integer,
)

__all__ = ["select_features"]

RULES = ("smallest", "table 1")
DIRECTIONS = ("forward", "backward")


def select_features(
    X: Any,
    t: Any,
    *,
    ranking: str = "relevance",
    learner: str | Learner = "svm",
    direction: str = "forward",
    rule: str = "smallest",
    patience: int = 5,
    most: int | None = None,
    starts: int = 10,
    significance: float = 1.0,
    beyond: bool = False,
    random_seed: Seed = 0,
    progressbar: bool = True,
    executor: Any = None,
) -> xr.Dataset:
    """Rank the features of a two-class table and select the first of them: Chu06, table 1.

    Parameters
    ----------
    X, t
        A table (standardise it first: the kernels weigh columns by their units), two classes.
    ranking : "relevance", "fisher" or "relief"
        Expected relevance in the trigonometric SVM, from `starts` starts, or a filter.
    learner : "svm", "evidence", "loo" or a function (X, sign) -> Score
        What judges a subset: the cross-validated SVM of the paper, the evidence of the
        trigonometric SVM, its leave-one-out by EP, or your own.
    direction : "forward" or "backward"
        Grow along the ranking, or rank, drop the last feature and rank again.
    rule : "smallest" or "table 1"
        The smallest set that is not significantly worse than the best, or as the paper prints it
        the one before the first that is significantly worse than the best so far. On simulated
        data the first has the smaller error on new rows (`ardvark.studies.papers.stopping`), and
        backward elimination always takes it.
    patience
        With "smallest", end when this many more features have brought nothing (forward).
    most
        Features at most (forward; all by default).
    significance
        Standard errors of a paired difference that count as significant.
    beyond
        Go on to `most` past the end, for the picture.
    executor : int, Dask Client, address or concurrent.futures' Executor, optional
        Who runs the searches of the ranking and the machines of the SVM; None: threads of this
        process, one for each processor.

    Returns
    -------
    xr.Dataset
        By `feature`: `score` and `spread` of the ranking, `rank`, `selected`; by `step`: `size`,
        `loss` and its `standard_error`, `unfinished` (machines or searches of the learner that
        were cut; a `ConvergenceWarning` says so), what the learner chose, and `included` (step,
        feature).

    The losses are those of subsets whose ranking has seen all rows: they compare subsets, and are
    too good for an error on new rows (with few rows and many features, by far).
    """
    where = check_executor(executor)
    inputs = as_inputs(X)
    codes, _ = as_binary(t, len(inputs))
    one_of(rule, RULES, "rule")
    one_of(direction, DIRECTIONS, "direction")
    count = positive_integer(starts, "starts")
    most = None if most is None else positive_integer(most, "most")
    margin = positive(significance, "significance")
    waits = positive_integer(patience, "patience") if rule == "smallest" else None
    seed = as_seed(random_seed) or 0
    values, sign = np.array(inputs), np.where(codes == 1, 1.0, -1.0)
    judge = _learner(learner, seed, where)
    with progress("select_features", progressbar) as tick:
        rank = _ranker(ranking, count, seed, tick, where)
        ranked = rank(values, sign)
        if direction == "backward":
            path = backward(values, sign, rank, judge, significance=margin, tick=tick)
        else:
            path = forward(
                values, sign, ranked.order, judge,
                most=most, significance=margin, patience=waits, beyond=beyond, tick=tick,
            )  # fmt: skip
    chosen = path.smallest if rule == "smallest" else path.stop
    name = learner if isinstance(learner, str) else type(learner).__name__
    words: dict[str, Any] = {
        "ranking": ranking,
        "learner": name,
        "direction": direction,
        "rule": rule,
    }
    words["converged"] = int(_converged(ranked, path))  # netCDF has no truth values
    return _dataset(inputs.feature_names, ranked, path, chosen).assign_attrs(words)


def _converged(ranking: Ranking, path: Path) -> bool:
    """Whether all searches and machines came to their end; a warning with the numbers if not."""
    ends = ranking.found.optima.ends if ranking.found else ()
    searches = sum(not end.converged for end in ends)
    machines = [score.unfinished for score in path.scores]
    said = []
    if searches:
        said.append(f"{searches} of {len(ends)} optima of the ranking did not converge")
    if any(machines):
        said.append(
            f"{sum(machines)} machines or searches of the learner were cut before they converged, "
            f"at {np.count_nonzero(machines)} of {len(machines)} subsets (`unfinished`)"
        )
    if said:
        text = f"select_features: {'; '.join(said)}. Their losses are of where they stopped."
        warnings.warn(text, ConvergenceWarning, stacklevel=3)
    return not said


def _ranker(
    name: str, starts: int, seed: int, tick: Tick, executor: Any
) -> Callable[[Array, Array], Ranking]:
    filters = {"fisher": fisher_score, "relief": relief}
    if one_of(name, ("relevance", *filters), "ranking") == "relevance":
        return ByRelevance(starts, seed, executor=executor, tick=tick)
    return lambda X, y: Ranking(filters[name](X, y), np.zeros(X.shape[1]))


def _learner(learner: str | Learner, seed: int, executor: Any) -> Learner:
    if isinstance(learner, str):
        known: dict[str, Learner] = {
            "svm": GridSVM(seed=seed, executor=executor),
            "evidence": EvidenceLearner(seed=seed),
            "loo": LeaveOneOutLearner(seed=seed),
        }
        return known[one_of(learner, known, "learner")]
    if not callable(learner):
        raise InputError(
            f"learner must be a name or a function (X, sign) -> Score; got {learner!r}"
        )
    return learner


def _dataset(names: tuple[str, ...], ranking: Ranking, path: Path, chosen: int) -> xr.Dataset:
    features = len(names)
    rank = np.empty(features, dtype=int)
    rank[ranking.order] = np.arange(1, features + 1)
    included = np.zeros((len(path.subsets), features), dtype=bool)
    for step, subset in enumerate(path.subsets):
        included[step, subset] = True
    settings = {
        key: ("step", [s.setting[key] for s in path.scores]) for key in path.scores[0].setting
    }
    variables: dict[str, Any] = {
        "score": ("feature", ranking.score),
        "spread": ("feature", ranking.spread),
        "rank": ("feature", rank),
        "selected": ("feature", included[chosen]),
        "size": ("step", included.sum(axis=1)),
        "loss": ("step", path.losses),
        "standard_error": ("step", [score.error for score in path.scores]),
        "unfinished": ("step", [score.unfinished for score in path.scores]),
        "included": (("step", "feature"), included),
    }
    attrs = {"chosen": chosen, "stop": path.stop, "smallest": path.smallest}
    return xr.Dataset(variables | settings, {"feature": list(names)}, attrs)
