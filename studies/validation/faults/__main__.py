"""Plant every fault and say which test caught it.

    python -m ardvark.studies.validation.faults              all, and the control
    python -m ardvark.studies.validation.faults --quick      one of each area
    python -m ardvark.studies.validation.faults --only NAME  one, or several
    python -m ardvark.studies.validation.faults --left       those not caught yet at this commit
    python -m ardvark.studies.validation.faults --executor 2 two at a time

The record is `studies/results/validation/faults.json`; a run of some faults changes their lines.
Each has its commit, so that a run that was ended goes on with `--left`.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from ardvark.studies.experiments import say
from ardvark.studies.validation.faults import FAULTS
from ardvark.studies.validation.faults.fault import Fault
from ardvark.studies.validation.faults.plant import CAUGHT, ROOT, SURVIVED, control, run_fault
from ardvark.studies.validation.faults.record import read_record, write_record
from ardvark.studies.validation.lane import commit

PLACE = ROOT / "build" / "faults"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, record, print; 1 if a fault was not caught."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one fault of each area")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--left", action="store_true", help="those not caught yet at this commit")
    parser.add_argument("--executor", type=int, default=1, metavar="N", help="faults at a time")
    parser.add_argument("--no-control", action="store_true", help="leave out the run without fault")
    parser.add_argument("--dry", action="store_true", help="do not write the record")
    options = parser.parse_args(arguments)
    chosen = choose(options.only, options.quick)
    record = read_record()
    lines = {line["name"]: line for line in record["faults"]}
    if options.left:
        caught = (CAUGHT, commit())
        done = {n for n, line in lines.items() if (line["verdict"], line.get("commit")) == caught}
        chosen = [fault for fault in chosen if fault.name not in done]

    def told(fault: Fault, outcome: Any) -> None:
        say(f"{outcome.verdict:15} {outcome.seconds:6.1f} s  {fault.name}  {outcome.by[:120]}")
        lines[fault.name] = outcome._asdict() | {"commit": commit()}
        if not options.dry:
            write_record([lines[f.name] for f in FAULTS if f.name in lines], record.get("control"))

    with ThreadPoolExecutor(options.executor) as pool:
        futures = {pool.submit(run_fault, fault, PLACE): fault for fault in chosen}
        for future in as_completed(futures):
            told(futures[future], future.result())
    good = all(lines[fault.name]["verdict"] == CAUGHT for fault in chosen)
    if not options.no_control:
        without = control(chosen, PLACE, options.executor)
        passed = without.verdict == SURVIVED
        word = "passed" if passed else "FAILED"
        say(f"{word:15} {without.seconds:6.1f} s  no fault {without.by}")
        good = good and passed
        if not options.dry:
            tests = len({test for fault in chosen for test in fault.tests})
            state = {"passed": passed, "tests": tests, "seconds": without.seconds, "by": without.by}
            write_record([lines[f.name] for f in FAULTS if f.name in lines], state)
    return 0 if good else 1


def choose(names: Sequence[str], quick: bool) -> list[Fault]:
    """Give the faults that are asked for."""
    known = {fault.name: fault for fault in FAULTS}
    for name in names:
        if name not in known:
            raise SystemExit(f"no fault {name!r}; there are {', '.join(known)}")
    if names:
        return [known[name] for name in names]
    return list({fault.area: fault for fault in reversed(FAULTS)}.values()) if quick else [*FAULTS]


if __name__ == "__main__":
    sys.exit(main())
