"""Speeds as ratios against named peers, all measured in one run: `make bench`.

Every case runs in fresh processes with one BLAS thread, in turns with its rivals. Figures are CPU
seconds, best of k, for wall seconds depend on what else runs; a ratio is the peer's over Ardvark's
(above 1: Ardvark is cheaper), the geometric mean over k turns with its standard error, per step for
the ARD paths, whose lengths differ, and per effective draw for NUTS. Less than 1.5 either way is no
difference. Where there is an answer, its distance from Ardvark's,
its evidence or its test error stand beside it, for a fast wrong answer is worth nothing.

    ep              probit, N = 500, d = 50, w ~ N(0, I): one call, compiled and warm. GPy works in
                    function space; the bare loop is what EP's sweeps cost without any check.
    evidence ard    from an empty model to the end, N = 36, d = 7129 and 62 x 2000, warm. fastrvm's
                    SparseBayes is private, and by Laplace with logit sites.
    whole ard path  the same to the end: ours stops when no step gains 1e-3 nats, fastrvm by its own
                    rule; whole costs, with the test errors of both
    predictive path the same path, then the step of least leave-one-out error; against ten
                    optimiser steps of GPy's EP with a linear ARD kernel, far from converged.
    rvm regression  sinc, a kernel at each of N rows and a bias: the whole call of an estimator, its
                    kernel too. One function gives every contestant's evidence at what it found.
    rvm classification  the same with two classes in the plane, logit and Laplace
    first laplace   logit, N = 500, d = 50, w ~ N(0, I): mean and covariance of the weights, import
                    and compilation included. scikit-learn finds the mode and the covariance is
                    made by hand (no draws, no evidence, no tree); the others return a whole result.
    svm evidence    trigonometric SVM, ARD Gaussian covariance, N = 400, d = 13, one start, warm;
                    the Gaussian process classifiers of scikit-learn (logit) and GPy (probit) with
                    the same kernel, by Laplace and their own optimisers.
    first svm evidence  the same as the first fit of a process that has loaded its modules
    nuts            effective draws of the worst weight (`nuts_speed.py`), as steps
    import          what `import package` costs

`--write FILE` keeps the record (machine, versions, commit, load), `page.py` makes a page of it.
All but the last two are scripts in `peers/`, each run by the Python of its own environment: those
of the peers are made on demand by uv, and a peer that cannot be had says why in its line.
"""

import argparse
import importlib
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ardvark.studies.speed import nuts_speed, record

__all__ = ["CASES", "ENVIRONMENTS", "TASKS", "Case", "Environment", "Timing", "measure", "table"]

type Report = dict[str, Any]  # cpu_seconds, wall_seconds and whatever the contestant found

US = "ardvark"
PEERS = Path(__file__).with_name("peers")
CALLS = 3  # timed calls in a process, at least
LONG = 10.0  # CPU seconds: such a case is run once
WALL_LIMIT = 600.0  # seconds; a CPU limit would make the process clock tick in milliseconds
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


class Unavailable(Exception):
    """A peer that cannot be run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A peer's own Python and packages, for those that cannot live beside Ardvark's."""

    python: str
    packages: tuple[str, ...]


ENVIRONMENTS = {
    "gpy": Environment("3.11", ("GPy==1.15.0",)),  # no wheels for later Pythons
    "fastrvm": Environment("3.13", ("fastrvm==0.1.5",)),  # the binding is private: exact version
    "sklearn_rvm": Environment("3.13", ("sklearn-rvm==0.1.1",)),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One contestant in one task.

    Parameters
    ----------
    run
        Timed as a whole process, import included; it `needs` a package of this environment.
    script, method, workload
        Instead: `peers/run_<script>.py` times this method on a warm call, for this workload and
        its arguments.
    per_step
        Whether the ratio is one of costs per step.
    goal
        Least ratio that Ardvark is meant to reach against this peer.
    """

    task: str
    peer: str
    run: Callable[[], Report] | None = None
    needs: str = US
    script: str = ""
    method: str = ""
    workload: tuple[Any, ...] = ()
    per_step: bool = True
    goal: float | None = None


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


def laplace_ardvark() -> Report:
    """Fit the model of `av.models`."""
    import ardvark as av
    from ardvark.studies.workloads import sparse_probit

    task = sparse_probit()
    alpha = [1.0] * task.X.shape[1]
    model = av.models.ard_classification(task.X, task.t, link="logit", bias=False, alpha=alpha)
    return gaussian_answer(av.fit(model, av.Laplace(), random_seed=1, progressbar=False))


def laplace_sklearn() -> Report:
    """Mode by scikit-learn, covariance by hand: inverse of X' diag(p (1 - p)) X + I."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from ardvark.studies.workloads import sparse_probit

    task = sparse_probit()
    fit = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8, max_iter=1000)
    fit.fit(task.X, task.t)
    p = fit.predict_proba(task.X)[:, 1]
    precision = (task.X * (p * (1 - p))[:, None]).T @ task.X + np.eye(task.X.shape[1])
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    return {"mean": fit.coef_[0].tolist(), "sd": sd.tolist()}


