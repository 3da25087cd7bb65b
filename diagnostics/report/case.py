"""The trees of a report and all that is computed from them once, weight by weight."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.calibration.scores import row_scores
from ardvark.diagnostics.compare.agreement import agreement, figures_by_weight, paired_draws
from ardvark.diagnostics.compare.loo import loo_by_row, refit_rows, summary_of
from ardvark.diagnostics.compare.psis import LooRows
from ardvark.diagnostics.compare.reference import moving_parameters
from ardvark.diagnostics.compare.relations import Relations
from ardvark.diagnostics.reading import (
    USER_GRAPH,
    draws_of,
    element_labels,
    fingerprint,
    weight_variables,
)
from ardvark.diagnostics.relevance.compare import Relevances, read_relevances
from ardvark.diagnostics.relevance.relevance import relevance_of_weights
from ardvark.diagnostics.report.describe import describe_tree
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.samplers.chain_statistics import ess_bulk, ess_tail, rhat
from ardvark.inference.tree import FREE

__all__ = ["Case", "worst_parameters"]

INTERVAL = (0.055, 0.945)  # the 89 % that ArviZ shows
CHEAP = ("laplace", "ep")  # methods that are fitted again without each row ...
REFIT_ROWS = 40  # ... of so few


@dataclass(frozen=True)
class Case(Relations):
    """The trees, their relations to the references, and what else a report shows of them."""

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
    def left_out(self) -> Mapping[str, LooRows | None]:
        """Leave-one-out of every tree by the estimator that is valid for it."""
        way = {True: "cavity", False: "psis"}
        return {
            name: self.loo_by_row.get((name, way[tree.attrs.get("loo") == "cavity"]))
            for name, tree in self.trees.items()
        }

    @cached_property
    def worst(self) -> dict[str, pd.DataFrame]:
        """The parameters that mix worst, for every reference that is a Markov chain."""
        chains = [n for n in self.references if self.quality[n].sampling_kind == "mcmc"]
        return {name: worst_parameters(self.trees[name]) for name in chains}

    @cached_property
    def summaries(self) -> dict[str, pd.DataFrame]:
        """Mean, sd, 89 % interval and relevance of every weight, by method, the reference first."""
        names = sorted(self.trees, key=lambda name: name != self.reference)
        return {name: _summary(self.trees[name]) for name in names}

    @cached_property
    def relevances(self) -> Relevances:
        """The relevance of each input by method."""
        return read_relevances({name: self.trees[name] for name in self.with_relevance})

    @property
    def with_relevance(self) -> list[str]:
        """Methods with a relevance of their own: the reference of one method only repeats it."""
        repeated = {name for name in self.like.values() if name != self.reference}
        return [name for name in self.trees if name not in repeated]

    @cached_property
    def differences(self) -> dict[tuple[str, str], pd.DataFrame]:
        """Figures by weight of every (name, reference) that is reported, the worst weight first."""
        pairs = [*self.like.items(), *self.price.items()]
        return {pair: _worst_first(self.trees[pair[0]], self.trees[pair[1]]) for pair in pairs}

    @cached_property
    def theta_differences(self) -> dict[tuple[str, str], pd.DataFrame]:
        """The same of the hyperparameters that both of a pair have drawn, positive ones by logs."""
        drawn = {(a, b): paired_draws(self.trees[a], self.trees[b]) for a, b in self.like.items()}
        theta = {pair: found.only_hyperparameters() for pair, found in drawn.items()}
        return {p: _ordered(figures_by_weight(found)) for p, found in theta.items() if found.names}

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
            cheap = self.facts[name]["method"] in CHEAP and self.facts[name]["hyper"] not in FREE
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
    def ard(self) -> bool:
        """Whether a method has set precisions of weights, and so may have pruned some."""
        return any(facts["hyper"] in ("evidence", "predictive") for facts in self.facts.values())

    @property
    def users_own(self) -> bool:
        """Whether the model is the user's own, in which names may mean anything."""
        return any(facts["model"] == USER_GRAPH for facts in self.facts.values())

    @property
    def captions(self) -> list[str]:  # of the template of the verdict
        """Text that accompanies a posterior wherever it is shown."""
        return [f"{name}: {f['caption']}" for name, f in self.facts.items() if f["caption"]]


def worst_parameters(tree: xr.DataTree) -> pd.DataFrame:
    """R-hat and effective sizes of the ten parameters that mix worst."""
    names, draws = moving_parameters(tree)
    index = pd.Index(names, name="parameter")
    if not names:
        return pd.DataFrame(columns=["rhat", "bulk_ess", "tail_ess"], index=index)
    columns = {
        "rhat": rhat(draws),
        "bulk_ess": ess_bulk(draws),
        "tail_ess": ess_tail(draws),
    }
    return pd.DataFrame(columns, index=index).sort_values("rhat", ascending=False)[:10]


def _summary(tree: xr.DataTree) -> pd.DataFrame:
    posterior = tree["posterior"].dataset
    frames = []
    for variable in weight_variables(tree):
        draws = draws_of(posterior[variable])
        mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
        lower, upper = np.quantile(draws, INTERVAL, axis=(0, 1))
        share = relevance_of_weights(mean, sd)
        columns = {"mean": mean, "sd": sd, "lower": lower, "upper": upper, "relevance": share}
        frames.append(pd.DataFrame(columns, index=element_labels(posterior[variable], variable)))
    return pd.concat(frames) if frames else pd.DataFrame(columns=["mean", "lower", "upper"])


def _worst_first(tree: xr.DataTree, reference: xr.DataTree) -> pd.DataFrame:
    """Sort weights by their error against what is tolerable: a tenth of an sd, 10 % of an sd."""
    return _ordered(agreement(tree, reference).query("role == 'weight'"))


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    error = frame[["mean_error", "log_sd_ratio"]].abs().max(axis=1).to_numpy()
    order = np.argsort(-error, kind="stable")
    return frame.assign(sd_ratio=np.exp(frame["log_sd_ratio"].to_numpy())).iloc[order]
