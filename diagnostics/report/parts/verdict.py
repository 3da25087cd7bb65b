"""The part "Verdict" of a report: one row per method, its error and its price side by side.

The error is against a judge at the same hyperparameters, the price against one that integrates them
out. A judge that fails its own checks judges nobody: its column says so.
"""

import math
from typing import Any

from ardvark.diagnostics.compare.side_by_side import sentence
from ardvark.diagnostics.compare.verdict import verdict
from ardvark.diagnostics.relevance.discovery import selected
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.findings import findings
from ardvark.diagnostics.words import count

__all__ = ["errors_in_words", "verdict_part"]

SEVERITY = ("bad", "warn", "info")


def verdict_part(case: Case) -> dict[str, Any]:
    """Collect the numbers of the part."""
    found = sorted(findings(case), key=lambda finding: SEVERITY.index(finding["level"]))
    failed, warned = (sum(f["level"] == kind for f in found) for kind in ("bad", "warn"))
    counts = f"{count(failed, 'check').capitalize()} failed; {count(warned, 'warning')}."
    return {
        "sentence": f"{errors_in_words(case)} {counts}",
        "level": "bad" if failed else "warn" if warned else "good",
        "reference": case.reference,
        "methods": [_method(case, name) for name in case.trees],
        "prices": [_price(case, name) for name in case.trees if name in case.price],
        "findings": found,
    }


def errors_in_words(case: Case) -> str:
    """Say how far each method is from its judge, if that passes its own checks."""
    sentences = [f"{name} fails its own checks as a reference." for name in case.untrusted]
    if not case.like:
        sentences.append("No method has a reference at the same hyperparameters.")
    sound = {name: judge for name, judge in case.like.items() if case.sound(judge)}
    return " ".join([*sentences, *(verdict(case.rows[pair])[1] for pair in sound.items())])


def _method(case: Case, name: str) -> dict[str, Any]:
    """Collect what the table says of one method; `against` None = it has no judge."""
    judge, price = case.like.get(name), case.price.get(name)
    row = case.rows[name, judge] if judge else case.own(name)
    other = case.rows[name, price] if price else None
    nearest = judge or price
    held = case.rows[name, nearest] if nearest else None
    quality = case.quality[name]
    return {
        "name": name,
        **{key: case.facts[name][key] for key in ("hyper", "converged", "seconds")},
        **{key: getattr(quality, key) for key in quality.__slots__},
        "against": judge,
        "against_is_sound": judge is not None and case.sound(judge),
        "is_judge": name in case.judges,
        "worst_mean_error": row["worst_mean_error"] if judge else math.nan,
        "worst_sd_ratio": row["worst_sd_ratio"] if judge else math.nan,
        "price_against": price,
        "price_is_sound": price is not None and case.sound(price),
        "price_mean": math.nan if other is None else other["worst_mean_error"],
        "price_sd_ratio": math.nan if other is None else other["worst_sd_ratio"],
        "khat": row["khat"],
        "log_evidence": row["log_evidence"],
        "elpd_difference": math.nan if held is None else held["elpd_difference"],
        "elpd_difference_se": math.nan if held is None else held["elpd_difference_se"],
        "speed_up": math.nan if held is None else held["speed_up"],
        "features": _features(case, name),
        "verdict": sentence(case, name),
    }


def _price(case: Case, name: str) -> dict[str, Any]:
    judge = case.price[name]
    figures = {str(key): value for key, value in case.rows[name, judge].items()}
    return {"name": name, "reference_is_sound": case.sound(judge), **figures}


def _features(case: Case, name: str) -> dict[str, Any] | None:
    """Which inputs a method selects that its judge does not, and the reverse; None if unknown."""
    judge = case.price.get(name) or case.like.get(name)
    if judge is None:
        return None
    try:
        ours, theirs = selected(case.trees[name]), selected(case.trees[judge])
    except Exception:  # a model that ranks no inputs: the part on relevance says why
        return None
    mine, judged = ({str(i) for i in s.index[s]} for s in (ours, theirs))
    return {
        "against": judge,
        "shared": len(mine & judged),
        "of": len(mine | judged),
        "judged": len(judged),
        "added": sorted(mine - judged),
        "missing": sorted(judged - mine),
    }
