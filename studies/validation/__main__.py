"""Run the lanes: `python -m ardvark.studies.validation`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from ardvark.commands.studies import store_folder
from ardvark.studies.experiments import Store, say
from ardvark.studies.validation.lane import (
    RESULTS,
    Lane,
    fill,
    take_units,
    write_lane,
    write_units,
)
from ardvark.studies.validation.page import write_tables

LANES = ("calibration", "kernels", "references", "certificate", "sbc_conditional_mixture",
         "tiny_mixtures")  # fmt: skip


def lane_of(name: str) -> Lane:
    """A lane by its name."""
    lane: Lane = import_module(f"ardvark.studies.validation.{name}").LANE
    return lane


def run_lane(name: str, store: Store, asked: argparse.Namespace) -> list[str]:
    """Fill up what is stored, write the results, and give what is wrong."""
    lane = lane_of(name)
    minutes = lane.quick_minutes if asked.quick and asked.minutes is None else asked.minutes
    kept, units = [e for e in lane.experiments if lane.keeps(e)], asked.results / name
    for experiment in [] if asked.quick else kept:
        take_units(experiment, store, units)
    sizes = {"only": asked.only, "minutes": minutes, "quick": asked.quick}
    say(fill(lane, store, asked.jobs, **sizes, told=say))
    found = lane.summary(store)
    if not asked.quick:
        for experiment in kept:
            write_units(experiment, store, units)
        command = f"python -m ardvark.studies.validation --lane {name}"
        if (earlier := asked.results / f"{name}.json").exists():
            found = lane.joined(found, json.loads(earlier.read_text(encoding="utf-8")))
        if asked.results == RESULTS:
            lane.after(found)
        write_lane(name, found, command, asked.results)
        if asked.results == RESULTS:
            write_tables()
    return [f"{name}: {text}" for text in lane.passed(found)]


def parser() -> argparse.ArgumentParser:
    """Arguments of the command line."""
    made = argparse.ArgumentParser(prog="python -m ardvark.studies.validation")
    made.add_argument("--lane", action="append", choices=LANES, help="some of them; all if none")
    made.add_argument(
        "--quick", action="store_true",
        help="a part of each lane, ten CPU minutes; nothing stored is used, nothing is written",
    )  # fmt: skip
    made.add_argument("--minutes", type=float, help="CPU minutes of each lane, at most")
    made.add_argument("--jobs", type=int, default=1, help="processes")
    made.add_argument("--only", default="", help="only experiments whose names contain this")
    made.add_argument("--store", type=Path, help="folder that keeps the units")
    made.add_argument("--results", type=Path, default=RESULTS, help="takes the summaries")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run lanes, and say what is wrong; the exit code is 1 if anything is."""
    asked = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ardvark-validation-") as fresh:
        store = Store(fresh if asked.quick else store_folder(asked.store))
        wrong = [text for name in asked.lane or LANES for text in run_lane(name, store, asked)]
    say("\n".join(wrong) or "nothing was found wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
