"""Speeds as ratios against named peers, all measured in one run: `make bench`.

Every case (`cases.py` says which there are) runs in fresh processes with one BLAS thread, in turns
with its rivals. Figures are CPU seconds, best of k, for wall seconds depend on what else runs; a
ratio is the peer's over Ardvark's (above 1: Ardvark is cheaper), the geometric mean over k turns
with its standard error, per step for the ARD paths, whose lengths differ, and per effective draw
for NUTS. Less than 1.5 either way is no difference. Where there is an answer, its distance from
Ardvark's in the same turn, its evidence or its test error stand beside it, for a fast wrong answer
is worth nothing.

    make bench                     all tasks, three turns
    make bench BENCH=--quick       two turns, without the peers that take a minute and more
    make bench BENCH=--resume      only the tasks that the record does not have at this commit

`--write FILE` keeps the record (machine, versions, commit, load) after each task, so that a run
that is cut loses one task; `page.py` makes a page of it. Ardvark, and the peers that can live
beside it, run in an environment with what `pip install ardvark` installs and none of its extras;
other peers are scripts in `peers/` with environments of their own. uv makes them on demand; a peer
that cannot be had says why in its line.
"""

import argparse
import compileall
import importlib.util
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ardvark.studies.speed import nuts_speed, record
from ardvark.studies.speed.cases import CASES, TASKS, US, Case, Report

__all__ = [
    "CASES",
    "ENVIRONMENTS",
    "TASKS",
    "US",
    "Case",
    "Environment",
    "Timing",
    "measure",
    "table",
]

PEERS = Path(__file__).with_name("peers")
ROOT = Path(__file__).parents[2]
PARTS = ("models", "inference", "diagnostics", "studies")  # sub-packages of ours
CALLS = 3  # timed calls in a process, at least
LONG = 30.0  # CPU seconds: such a case is run once; on a busy machine a compile takes 10
WALL_LIMIT = 600.0  # seconds; a CPU limit would make the process clock tick in milliseconds
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


class Unavailable(Exception):
    """A peer that cannot be run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python and packages: of a peer that cannot live beside Ardvark's, or Ardvark's own."""

    python: str
    packages: tuple[str, ...]
    before: tuple[str, ...] = ()  # arguments of a run of this Python that makes it ready


ENVIRONMENTS = {
    # No extras: where Dask or bambi's `sparse` are installed, xarray loads them in a first fit.
    US: Environment("3.13", ("--editable", str(ROOT)), ("-m", "ardvark.warmup")),
    "gpy": Environment("3.11", ("GPy==1.15.0",)),  # no wheels for later Pythons
    "fastrvm": Environment("3.13", ("fastrvm==0.1.5",)),  # the binding is private: exact version
    "sklearn_rvm": Environment("3.13", ("sklearn-rvm==0.1.1",)),
}


@dataclass(frozen=True, slots=True)
class Timing:
    """Best of k; `ratio` and `distance` (largest, in sd) are to Ardvark in the same task."""

    task: str
    peer: str
    version: str = ""
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    megabytes: float | None = None
    steps: int | None = None
    ratio: float | None = None
    ratio_error: float | None = None  # standard error over the turns, None of one turn
    turns: int = 0
    goal: float | None = None
    distance: float | None = None
    found: Report | None = None
    load: float | None = None
    note: str = ""

    @property
    def cpu_per_step(self) -> float | None:
        """CPU seconds per step, where there are steps."""
        return None if self.cpu_seconds is None or not self.steps else self.cpu_seconds / self.steps


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things are: uv, the folder of environments, the folder of task files."""

    uv: str | None
    tools: Path
    scratch: Path

    def command(self, index: int) -> list[str]:
        """The command line of a case; Unavailable if it cannot be run here."""
        case = CASES[index]
        if not PEERS.joinpath("run_ardvark.py").exists():
            raise Unavailable("the bench needs a checkout, with its peers and what they run in")
        python = self.python(case.script if case.script in ENVIRONMENTS else US)
        if case.run is not None:
            look = f"import importlib.util as u, sys; sys.exit(not u.find_spec({case.needs!r}))"
            if subprocess.run([python, "-c", look], check=False).returncode:
                raise Unavailable(f"{case.needs} is not installed beside Ardvark")
            return [python, "-m", "ardvark.studies.speed.cases", str(index)]
        script = PEERS / f"run_{case.script}.py"
        return [python, str(script), case.method, str(self.task_file(case.workload)), str(CALLS)]

    def python(self, name: str) -> str:
        """The Python of a peer's environment, which is made if it is not there."""
        environment, home = ENVIRONMENTS[name], self.tools / f"peers-{name}"
        python, stamp = home / "bin" / "python", home / "ready"
        wanted = f"{environment.python} {' '.join(environment.packages)}"
        if not (stamp.exists() and stamp.read_text() == wanted):
            if self.uv is None:
                raise Unavailable("uv was not found to install it: run `make bench`, or give --uv")
            make = [self.uv, "venv", "--quiet", "--clear", "--python", environment.python]
            install = [self.uv, "pip", "install", "--quiet", "--compile-bytecode"]
            install += ["--python", str(python)]
            steps = {"venv": [*make, str(home)], "pip install": [*install, *environment.packages]}
            if environment.before:
                steps["warm-up"] = [str(python), *environment.before]
            for what, command in steps.items():
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise Unavailable(f"{what} failed: {short(done.stderr)}")
            stamp.write_text(wanted)
        return str(python)

    def task_file(self, workload: tuple[Any, ...]) -> Path:
        """The arrays of a task, the same bytes for every contestant."""
        path = self.scratch / f"{'-'.join(map(str, workload))}.npz"
        if not path.exists():
            import numpy as np

            from ardvark.studies.workloads import WORKLOADS

            np.savez(path, **WORKLOADS[workload[0]](*workload[1:])._asdict())
        return path


