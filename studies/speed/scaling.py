"""How many units an hour, by number of processes: joblib's and Dask's beside one process.

    python -m ardvark.studies.speed.scaling                        # 1 and 2 processes, 100 units
    python -m ardvark.studies.speed.scaling --jobs 1 2 4 8 --units 400

A unit is one path of ARD steps on a partition of the leukaemia data. Each executor runs the units
twice in empty stores: once with processes that have to import and to compile, once with warm ones.
The bytes of every store are compared with those of one process. Run it on a quiet machine: the
load is told, and a table of a loaded machine says nothing of the library.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ardvark.studies.experiments import Store, Unit, experiments_of, run

__all__ = ["table"]

EXPERIMENT = "leukaemia/empty"


def table(
    units: Sequence[Unit], jobs: Sequence[int], dask: bool = True
) -> Iterator[dict[str, Any]]:
    """One row for each executor: seconds of wall time, first and warm, and whether bytes agree."""
    alone: dict[str, Any] = {}
    kinds: list[tuple[str, int]] = [("here", 1), *(("joblib", n) for n in jobs)]
    kinds += [("dask", n) for n in jobs] if dask else []
    for kind, n in kinds:
        with _executor(kind, n) as executor:
            (first, content), (warm, again) = (_timed(units, executor) for _ in range(2))
        alone = alone or {"warm": warm, "content": content}
        yield {
            "executor": kind,
            "processes": n,
            "units": len(units),
            "first_seconds": round(first, 2),
            "warm_seconds": round(warm, 2),
            "speed_up": round(alone["warm"] / warm, 2),
            "same_bytes": content == again == alone["content"],
            "load": round(os.getloadavg()[0], 1),
        }


@contextmanager
def _executor(kind: str, n: int) -> Iterator[Any]:
    if kind != "dask":
        yield None if kind == "here" else n
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def _timed(units: Sequence[Unit], executor: Any) -> tuple[float, dict[str, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run(units, Store(folder), executor)
        seconds = time.perf_counter() - begin
        return seconds, {path.name: path.read_bytes() for path in Path(folder).glob("*.json")}


def main() -> None:
    """Print a row of JSON for each executor."""
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--units", type=int, default=100)
    asked = parser.parse_args()
    experiments = {e.name: e for e in experiments_of("qi2004")[0]}
    for row in table(experiments[EXPERIMENT].units(asked.units), asked.jobs):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
