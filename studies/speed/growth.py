"""How time grows with rows N, weights d and hyperparameters θ, over two decades each.

    OMP_NUM_THREADS=1 python -m ardvark.studies.speed.growth [--write FILE]

CPU seconds of a warm call on arrays, the least of several; the exponent is fitted to the upper
decade, for below it a call costs what a call costs. Expected are the operations that are counted:

| what              | in N | in d | why                                                            |
|-------------------|------|------|----------------------------------------------------------------|
| EP, one fit       | 1    | 2    | a row updates d x d numbers; N > d                             |
| Laplace, one fit  | 1    | 2    | A'WA for each Newton step; N > d                               |
| gradient of NUTS  | 1    | 1    | A z and A' slope; θ that are scales of weights cost one exp    |
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.ep.ep import EP
from ardvark.inference.known_sites import known
from ardvark.inference.known_sites.joint_density import gradient_at
from ardvark.inference.known_sites.packed import (
    Groups,
    JointDensity,
    Normals,
    Rows,
    Singles,
    Sparse,
    pack,
)
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import ProbitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.studies.speed import record

__all__ = ["GROWTHS", "Growth", "exponent", "measure"]

LEAST_SECONDS = 0.2  # of calls, for each size
MOST_CALLS = 2000


class Growth(NamedTuple):
    """One quantity that grows; `make` gives a call for a size."""

    what: str
    grows: str
    sizes: tuple[int, ...]
    expected: float
    make: Callable[[int], Callable[[], Any]]


def _probit(rows: int, weights: int) -> SiteModel:
    rng = np.random.default_rng(rows + weights)
    X = rng.normal(size=(rows, weights)) / np.sqrt(weights)
    sign = np.where(X[:, 0] + 0.5 * rng.normal(size=rows) > 0, 1.0, -1.0)
    return SiteModel(
        np.zeros(weights), X, np.zeros(rows), ProbitSites(sign), precision=np.ones(weights)
    )


def _fit(method: Any, rows: int, weights: int) -> Callable[[], Any]:
    model = _probit(rows, weights)
    return lambda: method.approximate(model)


def _gradient(rows: int, weights: int, scales: int = 1) -> Callable[[], Any]:
    """Weights in groups, each with the log of its sd in x."""
    model = _probit(rows, weights)
    sites = known.probit(np.sign(model.projection[:, 0]))
    level = np.arange(weights) % scales
    none = np.full(weights, -1)
    at = np.arange(weights, weights + scales)
    singles = known.exponential(np.ones(scales), 2.0, -0.7)
    packed = pack(JointDensity(
        Rows(model.projection, model.offset, sites.code, sites.table, np.full(rows, -1), none),
        Singles(at, singles.code, singles.table),
        Normals(Sparse(np.arange(weights + 1), np.arange(weights), np.ones(weights)),
                np.zeros(weights), np.ones(weights), level, none),
        Groups(*np.zeros((3, 0))),
        Sparse(np.arange(scales + 1), at, np.full(scales, -2.0)), np.zeros(scales), np.zeros(1),
    ))  # fmt: skip
    x = np.full(weights + scales, 0.1)
    return lambda: gradient_at(packed, x)


DECADES = (100, 316, 1000, 3162, 10_000)
GROWTHS = (
    Growth("EP, one fit", "N", DECADES, 1.0, lambda n: _fit(EP(), n, 20)),
    Growth("EP, one fit", "d", (3, 10, 30, 100, 300), 2.0, lambda d: _fit(EP(), 600, d)),
    Growth("Laplace, one fit", "N", DECADES, 1.0, lambda n: _fit(Laplace(), n, 20)),
    Growth("Laplace, one fit", "d", (3, 10, 30, 100, 300), 2.0, lambda d: _fit(Laplace(), 600, d)),
    Growth("gradient of NUTS", "N", DECADES, 1.0, lambda n: _gradient(n, 20)),
    Growth("gradient of NUTS", "d", (10, 31, 100, 316, 1000), 1.0, lambda d: _gradient(500, d)),
    Growth("gradient of NUTS", "θ", (2, 6, 20, 60, 200), 0.0, lambda k: _gradient(500, 200, k)),
)


def least_seconds(call: Callable[[], Any]) -> float:
    """CPU seconds of one call, the least of several."""
    call()
    times, begin = list[float](), time.process_time()
    while len(times) < 3 or (
        time.process_time() - begin < LEAST_SECONDS and len(times) < MOST_CALLS
    ):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def exponent(sizes: Any, seconds: Any) -> float:
    """Slope of log seconds in log size over the upper decade."""
    x, y = np.log10(np.asarray(sizes, float)), np.log10(np.asarray(seconds, float))
    upper = x >= x.max() - 1.05
    return float(np.polyfit(x[upper], y[upper], 1)[0])


def measure() -> Iterator[dict[str, Any]]:
    """Rows of the table."""
    for growth in GROWTHS:
        seconds = [least_seconds(growth.make(size)) for size in growth.sizes]
        yield {
            "what": growth.what,
            "grows": growth.grows,
            "sizes": list(growth.sizes),
            "cpu_seconds": seconds,
            "exponent": exponent(growth.sizes, seconds),
            "expected": growth.expected,
        }


def main() -> None:
    """Print the table; `--write` keeps it."""
    parser = argparse.ArgumentParser(description="Time against N, d and the number of θ.")
    parser.add_argument("--write", type=Path, help="keep the record in this file (JSON)")
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1: threads of BLAS on small arrays are noise")
    others, rows = record.Others(), list(measure())
    for row in rows:
        times = "  ".join(f"{1e3 * s:.3g}" for s in row["cpu_seconds"])
        sys.stdout.write(
            f"{row['what']:<18}{row['grows']:>3}  {row['exponent']:5.2f} ({row['expected']:g})"
            f"  ms: {times}\n"
        )
    if options.write is not None:
        record.write(options.write, "growth", rows, keys=("what", "grows"), load=others.load())


if __name__ == "__main__":
    main()
