"""Bad inputs at the public doors: the cheap part of `studies/validation/bad_inputs.py`."""

import numpy as np
import pytest

from ardvark.commands.cli import main
from ardvark.errors import InputError
from ardvark.studies.validation import bad_inputs
from ardvark.studies.validation.bad_inputs import (
    GOOD,
    Bad,
    Door,
    bad_tables,
    bad_targets,
    builders,
    estimators,
    everything,
    settings,
    try_door,
)

DOORS = list(builders())


def failures(door, values):
    found = [try_door(door, bad) for bad in values]
    return [outcome for outcome in found if outcome.verdict not in GOOD]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: f"{door.name}, {door.slot}")
def test_builders_refuse_bad_inputs_and_targets(door):
    assert not failures(door, bad_tables() if door.slot == "X" else bad_targets())


def test_settings_are_refused_by_name():
    """Text as a damping was an error of NumPy; 2**70 replications of `sbc` had no end."""
    for door, values in settings():
        assert not failures(door, [Bad(repr(value), door.slot, value) for value in values])


def test_an_estimator_refuses_bad_rows():
    """A mask was dropped; text and ragged rows were errors of NumPy."""
    for door in estimators():
        if door.name == "ARDRegressor.fit" and door.slot == "X":
            assert not failures(door, bad_tables())


@pytest.mark.validate
def test_every_door():
    assert not [outcome for outcome in everything() if outcome.verdict not in GOOD]


def refused_by_numpy(value):
    return np.asarray(value) + np.ones(3)


def refused_without_a_name(value):
    raise InputError("something is wrong")


def written(value):
    with open("left.txt", "w") as file:
        file.write("a part")
    raise InputError("X is bad")


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        (lambda value: None, "accepted"),
        (refused_by_numpy, "foreign"),
        (refused_without_a_name, "unnamed"),
        (written, "left a file"),
    ],
)
def test_the_judge_sees_what_is_no_refusal(call, verdict, monkeypatch):
    """The control: each kind of failure is told from a refusal."""
    monkeypatch.setattr(bad_inputs, "OURS", (*bad_inputs.OURS, __file__))
    door = Door("a door", "X", call)
    value = "text" if verdict == "foreign" else None
    found = try_door(door, Bad("bad", "X", value)).verdict
    assert found == verdict or (verdict == "foreign" and found == "unnamed")


TABLES = {
    "no rows": "a,b,y\n",
    "one column": "a\n1\n2\n",
    "a gap": "a,b,y\n1,,0\n2,3,1\n4,5,1\n",
    "infinity": "a,b,y\n1,inf,0\n2,3,1\n4,5,1\n",
    "text": "a,b,y\n1,x,0\n2,3,1\n4,5,1\n",
    "dates": "a,b,y\n1,2020-01-01,0\n2,2020-01-02,1\n4,2020-01-03,1\n",
    "the same name twice": "a,a,y\n1,2,0\n2,3,1\n4,5,1\n",
    "one class": "a,b,y\n1,2,no\n2,3,no\n4,5,no\n",
    "nothing": "",
    "bytes": "\x00\x01\x02",
}


@pytest.mark.parametrize("kind", TABLES)
def test_the_command_line_refuses_a_bad_table_in_one_line(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text(TABLES[kind])
    assert main(["fit", "bad.csv", "--method", "laplace", "--out", "fits"]) == 2
    captured = capsys.readouterr()
    last = captured.err.strip().splitlines()[-1]
    assert last.startswith("ardvark: ") and "Traceback" not in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]
