"""The harness of the speeds: ratios, reasons of absent peers, and the contestants' own answers.

No test here is about a speed: those depend on the machine and belong to `make bench`.
"""

import json
import resource
import sys

import numpy as np
import pytest

from ardvark.models.kernels import RBF
from ardvark.sklearn import RVC, RVR
from ardvark.studies.speed import bench
from ardvark.studies.workloads import ripley, sinc, sparse_probit, wide

CLASS_ONE = [276, 18, 31]
LAST_ENTRIES = [-0.1338958581948634, 0.4824778405286497, 0.8017777134610629]
KERNEL_TASKS = [
    9.985439833954452,
    0.022634533458195334,
    -0.5330728509391619,
    0.44859864293877294,
]
COST = {"wall_seconds": 1.0, "megabytes": 10.0}


@pytest.fixture(autouse=True)
def _this_environment(monkeypatch):
    """Ardvark is measured in an environment of its own: here it is this one."""
    made = bench.Bench.python
    found = {bench.US: sys.executable}
    monkeypatch.setattr(bench.Bench, "python", lambda b, name: found.get(name) or made(b, name))


@pytest.fixture
def place(tmp_path):
    return bench.Bench(uv=None, tools=tmp_path / "tools", scratch=tmp_path)


def index_of(task, peer):
    return next(i for i, c in enumerate(bench.CASES) if (c.task, c.peer) == (task, peer))


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_workloads_are_those_that_the_peers_were_first_measured_on():
    probit, leukaemia, colon = sparse_probit(), wide(36, 7129), wide(62, 2000)
    assert [int(t.t.sum()) for t in (probit, leukaemia, colon)] == CLASS_ONE
    found = [t.X[-1, -1] for t in (probit, leukaemia, colon)]
    np.testing.assert_allclose(found, LAST_ENTRIES, rtol=1e-9)
    assert leukaemia.X.shape == (36, 7129) and leukaemia.X_test.shape == (400, 7129)
    np.testing.assert_allclose(colon.X.std(axis=0), 1.0, rtol=1e-12)
    assert np.unique(colon.informative).size == 20


def test_the_kernel_tasks_have_the_rows_that_the_peers_were_first_measured_on():
    curve, classes = sinc(2000), ripley(1000)
    found = [curve.X[-1, 0], curve.t[-1], classes.X[-1, 0], classes.X_test[-1, -1]]
    np.testing.assert_allclose(found, KERNEL_TASKS, rtol=1e-9)
    assert classes.t.sum() == 500 and classes.t_test.sum() == 1000


def test_every_task_has_ardvark_in_it_and_every_script_is_there():
    for task in bench.TASKS:
        assert sum(c.task == task and c.peer == bench.US for c in bench.CASES) == 1
    for case in bench.CASES:
        assert (case.run is None) == bool(case.script and case.method)
        assert case.run is not None or (bench.PEERS / f"run_{case.script}.py").exists()


def test_a_ratio_is_the_peers_cost_per_step_over_ours():
    case = bench.Case("task", "peer", script="x", method="y", goal=5.0)
    own = {"cpu_seconds": 4.0, "steps": 40, **COST}  # 0.1 a step
    peer = {"cpu_seconds": 3.0, "steps": 10, "converged": False, "log_evidence": -7.0, **COST}
    line = bench.timing(case, peer, {"task": own}, "")
    assert line.ratio == pytest.approx(3.0) and line.cpu_per_step == pytest.approx(0.3)
    assert line.note == "not converged" and line.found["log_evidence"] == -7.0
    assert "GOAL MISSED" in bench.table([line])
    faster = bench.timing(case, peer, {"task": {**own, "cpu_seconds": 2.0}}, "")
    assert faster.ratio == pytest.approx(6.0) and "goal met" in bench.table([faster])


def test_a_ratio_of_whole_calls_does_not_see_the_steps():
    case = bench.Case("task", "peer", script="x", method="y", per_step=False)
    own = {"cpu_seconds": 4.0, "steps": 40, **COST}
    peer = {"cpu_seconds": 8.0, "steps": 10, **COST}
    assert bench.timing(case, peer, {"task": own}, "").ratio == pytest.approx(2.0)