def laplace_pymc_extras() -> Report:
    """`fit_laplace` on the same graph as a PyMC user writes it."""
    import pymc as pm

    from ardvark.studies.workloads import sparse_probit

    pmx = importlib.import_module("pymc_extras")  # no dependency of ours, so unknown to mypy
    task = sparse_probit()
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0, shape=task.X.shape[1])
        pm.Bernoulli("t", logit_p=task.X @ w, observed=task.t)
    return gaussian_answer(pmx.fit_laplace(model=model, progressbar=False, random_seed=1))


def gaussian_answer(tree: Any) -> Report:
    """Mean and sd of the weights from a tree's `fit` group."""
    import numpy as np

    fit = tree["fit"]
    sd = np.sqrt(np.diag(fit["covariance_matrix"].values))
    return {"mean": fit["mean_vector"].values.tolist(), "sd": sd.tolist()}


def import_only(package: str) -> Callable[[], Report]:
    """Make a case that imports one package."""

    def run() -> Report:
        importlib.import_module(package)
        return {}

    return run


def chu2006() -> Any:
    """The study with the speeds of the trigonometric SVM."""
    return importlib.import_module("ardvark.studies.papers.chu2006")


def ard_cases(rows: int, features: int) -> Iterable[Case]:
    """Both ARD tasks at one shape."""
    data = ("wide", rows, features)
    name, method = f"evidence ard {rows} x {features}", "evidence_ard"
    yield Case(name, US, script="ardvark", method=method, workload=data)
    yield Case(name, "fastrvm", script="fastrvm", method=method, workload=data, goal=1.0)
    name = f"whole ard path {rows} x {features}"
    yield Case(name, US, None, US, "ardvark", "whole_path", data, per_step=False)
    yield Case(name, "fastrvm", None, US, "fastrvm", method, data, per_step=False, goal=1 / 3)
    name, method = f"predictive path {rows} x {features}", "predictive_path"
    yield Case(name, US, script="ardvark", method=method, workload=data)
    yield Case(name, "GPy", script="gpy", method=method, workload=data, goal=5.0)


def rvm_cases(kind: str, data: str, rows: int, goal: float | None = None) -> Iterable[Case]:
    """The relevance vector machine on so many rows; sklearn-rvm where there is a goal."""
    name, task, method = f"rvm {kind} {rows}", (data, rows), f"rvm_{kind}"
    peers = {US: None, "fastrvm": goal} | ({} if goal is None else {"sklearn-rvm": 50.0})
    for peer, least in peers.items():
        script = peer.replace("-", "_")
        yield Case(name, peer, None, US, script, method, task, per_step=False, goal=least)


def nuts_cases(task: str) -> Iterable[Case]:
    """NUTS with everything from `av.fit`, against nutpie with and without its compile."""
    yield Case(task, US, nuts_speed.nuts_ardvark(task))
    for peer, compiles, goal in (("nutpie, compile counted", True, 5.0), ("nutpie", False, 0.5)):
        yield Case(task, peer, nuts_speed.nuts_nutpie(task, compiles), "nutpie", goal=goal)


