"""One self-contained HTML page that holds the answers of several methods against a reference.

    trees ── compare, agreement, relevance ──> parts (plain numbers) ──> templates ──> page
                                                  └──> report.json

A part is a function of the `Case`: a dictionary with one computed `sentence`, a `level` and the
numbers that its template shows. A figure or a part that fails becomes a visible note: an hour of
sampling is not lost to a plot. Like is held against like: the error of an approximation comes
from a reference at the same hyperparameters; the price of fixing these is another table.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics import figures
from ardvark.diagnostics.agreement import (
    KHAT_LIMITS,
    MEAN_ERROR_LIMITS,
    SD_RATIO_GOOD,
    SD_RATIO_USABLE,
    verdict,
)
from ardvark.diagnostics.describe import (
    Case,
    choose_reference,
    describe_data,
    describe_model,
    installed,
    moving_parameters,
    share_weights,
)
from ardvark.diagnostics.reference import BFMI_MIN, ESS_PER_CHAIN, RHAT_MAX
from ardvark.diagnostics.relevance import relevance
from ardvark.errors import InputError

__all__ = ["report"]

type Part = dict[str, Any]

LEVELS = ("good", "warn", "bad")
SEVERITY = ("bad", "warn", "info")
SHOWN = 40  # more rows than this are no figure any more
EMBED_LIMIT = 300_000  # characters of JSON inside the page; report.json has all in any case
TITLES = {
    "verdict": "Verdict",
    "data": "Data and model",
    "reference": "Is the reference trustworthy?",
    "weights": "Weights side by side",
    "closeness": "How close are the approximations?",
    "reproducibility": "Reproducibility",
}


def report(
    trees: Mapping[str, xr.DataTree],
    path: str | os.PathLike[str] = "report.html",
    *,
    model: Any = None,
    data: Any = None,
    reference: str | None = None,
    command: str | None = None,
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
        Name of the tree to trust; by default NUTS with the hyperparameters integrated out.
    command
        The command that gives this report again.
    """
    target = Path(path)
    _check(trees, target)
    judge = choose_reference(trees, reference)
    case = Case(share_weights(trees), judge, model, data, command)
    parts = {name: _attempt(make, case) for name, make in PARTS.items()}
    numbers = plain({"header": _header(case), **parts})
    text = json.dumps(numbers, indent=1, ensure_ascii=False, allow_nan=False)
    embedded = text if len(text) < EMBED_LIMIT else f"Too long for a page: see {target.stem}.json."
    page = _render(case, parts, embedded)
    _write({target: page, target.with_suffix(".json"): text})
    return target


def _check(trees: Any, target: Path) -> None:
    if not isinstance(trees, Mapping) or not trees:
        raise InputError("trees: expected results of fit by name, {'nuts': tree}, found none")
    for name, tree in trees.items():
        if not isinstance(tree, xr.DataTree) or "posterior" not in tree.children:
            kind = type(tree).__name__
            raise InputError(f"trees[{name!r}]: expected a tree with a posterior, found {kind}")
    if target.suffix not in (".html", ".htm"):
        raise InputError(f"path: expected a name that ends in .html, found {target.name!r}")
    if not target.absolute().parent.is_dir():
        raise InputError(f"path: there is no folder {str(target.parent)!r}")


def _attempt(make: Callable[[Case], Part], case: Case) -> Part:
    """Make a part, or one that says why it could not be made."""
    try:
        return make(case)
    except Exception as error:
        reason = f"This part could not be made. {type(error).__name__}: {error}"
        return {"failed": True, "sentence": reason, "level": "bad"}


# ------------------------------------------------------------------------------------ the parts


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


def _verdict(case: Case) -> Part:
    findings = sorted(_findings(case), key=lambda finding: SEVERITY.index(finding["level"]))
    failed, warned = (sum(f["level"] == kind for f in findings) for kind in ("bad", "warn"))
    said = _errors_in_words(case)
    counts = f"{_count(failed, 'check').capitalize()} failed; {_count(warned, 'warning')}."
    return {
        "sentence": f"{said} {counts}",
        "level": "bad" if failed else "warn" if warned else "good",
        "reference": case.reference,
        "methods": [_method(case, name) for name in case.trees],
        "prices": [
            {
                "name": n,
                "reference_is_sound": case.sound(case.price[n]),
                **case.rows[n, case.price[n]].to_dict(),
            }
            for n in case.trees
            if n in case.price
        ],
        "findings": findings,
    }