def test_the_distance_is_in_our_standard_deviations():
    case = bench.Case("task", "peer", script="x", method="y")
    own = {"cpu_seconds": 1.0, "mean": [0.0, 1.0], "sd": [0.5, 2.0], **COST}
    peer = {"cpu_seconds": 1.0, "mean": [0.1, 1.2], "sd": [9.0, 9.0], **COST}
    assert bench.timing(case, peer, {"task": own}, "").distance == pytest.approx(0.2)


def test_without_our_own_figure_there_is_no_ratio():
    case = bench.Case("task", "peer", script="x", method="y", goal=1.0)
    line = bench.timing(case, {"cpu_seconds": 1.0, **COST}, {}, "")
    assert line.ratio is None and "no figure" in line.note


def test_a_peer_that_cannot_be_installed_keeps_its_line_with_the_reason(place, tmp_path):
    gpy = index_of("ep", "GPy")
    (line,) = bench.measure([gpy], 2, place)
    assert line.cpu_seconds is None and "not available: uv was not found" in line.note
    broken = script(tmp_path / "uv", "echo 'no such package here' >&2; exit 1")
    (line,) = bench.measure([gpy], 2, bench.Bench(broken, place.tools, place.scratch))
    assert line.note == "not available: venv failed: no such package here"
    assert line.note in bench.table([line])


def test_an_environment_is_made_once_and_again_when_its_packages_change(
    place, tmp_path, monkeypatch
):
    log = tmp_path / "log"
    uv = script(
        tmp_path / "uv",
        f'echo "$@" >> {log}; if [ $1 = venv ]; then for home; do :; done; mkdir -p "$home"; fi',
    )
    place = bench.Bench(uv, place.tools, place.scratch)
    assert place.python("gpy") == place.python("gpy")
    assert log.read_text().count("install") == 1 and "GPy==" in log.read_text()
    monkeypatch.setitem(bench.ENVIRONMENTS, "gpy", bench.Environment("3.11", ("GPy==9.9",)))
    place.python("gpy")
    assert log.read_text().count("install") == 2 and "GPy==9.9" in log.read_text()


def test_a_package_that_is_not_installed_is_said(place):
    with pytest.raises(bench.Unavailable, match="pymc_extras is not installed"):
        place.command(index_of("first laplace", "pymc-extras"))


def test_rivals_run_in_turns_and_the_best_counts(place, monkeypatch):
    order, seconds = [], iter([3.0, 8.0, 2.0, 9.0])

    def run_once(command, turn):
        order.append(command[-1])
        return {"cpu_seconds": next(seconds), **COST}

    cases = [index_of("import", bench.US), index_of("import", "numpy")]
    monkeypatch.setattr(bench, "run_once", run_once)
    ours, numpy = bench.measure(cases, 2, place)
    assert order == [str(i) for i in cases] * 2
    assert (ours.cpu_seconds, numpy.cpu_seconds, numpy.turns) == (2.0, 8.0, 2)
    logs = np.log([8 / 3, 9 / 2])  # a ratio of each turn
    assert numpy.ratio == pytest.approx(np.exp(logs.mean()))
    assert numpy.ratio_error == pytest.approx(numpy.ratio * logs.std(ddof=1) / np.sqrt(2))


def test_a_process_is_timed_as_a_whole_unless_it_timed_itself():
    burn = "sum(range(3_000_000)); print('{}')"
    whole = bench.run_once([sys.executable, "-c", burn])
    assert 0.01 < whole["cpu_seconds"] < 60 and whole["megabytes"] > 1
    own = bench.run_once([sys.executable, "-c", """print('{"cpu_seconds": 0.5}')"""])
    assert own["cpu_seconds"] == 0.5


def test_a_process_that_dies_gives_its_last_words():
    with pytest.raises(bench.Unavailable, match="exit code 1: ValueError: too cold"):
        bench.run_once([sys.executable, "-c", "raise ValueError('too cold')"])


def test_a_process_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(bench, "WALL_LIMIT", 0.5)
    with pytest.raises(bench.Unavailable, match="exit code -9"):
        bench.run_once([sys.executable, "-c", "import time; time.sleep(60)"])


def test_no_contestant_gets_a_cpu_limit():
    """With one the kernel's process clock ticks in milliseconds, and short calls are noise."""
    text = "import json, resource as r; print(json.dumps({'limit': r.getrlimit(r.RLIMIT_CPU)}))"
    inherited = list(resource.getrlimit(resource.RLIMIT_CPU))
    assert bench.run_once([sys.executable, "-c", text])["limit"] == inherited


