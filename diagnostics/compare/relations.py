"""The figures of every pair of an answer and a reference, and which reference each answer has.

| figure            | formula                                                            |
|-------------------|--------------------------------------------------------------------|
| worst mean, sd    | the largest errors of `agreement.py` over the weights              |
| worst θ           | the same over hyperparameters that both have drawn (log if > 0)   |
| missed mode       | two peaks in the reference, one nearly empty here (`modes.py`)     |
| k-hat             | Pareto shape of the weights p/q at draws of q (joint, not marginal)|
| d2, bounds        | what the importance weights allow at most (`bounds.py`)            |
| elpd difference   | sum of e_n - e*_n over the rows, se = sqrt(N var(e - e*))          |

An answer at given hyperparameters θ is compared with a reference at the same θ (`like`: the error
of the approximation) and with one that integrates θ out (`price` of fixing it).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.compare.agreement import (
    Paired,
    correlation_error,
    figures_by_weight,
    halves,
    paired_draws,
)
from ardvark.diagnostics.compare.bounds import bounds
from ardvark.diagnostics.compare.modes import missed_mode
from ardvark.diagnostics.compare.psis import (
    LooRows,
    error_of_sum,
    khat_and_error,
    loo_rows,
    summed,
)
from ardvark.diagnostics.compare.reference import (
    APPROXIMATION_ERROR,
    PRICE_OF_FIXING,
    REFERENCE,
    ReferenceQuality,
    is_reference,
    reference_quality,
    relation,
    same_hyperparameters,
    theta_in_words,
    trouble,
)
from ardvark.diagnostics.reading import group_variables, weight_variables

__all__ = ["Relations", "all_figures", "share_weights"]

_COLUMNS = [
    *("method", "hyper", "reference", "compares", "like_with_like", "n_weights"),
    *("worst_mean_error", "worst_mean_error_at", "mean_error_mcse"),
    *("worst_sd_ratio", "worst_sd_ratio_at", "log_sd_ratio_mcse"),
    *("theta", "n_theta", "theta_mean_error", "theta_mean_error_at", "theta_mean_error_mcse"),
    *("theta_sd_ratio", "theta_sd_ratio_at", "theta_log_sd_ratio_mcse"),
    *("wasserstein", "wasserstein_null"),
    *("correlation_error", "correlation_at", "correlation_null"),
    *("missed_mode_at", "missed_mode_place", "missed_mode_share"),
    *("khat", "khat_se", "d2", "mean_error_bound", "log_evidence"),
    *("elpd_loo", "elpd_loo_se", "loo_high_khat", "elpd_difference", "elpd_difference_se"),
    *("seconds", "speed_up", "converged", "reference_trouble"),
]


@dataclass(frozen=True)
class Relations:
    """Trees, the references among them, and all figures of a pair, each computed once."""

    trees: Mapping[str, xr.DataTree]
    reference: str | None

    @cached_property
    def references(self) -> list[str]:
        """Results that others can be compared with: the chosen one first, exact draws, NUTS."""
        order = {"exact": 0, "nuts": 1}  # then the rest; among equals as given
        found = [name for name, tree in self.trees.items() if is_reference(tree)]
        found.sort(key=lambda name: order.get(self.trees[name].attrs.get("method", ""), 2))
        return list(dict.fromkeys([*([self.reference] if self.reference else []), *found]))

    @cached_property
    def like(self) -> dict[str, str]:
        """Name → the reference at the same hyperparameters, of those before it in the order."""
        found = {}
        for name in self.trees:
            end = self.references.index(name) if name in self.references else len(self.references)
            for reference in self.references[:end]:
                if self.rows[name, reference]["compares"] == APPROXIMATION_ERROR:
                    found[name] = reference
                    break
        return found

    @cached_property
    def price(self) -> dict[str, str]:
        """Name → the reference that integrates out what this tree holds fixed."""
        return {
            name: reference
            for reference in reversed(self.references)
            for name in self.trees
            if self.rows[name, reference]["compares"] == PRICE_OF_FIXING
        }

    @cached_property
    def quality(self) -> dict[str, ReferenceQuality]:
        """Diagnostics of the draws of each tree."""
        return {name: reference_quality(tree) for name, tree in self.trees.items()}

    @cached_property
    def trouble(self) -> dict[str, str]:
        """Why a tree cannot be a reference, "" if it can."""
        return {name: trouble(tree, self.quality[name]) for name, tree in self.trees.items()}

    def sound(self, name: str) -> bool:
        """Whether a tree converged and its draws are in order."""
        return not self.trouble[name]

    @property
    def untrusted(self) -> list[str]:
        """References that were used and fail their own checks."""
        used = {self.reference, *self.like.values(), *self.price.values()}
        return [name for name in self.references if name in used and not self.sound(name)]

    @cached_property
    def left_out(self) -> Mapping[str, LooRows | None]:
        """Leave-one-out of every tree, row by row."""
        return {name: loo_rows(tree) for name, tree in self.trees.items()}

    @cached_property
    def rows(self) -> dict[tuple[str, str], "pd.Series[Any]"]:
        """A row of `compare` for each (name, reference)."""
        against = self.references or [next(iter(self.trees))]  # its own figures need no other
        frame = all_figures(self.trees, against, self.left_out, self.trouble)
        return {(str(a), str(b)): frame.loc[(a, b)] for a, b in frame.index}

    def own(self, name: str) -> "pd.Series[Any]":
        """Figures of a tree that need no other."""
        return next(row for (first, _), row in self.rows.items() if first == name)


def share_weights(trees: Mapping[str, xr.DataTree]) -> dict[str, xr.DataTree]:
    """Copy the names of the weights to trees that have none from one that does."""
    known = next((names for tree in trees.values() if (names := weight_variables(tree))), ())
    shared = dict(trees)
    for name, tree in trees.items():
        if not weight_variables(tree) and set(known) <= set(tree["posterior"].data_vars):
            shared[name] = tree.copy()
            shared[name].attrs = {**tree.attrs, "weights": json.dumps(known)}
    return shared


def all_figures(
    trees: Mapping[str, xr.DataTree],
    references: Sequence[str],
    left_out: Mapping[str, LooRows | None] | None = None,
    troubles: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Return the figures of every (name, reference); what is known already is not done again."""
    if left_out is None:
        left_out = {name: loo_rows(tree) for name, tree in trees.items()}
    if troubles is None:
        troubles = {
            name: trouble(trees[name], reference_quality(trees[name])) for name in references
        }
    own = {name: _own_figures(tree, left_out[name]) for name, tree in trees.items()}
    rows = {
        (name, against): _against(tree, trees[against], itself=name == against)
        | own[name]
        | _elpd_difference(left_out[name], left_out[against], itself=name == against)
        | {
            "reference": against,
            "reference_trouble": troubles[against],
            "speed_up": own[against]["seconds"] / max(own[name]["seconds"], 1e-9),
        }
        for against in references
        for name, tree in trees.items()
    }
    index = pd.MultiIndex.from_tuples(list(rows), names=["name", "against"])
    return pd.DataFrame(list(rows.values()), index=index)[_COLUMNS]


