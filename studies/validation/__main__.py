"""Run the lanes: `python -m ardvark.studies.validation`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from ardvark.commands.studies import store_folder
from ardvark.studies.experiments import Store
from ardvark.studies.validation.lane import RESULTS, Lane, fill, write_lane

LANES = (
    "calibration",
    "kernels",
    "jumps",
    "references",
    "certificate",
    "sbc_conditional_mixture",
)


def lane_of(name: str) -> Lane:
    """A lane by its name."""
    lane: Lane = import_module(f"ardvark.studies.validation.{name}").LANE
    return lane


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Fill up what is stored, write the results, and say what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m ardvark.studies.validation")
    parser.add_argument("--lane", action="append", choices=LANES, help="some of them; all if none")
    parser.add_argument("--quick", action="store_true", help="a part of each lane; writes nothing")
    parser.add_argument("--minutes", type=float, help="CPU minutes of each lane, at most")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", help="only experiments whose names contain this")
    parser.add_argument("--store", type=Path, help="folder that keeps the units")
    parser.add_argument("--results", type=Path, help="folder that takes the summaries")
    asked = parser.parse_args(arguments)
    store, wrong = Store(store_folder(asked.store)), []
    for name in asked.lane or LANES:
        lane = lane_of(name)
        taken = [e for e in lane.experiments if asked.only is None or asked.only in e.name]
        fill(taken, store, asked.jobs, minutes=asked.minutes, quick=asked.quick, told=_say)
        found = lane.summary(store)
        wrong += [f"{name}: {text}" for text in lane.passed(found)]
        if not asked.quick:
            command = f"python -m ardvark.studies.validation --lane {name}"
            write_lane(name, found, command, asked.results or RESULTS)
            lane.after(found)
    _say("\n".join(wrong) or "nothing was found wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
