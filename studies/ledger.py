"""The ledger: every number that the five papers print, ours beside it, a verdict and a reason.

    python -m ardvark.studies.ledger_page       # write docs/ledger.md anew, and count the verdicts

`papers/published.csv` has a row for each published number. Where `source` names experiments, ours
is read from `results/*.json`, which `ardvark replicate PAPER --results studies/results` writes, and
the verdict follows from the rule below. Where it names none, or nothing of it has been run, the
row's own `ours` and `verdict` stand.

| source                    | ours                                                               |
|---------------------------|--------------------------------------------------------------------|
| study experiment:number   | a mean with its standard error; further ones after " | " are told   |
| study claim: text         | a paired test, or several (*): each start or size is a test        |
| study anova: text         | p of an analysis of variance                                       |

| verdict        | a number                                    | a claim                           |
|----------------|---------------------------------------------|-----------------------------------|
| reproduced     | within 2 standard errors of the difference, | as significant as the paper's     |
|                | or 2 %                                      |                                   |
| direction only | no, but on the same side of the row that it | the sign is right, the p is not   |
|                | is compared with (`against`), 2 errors away |                                   |
| not reproduced | neither                                     | neither                           |

A published error is a standard error (Qi04) or the sd of thirty cuts (Mir17). Where none is printed
the paper's sd is taken to be ours; a single fit has the error of a count, where it is one. What is
within two large errors, or not significant as printed but by few partitions, is reproduced weakly:
`Entry.weak`. `NOT_BLIND` names what was chosen with the published numbers in sight.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["NOT_BLIND", "PAPERS", "VERDICTS", "Entry", "Ledger", "Row", "published", "with_error"]

HERE = Path(__file__).resolve().parent
VERDICTS = (
    "reproduced",
    "direction only",
    "not reproduced",
    "not run",
    "not possible",
    "setting",
    "duplicate",
)
SIGMAS, CLOSE, SIGNIFICANT = 2.0, 0.02, 0.05
WEAK = 0.5  # two standard errors as a share of the published number
FEW = 10  # partitions, of which "not significant" says little
NOT_BLIND = {  # study and experiments: what was chosen when the published numbers were known
    "qi2004 leukaemia/correlated518": "the start, by the published count of features",
    "qi2004 colon/*150*": "the start, by the published count of features",
    "tipping2001 sinc*": "the unit of the error and the noise, by what fits the slide",
    "tipping2001 friedman*": "the unit of the error, by what fits the slide",
}
PAPERS = {
    "Qi04": "Qi, Minka, Picard & Ghahramani 2004",
    "Chu06": "Chu, Keerthi, Ong & Ghahramani 2006",
    "Tip04": "Tipping, lecture of 2004 (RVM)",
    "Mir17": "Mirzaei, Mohsenzadeh & Sheikhzadeh 2017",
    "Syk00": "Sykacek 2000",
}


class Row(NamedTuple):
    """A published number; `cuts` is over how many partitions it is a mean."""

    paper: str
    place: str
    row: str
    column: str
    published: str
    cuts: str
    source: str
    against: str  # the row that it is compared with
    protocol: str
    ours: str
    verdict: str
    why: str


class Entry(NamedTuple):
    """A row of the ledger."""

    row: Row
    ours: str
    protocol: str
    verdict: str
    why: str
    weak: bool = False  # reproduced within errors that would let nearly everything pass
    whole: bool | None = None  # as many partitions as the paper; None: nothing of a store


class Found(NamedTuple):
    """One of our numbers."""

    mean: float
    error: float | None
    n: int
    of: int


def published(path: Path = HERE / "papers" / "published.csv") -> list[Row]:
    """Read the published numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        return [Row(**line) for line in csv.DictReader(file)]


