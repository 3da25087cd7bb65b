"""One executor for every loop of many fits: this process, some processes, or a cluster.

    executor=None                  one task after the other, here
    executor=4                     four processes of this machine (joblib's loky)
    executor=client                a Dask cluster by its Client, or by its address "tcp://host:8786"
    executor=pool                  anything with submit(function, *arguments) -> Future

    results = run_tasks(work, tasks, executor)        # [work(task) for task in tasks]

The results come in the order of the tasks and are the same to the last bit whatever the executor:
a task has all it depends on, its seed too (`seed_of`), and BLAS has one thread everywhere, since
its sums depend on how many it has. One task runs at a time in each process: PyTensor's settings are
global. A task whose worker was lost is run again. Warnings of a task are given by this process.

The work is sent as bytes, and a worker keeps what it made of them: a graph is compiled once for all
tasks of a worker. Processes of this machine hand over large arrays in memory that both see: a pipe
would keep a processor busy. All this goes between processes of one run, and nothing is kept.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import platform
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import ExitStack, suppress
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ardvark.errors import InputError
from ardvark.inference.running.processes import end_with_parent

if sys.platform != "win32":
    import fcntl

__all__ = ["check_executor", "run_tasks", "seed_of"]

IN_FLIGHT = 1024  # tasks handed over and not yet back
WORTH_SENDING = 0.2  # seconds of work that go to a process of this machine at a time
AHEAD = 2  # such pieces that a process has at a time: one waits while the other is done
RETRIES = 3  # times that lost workers are replaced
IDLE = 60  # seconds after which a process without work ends
WORKS = 4  # that a worker keeps
ANSWER = 10  # seconds in which a scheduler must answer
LARGE = 2**20  # bytes of arrays that are worth a file in memory
IN_MEMORY = Path("/dev/shm")  # where there is such a folder
LINE = 64  # bytes: where arrays begin
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "BLIS")}


def seed_of(seed: int, task: int) -> np.random.SeedSequence:
    """The seed of one task of many: a stream of its own, whoever runs it and when."""
    return np.random.SeedSequence(seed, spawn_key=(task,))


def check_executor(executor: Any) -> Any:
    """Refuse what can run nothing; give None for one process."""
    whole = isinstance(executor, int | np.integer) and not isinstance(executor, bool)
    if executor is None or (whole and executor == 1):
        return None
    address = isinstance(executor, str) and "://" in executor
    if address or (whole and executor > 1) or callable(getattr(executor, "submit", None)):
        return executor
    raise InputError(
        f"executor must be None, a number of processes, a Dask Client or its address "
        f"('tcp://host:8786'), or have submit() as in concurrent.futures; got {executor!r}"
    )


def run_tasks[T, R](
    work: Callable[[T], R],
    tasks: Iterable[T],
    executor: Any = None,
    *,
    done: Callable[[int, R], None] | None = None,
) -> list[R]:
    """Give work(task) of every task, in their order.

    Parameters
    ----------
    work
        A function without side effects; partial functions, closures and callable objects may go to
        other processes too.
    tasks
        Arguments, each with all that its result depends on.
    executor
        See above.
    done
        Called here with the number of a task and its result, as they come.
    """
    where = check_executor(executor)
    report = done or (lambda number, result: None)
    if where is not None:
        return _elsewhere(work, tasks, where, report)
    results = []
    with threadpool_limits(1, "blas"):  # once: it takes as long as a small fit
        for number, task in enumerate(tasks):
            results.append(work(task))
            report(number, results[-1])
    return results


# Here -------------------------------------------------------------------------------------------


class _Sent(NamedTuple):
    """Work as bytes, the name under which a worker keeps what it made of them, and the sender."""

    name: str
    content: bytes
    sender: int  # number of the process


def _packed(work: Callable[..., Any]) -> _Sent:
    import cloudpickle

    try:
        content = cloudpickle.dumps(work)
    except Exception as error:
        raise InputError(
            f"executor: the work cannot be sent to another process ({error}). Functions of a "
            "module, functools.partial of them and models can."
        ) from error
    return _Sent(hashlib.sha256(content).hexdigest(), content, os.getpid())


def _elsewhere(
    work: Callable[..., Any], tasks: Iterable[Any], where: Any, report: Callable[[int, Any], None]
) -> list[Any]:
    """Hand the tasks to an executor; those of lost processes again, to new ones."""
    sent, numbered = _packed(work), list(enumerate(tasks))
    answers: dict[int, _Answer] = {}
    with ExitStack() as stack:
        for losses in count():
            pool = _pool(where, stack)
            left = [(number, task) for number, task in numbered if number not in answers]
            processes = int(where) if isinstance(where, int | np.integer) else None
            try:
                for number, answer in _completed(pool, sent, left, processes):
                    answers[number] = answer
                    report(number, answer.result)
                break
            except BrokenExecutor:
                if losses == RETRIES or not isinstance(where, int | np.integer):
                    raise
                lost = len(numbered) - len(answers)
                text = f"executor: a process was lost; {lost} tasks are given to new ones"
                warnings.warn(text, RuntimeWarning, stacklevel=3)
            except BaseException:
                if isinstance(where, int | np.integer):
                    pool.shutdown(wait=False, kill_workers=True)
                raise
    for number in range(len(numbered)):
        for text, category, file, line in answers[number].heard:
            warnings.warn_explicit(text, category, file, line)
    return [answers[number].result for number in range(len(numbered))]


def _pool(where: Any, stack: ExitStack) -> Any:
    """Something with submit(), as in concurrent.futures."""
    if isinstance(where, int | np.integer):
        from joblib.externals.loky import get_reusable_executor

        _clear_memory()
        return get_reusable_executor(
            max_workers=int(where), timeout=IDLE, env=ONE_THREAD,
            initializer=end_with_parent, initargs=(os.getpid(),),
        )  # fmt: skip
    if isinstance(where, str):
        where = stack.enter_context(_client(where))
    return where.get_executor(pure=False) if hasattr(where, "get_executor") else where


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(
            f"executor: {address} is the address of a Dask scheduler, and Dask is not installed: "
            "install ardvark[cluster]"
        ) from error
    try:
        return Client(address, timeout=ANSWER, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise InputError(
            f"executor: no Dask scheduler answers at {address}: start one (`dask scheduler`), or "
            f"give a number of processes"
        ) from error


def _completed(
    pool: Any, sent: _Sent, tasks: list[tuple[int, Any]], processes: int | None
) -> Iterator[tuple[int, _Answer]]:
    """Give number and answer of each task as it comes; at an error the others are called off.

    To processes of this machine short tasks go several at a time: to hand one over costs a
    millisecond, and more if the work is large.
    """
    pending: dict[Future[list[_Answer] | _Parcel], list[int]] = {}
    most, left = (AHEAD * processes if processes else IN_FLIGHT), len(tasks)
    queue, each = iter(tasks), math.inf  # seconds of a task, on average over the last piece
    try:
        while True:
            while left and len(pending) < most:
                size = 1
                if processes and each < WORTH_SENDING:
                    worth = int(WORTH_SENDING / max(each, 1e-6))
                    size = max(1, min(worth, left // (AHEAD * processes)))
                numbers, piece = zip(*islice(queue, size), strict=True)
                left -= len(piece)
                pending[pool.submit(_call, sent, piece, bool(processes))] = list(numbers)
            if not pending:
                return
            finished, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=pending.__getitem__):
                answers = _unpacked(future.result())
                each = sum(answer.seconds for answer in answers) / len(answers)
                yield from zip(pending[future], answers, strict=True)
                del pending[future]
    finally:
        for future in pending:
            if not future.cancel():
                future.add_done_callback(_drop)


# There ------------------------------------------------------------------------------------------


class _Answer(NamedTuple):
    result: Any
    heard: list[tuple[str, type[Warning], str, int]]
    seconds: float


_ONE_AT_A_TIME = threading.RLock()
_WORKS: dict[str, Callable[..., Any]] = {}  # by name, the last few
_DIRECTORY: list[int] = []  # handle of the lock of this process's own compile directory


class _Parcel(NamedTuple):
    """Answers as bytes, but for their arrays, which are in a file: where each begins and ends."""

    content: bytes
    file: str
    arrays: list[tuple[int, int]]


def _call(sent: _Sent, tasks: Sequence[Any], near: bool = False) -> list[_Answer] | _Parcel:
    """Run some tasks in a worker; one that is `near` is of the sender's machine."""
    with _ONE_AT_A_TIME:
        if os.getpid() != sent.sender and "pytensor" not in sys.modules and not _DIRECTORY:
            _take_directory()
        if sent.name not in _WORKS:
            import cloudpickle

            if len(_WORKS) == WORKS:
                del _WORKS[next(iter(_WORKS))]
            _WORKS[sent.name] = cloudpickle.loads(sent.content)
        with threadpool_limits(1, "blas"):
            answers = [_answer(_WORKS[sent.name], task) for task in tasks]
        return _parcelled(answers, sent.sender) if near and IN_MEMORY.is_dir() else answers


