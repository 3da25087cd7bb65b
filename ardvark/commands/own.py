"""A model of one's own on the command line: `--model my_model.py:model`.

What is named after the colon is a `pm.Model`, a model of bambi, or a function without arguments
that gives one. File and name are checked before the file is run; an error names both.
Like the command line itself this imports nothing heavy before it is needed.
"""

import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ardvark.errors import InputError

__all__ = ["is_own", "own_model", "resolved"]


def is_own(name: str | None) -> bool:
    """Whether a --model names a file: all others are names of `ardvark list`."""
    return name is not None and (":" in name or name.endswith(".py"))


def resolved(name: str) -> str:
    """The same with the whole path of the file, for a folder that may be read from elsewhere."""
    file, _, attribute = name.rpartition(":")
    return f"{Path(file).resolve()}:{attribute}"


def own_model(name: str) -> Any:
    """Run the file and give the `pm.Model` that is named."""
    file, colon, attribute = name.rpartition(":")
    if not colon:
        raise InputError(f"--model {name}: which variable of it? Write {name}:model")
    path = Path(file)
    source = _source(name, path)
    _check_name(name, path, source, attribute)
    return _as_model(name, getattr(_run(name, path, source), attribute))


def _source(name: str, path: Path) -> str:
    if path.suffix != ".py":
        raise InputError(f"--model {name}: {path} is no Python file. Write my_model.py:model")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"--model {name}: {path} cannot be read ({reason})") from None


def _check_name(name: str, path: Path, source: str, attribute: str) -> None:
    """Refuse a file that cannot be parsed, or that gives nothing this name; nothing is run."""
    import symtable

    try:
        table = symtable.symtable(source, str(path), "exec")
    except SyntaxError as error:
        raise InputError(
            f"--model {name}: {path}, line {error.lineno}: {error.msg or 'cannot be parsed'}"
        ) from None
    given = sorted(
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    )
    if attribute not in given and "import *" not in source:
        listed = ", ".join(n for n in given if not n.startswith("_")) or "nothing"
        raise InputError(f"--model {name}: {path} has no {attribute!r}; it has {listed}")


def _run(name: str, path: Path, source: str) -> Any:
    """The file as a module of its own; modules beside it can be imported."""
    from types import ModuleType

    module = ModuleType(path.stem)
    module.__file__ = str(path.resolve())
    with _beside(path), _told(name, path):
        exec(compile(source, module.__file__, "exec"), module.__dict__)
    return module


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@contextmanager
def _told(name: str, path: Path) -> Iterator[None]:
    """Say in which line of the file an error of it came up."""
    try:
        yield
    except Exception as error:
        frames, file = traceback.extract_tb(error.__traceback__), str(path.resolve())
        own = [frame for frame in frames if frame.filename == file]
        line = f", line {own[-1].lineno}" if own else ""
        raise InputError(
            f"--model {name}: {path}{line}: {type(error).__name__}: {error}"
        ) from error


def _as_model(name: str, found: Any) -> Any:
    """The graph of a model, of bambi too, or of what a function gives."""
    from ardvark.inference.pymc_models.own import as_pymc, is_bambi

    path = Path(name.rpartition(":")[0])
    if inspect.isfunction(found):
        needed = [
            p.name
            for p in inspect.signature(found).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if needed:
            raise InputError(
                f"--model {name} is a function that needs {', '.join(needed)}: it must give a "
                f"model without arguments"
            )
        with _told(name, path):
            found = found()
    if not (is_bambi(found) or hasattr(found, "free_RVs")):
        raise InputError(
            f"--model {name} is {type(found).__name__}: a pm.Model, a model of bambi, or a "
            f"function that gives one is needed"
        )
    with _told(name, path):
        return as_pymc(found)
