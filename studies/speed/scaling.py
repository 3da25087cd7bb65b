"""How many units an hour, by number of processes: joblib's and Dask's beside one process.

    python -m ardvark.studies.speed.scaling                        # 1 and 2 processes, 100 units
    python -m ardvark.studies.speed.scaling --jobs 1 2 4 8 --units 400
    python -m ardvark.studies.speed.scaling --write                # the table of the site

A unit is one path of ARD steps on a partition of the leukaemia data. Each executor runs the units
twice in empty stores: once with processes that have to import and to compile, once with warm ones.
The bytes of every store are compared with those of one process. Run it on a quiet machine: what
others used of it is told, and a table of a loaded machine says nothing of the library.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ardvark.diagnostics.storage.atomic import write_text
from ardvark.studies.experiments import Store, Unit, experiments_of, run
from ardvark.studies.speed.record import Others, machine

__all__ = ["measure", "table"]

EXPERIMENT = "leukaemia/empty"
TABLE = Path(__file__).parents[1] / "results" / "tables" / "scaling.json"
COLUMNS = {  # of the table of the site
    "executor": "executor",
    "processes": "processes",
    "first_seconds": "seconds, first run",
    "warm_seconds": "seconds, warm",
    "speed_up": "speed-up, warm",
    "load": "processors that others kept busy",
}


def measure(
    units: Sequence[Unit], jobs: Sequence[int], dask: bool = True
) -> Iterator[dict[str, Any]]:
    """One row for each executor: seconds of wall time, first and warm, and whether bytes agree."""
    alone: dict[str, Any] = {}
    kinds: list[tuple[str, int]] = [("here", 1), *(("joblib", n) for n in jobs)]
    kinds += [("dask", n) for n in jobs] if dask else []
    for kind, n in kinds:
        others = Others()
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
            "load": round(others.load(), 1),
        }


def table(rows: Sequence[Mapping[str, Any]], command: str) -> dict[str, Any]:
    """The file of the site: the rows as text, and what they were measured on."""
    on = machine()
    same = all(row["same_bytes"] for row in rows)
    caption = (
        f"{rows[0]['units']} paths of ARD steps on leukaemia, {on['cores']} cores of an "
        f"{on['processor']} ({on['date']}, commit {on['commit']}); the bytes of "
        f"{'every store are the same' if same else 'the stores DIFFER'}"
    )
    executors = {
        "command": command,
        "caption": caption,
        "columns": list(COLUMNS.values()),
        "rows": [[str(row[key]) for key in COLUMNS] for row in rows],
    }
    tables = {"executors": executors}
    return {"study": "scaling", "title": "Two processes", "paper": None, "tables": tables}


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
    """Print a row of JSON for each executor; `--write` makes the table of the site from them."""
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--units", type=int, default=100)
    parser.add_argument("--write", type=Path, nargs="?", const=TABLE, help="keep the table (JSON)")
    asked = parser.parse_args()
    experiments = {e.name: e for e in experiments_of("qi2004")[0]}
    rows = []
    for row in measure(experiments[EXPERIMENT].units(asked.units), asked.jobs):
        rows.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    if asked.write is not None:
        jobs = " ".join(map(str, asked.jobs))
        command = f"python -m {__spec__.name} --jobs {jobs} --units {asked.units}"
        text = json.dumps(table(rows, command), indent=1, ensure_ascii=False)
        write_text(asked.write, text + "\n")


if __name__ == "__main__":
    main()
