# mypy: ignore-errors
"""What every contestant does: read a task, time a call, print one line of JSON.

    python run_name.py METHOD TASK.npz CALLS

The scripts of this folder run in the contestants' own environments (Python 3.10 or later, NumPy),
so they import nothing from the project, and the folder is not a package.
"""

import importlib.metadata
import json
import math
import sys
import time

import numpy as np

LEAST_SECONDS = 0.3  # of timed calls: a short call is made more often


def main(methods, *packages):
    """Run the method that the command line names and print what it took and what it found.

    A method takes the task's arrays and returns the call to time and a function that turns the
    call's result into plain numbers, which is not timed.
    """
    name, path, calls = sys.argv[1:4]
    with np.load(path) as task:
        call, answer = methods[name](**task)
    call()  # compiles, fills caches: not timed
    best, done, begin = (math.inf, math.inf), 0, time.process_time()
    while done < int(calls) or time.process_time() - begin < LEAST_SECONDS:
        cpu, wall = time.process_time(), time.perf_counter()
        result = call()
        best = min(best, (time.process_time() - cpu, time.perf_counter() - wall))
        done += 1
    versions = " ".join(f"{p} {importlib.metadata.version(p)}" for p in packages)
    found = {key: np.asarray(value).tolist() for key, value in answer(result).items()}
    report = {"cpu_seconds": best[0], "wall_seconds": best[1], "version": versions, **found}
    sys.stdout.write(json.dumps(report) + "\n")


def test_scores(probability, t_test):
    """Error rate and mean log probability of the test rows."""
    p = np.clip(np.ravel(probability), 1e-12, 1 - 1e-12)
    log_probability = np.where(t_test == 1, np.log(p), np.log1p(-p))
    return {
        "test_error": np.mean((p > 0.5) != (t_test == 1)),
        "test_log_probability": log_probability.mean(),
    }
