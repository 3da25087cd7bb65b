"""The trees of a report and all that is computed from them once, weight by weight and pair by pair.

A judge is a tree that others may be held against. `like` and `price` say which judge a tree has:
one at the same hyperparameters (the error of the approximation), one that integrates them out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from ardvark.diagnostics.calibration.scores import row_scores
from ardvark.diagnostics.compare.agreement import agreement, all_figures
from ardvark.diagnostics.compare.judges import choose_reference, may_judge
from ardvark.diagnostics.compare.loo import loo_by_row, refit_rows, summary_of
from ardvark.diagnostics.compare.psis import LooRows
from ardvark.diagnostics.compare.reference import (
    APPROXIMATION_ERROR,
    PRICE_OF_FIXING,
    reference_quality,
)
from ardvark.diagnostics.reading import (
    arviz,
    constant_columns,
    draws_of,
    element_labels,
    fingerprint,
    has_rows,
    weight_variables,
)
from ardvark.diagnostics.relevance.compare import Relevances, read_relevances
from ardvark.diagnostics.report.describe import describe_tree
from ardvark.errors import InputError, UnsupportedPair

__all__ = [
    "Case",
    "choose_reference",
    "may_judge",
    "moving_parameters",
    "share_weights",
    "worst_parameters",
]

type Array = npt.NDArray[np.float64]

INTERVAL = (0.055, 0.945)  # the 89 % that ArviZ shows
CHEAP = ("laplace", "ep")  # methods that are fitted again without each row ...
REFIT_ROWS = 40  # ... of so few


@dataclass(frozen=True)
class Case:
    """The trees and all that is computed from them once."""

    trees: Mapping[str, xr.DataTree]
    reference: str | None
    model: Any = None
    data: Any = None
    command: str | None = None
    test: Any = None  # rows that were kept back: (X, t) or a Dataset
    taddaa: bool = False  # whether to run short chains from the approximations

    @cached_property
    def facts(self) -> dict[str, dict[str, Any]]:
        """How each result came about."""
        return {name: describe_tree(tree) for name, tree in self.trees.items()}

    @cached_property
    def judges(self) -> list[str]:
        """Trees that others may be held against: the reference, exact draws, Markov chains."""
        order = ("exact", "nuts")  # then the rest; among equals as given
        chains = [n for n, tree in self.trees.items() if may_judge(tree)]
        chains.sort(
            key=lambda n: (
                n != self.reference,
                (*order, self.facts[n]["method"]).index(self.facts[n]["method"]),
            )
        )
        return list(dict.fromkeys([*([self.reference] if self.reference else []), *chains]))

    @cached_property
    def quality(self) -> dict[str, Any]:
        """What the draws of each tree say about themselves."""
        return {name: reference_quality(tree) for name, tree in self.trees.items()}

    @cached_property
    def worst(self) -> dict[str, pd.DataFrame]:
        """The parameters that mix worst, for every judge that is a Markov chain."""
        chains = [n for n in self.judges if self.quality[n].sampling_kind == "mcmc"]
        return {name: worst_parameters(self.trees[name]) for name in chains}

    @cached_property
    def rows(self) -> dict[tuple[str, str], "pd.Series[Any]"]:
        """A row of `compare` for each (name, judge)."""
        judges = self.judges or [next(iter(self.trees))]  # a lone approximation has its own figures
        way = {
            n: "cavity" if t.attrs.get("loo") == "cavity" else "psis" for n, t in self.trees.items()
        }
        left_out = {name: self.loo_by_row.get((name, way[name])) for name in self.trees}
        frame = all_figures(self.trees, judges, left_out)
        return {(str(a), str(b)): frame.loc[(a, b)] for a, b in frame.index}

    def own(self, name: str) -> "pd.Series[Any]":
        """Figures of a tree that need no other."""
        return next(row for (first, _), row in self.rows.items() if first == name)

    @cached_property
    def like(self) -> dict[str, str]:
        """Name → the judge at the same hyperparameters, of those before it in line."""
        found = {}
        for name in self.trees:
            end = self.judges.index(name) if name in self.judges else len(self.judges)
            for judge in self.judges[:end]:
                if self.rows[name, judge]["compares"] == APPROXIMATION_ERROR:
                    found[name] = judge
                    break
        return found

    @cached_property
    def price(self) -> dict[str, str]:
        """Name → the judge that integrates out what this tree holds fixed."""
        return {
            name: judge
            for judge in reversed(self.judges)
            for name in self.trees
            if self.rows[name, judge]["compares"] == PRICE_OF_FIXING
        }

    @property
    def untrusted(self) -> list[str]:
        """Judges that were used and fail their own checks."""
        used = {self.reference, *self.like.values(), *self.price.values()}
        return [name for name in self.judges if name in used and not self.sound(name)]

    def sound(self, name: str) -> bool:
        """Whether a tree converged and its draws are in order."""
        return bool(self.facts[name]["converged"] and self.quality[name].ok)

    @cached_property
    def summaries(self) -> dict[str, pd.DataFrame]:
        """Mean, sd, 89 % interval and relevance of every weight, by method, the reference first."""
        names = sorted(self.trees, key=lambda name: name != self.reference)
        return {name: _summary(self.trees[name]) for name in names}

    @cached_property
    def relevances(self) -> Relevances:
        """What every method says of each input."""
        return read_relevances({name: self.trees[name] for name in self.told})

    @property
    def told(self) -> list[str]:
        """Methods that say something of their own: the judge of one method only repeats it."""
        repeated = {judge for judge in self.like.values() if judge != self.reference}
        return [name for name in self.trees if name not in repeated]

    @cached_property
    def differences(self) -> dict[tuple[str, str], pd.DataFrame]:
        """Weight by weight, every (name, judge) that is reported, with `sd_ratio`, worst first."""
        pairs = [*self.like.items(), *self.price.items()]
        return {pair: _worst_first(self.trees[pair[0]], self.trees[pair[1]]) for pair in pairs}

    @cached_property
    def loo_by_row(self) -> dict[tuple[str, str], LooRows]:
        """Leave-one-out by (name, estimator), row by row: of the draws and of the cavities."""
        return loo_by_row(self.trees)

    @cached_property
    def loo(self) -> tuple[dict[tuple[str, str], LooRows], pd.DataFrame]:
        """Leave-one-out by (name, estimator), row by row and summed; few rows are refitted too."""
        found = dict(self.loo_by_row)
        for name, tree in self.trees.items() if self.model is not None else ():
            rows = next((len(loo.elpd) for key, loo in found.items() if key[0] == name), 0)
            cheap = self.facts[name]["method"] in CHEAP and self.facts[name]["hyper"] != "posterior"
            if cheap and 0 < rows <= REFIT_ROWS:
                try:
                    found[name, "refit"] = refit_rows(self.model, tree)
                except UnsupportedPair:
                    continue
        return found, summary_of(found, self.reference, self.like)

    @cached_property
    def fitted_data(self) -> tuple[Any, Any, str, tuple[str, ...]] | None:
        """X, t, task and feature names: of `data`, else as the trees keep them."""
        if self.data is not None:
            names = tuple(map(str, self.data.feature_names))
            return np.asarray(self.data.X), np.asarray(self.data.t), self.data.task, names
        tree = next(iter(self.trees.values()))
        if not {"constant_data", "observed_data"} <= set(tree.children):
            return None
        given, seen = tree["constant_data"].dataset, tree["observed_data"].dataset
        if "X" not in given or "t" not in seen:
            return None
        t = seen["t"].to_numpy()
        task = "binary" if set(np.unique(t)) <= {0, 1} else "regression"
        names = tuple(element_labels(given["X"].isel({given["X"].dims[0]: 0}, drop=True)))
        return given["X"].to_numpy(), t, task, names

    @cached_property
    def data_fingerprint(self) -> str | None:
        """SHA-256 of X and t."""
        return fingerprint(*self.fitted_data[:2]) if self.fitted_data else None

    @cached_property
    def predicted(self) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
        """Scores of every row by tree, and why a tree has none."""
        tables, refused = {}, {}
        for name, tree in self.trees.items():
            try:
                tables[name] = row_scores(tree, self.model, self.test if self.model else None)
            except (InputError, NotImplementedError) as error:
                refused[name] = str(error).rstrip(".")
        return tables, refused

    @property
    def captions(self) -> list[str]:
        """What must be said wherever a posterior is shown."""
        return [f"{name}: {f['caption']}" for name, f in self.facts.items() if f["caption"]]


def share_weights(trees: Mapping[str, xr.DataTree]) -> dict[str, xr.DataTree]:
    """Tell trees that do not say which variables are their weights what the others say."""
    known = next((names for tree in trees.values() if (names := weight_variables(tree))), ())
    shared = dict(trees)
    for name, tree in trees.items():
        if not weight_variables(tree) and set(known) <= set(tree["posterior"].data_vars):
            shared[name] = tree.copy()
            shared[name].attrs = {**tree.attrs, "weights": json.dumps(known)}
    return shared


def moving_parameters(tree: xr.DataTree) -> dict[str, Array]:
    """Give every parameter that moves as a (chain, draw) array; predictors are left out."""
    posterior, weights = tree["posterior"].dataset, weight_variables(tree)
    found: dict[str, Array] = {}
    for variable in map(str, posterior.data_vars):
        if variable in weights or not has_rows(tree, posterior[variable]):
            draws = draws_of(posterior[variable])
            still = constant_columns(draws)
            labels = element_labels(posterior[variable], variable)
            found |= {label: draws[:, :, i] for i, label in enumerate(labels) if not still[i]}
    return found


def worst_parameters(tree: xr.DataTree, how_many: int = 10) -> pd.DataFrame:
    """R-hat and effective sizes of the parameters that mix worst."""
    parameters = moving_parameters(tree)
    index = pd.Index(list(parameters), name="parameter")
    if not parameters:
        return pd.DataFrame(columns=["rhat", "bulk_ess", "tail_ess"], index=index)
    draws, axes = np.stack(list(parameters.values()), axis=2), {"chain_axis": 0, "draw_axis": 1}
    columns = {
        "rhat": arviz().rhat(draws, **axes),
        "bulk_ess": arviz().ess(draws, method="bulk", **axes),
        "tail_ess": arviz().ess(draws, method="tail", prob=(0.05, 0.95), **axes),
    }
    return pd.DataFrame(columns, index=index).sort_values("rhat", ascending=False)[:how_many]


def _summary(tree: xr.DataTree) -> pd.DataFrame:
    posterior = tree["posterior"].dataset
    frames = []
    for variable in weight_variables(tree):
        draws = draws_of(posterior[variable])
        mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
        lower, upper = np.quantile(draws, INTERVAL, axis=(0, 1))
        size = np.hypot(mean, sd)
        share = np.divide(np.abs(mean), size, out=np.zeros_like(size), where=size > 0)
        columns = {"mean": mean, "sd": sd, "lower": lower, "upper": upper, "relevance": share}
        frames.append(pd.DataFrame(columns, index=element_labels(posterior[variable], variable)))
    return pd.concat(frames) if frames else pd.DataFrame(columns=["mean", "lower", "upper"])


def _worst_first(tree: xr.DataTree, judge: xr.DataTree) -> pd.DataFrame:
    """Sort weights by their error against what is tolerable: a tenth of an sd, 10 % of an sd."""
    frame = agreement(tree, judge).query("role == 'weight'")
    error = frame[["mean_error", "log_sd_ratio"]].abs().max(axis=1).to_numpy()
    order = np.argsort(-error, kind="stable")
    return frame.assign(sd_ratio=np.exp(frame["log_sd_ratio"].to_numpy())).iloc[order]
