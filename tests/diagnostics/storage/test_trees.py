"""Stores: written whole with checksums, damage named, one writer at a time, full disks survived."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray as xr
from damage import (
    CHUNK,
    add_chunk,
    change_metadata,
    cut_checksums,
    cut_chunk,
    delete_chunk,
    flip_byte,
    remove_group,
    remove_root,
)
from synthetic_trees import gaussian_tree

import ardvark as av
from ardvark.diagnostics.storage import atomic
from ardvark.diagnostics.storage import trees as stored
from ardvark.diagnostics.storage.atomic import locked, replacing, try_target, write_text
from ardvark.diagnostics.storage.trees import (
    DamagedTree,
    has_checksums,
    read_tree,
    refuse_mixed,
    trees_in,
    write_tree,
)


def example(draws=20, seed=0):
    rng = np.random.default_rng(seed)
    return gaussian_tree(rng, np.zeros(4), np.ones(4), draws=draws)


@pytest.fixture
def store(tmp_path):
    return write_tree(example(), tmp_path / "laplace.zarr")


def silent(said):
    pass


# ---------------------------------------------------------------------------------- written, read


def test_a_store_is_read_back_and_plain_xarray_reads_it_too(store):
    tree = example()
    assert read_tree(store).equals(tree)
    with xr.open_datatree(store, engine="zarr") as plain:
        assert plain.load().equals(tree)
    sums = json.loads((store / "checksums.json").read_text("utf-8"))
    files = {p.relative_to(store).as_posix() for p in store.rglob("*") if p.is_file()}
    assert set(sums) == files - {"checksums.json"} and CHUNK in sums
    assert has_checksums(store) and list(store.parent.iterdir()) == [store]


def test_an_existing_tree_is_not_overwritten(store):
    with pytest.raises(FileExistsError, match="exists already"):
        write_tree(example(seed=1), store)
    assert read_tree(store).equals(example())


DAMAGE = {
    delete_chunk: f"the file '{CHUNK}' is missing",
    flip_byte: f"the file '{CHUNK}' differs from what was written",
    cut_chunk: f"the file '{CHUNK}' differs from what was written",
    remove_group: "the group 'fit' is missing",
    change_metadata: "the file 'posterior/zarr.json' differs",
    add_chunk: "the file 'posterior/w/c/0/0/1' was not written with it",
    cut_checksums: "checksums.json: damaged",
    remove_root: "the file 'zarr.json' is missing",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_is_named(store, damage):
    """A deleted chunk was read as NaN; a flipped byte or a missing group was not noticed."""
    damage(store)
    with pytest.raises(DamagedTree, match=DAMAGE[damage]) as error:
        read_tree(store)
    assert str(store) in str(error.value)


def test_a_store_of_the_user_is_read_and_what_it_lists_must_be_there(tmp_path):
    """Without checksums a lost group is still known from zarr's own table of contents."""
    path = tmp_path / "mine.zarr"
    with pytest.warns(UserWarning):  # zarr's, of text
        example().to_zarr(path)
    assert read_tree(path).equals(example()) and not has_checksums(path)
    remove_group(path)
    with pytest.raises(DamagedTree, match="the group 'fit' is missing"):
        read_tree(path)


def test_trees_of_different_data_are_refused_by_name(tmp_path):
    ours, theirs = example(), example(seed=1)
    refuse_mixed({"laplace": ours, "ep": theirs}, tmp_path)  # the same rows, other draws
    theirs["observed_data"]["t"] = 1 - theirs["observed_data"]["t"]
    with pytest.raises(
        av.errors.InputError, match=r"laplace and ep were fitted to different .*t differs"
    ):
        refuse_mixed({"laplace": ours, "ep": theirs}, tmp_path)
    longer = gaussian_tree(np.random.default_rng(0), np.zeros(4), np.ones(4), draws=20, rows=13)
    with pytest.raises(av.errors.InputError, match=r"t differs, \(12,\) against \(13,\)"):
        refuse_mixed({"laplace": ours, "ep": longer}, tmp_path)


# ------------------------------------------------------------------------------- whole or nothing


def test_nothing_stays_of_a_write_that_fails(tmp_path, monkeypatch):
    def broken(self, path, **settings):
        path.mkdir()
        (path / "half").write_text("half a tree")
        raise RuntimeError("in the middle")

    monkeypatch.setattr(xr.DataTree, "to_zarr", broken)
    with pytest.raises(RuntimeError, match="in the middle"):
        write_tree(example(), tmp_path / "laplace.zarr")
    assert not list(tmp_path.iterdir())