def _method(case: Case, name: str) -> Part:
    """Collect what the verdict table says of one method; `against` None = it has no judge."""
    judge = case.like.get(name)
    row = case.rows[name, judge] if judge else case.own(name)
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
        "khat": row["khat"],
        "log_evidence": row["log_evidence"],
    }


def _errors_in_words(case: Case) -> str:
    """Say how far each method is from its judge, if that passes its own checks."""
    sentences = [f"{name} fails its own checks as a reference." for name in case.untrusted]
    if not case.like:
        sentences.append("No method has a reference at the same hyperparameters.")
    sound = {name: judge for name, judge in case.like.items() if case.sound(judge)}
    return " ".join([*sentences, *(verdict(case.rows[pair])[1] for pair in sound.items())])


def _data(case: Case) -> Part:
    facts = describe_data(*case.fitted_data) if case.fitted_data else {}
    model = describe_model(case.model) if case.model is not None else None
    name = getattr(case.data, "name", None) or "The data set"
    sentence = f"{name} was not handed over and is not in the trees: nothing is said of it."
    if facts:
        sentence = f"{name} has {facts['rows']} rows and {facts['columns']} columns"
        balance = [f"{n} of class {label}" for label, n in facts.get("classes", {}).items()]
        sentence = "; ".join([sentence, *balance, *_separation_words(facts)]) + "."
    level = "warn" if any(f["level"] == "warn" for f in _data_findings(facts)) else ""
    origin = {key: str(getattr(case.data, key, "") or "") for key in ("source", "licence")}
    return {"sentence": sentence, "level": level, "facts": facts, "model": model, **origin}


def _separation_words(facts: Mapping[str, Any]) -> list[str]:
    words = {
        "none": "no hyperplane parts the classes",
        "complete": "a hyperplane parts the classes completely",
        "quasi-complete": "a hyperplane parts the classes but for rows that lie on it",
        "not checked": "too large to check whether a hyperplane parts the classes",
    }
    return [words[facts["separation"]]] if "separation" in facts else []


def _reference(case: Case) -> Part:
    if not case.judges:
        sentence = "There is no reference among the trees: nothing is held against Markov chains."
        return {"sentence": f"{sentence} Add NUTS to the methods.", "level": "warn", "chains": []}
    chains = []
    for name in case.judges:
        quality = case.quality[name]
        chains.append(
            {
                "name": name,
                **{key: case.facts[name][key] for key in ("converged", "chains", "draws")},
                **{key: getattr(quality, key) for key in quality.__slots__},
                "worst": _records(case.worst[name]) if name in case.worst else [],
            }
        )
    told = case.untrusted or case.judges
    sentences = [f"{name}: {' '.join(case.quality[name].sentences)}" for name in told]
    answer, level = ("No.", "bad") if case.untrusted else ("Yes.", "good")
    return {"sentence": " ".join([answer, *sentences]), "level": level, "chains": chains}


def _weights(case: Case) -> Part:
    leader = case.reference or next(iter(case.trees))
    tables = {name: relevance(tree) for name, tree in case.trees.items()}
    order = tables[leader].sort_values("rank").index
    best = list(order[:5])
    sentences = [f"Under {leader} the most relevant features are {listed(order[:3])}."]
    for name, frame in tables.items():
        off = int(((frame["mean"] == 0) & (frame["sd"] == 0)).sum())
        shared = len(set(best) & set(frame.sort_values("rank").index[: len(best)]))
        if name != leader:
            said = f"{name} has {shared} of the first {len(best)} in common with it"
            sentences.append(said + (f" and switches {off} of {len(frame)} off." if off else "."))
    return {
        "sentence": " ".join(sentences),
        "level": "",
        "leader": leader,
        "features": [str(feature) for feature in order],
        "intervals": {
            name: _records(frame.rename_axis("weight")) for name, frame in case.summaries.items()
        },
        "relevance": {
            name: {str(feature): row.to_dict() for feature, row in frame.iterrows()}
            for name, frame in tables.items()
        },
    }


