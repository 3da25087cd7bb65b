"""The folder of a run: the trees that are there are not fitted again, and are of one data set.

    run/run.json        what was fitted: data and their fingerprint, model
    run/laplace.zarr    a tree with its checksums, stored the moment it is done

A tree carries the key of all that it depends on. One that answers another question is refused, or
replaced where the folder is only a report's own. One that is damaged is set aside and fitted again.
Like the command line itself this imports nothing heavy before it is needed.
"""

import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ardvark.commands.own import is_own, resolved
from ardvark.commands.tasks import Output, Prepared, Task, settings_of
from ardvark.errors import InputWarning

__all__ = ["Kept", "data_key", "request_of"]

REQUEST, KEY = "run.json", "run_key"
ASKED = ("data", "model", "target", "raw")


def run_key(prepared: Prepared, method: str, settings: Any, task: Task) -> str:
    """Sum up all that an answer depends on: data, model, method, settings, seed, version."""
    import hashlib

    from ardvark.diagnostics.reading import installed
    from ardvark.inference.fit import named_method
    from ardvark.inference.tree import describe

    asked = {
        "data": data_key(prepared),
        "model": prepared.name,
        "method": method,
        "settings": describe(named_method(settings)[1]),
        "run": [task.seed, task.draws, task.chains],
        "version": installed("ardvark"),
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def data_key(prepared: Prepared) -> str:
    """Sum up the rows that are fitted: inputs with their names, and target."""
    import hashlib

    import numpy as np

    from ardvark.diagnostics.reading import fingerprint

    data = prepared.data
    if data is None:
        from ardvark.inference.pymc_models.fingerprint import fingerprint as graph_fingerprint

        return hashlib.sha256(
            json.dumps(graph_fingerprint(prepared.model), sort_keys=True).encode()
        ).hexdigest()[:16]
    return fingerprint(data.X, data.t, np.array([*data.feature_names, data.target_name]))


def request_of(folder: Path) -> dict[str, Any] | None:
    """Read what was fitted in a folder; None if that is not recorded."""
    path = folder / REQUEST
    if not path.exists():
        return None
    try:
        asked = json.loads(path.read_text(encoding="utf-8"))
        return {name: asked[name] for name in ASKED} | {
            name: asked.get(name) for name in ("fingerprint", "size")
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        advice = "remove it to report the trees alone"
        raise ValueError(f"{path}: damaged ({error}); {advice}") from None


class Kept:
    """Trees of one data set and model in a folder, found there or put there.

    `own`: the folder belongs to a report; trees of other data or settings are replaced.
    """

    def __init__(
        self, folder: Path, data: str, prepared: Prepared, task: Task, output: Output,
        *, own: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.data, self.prepared = folder, data, prepared
        self.task, self.output, self.own = task, output, own
        self.there: dict[str, Any] = {}
        self.set_aside: dict[str, Path] = {}

    def path(self, name: str) -> Path:
        """Where the tree of this name is."""
        return self.folder / f"{name}.zarr"

    def open(self, names: Iterable[str]) -> None:
        """Make the folder its own, and refuse what is of other data, before anything is fitted."""
        from ardvark.diagnostics.storage.atomic import locked, write_text

        name = str(Path(self.data).resolve()) if Path(self.data).is_file() else self.data
        model = self.prepared.name
        asked = {
            "data": name,
            "model": resolved(model) if is_own(model) else model,
            "target": self.task.target,
            "raw": self.task.raw,
            "fingerprint": data_key(self.prepared),
            "size": _size(self.prepared),
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise type(error)(
                f"--out {self.folder}: the folder cannot be made ({error.strerror or error})"
            ) from None
        with locked(self.folder / REQUEST, self.output.say):
            self._refuse_another(asked)
            write_text(self.folder / REQUEST, json.dumps(asked, indent=1))
        for method in names:
            with self.claimed(method):
                self.find(method, settings_of(method, self.task))

    @contextmanager
    def claimed(self, name: str) -> Iterator[None]:
        """Lock a tree: one process at a time looks for it and writes it."""
        from ardvark.diagnostics.storage.atomic import locked

        with locked(self.path(name), self.output.say):
            yield

    def find(self, name: str, settings: Any) -> Any:
        """Return the tree of an earlier run with the same request, None if there is none."""
        from ardvark.diagnostics.storage.trees import DamagedTree, has_checksums, read_tree

        path = self.path(name)
        if name in self.there or not path.exists():
            return self.there.get(name)
        try:
            tree = read_tree(path)
        except DamagedTree as damage:
            self.set_aside[name] = _aside(path)
            message = f"{damage}. It is now {self.set_aside[name].name}, and {name} is fitted again"
            warnings.warn(message, InputWarning, stacklevel=2)
            return None
        if tree.attrs.get(KEY) != run_key(self.prepared, name, settings, self.task):
            self._other_question(name, path)
            return None
        if not has_checksums(path):
            self.output.say(f"{path}: no checksums, so damage to it would not be detected")
        self.there[name] = tree
        return tree

    def keep(self, name: str, settings: Any, tree: Any) -> None:
        """Store a tree the moment it is done."""
        from ardvark.diagnostics.storage.trees import write_tree

        tree.attrs[KEY] = run_key(self.prepared, name, settings, self.task)
        write_tree(tree, self.path(name))

    def remove(self) -> None:
        """Remove the folder and all trees in it."""
        from ardvark.diagnostics.storage.atomic import remove

        remove(self.folder)

    def _refuse_another(self, asked: dict[str, Any]) -> None:
        """Refuse a folder that holds trees of other data or another model."""
        from ardvark.diagnostics.storage.atomic import remove

        found = (
            None if self.own and not any(self.folder.glob("*.zarr")) else request_of(self.folder)
        )
        if found is None:
            return
        # version 0.1.0 kept no fingerprint: the name of the data must do
        same = "data" if found["fingerprint"] is None else "fingerprint"
        if found[same] == asked[same] and found["model"] == asked["model"]:
            return
        holds, wants = _told(found), _told(asked)
        if not self.own and holds == wants:
            changed = "the model" if is_own(asked["model"]) else "the data"
            raise FileExistsError(
                f"{self.folder} holds fits of {holds} as it was at that time, and {changed} (or "
                f"numbers in it) has changed since: what you ask for now is another question. "
                f"Choose another --out for it, or remove {self.folder} if the fits of the earlier "
                "version are not wanted"
            )
        if not self.own:
            raise FileExistsError(
                f"{self.folder} holds fits of {holds}. {wants} is another question, and one folder "
                "has one: choose another --out"
            )
        self.output.say(f"{self.folder}: of an unfinished report of {holds}, removed")
        for path in self.folder.glob("*.zarr"):
            remove(path)

    def _other_question(self, name: str, path: Path) -> None:
        from ardvark.diagnostics.storage.atomic import remove

        if not self.own:
            raise FileExistsError(
                f"{path} exists and answers another question (data, model, settings, seed or "
                "version differ): choose another --out or remove it"
            )
        self.output.say(f"{name}: {path} is of other data or settings, removed")
        remove(path)


def _told(asked: dict[str, Any]) -> str:
    on = f" on {asked['data']}" if asked["data"] else ""
    return f"{asked['model']}{on} ({asked['size'] or 'of version 0.1.0'})"


def _size(prepared: Prepared) -> str:
    if prepared.data is None:
        return f"{len(prepared.model.free_RVs)} free variables"
    return f"{len(prepared.data.X)} rows, {prepared.data.X.shape[1]} columns"


def _aside(path: Path) -> Path:
    """Move what is damaged to a name that no command reads."""
    for number in range(1, 1000):
        place = path.with_name(f"{path.name}.damaged" + (f"{number}" if number > 1 else ""))
        if not place.exists():
            os.replace(path, place)
            return place
    raise FileExistsError(f"{path}.damaged1 to 999 exist: remove them")
