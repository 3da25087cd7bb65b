"""Simulation-based calibration: whether a method is right, averaged over the prior of a model.

    tree = av.sbc(model, "ep", 1000, random_seed=1)      # the group `prior_sbc`
    av.diagnostics.sbc_summary(tree)                     # uniformity, symmetry, coverage
    az.plot_ecdf_pit(tree)

`replication.py` has one replication, `checks.py` what is read from many. Each replication has its
own seed and is written to `folder` the moment it is done, whole or not at all
(`storage/atomic.py`): a killed run goes on where it was, and ends in the same bytes as one that
was not killed. A fit that fails is counted and reported, never left out silently.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count as iterate
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ardvark.diagnostics.calibration.replication import Replicator
from ardvark.diagnostics.reading import fingerprint, installed
from ardvark.diagnostics.storage.atomic import is_leftover, locked, write_text
from ardvark.errors import AccuracyWarning, InputError
from ardvark.inference.fit import named_method
from ardvark.inference.methods import METHODS
from ardvark.inference.pymc_models.copies import copy_of
from ardvark.inference.pymc_models.fingerprint import graph_of
from ardvark.inference.pymc_models.own import as_pymc
from ardvark.inference.running.executor import check_executor, run_tasks, seed_of
from ardvark.inference.tree import describe, dims_of
from ardvark.models.card import card_of
from ardvark.models.checks import Seed, as_seed, positive_integer

__all__ = ["sbc"]

FORMAT = 2  # of the files in a folder
IDENTITY = "sbc.json"
SUMS = ("first_predictor", "log_prior", "log_likelihood")


@dataclass(frozen=True, slots=True)
class _Identity:
    """What must be the same for replications to belong together."""

    format: int
    version: str
    model: str
    fingerprint: str
    method: str
    settings: dict[str, Any]
    hold: bool
    draws: int
    chains: int
    random_seed: int


def sbc(
    model: Any,
    method: Any = "ep",
    replications: int = 1000,
    *,
    hold: bool | None = None,
    draws: int = 250,
    chains: int = 4,
    random_seed: Seed = 0,
    folder: str | os.PathLike[str] | None = None,
    executor: Any = None,
    tick: Callable[[int], None] | None = None,
) -> xr.DataTree:
    """Simulate from the prior, fit, and see where the truth lies in the posterior.

    Parameters
    ----------
    model : pm.Model or callable
        The graph, or a function without arguments that builds it. Inputs stay as they are, data are
        simulated; the observed values must be a `pm.Data`.
    method : settings or str
        As in `fit`.
    replications : int
        1000 find an sd that is 20 % off for certain, one that is 5 % off once in five times.
    hold : bool, optional
        Hold the hyperparameters at their simulated values, which leaves the weights. By default
        Laplace and EP do, since no prior leads to a type-II posterior; all others do not.
    draws, chains : int
        Of methods that give draws; 99 of them are ranked, fewer of a chain that is worth fewer.
    random_seed : int
        Every replication has its own stream of it.
    folder : path, optional
        Where replications are kept; those that are there already are not run again.
    executor : int, Dask Client, address or concurrent.futures' Executor, optional
        Who runs the replications: 2 for two processes, `"tcp://..."` for a cluster.
    tick : callable, optional
        Called with the number of replications done, for a progress bar.

    Returns
    -------
    xr.DataTree
        `prior_sbc`: the places u in (0, 1) of each quantity; `inclusion` for models of subsets.
        Attributes count `failed` fits and those that did not converge.
    """
    count = positive_integer(replications, "replications")
    check_executor(executor)
    name, settings = named_method(method)
    seed = as_seed(random_seed)
    model = as_pymc(model)
    built = as_pymc(model()) if callable(model) and not hasattr(model, "free_RVs") else model
    if built is model and hasattr(model, "free_RVs"):
        built = copy_of(model)  # simulated data take the place of the observed ones
    kind = METHODS[name].kind
    held = (kind == "gaussian" and settings.hyper is None) if hold is None else bool(hold)
    if getattr(settings, "hyper", None) is not None and (hold or hasattr(settings.hyper, "values")):
        raise InputError(
            "method: sbc simulates the hyperparameters, so its settings cannot fix them. Leave "
            "hyper out and say hold=True, or build the model with their values."
        )
    replicator = Replicator(
        built, name, settings, held, positive_integer(draws, "draws"),
        positive_integer(chains, "chains"),
    )  # fmt: skip
    _check(replicator, model)
    identity = _identity(replicator, int(seed or 0))
    with tempfile.TemporaryDirectory(prefix="ardvark-sbc-") as temporary:
        home = Path(temporary if folder is None else folder)
        with _opened(home, identity):
            todo = [i for i in range(count) if not _place(home, i).exists()]
            told, finished = tick or (lambda done: None), iterate(count - len(todo))
            told(next(finished))

            def keep(number: int, record: dict[str, Any]) -> None:
                text = json.dumps(record, sort_keys=True)
                write_text(_place(home, todo[number]), text, durable=folder is not None)
                told(next(finished))

            run_tasks(_Work(replicator, identity.random_seed), todo, executor, done=keep)
            records = [_read(_place(home, i)) for i in range(count)]
    return _tree(built, identity, records)


def _check(replicator: Replicator, model: Any) -> None:
    """Refuse what cannot work, before anything is run."""
    if not hasattr(replicator.model, "free_RVs"):
        raise InputError(
            f"model must be a pm.Model or a model of bambi, or build one, got "
            f"{type(model).__name__}"
        )
    _ = replicator.simulator, replicator.hyper  # each refuses a model it cannot take


def _identity(replicator: Replicator, seed: int) -> _Identity:
    model = replicator.model
    card = card_of(model)
    simulated = {place.name for place in replicator.simulator.places.values()}
    data = sorted((v for v in model.data_vars if v.name not in simulated), key=lambda v: v.name)
    return _Identity(
        format=FORMAT,
        version=installed("ardvark"),
        model=card.builder if card else "user graph",
        fingerprint=fingerprint(
            np.array([graph_of(model)["graph"]]), *(v.get_value() for v in data)
        ),
        method=replicator.method,
        settings=json.loads(json.dumps(describe(replicator.settings))),
        hold=replicator.hold,
        draws=replicator.draws,
        chains=replicator.chains,
        random_seed=seed,
    )


# Files ------------------------------------------------------------------------------------------


def _place(home: Path, i: int) -> Path:
    return home / f"{i:06d}.json"


@contextmanager
def _opened(home: Path, identity: _Identity) -> Iterator[None]:
    """Make the folder, or check that it belongs to the same run, and lock it."""
    path = home / IDENTITY
    if not path.exists():
        if home.is_dir() and not all(map(is_leftover, home.iterdir())):
            raise InputError(f"folder: {home} is not empty and has no {IDENTITY}: choose another")
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"folder: {home} cannot be made ({error.strerror})") from error
    with locked(path, lambda said: None, wait=False, temporaries="*"):
        if not path.exists():
            write_text(path, json.dumps(asdict(identity), sort_keys=True))
        there, wanted = _parsed(path), asdict(identity)
        other = [n for n in wanted if there.get(n) != wanted[n]]
        if other:
            shown = "; ".join(f"{n} was {there.get(n)!r}, now {wanted[n]!r}" for n in other)
            raise InputError(
                f"folder: {home} holds replications of another run: {shown}. Choose another folder"
            )
        yield


def _parsed(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}): remove it, and it is run again"
        ) from None
    if not isinstance(value, dict):
        raise InputError(f"{path} holds no record: remove it, and it is run again")
    return value


def _read(path: Path) -> dict[str, Any]:
    """Read a replication and see that it can be one."""
    record = _parsed(path)
    pit = record.get("pit")
    places = [] if not isinstance(pit, dict) else list(pit.values())
    try:
        inside = all(np.all((a := np.asarray(p, float)) >= 0) and np.all(a <= 1) for p in places)
    except (TypeError, ValueError):
        inside = False
    if "failed" not in record and not (places and inside):
        raise InputError(f"{path} holds no places in (0, 1): remove it, and it is run again")
    return record


# Work -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """A replication by its number."""

    replicator: Replicator
    random_seed: int

    def __call__(self, i: int) -> dict[str, Any]:
        return self.replicator.run(seed_of(self.random_seed, i))


# The tree ---------------------------------------------------------------------------------------


def _tree(model: Any, identity: _Identity, records: list[dict[str, Any]]) -> xr.DataTree:
    good = [record for record in records if "failed" not in record]
    failures = [record["failed"] for record in records if "failed" in record]
    if not good:
        raise RuntimeError(
            f"all {len(records)} fits failed, the first with {failures[0]}. Try av.fit on one data "
            "set that the model simulates"
        )
    if failures:
        warnings.warn(
            f"{len(failures)} of {len(records)} fits failed, the first with {failures[0]}. They "
            "are not in the tables: a method that fails on some data is not calibrated on the rest",
            AccuracyWarning,
            stacklevel=3,
        )
    variables, coords = {}, {"chain": [0], "draw": np.arange(len(good))}
    for name in good[0]["pit"]:
        values = np.array([record["pit"][name] for record in good], dtype=float)[None]
        dims = () if name in SUMS else dims_of(model, name, values.ndim - 2)
        variables[name] = (("chain", "draw", *dims), values)
        coords |= {d: np.array(model.coords[d]) for d in dims if model.coords.get(d) is not None}
    groups = {"prior_sbc": xr.Dataset(variables, coords=coords)}
    if "included" in good[0]:
        by_feature = ("replication", "feature")
        numbers = {
            "included": (by_feature, np.array([record["included"] for record in good])),
            "probability": (by_feature, np.array([record["inclusion"] for record in good])),
        }
        groups["inclusion"] = xr.Dataset(numbers, coords={"feature": coords["feature"]})
    tree = xr.DataTree.from_dict(groups)
    tree.attrs |= asdict(identity) | {
        "settings": json.dumps(identity.settings, sort_keys=True),
        "hold": int(identity.hold),
        "replications": len(records),
        "failed": len(failures),
        "failures": json.dumps(sorted(set(failures))),
        "not_converged": sum(not record["converged"] for record in good),
        "sha256": hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest(),
    }
    return tree