def _closeness(case: Case) -> Part:
    levels = ["bad" if case.untrusted else "good"]
    levels += [verdict(case.rows[pair])[0] for pair in case.like.items()] or ["warn"]
    pairs = {"errors": case.like, "prices": case.price}
    return {
        "sentence": _errors_in_words(case),
        "level": max(levels, key=LEVELS.index),
        "khat": {name: float(case.own(name)["khat"]) for name in case.trees},
        **{
            kind: [
                {"name": n, "against": j, "weights": _records(case.differences[n, j])}
                for n, j in judged.items()
            ]
            for kind, judged in pairs.items()
        },
    }


def _reproducibility(case: Case) -> Part:
    seeds = sorted({str(facts["random_seed"]) for facts in case.facts.values()})
    return {
        "sentence": f"{_count(len(case.trees), 'run')} with seed {', '.join(seeds)}: the same seed,"
        " versions and machine give the same numbers.",
        "level": "",
        "runs": case.facts,
        "data_fingerprint": case.data_fingerprint,
        "command": case.command,
    }


PARTS: dict[str, Callable[[Case], Part]] = {
    "verdict": _verdict,
    "data": _data,
    "reference": _reference,
    "weights": _weights,
    "closeness": _closeness,
    "reproducibility": _reproducibility,
}


# ----------------------------------------------------------------- findings: what, what to do


def _finding(level: str, text: str, advice: str, part: str) -> dict[str, str]:
    return {"level": level, "text": text, "advice": advice, "part": part}


def _findings(case: Case) -> Iterator[dict[str, str]]:
    for name in case.trees:
        yield from _own_findings(case, name)
        yield from _error_findings(case, name)
        if name in case.price and name not in case.judges and case.sound(case.price[name]):
            yield from _price_findings(case, name)
    if case.fitted_data:
        yield from _data_findings(describe_data(*case.fitted_data))


def _own_findings(case: Case, name: str) -> Iterator[dict[str, str]]:
    quality, part = case.quality[name], "reference" if name in case.judges else "closeness"
    if not case.facts[name]["converged"] and quality.ok:
        advice = "Do not use its answer: look at its settings and at the data."
        yield _finding("bad", f"{name} did not converge.", advice, part)
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


def _data_findings(facts: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    if not facts:
        return
    if facts.get("separation") in ("complete", "quasi-complete"):
        (text,) = _separation_words(facts)
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


# -------------------------------------------------------------------------------------- the page


def _drawings(case: Case) -> dict[str, Callable[[], Any]]:
    """Give the figures of the page by name, each still to be drawn."""
    traced = [name for name in case.judges if name in (case.reference, *case.untrusted)]
    chains = [name for name in traced if name in case.worst]
    drawings: dict[str, Callable[[], Any]] = {
        "forest": lambda: figures.forest(case.summaries, _ranked_weights(case)[:SHOWN]),
        "closeness": lambda: figures.closeness(
            [(n, j, case.differences[n, j]) for n, j in case.like.items()],
            order=list(case.summaries),
            tolerance=MEAN_ERROR_LIMITS[0],
            sd_limits=SD_RATIO_GOOD,
        ),
    }
    return drawings | {f"traces of {n}": lambda n=n: _trace(case, n) for n in chains}


def _ranked_weights(case: Case) -> list[str]:
    """Order the weights by relevance under the reference; scalars (the bias) come last."""
    leader = case.summaries[case.reference or next(iter(case.trees))]
    ranked = leader.sort_values("relevance", ascending=False, kind="stable").index
    return [*(n for n in ranked if "[" in n), *(n for n in ranked if "[" not in n)]


def _trace(case: Case, name: str) -> Any:
    parameters = moving_parameters(case.trees[name])
    return figures.traces({worst: parameters[worst] for worst in case.worst[name].index[:4]})


def _render(case: Case, parts: Mapping[str, Part], numbers: str) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ardvark.diagnostics"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: list[Any] = [mean_level, sd_level, khat_level, number, duration, listed, mean_and_sd]
    environment.filters |= {function.__name__: function for function in filters}
    drawings = _drawings(case)

    def figure(name: str, label: str) -> dict[str, str]:
        try:
            identifier = f"figure-{list(drawings).index(name)}"
            return {"svg": figures.as_svg(drawings[name](), identifier, label)}
        except Exception as error:
            return {"failed": f"The figure “{name}” could not be drawn: {error!r}"}

    environment.globals |= {
        "case": case,
        "titles": TITLES,
        "drawings": drawings,
        "figure": figure,
        "limits": {"rhat": RHAT_MAX, "ess": ESS_PER_CHAIN, "bfmi": BFMI_MIN},
        "shown": SHOWN,
    }
    return environment.get_template("report.html.j2").render(
        header=_header(case),
        parts=parts,
        bodies={name: _body(environment, name, part) for name, part in parts.items()},
        untrusted=case.untrusted,
        numbers=numbers,
        version=installed("ardvark"),
    )


def _body(environment: Any, name: str, part: Part) -> str:
    """Render what a section shows below its sentence; one that cannot be shown says so."""
    try:
        template = environment.get_template(f"{name}.html.j2")
        return "" if "failed" in part else str(template.render(part=part))
    except Exception as error:
        note = '<p class="note failed">▲ This section could not be shown: {{ why }}</p>'
        return str(environment.from_string(note).render(why=repr(error)))


def _write(files: Mapping[Path, str]) -> None:
    """Write under temporary names, then rename: readers see the old files or the new ones."""
    partial = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in files}
    try:
        for path, text in files.items():
            partial[path].write_text(text, encoding="utf-8")
        for path in files:
            os.replace(partial[path], path)
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)


