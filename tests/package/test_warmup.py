"""What is compiled before the first fit: every file with kernels is reached."""

import re
from pathlib import Path

import pytest

import ardvark
from ardvark import warmup
from ardvark.commands.cli import main

SOURCES = Path(ardvark.__file__).parent.parent / "inference"


def kernel_files():
    return sorted(p for p in SOURCES.rglob("*.py") if "@njit" in p.read_text("utf-8"))


def test_every_kernel_is_kept_on_disk():
    for path in kernel_files():
        for decorator in re.findall(r"@njit[^\n]*", path.read_text("utf-8")):
            assert "cache=True" in decorator, f"{path}: {decorator}"


@pytest.mark.validate  # compiles everything: two minutes of one core
def test_the_warm_up_reaches_every_file_with_kernels(tmp_path, monkeypatch):
    """The first EP of a fresh clone took 9.5 s, of which 9 were compilation."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    warmup.warm_up()
    kept = {
        (path.parent.name.rpartition("_")[0], path.name.split(".")[0])  # folder_hash/file.function
        for path in tmp_path.rglob("*.nbi")
    }
    assert sorted({(p.parent.name, p.stem) for p in kernel_files()} - kept) == []
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    warmup.warm_up()  # nothing is compiled again
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == before


def test_a_warm_up_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(warmup, "PROBLEMS", {"nonsense": lambda: None})
    with pytest.raises(RuntimeError, match=r"ardvark.warmup nonsense failed: (?s:.*)KeyError"):
        warmup.warm_up()


def test_the_doctor_warms_up_when_asked(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(warmup, "warm_up", lambda: calls.append(1))
    assert main(["doctor"]) == 0 and not calls
    assert main(["doctor", "--warm-up"]) == 0 and calls == [1]
    assert "machine code: compiled" in capsys.readouterr().out
