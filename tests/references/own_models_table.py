"""How far an approximation is from long NUTS on the users' own models, with nothing named.

    python tests/references/own_models_table.py                     every case, Laplace and EP
    python tests/references/own_models_table.py --theme priors      the cases of one file
    python tests/references/own_models_table.py logit --method ep   each parameter of one case
    python tests/references/own_models_table.py --out table.md      and keep the table
    python tests/references/own_models_table.py --kept rows.jsonl   go on where a run was stopped

A row of the table: was the model read; the worst |mean - reference| in reference sds and the worst
ratio of sds, over every scalar of the reference; whether the fit said that it is not to be relied
on; seconds of processor time, reading included. A variable without a variance (`Case.heavy`) is
held to its median, and to the width from its 5 to its 95 % quantile. Verdicts:

    good         means within 0.1 sd, sds within 10 %
    fair         means within 0.25 sd, sds within 30 %, nothing said
    flagged      worse than good, and the fit says so
    SILENT       worse than fair, and nothing said
    missing      the posterior lacks a free variable of the model
    refused      by an error of this library that says why; "as expected" for `Case.refused`
    NOT REFUSED  it was fitted although it is to be refused
    ERROR        any other exception, or no answer within the time limit: a defect
    -            there is no usable reference
"""

import argparse
import json
import signal
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import numpy as np
from own_models import CASES, THEMES, Case
from own_models_make import reference, stored

import ardvark as av

METHODS = {
    "laplace": av.Laplace,
    "ep": av.EP,
    "corrected": lambda: av.Laplace(corrected=True),  # only where it is asked for
}
BOTH = ("laplace", "ep")
GOOD, FAIR = (0.1, 0.10), (0.25, 0.30)  # of means in sds, of sds relatively
HIGH_K = 0.7
WARNINGS = (av.errors.ConvergenceWarning, av.errors.AccuracyWarning)
REFUSALS = (av.errors.UnreadableModel, av.errors.UnsupportedPair)
HEAD = """# Users' own models against long NUTS

Written by `python tests/references/own_models_table.py --out docs/own_models_table.md` on {date}:
models as PyMC and bambi users write them (`tests/helpers/own_models`), fitted with nothing named
and hyperparameters integrated out where there are at most ten. Errors are the worst over all
scalars, in sds of the reference; seconds are of processor time, reading included.

* good: means within 0.1 sd, sds within 10 %
* fair: means within 0.25 sd, sds within 30 %, nothing said
* flagged: worse than good, and the fit says so
* SILENT: worse than fair, and nothing said
* refused: with reason and remedy; "as expected" where no Gaussian block with scalar sites exists
* -: no usable reference

"""
DRAWS = 2500  # in each of 4 pseudo-chains: means to 0.01 sd


class Error(NamedTuple):
    """One scalar against its reference."""

    mean: float  # of the fit
    sd: float
    reference_mean: float
    reference_sd: float

    @property
    def shift(self) -> float:
        """Error of the mean in reference sds."""
        return (self.mean - self.reference_mean) / self.reference_sd

    @property
    def ratio(self) -> float:
        """Sd of the fit over that of the reference."""
        return self.sd / self.reference_sd


class Outcome(NamedTuple):
    """What became of one case by one method."""

    verdict: str
    seconds: float
    message: str = ""  # of a refusal or an error
    flags: tuple[str, ...] = ()
    errors: dict[str, Error] | None = None  # None: no fit, or nothing to compare with
    missing: tuple[str, ...] = ()