def _parcelled(answers: list[_Answer], sender: int) -> list[_Answer] | _Parcel:
    """Put large arrays into a file in memory; where that is full they stay in the answers."""
    import cloudpickle

    buffers: list[Any] = []
    content = cloudpickle.dumps(answers, protocol=5, buffer_callback=buffers.append)
    parts = [buffer.raw() for buffer in buffers]
    if sum(part.nbytes for part in parts) < LARGE:
        return answers
    arrays = list[tuple[int, int]]()
    with tempfile.NamedTemporaryFile(
        prefix=f"ardvark-{sender}-", dir=IN_MEMORY, delete=False
    ) as file:
        try:
            for part in parts:
                file.seek(-(-file.tell() // LINE) * LINE)
                arrays.append((file.tell(), file.tell() + part.nbytes))
                file.write(part)
            file.flush()
        except OSError:
            os.unlink(file.name)
            return answers
    return _Parcel(content, file.name, arrays)


def _unpacked(found: list[_Answer] | _Parcel) -> list[_Answer]:
    """Answers whose arrays stay where they are; their memory is freed with the last of them."""
    if not isinstance(found, _Parcel):
        return found
    import cloudpickle

    with open(found.file, "rb") as file:
        os.unlink(found.file)
        here = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    answers: list[_Answer] = cloudpickle.loads(
        found.content, buffers=[here[begin:end] for begin, end in found.arrays]
    )
    return answers


def _drop(future: Future[Any]) -> None:
    """Nobody asks for this answer any more."""
    found = None if future.cancelled() or future.exception() else future.result()
    if isinstance(found, _Parcel):
        os.unlink(found.file)


def _clear_memory() -> None:
    """Remove what a process that was killed has not fetched."""
    for file in IN_MEMORY.glob("ardvark-*-*"):
        owner = int(file.name.split("-")[1])
        if not Path(f"/proc/{owner}").exists():
            with suppress(OSError):
                file.unlink()


def _answer(work: Callable[..., Any], task: Any) -> _Answer:
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = work(task)
    said = [(str(w.message), w.category, w.filename, w.lineno) for w in heard]
    return _Answer(result, said, time.perf_counter() - begin)


def _take_directory() -> None:
    """Have PyTensor compile in a directory that no other process has: workers need not wait.

    Directories are numbered, and one whose process has ended is taken by the next.
    """
    flags = os.environ.get("PYTENSOR_FLAGS", "")
    if sys.platform == "win32" or "compiledir" in flags:
        return
    home = Path.home() / ".pytensor" / f"ardvark-workers-{platform.node()}"
    home.mkdir(parents=True, exist_ok=True)
    for number in count():
        handle = os.open(home / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _DIRECTORY.append(handle)
            own = f"base_compiledir={home / str(number)}"
            os.environ["PYTENSOR_FLAGS"] = f"{flags},{own}" if flags else own
            return
        os.close(handle)
