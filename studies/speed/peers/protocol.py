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


def main(methods, *packages, warm=True):
    """Run the method that the command line names and print what it took and what it found.

    A method takes the task's arrays and returns the call to time and a function that turns the
    call's result into plain numbers, which is not timed. Without `warm` there is one call only.
    """
    name, path, calls = sys.argv[1:4]
    with np.load(path) as task:
        call, answer = methods[name](**task)
    if warm:
        call()  # compiles, fills caches: not timed
    best, done, begin = (math.inf, math.inf), 0, time.process_time()
    while done < 1 or (warm and (done < int(calls) or time.process_time() - begin < LEAST_SECONDS)):
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


def kernel(X, centres, gamma):
    """exp(-gamma |x - c|²), for what is not timed."""
    squares = (X**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * X @ centres.T
    return np.exp(-gamma * np.maximum(squares, 0.0))


def gaussian_evidence(columns, t, alpha, noise):
    """Log evidence of t = columns w + noise, w_j ~ N(0, 1/alpha_j)."""
    precision = columns.T @ columns / noise**2 + np.diag(alpha)
    mean = np.linalg.solve(precision, columns.T @ t) / noise**2
    misfit = np.square((t - columns @ mean) / noise).sum() + alpha @ mean**2
    log_det = np.linalg.slogdet(precision)[1] - np.log(alpha).sum()
    return -0.5 * (len(t) * math.log(2 * math.pi * noise**2) + log_det + misfit)


def logistic_evidence(columns, t, alpha):
    """Laplace's log evidence of t in {0, 1} with logit sites, at a mode found by Newton."""
    w = np.zeros(len(alpha))
    for _ in range(200):
        p = 1.0 / (1.0 + np.exp(-columns @ w))
        precision = (columns.T * (p * (1 - p))) @ columns + np.diag(alpha)
        step = np.linalg.solve(precision, columns.T @ (t - p) - alpha * w)
        w = w + step / max(1.0, np.abs(columns @ step).max() / 2)  # never far at once
    eta = columns @ w
    fit = -np.logaddexp(0.0, np.where(t == 1, -eta, eta)).sum() - 0.5 * alpha @ w**2
    return fit + 0.5 * np.log(alpha).sum() - 0.5 * np.linalg.slogdet(precision)[1]


def best_bias(evidence, alpha):
    """The largest evidence over the last precision, for a bias that has no proper prior."""
    tried = [evidence(np.append(alpha[:-1], 10.0**power)) for power in np.arange(-6, 8, 0.1)]
    return max(tried)


def root_mean_square(values):
    """Root mean square."""
    return math.sqrt(np.mean(np.square(values)))