def test_an_old_file_survives_a_write_that_fails(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as partial:
        partial.write_text("new")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_files_reach_the_disk_before_they_get_their_name(tmp_path, monkeypatch):
    """There was no fsync: after a crash of the machine a renamed tree could be empty."""
    done, real_sync, real_replace = [], os.fsync, os.replace

    def sync(handle):
        done.append("synced")
        real_sync(handle)

    def replace(source, target):
        if target == tmp_path / "laplace.zarr":  # zarr renames its own files too
            done.append("renamed")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    path = write_tree(example(), tmp_path / "laplace.zarr")
    entries = sum(1 for _ in path.rglob("*")) + 1
    assert done.index("renamed") == entries and done[entries:] == ["renamed", "synced"]


def test_a_stale_temporary_of_the_same_process_number_is_no_obstacle(tmp_path):
    """In a container the number of a process comes back: a finished fit died on the old name."""
    for left in (f".laplace.zarr.{os.getpid()}", ".laplace.zarr.0123.part"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "zarr.json").write_text("{}")
    told = []
    with locked(tmp_path / "laplace.zarr", told.append):
        path = write_tree(example(), tmp_path / "laplace.zarr")
    assert read_tree(path).equals(example())
    assert told == [f"{tmp_path}/.laplace.zarr.0123.part: left by a run that was killed, removed"]
    assert not (tmp_path / ".laplace.zarr.0123.part").exists()


def test_temporaries_of_another_target_are_left_alone(tmp_path):
    other = tmp_path / ".ep.zarr.0123.part"
    other.mkdir()
    with locked(tmp_path / "laplace.zarr", silent):
        pass
    assert list(tmp_path.iterdir()) == [other]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 2 MB, where the system lets one be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None or os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_told_with_path_and_remedy_and_the_retry_works(small_disk):
    """It was an errno without a path, and the partial tree stood in the way of the next try."""
    path = small_disk / "laplace.zarr"
    with pytest.raises(OSError, match=r"laplace.zarr: the disk is full \(about .* free space") as e:
        write_tree(example(draws=4000), path)
    assert e.value.errno == errno.ENOSPC and not list(small_disk.iterdir())
    assert read_tree(write_tree(example(draws=2), path)).equals(example(draws=2))


def test_a_run_on_a_full_disk_keeps_what_was_stored_and_goes_on(small_disk, tmp_path, capsys):
    from ardvark.commands.cli import main

    rng = np.random.default_rng(2)
    rows = [f"{x:.3f},{int(x + rng.normal() > 0)}" for x in rng.normal(size=40)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *rows]))
    command = ["fit", str(tmp_path / "a.csv"), "--out", str(small_disk / "run")]
    assert main([*command, "--method", "ep", "--draws", "20"]) == 0
    before = read_tree(small_disk / "run" / "ep.zarr")
    assert main([*command, "--method", "laplace", "--draws", "8000"]) == 2
    said = capsys.readouterr().err
    assert "laplace.zarr: the disk is full (about" in said and "free space and run again" in said
    names = sorted(path.name for path in (small_disk / "run").iterdir())
    assert names == ["ep.zarr", "run.json"]
    assert read_tree(small_disk / "run" / "ep.zarr").equals(before)
    assert main([*command, "--method", "laplace", "--draws", "20"]) == 0


