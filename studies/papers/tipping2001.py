"""Tipping 2001: relevance vector machines beside the two tables of the lecture.

    ardvark replicate tipping2001 --quick | --full | --list

A Gaussian kernel on each training row, and a bias; inputs standardised with the statistics of the
training rows. Vectors are the kernel functions that are kept; the bias is not counted. The width is
one of `WIDTHS` (`NARROW` for one or two inputs) times the median distance of two training rows:

- "validation": that of the least error in five-fold cross-validation on the training part of the
  first split, a tie to the larger; it serves all splits.
- "evidence": that of the largest evidence on each training part. With a precision per row the
  evidence is an optimum over as many numbers as there are rows, and it tends to narrow kernels.
- "svm": scikit-learn's SVC or SVR, whose width, C and ε are chosen like the width of "validation".
- "scales": η-RVR, one inferred scale per input, by the graph and its gradient.

The slides give neither their widths nor units. What fits their numbers, and is used here:

| data         | error                                                                           |
|--------------|---------------------------------------------------------------------------------|
| sinc         | ten times the root mean square error against the curve without noise; the       |
|              | uniform noise is on [-0.1, 0.1]                                                 |
| Friedman 1-3 | mean square error against the surface without noise (0.27 is less than the      |
|              | noise variance, 1)                                                              |
| Boston       | mean square error on 25 test rows                                               |
| two classes  | per cent of the test rows                                                       |

Simulated data are drawn anew for each split, Boston is cut 481 : 25 at random, Ripley's mixture has
100 of its 250 rows for training and 1000 to test, the sets of Rätsch have the published splits and
Ripley's Pima has its one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.ard.gaussian_ard import gaussian_ard
from ardvark.inference.ard.sequential_ard import sequential_ard
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import LogitSites
from ardvark.models.data.datasets import load
from ardvark.models.inputs import standardise
from ardvark.models.kernels import RBF
from ardvark.studies.experiments import Claim, Experiment
from ardvark.studies.papers.qi_paths import probit_model, with_constant

__all__ = ["CLAIMS", "EXPERIMENTS", "RULES", "SETS", "Case", "fitted", "input_scales"]

WIDTHS = (4.0, 2.8, 2.0, 1.4, 1.0, 0.7, 0.5)  # times the median distance of two training rows
NARROW = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125)
RULES = ("validation", "evidence", "svm")
FOLDS = 5
BOXES = tuple(4.0**k for k in range(-1, 6))  # C of an SVM, in units of the target's sd
TUBES = (0.03, 0.1, 0.3)  # ε of an SVR, likewise


@dataclass(frozen=True, slots=True)
class Case:
    """A data set and its sizes."""

    data: str
    n_train: int
    splits: int
    error: str = "per cent"
    noise: str = "gaussian"  # of a simulator
    widths: Sequence[float] = WIDTHS


ROOT, SQUARE, CLEAN = "10 RMS to signal", "MSE", "MSE to signal"

SETS = {
    "sinc": Case("sinc", 100, 100, ROOT, widths=NARROW),
    "sinc_uniform": Case("sinc", 100, 100, ROOT, "uniform", NARROW),
    "friedman1": Case("friedman1", 240, 100, CLEAN),
    "friedman2": Case("friedman2", 240, 100, CLEAN),
    "friedman3": Case("friedman3", 240, 100, CLEAN),
    "boston": Case("boston", 481, 100, SQUARE),
    "pima": Case("ripley_pima", 200, 1),
    "ripley": Case("ripley_synth", 100, 100, widths=NARROW),
    "banana": Case("raetsch_banana", 400, 10, widths=NARROW),
    "breast_cancer": Case("raetsch_breast_cancer", 200, 10),
    "titanic": Case("raetsch_titanic", 150, 10),
    "waveform": Case("raetsch_waveform", 400, 10),
    "german": Case("raetsch_german", 700, 10),
    "image": Case("raetsch_image", 1300, 10),
}


class Part(NamedTuple):
    """One split: standardised rows, training targets, and what the test rows should have been."""

    X: Array
    t: Array
    X_test: Array
    t_test: Array


class Machine(NamedTuple):
    """A fitted machine: its predictor at the test rows, and what it costs."""

    log_evidence: float
    predictor: Array
    vectors: int
    converged: bool
    setting: tuple[float, ...]  # the width as a multiple of the median distance, C, ε


def split(case: Case, number: int, n_train: int | None = None) -> Part:
    """One split by its number. With `n_train` fewer rows are taken than the slide's."""
    size = n_train or case.n_train
    if case.error in (ROOT, CLEAN):
        data = load(case.data, n=size, seed=number)
        wanted, given = data.truth["signal"], np.asarray(data.t)
        if case.noise == "uniform":
            rng = np.random.default_rng([number, 1])
            given = wanted + rng.uniform(-0.1, 0.1, len(wanted))
        train, test = data.splits[0].train, data.splits[0].test
    elif case.error == SQUARE:
        data = load(case.data)
        wanted = given = np.asarray(data.t, float)
        order = np.random.default_rng(number).permutation(len(given))
        train, test = order[:size], order[case.n_train :]
    else:
        data = load(case.data)
        wanted = given = np.where(data.t == np.unique(data.t)[1], 1.0, -1.0)
        cut = data.splits[min(number, len(data.splits) - 1)]
        train, test = cut.train, cut.test
        if case.data == "ripley_synth":  # it has one split, of which a part is drawn
            train = np.random.default_rng(number).permutation(train)
        train = train[:size]
    rows = np.asarray(standardise(data.X, rows=train))
    return Part(rows[train], given[train], rows[test], wanted[test])


