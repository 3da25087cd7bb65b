"""The part "Relevance of the inputs" of a report: relevance of the inputs by each method.

It adapts to the model: inputs with weights, with P(included), with kappas or scales; the vectors of
a relevance vector machine where nothing is said of inputs; samples and features of a machine that
ranks both. What does not apply is left out; what should apply and fails says so in its own place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from ardvark.diagnostics.plots.relevance import by_mean_rank, draw_relevance, figure_size
from ardvark.diagnostics.plots.report import INK, STYLE, look
from ardvark.diagnostics.relevance.compare import relevance_table
from ardvark.diagnostics.relevance.groups import correlated_groups, group_relevance, groupable
from ardvark.diagnostics.relevance.projection import project
from ardvark.diagnostics.relevance.ranks import agreement_table
from ardvark.diagnostics.relevance.relevance import relevance
from ardvark.diagnostics.relevance.subsets import subset_sizes, subsets
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.words import as_sentences, count, listed, mean_and_sd, number, records
from ardvark.errors import UnsupportedPair

__all__ = ["relevance_figure", "relevance_part"]

RESAMPLES = 100  # of the batches, for the errors of ranks and taus
SHOWN_ERROR = 5e-4  # of a probability with three decimals
TOP = 5  # inputs whose overlap is reported
MOST_SUBSETS = 10
MOST_ROWS = 60  # of the table; all numbers are in the JSON file
MOST_GROUPED = 1500  # inputs whose correlations are looked at
MOST_COLUMNS, PROJECTED = 12, 100  # of a projection: columns of its path, draws
NOUNS = {"features": "input", "weights": "weight", "samples": "sample"}
ACCOUNTS = {"inclusion": "P(included)", "kappa": "kappa", "scale": "scale"}


def relevance_part(case: Case) -> dict[str, Any]:
    """Collect the numbers of the part; see the template for how they are shown."""
    rng = np.random.default_rng(0)
    table = relevance_table(case.relevances, rng, RESAMPLES)
    rows = str(table.attrs["rows"])
    methods = list(dict.fromkeys(table.columns.get_level_values(0)))
    leader = str(case.reference if case.reference in methods else methods[0])
    first = min(TOP, max(1, len(table) // 2))  # all of few inputs are shared by any two methods
    agreement = agreement_table(case.relevances, first, rng, RESAMPLES)
    order = list(table[leader]["rank"].sort_values(kind="stable").index)
    part: dict[str, Any] = {
        "level": "",
        "rows": rows,
        "noun": NOUNS[rows],
        "leader": leader,
        "left_out": table.attrs["left_out"],
        "features": [str(name) for name in order],
        "intervals": {n: records(f.rename_axis("weight")) for n, f in case.summaries.items()},
        "relevance": {
            name: {str(i): row.to_dict() for i, row in table[name].dropna(how="all").iterrows()}
            for name in methods
        },
        "shown": {name: _cells(table[name].loc[order[:MOST_ROWS]]) for name in methods},
        "agreement": records(agreement),
        "subsets": _attempt(_subsets, case),
        "groups": _attempt(_groups, case),
        "samples": _attempt(_samples, case),
        "projection": _attempt(lambda case: _projection(case, leader), case),
    }
    lead, *said = _sentences(case, part, agreement, table)
    return part | as_sentences(lead, said)


def _attempt(make: Callable[[Case], Any], case: Case) -> Any:
    """Make one block of the part; a failure is reported in its place, the other blocks are made."""
    try:
        return make(case)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def _cells(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Write the account that a method gives of each input, and its relevance with the rank."""
    account = next((c for c in ACCOUNTS if c in table), "weight")
    if account == "inclusion" and "inclusion_mcse" not in table:
        account = "weight"  # kept or not: the weight shows it too
    found = {}
    for name, row in table.iterrows():
        if pd.isna(row["relevance"]):
            continue
        if account != "weight":
            text = number(float(row[account]), 3)
            if account == "inclusion":
                text = f"{row['inclusion']:.3f}"
                if row["inclusion_mcse"] >= SHOWN_ERROR:
                    text = mean_and_sd(float(row["inclusion"]), float(row["inclusion_mcse"]))
        elif row["sd"] == 0 and row["mean"] == 0:
            text = "switched off"
        else:
            text = mean_and_sd(float(row["mean"]), float(row["sd"]))
        rank = f"{row['rank']:.0f}" if row["relevance"] > 0 else "–"  # off: its rank is a tie
        if row["rank_error"] >= 0.5:
            rank += f" ± {row['rank_error']:.0f}"
        found[str(name)] = {"account": text, "relevance": f"{row['relevance']:.2f}", "rank": rank}
    return {"head": {"account": ACCOUNTS.get(account, "mean ± sd")}, **found}