PROBIT = ("sparse_probit", 500, 50)
CURVED = ("curved", 400, 13)
CASES = (
    Case("ep", US, script="ardvark", method="ep", workload=PROBIT),
    Case("ep", "bare loop", script="bare_loop", method="ep", workload=PROBIT, goal=1 / 1.5),
    Case("ep", "GPy", script="gpy", method="ep", workload=PROBIT, goal=100.0),
    *ard_cases(36, 7129),
    *ard_cases(62, 2000),
    *rvm_cases("regression", "sinc", 500),
    *rvm_cases("regression", "sinc", 1000),
    *rvm_cases("regression", "sinc", 2000, goal=2.0),
    *rvm_cases("regression", "sinc", 4000),
    *rvm_cases("classification", "ripley", 1000, goal=2.0),
    Case("first laplace", US, laplace_ardvark),
    Case("first laplace", "scikit-learn", laplace_sklearn, "sklearn"),
    Case("first laplace", "pymc-extras", laplace_pymc_extras, "pymc_extras"),
    Case("svm evidence", US, lambda: chu2006().speed_ardvark()),
    Case("svm evidence", "scikit-learn", lambda: chu2006().speed_sklearn(), "sklearn", goal=5.0),
    Case("svm evidence", "GPy", script="gpy", method="svm_evidence", workload=CURVED, goal=5.0),
    Case("first svm evidence", US, lambda: chu2006().speed_ardvark(first=True)),
    Case(
        "first svm evidence", "scikit-learn", lambda: chu2006().speed_sklearn(), "sklearn", goal=5.0
    ),
    *(case for task in nuts_speed.TASKS for case in nuts_cases(task)),
    Case("import", US, import_only(US)),
    Case("import", "numpy", import_only("numpy"), "numpy"),
    Case("import", "pymc", import_only("pymc"), "pymc"),
)
TASKS = tuple(dict.fromkeys(case.task for case in CASES))


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things are: uv, the folder of environments, the folder of task files."""

    uv: str | None
    tools: Path
    scratch: Path

    def command(self, index: int) -> list[str]:
        """The command line of a case; Unavailable if it cannot be run here."""
        case = CASES[index]
        if case.run is not None:
            if importlib.util.find_spec(case.needs) is None:
                raise Unavailable(f"{case.needs} is not installed beside Ardvark")
            return [sys.executable, "-m", "ardvark.studies.speed.bench", "--case", str(index)]
        script = PEERS / f"run_{case.script}.py"
        if not script.exists():
            raise Unavailable(f"{script.name} is part of a checkout, not of the package")
        python = self.python(case.script) if case.script in ENVIRONMENTS else sys.executable
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
            install = [self.uv, "pip", "install", "--quiet", "--python", str(python)]
            for command in ([*make, str(home)], [*install, *environment.packages]):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise Unavailable(f"{command[1]} failed: {short(done.stderr)}")
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
    best: dict[int, Report] = {}
    costs: dict[int, list[float]] = {index: [] for index in cases}
    notes: dict[int, str] = {}
    loads: dict[int, float] = {}
    for task in dict.fromkeys(CASES[index].task for index in cases):
        for turn in range(repeats):
            for index in (i for i in cases if CASES[i].task == task and i not in notes):
                if best.get(index, {}).get("cpu_seconds", 0.0) > LONG:
                    continue
                try:
                    report = run_once(bench.command(index), turn)
                except Unavailable as reason:
                    notes[index] = f"not available: {reason}"
                    best.pop(index, None)
                    continue
                loads[index] = os.getloadavg()[0]
                costs[index].append(cost(report, CASES[index]))
                if report["cpu_seconds"] < best.get(index, report)["cpu_seconds"] + 1e-12:
                    best[index] = report
    ours = {CASES[index].task: best[index] for index in best if CASES[index].peer == US}
    own = {CASES[index].task: costs[index] for index in cases if CASES[index].peer == US}
    lines = []
    for index in cases:
        case = CASES[index]
        line = timing(case, best.get(index), ours, notes.get(index, ""), loads.get(index))
        if line.ratio is not None:
            line = replace(line, **ratio_over_turns(costs[index], own[case.task]))
        lines.append(line)
    return lines


def ratio_over_turns(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, Any]:
    """Geometric mean of the ratios of each turn, and its standard error."""
    logs = [math.log(t / o) for t, o in zip(theirs, ours, strict=False)]
    ratio, error = math.exp(statistics.fmean(logs)), None
    if len(logs) > 1:
        error = ratio * statistics.stdev(logs) / math.sqrt(len(logs))
    return {"ratio": ratio, "ratio_error": error, "turns": len(logs)}


def timing(
    case: Case, report: Report | None, ours: dict[str, Report], note: str, load: float | None
) -> Timing:
    """One line of the table: a case beside Ardvark in the same task."""
    if report is None:
        return Timing(case.task, case.peer, goal=case.goal, note=note)
    own = ours.get(case.task)
    ratio = distance = None
    if own is None:
        note = "Ardvark has no figure here"
    elif case.peer != US:
        ratio = cost(report, case) / cost(own, case)
        if "mean" in report:
            triples = zip(report["mean"], own["mean"], own["sd"], strict=True)
            distance = max(abs(m - r) / s for m, r, s in triples)
    timed = ("cpu_seconds", "wall_seconds", "megabytes", "version", "steps", "mean", "sd")
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
        distance=distance,
        found={key: value for key, value in report.items() if key not in timed},
        load=load,
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
    parser.add_argument(
        "--repeats", type=int, default=3, help="processes per case; the best counts"
    )
    parser.add_argument("--task", choices=TASKS, action="append", help="only this task, or these")
    parser.add_argument("--uv", default=shutil.which("uv"), help="makes the peers' environments")
    parser.add_argument("--tools", type=Path, default=Path(".tools"), help="where they are kept")
    parser.add_argument("--write", type=Path, help="keep the record in this file (JSON)")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        run = CASES[options.case].run
        sys.stdout.write(json.dumps(run() if run is not None else {}) + "\n")
        return
    chosen = [i for i, c in enumerate(CASES) if c.task in (options.task or TASKS)]
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options.uv, options.tools, Path(scratch))
        timings = measure(chosen, options.repeats, bench)
    if options.write is not None:
        rows = [asdict(t) for t in timings]
        record.write(options.write, "bench", rows, keys=("task", "peer"), load=before)
    lines = [json.dumps(asdict(t)) for t in timings]
    if not options.json:
        load = f"{before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores"
        lines = [table(timings), f"load: {load}; best of {options.repeats} processes"]
        if resource.getrlimit(resource.RLIMIT_CPU)[0] != resource.RLIM_INFINITY:
            lines.append("a CPU limit is set (ulimit -t): short calls may be wrong by milliseconds")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
