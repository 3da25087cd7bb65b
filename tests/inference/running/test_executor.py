"""One executor for every loop of many fits: the same results from one process, two, and Dask."""

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ardvark as av
import ardvark.inference.running.executor as executor_module
from ardvark.diagnostics.compare.loo import refit_rows
from ardvark.inference.running.executor import check_executor, run_tasks, seed_of
from ardvark.inference.selection.run import select_features

rng = np.random.default_rng(3)
X = rng.standard_normal((24, 3))
T = (X[:, 0] + 0.5 * rng.standard_normal(24) > 0).astype(int)


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as two,
        distributed.Client(two, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(params=["two processes", "Dask"])
def executor(request):
    return 2 if request.param == "two processes" else request.getfixturevalue("cluster")


TIMES = ("seconds", "created_at")


def bytes_of(tree):
    """Every number of a tree, and its attributes but for when it was made."""
    numbers = {
        f"{path}/{name}": values.to_numpy().tobytes()
        for path, node in tree.subtree_with_keys
        for name, values in sorted(node.data_vars.items())
        if values.dtype.kind in "biuf"
    }
    return numbers, {name: value for name, value in tree.attrs.items() if name not in TIMES}


# --- the loop itself --------------------------------------------------------------------------


def test_results_in_the_order_of_the_tasks_with_seeds_of_their_own(executor):
    def work(i):
        time.sleep(0.05 * (i == 0))  # the first is the last to end
        A = np.random.default_rng(seed_of(7, i)).standard_normal((60, 60))
        return i, (A @ A.T).tobytes()

    told = []
    here = run_tasks(work, range(6))
    there = run_tasks(work, range(6), executor, done=lambda i, result: told.append((i, result)))
    assert here == there and [i for i, _ in there] == list(range(6))
    assert sorted(told) == list(enumerate(here))
    assert len({content for _, content in here}) == 6


def left_in_memory():
    return list(executor_module.IN_MEMORY.glob(f"ardvark-{os.getpid()}-*"))


def large(i):
    """Arrays that are worth a file: of odd sizes, one in the other order, one that is shared."""
    values = np.random.default_rng(i).standard_normal((300, 501))
    return {"a": values, "b": values[::2, :7] > 0, "c": np.asfortranarray(values), "d": values}


def test_large_arrays_come_home_and_leave_nothing(executor):
    here, there = run_tasks(large, range(3)), run_tasks(large, range(3), executor)
    for one, other in zip(here, there, strict=True):
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_array_equal(other[name], values)
            assert other[name].flags.aligned and other[name].strides == values.strides
    if executor == 2:
        there[0]["a"][0] = 0.0  # a user may write to them
    assert not left_in_memory()


@pytest.mark.skipif(not executor_module.IN_MEMORY.is_dir(), reason="no memory with names here")
def test_full_memory_and_what_a_killed_process_left(monkeypatch):
    answers = [executor_module._Answer(large(0), [], 1.0)]
    parcel = executor_module._parcelled(answers, os.getpid())
    assert left_in_memory() == [Path(parcel.file)]
    [back] = executor_module._unpacked(parcel)
    np.testing.assert_array_equal(back.result["c"], answers[0].result["c"])

    late = Future()
    late.set_result(executor_module._parcelled(answers, os.getpid()))
    executor_module._drop(late)  # nobody waits for it any more
    assert not left_in_memory()

    class Full(executor_module.tempfile._TemporaryFileWrapper):
        def write(self, part):
            raise OSError("no space left")

    monkeypatch.setattr(executor_module.tempfile, "_TemporaryFileWrapper", Full)
    assert executor_module._parcelled(answers, os.getpid()) is answers and not left_in_memory()
    monkeypatch.undo()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale = executor_module.IN_MEMORY / f"ardvark-{ended.pid}-left"
    stale.touch()
    executor_module._clear_memory()
    assert not stale.exists()


def test_an_error_and_a_warning_of_a_task_come_home(executor):
    def work(i):
        warnings.warn(f"task {i}", av.errors.AccuracyWarning)  # noqa: B028
        if i == 2:
            raise ValueError("the third is bad")
        return os.getpid()

    with pytest.warns(av.errors.AccuracyWarning) as heard:
        processes = run_tasks(work, range(2), executor)
    assert [str(w.message) for w in heard] == ["task 0", "task 1"]
    assert os.getpid() not in processes
    with pytest.raises(ValueError, match="the third is bad"):
        run_tasks(work, range(4), executor)


def test_a_worker_has_one_blas_thread_and_its_own_directory():
    def work(i):
        time.sleep(0.2)
        from threadpoolctl import threadpool_info

        threads = {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}
        return os.getpid(), threads, os.environ["PYTENSOR_FLAGS"]

    found = run_tasks(work, range(4), 2)
    assert all(threads <= {1} for _, threads, _ in found)
    directories = {process: flags for process, _, flags in found}
    assert len(set(directories.values())) == len(directories)


def test_a_lost_process_is_replaced_and_its_tasks_run_again(tmp_path):
    mark = tmp_path / "died"

    def work(i):
        if i == 3 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return i * i

    with pytest.warns(RuntimeWarning, match="a process was lost"):
        assert run_tasks(work, range(6), 2) == [0, 1, 4, 9, 16, 25]


def test_one_that_kills_every_process_ends_in_an_error():
    def work(i):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.warns(RuntimeWarning, match="lost"), pytest.raises(BrokenExecutor):
        run_tasks(work, range(2), 2)


def test_short_tasks_travel_together_and_long_ones_alone():
    def work(i):
        time.sleep(0.0 if i < 400 else 0.3)
        return i, os.getpid()

    pieces = []
    pool_of = executor_module._pool

    class Counted:
        def __init__(self, pool):
            self.pool = pool

        def submit(self, call, sent, tasks, near):
            pieces.append(tasks)
            return self.pool.submit(call, sent, tasks, near)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor_module, "_pool", lambda *where: Counted(pool_of(*where)))
        found = run_tasks(work, range(404), 2)
    assert [i for i, _ in found] == [i for piece in pieces for i in piece] == list(range(404))
    assert len({process for _, process in found}) == 2
    assert len(pieces) < 100
    assert len(pieces[0]) == len(pieces[-1]) == 1  # nothing is known yet, and a fair share


