"""What to know before quoting a result: findings, each with the part of the report it is in."""

from collections.abc import Iterator, Mapping
from typing import Any

from ardvark.diagnostics.compare.verdict import (
    KHAT_LIMITS,
    khat_in_words,
    khat_level,
    khat_reaches,
    mean_level,
    sd_level,
    verdict,
)
from ardvark.diagnostics.finding import Finding
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.describe import describe_data
from ardvark.diagnostics.words import listed, number
from ardvark.inference.tree import FREE

__all__ = ["data_findings", "findings", "separation_words"]

type Located = tuple[Finding, str]  # the name of a part


def findings(case: Case) -> Iterator[Located]:
    """All problems of the answers and of the data, in the order of the trees."""
    for name in case.trees:
        yield from _own_findings(case, name)
        yield from _error_findings(case, name)
        if name in case.price and name not in case.references and case.sound(case.price[name]):
            yield from _price_findings(case, name)
    if case.fitted_data:
        yield from data_findings(describe_data(*case.fitted_data))


def _own_findings(case: Case, name: str) -> Iterator[Located]:
    quality, part = case.quality[name], "reference" if name in case.references else "closeness"
    if not case.facts[name]["converged"] and quality.ok:
        advice = "Do not use its answer: look at its settings and at the data."
        yield Finding("bad", f"{name} did not converge.", advice), part
    caution = str(case.trees[name].attrs.get("caution", ""))
    if caution:
        yield Finding("warn", f"{name}: {caution}"), part
    for found in [] if quality.ok else quality.findings:
        yield found._replace(text=f"{name}: {found.text}"), part


def _error_findings(case: Case, name: str) -> Iterator[Located]:
    if name in case.like and case.sound(case.like[name]):
        found = verdict(case.rows[name, case.like[name]])
        if found.level != "good" and case.facts[name]["converged"]:
            yield found, "closeness"
    elif name not in case.references:
        yield _no_reference(case, name), "closeness"
        khat = case.own(name)["khat"], case.own(name)["khat_se"]
        if (level := khat_level(*khat)) in ("warn", "bad"):
            high = khat_reaches(*khat, KHAT_LIMITS[1])
            advice = "Do not quote its tails or joint probabilities." if high else ""
            yield Finding(level, f"{name}: k-hat {khat_in_words(*khat)}.", advice), "closeness"


def _no_reference(case: Case, name: str) -> Finding:
    """Say that an error is not known, and which fit would tell it."""
    if (reference := case.like.get(name)) is not None:
        text = f"{name}: its reference {reference} fails its own checks, so its error is not known."
        return Finding("warn", text, f"Improve {reference}: longer chains, or another form.")
    text = f"{name} has no reference at the same hyperparameters: its error is not known."
    drawn = case.facts[name]["hyper"] in FREE
    method = "NUTS(), which draws the hyperparameters too," if drawn else "NUTS(hyper=Fixed(tree))"
    return Finding("warn", text, f"Fit {method} as well and report both.")


def _price_findings(case: Case, name: str) -> Iterator[Located]:
    row = case.rows[name, case.price[name]]
    levels = (mean_level(row["worst_mean_error"]), sd_level(row["worst_sd_ratio"]))
    if set(levels) <= {"good", ""}:
        return
    text = (
        f"{name} against {case.price[name]}: not integrating the hyperparameters out moves a mean"
        f" by {number(float(row['worst_mean_error']), 2)} sd ({row['worst_mean_error_at']}) and has"
        f" an sd ratio of {number(float(row['worst_sd_ratio']), 2)} ({row['worst_sd_ratio_at']})."
    )
    advice = f"A price, not an error. Quote {case.price[name]} where intervals matter."
    yield Finding("warn", text, advice), "closeness"


def data_findings(facts: Mapping[str, Any]) -> Iterator[Located]:
    """What in the data may trouble a fit; `facts` as `describe_data` gives them."""
    if not facts:
        return
    if facts.get("separation") in ("complete", "quasi-complete"):
        (text,) = separation_words(facts)
        advice = "Only the prior keeps the weights finite: their size depends on it."
        yield Finding("warn", f"{text[0].upper()}{text[1:]}.", advice), "data"
    if facts["constant_columns"]:
        text = f"Constant columns: {listed(facts['constant_columns'])}."
        yield Finding("warn", text, "They carry no more than the bias: remove them."), "data"
    for group in facts["duplicate_columns"][:3]:
        advice = "How relevance is split between them is arbitrary: keep one."
        yield Finding("warn", f"Equal columns: {listed(group)}.", advice), "data"
    if facts["largest_sd"] > 1e3 * facts["smallest_sd"] and not facts["constant_columns"]:
        advice = "Standardise them: one hyperprior must suit all."
        yield Finding("warn", "The columns have very different scales.", advice), "data"
    if facts["condition_number"] > 1e4:
        text = f"The columns are nearly dependent (condition {number(facts['condition_number'])})."
        advice = "Single weights are ill determined, though sums of them may be sharp."
        yield Finding("info", text, advice), "data"


def separation_words(facts: Mapping[str, Any]) -> list[str]:
    """How a hyperplane separates the classes, in words; nothing unless there are two."""
    words = {
        "none": "no hyperplane separates the classes",
        "complete": "a hyperplane separates the classes completely",
        "quasi-complete": "a hyperplane separates the classes except for rows on it",
        "not checked": "too large to check whether a hyperplane separates the classes",
    }
    return [words[facts["separation"]]] if "separation" in facts else []
