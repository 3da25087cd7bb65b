"""The page of speeds, `docs/speeds.md`, made of `studies/results/bench.json` and of nothing else.

    python -m ardvark.studies.speed.page

A test holds the page against the record, so no figure can stand in it that was not measured.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from ardvark.studies.speed import record

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "speeds.md"
MARK = "†"
HEAD = """# Speeds

Made by `python -m ardvark.studies.speed.page` from `studies/results/bench.json`, which `make bench`
writes. CPU seconds, one BLAS thread, fresh processes in turns with the peer. A ratio is the peer's
cost over Ardvark's (above 1: Ardvark is cheaper), the geometric mean over the turns with its
standard error; less than 1.5 either way is no difference. Cost is per step for the ARD paths and
per effective draw of the worst weight for NUTS (there "steps" are effective draws, and everything
from `av.fit` counts). What each task is: the first lines of `studies/speed/cases.py`, and
`nuts_speed.py`. The load is how many processors other work kept busy meanwhile.
"""
# Why a goal is missed, by the beginning of the task's name: said of a task that misses one.
REASONS = {
    "evidence ard": "steps that keep all weights are made in machine code, many in one call; one "
    "that adds or deletes a weight is a call of EP from Python.",
    "first laplace": "half of a first fit is the import of PyMC, whose row is under `import`; no "
    "numba is loaded. The peer's answer is a mode and a covariance; ours has draws, the log "
    "likelihood of each and the checks of the graph.",
    "rvm regression 2000": "the goal is within the error; an earlier record, of another machine, "
    "met it.",
    "first svm": "beyond a later fit, which is `svm evidence`, the graph is read and checked.",
    "nuts 60 x 5": "within the error. A later fit, whose row is beside it, takes half; the rest is "
    "the first use of numba, which the peer pays in its compile, and our modules.",
    "nuts 500 x 50": "the first use of numba and of our modules, and the reading and checking of "
    "the graph are there beside the chains.",
}
LOADED = f"""
{MARK} Measured while other work ran on the machine: CPU seconds are too large, and ratios uncertain
beyond their error.
"""


def page(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The whole page as Markdown."""
    parts = [
        HEAD,
        _peers(rows.get("bench", [])),
        _missed(rows.get("bench", [])),
        _two_cores(rows.get("two_cores", [])),
        _commands(rows.get("commands", [])),
        _growth(rows.get("growth", [])),
        _whitening(rows.get("whitening", [])),
    ]
    every = [row for table in rows.values() for row in table]
    if any(row["loaded"] for row in every):
        parts.append(LOADED)
    parts.append(_machines(every))
    return "\n".join(part for part in parts if part)


