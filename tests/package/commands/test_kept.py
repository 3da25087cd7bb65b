"""Runs that are killed, damaged, mixed up or run twice at once: each is named, nothing is lost."""

import errno
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from damage import delete_chunk, flip_byte, remove_group
from pages import few_parts

import ardvark as av
from ardvark.commands.cli import main
from ardvark.diagnostics.storage.trees import read_tree

METHODS = "laplace,ep"
TIMES = {
    "seconds",
    "time",
    "speed",
    "date",
    "created",
    "created_at",
}  # differ from run to run


def table(path, rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    sick = (X[:, 0] + rng.normal(size=rows) > 0).astype(int)
    lines = [",".join([*(f"{v:.4f}" for v in x), str(s)]) for x, s in zip(X, sick, strict=True)]
    path.write_text("\n".join(["height,weight,age,sick", *lines]) + "\n")
    return path


@pytest.fixture
def csv(tmp_path):
    return table(tmp_path / "people.csv", 30, 6)


@pytest.fixture
def short_page(monkeypatch):
    few_parts(monkeypatch, "data")  # what is looked at is the fits beside it


@pytest.fixture
def run(csv, tmp_path):
    """A folder with a tree."""
    folder = tmp_path / "run"
    assert main(fit(csv, folder)) == 0
    return folder


def fit(csv, out, method="laplace", *options):
    words = ["fit", str(csv), "--method", method, "--draws", "50", "--out", str(out)]
    return [*words, *options]


def report(csv, out, *options):
    words = ["report", str(csv), "--method", "laplace", "--draws", "50", "--out", str(out)]
    return [*words, *options]


def sbc(out, replications=150):
    words = ["sbc", "ard_regression", "--method", "laplace", "--replications", str(replications)]
    return [*words, "--option", "noise=1.0", "--rows", "25", "--inputs", "2", "--out", str(out)]


def same_answers(one, two):
    """Whether two trees are equal in all arrays, and in all attributes but times."""
    attributes = [{k: v for k, v in tree.attrs.items() if k not in TIMES} for tree in (one, two)]
    return one.equals(two) and attributes[0] == attributes[1]


def visible(folder):
    return sorted(p.name for p in folder.iterdir())


# ------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize(
    "damage", [delete_chunk, flip_byte, remove_group], ids=lambda damage: damage.__name__
)
def test_a_damaged_tree_is_told_set_aside_and_fitted_again(csv, run, damage, capsys, short_page):
    """`ardvark fit` said "already there, converged: True" of a tree with a chunk missing."""
    before = read_tree(run / "laplace.zarr")
    damage(run / "laplace.zarr")
    capsys.readouterr()
    assert main(fit(csv, run, "laplace", "--json")) == 0
    said = capsys.readouterr()
    assert "warning: " in said.err and "damaged" in said.err and "fitted again" in said.err
    told = json.loads(said.out)["laplace"]
    assert told["new"] and told["damaged"] == str(run / "laplace.zarr.damaged")
    assert same_answers(read_tree(run / "laplace.zarr"), before)
    assert visible(run) == ["laplace.zarr", "laplace.zarr.damaged", "run.json"]
    assert main(["report", str(run), "--out", str(run.parent / "a.html"), "--quiet"]) == 0
    damage(run / "laplace.zarr")
    assert main(["report", str(run), "--out", str(run.parent / "b.html"), "--quiet"]) == 2
    assert "damaged" in capsys.readouterr().err and not (run.parent / "b.html").exists()


def test_a_tree_without_checksums_is_taken_and_told(csv, run, capsys):
    (run / "laplace.zarr" / "checksums.json").unlink()
    assert main(fit(csv, run)) == 0
    said = capsys.readouterr().err
    assert "no checksums" in said and "laplace: already there" in said
    assert main(["diagnose", str(run)]) == 0
    assert "no checksums" in capsys.readouterr().out


def test_a_stranger_in_the_place_of_a_tree_is_not_moved(csv, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "laplace.zarr").write_text("no tree")
    assert main(fit(csv, tmp_path / "run")) == 2
    assert "this is no zarr tree" in capsys.readouterr().err
    assert (tmp_path / "run" / "laplace.zarr").read_text() == "no tree"


# ------------------------------------------------------------------------------ one folder, one set


def test_one_folder_is_of_one_data_set(csv, run, tmp_path, capsys):
    """Trees of two tables were compared as fits of the second: "No checks failed"."""
    other = table(tmp_path / "others.csv", 40, 7)
    assert main(fit(other, run, "ep")) == 2
    said = capsys.readouterr().err
    assert "people.csv (30 rows, 3 columns)" in said and "others.csv (40 rows" in said
    assert "choose another --out" in said and visible(run) == ["laplace.zarr", "run.json"]
    assert main([*fit(csv, run, "ep"), "--model", "rvm_classification"]) == 2
    assert "rvm_classification on" in capsys.readouterr().err
    shutil.copy(csv, tmp_path / "copy.csv")  # the same rows under another name are the same
    assert main(fit(tmp_path / "copy.csv", run, "ep", "--quiet")) == 0
    assert visible(run) == ["ep.zarr", "laplace.zarr", "run.json"]