def machine(part: Part, case: Case, factor: float, tolerance: float = 1e-3) -> Machine:
    """The relevance vector machine of one width, a multiple of the median distance."""
    width = factor * float(RBF(width="median").scale(part.X).typical)
    kernel = RBF(width=width)
    columns, at_test = (with_constant(kernel(X, part.X)) for X in (part.X, part.X_test))
    if case.error != "per cent":
        found = gaussian_ard(columns, part.t)
        predictor = at_test[:, found.active] @ found.mean
        vectors = int(np.sum(found.active > 0))
        return Machine(found.log_evidence, predictor, vectors, found.converged, (factor,))
    model = probit_model(columns, part.t, LogitSites)
    path = sequential_ard(model, Laplace().approximate, tolerance=tolerance, max_steps=3000)
    predictor = at_test @ path.fit.posterior.mean
    vectors = int(np.isfinite(path.precision[1:]).sum())
    return Machine(path.fit.log_evidence, predictor, vectors, path.converged, (factor,))


def support_machine(part: Part, case: Case, factor: float, C: float, epsilon: float) -> Machine:
    """The support vector machine of one setting."""
    from sklearn.svm import SVC, SVR

    gamma = 0.5 / (factor * float(RBF(width="median").scale(part.X).typical)) ** 2
    if case.error == "per cent":
        fit = SVC(C=C, gamma=gamma).fit(part.X, part.t)
        predictor, unit, centre = fit.decision_function(part.X_test), 1.0, 0.0
    else:
        centre, unit = float(part.t.mean()), float(part.t.std())
        fit = SVR(C=C, gamma=gamma, epsilon=epsilon).fit(part.X, (part.t - centre) / unit)
        predictor = fit.predict(part.X_test)
    vectors = len(fit.support_)
    return Machine(math.nan, centre + unit * predictor, vectors, True, (factor, C, epsilon))


def settings_of(case: Case, rule: str) -> list[tuple[float, ...]]:
    """What a rule chooses from."""
    if rule != "svm":
        return [(factor,) for factor in case.widths]
    return list(product(case.widths, BOXES, (0.0,) if case.error == "per cent" else TUBES))


def validated(part: Part, case: Case, rule: str = "validation") -> tuple[float, ...]:
    """The setting of least error in cross-validation on the training rows."""
    return settings_of(case, rule)[int(np.argmin(cross_validated(part, case, rule)))]


