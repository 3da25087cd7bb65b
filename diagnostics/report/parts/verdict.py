"""The part "Verdict" of a report: one row per method, its error and its price side by side.

The error is against a reference at the same hyperparameters, the price against one that integrates
them out. A reference that fails its own checks is not used: its column says so.
"""

import math
from typing import Any

from ardvark.diagnostics.compare.compare import relations_in_words
from ardvark.diagnostics.compare.verdict import verdict
from ardvark.diagnostics.relevance.discovery import selected
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.findings import findings
from ardvark.diagnostics.words import as_sentences, count

__all__ = ["errors_listed", "verdict_part"]

SEVERITY = ("bad", "warn", "info")


def verdict_part(case: Case) -> dict[str, Any]:
    """Collect the numbers of the part."""
    found = sorted(findings(case), key=lambda pair: SEVERITY.index(pair[0].level))
    failed, warned = (sum(f.level == kind for f, _ in found) for kind in ("bad", "warn"))
    counts = f"{count(failed, 'check').capitalize()} failed; {count(warned, 'warning')}."
    return {
        **as_sentences(counts, errors_listed(case)),
        "level": "bad" if failed else "warn" if warned else "good",
        "reference": case.reference,
        "methods": [_method(case, name) for name in case.trees],
        "prices": [_price(case, name) for name in case.trees if name in case.price],
        "findings": [finding._asdict() | {"part": part} for finding, part in found],
    }


def errors_listed(case: Case) -> list[str]:
    """How far each method is from its reference, in words, if that passes its own checks."""
    sentences = [
        f"{name} fails its own checks as a reference: {case.trouble[name]}."
        for name in case.untrusted
    ]
    if not case.like:
        sentences.append("No method has a reference at the same hyperparameters.")
    sound = [pair for pair in case.like.items() if case.sound(pair[1])]
    return [*sentences, *(verdict(case.rows[pair]).text for pair in sound)]


def _method(case: Case, name: str) -> dict[str, Any]:
    """Collect the entries of the table for one method; `against` None = it has no reference."""
    like, price = case.like.get(name), case.price.get(name)
    row = case.rows[name, like] if like else case.own(name)
    other = case.rows[name, price] if price else None
    nearest = like or price
    held = case.rows[name, nearest] if nearest else None
    quality = case.quality[name]
    return {
        "name": name,
        **{key: case.facts[name][key] for key in ("hyper", "converged", "seconds")},
        **quality.as_dict(),
        "against": like,
        "against_is_sound": like is not None and case.sound(like),
        "is_reference": name in case.references,
        "worst_mean_error": row["worst_mean_error"] if like else math.nan,
        "worst_sd_ratio": row["worst_sd_ratio"] if like else math.nan,
        "price_against": price,
        "price_is_sound": price is not None and case.sound(price),
        "price_mean": math.nan if other is None else other["worst_mean_error"],
        "price_sd_ratio": math.nan if other is None else other["worst_sd_ratio"],
        "theta_mean_error": row["theta_mean_error"] if like else math.nan,
        "theta_sd_ratio": row["theta_sd_ratio"] if like else math.nan,
        "khat": row["khat"],
        "khat_se": row["khat_se"],
        "log_evidence": row["log_evidence"],
        "elpd_difference": math.nan if held is None else held["elpd_difference"],
        "elpd_difference_se": math.nan if held is None else held["elpd_difference_se"],
        "speed_up": math.nan if held is None else held["speed_up"],
        "features": _features(case, name),
        "verdict": relations_in_words(case, name),
    }


def _price(case: Case, name: str) -> dict[str, Any]:
    reference = case.price[name]
    figures = {str(key): value for key, value in case.rows[name, reference].items()}
    return {"name": name, "reference_is_sound": case.sound(reference), **figures}


def _features(case: Case, name: str) -> dict[str, Any] | None:
    """Inputs that only a method or only its reference selects; None if unknown."""
    reference = case.price.get(name) or case.like.get(name)
    if reference is None or case.users_own:  # weights of a model of one's own are no inputs
        return None
    try:
        ours, theirs = selected(case.trees[name]), selected(case.trees[reference])
    except Exception:  # a model that ranks no inputs: the part on relevance has the reason
        return None
    mine, known = ({str(i) for i in s.index[s]} for s in (ours, theirs))
    return {
        "against": reference,
        "shared": len(mine & known),
        "of": len(mine | known),
        "in_reference": len(known),
        "added": sorted(mine - known),
        "missing": sorted(known - mine),
    }
