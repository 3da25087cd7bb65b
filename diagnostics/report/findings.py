"""What to know before quoting a result: a finding has a level, a text, an advice and a part.

The part is the section of the report that has the numbers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ardvark.diagnostics.compare.verdict import (
    KHAT_LIMITS,
    khat_level,
    mean_level,
    sd_level,
    verdict,
)
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.describe import describe_data
from ardvark.diagnostics.words import listed, number

__all__ = ["data_findings", "findings", "separation_words"]


def findings(case: Case) -> Iterator[dict[str, str]]:
    """Everything that speaks against an answer or the data, in the order of the trees."""
    for name in case.trees:
        yield from _own_findings(case, name)
        yield from _error_findings(case, name)
        if name in case.price and name not in case.judges and case.sound(case.price[name]):
            yield from _price_findings(case, name)
    if case.fitted_data:
        yield from data_findings(describe_data(*case.fitted_data))


def _own_findings(case: Case, name: str) -> Iterator[dict[str, str]]:
    quality, part = case.quality[name], "reference" if name in case.judges else "closeness"
    if not case.facts[name]["converged"] and quality.ok:
        advice = "Do not use its answer: look at its settings and at the data."
        yield _finding("bad", f"{name} did not converge.", advice, part)
    caution = str(case.trees[name].attrs.get("caution", ""))
    if caution:
        text, _, advice = caution.partition(". ")
        yield _finding("warn", f"{name}: {text}.", advice, part)
    for sentence in [] if quality.ok else quality.sentences:
        text, _, advice = sentence.partition(". ")
        yield _finding("bad", f"{name}: {text.rstrip('.')}.", advice, part)


def _error_findings(case: Case, name: str) -> Iterator[dict[str, str]]:
    khat = case.own(name)["khat"]
    advice = "Check the weights named in the table before you quote an interval."
    if khat > KHAT_LIMITS[1]:
        advice = "Do not quote its tails or joint probabilities; quote those of the reference."
    if name in case.like and case.sound(case.like[name]):
        level, text = verdict(case.rows[name, case.like[name]])
        if level != "good" and case.facts[name]["converged"]:
            yield _finding(level, text, advice, "closeness")
    elif name not in case.judges:
        text = f"{name} has no sound reference at the same hyperparameters: its error is not known."
        remedy = "Fit NUTS(hyper=Fixed(tree)) too and report both."
        yield _finding("warn", text, remedy, "closeness")
        if khat_level(khat) in ("warn", "bad"):
            yield _finding(
                khat_level(khat), f"{name}: k-hat {number(khat, 2)}.", advice, "closeness"
            )


def _price_findings(case: Case, name: str) -> Iterator[dict[str, str]]:
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
    yield _finding("warn", text, advice, "closeness")


def data_findings(facts: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """What in the data may trouble a fit; `facts` as `describe_data` gives them."""
    if not facts:
        return
    if facts.get("separation") in ("complete", "quasi-complete"):
        (text,) = separation_words(facts)
        advice = "Only the prior keeps the weights finite: their size says little."
        yield _finding("warn", f"{text[0].upper()}{text[1:]}.", advice, "data")
    if facts["constant_columns"]:
        text = f"Constant columns: {listed(facts['constant_columns'])}."
        yield _finding("warn", text, "They carry nothing the bias does not: remove them.", "data")
    for group in facts["duplicate_columns"][:3]:
        advice = "Relevance is split between them at will: keep one."
        yield _finding("warn", f"Equal columns: {listed(group)}.", advice, "data")
    if facts["largest_sd"] > 1e3 * facts["smallest_sd"] and not facts["constant_columns"]:
        advice = "Standardise them: one hyperprior must suit all."
        yield _finding("warn", "The columns have very different scales.", advice, "data")
    if facts["condition_number"] > 1e4:
        text = f"The columns are nearly dependent (condition {number(facts['condition_number'])})."
        advice = "Single weights are ill determined, though sums of them may be sharp."
        yield _finding("info", text, advice, "data")


def separation_words(facts: Mapping[str, Any]) -> list[str]:
    """Say how a hyperplane parts the classes; nothing unless there are two."""
    words = {
        "none": "no hyperplane parts the classes",
        "complete": "a hyperplane parts the classes completely",
        "quasi-complete": "a hyperplane parts the classes but for rows that lie on it",
        "not checked": "too large to check whether a hyperplane parts the classes",
    }
    return [words[facts["separation"]]] if "separation" in facts else []


def _finding(level: str, text: str, advice: str, part: str) -> dict[str, str]:
    return {"level": level, "text": text, "advice": advice, "part": part}
