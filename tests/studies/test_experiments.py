"""Experiments as data: units are kept as they come, go on where they were, and are summed up."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ardvark.commands.cli import main
from ardvark.studies import experiments, summaries
from ardvark.studies.experiments import Anova, Claim, Experiment, Store, run
from ardvark.studies.speed import scaling
from ardvark.studies.summaries import summary, write_results


def unit(number, scale=1.0):
    """A quick unit: two numbers that go together, a list, and one that is not finite."""
    rng = np.random.default_rng([5, number])
    first = scale * rng.normal(3.0, 1.0)
    return {
        "first": first,
        "second": first - rng.normal(1.0, 0.1),
        "all": rng.random(2),
        "no": np.nan,
    }


def bad(number):
    """A unit that fails on one partition."""
    if number == 1:
        raise ValueError("no such partition")
    return {"first": 1.0}


def clock(number):
    """A unit that breaks the rule: its number is not decided by its inputs."""
    return {"first": time.perf_counter()}


FIRST = Experiment("first", "table 1", unit, {"scale": 1.0}, 8, quick=2)
OTHER = Experiment("other", "figure 2", unit, {"scale": 2.0}, 8)
FAILS = Experiment("fails", "table 3", bad, {}, 3)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.json")}


def test_units_are_run_once_and_named_by_their_inputs(tmp_path, monkeypatch):
    store, told = Store(tmp_path), []
    assert run(FIRST.units(3), store, tick=lambda done, unit: told.append((done, unit.number))) == 3
    assert told == [(1, 0), (2, 1), (3, 2)]
    assert run(FIRST.units(5), store) == 2 and run(FIRST.units(5), store) == 0
    keys = {u.key for e in (FIRST, OTHER) for u in e.units(8)}
    assert len(keys) == 16
    changed = FIRST.units(1)[0]._replace(number=7)
    assert changed.key != FIRST.units(1)[0].key
    monkeypatch.setattr(experiments, "_versions", lambda: {"numpy": "99"})
    assert store.get(FIRST.units(1)[0]) is None  # another version is another unit
    record = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert record["numbers"]["no"] is None and len(record["numbers"]["all"]) == 2


def test_summary_has_means_errors_paired_tests_and_failures(tmp_path):
    store = Store(tmp_path)
    run([*FIRST.units(8), *OTHER.units(6), *FAILS.units(3)], store)
    claims = [
        Claim("first is larger", "first:first", "first:second"),
        Claim("of another experiment", "other:first", "first:first"),
        Claim("never run", "first:first", "nowhere:first"),
        Anova("all", ("first:first", "first:second", "other:first")),
    ]
    found = summary([FIRST, OTHER, FAILS], claims, store)
    values = np.array([unit(i)["first"] for i in range(8)])
    numbers = found["experiments"]["first"]["numbers"]
    assert numbers["first"]["mean"] == pytest.approx(values.mean(), rel=1e-5)
    assert numbers["first"]["error"] == pytest.approx(values.std(ddof=1) / 8**0.5, rel=1e-5)
    assert numbers["no"]["n"] == 0 and "all" not in numbers
    assert found["experiments"]["other"]["units"] == 6 and found["experiments"]["other"]["of"] == 8
    assert found["experiments"]["fails"]["failed"] == 1
    one, two, anova = found["claims"]
    assert one["difference"] == pytest.approx(1.0, abs=0.2) and one["p"] < 1e-6 and one["n"] == 8
    assert two["n"] == 6 and 0 < anova["p"] < 0.2 and anova["n"] == [8, 8, 6]


def test_a_planted_equality_is_no_difference(tmp_path):
    store = Store(tmp_path)
    run(FIRST.units(4), store)
    same = summary([FIRST], [Claim("the same", "first:first", "first:first")], store)["claims"][0]
    assert same["difference"] == 0 and same["p"] == 1


def test_results_of_several_runs_are_kept_together(tmp_path, monkeypatch):
    """A store that has less, or another experiment, takes nothing away from what is kept."""
    path, claims = tmp_path / "paper.json", [Claim("larger", "first:first", "first:second")]
    days = iter(["first", "second", "third"])
    monkeypatch.setattr(summaries, "_made_by", lambda: {"commit": next(days)})

    def kept_of(folder, units, every=(FIRST, OTHER)):
        run(units, Store(tmp_path / folder))
        write_results(path, every, claims, Store(tmp_path / folder))
        return json.loads(path.read_text())

    whole = kept_of("a", FIRST.units(6))
    more = kept_of("b", [*FIRST.units(3), *OTHER.units(2)])
    assert more["experiments"]["first"] == whole["experiments"]["first"]  # six, not three
    assert more["claims"] == whole["claims"] and more["claims"][0]["n"] == 6
    assert [more["experiments"][n]["run"] for n in ("first", "other")] == [0, 1]
    full = kept_of("b", FIRST.units(8), (replace(FIRST, settings={"scale": 1.0}),))
    assert set(full["experiments"]) == {"first"} and full["claims"][0]["n"] == 8
    assert full["runs"] == [{"commit": "third"}]  # nothing is left of the others


KILLED = """
import sys
from ardvark.studies.experiments import Store, run
from ardvark.studies.papers.qi2004 import EXPERIMENTS
run(EXPERIMENTS[0].units({count}), Store({folder!r}))
"""


def resumed(tmp_path, count, moments):
    """Kill a run when so many units are there, again and again, and let the last one end."""
    folder = tmp_path / "killed"
    for moment in moments:
        script = KILLED.format(count=count, folder=str(folder))
        child = subprocess.Popen([sys.executable, "-c", script])
        deadline = time.monotonic() + 120
        while len(contents(folder)) < moment and time.monotonic() < deadline:
            time.sleep(0.002)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert moment <= len(contents(folder)) < count
    from ardvark.studies.papers.qi2004 import EXPERIMENTS

    run(EXPERIMENTS[0].units(count), Store(folder))
    run(EXPERIMENTS[0].units(count), Store(tmp_path / "whole"))
    return contents(folder), contents(tmp_path / "whole")


def test_a_run_that_was_killed_goes_on_to_the_same_bytes(tmp_path):
    killed, whole = resumed(tmp_path, 30, [3])
    assert len(whole) == 30 and killed == whole


@pytest.mark.validate
def test_killed_at_five_random_moments(tmp_path):
    moments = np.sort(np.random.default_rng(20).choice(np.arange(1, 45), 5, replace=False))
    killed, whole = resumed(tmp_path, 50, moments.tolist())
    assert len(whole) == 50 and killed == whole


@pytest.mark.validate
def test_the_same_bytes_from_two_processes_and_from_dask(tmp_path):
    distributed = pytest.importorskip("distributed")
    from ardvark.studies.papers.qi2004 import EXPERIMENTS

    units = EXPERIMENTS[0].units(12)
    run(units, Store(tmp_path / "one"))
    run(units, Store(tmp_path / "two"), 2)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as two,
        distributed.Client(two, set_as_default=False) as client,
    ):
        run(units, Store(tmp_path / "dask"), client)
    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "dask")


@pytest.mark.validate
def test_a_real_scheduler_whose_worker_is_killed_loses_nothing(tmp_path):
    """`dask scheduler` and two `dask worker` processes; one is killed for good in the middle."""
    pytest.importorskip("distributed")
    from ardvark.studies.papers.qi2004 import EXPERIMENTS

    units, file = EXPERIMENTS[0].units(24), tmp_path / "scheduler.json"
    dask = partial(subprocess.Popen, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    command = [sys.executable, "-m", "dask"]
    told = ["--scheduler-file", str(file)]
    processes = [dask([*command, "scheduler", *told, "--port", "0", "--no-dashboard"])]
    try:
        deadline = time.monotonic() + 120
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        alone = ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
        processes += [dask([*command, "worker", *told, *alone]) for _ in range(2)]
        victim = processes[1]

        def tick(done, unit):
            if done == 5:
                victim.kill()

        address = json.loads(file.read_text())["address"]
        assert run(units, Store(tmp_path / "cluster"), address, tick) == 24
        assert victim.wait(30) == -signal.SIGKILL
    finally:
        for process in processes:
            process.kill()
            process.wait()
    run(units, Store(tmp_path / "here"))
    assert contents(tmp_path / "cluster") == contents(tmp_path / "here")


def test_the_scaling_table_compares_bytes():
    planted = Experiment("planted", "", clock, {}, 2)
    rows = [next(scaling.measure(e.units(2), (), dask=False)) for e in (FIRST, planted)]
    assert [row["same_bytes"] for row in rows] == [True, False]  # a unit that is no pure function
    assert rows[0]["units"] == 2 and rows[0]["speed_up"] == 1.0
    written = [scaling.table([row], "a command")["tables"]["executors"] for row in rows]
    assert ["DIFFER" in made["caption"] for made in written] == [False, True]
    assert all(len(made["rows"][0]) == len(made["columns"]) for made in written)
    assert written[0]["rows"][0][2] == str(rows[0]["first_seconds"])


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def small_paper(monkeypatch, tmp_path):
    from ardvark.studies.papers import qi2004

    monkeypatch.setattr(qi2004, "EXPERIMENTS", (FIRST, OTHER, FAILS))
    claims = (Claim("first is larger", "first:first", "first:second"),)
    monkeypatch.setattr(qi2004, "CLAIMS", claims)
    return ["--store", str(tmp_path / "store"), "--quiet"]


def test_replicate_runs_what_is_missing_and_lists_what_is_there(small_paper, tmp_path, capsys):
    assert main(["replicate", "qi2004", "--quick", "--table", "1", *small_paper]) == 0
    said = capsys.readouterr().out
    assert "first [2 of 8]" in said and "other" not in said and "claim: first is larger" in said
    assert main(["replicate", "qi2004", "--list", *small_paper]) == 0
    said = capsys.readouterr().out
    assert "first: 2 of 8 stored, 6 missing" in said and "other: 0 of 8 stored" in said
    results = tmp_path / "results"
    arguments = ["--full", "--only", "f*", "--json", "--results", str(results)]
    assert main(["replicate", "qi2004", *arguments, *small_paper]) == 0
    found = json.loads(capsys.readouterr().out)["qi2004"]["experiments"]
    assert found["first"]["units"] == 8 and found["fails"]["failed"] == 1
    kept = json.loads((results / "qi2004.json").read_text())
    assert {"commit", "date", "versions"} <= set(kept["runs"][0])
    assert kept["experiments"]["first"]["seeds"] == list(range(8))
    assert kept["experiments"]["first"]["run"] == 0
    assert main(["replicate", "qi2004", "--cluster", "far", *small_paper]) == 2
    assert "--cluster is `local`" in capsys.readouterr().err


def test_every_experiment_of_the_papers_has_a_name_of_its_own_and_claims_name_them():
    for paper in experiments.PAPERS:
        every, claims = experiments.experiments_of(paper)
        names = [experiment.name for experiment in every]
        assert len(set(names)) == len(names)
        assert len({u.key for e in every for u in e.units(1)}) == len(names)
        assert any(experiment.quick for experiment in every)
        json.dumps([dict(experiment.settings) for experiment in every])
        sides = [side for c in claims for side in (c.sides if isinstance(c, Anova) else c[1:])]
        assert {side.rpartition(":")[0] for side in sides} <= set(names)
