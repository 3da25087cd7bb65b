"""Many fits at once: how many times faster two processors are than one.

    python -m ardvark.studies.speed.two_cores --write studies/results/bench.json

Every loop of many fits in turns: without an executor on one processor (bound to it, since machine
code in threads would take both), and on two processes. Processes are started by a short run before.
The ratio of wall seconds is at most 2, and at least 1.8 is meant. It is of the machine as much as
of the library, so only a quiet one says anything.

`--report` times the command `ardvark report wdbc` as a whole, with what its page says of the fits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ardvark.studies.speed import record

__all__ = ["LOOPS", "TURNS", "measure", "time_report"]

TURNS = 2

Loop = Callable[[int, int], Any]  # how many fits, how many processes


def _task(rows: int, inputs: int) -> tuple[Any, Any, Any]:
    """A probit model and its data; the seed is fixed."""
    import numpy as np

    import ardvark as av

    rng = np.random.default_rng(19)
    X = rng.normal(size=(rows, inputs))
    t = (X[:, 0] + X[:, 1] + rng.normal(size=rows) > 0).astype(int)
    return av.models.ard_classification(X, t), X, t


def _fit(count: int, processes: int) -> Any:
    import ardvark as av

    model, _, t = _task(200, 20)
    data = [{"t_observed": (t + k) % 2} for k in range(count)]
    ep = av.EP(hyper=av.Fixed({"alpha": [1.0] * 20, "alpha_bias": 1.0}))
    return av.fit(model, ep, data=data, random_seed=1, progressbar=False, executor=processes)


def _sbc(count: int, processes: int) -> Any:
    import ardvark as av

    model, _, _ = _task(100, 10)
    return av.sbc(model, "ep", count, random_seed=1, executor=processes)


def _stability(count: int, processes: int) -> Any:
    import ardvark as av

    _, X, t = _task(200, 20)
    return av.diagnostics.stability(
        "ard_classification", (X, t), resamples=count, progressbar=False, executor=processes
    )


def _select_features(count: int, processes: int) -> Any:
    import ardvark as av

    _, X, t = _task(200, 8)
    return av.select_features(
        X, t, starts=count, most=2, random_seed=1, progressbar=False, executor=processes
    )


def _loo(count: int, processes: int) -> Any:
    import ardvark as av
    from ardvark.diagnostics.compare.loo import refit_rows

    model, _, _ = _task(count, 10)
    held = av.Fixed({"alpha": [1.0] * 10, "alpha_bias": 1.0})
    tree = av.fit(model, av.EP(hyper=held), random_seed=1, progressbar=False)
    return refit_rows(model, tree, executor=processes)


def _search_gamma(count: int, processes: int) -> Any:
    import numpy as np

    import ardvark as av

    _, X, t = _task(150, 5)
    model = av.models.sample_feature_classification(X, t)
    gammas = tuple(np.geomspace(0.05, 2.0, count))
    return av.search_gamma(model, av.VB(starts=1), gammas=gammas, executor=processes)


# What is timed, and how many fits: several seconds on one processor.
LOOPS: dict[str, tuple[Loop, int]] = {
    "fit(data=[...])": (_fit, 200),
    "sbc": (_sbc, 3000),
    "stability": (_stability, 120),
    "select_features": (_select_features, 80),
    "leave-one-out by refits": (_loo, 300),
    "search_gamma": (_search_gamma, 48),
}


@contextmanager
def one_processor() -> Iterator[None]:
    """Bind this thread, and those that it starts, to a single processor."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def measure(name: str, count: int | None = None) -> dict[str, Any]:
    """Best wall seconds on one processor and on two, and their ratio."""
    loop, usual = LOOPS[name]
    fits = count or usual
    seconds = dict[int, float]()
    for turn in range(TURNS + 1):  # the first starts processes and compiles
        for processes in (1, 2):
            begin = time.perf_counter()
            with one_processor() if processes == 1 else nullcontext():
                loop(fits if turn else 4, processes)
            if turn:
                took = time.perf_counter() - begin
                seconds[processes] = min(took, seconds.get(processes, took))
    return {
        "loop": name,
        "fits": fits,
        "seconds": [seconds[1], seconds[2]],
        "speed_up": seconds[1] / seconds[2],
    }


def time_report(data: str = "wdbc") -> dict[str, Any]:
    """Wall seconds of the command, and of each fit by its own page."""
    command = ["ardvark", "report", data]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        program = Path(sys.executable).with_name(command[0])
        begin = time.perf_counter()
        done = subprocess.run(
            [program, *command[1:], "--out", page], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - begin
        numbers = json.loads(page.with_suffix(".json").read_text())
    return {
        "command": " ".join(command),
        "wall_seconds": seconds,
        "exit_code": done.returncode,
        "fits": numbers["header"]["Wall time"],
        "reference": numbers["header"]["Reference"],
        "verdict": numbers["verdict"]["sentence"],
    }


def _rows(names: list[str]) -> Iterator[tuple[dict[str, Any], float]]:
    for name in names:
        others = record.Others()
        row = measure(name)
        yield row, others.load()


def main() -> None:
    """A line for each loop; `--write` keeps the rows."""
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--loop", choices=list(LOOPS), action="append")
    parser.add_argument("--report", action="store_true", help="time `ardvark report wdbc` instead")
    asked = parser.parse_args()
    if asked.report:
        others, row = record.Others(), time_report()
        sys.stdout.write(f"{json.dumps(row, indent=1)}\nload {others.load():.2f}\n")
        if asked.write is not None:
            record.write(asked.write, "commands", [row], keys=("command",), load=others.load())
        return
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1: BLAS would use both processors in one process")
    warnings.simplefilter("ignore")
    for row, load in _rows(asked.loop or list(LOOPS)):
        one, two = row["seconds"]
        sys.stdout.write(
            f"{row['loop']:<26}{row['fits']:>5} fits {one:7.2f} s {two:7.2f} s "
            f"{row['speed_up']:6.2f} x   load {load:.2f}\n"
        )
        sys.stdout.flush()
        if asked.write is not None:
            record.write(asked.write, "two_cores", [row], keys=("loop",), load=load)


if __name__ == "__main__":
    main()