class Ledger:
    """The published numbers beside what is in a folder of results."""

    def __init__(
        self, rows: Sequence[Row], results: Path = HERE / "results", apart: float = SIGMAS
    ) -> None:
        self.rows, self.folder = rows, results
        self.apart = apart  # standard errors from a rival that make a side of it
        found = {
            path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(results.glob("*.json"))
        }
        # Other studies keep their results there too: speeds, and tables without a published number.
        self.results: dict[str, Any] = {n: one for n, one in found.items() if "experiments" in one}

    @cached_property
    def entries(self) -> list[Entry]:
        """Every row with its verdict."""
        return [self.judged(row) for row in self.rows]

    def judged(self, row: Row) -> Entry:
        """A row with our number and the verdict, by the rule or as it stands."""
        kept = Entry(row, row.ours, row.protocol, row.verdict, row.why)
        if not row.source:
            return kept
        study, _, what = row.source.partition(" ")
        missing = f"nothing of it is in the results of {study}"
        told = missing if row.verdict == "not run" else f"an earlier run; {missing}"
        kept = kept._replace(why=". ".join(filter(None, (told, row.why))))
        kind, _, text = what.partition(": ")
        if kind in ("claim", "anova"):
            return self._of_tests(row, study, text) or kept
        return self._of_number(row, study, what) or kept

    def found(self, study: str, side: str) -> Found | None:
        """Our number of "experiment:number"."""
        experiment, _, name = side.strip().rpartition(":")
        one = self.results.get(study, {}).get("experiments", {}).get(experiment)
        number = None if one is None else one["numbers"].get(name)
        if not number or not number["n"]:
            return None
        error = number["error"]
        if error is None:
            error = _error_of_one_fit(one, name, number["mean"])
        return Found(number["mean"], error, number["n"], one["of"])

    def _of_number(self, row: Row, study: str, what: str) -> Entry | None:
        chief, *others = what.split(" | ")
        ours = self.found(study, chief)
        printed = _printed(row)
        if ours is None or printed is None:
            return None
        value, error = printed
        if error is None and ours.error is not None and row.cuts:
            error = ours.error * math.sqrt(ours.n / float(row.cuts))
        noise = math.hypot(ours.error or 0.0, error or 0.0)
        away = ours.mean - value
        why = f"{abs(away) / noise:.1f} s.e. away" if noise else f"{away:+.3g} away, no s.e."
        verdict, weak = "not reproduced", False
        if abs(away) <= max(SIGMAS * noise, CLOSE * abs(value)):
            verdict, weak = "reproduced", SIGMAS * noise > WEAK * abs(value)
            why += ", weakly" if weak else ""
        elif (side := self._side(row, value, ours)) is not None:
            verdict = "direction only" if side == "on the published side of" else verdict
            why += f"; {side} {row.against.replace('::', ', ')}"
        run = [(other.strip().rpartition(":")[0], self.found(study, other)) for other in others]
        beside = [f"{name} {_shown(one)}" for name, one in run if one is not None]
        why += f"; also run: {', '.join(beside)}" if beside else ""
        why += f". {row.why}" if row.why else ""
        experiment = f"{study} {chief.rpartition(':')[0]}"
        protocol = f"{experiment}, {ours.n} of {ours.of} partitions"
        seen = [chosen for name, chosen in NOT_BLIND.items() if fnmatch(experiment, name)]
        protocol += f"; not blind: {seen[0]}" if seen else ""
        return Entry(row, _shown(ours), protocol, verdict, why, weak, ours.n >= ours.of)

    def _side(self, row: Row, value: float, ours: Found) -> str | None:
        """Where ours stands beside its rival; None: nobody knows."""
        place = (row.paper, row.place, *_rival(row))
        at_place = (r for r in self.rows if (r.paper, r.place, r.row, r.column) == place)
        rival = next((r for r in at_place if r.source), None)
        if rival is None or (printed := _printed(rival)) is None:
            return None
        study, _, what = rival.source.partition(" ")
        other = self.found(study, what.split(" | ")[0])
        if other is None or printed[0] == value:
            return None
        apart = ours.mean - other.mean
        if abs(apart) <= self.apart * math.hypot(ours.error or 0.0, other.error or 0.0):
            return "not told apart from"
        same = (value > printed[0]) == (apart > 0)
        return "on the published side of" if same else "on the other side of"

    def _of_tests(self, row: Row, study: str, text: str) -> Entry | None:
        """A claim, or several that begin alike: the weakest decides."""
        claims = self.results.get(study, {}).get("claims", ())
        tests = [test for test in claims if re.fullmatch(_pattern(text), test["text"])]
        if not tests:
            return None
        expected = not row.published.startswith("NS")
        held = [test["p"] < SIGNIFICANT and test.get("difference", 1.0) > 0 for test in tests]
        right = [test.get("difference", 1.0) > 0 for test in tests]
        if all(h == expected for h in held):
            verdict = "reproduced"
        elif expected and "sides" not in tests[0] and all(right):
            verdict = "direction only"
        else:
            verdict = "not reproduced"
        told = "; ".join(map(_told, tests[:6]))
        told += f"; and {len(tests) - 6} more" if len(tests) > 6 else ""
        several = "sides" in tests[0]
        counts = [n for test in tests for n in (test["n"] if several else [test["n"]])]
        least = f"{min(counts)}" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
        kind = "analysis of variance" if several else "paired t-test"
        ours = (
            f"p = {tests[0]['p']:.2g}" if len(tests) == 1 else f"{sum(held)} of {len(tests)} hold"
        )
        weak = verdict == "reproduced" and not expected and min(counts) < FEW
        why = ("weakly: few could be significant. " if weak else "") + f"{told}. {row.why}"
        protocol = f"{study}, {kind}, {least} partitions"
        return Entry(row, ours, protocol, verdict, why.rstrip(" ."), weak)


def _error_of_one_fit(one: Mapping[str, Any], name: str, value: float) -> float | None:
    """That of a share or of a count of errors; None of anything else."""
    numbers = one["numbers"]
    if f"{name}_se" in numbers:
        return float(numbers[f"{name}_se"]["mean"])
    if name == "error" and "test_rows" in numbers and one["place"] != "regression table":
        return math.sqrt(value * (100 - value) / numbers["test_rows"]["mean"])
    return math.sqrt(value) if name == "error" and one["place"] == "table 4" else None


def _told(test: Mapping[str, Any]) -> str:
    by = f", by {with_error(test['difference'], test['error'])}" if "error" in test else ""
    return f"{test['text']}: p = {test['p']:.2g}{by}"


def _pattern(text: str) -> str:
    return re.escape(text).replace(r"\*", ".*")


def _rival(row: Row) -> tuple[str, str]:
    """Row and column of what a number is compared with: another row, or another column."""
    if "::" in row.against:
        other, column = row.against.split("::")
        return other, column
    return row.against, row.column


def _printed(row: Row) -> tuple[float, float | None] | None:
    """The published number and its standard error, if there is one."""
    found = re.fullmatch(r"([-\d.]+)(?:±([\d.]+))?", row.published.replace("about ", ""))
    if found is None:
        return None
    error = float(found[2]) if found[2] else None
    if error is not None and row.paper == "Mir17":
        error /= math.sqrt(30)
    return float(found[1]), error


def with_error(value: float, error: float | None) -> str:
    """A number, and its standard error in brackets."""
    return f"{value:.4g}" + (f" ({error:.2g})" if error is not None else "")


def _shown(found: Found) -> str:
    return with_error(found.mean, found.error)
