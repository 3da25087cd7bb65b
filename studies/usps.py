"""Handwritten digits (U.S.P.S.): ten classes, 7291 rows of 256 grey values, 2007 to be read.

    python -m ardvark.studies.usps                      # all rows: error, vectors, CPU, memory
    python -m ardvark.studies.usps --rows 1000          # the first rows only: seconds
    python -m ardvark.studies.usps --widths 2.5 5 10    # choose the width on training rows

`av.sklearn.RVC` with a Gaussian kernel: ten machines, each of one digit against the rest, their
probabilities divided by their sum. The kernel at all pairs of rows would take 425 MB; its columns
are made when they are needed instead, and the ten machines share every pass over them.

Grey values are put on [-1, 1]. The width was chosen on training rows (`--widths`): machines of the
first 2000 rows, judged by their errors on rows 5001 to 7000. Tipping's table gives no width.

|                    | error | vectors |
|--------------------|-------|---------|
| SVM (Tipping 2001) | 4.4 % | 2540    |
| RVM (Tipping 2001) | 5.1 % | 316     |
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ardvark.models.datasets import load
from ardvark.models.kernels import RBF
from ardvark.sklearn import RVC

__all__ = ["PUBLISHED", "WIDTH", "choose_width", "replicate"]

PUBLISHED = {"svm": (4.4, 2540), "rvm": (5.1, 316)}  # per cent of the test rows, vectors
WIDTH = 5.0  # in units of grey values on [-1, 1]
TOLERANCE = 0.1  # nats: a vector that gains less is not worth its place
FIT, JUDGE = slice(0, 2000), slice(5000, 7000)  # training rows that choose a width


def digits() -> tuple[Any, Any, Any, Any]:
    """Training rows and labels, test rows and labels."""
    data = load("usps")
    X, split = 2.0 * np.asarray(data.X, float) - 1.0, data.splits[0]
    return X[split.train], data.t[split.train], X[split.test], data.t[split.test]


def replicate(rows: int | None = None, width: float = WIDTH) -> dict[str, Any]:
    """Fit the first training rows (all by default) and read the test rows."""
    X, t, X_test, t_test = digits()
    begin = time.process_time()
    machine = RVC(RBF(width=width), tolerance=TOLERANCE).fit(X[:rows], t[:rows])
    fitted = time.process_time()
    chances = machine.predict_proba(X_test)
    error = float(np.mean(machine.classes_[chances.argmax(axis=1)] != t_test))
    by_class = np.count_nonzero(machine.dual_coef_, axis=1)
    return {
        "rows": len(X[:rows]),
        "width": width,
        "error": 100.0 * error,
        "standard_error": 100.0 * float(np.sqrt(error * (1.0 - error) / len(t_test))),
        "log_loss": float(-np.log(chances[np.arange(len(t_test)), t_test]).mean()),
        "vectors": int(by_class.sum()),
        "distinct_vectors": len(machine.relevance_),
        "vectors_by_class": by_class.tolist(),
        "log_evidence": np.asarray(machine.log_evidence_).tolist(),
        "cpu_fit": fitted - begin,
        "cpu_predict": time.process_time() - fitted,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }


def choose_width(widths: Sequence[float]) -> dict[float, float]:
    """Errors in per cent on training rows that the machines of each width have not seen."""
    X, t, _, _ = digits()
    errors = {}
    for width in widths:
        machine = RVC(RBF(width=width), tolerance=TOLERANCE).fit(X[FIT], t[FIT])
        errors[width] = 100.0 * float(np.mean(machine.predict(X[JUDGE]) != t[JUDGE]))
    return errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures as JSON, beside the published ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="training rows; all by default")
    parser.add_argument("--width", type=float, default=WIDTH)
    parser.add_argument("--widths", type=float, nargs="+", help="only compare these")
    options = parser.parse_args(arguments)
    if options.widths:
        answer: dict[str, Any] = {"validation_error": choose_width(options.widths)}
    else:
        answer = {"found": replicate(options.rows, options.width), "published": PUBLISHED}
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