# ---------------------------------------------------------------- words, levels and plain data


def mean_level(error: float) -> str:
    """Judge the error of a mean in sd units."""
    return _judged(error, MEAN_ERROR_LIMITS)


def khat_level(khat: float) -> str:
    """Judge a Pareto k-hat."""
    return _judged(khat, KHAT_LIMITS)


def sd_level(ratio: float) -> str:
    """Judge a ratio of standard deviations."""
    if math.isnan(ratio):
        return ""
    if SD_RATIO_GOOD[0] <= ratio <= SD_RATIO_GOOD[1]:
        return "good"
    return "warn" if SD_RATIO_USABLE[0] <= ratio <= SD_RATIO_USABLE[1] else "bad"


def _judged(value: float, limits: tuple[float, float]) -> str:
    return "" if math.isnan(value) else LEVELS[int(np.searchsorted(limits, value))]


def number(value: Any, digits: int = 3) -> str:
    """Write a number with so many significant digits; text stays text."""
    if value is None or not isinstance(value, float | np.floating):
        return "—" if value is None else str(value)
    if not math.isfinite(value):
        return "—" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(float(f"{value:.{digits - 1}e}"))  # rounded first: 0.9996 is 1.00, not 1.000
    if size and not 1e-4 <= size < 1e5:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    decimals = max(0, digits - 1 - math.floor(math.log10(size))) if size else 0
    return f"{value:.{decimals}f}".replace("-", "−")


def mean_and_sd(mean: float, sd: float) -> str:
    """Write mean ± sd with as many decimals as two digits of the sd need."""
    spread = number(float(sd), 2)
    decimals = len(spread.partition(".")[2])
    return (
        f"{mean:.{decimals}f} ± {spread}".replace("-", "−")
        if sd < 1e4
        else f"{mean:.3g} ± {sd:.2g}"
    )


def duration(seconds: float) -> str:
    """Say a time as people do."""
    if math.isnan(seconds):
        return "—"
    return f"{number(float(seconds), 2)} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def listed(names: Any, limit: int = 5) -> str:
    """List a few names."""
    names = [str(name) for name in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return (", ".join(names[:limit]) + more) or "none"


def plain(value: Any) -> Any:
    """Turn into what JSON can hold: NaN becomes null, infinities words."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value if isinstance(value, str | int | float | None) else str(value)


def _records(frame: pd.DataFrame) -> list[Part]:
    return frame.reset_index().to_dict("records")  # type: ignore[return-value]


def _count(n: int, noun: str) -> str:
    return f"{n or 'no'} {noun}{'' if n == 1 else 's'}"
