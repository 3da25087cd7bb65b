"""Tipping 2001: relevance vector machines beside the two tables of the lecture.

    python -m ardvark.studies.tipping2001                          # all, five splits: minutes
    python -m ardvark.studies.tipping2001 --data banana --splits 20
    python -m ardvark.studies.tipping2001 --input-scales           # η-RVR on Friedman 1 to 3

A Gaussian kernel on each training row, and a bias; inputs standardised with the statistics of the
training rows. Vectors are the kernel functions that are kept; the bias is not counted. The width is
one of `WIDTHS` (`NARROW` for one or two inputs) times the median distance of two training rows:

- "validation": that of the least error in five-fold cross-validation on the training part of the
  first split, a tie to the larger; it serves all splits.
- "evidence": that of the largest evidence on each training part. With a precision per row the
  evidence is an optimum over as many numbers as there are rows, and it tends to narrow kernels.

The slides give neither their widths nor units. What fits their numbers, and is used here:

| data         | error                                                                           |
|--------------|---------------------------------------------------------------------------------|
| sinc         | ten times the root mean square error against the curve without noise; the       |
|              | uniform noise is on [-0.1, 0.1]                                                 |
| Friedman 1-3 | mean square error against the surface without noise (0.27 is less than the      |
|              | noise variance, 1)                                                              |
| Boston       | mean square error on 25 test rows                                               |
| two classes  | per cent of the test rows                                                       |

Simulated data are drawn anew for each split, Boston is cut 481 : 25 at random, the sets of Rätsch
have the published splits and Ripley's Pima has its one (its standard error is the binomial one).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.ard.gaussian_ard import gaussian_ard
from ardvark.inference.ard.sequential_ard import sequential_ard
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import Array, LogitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.models.datasets import load
from ardvark.models.inputs import standardise
from ardvark.models.kernels import RBF

__all__ = ["EXPERIMENTS", "RULES", "Experiment", "input_scales", "replicate"]

WIDTHS = (4.0, 2.8, 2.0, 1.4, 1.0, 0.7, 0.5)  # times the median distance of two training rows
NARROW = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125)
RULES = ("validation", "evidence")
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Experiment:
    """A data set, its sizes, and what the slides print: (error, vectors) of each machine."""

    data: str
    n_train: int
    rvm: tuple[float, float]
    svm: tuple[float, float]
    eta_rvm: tuple[float, float] | None = None
    error: str = "per cent"
    noise: str = "gaussian"  # of a simulator
    widths: Sequence[float] = WIDTHS


ROOT, SQUARE, CLEAN = "10 RMS to signal", "MSE", "MSE to signal"

EXPERIMENTS = {
    "sinc": Experiment("sinc", 100, (0.326, 6.7), (0.378, 45.2), error=ROOT, widths=NARROW),
    "sinc_uniform": Experiment(
        "sinc", 100, (0.187, 7.0), (0.215, 44.3), error=ROOT, noise="uniform", widths=NARROW
    ),
    "friedman1": Experiment(
        "friedman1", 240, (2.80, 59.4), (2.92, 116.6), (0.27, 11.5), error=CLEAN
    ),
    "friedman2": Experiment("friedman2", 240, (3505, 6.9), (4140, 110.3), (2593, 3.9), error=CLEAN),
    "friedman3": Experiment(
        "friedman3", 240, (0.0164, 11.5), (0.0202, 106.5), (0.0119, 6.4), error=CLEAN
    ),
    "boston": Experiment("boston", 481, (7.46, 39.0), (8.04, 142.8), error=SQUARE),
    "pima": Experiment("ripley_pima", 200, (19.6, 4), (20.1, 109)),
    "banana": Experiment("raetsch_banana", 400, (10.8, 11.4), (10.9, 135.2), widths=NARROW),
    "breast_cancer": Experiment("raetsch_breast_cancer", 200, (29.9, 6.3), (26.9, 116.7)),
    "titanic": Experiment("raetsch_titanic", 150, (23.0, 65.3), (22.1, 93.7)),
    "waveform": Experiment("raetsch_waveform", 400, (10.9, 14.6), (10.3, 146.4)),
    "german": Experiment("raetsch_german", 700, (22.2, 12.5), (22.6, 411.2)),
    "image": Experiment("raetsch_image", 1300, (3.9, 34.6), (3.0, 166.6)),
}
SCALED = tuple(name for name, experiment in EXPERIMENTS.items() if experiment.eta_rvm)


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
    width: float  # as a multiple of the median distance


def split(experiment: Experiment, number: int, n_train: int | None = None) -> Part | None:
    """One split by its number; None when the data set has no more of them.

    With `n_train` fewer rows are taken than the slide's.
    """
    size = n_train or experiment.n_train
    if experiment.error in (ROOT, CLEAN):
        data = load(experiment.data, n=size, seed=number)
        wanted, given = data.truth["signal"], np.asarray(data.t)
        if experiment.noise == "uniform":
            rng = np.random.default_rng([number, 1])
            given = wanted + rng.uniform(-0.1, 0.1, len(wanted))
        train, test = data.splits[0].train, data.splits[0].test
    elif experiment.error == SQUARE:
        data = load(experiment.data)
        wanted = given = np.asarray(data.t, float)
        order = np.random.default_rng(number).permutation(len(given))
        train, test = order[:size], order[experiment.n_train :]
    else:
        data = load(experiment.data)
        wanted = given = np.where(data.t == np.unique(data.t)[1], 1.0, -1.0)
        if number >= len(data.splits):
            return None
        train, test = data.splits[number].train[:size], data.splits[number].test
    rows = np.asarray(standardise(data.X, rows=train))
    return Part(rows[train], given[train], rows[test], wanted[test])


def machine(part: Part, experiment: Experiment, factor: float, tolerance: float = 1e-3) -> Machine:
    """The relevance vector machine of one width, a multiple of the median distance."""
    width = factor * float(RBF(width="median").scale(part.X).typical)
    kernel = RBF(width=width)
    columns, at_test = (
        np.column_stack([np.ones(len(X)), kernel(X, part.X)]) for X in (part.X, part.X_test)
    )
    if experiment.error != "per cent":
        found = gaussian_ard(columns, part.t)
        predictor = at_test[:, found.active] @ found.mean
        vectors = int(np.sum(found.active > 0))
        return Machine(found.log_evidence, predictor, vectors, found.converged, factor)
    model = SiteModel(
        mean=np.zeros(columns.shape[1]),
        projection=columns,
        offset=np.zeros(len(columns)),
        sites=LogitSites(part.t),
        precision=np.ones(columns.shape[1]),
    )
    path = sequential_ard(model, Laplace().approximate, tolerance=tolerance, max_steps=3000)
    predictor = at_test @ path.fit.posterior.mean
    vectors = int(np.isfinite(path.precision[1:]).sum())
    return Machine(path.fit.log_evidence, predictor, vectors, path.converged, factor)


def validated_width(part: Part, experiment: Experiment) -> float:
    """The width of least error in cross-validation on the training rows."""
    fold = np.random.default_rng(0).permutation(len(part.t)) % FOLDS
    total = np.zeros(len(experiment.widths))
    for number in range(FOLDS):
        kept, left = fold != number, fold == number
        inner = Part(part.X[kept], part.t[kept], part.X[left], part.t[left])
        for i, factor in enumerate(experiment.widths):
            found = machine(inner, experiment, factor, tolerance=1e-2)
            total[i] += error_of(experiment, found.predictor, inner.t_test)
    return experiment.widths[int(np.argmin(total))]


def error_of(experiment: Experiment, predictor: Array, wanted: Array) -> float:
    """The error in the unit of the slide."""
    if experiment.error == "per cent":
        sides = predictor * wanted
        return float(100.0 * (np.mean(sides < 0) + 0.5 * np.mean(sides == 0)))
    square = float(np.mean((predictor - wanted) ** 2))
    return 10.0 * math.sqrt(square) if experiment.error == ROOT else square


def replicate(
    name: str, splits: int = 5, rule: str = "validation", n_train: int | None = None
) -> dict[str, Any]:
    """Error and vectors over splits with standard errors, beside the published ones."""
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    experiment, begin = EXPERIMENTS[name], time.process_time()
    machines: list[Machine] = []
    errors: list[float] = []
    widths = experiment.widths
    for number in range(splits):
        part = split(experiment, number, n_train)
        if part is None:
            break
        if rule == "validation" and number == 0:
            widths = (validated_width(part, experiment),)
        tried = [machine(part, experiment, factor) for factor in widths]
        machines.append(max(tried, key=lambda m: m.log_evidence))
        errors.append(error_of(experiment, machines[-1].predictor, part.t_test))
        rows, inputs, test_rows = *part.X.shape, len(part.t_test)
    error_se = _standard_error(errors)
    if error_se is None and experiment.error == "per cent":
        error_se = math.sqrt(errors[0] * (100.0 - errors[0]) / test_rows)
    vectors = [float(m.vectors) for m in machines]
    return {
        "data": name,
        "choice": rule,
        "rows": rows,
        "inputs": inputs,
        "splits": len(machines),
        "unit": experiment.error,
        "error": float(np.mean(errors)),
        "error_se": error_se,
        "slide_error": experiment.rvm[0],
        "slide_svm_error": experiment.svm[0],
        "vectors": float(np.mean(vectors)),
        "vectors_se": _standard_error(vectors),
        "slide_vectors": experiment.rvm[1],
        "slide_svm_vectors": experiment.svm[1],
        "width": median_low([m.width for m in machines]),
        "not_converged": sum(not m.converged for m in machines),
        "cpu_seconds": time.process_time() - begin,
    }


def input_scales(name: str, splits: int = 1, n_train: int | None = None) -> dict[str, Any]:
    """η-RVR: one inferred scale per input, by the graph and its gradient (errors as above)."""
    import ardvark as av

    experiment, begin = EXPERIMENTS[name], time.process_time()
    if experiment.eta_rvm is None:
        raise ValueError(f"the slides have no input scales for {name!r}; for {', '.join(SCALED)}")
    errors, vectors, scales, converged = [], [], [], []
    method = av.Laplace(hyper=av.Evidence(tolerance=1e-3))
    for number in range(splits):
        part = split(experiment, number, n_train)
        assert part is not None  # simulators never end
        kernel = av.RBF(width=None, per_input=True)
        centre, unit = part.t.mean(), part.t.std()  # hyperpriors are meant for targets near 1
        model = av.models.rvm_regression(part.X, (part.t - centre) / unit, kernel=kernel)
        tree = av.fit(model, method, draws=4, random_seed=number)
        mean = av.predict(model, tree, part.X_test).sel(statistic="mean")
        predictor = centre + unit * mean.to_numpy()
        errors.append(error_of(experiment, predictor, part.t_test))
        vectors.append(float(np.isfinite(tree["fit"]["alpha"]).sum()))
        scales.append(np.asarray(tree["fit"]["input_scale"]))
        converged.append(bool(tree.attrs["converged"]))
    return {
        "data": name,
        "splits": splits,
        "error": float(np.mean(errors)),
        "error_se": _standard_error(errors),
        "slide_error": experiment.eta_rvm[0],
        "vectors": float(np.mean(vectors)),
        "vectors_se": _standard_error(vectors),
        "slide_vectors": experiment.eta_rvm[1],
        "input_scales": " ".join(f"{eta:.2g}" for eta in np.median(scales, axis=0)),
        "not_converged": converged.count(False),
        "cpu_seconds": time.process_time() - begin,
    }


def _standard_error(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def _print(table: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Write each row as soon as it is known: JSON lines, or columns."""
    widths: dict[str, int] = {}
    for row in table:
        if as_json:
            sys.stdout.write(json.dumps(row) + "\n")
            continue
        if not widths:
            widths = {name: max(len(name), 13 if name == "data" else 10) for name in row}
            widths |= {"unit": 16} if "unit" in row else {}
            sys.stdout.write("  ".join(name.rjust(n) for name, n in widths.items()) + "\n")
        sys.stdout.write("  ".join(_text(row[name]).rjust(n) for name, n in widths.items()) + "\n")
        sys.stdout.flush()


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Command line of the study."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=EXPERIMENTS, action="append", help="may be repeated")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--choice", choices=RULES, help="of the width; default: both")
    parser.add_argument("--input-scales", action="store_true", help="η-RVR on Friedman 1 to 3")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.input_scales:
        _print((input_scales(name, asked.splits) for name in asked.data or SCALED), asked.json)
    else:
        rules = [asked.choice] if asked.choice else RULES
        cases = [(name, asked.splits, rule) for name in asked.data or EXPERIMENTS for rule in rules]
        _print((replicate(*case) for case in cases), asked.json)


if __name__ == "__main__":
    main()
