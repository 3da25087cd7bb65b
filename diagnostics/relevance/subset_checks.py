"""Can a walk over subsets be trusted? Diagnostics that make sense across dimensions, and a picture.

A weight that comes and goes has no trace to look at; the size and each indicator have. R-hat and
effective draws are theirs. Chains that start from different subsets must in the end agree
about the inclusion of every input: the largest disagreement is given in units of its Monte Carlo
error, and above LIMIT of them, or with an R-hat above RHAT_MAX, there is a warning.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.reading import group_variables, sampling_kind
from ardvark.diagnostics.relevance.subsets import (
    effective_draws,
    inclusion,
    indicators,
    joint_inclusion,
    of_moving,
)
from ardvark.errors import ConvergenceWarning
from ardvark.inference.arguments import check_tree
from ardvark.inference.samplers.chain_statistics import rhat
from ardvark.inference.samplers.convergence import RHAT_MAX

__all__ = ["SubsetDiagnostics", "plot_inclusion", "subset_diagnostics"]

LIMIT = 4.5  # standard errors: exceeded by chance once in 10^4 tables of 15 inputs
MOST_SHOWN = 25  # inputs in a picture


@dataclass(frozen=True, slots=True, eq=False)
class SubsetDiagnostics:
    """What `subset_diagnostics` found."""

    indicators: pd.DataFrame  # index: "size", then the features; rhat, ess
    jumps: pd.DataFrame  # index: move; columns: size; share of jumps made, NaN = never tried
    acceptance: pd.Series  # by move, over all sizes
    by_chain: pd.DataFrame  # index: chain; number of distinct subsets, jumps made
    distinct: int  # subsets visited by all chains together
    disagreement: pd.DataFrame  # index: feature; least, largest inclusion of a chain; in errors
    problems: tuple[str, ...]  # empty: no problem was found


def subset_diagnostics(tree: xr.DataTree) -> SubsetDiagnostics:
    """Check the chains of a tree with `included`; a ConvergenceWarning says if they disagree."""
    check_tree(tree)
    names, drawn = indicators(tree)
    values = np.concatenate([drawn.sum(axis=2, keepdims=True), drawn], axis=2).astype(float)
    index = pd.Index(["size", *names], name="indicator")
    agreed = of_moving(rhat, values) if len(values) > 1 else np.nan  # nothing to compare it with
    table = pd.DataFrame({"rhat": agreed, "ess": effective_draws(values)}, index=index)
    disagreement = _disagreement(drawn, names)
    problems = () if sampling_kind(tree) == "iid" else _problems(table, disagreement, len(drawn))
    for problem in problems:
        warnings.warn(f"subsets: {problem}", ConvergenceWarning, stacklevel=2)
    jumps, made = _jumps(tree)
    distinct = [len(np.unique(chain, axis=0)) for chain in drawn]
    group = tree["subsets"].dataset if "subsets" in tree.children else None
    together = len(np.unique(drawn.reshape(-1, len(names)), axis=0))
    by_chain = pd.DataFrame({"distinct": distinct}, index=pd.Index(range(len(drawn)), name="chain"))
    if made is not None:
        by_chain["jumps_made"] = made.sum(("move", "size")).to_numpy()
    return SubsetDiagnostics(
        indicators=table,
        jumps=jumps[0],
        acceptance=jumps[1],
        by_chain=by_chain,
        distinct=together if group is None else int(group.attrs.get("visited", together)),
        disagreement=disagreement,
        problems=problems,
    )


def _disagreement(drawn: Any, names: list[str]) -> pd.DataFrame:
    """Inclusion by chain, and how far the farthest chain is from the others in standard errors.

    The error is that of the common share at each chain's own effective draws (where an indicator
    never moves: at the least of the others'), with half a visit added so that it is never 0.
    """
    chains, draws, _ = drawn.shape
    share = drawn.mean(axis=1)
    smooth = (drawn.sum(axis=(0, 1)) + 0.5) / (chains * draws + 1)
    ess = np.array([effective_draws(chain[None].astype(float)) for chain in drawn])
    least = np.min(np.where(np.isnan(ess), draws, ess), axis=0)
    ess = np.clip(np.where(np.isnan(ess), least, ess), 1.0, draws)
    variance = smooth * (1 - smooth) / ess
    worst = np.zeros(len(names))
    for c in range(chains if chains > 1 else 0):
        others = np.delete(np.arange(chains), c)
        error = np.sqrt(variance[c] + variance[others].sum(axis=0) / len(others) ** 2)
        worst = np.maximum(worst, np.abs(share[c] - share[others].mean(axis=0)) / error)
    columns = {"least": share.min(axis=0), "largest": share.max(axis=0), "errors": worst}
    return pd.DataFrame(columns, index=pd.Index(names, name="feature"))


def _problems(table: pd.DataFrame, disagreement: pd.DataFrame, chains: int) -> tuple[str, ...]:
    if chains < 2:
        return ("one chain only: nothing to compare it with, use chains >= 2",)
    problems = []
    often = table["rhat"].dropna()
    seldom = disagreement.index[disagreement["largest"] < 0.01]
    often = often.drop(index=[name for name in seldom if name in often.index])
    if len(often) and often.max() > RHAT_MAX:
        problems.append(
            f"R-hat {often.max():.4g} of {often.idxmax()} is not at most {RHAT_MAX}: the chains "
            "disagree, raise sweeps"
        )
    worst = int(np.argmax(disagreement["errors"].to_numpy()))
    row = disagreement.iloc[worst]
    if row["errors"] > LIMIT:
        problems.append(
            f"the chains disagree about {disagreement.index[worst]}: its inclusion is "
            f"{row['least']:.3g} in one and {row['largest']:.3g} in another, "
            f"{row['errors']:.1f} standard errors apart"
        )
    return tuple(problems)


def _jumps(tree: xr.DataTree) -> tuple[tuple[pd.DataFrame, pd.Series], Any]:
    stats = group_variables(tree, "sample_stats")
    if "accepted" not in stats:
        return (pd.DataFrame(), pd.Series(dtype=float)), None
    tried, made = stats["tried"].sum("chain"), stats["accepted"].sum("chain")
    share = (made / tried.where(tried > 0)).transpose("move", "size")
    overall = (made.sum("size") / tried.sum("size")).to_series()
    return (share.to_dataframe("share")["share"].unstack("size"), overall), stats["accepted"]


def plot_inclusion(tree: xr.DataTree) -> Any:
    """Draw the inclusion of the most probable inputs, and which of them replace each other.

    Returns
    -------
    array of two matplotlib Axes
        Left: probabilities with two Monte Carlo errors (Rao-Blackwellised where there are such).
        Right: the correlation of each pair of indicators; blue = seldom together.
    """
    import matplotlib.pyplot as plt

    table = inclusion(tree)
    best = table["rao_blackwell"].fillna(table["counted"])
    error = table["mcse_rao_blackwell"].fillna(table["mcse"]).fillna(0.0)
    shown = best.sort_values(ascending=False, kind="stable").index[:MOST_SHOWN]
    joint = joint_inclusion(tree).loc[shown, shown].to_numpy()
    p = np.diag(joint)
    sd = np.sqrt(np.maximum(p * (1 - p), 1e-12))
    correlation = (joint - np.outer(p, p)) / np.outer(sd, sd)
    np.fill_diagonal(correlation, np.nan)
    place = np.arange(len(shown))
    size = (9.0, 0.25 * len(shown) + 1.6)
    figure, axes = plt.subplots(1, 2, width_ratios=[1, 1.1], figsize=size, layout="constrained")
    left, right = axes
    left.barh(place, best[shown], xerr=2 * error[shown], color="0.6", ecolor="0.1")
    left.set_yticks(place, list(shown), fontsize=8)
    left.invert_yaxis()
    left.set_xlim(0, 1.02)
    left.set_title("probability of inclusion", fontsize=9, loc="left")
    left.spines[["top", "right"]].set_visible(False)
    image = right.imshow(correlation, cmap="RdBu_r", vmin=-1, vmax=1)
    right.set_xticks(place, list(shown), fontsize=7, rotation=90)
    right.set_yticks(place, list(shown), fontsize=7)
    right.set_title("pairs: correlation of the indicators", fontsize=9, loc="left")
    figure.colorbar(image, ax=right, shrink=0.8)
    return axes