def cross_validated(part: Part, case: Case, rule: str = "validation") -> Array:
    """Cross-validated error on the training rows, of each setting."""
    fold = np.random.default_rng(0).permutation(len(part.t)) % FOLDS
    settings = settings_of(case, rule)
    total = np.zeros(len(settings))
    for number in range(FOLDS):
        kept, left = fold != number, fold == number
        inner = Part(part.X[kept], part.t[kept], part.X[left], part.t[left])
        for i, setting in enumerate(settings):
            if rule == "svm":
                found = support_machine(inner, case, *setting)
            else:
                found = machine(inner, case, setting[0], tolerance=1e-2)
            total[i] += error_of(case, found.predictor, inner.t_test)
    return total / FOLDS


@cache
def _chosen_once(name: str, rule: str, n_train: int | None) -> tuple[float, ...]:
    return validated(split(SETS[name], 0, n_train), SETS[name], rule)


def error_of(case: Case, predictor: Array, wanted: Array) -> float:
    """The error in the unit of the slide."""
    if case.error == "per cent":
        sides = predictor * wanted
        return float(100.0 * (np.mean(sides < 0) + 0.5 * np.mean(sides == 0)))
    square = float(np.mean((predictor - wanted) ** 2))
    return 10.0 * math.sqrt(square) if case.error == ROOT else square


# Units ------------------------------------------------------------------------------------------


def fitted(number: int, name: str, rule: str, n_train: int | None = None) -> dict[str, Any]:
    """One split: error in the unit of the slide, and vectors."""
    case = SETS[name]
    part = split(case, number, n_train)
    if rule == "evidence":
        tried = [machine(part, case, factor) for factor in case.widths]
        found = max(tried, key=lambda m: m.log_evidence)
    else:
        fit = support_machine if rule == "svm" else machine
        found = fit(part, case, *_chosen_once(name, rule, n_train))
    return {
        "error": error_of(case, found.predictor, part.t_test),
        "vectors": found.vectors,
        "converged": found.converged,
        "width": found.setting[0],
        "setting": list(found.setting),
        "test_rows": len(part.t_test),
    }


def input_scales(number: int, name: str, n_train: int | None = None) -> dict[str, Any]:
    """η-RVR: one inferred scale per input, by the graph and its gradient."""
    import ardvark as av

    case = SETS[name]
    part = split(case, number, n_train)
    kernel = av.RBF(width=None, per_input=True)
    centre, unit = part.t.mean(), part.t.std()  # hyperpriors are meant for targets near 1
    model = av.models.rvm_regression(part.X, (part.t - centre) / unit, kernel=kernel)
    method = av.Laplace(hyper=av.Evidence(tolerance=1e-3))
    tree = av.fit(model, method, draws=4, random_seed=number, progressbar=False)
    mean = av.predict(model, tree, part.X_test).sel(statistic="mean")
    return {
        "error": error_of(case, centre + unit * mean.to_numpy(), part.t_test),
        "vectors": int(np.isfinite(tree["theta"]["alpha"]).sum()),
        "converged": bool(tree.attrs["converged"]),
        "input_scales": np.asarray(tree["theta"]["input_scale"]),
    }


# What is run ------------------------------------------------------------------------------------

PLACES = {"per cent": "classification table", "": "regression table"}
SCALED = ("friedman1", "friedman2", "friedman3")


def _place(name: str, case: Case) -> str:
    return "figure" if name == "ripley" else PLACES.get(case.error, "regression table")


EXPERIMENTS = (
    *(
        Experiment(
            f"{name}/{rule}", _place(name, case), fitted, {"name": name, "rule": rule},
            case.splits, quick=int(case.n_train <= 500),
        )
        for name, case in SETS.items()
        for rule in RULES
    ),
    *(
        Experiment(f"{name}/scales", "eta-RVR table", input_scales, {"name": name}, 100, quick=0)
        for name in SCALED
    ),
)  # fmt: skip

CLAIMS = (
    *(
        Claim(f"{name}: the RVM {less}", f"{name}/svm:{what}", f"{name}/validation:{what}")
        for what, less in (
            ("vectors", "needs fewer vectors than the SVM"),
            ("error", "makes the smaller error"),
        )
        for name in SETS
    ),
    *(
        Claim(
            f"{name}: scales of the inputs help", f"{name}/validation:error", f"{name}/scales:error"
        )
        for name in SCALED
    ),
)
