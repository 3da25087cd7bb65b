"""The data sets of Mirzaei et al. 2017, cut as in its table 2 and in section 5.4."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from ardvark.errors import InputWarning
from ardvark.inference.sites.arrays import Array
from ardvark.models.data.datasets import load
from ardvark.models.inputs import standardise

__all__ = ["CLASSES", "SIZES", "SYNTHETIC", "TRAINING", "Part", "part_of"]

TRAINING = (30, 50, 70, 100, 200)
SYNTHETIC = ("sin2d", "additive", "ripley")
SIZES = {  # train, validation, test: table 2, as it must have been meant
    "bodyfat": (113, 113, 26),
    "boston": (228, 228, 50),
    "auto_mpg": (127, 127, 40),
    "cpusmall": (410, 410, 7372),
    "triazines": (84, 84, 18),
    "abalone": (627, 627, 2923),
}
CLASSES = {  # data set, training rows
    "pima": ("ripley_pima", 200),
    "crabs": ("crabs", 80),  # sex; colours are mixed at random
    "crabs_balanced": ("crabs", 80),  # sex; as many of each colour
    "crabs_species": ("crabs", 80),  # colour; as many of each sex
    "wdbc": ("wdbc", 300),
}


class Part(NamedTuple):
    """One realisation; targets of two classes are signs."""

    X: Array
    t: Array
    X_valid: Array
    t_valid: Array
    X_test: Array
    t_test: Array
    classes: bool
    unit: float  # of the target
    relevant: tuple[int, ...] | None


def part_of(name: str, n: int | None, number: int) -> Part:
    """Cut one realisation of a data set."""
    if name in SYNTHETIC:
        return _simulated(name, n or TRAINING[0], number)
    if name in CLASSES:
        return _two_classes(name, number)
    data = load(name)
    t = np.asarray(data.t, float)
    order = np.random.default_rng([17, number]).permutation(len(t))
    n_train, n_valid, n_test = SIZES[name]
    stops = (n_train, n_train + n_valid, min(n_train + n_valid + n_test, len(t)))
    train, valid, test = (order[a:b] for a, b in zip((0, *stops), stops, strict=False))
    X = _standardised(data.X, train)
    centre, unit = t[train].mean(), t[train].std()
    z = (t - centre) / unit
    return Part(X[train], z[train], X[valid], z[valid], X[test], z[test], False, unit, None)


def _standardised(X: Any, train: Any) -> Array:
    with warnings.catch_warnings():  # a column that is constant in a cut is a constant kernel
        warnings.simplefilter("ignore", InputWarning)
        return np.asarray(standardise(X, rows=train), float)


def _simulated(name: str, n: int, number: int) -> Part:
    classes = name == "ripley"
    more: dict[str, Any] = {"irrelevant": 8} if classes else {}
    data = load(name, n=n, n_test=1000 if classes else 2100, seed=number, **more)
    X, t = np.asarray(data.X, float), np.asarray(data.t, float)
    t = 2.0 * t - 1.0 if classes else t
    cut = n if classes else n + 100
    relevant = tuple(int(j) for j in data.truth["relevant"])
    return Part(
        X[:n], t[:n], X[n:cut], t[n:cut], X[cut:], t[cut:], classes, 1.0, relevant
    )  # fmt: skip


def _two_classes(name: str, number: int) -> Part:
    source, n_train = CLASSES[name]
    data = load(source)
    t = np.where(data.t == np.unique(data.t)[1], 1.0, -1.0)
    if source == "crabs":
        rng = np.random.default_rng([18, number])
        colour = np.arange(len(t)) >= 100  # blue ones first, then orange ones
        groups = t + 4.0 * colour if name != "crabs" else t
        t = np.where(colour, 1.0, -1.0) if name == "crabs_species" else t
        sides = [rng.permutation(np.flatnonzero(groups == s)) for s in np.unique(groups)]
        share = n_train // len(sides)
        train = np.concatenate([side[:share] for side in sides])
        test = np.concatenate([side[share:] for side in sides])
    elif data.splits:
        train, test = data.splits[0].train, data.splits[0].test
    else:
        train, test = np.arange(n_train), np.arange(n_train, len(t))
    X = _standardised(data.X, train)
    return Part(
        X[train], t[train], X[:0], t[:0], X[test], t[test], True, 1.0, None
    )  # fmt: skip