# One fit ------------------------------------------------------------------------------------------


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread after so many seconds of processor time."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no answer in {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def attempt(case: Case, method: str, limit: float) -> Outcome:
    """Fit a case with nothing named, and hold the answer against its reference."""
    model = case.graph
    begin = time.process_time()
    try:
        with time_limit(limit), warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            tree = av.fit(model, METHODS[method](), draws=DRAWS, random_seed=1, progressbar=False)
    except REFUSALS as refusal:
        verdict = "refused, as expected" if case.refused else "refused"
        return Outcome(verdict, time.process_time() - begin, _one_line(refusal))
    except Exception as error:  # whatever it is, the table goes on and shows it
        message = f"{type(error).__name__}: {_one_line(error)}"
        return Outcome("ERROR", time.process_time() - begin, message)
    seconds = time.process_time() - begin
    flags = flags_of(tree, [str(w.message) for w in heard if issubclass(w.category, WARNINGS)])
    errors, missing = compare(case, tree["posterior"])
    return Outcome(verdict_of(case, errors, missing, flags), seconds, "", flags, errors, missing)


def flags_of(tree: Any, heard: list[str]) -> tuple[str, ...]:
    """Every way in which a fit says that it is not to be relied on."""
    found = [f"warned: {message}" for message in heard]
    facts = tree.attrs
    if not facts.get("converged", 1):
        found.append("converged = 0")
    found += [f"{name}: {facts[name]}" for name in ("problems", "caution") if facts.get(name)]
    for name, value in facts.items():
        if "hat" in name and isinstance(value, float | int) and value > HIGH_K:
            found.append(f"{name} = {value:.2f}")
    return tuple(found)


def compare(case: Case, posterior: Any) -> tuple[dict[str, Error] | None, tuple[str, ...]]:
    """Each scalar against its reference, and the scalars that the posterior lacks."""
    if case.name not in stored()["cases"] or not (run := reference(case.name))["usable"]:
        return None, ()
    errors, missing = {}, []
    for scalar, there in run["scalars"].items():
        name, _, index = scalar.rpartition("[") if scalar.endswith("]") else (scalar, "", "")
        where = tuple(int(i) for i in index[:-1].split(",")) if index else ()
        if name not in posterior:
            missing.append(scalar)
            continue
        draws = posterior[name].values[(slice(None), slice(None), *where)].ravel()
        if name in case.heavy:
            low, middle, high = np.quantile(draws, (0.05, 0.5, 0.95))
            width = 2 * 1.645  # of a normal, in sds
            sds = (high - low) / width, (there["q95"] - there["q05"]) / width
            errors[scalar] = Error(float(middle), float(sds[0]), there["q50"], sds[1])
        else:
            mean, sd = float(draws.mean()), float(draws.std())
            errors[scalar] = Error(mean, sd, there["mean"], there["sd"])
    return errors, tuple(missing)


def worst(errors: dict[str, Error]) -> tuple[float, float]:
    """The worst |shift| and the ratio of sds that is farthest from 1; NaN counts as infinite."""
    shifts = [abs(e.shift) if np.isfinite(e.shift) else np.inf for e in errors.values()]
    ratios = [e.ratio if np.isfinite(e.ratio) else np.inf for e in errors.values()]
    return max(shifts), max(ratios, key=lambda ratio: abs(np.log(max(ratio, 1e-300))))


def verdict_of(
    case: Case, errors: dict[str, Error] | None, missing: tuple[str, ...], flags: tuple[str, ...]
) -> str:
    """One word on a fit."""
    if case.refused:
        return "NOT REFUSED"
    if not errors:
        return "-" if errors is None else "missing"
    shift, ratio = worst(errors)

    def within(limits: tuple[float, float]) -> bool:
        return shift <= limits[0] and abs(ratio - 1) <= limits[1]

    free = {variable.name for variable in case.graph.free_RVs}
    if any(scalar.rpartition("[")[0] in free or scalar in free for scalar in missing):
        return "missing"
    if within(GOOD):
        return "good"
    if flags:
        return "flagged"
    return "fair" if within(FAIR) else "SILENT"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


# What is shown ------------------------------------------------------------------------------------