def test_a_report_of_a_mixed_folder_is_refused(csv, run, tmp_path, capsys):
    other, page = table(tmp_path / "others.csv", 40, 7), tmp_path / "page.html"
    assert main(fit(other, tmp_path / "two", "ep")) == 0
    shutil.copytree(tmp_path / "two" / "ep.zarr", run / "ep.zarr")
    assert main(["report", str(run), "--out", str(page)]) == 2
    assert "ep and laplace were fitted to different data" in capsys.readouterr().err
    shutil.rmtree(run / "ep.zarr")
    table(csv, 31, 6)
    assert main(["report", str(run), "--out", str(page)]) == 2
    said = capsys.readouterr().err
    assert "people.csv as it was (30 rows, 3 columns), and it has changed" in said
    assert not page.exists()


# ------------------------------------------------------------------------------------------ reports


def never(*_, **__):
    raise AssertionError("a fit was begun")


@pytest.mark.parametrize("out", ["x.txt", "folder.html", "missing/a.html", "locked/a.html"])
def test_a_page_that_cannot_be_written_is_refused_before_a_fit(
    csv, tmp_path, monkeypatch, capsys, out
):
    """It was refused after minutes of fits, and none of them was kept."""
    monkeypatch.setattr(av, "fit", never, raising=False)
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "locked").mkdir()
    if out.startswith("locked"):

        def refused(*_, **__):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(pathlib.Path, "touch", refused)
    assert main(report(csv, tmp_path / out)) == 2
    said = capsys.readouterr().err
    assert "a fit was begun" not in said
    assert any(word in said for word in ("ends in .html", "is a folder", "no folder", "denied"))
    assert visible(tmp_path) == ["folder.html", "locked", "people.csv"]


def test_a_report_that_fails_keeps_its_fits_and_goes_on(
    csv, tmp_path, monkeypatch, capsys, short_page
):
    from ardvark.diagnostics.report import report as module

    out, real, asked = tmp_path / "page.html", av.fit, []

    def counted(model, method, **settings):
        asked.append(method)
        return real(model, method, **settings)

    def broken(*_):
        raise RuntimeError("no page")

    monkeypatch.setattr(av, "fit", counted, raising=False)
    with monkeypatch.context() as context:
        context.setattr(module, "render", broken)
        assert main(report(csv, out)) == 2
    first = len(asked)
    kept = visible(tmp_path / "page.html.fits")
    assert first >= 2 and "laplace.zarr" in kept and len(kept) == first + 1
    for left in (".page.html.0123.part", ".page.json.0123.part"):  # killed while it was written
        (tmp_path / left).touch()
    assert main(report(csv, out)) == 0
    assert len(asked) == first and "laplace: already there" in capsys.readouterr().err
    assert visible(tmp_path) == ["page.html", "page.json", "people.csv"]
    assert main(report(csv, out, "--keep", "--quiet")) == 0
    assert visible(tmp_path / "page.html.fits") == kept
    asked.clear()  # what answers another question is not taken, and not in the way
    assert main(report(csv, out, "--seed", "2", "--quiet")) == 0
    assert len(asked) == first and not (tmp_path / "page.html.fits").exists()


def test_fits_of_an_unfinished_report_of_other_data_are_not_taken(
    csv, tmp_path, capsys, short_page
):
    out = tmp_path / "page.html"
    assert main(report(csv, out, "--keep")) == 0
    other = table(tmp_path / "others.csv", 40, 7)
    capsys.readouterr()
    assert main(report(other, out)) == 0
    said = capsys.readouterr().err
    assert "unfinished report of ard_classification on" in said and "already there" not in said
    assert json.loads(out.with_suffix(".json").read_text("utf-8"))["data"]["facts"]["rows"] == 40


# -------------------------------------------------------------------------------------- two writers