def test_the_bare_loop_finds_the_same_posterior_and_evidence(tmp_path):
    task = sparse_probit(rows=60, features=5, relevant=3, tests=10)
    np.savez(tmp_path / "task.npz", **task._asdict())
    ours, bare = (
        bench.run_once(
            [sys.executable, str(bench.PEERS / f"run_{name}.py"), "ep", tmp_path / "task.npz", "1"]
        )
        for name in ("ardvark", "bare_loop")
    )
    for key in ("mean", "sd", "log_evidence"):  # both stop at 1e-10, relative, in the sites
        np.testing.assert_allclose(bare[key], ours[key], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("make, method", [(sinc, "rvm_regression"), (ripley, "rvm_classification")])
def test_the_common_evidence_is_what_the_estimators_say(tmp_path, make, method):
    """The function that judges every contestant knows nothing of Ardvark."""
    task = make(80)
    np.savez(tmp_path / "task.npz", **task._asdict())
    script = [sys.executable, str(bench.PEERS / "run_ardvark.py"), method]
    report = bench.run_once([*script, tmp_path / "task.npz", "1"])
    machine = RVR if make is sinc else RVC
    own = machine(RBF(width=(2 * task.gamma) ** -0.5), tolerance=1e-4).fit(task.X, task.t)
    assert report["log_evidence"] == pytest.approx(own.log_evidence_, abs=1e-6)


def test_a_long_case_is_run_once(place, monkeypatch):
    calls = []
    monkeypatch.setattr(
        bench,
        "run_once",
        lambda command, turn: calls.append(command) or {"cpu_seconds": 60.0, **COST},
    )
    bench.measure([index_of("import", "numpy")], 3, place)
    assert len(calls) == 1


def test_the_command_line_prints_json_lines(capsys, monkeypatch):
    monkeypatch.setattr(bench, "run_once", lambda command, turn: {"cpu_seconds": 1.0, **COST})
    monkeypatch.setattr(sys, "argv", ["bench", "--json", "--task", "import", "--repeats", "1"])
    bench.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["peer"] for line in lines] == [
        "ardvark",
        "numpy",
        "pymc",
        "pymc, numba and xarray at work",
    ]
    assert lines[1]["ratio"] == 1.0


def test_a_run_that_was_cut_goes_on_where_it_stopped(capsys, tmp_path, monkeypatch):
    path, asked = tmp_path / "bench.json", ["--task", "import", "--task", "first laplace"]

    def main(*options):
        monkeypatch.setattr(sys, "argv", ["bench", "--write", str(path), *asked, *options])
        bench.main()
        return capsys.readouterr().out

    def cut(command, turn):
        if "import" in bench.CASES[int(command[-1])].task:
            return {"cpu_seconds": 1.0, **COST}
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "run_once", cut)
    with pytest.raises(KeyboardInterrupt):
        main()
    monkeypatch.setattr(bench, "run_once", lambda command, turn: {"cpu_seconds": 2.0, **COST})
    assert "import" not in main("--resume")
    rows = json.loads(path.read_text())["bench"]
    assert {row["cpu_seconds"] for row in rows if row["task"] == "import"} == {1.0}
    assert "import" in main()  # without it all is measured again


def test_a_quick_run_leaves_out_long_peers_and_keeps_their_rows(capsys, monkeypatch):
    monkeypatch.setattr(bench, "run_once", lambda command, turn: {"cpu_seconds": 1.0, **COST})
    monkeypatch.setattr(bench.Bench, "python", lambda self, name: name)
    options = ["--json", "--quick", "--task", "rvm regression 2000"]
    monkeypatch.setattr(sys, "argv", ["bench", *options])
    bench.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["peer"], line["turns"]) for line in lines] == [("ardvark", 0), ("fastrvm", 2)]


def test_the_distance_is_of_one_turn_since_turns_have_their_own_data(place, monkeypatch):
    answers = iter([0.0, 0.1, 5.0, 5.2])

    def run_once(command, turn):
        return {"cpu_seconds": 1.0, "mean": [next(answers)], "sd": [1.0], **COST}

    monkeypatch.setattr(bench, "run_once", run_once)
    cases = [index_of("import", bench.US), index_of("import", "numpy")]
    _, numpy = bench.measure(cases, 2, place)
    assert numpy.distance == pytest.approx(0.2)