def _against(tree: xr.DataTree, reference: xr.DataTree, *, itself: bool) -> dict[str, Any]:
    """Collect the figures that need both trees."""
    drawn = paired_draws(tree, reference)
    pairs, theta = drawn.only_weights(), drawn.only_hyperparameters()
    weights = figures_by_weight(pairs)
    same = itself or same_hyperparameters(tree, reference)
    figures: dict[str, Any] = {
        **dict.fromkeys(_COLUMNS, float("nan")),
        "compares": REFERENCE if itself else relation(tree, reference, same),
        "like_with_like": same,
        **dict.fromkeys((name for name in _COLUMNS if name.endswith("_at")), None),
        "n_weights": len(weights),
        "n_theta": len(theta.names),
        "theta": "" if itself else theta_in_words(tree, reference),
    }
    if len(weights):
        figures["wasserstein_null"] = weights["wasserstein_null"].max()
    if len(weights) and not itself:
        figures |= _worst(weights, "worst_", "") | {"wasserstein": weights["wasserstein"].max()}
        figures |= _joint_figures(pairs)
    if theta.names and not itself:
        figures |= _worst(figures_by_weight(theta), "theta_", "theta_")
    return figures


def _worst(table: pd.DataFrame, of: str, noise: str) -> dict[str, Any]:
    """The largest errors of a mean and of an sd in a table of `agreement.py`, and where."""
    mean_error, log_ratio = table["mean_error"].abs(), table["log_sd_ratio"]
    mean, sd = int(mean_error.argmax()), int(log_ratio.abs().argmax())
    return {
        f"{of}mean_error": mean_error.iloc[mean],
        f"{of}mean_error_at": table.index[mean],
        f"{noise}mean_error_mcse": table["mean_error_mcse"].iloc[mean],
        f"{of}sd_ratio": np.exp(log_ratio.iloc[sd]),
        f"{of}sd_ratio_at": table.index[sd],
        f"{noise}log_sd_ratio_mcse": table["log_sd_ratio_mcse"].iloc[sd],
    }


def _joint_figures(pairs: Paired) -> dict[str, Any]:
    """Collect what a table of single weights does not show: correlations, and modes."""
    joint = correlation_error(pairs.names, pairs.ours, pairs.theirs, halves(pairs.theirs))
    figures: dict[str, Any] = {
        "correlation_error": joint.error,
        "correlation_at": None if joint.pair is None else ", ".join(joint.pair),
        "correlation_null": joint.null,
    }
    missed = missed_mode(pairs.ours, pairs.theirs)
    if missed is not None:
        figures |= {
            "missed_mode_at": pairs.names[missed.element],
            "missed_mode_place": missed.place,
            "missed_mode_share": missed.reference_share,
        }
    return figures


def _elpd_difference(
    ours: LooRows | None, theirs: LooRows | None, *, itself: bool
) -> dict[str, float]:
    if ours is None or theirs is None or itself or ours.elpd.size != theirs.elpd.size:
        return {}
    difference = ours.elpd - theirs.elpd
    error = error_of_sum(difference)
    return {"elpd_difference": float(difference.sum()), "elpd_difference_se": error}


def _own_figures(tree: xr.DataTree, rows: LooRows | None) -> dict[str, Any]:
    """Collect the figures that need one tree alone."""
    limit, (shape, error) = bounds(tree), khat_and_error(tree)
    fit = group_variables(tree, "fit")
    return {
        "method": tree.attrs.get("method"),
        "hyper": tree.attrs.get("hyper"),
        "khat": shape,
        "khat_se": error,
        "d2": limit.d2,
        "mean_error_bound": limit.mean_error,
        "log_evidence": float(fit["log_evidence"]) if "log_evidence" in fit else float("nan"),
        "seconds": float(tree.attrs.get("seconds", "nan")),
        "converged": tree.attrs.get("converged"),
        **summed(rows),
    }
