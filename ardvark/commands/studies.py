"""The command that repeats the studies: `ardvark replicate`.

Papers are experiments as data (`studies/experiments.py`): units of work that are kept as they are
done. Studies of speed and of calibration are modules that are run whole. Like the command line
itself this imports nothing heavy before it is needed.
"""

import contextlib
import io
import json
import os
import runpy
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from cyclopts import Parameter

from ardvark.commands.tasks import STANDARD_OUTPUT, Flag, Output, UsageError, as_lines, known

__all__ = ["PAPERS", "STUDIES", "Study", "replicate", "store_folder"]

HOME = "ARDVARK_RESULTS"  # names the folder of units that are done

PAPERS = {
    "qi2004": "predictive ARD by EP on gene expression (Qi, Minka, Picard & Ghahramani 2004)",
    "tipping2001": "the relevance vector machine's tables (Tipping 2001)",
    "usps": "ten handwritten digits (Tipping 2001)",
    "chu2006": "evidence of the trigonometric SVM (Chu, Keerthi, Ong & Ghahramani 2006)",
    "madelon": "ranking and selection among 500 inputs (Chu et al. 2006)",
    "mirzaei2017": "the sample-feature machine's tables (Mirzaei et al. 2017)",
    "sykacek2000": "input selection by reversible jump (Sykacek 2000)",
}


class Study(NamedTuple):
    """A module below `ardvark.studies`, what it repeats, its arguments, and those of --quick."""

    module: str
    title: str
    whole: list[str]
    quick: list[str]


STUDIES: dict[str, Study] = {
    "samplers": Study(
        "speed.samplers",
        "effective draws per second of an ARD posterior",
        ["--json"],
        ["--json", "--case", "60x5-probit", "--seconds", "2"],
    ),
    "subset_speed": Study("speed.subset_speed", "speed of the samplers of subsets", [], []),
    "svm_speed": Study(
        "papers.chu2006", "seconds of one evidence of the trigonometric SVM", [], []
    ),
    "validation": Study(
        "validation",
        "calibration of every pair, Markov kernels, reference posteriors, a certificate",
        [],
        ["--quick"],
    ),
}


def replicate(
    *papers: str,
    quick: Flag = False,
    full: Flag = False,
    most: int | None = None,
    table: str | None = None,
    only: str | None = None,
    list: Annotated[bool, Parameter(name="--list", negative="")] = False,
    jobs: int = 1,
    scheduler: str | None = None,
    cluster: str | None = None,
    store: Path | None = None,
    results: Path | None = None,
    output: Output = STANDARD_OUTPUT,
) -> int:
    """Repeat the experiments of the papers; `ardvark replicate list` names them, `all` takes all.

    Parameters
    ----------
    papers
        studies of `ardvark replicate list`, or all the papers: `all`; none: the list.
    quick
        the smallest part of each that shows something.
    full
        as many partitions as the papers have; by default ten at most.
    most
        at most so many partitions of each experiment.
    table
        only the experiments of this table, such as 1.
    only
        only experiments whose names begin like this; * stands for anything: `*/svm`.
    list
        run nothing: say how much of each is stored, and how much is missing.
    jobs
        processes.
    scheduler
        address of a Dask scheduler, tcp://host:8786, whose workers run the units instead.
    cluster
        `local`: a Dask cluster of --jobs processes, for this run.
    store
        folder that keeps the units; by default that of $ARDVARK_RESULTS, else one of the cache.
    results
        folder that takes a summary of each paper, with what it was made by.
    """
    titles = PAPERS | {name: study.title for name, study in STUDIES.items()}
    if not papers or "list" in papers:
        output.show(titles, lambda: as_lines(titles))
        return 0
    names = [n for name in papers for n in (PAPERS if name == "all" else (name,))]
    for name in names:
        known("study", name, titles)
    if cluster not in (None, "local"):
        raise UsageError("replicate", f"--cluster is `local` or nothing, got {cluster!r}")
    asked = _Asked(quick, full, most, table, only, list, store_folder(store), results)
    with _executor(jobs, scheduler, cluster) as executor:
        found = {
            name: asked.run(name, executor, output)
            if name in PAPERS
            else _whole(name, asked, output)
            for name in names
        }
    if output.json:
        output.show(found, str)
    failed = [name for name, item in found.items() if item.get("exit_code")]
    if failed:
        raise RuntimeError(f"the study {failed[0]} ended with {found[failed[0]]['exit_code']}")
    return 0


def store_folder(store: Path | None) -> Path:
    """Where units are stored: the option, $ARDVARK_RESULTS, or the cache."""
    if store is not None or os.environ.get(HOME):
        return store or Path(os.environ[HOME])
    import pooch

    return Path(pooch.os_cache("ardvark")) / "replications"