def test_a_full_disk_is_told_wherever_it_is_met(tmp_path, monkeypatch):
    def full(self, path, **settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(xr.DataTree, "to_zarr", full)
    with pytest.raises(OSError, match=rf"{tmp_path}/a.zarr: the disk is full .* run again"):
        write_tree(example(), tmp_path / "a.zarr")


def test_a_target_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    with pytest.raises(av.errors.InputError, match="is a folder"):
        try_target(tmp_path)
    with pytest.raises(OSError, match="cannot be written"):
        try_target(tmp_path / "missing" / "a.html")
    try_target(tmp_path / "a.html")
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------- two writers

WRITER = """
import sys, time
from pathlib import Path
from ardvark.diagnostics.storage.atomic import locked, write_text
with locked(Path({path!r}), print):
    Path({path!r}).with_name("begun").touch()
    time.sleep({seconds})
    write_text(Path({path!r}), "first")
"""


def begin(path, seconds):
    child = subprocess.Popen([sys.executable, "-c", WRITER.format(path=str(path), seconds=seconds)])
    deadline = time.monotonic() + 60
    while not path.with_name("begun").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return child


def test_the_second_writer_waits_or_is_refused(tmp_path):
    path, told = tmp_path / "a.json", []
    child = begin(path, 1.5)
    try:
        with pytest.raises(
            av.errors.InputError, match=rf"being written by process {child.pid}: wait"
        ):
            with locked(path, told.append, wait=False):
                pass
        assert not told and not path.exists()
        with locked(path, told.append):
            assert path.read_text() == "first"  # it was waited for
    finally:
        child.kill()
        child.wait()
    assert told == [f"{path}: being written by process {child.pid}, waiting for it"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "begun"]


def test_a_killed_writer_holds_nothing(tmp_path):
    path, told = tmp_path / "a.json", []
    child = begin(path, 60)
    child.kill()
    child.wait()
    assert (tmp_path / ".a.json.lock").exists()
    with locked(path, told.append, wait=False):
        write_text(path, "second")
    assert not told and path.read_text() == "second"
    assert not (tmp_path / ".a.json.lock").exists()


def test_a_file_system_without_locks_is_written_and_nothing_is_removed(tmp_path, monkeypatch):
    if sys.platform == "win32":
        pytest.skip("there are no such locks")
    live = tmp_path / ".a.json.0123.part"
    live.touch()

    def none(handle, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(atomic.fcntl, "flock", none)
    with locked(tmp_path / "a.json", silent):
        write_text(tmp_path / "a.json", "text")
    assert live.exists() and (tmp_path / "a.json").read_text() == "text"


# ------------------------------------------------------------------------------------------ netCDF


@pytest.mark.parametrize("method", ["laplace", "ep", "vb", "nuts", "reversible_jump", "mixture"])
def test_every_kind_of_tree_goes_to_netcdf_and_back(tmp_path, method):
    """No backend was installed; with one, truth values among the attributes were refused."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(24, 2))
    labels = (X[:, 0] + rng.normal(size=24) > 0).astype(int)
    build = {"reversible_jump": "subset_classification", "mixture": "rbf_mixture"}
    model = getattr(av.models, build.get(method, "ard_classification"))(X, labels)
    settings = {
        "nuts": av.NUTS(tune=20),
        "reversible_jump": av.ReversibleJump(sweeps=200),
        "mixture": av.ReversibleJump(sweeps=200),
    }
    with np.testing.suppress_warnings() as silence:
        silence.filter(UserWarning)  # so few draws have not converged
        tree = av.fit(
            model, settings.get(method, method), draws=20, random_seed=1, progressbar=False
        )
    tree.to_netcdf(tmp_path / "tree.nc")
    with xr.open_datatree(tmp_path / "tree.nc") as back:
        back.load()
        assert [node.path for node in back.subtree] == [node.path for node in tree.subtree]
        for node in tree.subtree:
            for name, variable in node.dataset.variables.items():
                there = back[node.path].dataset.variables[name]
                assert there.dims == variable.dims
                assert np.array_equal(
                    there.values.astype(variable.dtype), variable.values, variable.dtype.kind == "f"
                )
        assert {k: back.attrs[k] for k in tree.attrs} == tree.attrs
    assert stored.read_tree(write_tree(tree, tmp_path / "tree.zarr")).attrs == tree.attrs


def test_the_tree_of_a_calibration_goes_to_netcdf(tmp_path):
    X = np.random.default_rng(4).normal(size=(20, 2))
    model = av.models.ard_regression(X, X[:, 0], noise=1.0)
    av.sbc(model, "laplace", 3).to_netcdf(tmp_path / "sbc.nc")
    with xr.open_datatree(tmp_path / "sbc.nc") as back:
        assert back.attrs["hold"] == 1 and back["prior_sbc"]["w"].shape == (1, 3, 2)


def test_all_trees_of_a_folder_are_read(tmp_path):
    for name in ("ep", "laplace"):
        write_tree(example(), tmp_path / f"{name}.zarr")
    (tmp_path / ".nuts.zarr.0123.part").mkdir()
    assert list(trees_in(tmp_path)) == ["ep", "laplace"]
