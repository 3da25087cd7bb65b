"""Machine code in separate threads, so that Ctrl-C stops it.

Python handles a signal in its main thread alone, and there only between two of its own
instructions: machine code that runs there sees no signal until it returns. So whatever takes long
runs in other threads, without the interpreter's lock, while the main thread waits in short steps.
Work and main thread share a `Watch`, two numbers:

    watch[STOP]   not 0: stop now; what has been computed is not used
    watch[DONE]   sweeps made so far, for a line of progress

A loop in machine code looks at its watch once a sweep, which costs nothing that could be measured,
and draws do not depend on it: how many threads there are and when one looks change nothing.
"""

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DONE",
    "STOP",
    "Watch",
    "aside",
    "go_on",
    "in_threads",
    "interruptible",
    "unwatched",
]

STOP, DONE = 0, 1
BLINK = 0.1  # seconds between two looks of the main thread
MOMENT = 0.005  # seconds until a Ctrl-C that came at a bad place is sent again

NOT_WITHIN = ("numba.core.serialize", "ctypes")  # what numba calls between C and Python

type Watch = NDArray[np.int64]


class Stopped(Exception):
    """Raised in a thread that was asked to stop."""


class _Interrupt(BaseException):
    """A KeyboardInterrupt of our own: other libraries do not catch it."""


def unwatched() -> Watch:
    """Give a watch that is never set, for short work."""
    return np.zeros(2, np.int64)


def go_on(watch: Watch) -> None:
    """Leave a loop in Python if the watch says so."""
    if watch[STOP]:
        raise Stopped


def in_threads[T](
    work: Callable[[int, Watch], T],
    count: int,
    workers: int | None = None,
    look: Callable[[int], None] | None = None,
) -> list[T]:
    """Give work(0, watch), ..., work(count - 1, watch), computed in threads.

    An error of one of them, or Ctrl-C, stops all others and is raised at once.

    Parameters
    ----------
    workers
        Threads at a time; None: as many as there are processors.
    look
        Told every moment how many sweeps have been made by all of them together.
    """
    watches = np.zeros((count, 2), np.int64)
    pool = ThreadPoolExecutor(max(1, min(count, workers or os.cpu_count() or 1)))
    try:
        futures = [pool.submit(work, i, watches[i]) for i in range(count)]
        left = set(futures)
        while left:
            done, left = wait(left, timeout=BLINK, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future in done:
                    future.result()
            if look is not None:
                look(int(watches[:, DONE].sum()))
        return [future.result() for future in futures]
    finally:
        watches[:, STOP] = 1
        pool.shutdown(wait=False, cancel_futures=True)


def aside[T](work: Callable[[Watch], T]) -> T:
    """Give work(watch), computed in a thread while this one listens."""
    return in_threads(lambda _, watch: work(watch), 1)[0]


def _knock() -> None:
    """Ctrl-C once more, also where the main thread waits in the system."""
    if hasattr(signal, "pthread_kill"):  # not on Windows
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C always come out as KeyboardInterrupt, and soon.

    On its way it may be lost. PyMC and nutpie answer a KeyboardInterrupt with the draws that they
    have, which would pass for a whole answer: so inside it goes by another name. While numba hands
    over an array or random numbers it does not look whether the Python code that it calls has
    raised anything, and ends in a SystemError or a segmentation fault; and whatever is raised while
    an object is deleted is ignored. A signal that arrives in such a place is sent again soon after.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    heard, starting, timers, unraisable = False, 0, list[threading.Timer](), sys.unraisablehook

    def again() -> None:
        nonlocal starting  # on a busy machine the timer may ring before it has been started
        starting += 1
        timers.append(threading.Timer(MOMENT, _knock))
        timers[-1].start()
        starting -= 1

    def lost(what: Any) -> None:
        if isinstance(what.exc_value, _Interrupt):
            again()
        else:
            unraisable(what)

    def listen(number: int, frame: Any) -> None:
        nonlocal heard
        heard = True
        if starting or (frame is not None and frame.f_globals.get("__name__") in NOT_WITHIN):
            again()
        elif before is not signal.default_int_handler:
            before(number, frame)  # a handler of the user's own
        else:
            raise _Interrupt

    sys.unraisablehook = lost
    signal.signal(signal.SIGINT, listen)
    try:
        yield
    except (Exception, _Interrupt) as error:
        if heard:
            raise KeyboardInterrupt from error
        raise
    finally:
        for timer in timers:
            timer.cancel()
        sys.unraisablehook = unraisable
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt
