"""One self-contained HTML page that holds the answers of several methods against a reference.

    trees ── compare, agreement, relevance ──> parts (plain numbers) ──> templates ──> page
                                                  └──> report.json

A part is a function of the `Case`: a dictionary with one computed `sentence`, a `level` and the
numbers that its template shows. A figure or a part that fails becomes a visible note: an hour of
sampling is not lost to a plot. Like is compared with like: the error of an approximation comes
from a reference at the same hyperparameters; the price of fixing these is another table.
"""

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import xarray as xr

from ardvark.diagnostics.calibration.scores import check_test
from ardvark.diagnostics.compare.reference import choose_reference
from ardvark.diagnostics.compare.relations import share_weights
from ardvark.diagnostics.reading import installed
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.describe import describe_data, describe_model
from ardvark.diagnostics.report.findings import data_findings, separation_words
from ardvark.diagnostics.report.interactive.page import (
    beside,
    render_interactive,
    require_plotly,
)
from ardvark.diagnostics.report.page import Part, check_target, render, write
from ardvark.diagnostics.report.parts.calibration import calibration_part
from ardvark.diagnostics.report.parts.closeness import closeness_part
from ardvark.diagnostics.report.parts.convergence import convergence_part
from ardvark.diagnostics.report.parts.evidence import evidence_part
from ardvark.diagnostics.report.parts.loo import loo_part
from ardvark.diagnostics.report.parts.predictions import predictions_part
from ardvark.diagnostics.report.parts.relevance import relevance_part
from ardvark.diagnostics.report.parts.sensitivity import sensitivity_part
from ardvark.diagnostics.report.parts.verdict import verdict_part
from ardvark.diagnostics.words import as_sentences, count, duration, plain, records
from ardvark.inference.arguments import check_model, check_trees
from ardvark.inference.pymc_models.fingerprint import require_data, require_model, require_same_data
from ardvark.models.checks import as_flag

__all__ = ["report"]

EMBED_LIMIT = 300_000  # characters of JSON inside the page; report.json has all in any case


def report(
    trees: Mapping[str, xr.DataTree],
    path: str | os.PathLike[str] = "report.html",
    *,
    model: Any = None,
    data: Any = None,
    reference: str | None = None,
    command: str | None = None,
    test: Any = None,
    left_out: Mapping[str, str] | None = None,
    taddaa: bool = False,
    interactive: bool = False,
) -> Path:
    """Write an HTML file that holds the answers against a reference, and its numbers as JSON.

    Parameters
    ----------
    trees
        Results of ``fit`` by name.
    path
        The HTML file; the JSON file has the same name and the suffix ``.json``.
    model, data
        The `pm.Model` and the `Dataset` that were fitted, for the section on data and model.
    reference
        Name of the tree to trust; by default the exact posterior or NUTS, with the
        hyperparameters integrated out.
    command
        The command that gives this report again.
    test
        Rows that were not fitted, (X, t) or a `Dataset`, to score predictions on; without them
        every row is left out in turn.
    left_out
        Methods that do not fit this model, each with the reason: the page says so.
    taddaa
        Also run short chains from the draws of each approximation (`taddaa`); needs `model`.
    interactive
        Also write a second page, ``report.interactive.html``, in which weights can be chosen and
        looked at under every method; needs the extra ``ardvark[interactive]``.

    Returns
    -------
    Path
        The HTML file of the static report.
    """
    target = Path(path)
    check_trees(trees)
    check_target(target)
    if as_flag(interactive, "interactive"):
        require_plotly()
        check_target(beside(target))
    as_flag(taddaa, "taddaa")
    require_same_data(trees)
    if model is not None:
        model = check_model(model)
        require_model(model, trees, data=True)
        if test is not None:
            check_test(test, model)
    if data is not None:
        require_data(data, trees)
    case = Case(
        share_weights(trees), choose_reference(trees, reference), model, data, command, test, taddaa
    )
    parts = {name: _attempt(make, case) for name, make in PARTS.items()}
    header = _header(case)
    if left_out:
        header["Left out"] = "; ".join(f"{name} ({why})" for name, why in left_out.items())
    numbers = plain({"header": header, **parts})
    text = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False)
    embedded = text if len(text) < EMBED_LIMIT else f"Too long for a page: see {target.stem}.json."
    files = {target: render(case, header, parts, embedded), target.with_suffix(".json"): text}
    if interactive:
        files[beside(target)] = render_interactive(case, header, parts, target.name)
    write(files)
    return target