def start(arguments):
    command = [sys.executable, "-m", "ardvark.commands.cli", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(path):
    deadline = time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_two_writers_of_one_folder_end_with_one_answer(csv, run, tmp_path):
    """One of them died with "[Errno 39] Directory not empty"."""
    both = [start(fit(csv, tmp_path / "both", "laplace,ep")) for _ in range(2)]
    ends = [(child.communicate(timeout=240), child.returncode) for child in both]
    assert [code for _, code in ends] == [0, 0], ends
    assert visible(tmp_path / "both") == ["ep.zarr", "laplace.zarr", "run.json"]
    assert same_answers(
        read_tree(tmp_path / "both" / "laplace.zarr"), read_tree(run / "laplace.zarr")
    )


def test_two_calibrations_in_one_folder_are_refused(tmp_path, capsys):
    child = start(sbc(tmp_path / "sbc"))
    try:
        wait_for(tmp_path / "sbc" / "000003.json")
        os.kill(child.pid, signal.SIGSTOP)
        assert main(sbc(tmp_path / "sbc")) == 2
        assert f"being written by process {child.pid}" in capsys.readouterr().err
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    assert main([*sbc(tmp_path / "sbc", 30), "--quiet"]) == 0


# -------------------------------------------------------------------------------------------- kills


def killed_after(arguments, seconds):
    """Start a command and end it by SIGKILL; True if it was still running."""
    child = start(arguments)
    try:
        child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        return True
    return False


def timeless(value):
    """Numbers of a report without those whose name says that they are times."""
    if isinstance(value, dict):
        named = {k: set(re.findall("[a-z]+", k.lower())) for k in value}
        return {k: timeless(v) for k, v in value.items() if not named[k] & TIMES}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def answers(kind, folder):
    """What a run left: arrays and attributes of trees, bytes of records, numbers of a report."""
    if kind == "fit":
        trees = {p.stem: read_tree(p) for p in sorted(folder.glob("*.zarr"))}
        return {
            name: [
                {k: v for k, v in tree.attrs.items() if k not in TIMES},
                {
                    f"{node.path}/{key}": (v.dims, v.shape, v.values.tobytes())
                    for node in tree.subtree
                    for key, v in node.dataset.variables.items()
                },
            ]
            for name, tree in trees.items()
        }
    if kind == "sbc":
        return {p.name: p.read_bytes() for p in folder.iterdir()}
    return timeless(json.loads((folder / "page.json").read_text("utf-8")))


def command(kind, csv, folder, replications=150):
    if kind == "fit":
        return fit(csv, folder, METHODS)
    return sbc(folder, replications) if kind == "sbc" else report(csv, folder / "page.html")


LEFT = {"fit": ["ep.zarr", "laplace.zarr", "run.json"], "report": ["page.html", "page.json"]}


def kill_and_resume(kind, csv, tmp_path, kills, seed):
    """Kill a command at random moments of its run, resume each, compare; the moments that hit."""
    whole = tmp_path / "whole"
    whole.mkdir()
    begun = time.monotonic()
    child = start(command(kind, csv, whole))
    said = child.communicate(timeout=300)
    length = time.monotonic() - begun
    assert child.returncode == 0, said
    wanted, moments = answers(kind, whole), []
    rng = np.random.default_rng(seed)
    for number in range(kills):
        folder = tmp_path / f"killed{number}"
        folder.mkdir()
        moment = float(rng.uniform(0.3, 1.0)) * length  # before that it only imports
        if killed_after(command(kind, csv, folder), moment):
            moments.append((round(moment, 2), visible(folder)))
        child = start(command(kind, csv, folder))
        said = child.communicate(timeout=300)
        assert child.returncode == 0, (moments[-1:], said)
        assert answers(kind, folder) == wanted, moments[-1:]
        left = visible(folder)
        assert left == (LEFT[kind] if kind in LEFT else sorted(wanted)), moments[-1:]
        shutil.rmtree(folder)
    return moments


@pytest.mark.parametrize(("kind", "first"), [("fit", "laplace.zarr"), ("sbc", "000003.json")])
def test_a_killed_run_ends_in_the_same_answer(kind, first, csv, tmp_path):
    """Killed when its first answer is there; gone on with, and run as a whole, in this process."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    child = start(command(kind, csv, killed, 50))
    try:
        wait_for(killed / first)
        assert (killed / first).exists()
    finally:
        child.kill()
        child.communicate()
    for folder in (killed, whole):
        assert main(command(kind, csv, folder, 50)) == 0
    assert answers(kind, killed) == answers(kind, whole) and visible(killed) == visible(whole)


@pytest.mark.validate
@pytest.mark.parametrize("kind", ["fit", "sbc", "report"])
def test_twenty_kills_end_in_the_same_answer(kind, csv, tmp_path):
    moments = kill_and_resume(kind, csv, tmp_path, 20, seed=2)
    print(kind, len(moments), "killed:", *moments, sep="\n")
    assert len(moments) >= 10


def test_a_calibration_killed_before_its_first_name_goes_on(tmp_path, capsys):
    """Killed between creating and renaming its record, sbc refused the folder as not empty."""
    for left in (".sbc.json.4711", ".sbc.json.0123.part", ".sbc.json.lock"):
        folder = tmp_path / left.strip(".")
        folder.mkdir()
        (folder / left).write_text("{")
        assert main([*sbc(folder)[:5], "3", *sbc(folder)[6:], "--quiet"]) == 0
        assert (folder / "000002.json").exists()


def test_a_killed_command_leaves_no_child(tmp_path):
    """Workers could run on as orphans; a study of `ardvark replicate` has no process of its own."""
    if os.name != "posix":
        pytest.skip("processes have no groups here")
    child = start([*sbc(tmp_path / "sbc", 5000), "--jobs", "2"])  # more than is done meanwhile
    deadline = time.monotonic() + 60
    while members(child.pid) < 3 and time.monotonic() < deadline:  # until it has workers
        time.sleep(0.1)
    assert members(child.pid) >= 3, "it has no workers"
    assert child.poll() is None, "it ended before it was killed"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and alive(child.pid):
        time.sleep(0.05)
    assert not alive(child.pid)


def members(group):
    """How many processes a group has."""
    listed = subprocess.run(["ps", "-axo", "pgid="], capture_output=True, text=True, check=True)
    return listed.stdout.split().count(str(group))


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
