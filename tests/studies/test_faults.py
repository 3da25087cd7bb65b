"""Planted faults: the list does not rot, planting works, the record is of this list."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from ardvark.studies.validation.faults import FAULTS
from ardvark.studies.validation.faults.__main__ import choose
from ardvark.studies.validation.faults.fault import Fault
from ardvark.studies.validation.faults.plant import (
    CAUGHT,
    NO_SUCH_TEXT,
    ROOT,
    make_copy,
    plant,
    run_fault,
)
from ardvark.studies.validation.faults.record import read_record, table

LIVE = "NumPy's generators are no seeds"
BY_NAME = {fault.name: fault for fault in FAULTS}


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_can_be_planted_and_its_tests_exist(fault: Fault):
    assert text_of(fault.file).count(fault.old) == 1 and fault.new != fault.old
    if fault.file.endswith(".py"):  # what cannot be imported is caught by any test
        ast.parse(text_of(fault.file).replace(fault.old, fault.new))
    for test in fault.tests:
        file, _, name = test.partition("::")
        function = name.rpartition("::")[2].partition("[")[0]
        assert re.search(rf"^\s*def {function}\(", text_of(file), re.MULTILINE), test


def test_names_are_unique_and_each_area_has_one_in_the_quick_lane():
    assert len(BY_NAME) == len(FAULTS)
    assert {f.area for f in choose([], True)} == {f.area for f in FAULTS}
    with pytest.raises(SystemExit, match="no fault 'nothing'"):
        choose(["nothing"], False)


def test_a_fault_is_caught_in_a_copy_and_the_original_stays_as_it_is(tmp_path):
    fault = BY_NAME[LIVE]
    before = (ROOT / fault.file).read_bytes()
    outcome = run_fault(fault, tmp_path)
    assert outcome.verdict == CAUGHT and "test_a_generator_is_a_seed" in outcome.by
    assert (ROOT / fault.file).read_bytes() == before
    assert not list(tmp_path.iterdir())
    gone = fault._replace(old="no such text")
    assert run_fault(gone, tmp_path).verdict == NO_SUCH_TEXT


def test_compiled_code_that_has_the_fault_inlined_is_removed(tmp_path):
    """numba looks at one file: a caller elsewhere would go on with the old kernel."""
    copy = make_copy(tmp_path / "copy")
    caller = copy / "inference" / "ep" / "__pycache__"
    caller.mkdir(exist_ok=True)
    for name in ("sequential.sweep_weights-1.py313.nbi", "sequential.sweep_weights-1.py313.1.nbc"):
        (caller / name).write_bytes(b"")
    stranger = copy / "inference" / "bridge" / "__pycache__"
    stranger.mkdir(exist_ok=True)
    (stranger / "bridge.meet-1.py313.nbi").write_bytes(b"")
    fault = next(f for f in FAULTS if f.file == "inference/known_sites/moments.py")
    assert plant(copy, fault)
    assert not list(caller.glob("sequential.*.nb?")) and list(stranger.glob("bridge.*.nbi"))


def test_the_record_is_of_this_list_and_everything_was_caught():
    record = read_record()
    lines = {line["name"]: line for line in record["faults"]}
    assert set(lines) == set(BY_NAME)
    missed = [name for name, line in lines.items() if line["verdict"] != CAUGHT]
    assert not missed and record["caught"] == record["planted"] == len(FAULTS)
    assert record["control"]["passed"]
    assert record["tables"]["caught"] == table(record["faults"])
    for name, line in lines.items():
        failed = line["by"].split("::")[0].split(" ")[0]
        assert failed in {test.partition("::")[0] for test in BY_NAME[name].tests}, name
        assert Path(ROOT / failed).exists()
