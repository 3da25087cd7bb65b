"""What the units of a store say together, and the summaries that are kept of it.

    summary          means, standard errors and tests of all that a store has
    write_results    the same as a file of `results/`, beside what is there from other runs

A full ledger is run in pieces, on several days and machines, so a file keeps what it has: an
experiment is replaced by one of the same settings with as many units or more, a test by one of as
many pairs or more. Each experiment names the run that it is of: commit, date and versions.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ardvark.diagnostics.storage.atomic import write_text
from ardvark.studies.experiments import Anova, Claim, Experiment, Numbers, Store

__all__ = ["summary", "write_results"]

PACKAGES = ("ardvark", "pymc", "numpy", "scipy", "scikit-learn", "numba")

type Stored = Mapping[str, Sequence[Numbers | None]]


def summary(
    experiments: Sequence[Experiment], claims: Sequence[Claim | Anova], store: Store
) -> dict[str, Any]:
    """Means with standard errors of all that is stored, and the claims by paired t-tests."""
    found: dict[str, Any] = {}
    stored: dict[str, list[Numbers | None]] = {}
    for experiment in experiments:
        units = experiment.units(experiment.full)
        stored[experiment.name] = [store.get(unit) for unit in units]
        numbers = [one for one in stored[experiment.name] if one is not None]
        good = [one for one in numbers if "failed" not in one]
        if not numbers:
            continue
        found[experiment.name] = {
            "place": experiment.place,
            "settings": dict(experiment.settings),
            "units": len(numbers),
            "of": experiment.full,
            "seeds": [n for n, one in enumerate(stored[experiment.name]) if one is not None],
            "failed": len(numbers) - len(good),
            "cpu_seconds": round(sum(store.seconds(unit) for unit in units), 1),
            "numbers": {name: _mean([one.get(name) for one in good]) for name in _names(good)},
        }
        if experiment.full == 1 and good:  # there is no mean: curves of a single run
            curves = {name: value for name, value in good[0].items() if isinstance(value, list)}
            found[experiment.name] |= {"curves": curves} if curves else {}
    tests = [test for claim in claims if (test := _tested(claim, stored)) is not None]
    return {"experiments": found, "claims": tests}


def _names(numbers: Sequence[Numbers]) -> list[str]:
    first = numbers[0] if numbers else {}
    return [name for name, value in first.items() if isinstance(value, int | float | None)]


def _mean(values: Sequence[Any]) -> dict[str, Any]:
    known = np.array([value for value in values if value is not None], float)
    if not known.size:
        return {"mean": None, "error": None, "n": 0}
    error = known.std(ddof=1) / math.sqrt(known.size) if known.size > 1 else None
    return {
        "mean": _rounded(known.mean()),
        "error": None if error is None else _rounded(error),
        "n": known.size,
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _paired(claim: Claim, stored: Stored) -> dict[str, Any] | None:
    """The difference of two numbers on the same partitions, by a paired t-test."""
    from scipy.stats import ttest_1samp

    sides = [side.rsplit(":", 1) for side in (claim.first, claim.second)]
    rows = zip(*(stored.get(experiment, []) for experiment, _ in sides), strict=False)
    apart = np.array([
        a[sides[0][1]] - b[sides[1][1]]
        for a, b in rows
        if a and b and a.get(sides[0][1]) is not None and b.get(sides[1][1]) is not None
    ])  # fmt: skip
    if len(apart) < 2:
        return None
    error = float(apart.std(ddof=1) / math.sqrt(len(apart)))
    p = float(ttest_1samp(apart, 0.0).pvalue) if error > 0 else float(apart.mean() == 0)
    return {
        **claim._asdict(),
        "difference": _rounded(apart.mean()),
        "error": _rounded(error),
        "n": len(apart),
        "p": _rounded(p),
    }


def _tested(claim: Claim | Anova, stored: Stored) -> dict[str, Any] | None:
    return _paired(claim, stored) if isinstance(claim, Claim) else _anova(claim, stored)


def _anova(claim: Anova, stored: Stored) -> dict[str, Any] | None:
    """Whether the means of several groups differ, by a one-way analysis of variance."""
    from scipy.stats import f_oneway

    groups = {}
    for side in claim.sides:
        name, number = side.rsplit(":", 1)
        units = [one for one in stored.get(name, ()) if one]
        values = [one[number] for one in units if one.get(number) is not None]
        if len(values) > 1:
            groups[side] = values
    if len(groups) < 2:
        return None
    p = _rounded(float(f_oneway(*groups.values()).pvalue))
    counts = [len(values) for values in groups.values()]
    return {"text": claim.text, "sides": list(groups), "n": counts, "p": p}


# Keeping ----------------------------------------------------------------------------------------


def write_results(
    path: Path, experiments: Sequence[Experiment], claims: Sequence[Claim | Anova], store: Store
) -> None:
    """Keep the summary of a paper, with when and by what each part of it was made."""
    old: dict[str, Any] = {"runs": [], "experiments": {}, "claims": []}
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))
    runs = [*old["runs"], _made_by()]
    new = summary(experiments, claims, store)
    for one in new["experiments"].values():
        one["run"] = len(runs) - 1
    known = {e.name: json.loads(json.dumps(dict(e.settings))) for e in experiments}
    kept = {n: one for n, one in old["experiments"].items() if known.get(n) == one["settings"]}
    chosen = {
        name: _fuller(kept.get(name), new["experiments"].get(name), "units")
        for name in known
        if name in kept or name in new["experiments"]
    }
    before, after = ({t["text"]: t for t in one["claims"]} for one in (old, new))
    tests = [
        _fuller(before.get(claim.text), after.get(claim.text), "n")
        for claim in claims
        if claim.text in before or claim.text in after
    ]
    used = sorted({one["run"] for one in chosen.values()})
    for one in chosen.values():
        one["run"] = used.index(one["run"])
    found = {"runs": [runs[i] for i in used], "experiments": chosen, "claims": tests}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _as_text(found))


def _as_text(found: Mapping[str, Any]) -> str:
    """JSON with a line for each run, experiment and test: a change shows what has changed."""
    runs, tests = (",\n".join(map(_line, found[name])) for name in ("runs", "claims"))
    experiments = ",\n".join(f"{_line(n)}: {_line(e)}" for n, e in found["experiments"].items())
    parts = f'"runs": [\n{runs}\n],\n"experiments": {{\n{experiments}\n}},\n"claims": [\n{tests}\n]'
    return f"{{\n{parts}\n}}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fuller(old: dict[str, Any] | None, new: dict[str, Any] | None, count: str) -> dict[str, Any]:
    """What rests on more; if that is equal, the new one."""
    if old is None or new is None:
        return dict(old or new or {})
    return dict(new if np.sum(new[count]) >= np.sum(old[count]) else old)


def _made_by() -> dict[str, Any]:
    here = str(Path(__file__).resolve().parent)
    commit = subprocess.run(
        ["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in PACKAGES},
    }