@contextlib.contextmanager
def _executor(jobs: int, scheduler: str | None, cluster: str | None) -> Iterator[Any]:
    if cluster is None:
        yield scheduler or jobs
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None) as workers,
        Client(workers, set_as_default=False) as client,
    ):
        yield client


class _Asked(NamedTuple):
    """Which units of a paper, and what is to be done with them."""

    quick: bool
    full: bool
    most: int | None
    table: str | None
    only: str | None
    list: bool
    store: Path
    results: Path | None

    def run(self, paper: str, executor: Any, output: Output) -> dict[str, Any]:
        """Run the units of a paper that are missing, and say what all of them say."""
        from ardvark.studies.experiments import Store, experiments_of, run
        from ardvark.studies.summaries import summary, write_results

        experiments, claims = experiments_of(paper)
        taken = [e for e in experiments if self.takes(e.name, e.place)]
        units = [unit for e in taken for unit in e.units(self.count(e))]
        store = Store(self.store)
        if self.list:
            listed = {
                e.name: {
                    "stored": sum(store.get(unit) is not None for unit in e.units(e.full)),
                    "of": e.full,
                }
                for e in taken
            }
            if not output.json:
                lines = (
                    f"{paper}  {name}: {n['stored']} of {n['of']} stored, "
                    f"{n['of'] - n['stored']} missing"
                    for name, n in listed.items()
                )
                output.show(listed, lambda: "\n".join(lines))
            return listed
        missing = sum(store.get(unit) is None for unit in units)
        output.say(f"{paper}: {len(units)} units, {missing} of them to run")
        begin = last_line = time.monotonic()
        with output.bar(paper, missing) as bar:

            def tick(done: int, unit: Any) -> None:
                nonlocal last_line
                bar(done)
                now = time.monotonic()
                if now - last_line > 10 and not sys.stderr.isatty():
                    last_line, left = now, (now - begin) * (missing - done) / done
                    output.say(f"{paper}: {done} of {missing}, about {left:.0f} s to go")

            run(units, store, executor, tick)
        found = summary(taken, claims, store)
        if not output.json:
            output.show(found, lambda: _lines(found))
        if self.results is not None:
            write_results(self.results / f"{paper}.json", experiments, claims, store)
        return found

    def takes(self, name: str, place: str) -> bool:
        """Whether an experiment was requested."""
        at_table = self.table is None or f"table {self.table}" in place or self.table == place
        return at_table and (self.only is None or fnmatch(name, f"{self.only}*"))

    def count(self, experiment: Any) -> int:
        """How many of its units."""
        from ardvark.studies.experiments import USUAL

        usual: int = experiment.full if self.full else min(USUAL, experiment.full)
        count = experiment.quick if self.quick else usual
        return count if self.most is None else min(count, self.most)


def _lines(found: dict[str, Any]) -> str:
    """A summary as text."""
    lines = []
    for name, one in found["experiments"].items():
        shown = (
            f"{key} {_number(n['mean'])}" + (f" ({n['error']:.2g})" if n["error"] else "")
            for key, n in one["numbers"].items()
        )
        lines.append(f"{name} [{one['units']} of {one['of']}]  " + ", ".join(shown))
    for claim in found["claims"]:
        lines.append(
            f"claim: {claim['text']}: by {claim['difference']:.3g} ({claim['error']:.2g}), "
            f"{claim['n']} pairs, p = {claim['p']:.2g}"
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


# Studies that are run whole ---------------------------------------------------------------------


def _whole(name: str, asked: _Asked, output: Output) -> dict[str, Any]:
    study = STUDIES[name]
    arguments = study.quick if asked.quick else study.whole
    module = f"ardvark.studies.{study.module}"
    command = " ".join(["python", "-m", module, *arguments])
    if asked.list:  # nothing of it is stored, so nothing is to be counted
        listed = {"command": command}
        if not output.json:
            output.show(listed, lambda: f"{name}  {command}")
        return listed
    output.say(f"{name}: {command}")
    lines, code = _run(module, arguments, echo=not output.json)
    return {"exit_code": code, "lines": lines}


class _Lines(io.StringIO):
    """Standard output that keeps its lines, and passes them on as they come."""

    def __init__(self, echo: Any) -> None:
        super().__init__()
        self.echo = echo

    def write(self, text: str) -> int:
        if self.echo is not None:
            self.echo.write(text)
            if "\n" in text:
                self.echo.flush()
        return super().write(text)

    def flush(self) -> None:
        if self.echo is not None:
            self.echo.flush()


def _run(module: str, arguments: Sequence[str], echo: bool) -> tuple[Sequence[Any], int]:
    """Run a study in this process, so that it ends with it; its lines, JSON where they are JSON."""
    printed, code = _Lines(sys.stdout if echo else None), 0
    before, sys.argv = sys.argv, [module, *arguments]
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        traceback.print_exc()
        code = 1
    finally:
        sys.argv = before
    return [_parsed(line) for line in printed.getvalue().splitlines()], code


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line
