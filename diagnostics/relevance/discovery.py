"""Which inputs a fit has selected, and how right that is where the truth is known.

A rule turns a fit into a set of inputs. Without one the fit's own is taken:

| the fit | its inputs |
|---|---|
| has P(included), or has pruned | those above 1/2: the median probability subset, what was kept |
| has weights that only shrink (NUTS, `VB(prune=None)`) | two posterior sds or more from zero |
| has shares (kappa, eta) | more than an equal share, 1/d |

Against a truth, with S selected, R relevant, T = |S and R|: false discovery (|S| - T) / |S| (0 if
nothing is selected), power T / |R|, and the AUC, the probability that a relevant input is ranked
above an irrelevant one (ties count half), which needs no rule. What a fit itself expects of its
false discoveries, the mean of 1 - P(included) over S, stands beside what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.relevance.relevance import relevance
from ardvark.diagnostics.relevance.subsets import inclusion
from ardvark.diagnostics.words import listed
from ardvark.errors import InputError
from ardvark.inference.arguments import check_trees

__all__ = ["Rule", "discoveries", "relevant_names", "selected"]

type Rule = int | float | Callable[[pd.DataFrame], Any] | None

TWO_SDS = 2 / np.sqrt(5)  # |mean| / sqrt(mean² + sd²) at |mean| = 2 sd


def selected(tree: xr.DataTree, rule: Rule = None) -> pd.Series[bool]:
    """Which inputs a fit selects.

    Parameters
    ----------
    rule
        None: the fit's own, see the module. An integer k: the first k. A number: a relevance above
        it. A function of the table of ``relevance``: what it says, True or False for each row.

    Returns
    -------
    Series of booleans, index = input
    """
    table = relevance(tree)
    if callable(rule):
        chosen = np.asarray(rule(table), dtype=bool)
        if chosen.shape != (len(table),):
            raise InputError(
                f"rule must give one truth value for each of {len(table)} inputs, it gave shape "
                f"{chosen.shape}."
            )
    elif rule is None:
        chosen = _own_rule(tree, table)
    elif isinstance(rule, bool) or not isinstance(rule, int | float):
        raise InputError(f"rule must be a number of inputs, a relevance or a function, got {rule}.")
    elif isinstance(rule, int):
        if rule < 0:
            raise InputError(f"rule={rule}: a number of inputs cannot be negative.")
        chosen = (table["rank"] <= rule).to_numpy()
    else:
        chosen = (table["relevance"] > rule).to_numpy()
    return pd.Series(chosen, index=table.index, name="selected", dtype=bool)


def _own_rule(tree: xr.DataTree, table: pd.DataFrame) -> Any:
    if "inclusion" not in table:
        values = table["relevance"].to_numpy()
        return values > values.sum() / len(values)
    prunes = tree.attrs.get("hyper") in ("evidence", "predictive")  # though it may have kept all
    if prunes or "included" in tree["posterior"].data_vars or (table["inclusion"] < 1).any():
        return _chances(tree, table) > 0.5
    return table["relevance"].to_numpy() >= TWO_SDS


def _chances(tree: xr.DataTree, table: pd.DataFrame) -> Any:
    """P(included), Rao-Blackwellised where there is such."""
    if "included" in tree["posterior"].data_vars:
        better = inclusion(tree)["rao_blackwell"].reindex(table.index)
        return better.fillna(table["inclusion"]).to_numpy()
    return table["inclusion"].to_numpy()


def relevant_names(truth: Any, names: list[str]) -> set[str]:
    """Names of the relevant inputs: of a Dataset with a truth, of names or of column numbers."""
    if hasattr(truth, "truth"):
        if "relevant" not in truth.truth:
            raise InputError(f"{truth!r} knows no truth: give the names of the relevant inputs.")
        given, names = truth.truth["relevant"], [str(name) for name in truth.feature_names]
    else:
        given = truth
    found = set()
    for item in np.atleast_1d(np.asarray(given)).tolist():
        if isinstance(item, str) and item in names:
            found.add(item)
        elif isinstance(item, int) and 0 <= item < len(names):
            found.add(names[item])
        else:
            raise InputError(
                f"truth names {item!r}, which is none of the {len(names)} inputs: "
                f"{listed(names, 9)}."
            )
    return found


def discoveries(trees: Mapping[str, xr.DataTree], truth: Any, *, rule: Rule = None) -> pd.DataFrame:
    """Count right and false discoveries of each fit against a known truth.

    Parameters
    ----------
    truth
        A Dataset of a simulator (its ``truth["relevant"]``), or names or column numbers of the
        inputs that are relevant.
    rule
        As in ``selected``.

    Returns
    -------
    DataFrame, one row per fit: ``selected``, ``right``, ``false``, ``missed``, ``false_discovery``,
    ``expected_false_discovery`` (the fit's own estimate, missing without probabilities), ``power``,
    ``auc`` and ``first_right``, how many of the first |R| ranks are relevant as a share.
    """
    check_trees(trees)
    rows = {name: _against_truth(tree, truth, rule) for name, tree in trees.items()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(index="name")


def _against_truth(tree: xr.DataTree, truth: Any, rule: Rule) -> dict[str, Any]:
    from scipy.stats import rankdata

    table = relevance(tree)
    names = [str(name) for name in table.index]
    wanted = relevant_names(truth, names)
    if not wanted <= set(names):
        raise InputError(
            f"truth names {sorted(wanted - set(names))[0]!r}, on which this fit has no word: its "
            f"rows are {', '.join(names[:3])}, ..."
        )
    on = selected(tree, rule).to_numpy()
    relevant = np.array([name in wanted for name in names])
    right, count, size = int((on & relevant).sum()), int(on.sum()), len(wanted)
    ranks, others = rankdata(table["relevance"]), len(names) - size
    auc = (ranks[relevant].sum() - size * (size + 1) / 2) / (size * others or np.nan)
    probable = "included" in tree["posterior"].data_vars and count
    first = (table["rank"].to_numpy() <= size) & relevant
    return {
        "selected": count,
        "right": right,
        "false": count - right,
        "missed": size - right,
        "false_discovery": (count - right) / max(count, 1),
        "expected_false_discovery": float(np.mean(1 - _chances(tree, table)[on]))
        if probable
        else np.nan,
        "power": right / size if size else np.nan,
        "auc": auc,
        "first_right": first.sum() / size if size else np.nan,
    }