def _sentences(
    case: Case, part: dict[str, Any], agreement: pd.DataFrame, table: pd.DataFrame
) -> list[str]:
    noun, leader = part["noun"], part["leader"]
    own = part["relevance"][leader]
    best = [name for name in part["features"][:3] if own[name]["relevance"] > 0]
    words = {0: f"no {noun} is relevant", 1: f"the one relevant {noun} is {listed(best)}"}
    said = [
        f"Under {leader} {words.get(len(best), f'the most relevant {noun}s are {listed(best)}')}."
    ]
    for row in agreement.to_dict("records"):
        if leader not in (row["first"], row["second"]):
            continue
        name = row["second"] if row["first"] == leader else row["first"]
        first = min(row["k"], sum(values["relevance"] > 0 for values in own.values()))
        text = f"{name} shares {round(row['overlap'] * row['k'])} of the first {first}"
        if pd.notna(row["tau"]):
            text += f" (Kendall tau {row['tau']:.2f})"
        frame = table[name]
        if "mean" in frame and "inclusion_mcse" not in frame:
            off = int(((frame["mean"] == 0) & (frame["sd"] == 0)).sum())
            text += f" and switches {off} of {frame['rank'].notna().sum()} off" if off else ""
        said.append(text + ".")
    if part["left_out"]:
        said.append(f"{listed(part['left_out'])}: weights of rows: no relevance of inputs.")
    groups = part["groups"].get("groups", [])
    if groups:
        said.append(f"{count(len(groups), 'group')} of correlated inputs.".capitalize())
    return said


# ---------------------------------------------------------------------- subsets, groups, samples


def _subsets(case: Case) -> dict[str, Any]:
    """Sizes and the most probable subsets, of every fit that has them."""
    found = {}
    for name, tree in case.trees.items():
        if "included" in tree["posterior"].data_vars:
            top = subsets(tree).head(MOST_SUBSETS)
            found[name] = {
                "sizes": records(subset_sizes(tree)),
                "top": records(top.assign(features=top["features"].map(list))),
                "covered": float(top["probability"].sum()),
            }
    return found


def _groups(case: Case) -> dict[str, Any]:
    """Correlated inputs, and the relevance of each group by method."""
    if case.fitted_data is None:
        return {"groups": [], "methods": {}}
    X, _, _, names = case.fitted_data
    if len(names) > MOST_GROUPED:
        why = f"{len(names)} inputs are too many to look at all pairs: use correlated_groups"
        return {"groups": [], "methods": {}, "why": why}
    groups = correlated_groups(pd.DataFrame(X, columns=list(names)))
    by_method = {}
    for name in case.with_relevance:
        tree = case.trees[name]
        known = set(groupable(tree))
        if len(groups) and all(set(features) <= known for features in groups["features"]):
            by_method[name] = (
                group_relevance(tree, groups).drop(columns="features").to_dict("records")
            )
    listing = groups.assign(features=groups["features"].map(list)).to_dict("records")
    return {"groups": listing, "methods": by_method}


def _samples(case: Case) -> dict[str, Any]:
    """The samples that a sample-feature machine keeps, the most relevant first."""
    found = {}
    for name, tree in case.trees.items():
        if "feature_term" in tree["posterior"].dims:
            table = relevance(tree, of="samples").sort_values("rank")
            top = table[table["relevance"] > 0].head(MOST_SUBSETS)
            found[name] = {
                "kept": int((table["inclusion"] > 0).sum()),
                "all": len(table),
                "top": records(top[["mean", "sd", "relevance"]].rename_axis("sample")),
            }
    return found


def _projection(case: Case, leader: str) -> dict[str, Any]:
    """How few columns predict as the leader does, where its predictor is linear in its weights."""
    if case.model is None:
        return {"why": "no model was given"}
    try:
        found = project(case.trees[leader], case.model, most=MOST_COLUMNS, draws=PROJECTED)
    except UnsupportedPair as error:
        return {"why": str(error)}
    return {
        "sentence": found.sentence(),
        "suggested": found.suggested,
        "columns": list(found.columns),
        "reference": leader,
        "path": records(found.path.round({"difference": 6, "difference_se": 6, "divergence": 9})),
    }


# ---------------------------------------------------------------------------------------- figure


def relevance_figure(case: Case, most: int) -> Figure:
    """Relevances and ranks in the page's own colours, methods in the order of the other figures."""
    table = relevance_table(case.relevances, np.random.default_rng(0), 1)
    known = set(table.columns.get_level_values(0))
    looks = {name: look(i) for i, name in enumerate(case.summaries) if name in known}
    shown = by_mean_rank(table)[:most]
    with rc_context(STYLE):
        figure = Figure(figsize=figure_size(len(shown), len(looks)))
        axes = figure.subplots(1, 2, width_ratios=(2.2, 1.0))
        draw_relevance(axes, table, shown, looks, INK)
        figure.tight_layout()
    return figure
