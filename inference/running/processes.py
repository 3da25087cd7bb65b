"""Processes that do not outlive the one that started them."""

import ctypes
import os
import signal
import sys

__all__ = ["end_with_parent"]

PR_SET_PDEATHSIG = 1  # of Linux's prctl


def end_with_parent(parent: int) -> None:
    """Have the system end this process when process `parent`, which started it, is gone.

    Only Linux can; elsewhere nothing happens, and a process must look for itself.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent had ended before this was set
            os._exit(1)
