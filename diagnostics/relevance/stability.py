"""Would other rows have led to the same inputs? Selection again and again, on resampled rows.

Z (resample, input) tells what was selected, p_f is the share of M resamples that have input f of d,
k_i the size of selection i, k their mean. The stability is that of Nogueira, Sechidis & Brown
(2018, JMLR 18-174), the only one with all five properties they ask for: it does not depend on how
many are selected, is 1 when all selections are equal, and 0 on average when made at random.

| formula | code |
|---|---|
| Phi = 1 - mean_f M/(M-1) p_f (1 - p_f) / (k/d (1 - k/d)), NSB18 (4) | `stability_index` |
| its variance 4/M² sum_i (phi_i - mean phi)², NSB18 theorem 7 | `stability_index` |

Their benchmark: below 0.4 is poor, above 0.75 excellent.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import import_module
from itertools import count as iterate
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ardvark.diagnostics.relevance.discovery import Rule, selected
from ardvark.diagnostics.relevance.relevance import relevance
from ardvark.errors import AccuracyWarning, ConvergenceWarning, InputError, InputWarning
from ardvark.inference.running.executor import check_executor, run_tasks
from ardvark.inference.running.progress import progress
from ardvark.models.card import card_of
from ardvark.models.checks import Seed, as_seed, one_of, positive_integer

__all__ = ["Index", "Stability", "stability", "stability_index"]

SCHEMES = ("bootstrap", "halves", "splits")
NORMAL = 1.959963984540054  # quantile of a 95 % interval
REDRAWS = 100  # of rows that lack a class


class Index(NamedTuple):
    """A stability with its standard error and 95 % interval; NaN if all or none are selected."""

    value: float
    error: float
    lower: float
    upper: float


def stability_index(chosen: ArrayLike) -> Index:
    """Stability of selections Z (resample, input) with its asymptotic interval."""
    Z = np.asarray(chosen, dtype=float)
    if Z.ndim != 2 or len(Z) < 2 or not np.isin(Z, (0.0, 1.0)).all():
        raise InputError(
            f"chosen must be a table (resample, input) of truth values with two rows or more, got "
            f"shape {Z.shape}."
        )
    M, d = Z.shape
    p, sizes = Z.mean(axis=0), Z.sum(axis=1)
    k = sizes.mean()
    chance = k / d * (1 - k / d)
    if chance == 0:
        return Index(*(np.nan,) * 4)
    phi = 1 - np.mean(M / (M - 1) * p * (1 - p)) / chance  # NSB18 (4)
    slope = 2 * k * sizes / d**2 - sizes / d - k / d + 1
    each = (Z @ p / d - sizes * k / d**2 + phi / 2 * slope) / chance  # NSB18 theorem 7
    error = float(2 / M * np.sqrt(np.square(each - each.mean()).sum()))
    phi = float(phi)
    return Index(phi, error, phi - NORMAL * error, min(phi + NORMAL * error, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Stability:
    """What `stability` found."""

    table: pd.DataFrame  # index: input; frequency, its error, mean and sd of the rank
    index: Index
    chosen: pd.DataFrame  # (resample, input): True = selected
    failed: int  # fits that did not converge
    scheme: str

    @property
    def sizes(self) -> pd.Series[int]:
        """How many inputs each resample selected."""
        return self.chosen.sum(axis=1)

    def sentence(self) -> str:
        """The result as a sentence."""
        value, _, lower, upper = self.index
        if np.isnan(value):
            return "Every resample selects all inputs, or none: there is nothing to be stable."
        word = "poor" if value < 0.4 else "excellent" if value > 0.75 else "intermediate"
        always = int((self.table["frequency"] >= 0.9).sum())
        return (
            f"Stability {value:.2f} (95 % interval {lower:.2f} to {upper:.2f}): {word}. "
            f"{always} of {len(self.table)} inputs are selected in at least 90 % of "
            f"{len(self.chosen)} resamples."
        )

    def _repr_html_(self) -> str:
        shown = self.table.sort_values("frequency", ascending=False, kind="stable")
        table = shown.head(20).to_html(float_format="{:.2f}".format, border=0)
        return f"<p>{escape(self.sentence())}</p>{table}"


def stability(
    builder: str | Callable[..., Any],
    data: Any,
    method: Any = "laplace",
    *,
    resamples: int = 50,
    scheme: str = "bootstrap",
    rule: Rule = None,
    draws: int = 250,
    random_seed: Seed = 0,
    progressbar: bool = True,
    executor: Any = None,
) -> Stability:
    """Fit a model to resampled rows and tell which inputs are selected how often.

    Parameters
    ----------
    builder : name of a model, or function (X, t) -> pm.Model
        `"ard_classification"`, or `functools.partial` and `lambda` for other arguments.
    data : Dataset or (X, t)
    method
        As in ``fit``.
    resamples
        How many; of "splits" at most as many as there are.
    scheme : "bootstrap", "halves" or "splits"
        Rows with replacement; random halves in complementary pairs (Shah & Samworth 2013); or the
        training rows of the data set's own splits.
    rule
        As in ``selected``: what a fit selects.
    draws
        Draws per fit, in all chains together.
    executor
        What runs the fits: 2 for two processes, a Dask Client or its address for a cluster.

    Fits that do not converge are counted in ``failed`` and kept.
    """
    check_executor(executor)
    X, t, splits = _the_data(data)
    build = _the_builder(builder)
    one_of(scheme, SCHEMES, "scheme")
    rng = np.random.default_rng(as_seed(random_seed))
    count, number = positive_integer(resamples, "resamples"), positive_integer(draws, "draws")
    parts = list(_rows(scheme, t, splits, count, rng))
    if len(parts) < 2:
        raise InputError(f"stability needs two resamples or more, {scheme!r} gives {len(parts)}.")
    finished = iterate(1)
    with progress("stability", progressbar) as tick:

        def shown(place: int, found: _Selected) -> None:
            so_far = next(finished)
            tick(f"resample {so_far} of {len(parts)}", so_far / len(parts))

        work = _Work(build, X, t, method, rule, number)
        fits = run_tasks(work, parts, executor, done=shown)
    chosen = pd.DataFrame([one.chosen for one in fits])
    table = chosen.reset_index(drop=True).rename_axis(index="resample")
    rank = pd.DataFrame([one.rank for one in fits])
    failed = sum(not one.converged for one in fits)
    share = table.mean()
    columns = {
        "frequency": share,
        "error": np.sqrt(share * (1 - share) / len(table)),
        "mean_rank": rank.mean(),
        "sd_rank": rank.std(),
    }
    return Stability(
        pd.DataFrame(columns).rename_axis(index="input"),
        stability_index(table.to_numpy()),
        table,
        failed,
        scheme,
    )


def _the_data(data: Any) -> tuple[Any, Any, Any]:
    if hasattr(data, "X") and hasattr(data, "t"):
        return data.X, data.t, data.splits
    if isinstance(data, tuple) and len(data) == 2:
        from ardvark.models.inputs import as_inputs

        return as_inputs(data[0]), np.asarray(data[1]), ()
    raise InputError(f"data must be a Dataset or a pair (X, t), got {type(data).__name__}.")


def _the_builder(builder: Any) -> Callable[..., Any]:
    if callable(builder):
        return builder  # type: ignore[no-any-return]
    models = import_module("ardvark.models")
    found: Callable[..., Any] = getattr(models, one_of(builder, models.__all__, "builder"))
    return found


def _rows(
    scheme: str, t: Any, splits: Any, count: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Row numbers of each resample; none lacks a class."""
    if scheme == "splits":
        yield from (split.train for split in splits[:count])
        return
    size = len(t)
    labels = len(np.unique(t)) if t.dtype.kind in "OUSbiu" else size
    needed = labels if labels < size / 2 else 1
    given = 0
    for _ in range(REDRAWS * count):
        if given >= count:
            return
        order = rng.permutation(size)
        halves = [np.sort(order[: size // 2]), np.sort(order[size // 2 :])]
        drawn = [rng.integers(size, size=size)] if scheme == "bootstrap" else halves
        if all(len(np.unique(t[rows])) >= needed for rows in drawn):
            yield from drawn[: count - given]
            given += len(drawn)
    raise InputError(
        f"t: of {REDRAWS * count} resamples most lack a class, which is too rare in {size} rows: "
        f"merge it with another one."
    )


class _Selected(NamedTuple):
    """What is kept of a fit."""

    chosen: pd.Series[bool]
    rank: pd.Series[int]
    converged: bool


@dataclass(frozen=True)
class _Work:
    """One fit to some rows; on one compiled graph where nothing else is made of the data."""

    build: Callable[..., Any]
    X: Any
    t: Any
    method: Any
    rule: Rule
    draws: int

    @cached_property
    def whole(self) -> Any:
        return self.build(self.X, self.t)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "whole"}

    def __call__(self, rows: NDArray[np.int64]) -> _Selected:
        with warnings.catch_warnings():
            for told_once in (InputWarning, AccuracyWarning, ConvergenceWarning):
                warnings.simplefilter("ignore", told_once)
            tree = self.fitted(rows)
        converged = bool(tree.attrs.get("converged", True))
        return _Selected(selected(tree, self.rule), relevance(tree)["rank"], converged)

    def fitted(self, rows: NDArray[np.int64]) -> Any:
        """The tree of these rows."""
        from ardvark.inference.fit import fit

        settings: dict[str, Any] = {"chains": 2, "random_seed": 1, "progressbar": False}
        settings["draws"] = max(4, self.draws // 2)
        if not _same_graph(self.whole, self.X):
            return fit(self.build(self.X[rows], self.t[rows]), self.method, **settings)
        codes = self.whole["t_observed"].get_value()
        values = {"X": np.asarray(self.X)[rows], "t_observed": codes[rows]}
        return fit(self.whole, self.method, data=[values], **settings)[0]


def _same_graph(model: Any, X: Any) -> bool:
    """Whether other rows are other data of the same graph, as in a model linear in X."""
    card = card_of(model)
    if card is None or not card.builder.startswith("ard_"):
        return False
    names = {variable.name for variable in model.data_vars}
    linear = model.named_vars_to_dims.get("w") == ("feature",)
    return linear and names == {"X", "t_observed"} and model["X"].get_value().shape == X.shape