def short(text: str, length: int = 160) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:length] if lines else "no message"


def run_once(command: Sequence[str], turn: int = 0) -> Report:
    """Run one fresh process; unless it timed itself, it is timed as a whole."""
    from ardvark.inference.running.processes import end_with_parent

    start = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **ONE_THREAD, nuts_speed.REPEAT: str(turn)},
            preexec_fn=partial(end_with_parent, os.getpid()),
        ) as child,
    ):
        assert child.stdout is not None
        timer = threading.Timer(WALL_LIMIT, child.kill)
        timer.start()
        text = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if child.returncode != 0:
            reason = short(errors.read())
            raise Unavailable(f"failed with exit code {child.returncode}: {reason}")
    peak = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    whole = {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "wall_seconds": time.perf_counter() - start,
        "megabytes": peak,
    }
    return {**whole, **json.loads(text.splitlines()[-1])}


def measure(cases: Sequence[int], repeats: int, bench: Bench) -> list[Timing]:
    """Time each case, the rivals of a task in turns; one that cannot be run gets a note."""
    reports: dict[int, list[Report]] = {index: [] for index in cases}
    notes: dict[int, str] = {}
    for task in dict.fromkeys(CASES[index].task for index in cases):
        for turn in range(repeats):
            for index in (i for i in cases if CASES[i].task == task and i not in notes):
                if any(report["cpu_seconds"] > LONG for report in reports[index]):
                    continue
                try:
                    report = run_once(bench.command(index), turn)
                except Unavailable as reason:
                    notes[index] = f"not available: {reason}"
                    reports[index].clear()
                    continue
                reports[index].append({**report, "load": os.getloadavg()[0]})
    ours = {CASES[i].task: reports[i] for i in cases if CASES[i].peer == US}
    return [_line(CASES[i], reports[i], ours, notes.get(i, "")) for i in cases]


def _line(
    case: Case, reports: Sequence[Report], ours: dict[str, list[Report]], note: str
) -> Timing:
    """One case over its turns: the best report, ratios and distance turn by turn."""
    best = {task: _best(turns) for task, turns in ours.items() if turns}
    line = timing(case, _best(reports) if reports else None, best, note)
    if line.ratio is None:
        return line
    own = ours[case.task]
    costs = [[cost(report, case) for report in turns] for turns in (reports, own)]
    line = replace(line, **ratio_over_turns(*costs))
    if line.distance is not None:  # a turn may have its own data set
        apart = [distance(*pair) for pair in zip(reports, own, strict=False)]
        line = replace(line, distance=max(apart))
    return line


def _best(reports: Sequence[Report]) -> Report:
    return min(reports, key=lambda report: float(report["cpu_seconds"]))


def distance(report: Report, own: Report) -> float:
    """Largest difference of means, in our standard deviations."""
    triples = zip(report["mean"], own["mean"], own["sd"], strict=True)
    return float(max(abs(m - r) / s for m, r, s in triples))


def ratio_over_turns(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, Any]:
    """Geometric mean of the ratios of each turn, and its standard error."""
    logs = [math.log(t / o) for t, o in zip(theirs, ours, strict=False)]
    ratio, error = math.exp(statistics.fmean(logs)), None
    if len(logs) > 1:
        error = ratio * statistics.stdev(logs) / math.sqrt(len(logs))
    return {"ratio": ratio, "ratio_error": error, "turns": len(logs)}


def timing(case: Case, report: Report | None, ours: dict[str, Report], note: str) -> Timing:
    """One line of the table: a case beside Ardvark in the same task."""
    if report is None:
        return Timing(case.task, case.peer, goal=case.goal, note=note)
    own = ours.get(case.task)
    ratio = apart = None
    if own is None:
        note = "Ardvark has no figure here"
    elif case.peer != US:
        ratio = cost(report, case) / cost(own, case)
        if "mean" in report:
            apart = distance(report, own)
    timed = ("cpu_seconds", "wall_seconds", "megabytes", "version", "steps", "mean", "sd", "load")
    return Timing(
        case.task,
        case.peer,
        report.get("version", ""),
        report["cpu_seconds"],
        report["wall_seconds"],
        report["megabytes"],
        report.get("steps"),
        ratio,
        goal=case.goal,
        distance=apart,
        found={key: value for key, value in report.items() if key not in timed},
        load=report.get("load"),
        note=note or ("" if report.get("converged", True) else "not converged"),
    )