def table(results: dict[tuple[str, str], Outcome]) -> str:
    """The Markdown table, with the counts below it."""
    rows = [
        "| model | method | read | worst mean error/sd | worst sd ratio | flagged | verdict | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows += [row(name, method, outcome) for (name, method), outcome in results.items()]
    rows.append("")
    for method in dict.fromkeys(method for _, method in results):
        mine = [outcome for (_, m), outcome in results.items() if m == method]
        counts = Counter(outcome.verdict for outcome in mine)
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        seconds = statistics.median(outcome.seconds for outcome in mine)
        rows.append(f"{method}: {len(mine)} cases; {words}; median {seconds:.2f} s.  ")
    refusals = [(n, m, o) for (n, m), o in results.items() if o.message]
    if refusals:
        rows += ["", "| model | method | said |", "|---|---|---|"]
        rows += [f"| {n} | {m} | {o.message[:160].replace('|', '¦')} |" for n, m, o in refusals]
    return "\n".join(rows) + "\n"


def row(name: str, method: str, outcome: Outcome) -> str:
    """One line of the table."""
    read = "no" if outcome.message else "yes"
    shift, ratio = "", ""
    if outcome.errors:
        numbers = worst(outcome.errors)
        shift, ratio = f"{numbers[0]:.3f}", f"{numbers[1]:.3f}"
    flagged = "yes" if outcome.flags else ""
    return (
        f"| {name} | {method} | {read} | {shift} | {ratio} | {flagged} | {outcome.verdict} "
        f"| {outcome.seconds:.2f} |"
    )


def details(name: str, method: str, outcome: Outcome) -> str:
    """Every scalar of one fit, the worst first."""
    lines = [f"{name} by {method}: {outcome.verdict}, {outcome.seconds:.2f} s"]
    lines += [f"  {text}" for text in (outcome.message, *outcome.flags) if text]
    if outcome.missing:
        lines.append(f"  not in the posterior: {', '.join(outcome.missing)}")
    if outcome.errors:
        lines.append(f"  {'scalar':24s} {'mean':>10s} {'NUTS':>10s} {'sd':>9s} {'NUTS':>9s}  error")
        ranked = sorted(outcome.errors.items(), key=lambda item: -abs(item[1].shift))
        lines += [
            f"  {scalar:24s} {e.mean:10.4g} {e.reference_mean:10.4g} {e.sd:9.4g} "
            f"{e.reference_sd:9.4g}  {e.shift:+.3f} sd, sd x {e.ratio:.3f}"
            for scalar, e in ranked
        ]
    return "\n".join(lines)


def read_kept(path: Path | None) -> dict[tuple[str, str], Outcome]:
    """Outcomes of an earlier run, the last one of each."""
    found = {}
    for line in path.read_text().splitlines() if path and path.exists() else []:
        name, method, verdict, seconds, message, flags, errors, missing = json.loads(line)
        numbers = errors and {scalar: Error(*values) for scalar, values in errors.items()}
        found[name, method] = Outcome(
            verdict, seconds, message, tuple(flags), numbers, tuple(missing)
        )
    return found


def main() -> None:
    """Fit what was asked for and show it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="cases, shown by parameter; none: all, as a table")
    parser.add_argument("--method", choices=METHODS, action="append", help="may be repeated")
    parser.add_argument("--theme", choices=THEMES, help="only the cases of this file")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds of processor time for one fit"
    )
    parser.add_argument("--kept", type=Path, help="file of rows that need not be made again")
    parser.add_argument("--out", type=Path, help="file for the table")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    chosen = [CASES[n] for n in asked.names] or [
        case for case in CASES.values() if asked.theme in (None, case.theme)
    ]
    results, kept = {}, read_kept(asked.kept)
    for case in chosen:
        for method in asked.method or BOTH:
            outcome = kept.get((case.name, method)) or attempt(case, method, asked.limit)
            results[case.name, method] = outcome
            if asked.kept and (case.name, method) not in kept:
                with asked.kept.open("a") as file:
                    file.write(json.dumps([case.name, method, *outcome]) + "\n")
            if asked.names:
                print(details(case.name, method, outcome), flush=True)
            else:
                print(row(case.name, method, outcome), file=sys.stderr, flush=True)
    if not asked.names:
        print(table(results))
    if asked.out:
        asked.out.write_text(HEAD.format(date=date.today()) + table(results))


if __name__ == "__main__":
    main()
