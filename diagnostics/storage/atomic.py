"""Files and folders that are there as a whole or not at all, and one writer of each at a time.

What is written has a temporary name beside its target, which no other writer has. It is brought to
the disk (fsync), renamed, and the folder is brought to the disk too: after a crash there is the old
one or the new one. The lock is advisory and ends with the process that holds it. That process may
remove the temporaries of a target, since no other writes them. A file system without locks
is written without one, and nothing is removed there.
"""

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from ardvark.errors import InputError

if sys.platform != "win32":
    import fcntl

__all__ = ["is_leftover", "locked", "remove", "replacing", "try_target", "write_text"]

PART, LOCK = ".part", ".lock"
FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def replacing(path: Path, needs: int = 0, durable: bool = True) -> Iterator[Path]:
    """Return a temporary name to write a file or a folder under; at the end it becomes `path`.

    Nothing stays of what fails. `needs` is the size in bytes named when the disk is full. What
    need not outlive a crash of the machine is not `durable`.
    """
    partial = _temporary(path)
    try:
        yield partial
        if durable:
            _to_disk(partial)
        os.replace(partial, path)
        if durable:
            _to_disk(path.parent, deep=False)
    except OSError as error:
        _delete(partial)  # before the free space is measured
        raise _explained(error, path, needs) from error
    finally:
        _delete(partial)


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Write a file: readers see the old one or the new one."""
    with replacing(path, len(text), durable) as partial:
        partial.write_text(text, encoding="utf-8")


def remove(path: Path) -> None:
    """Remove a file or a folder at once: no reader sees a part of it."""
    partial = _temporary(path)
    with suppress(FileNotFoundError):
        os.replace(path, partial)
    _delete(partial)


def try_target(path: Path) -> None:
    """Check that a file can be written before the work that ends in it."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file in it")
    partial = _temporary(path)
    try:
        partial.touch(exist_ok=False)
    except OSError as error:
        raise _explained(error, path, 0) from error
    finally:
        _delete(partial)


def is_leftover(path: Path) -> bool:
    """Whether a file is a temporary or a lock of a run that was killed.

    Temporaries of version 0.1.0 end in the number of a process.
    """
    return path.name.startswith(".") and (path.suffix in (PART, LOCK) or path.suffix[1:].isdigit())


@contextmanager
def locked(
    path: Path, tell: Callable[[str], None], *, wait: bool = True, temporaries: str | None = None
) -> Iterator[None]:
    """Be the only writer of a target: wait for another one, or refuse.

    What a killed writer left is removed and reported: the temporaries of the target, or those of
    its folder that fit a pattern.
    """
    lock = path.with_name(f".{path.name}{LOCK}")
    handle = _take(lock, path, tell, wait)
    if handle is None:
        yield
        return
    try:
        for left in sorted(path.parent.glob(f".{temporaries or _literal(path.name)}.*{PART}")):
            _delete(left)
            tell(f"{left}: left by a run that was killed, removed")
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _take(lock: Path, path: Path, tell: Callable[[str], None], wait: bool) -> int | None:
    """Open and lock the file of a lock; None where there are no locks."""
    if sys.platform == "win32":
        return None
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise _explained(error, path, 0) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode(errors="replace") or "another"
            if not wait:
                os.close(handle)
                raise InputError(
                    f"{path} is being written by process {holder}: wait for it, or choose another"
                ) from None
            tell(f"{path}: being written by process {holder}, waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            os.close(handle)
            return None
        # The holder has removed the file: a lock on a deleted file excludes no one.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), lock.stat()):
                os.ftruncate(handle, 0)
                with suppress(OSError):  # a full disk holds no number, but the lock
                    os.pwrite(handle, str(os.getpid()).encode(), 0)
                return handle
        os.close(handle)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex}{PART}")


def _literal(name: str) -> str:
    """Write a name as a pattern that fits itself alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _to_disk(path: Path, deep: bool = True) -> None:
    """Bring a file, or a folder with all that is in it, to the disk."""
    if deep and path.is_dir():
        for child in path.iterdir():
            _to_disk(child)
    if path.is_dir() and os.name != "posix":
        return  # a folder cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _explained(error: OSError, path: Path, needs: int) -> OSError:
    """Return an error with the path and what to do."""
    if error.errno in FULL:
        free = shutil.disk_usage(path.parent).free
        size = (
            f"about {_size(needs)} needed, {_size(free)} free" if needs else f"{_size(free)} free"
        )
        said = (
            f"the disk is full ({size}); the unfinished file was removed: free space and run again"
        )
    elif error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        said = "it exists already: remove it or choose another name"
    else:
        said = f"it cannot be written ({error.strerror or error}): choose another place"
    explained = type(error)(f"{path}: {said}")
    explained.errno = error.errno
    return explained


def _size(count: int) -> str:
    return next(
        f"{count / scale:.1f} {unit}" if scale > 1 else f"{count} {unit}"
        for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))
        if count >= scale or scale == 1
    )