def _attempt(make: Callable[[Case], Part], case: Case) -> Part:
    """Make a part, or one with the reason why it could not be made."""
    try:
        return make(case)
    except Exception as error:
        reason = f"This part could not be made. {type(error).__name__}: {error}"
        return {"failed": True, "sentence": reason, "level": "bad"}


# ---------------------------------------------------------------------------------------- the parts


def _header(case: Case) -> dict[str, str]:
    facts = list(case.facts.values())
    times = [f"{name} {duration(f['seconds'])}" for name, f in case.facts.items()]
    return {
        "Data set": str(getattr(case.data, "name", None) or "not named"),
        "Model": facts[0]["model"],
        "Methods": ", ".join(case.trees),
        "Reference": case.reference or "none",
        "Seed": ", ".join(sorted({str(f["random_seed"]) for f in facts})),
        "Date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Wall time": ", ".join(times),
        "Versions": ", ".join(f"{p} {installed(p)}" for p in ("ardvark", "pymc", "arviz")),
    }


def _data(case: Case) -> Part:
    facts = describe_data(*case.fitted_data) if case.fitted_data else {}
    model = describe_model(case.model) if case.model is not None else None
    name = getattr(case.data, "name", None) or "The data set"
    sentence = f"{name} was not given and is not in the trees: it is not described."
    if facts:
        sentence = f"{name} has {facts['rows']} rows and {facts['columns']} columns"
        balance = [f"{n} of class {label}" for label, n in facts.get("classes", {}).items()]
        sentence = "; ".join([sentence, *balance, *separation_words(facts)]) + "."
    level = "warn" if any(f.level == "warn" for f, _ in data_findings(facts)) else ""
    origin = {key: str(getattr(case.data, key, "") or "") for key in ("source", "licence")}
    return {"sentence": sentence, "level": level, "facts": facts, "model": model, **origin}


def _reference(case: Case) -> Part:
    if not case.references:
        sentence = (
            "There is no reference among the trees: nothing can be compared with Markov chains."
        )
        return {"sentence": f"{sentence} Add NUTS to the methods.", "level": "warn", "chains": []}
    chains = []
    for name in case.references:
        quality = case.quality[name]
        chains.append(
            {
                "name": name,
                **{
                    key: case.facts[name][key]
                    for key in ("converged", "chains", "draws", "most_draws")
                },
                **quality.as_dict(),
                "worst": records(case.worst[name]) if name in case.worst else [],
            }
        )
    sentences = [_own_words(case, name) for name in case.untrusted or case.references]
    answer, level = ("No.", "bad") if case.untrusted else ("Yes.", "good")
    return {**as_sentences(answer, sentences), "level": level, "chains": chains}


def _own_words(case: Case, name: str) -> str:
    """The findings about a reference, and how many draws it took to pass its checks."""
    draws, most = (case.facts[name][key] for key in ("draws", "most_draws"))
    length = f" It stopped at {draws} of at most {most} draws a chain."
    return f"{name}: {' '.join(case.quality[name].sentences)}{length if most else ''}"


def _reproducibility(case: Case) -> Part:
    seeds = sorted({str(facts["random_seed"]) for facts in case.facts.values()})
    return {
        "sentence": f"{count(len(case.trees), 'run')} with seed {', '.join(seeds)}: the same seed,"
        " versions and machine give the same numbers.",
        "level": "",
        "runs": case.facts,
        "data_fingerprint": case.data_fingerprint,
        "command": case.command,
    }


PARTS: dict[str, Callable[[Case], Part]] = {
    "verdict": verdict_part,
    "data": _data,
    "reference": _reference,
    "relevance": relevance_part,
    "closeness": closeness_part,
    "convergence": convergence_part,
    "predictions": predictions_part,
    "loo": loo_part,
    "evidence": evidence_part,
    "sensitivity": sensitivity_part,
    "calibration": calibration_part,
    "reproducibility": _reproducibility,
}