def cost(report: Report, case: Case) -> float:
    """CPU seconds, per step where that is what is compared."""
    return float(report["cpu_seconds"]) / ((report.get("steps") or 1) if case.per_step else 1)


COLUMNS: tuple[tuple[str, int, str, Callable[[Timing], float | None]], ...] = (
    ("cpu ms", 10, ".4g", lambda t: scaled(t.cpu_seconds)),
    ("steps", 7, "d", lambda t: t.steps),
    ("ms / step", 11, ".3f", lambda t: scaled(t.cpu_per_step)),
    ("ratio", 9, ".3g", lambda t: t.ratio),
    ("±", 7, ".1g", lambda t: t.ratio_error),
    ("goal", 7, ".3g", lambda t: t.goal),
    ("max |Δ|/sd", 12, ".1e", lambda t: t.distance),
    ("log evidence", 14, ".4f", lambda t: (t.found or {}).get("log_evidence")),
    ("test error", 12, ".4f", lambda t: (t.found or {}).get("test_error")),
    ("peak MB", 9, ".0f", lambda t: t.megabytes),
)


def scaled(seconds: float | None) -> float | None:
    """Milliseconds."""
    return None if seconds is None else 1e3 * seconds


def table(timings: Sequence[Timing]) -> str:
    """Set the timings as plain text, one task after the other."""
    names = max(len(text) for text in ("task", *(t.task for t in timings))) + 2
    head = f"{'task':<{names}}{'peer':<25}" + "".join(f"{c[0]:>{c[1]}}" for c in COLUMNS)
    lines = [head, "-" * len(head)]
    for t in timings:
        line = f"{t.task:<{names}}{t.peer:<25}"
        for _, width, form, value in COLUMNS:
            number = value(t)
            line += f"{'' if number is None else format(number, form):>{width}}"
        if t.ratio is not None and t.goal is not None:
            line += "  goal met" if t.ratio >= t.goal else "  GOAL MISSED"
        lines.append(f"{line}  {t.note}".rstrip())
    return "\n".join(lines)


def main() -> None:
    """Command line: the table, or JSON lines with `--json`."""
    parser = argparse.ArgumentParser(description="Speeds as ratios against named peers.")
    parser.add_argument("--json", action="store_true", help="one JSON object per case")
    parser.add_argument("--repeats", type=int, help="turns; three, or two of a quick run")
    parser.add_argument(
        "--quick", action="store_true", help="without the peers that take a minute and more"
    )
    parser.add_argument(
        "--resume", action="store_true", help="only what the record does not have at this commit"
    )
    parser.add_argument("--task", choices=TASKS, action="append", help="only this task, or these")
    parser.add_argument("--uv", default=shutil.which("uv"), help="makes the peers' environments")
    parser.add_argument("--tools", type=Path, default=Path(".tools"), help="where they are kept")
    parser.add_argument("--write", type=Path, help="keep the record in this file (JSON)")
    options = parser.parse_args()
    repeats = options.repeats or (2 if options.quick else 3)
    before, timings = os.getloadavg()[0], list[Timing]()
    done = _done(options.write) if options.resume else set()
    _to_bytecode()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options.uv, options.tools, Path(scratch))
        for task in options.task or TASKS:
            cases = [i for i, c in enumerate(CASES) if c.task == task]
            cases = [i for i in cases if not (options.quick and CASES[i].long)]
            if {(task, CASES[i].peer) for i in cases} <= done:
                continue
            others, found = record.Others(), measure(cases, repeats, bench)
            timings += found
            if options.write is not None:
                rows = [asdict(t) for t in found]
                load = others.load()
                record.write(options.write, "bench", rows, keys=("task", "peer"), load=load)
    lines = [json.dumps(asdict(t)) for t in timings]
    if not options.json:
        load_now = f"{before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores"
        lines = [table(timings), f"load: {load_now}; best of {repeats} processes"]
        if resource.getrlimit(resource.RLIMIT_CPU)[0] != resource.RLIM_INFINITY:
            lines.append("a CPU limit is set (ulimit -t): short calls may be wrong by milliseconds")
    sys.stdout.write("\n".join(lines) + "\n")


def _to_bytecode() -> None:
    """Compile our modules to bytecode, as those of an installed package are: the peers' are."""
    for name in ("ardvark", *(f"ardvark.{part}" for part in PARTS)):
        found = importlib.util.find_spec(name)
        for folder in (found.submodule_search_locations or []) if found is not None else []:
            compileall.compile_dir(folder, quiet=2)


def _done(path: Path | None) -> set[tuple[str, str]]:
    """Tasks and peers whose rows in the record are of this commit."""
    rows = record.read(path).get("bench", []) if path is not None else []
    now = record.machine()["commit"]
    return {(row["task"], row["peer"]) for row in rows if row["measured"]["commit"] == now}


if __name__ == "__main__":
    main()