def _peers(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "## Against named peers\n",
        "| task | contestant | CPU ms | steps | ratio | goal | log evidence | test error |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    before = ""
    for row in sorted(rows, key=lambda row: (row["task"], row["peer"] != "ardvark")):
        task = "" if row["task"] == before else row["task"]
        before = row["task"]
        name = row["version"] or row["peer"]  # the version has a name in it, mostly the peer's
        if row["peer"].lower() not in name.lower():
            name = f"{row['peer']} ({name})"
        found = row.get("found") or {}
        answers = [(found.get("log_evidence"), ".5g"), (found.get("test_error"), ".3g")]
        cells = [task, name, *_figures(row)]
        cells += ["" if value is None else format(value, form) for value, form in answers]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _missed(rows: Sequence[Mapping[str, Any]]) -> str:
    """The tasks that miss a goal, with the reason."""
    missed = [row for row in rows if row["goal"] and row["ratio"] and row["ratio"] < row["goal"]]
    lines = ["## Goals that are missed, and why\n"]
    for row in sorted(missed, key=lambda row: str(row["task"])):
        why = next((text for task, text in REASONS.items() if row["task"].startswith(task)), "")
        line = f"{row['task']}, against {row['peer']}: {why or 'not looked into.'}"
        lines.append("\n".join(wrap(line, 99, initial_indent="- ", subsequent_indent="  ")))
    return "\n".join(lines) + "\n" if missed else ""


def _two_cores(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    lines = [
        "## Two processors\n",
        "Wall seconds of loops of many fits on one processor and on two, warm",
        "(`studies/speed/two_cores.py`); 1.8 times is meant.\n",
        "| loop | fits | one | two | times |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        mark = f" {MARK}" if row["loaded"] else ""
        one, two = row["seconds"]
        times = f"{one:.3g} | {two:.3g} | {row['speed_up']:.2f}{mark}"
        lines.append(f"| {row['loop']} | {row['fits']} | {times} |")
    return "\n".join(lines) + "\n"


def _commands(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    lines = ["## Whole commands\n"]
    for row in rows:
        mark = f" {MARK}" if row["loaded"] else ""
        line = (
            f"`{row['command']}`: {row['wall_seconds']:.3g}{mark} wall seconds, its fits: "
            f"{row['fits']}; reference {row['reference']}."
        )
        lines.append("\n".join(wrap(line, 99, initial_indent="- ", subsequent_indent="  ")))
    return "\n".join(lines) + "\n"


def _figures(row: Mapping[str, Any]) -> list[str]:
    if row["cpu_seconds"] is None:
        return ["", "", row["note"], ""]
    mark = f" {MARK}" if row["loaded"] else ""
    ratio = goal = ""
    if row["ratio"] is not None:
        error = f" ± {row['ratio_error']:.1g}" if row["ratio_error"] is not None else " (one turn)"
        ratio = f"{row['ratio']:.3g}{error}{mark}"
        if row["goal"] is not None:
            goal = f"{row['goal']:.3g}, {'met' if row['ratio'] >= row['goal'] else 'missed'}"
    steps = "" if row["steps"] is None else str(row["steps"])
    note = f" ({row['note']})" if row["note"] else ""
    return [f"{1e3 * row['cpu_seconds']:.4g}{mark}", steps + note, ratio, goal]


def _growth(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    lines = [
        "## Growth\n",
        "Time against rows N, weights d and hyperparameters θ over two decades, the exponent of",
        "the upper one (`python -m ardvark.studies.speed.growth` says what is expected).\n",
        "| what | grows | exponent | expected | sizes | CPU ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        mark = f" {MARK}" if row["loaded"] else ""
        sizes = ", ".join(map(str, row["sizes"]))
        times = ", ".join(f"{1e3 * s:.3g}" for s in row["cpu_seconds"])
        lines.append(
            f"| {row['what']} | {row['grows']} | {row['exponent']:.2f}{mark} | {row['expected']:g} "
            f"| {sizes} | {times} |"
        )
    return "\n".join(lines) + "\n"


def _whitening(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    lines = [
        "## NUTS in other coordinates\n",
        "Effective draws of the worst weight per thousand gradients, those of tuning included, in",
        "coordinates in which a Gaussian is round (`studies/speed/whitening.py`): that of EP at",
        "the starting hyperparameters, or that of the posterior itself; and as it is, with",
        '`NUTS(metric="low_rank")`.\n',
        "| task | draws of tuning | as it is | by EP | by the posterior | low rank |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found = {(row["task"], row["tune"], row["coordinates"]): row for row in rows}
    for task, tune in dict.fromkeys((row["task"], row["tune"]) for row in rows):
        cells = []
        for name in ("as_is", "ep", "posterior", "low_rank"):
            if (row := found.get((task, tune, name))) is None:
                cells.append("")
                continue
            error = "" if row["error"] is None else f" ± {row['error']:.1g}"
            cells.append(f"{row['per_thousand']:.3g}{error}")
        lines.append(f"| {task} | {tune} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _machines(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["## Measured on\n"]
    texts = dict[str, list[float]]()
    for row in rows:
        on = row["measured"]
        versions = ", ".join(f"{name} {number}" for name, number in on["versions"].items())
        text = (
            f"- {on['date']}, commit {on['commit']}: {on['processor']}, {on['cores']} cores; "
            f"Python {on['python']}, {versions}"
        )
        texts.setdefault(text, []).append(on["load"])
    lines += [f"{text}; load {min(loads):g} to {max(loads):g}." for text, loads in texts.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(record.read()))
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
