"""Planted faults: each is put into a copy of the code, and a named test must fail.

Goes in: the lists of `Fault`s, by what they spoil. Comes out: which were caught, as JSON and as a
table of the site. Open `fault.py` first, then `plant.py` (how a copy is made, spoilt and tested).
"""

from ardvark.studies.validation.faults import doors, evidences, jumps, rules, storage, variational
from ardvark.studies.validation.faults.fault import Fault

__all__ = ["FAULTS"]

FAULTS: tuple[Fault, ...] = (
    *rules.FAULTS,
    *evidences.FAULTS,
    *variational.FAULTS,
    *jumps.FAULTS,
    *doors.FAULTS,
    *storage.FAULTS,
)
