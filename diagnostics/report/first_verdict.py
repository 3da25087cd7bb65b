"""A first verdict on an answer as soon as it is there, before any report: a level and a few words.

Own checks first (converged, R-hat and effective sizes of chains, k-hat of an approximation), then
the largest error against a reference at the same hyperparameters, or how far fixing them moves a
mean.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from ardvark.diagnostics.compare.agreement import agreement
from ardvark.diagnostics.compare.psis import khat
from ardvark.diagnostics.compare.reference import (
    APPROXIMATION_ERROR,
    PRICE_OF_FIXING,
    is_reference,
    reference_quality,
    relation,
    same_hyperparameters,
)
from ardvark.diagnostics.compare.relations import share_weights
from ardvark.diagnostics.compare.verdict import khat_level, mean_level, sd_level
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
        shape = khat(tree)
        if shape != shape:
            return "good", "converged"
        words = "exact" if shape == float("-inf") else number(float(shape), 2)
        return khat_level(shape), f"converged, k-hat {words}"
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
        if not reference.attrs.get("converged", False):  # a difference from it is no error
            continue
        kind = relation(tree, reference, same_hyperparameters(tree, reference))
        weights = agreement(tree, reference).query("role == 'weight'")
        if not len(weights) or kind not in (APPROXIMATION_ERROR, PRICE_OF_FIXING):
            continue
        shift = float(weights["mean_error"].abs().max())
        log_ratio = weights["log_sd_ratio"].to_numpy()
        ratio = float(np.exp(log_ratio[np.argmax(np.abs(log_ratio))]))
        if kind == APPROXIMATION_ERROR:
            words = f"worst mean {number(shift, 2)} sd off {other}, worst sd ratio"
            level = worst_level([mean_level(shift), sd_level(ratio)])
            return [(level, f"{words} {number(ratio, 2)}")]
        prices.append(("", f"fixing θ moves a mean by {number(shift, 2)} sd against {other}"))
    return prices[:1]
