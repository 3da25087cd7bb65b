"""Ctrl-C ends every fit with KeyboardInterrupt, whatever it is doing; threads change no number."""

import os
import select
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ardvark.errors import InputError
from ardvark.inference.exact.truncated_normal import standard_excess
from ardvark.inference.mixture.kernels import draw_rate
from ardvark.inference.running.threads import (
    DONE,
    MOMENT,
    STOP,
    aside,
    go_on,
    in_threads,
    interruptible,
)
from ardvark.inference.sampled.exact_kernels import _draw_variances, _slice_precision
from ardvark.inference.sampled.kernels import PROBIT, State, problem_of, rescale_all
from ardvark.inference.subset.collapsed import Subsets, sample_collapsed
from ardvark.inference.subset.kernels import FIXED, above_zero, sample_sigma
from ardvark.inference.subset.laplace import sample_laplace


@pytest.fixture(autouse=True)
def interrupts_are_heard():
    """A shell starts background jobs with SIGINT ignored, and Python and its children keep that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


LIMIT = 20.0  # seconds from Ctrl-C to the end of the fit: two here, more where others work too

# Each fit is made once in short, so that everything is compiled, then for hours. Several fits share
# a process: importing takes most of the time, and what was interrupted must not harm what follows.
SETUP = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, pymc as pm, ardvark as av
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5))
t = X[:, 0] + rng.normal(size=60)
label = (t > 0).astype(int)

def fit(model, method, **settings):
    av.fit(model, method, random_seed=1, progressbar=False, **settings)
"""
RUN = """
short()
print("begin", flush=True)
try:
    long()
    print("ended by itself", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
FITS = {
    "subsets of a regression": """
m = av.models.subset_regression(X, t)
def short(): fit(m, av.ReversibleJump(sweeps=100, tune=10), draws=50)
def long(): fit(m, av.ReversibleJump(sweeps=3_000_000), draws=1000)
""",
    "subsets of a logit": """
m = av.models.subset_classification(X, label, link="logit")
def short(): fit(m, av.ReversibleJump(sweeps=100, tune=10), draws=50)
def long(): fit(m, av.ReversibleJump(sweeps=10_000_000), draws=1000)
""",
    "mixture": """
m = av.models.rbf_mixture(X[:, :3], label)
def short(): fit(m, av.ReversibleJump(sweeps=50, tune=10), draws=50)
def long(): fit(m, av.ReversibleJump(sweeps=1_000_000), draws=1000)
""",
    "sweeps of EP": """
m = av.models.ard_classification(X, label)
def short(): fit(m, av.EP(hyper=av.Sampled(tune=10)), draws=50)
def long(): fit(m, av.EP(hyper=av.Sampled(tune=1_000_000)), draws=1000)
""",
    "exact draws in turn": """
m = av.models.ard_classification(X[:8], label[:8])
def short(): fit(m, av.EP(hyper=av.Sampled(kernel="exact", tune=10)), draws=50)
def long(): fit(m, av.EP(hyper=av.Sampled(kernel="exact", tune=3_000_000)), draws=1000)
""",
    "sweeps in Python": """
m = av.models.ard_regression(X, t)
def short(): fit(m, av.Laplace(hyper=av.Sampled(tune=10)), draws=50)
def long(): fit(m, av.Laplace(hyper=av.Sampled(tune=1_000_000)), draws=1000)
""",
    "one call of EP": """
from ardvark.inference.ep.ep import EP
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.likelihoods import ProbitSites
from ardvark.inference.running.threads import interruptible
A = rng.normal(size=(6000, 600))
sign = np.where(A[:, 0] > 0, 1.0, -1.0)
def approximate(rows, d):
    model = SiteModel(mean=np.zeros(d), projection=A[:rows, :d], offset=np.zeros(rows),
                      sites=ProbitSites(sign[:rows]), precision=np.ones(d))
    with interruptible():
        EP().approximate(model)
def short(): approximate(20, 5)
def long(): approximate(6000, 600)
""",
    "many calls of EP": """
A = rng.normal(size=(3000, 300))
m = av.models.ard_classification(A, (A[:, 0] + rng.normal(size=3000) > 0).astype(int))
def short(): fit(av.models.ard_classification(X, label), av.EP(), draws=50)
def long(): fit(m, av.EP(), draws=50)
""",
    "climbs in threads": """