def test_any_executor_of_concurrent_futures():
    with ThreadPoolExecutor(2) as pool:
        assert run_tasks(lambda i: i + 1, range(5), pool) == [1, 2, 3, 4, 5]
    assert (
        "PYTENSOR_FLAGS" not in os.environ or "ardvark-workers" not in os.environ["PYTENSOR_FLAGS"]
    )


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "two", object()])
def test_what_can_run_nothing_is_refused(bad):
    with pytest.raises(av.errors.InputError, match="executor must be None, a number"):
        run_tasks(abs, [1], bad)


def test_one_process_is_this_one_and_what_cannot_travel_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ardvark.inference.running.executor.ANSWER", 1)
    assert check_executor(1) is None and check_executor(np.int64(1)) is None
    with open(tmp_path / "x", "w") as file, pytest.raises(av.errors.InputError, match="be sent"):
        run_tasks(lambda i: file.name, [1], 2)
    with pytest.raises(av.errors.InputError, match="no Dask scheduler answers at tcp://127"):
        run_tasks(abs, [1], "tcp://127.0.0.1:9")


# --- every door -------------------------------------------------------------------------------


def test_fit_of_many_data_sets(executor):
    model = av.models.ard_classification(X, T)
    data = [{"t_observed": np.roll(T, k)} for k in range(3)]
    fits = partial(av.fit, model, "ep", data=data, draws=20, random_seed=4, progressbar=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here, there = fits(), fits(executor=executor)
    assert [bytes_of(tree) for tree in here] == [bytes_of(tree) for tree in there]
    assert here[0].attrs["model"] == "ard_classification"  # its card has travelled too


@pytest.mark.filterwarnings("ignore:laplace. the approx:ardvark.errors.AccuracyWarning")
def test_a_model_of_the_user_s_own(executor):
    import pymc as pm

    with pm.Model(coords={"row": range(24), "input": list("abc")}) as model:
        inputs = pm.Data("inputs", X, dims=("row", "input"))
        w = pm.Normal("w", sigma=2.0, dims="input")
        pm.Bernoulli("t", logit_p=inputs @ w, observed=pm.Data("seen", T, dims="row"), dims="row")
    data = [{"seen": T}, {"seen": 1 - T}]
    fits = partial(av.fit, model, "laplace", data=data, draws=20, random_seed=4, progressbar=False)
    there = fits(executor=executor)
    assert [bytes_of(tree) for tree in fits()] == [bytes_of(tree) for tree in there]


def test_calibration_stability_leave_one_out(executor):
    model = av.models.ard_regression(X, X[:, 0], alpha=1.0, noise=0.5)
    here, there = (av.sbc(model, "ep", 4, random_seed=2, executor=e) for e in (None, executor))
    assert here.attrs["sha256"] == there.attrs["sha256"]
    tree = av.fit(model, "laplace", draws=20, random_seed=1, progressbar=False)
    rows = [refit_rows(model, tree, draws=20, executor=e).elpd for e in (None, executor)]
    assert rows[0].tobytes() == rows[1].tobytes() and np.isfinite(rows[0]).all()
    resampled = partial(
        av.diagnostics.stability, "ard_classification", (X, T), resamples=3, draws=20
    )
    one, two = resampled(progressbar=False), resampled(progressbar=False, executor=executor)
    assert one.table.equals(two.table) and one.chosen.equals(two.chosen)


def test_selection_and_the_search_of_a_width(executor):
    select = partial(select_features, X, T, starts=2, most=2, progressbar=False)
    here, there = select(), select(executor=executor)
    assert here.identical(there)
    model = av.models.sample_feature_regression(X, X[:, 0])
    search = partial(av.search_gamma, model, gammas=(0.25, 1.0), folds=2)
    one, two = (search(executor=e).table.drop(columns="seconds") for e in (None, executor))
    assert one.equals(two)


# --- longer -----------------------------------------------------------------------------------


@pytest.mark.validate
def test_a_dask_worker_that_is_killed_loses_nothing(tmp_path):
    distributed = pytest.importorskip("distributed")

    def work(i):
        time.sleep(0.2)
        return np.random.default_rng(seed_of(1, i)).random(5).tolist()

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as two,
        distributed.Client(two, set_as_default=False) as client,
    ):
        victims = list(client.run(os.getpid).values())

        def told(i, result):
            if victims and i >= 3:
                os.kill(victims.pop(), signal.SIGKILL)

        assert run_tasks(work, range(24), client, done=told) == run_tasks(work, range(24))
    assert not victims  # both were killed, and started again by their nannies


@pytest.mark.validate
def test_processes_of_the_standard_library():
    with ProcessPoolExecutor(2) as pool:
        assert run_tasks(abs, [-1, 2, -3], pool) == [1, 2, 3]


@pytest.mark.validate
def test_the_guide_runs(tmp_path):
    """Its code in one script, as a reader would have it."""
    guide = Path(__file__).resolve().parents[2] / "docs" / "guide" / "scale.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", guide.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    script = tmp_path / "guide.py"
    body = "\n".join(blocks).replace('if __name__ == "__main__":', "if True:")
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    script.write_text(f'if __name__ == "__main__":\n{lines}\n    print(len(trees))\n')
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "8"
