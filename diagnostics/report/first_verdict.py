"""A first verdict on an answer as soon as it is there, before any report: a level and a few words.

Own checks first (converged, R-hat and effective sizes of chains, k-hat of an approximation), then
the largest error against a reference at the same hyperparameters, or how far fixing them moves a
mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from ardvark.diagnostics.compare.psis import khat_and_error
from ardvark.diagnostics.compare.reference import (
    APPROXIMATION_ERROR,
    PRICE_OF_FIXING,
    is_reference,
    reference_quality,
    trouble,
)
from ardvark.diagnostics.compare.relations import all_figures, share_weights
from ardvark.diagnostics.compare.verdict import khat_in_words, khat_level, mean_level, sd_level
from ardvark.diagnostics.finding import worst_level
from ardvark.diagnostics.words import number

__all__ = ["first_verdict"]

type Verdict = tuple[str, str]  # level, words


def first_verdict(name: str, trees: Mapping[str, xr.DataTree]) -> Verdict:
    """Judge one of several answers by itself and by the references among the others."""
    try:
        own = _own(trees[name])
        found = [own, *_against(name, share_weights(trees))]
    except Exception as error:  # a fit is not lost to its verdict
        return "warn", f"no verdict: {type(error).__name__}: {error}"
    return worst_level(level for level, _ in found), ", ".join(words for _, words in found)


def _own(tree: xr.DataTree) -> Verdict:
    if not tree.attrs.get("converged", False):
        return "bad", str(tree.attrs.get("problems") or "not converged")
    quality = reference_quality(tree)
    if quality.sampling_kind == "iid":
        shape = khat_and_error(tree)
        if shape[0] != shape[0]:
            return "good", "converged"
        return khat_level(*shape), f"converged, k-hat {khat_in_words(*shape)}"
    if not quality.ok:
        return "bad", next(found.text for found in quality.findings if found.level == "bad")
    least = min(quality.min_bulk_ess, quality.min_tail_ess)
    return "good", f"chains agree, R-hat {quality.max_rhat:.3f}, ESS {least:.0f}"


def _against(name: str, trees: Mapping[str, xr.DataTree]) -> list[Verdict]:
    """The largest error of a mean; of several references the one that says most."""
    tree, prices = trees[name], []
    for other, reference in trees.items():
        if other == name or is_reference(tree) or not is_reference(reference):
            continue
        if trouble(reference, reference_quality(reference)):  # a difference from it is no error
            continue
        none = {name: None, other: None}
        pair = {name: tree, other: reference}
        figures: Any = all_figures(pair, [other], none, {other: ""})
        row = figures.loc[(name, other)]
        if not row["n_weights"]:
            continue
        shift, ratio = float(row["worst_mean_error"]), float(row["worst_sd_ratio"])
        theta = float(row["theta_mean_error"])
        if row["compares"] == APPROXIMATION_ERROR:
            words = f"worst mean {number(shift, 2)} sd off {other}, worst sd ratio"
            of_theta = "" if theta != theta else f", of θ {number(theta, 2)} sd off"
            levels = [mean_level(shift), sd_level(ratio)]
            levels += [mean_level(theta), sd_level(float(row["theta_sd_ratio"]))]
            return [(worst_level(levels), f"{words} {number(ratio, 2)}{of_theta}")]
        if row["compares"] == PRICE_OF_FIXING:
            prices.append(("", f"fixing θ moves a mean by {number(shift, 2)} sd against {other}"))
    return prices[:1]