A = rng.normal(size=(500, 30))
m = av.models.trigonometric_svm(A, (A[:, 0] * A[:, 1] > 0).astype(int))
def short(): fit(av.models.trigonometric_svm(X[:20, :1], label[:20]), av.Laplace(), draws=50)
def long(): fit(m, av.Laplace(), draws=50)
""",
    "a grid of machines": """
from ardvark.inference.selection.svm import GridSVM
from ardvark.inference.running.threads import interruptible
A = rng.normal(size=(400, 3))
sign = np.where(A[:, 0] * A[:, 1] + rng.normal(size=400) > 0, 1.0, -1.0)
def search(rows, repeats):
    with interruptible():
        GridSVM(repeats=repeats)(A[:rows], sign[:rows])
def short(): search(30, 1)
def long(): search(400, 1000)
""",
    "nutpie": """
m = av.models.ard_regression(X, t)
def short(): fit(m, av.NUTS(tune=50), draws=50, chains=2)
def long(): fit(m, av.NUTS(tune=3_000_000), draws=1000, chains=2)
""",
    "nutpie after its tuning": """
m = av.models.ard_regression(X, t)
def short(): fit(m, av.NUTS(tune=50), draws=50, chains=2)
def long(): fit(m, av.NUTS(tune=100), draws=3_000_000, chains=2)
""",
    "PyMC": """
m = av.models.ard_regression(X, t)
def short(): fit(m, av.NUTS(tune=20, sampler="pymc"), draws=20, chains=2)
def long(): fit(m, av.NUTS(tune=1, sampler="pymc"), draws=3_000_000, chains=2)
""",
    "sequential Monte Carlo": """
m = av.models.ard_regression(X, t)
def short(): fit(m, av.SMC(), draws=20, chains=2)
def long(): fit(m, av.SMC(), draws=200_000, chains=2)
""",
    "jumps of a conditional target": """
m = av.models.rbf_mixture(X[:, :2], label, target="conditional")
def short(): fit(m, av.ReversibleJump(sweeps=20, tune=5), draws=20, chains=2)
def long(): fit(m, av.ReversibleJump(sweeps=100_000_000, tune=5), draws=1000, chains=2)
""",
}
TOGETHER = {
    "chains in threads": [
        "subsets of a regression", "subsets of a logit", "mixture",
        "jumps of a conditional target", "sweeps of EP", "exact draws in turn",
    ],
    "searches": [
        "sweeps in Python", "one call of EP", "many calls of EP", "climbs in threads",
        "a grid of machines",
    ],
    "nutpie after its tuning": ["nutpie after its tuning"],
    "PyMC": ["PyMC"],
}  # fmt: skip
LONG_TO_COMPILE = ("nutpie", "sequential Monte Carlo")


def cases():
    assert set(FITS) == {*LONG_TO_COMPILE, *(name for names in TOGETHER.values() for name in names)}
    for group, names in TOGETHER.items():
        yield pytest.param(names, id=group)
    for name in LONG_TO_COMPILE:
        yield pytest.param([name], id=name, marks=pytest.mark.validate)


def line_of(process, seconds):
    """The next line of a process; "" if there is none in time."""
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline().strip() if ready else ""


@pytest.mark.parametrize("names", cases())
def test_ctrl_c_ends_a_fit(names):
    """Threads over machine code ran on after Ctrl-C until they were killed.

    EP ended in a SystemError; PyMC and nutpie gave a tree of the draws they had.
    """
    code = SETUP + "".join(FITS[name] + RUN for name in names) + "sys.exit(130)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        for name in names:
            assert line_of(process, 240) == "begin", (name, process.communicate()[1][-2000:])
            time.sleep(0.5)
            assert process.poll() is None  # it is at work
            process.send_signal(signal.SIGINT)
            assert line_of(process, LIMIT) == "interrupted", name
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert (out, process.returncode) == ("", 130), err[-2000:]


# In this process ----------------------------------------------------------------------------------


def test_results_keep_their_order_and_progress_is_told():
    told = []

    def work(number, watch):
        time.sleep(0.25 if number == 0 else 0.0)
        watch[DONE] += 10
        return number

    assert in_threads(work, 5, workers=2, look=told.append) == list(range(5))
    assert told[-1] == 50 and told == sorted(told)
    assert in_threads(work, 0) == []


def test_an_error_stops_the_others():
    left = []

    def work(number, watch):
        if number == 1:
            raise ZeroDivisionError
        while True:
            time.sleep(0.01)
            left.append(number) if watch[STOP] else None
            go_on(watch)

    with pytest.raises(ZeroDivisionError):
        in_threads(work, 3, workers=3)
    for _ in range(500):
        if sorted(left) == [0, 2]:
            break
        time.sleep(0.01)
    assert sorted(left) == [0, 2]


def test_an_interrupt_stops_the_work_and_comes_out():
    seen = []

    def work(watch):
        os.kill(os.getpid(), signal.SIGINT)
        while not watch[STOP]:
            time.sleep(0.01)
        seen.append(True)

    with pytest.raises(KeyboardInterrupt), interruptible():
        aside(work)
    for _ in range(500):
        if seen:
            break
        time.sleep(0.01)
    assert seen


def swallow():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5.0)
    except KeyboardInterrupt:
        pass  # as PyMC and nutpie do


def disguise():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5.0)
    except BaseException as error:
        raise SystemError("a result with an exception set") from error  # as numba does


class Lost:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(10))


def lose():
    thing = Lost()
    del thing  # whatever is raised in there is ignored
    time.sleep(5.0)


@pytest.mark.parametrize("place", [swallow, disguise, lose])
def test_an_interrupt_is_not_lost_on_its_way(place):
    handler, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interruptible():
        place()
    assert time.monotonic() - begin < 4.0
    assert signal.getsignal(signal.SIGINT) is handler and sys.unraisablehook is hook
    time.sleep(0.05)  # nothing comes late


def test_a_timer_that_rings_while_it_is_started_loses_nothing(monkeypatch):
    """On a busy machine the second signal came inside the hook for lost ones, and was lost."""
    start = threading.Timer.start

    def slow(timer):
        start(timer)
        if not rung:
            rung.append(timer)
            time.sleep(3 * MOMENT)

    rung = []
    monkeypatch.setattr(threading.Timer, "start", slow)
    test_an_interrupt_is_not_lost_on_its_way(lose)
    assert rung


def test_a_handler_of_somebody_else_is_asked():
    asked = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
    assert asked == [signal.SIGINT]


def test_other_errors_and_other_threads_are_left_alone():
    with pytest.raises(ZeroDivisionError), interruptible():
        raise ZeroDivisionError
    found = []

    def elsewhere():
        with interruptible():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


# Machine code that meets numbers which are none ---------------------------------------------------


@pytest.mark.parametrize("scale", [1e300, 1e160])
@pytest.mark.parametrize("kind", ["regression", "probit", "logit"])
def test_subsets_of_inputs_that_overflow_end_with_an_error(kind, scale):
    """A chain never ended: NaN in loops that wait for a comparison to hold."""
    rng = np.random.default_rng(3)
    X = scale * np.column_stack([np.full(20, 1.0 / scale), rng.normal(size=(20, 3))])
    t = rng.normal(size=20)
    sign = np.where(t > 0, 1.0, -1.0)
    target = t if kind == "regression" else sign
    problem = Subsets(
        X, target, np.zeros(4), np.ones(4), slab=FIXED, scale=1.0 if kind == "regression" else 0.0,
        probit=kind == "probit",
    )  # fmt: skip
    sample = sample_laplace if kind == "logit" else sample_collapsed
    with np.errstate(all="ignore"), pytest.raises(InputError, match="not finite"):
        sample(problem, (20, 20, 1), 2, 1)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, -1e200])
def test_draws_given_no_number_are_none(bad):
    rng = np.random.default_rng(1)
    assert np.isnan(above_zero(bad, rng))
    assert np.isnan(standard_excess(np.array([np.nan]), rng)[0])
    assert np.isnan(sample_sigma(1.0, np.nan, 10, 1.0, rng))
    assert np.isnan(draw_rate(rng, 2.0, np.nan, 0.1))


def test_slices_without_a_level_end():
    rng = np.random.default_rng(1)
    w, alpha, shape, rate = np.zeros(2), np.zeros(2), np.ones(2), np.ones(2)  # alpha underflowed
    A, label = np.ones((3, 2)), np.ones(3)
    problem = problem_of(A, np.zeros(3), (PROBIT, label, label), shape, rate)
    rescale_all(problem, State(w, alpha), rng)
    assert np.all(w == 0.0)
    assert _slice_precision(1.0, np.nan, 1.0, 1.0, 1.0, rng) == 1.0
    variance = np.array([np.nan, 1.0])
    _draw_variances(np.zeros(2), variance, rng)
    assert np.isfinite(variance[1])
