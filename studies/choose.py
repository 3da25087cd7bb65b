"""How to choose a method: accuracy and cost of each on six small problems.

    python -m ardvark.studies.choose [--json studies/results/tables/choose.json]

Each problem is fitted by every method that takes it and compared with a reference that is exact:
independent draws where there are any, else NUTS until its checks pass. Errors are the worst over
all weights, in posterior sds of the reference; noise alone gives about 0.03. CPU seconds are those
of one call of `av.fit` on a graph that has not been fitted before, what it compiles included.
"""

import argparse
import json
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

import ardvark as av

__all__ = ["CASES", "Case", "measure"]

DRAWS = 2000
COLUMNS = ["method", "worst mean error / sd", "worst sd ratio", "k-hat", "CPU s"]


class Case(NamedTuple):
    """A problem, its methods by the name shown, and which of them is the reference."""

    title: str
    build: Callable[[], Any]
    methods: dict[str, Any]
    reference: str


def _labels(rng: np.random.Generator, X: Any, w: Any, noise: float = 1.0) -> Any:
    return (X @ w + noise * rng.normal(size=len(X)) > 0).astype(int)


def many_rows() -> Any:
    """200 rows, 5 inputs, unit precisions: the posterior is nearly Gaussian."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 5))
    t = _labels(rng, X, [1.0, -0.5, 0.3, 0.0, 0.0])
    return av.models.ard_classification(X, t, alpha=np.ones(6))


def few_rows() -> Any:
    """40 rows, 60 inputs."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 60))
    t = _labels(rng, X[:, :3], [1.5, -1.0, 0.7])
    return av.models.ard_classification(X, t, alpha=np.full(61, 3.0))


def separable() -> Any:
    """30 rows that a plane separates, under a wide prior."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3))
    t = _labels(rng, X, [2.0, -1.0, 0.5], 0.0)
    return av.models.ard_classification(X, t, alpha=np.full(4, 0.05))


def logit() -> Any:
    """300 rows, 8 inputs, a logit."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 8))
    t = _labels(rng, X, np.linspace(1, 0, 8), 1.7)
    return av.models.ard_classification(X, t, link="logit", alpha=np.ones(9))


def counts() -> Any:
    """A user's own graph: counts in six clinics, the spread between clinics unknown."""
    rng = np.random.default_rng(7)
    clinic, treated = rng.integers(0, 6, 90), rng.integers(0, 2, 90)
    rate = np.exp(0.3 + 0.5 * rng.normal(size=6)[clinic] - 0.6 * treated)
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 1)
        base = pm.Normal("base", 0, 2)
        effect = pm.Normal("effect", 0, 2)
        by_clinic = pm.Normal("by_clinic", 0, spread, shape=6)
        eta = pm.Deterministic("eta", base + by_clinic[clinic] + effect * treated)
        pm.Poisson("seizures", pm.math.exp(eta), observed=rng.poisson(rate))
    return model


def precisions() -> Any:
    """A regression, 60 rows and 10 inputs, with a precision per weight and the noise unknown."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 10))
    t = X @ np.r_[1.0, 0.5, 0.25, np.zeros(7)] + rng.normal(size=60)
    return av.models.ard_regression(X, t)


def _nuts() -> av.NUTS:
    return av.NUTS(until="converged")


GIVEN = {"laplace": av.Laplace, "ep": av.EP, "vb": av.VB}
CASES = {
    build.__name__: Case(
        f"Two classes (probit){title}", build, GIVEN | {"exact": av.Exact, "nuts": _nuts}, "exact"
    )
    for build, title in (
        (many_rows, ", 200 rows, 5 inputs, precisions given"),
        (few_rows, ", 40 rows, 60 inputs, precisions given"),
        (separable, " that a plane separates, 30 rows, 3 inputs, wide prior"),
    )
} | {
    "logit": Case(
        "Two classes (logit), 300 rows, 8 inputs, precisions given",
        logit, GIVEN | {"elliptical_slice": av.EllipticalSlice, "nuts": _nuts}, "nuts",
    ),
    "counts": Case(
        "A graph of your own: Poisson, 90 rows, 8 weights, one unknown scale",
        counts,
        {
            "laplace, Evidence": lambda: av.Laplace(hyper=av.Evidence()),
            "laplace, Integrated": lambda: av.Laplace(hyper=av.Integrated()),
            "laplace, Sampled": lambda: av.Laplace(hyper=av.Sampled()),
            "ep, Integrated": lambda: av.EP(hyper=av.Integrated()),
            "nuts": _nuts,
        },
        "nuts",
    ),
    "precisions": Case(
        "Regression, 60 rows, 10 inputs, a precision per weight and the noise unknown",
        precisions,
        {
            "laplace, Evidence": lambda: av.Laplace(hyper=av.Evidence()),
            "laplace, Sampled": lambda: av.Laplace(hyper=av.Sampled()),
            "vb": av.VB,
            "nuts": _nuts,
        },
        "nuts",
    ),
}  # fmt: skip


def measure(case: Case, draws: int = DRAWS) -> list[list[str]]:
    """Fit a problem by each of its methods; rows of the table, as text."""
    trees, seconds = {}, {}
    for name, method in case.methods.items():
        model = case.build()
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a fit says against itself is in the table
            trees[name] = av.fit(model, method(), draws=draws, random_seed=1, progressbar=False)
        seconds[name] = time.process_time() - start
    table = av.compare(trees, reference=case.reference, detail=True)
    figures = ("worst_mean_error", "worst_sd_ratio", "khat")
    return [
        [name, *(_shown(table.loc[name, figure]) for figure in figures), _shown(seconds[name])]
        for name in case.methods
    ]


def _shown(value: Any) -> str:
    return "" if not np.isfinite(value) else f"{value:.2g}"


def main() -> int:
    """Measure every problem and print, or store, the tables as JSON."""
    parser = argparse.ArgumentParser(description="Accuracy and cost of the methods.")
    parser.add_argument("--json", type=Path, help="write the tables to this file")
    parser.add_argument("--case", choices=CASES, nargs="*", default=list(CASES))
    parser.add_argument("--draws", type=int, default=DRAWS)
    options = parser.parse_args()
    tables = {}
    for name in options.case:
        case = CASES[name]
        tables[name] = {
            "command": "python -m ardvark.studies.choose",
            "caption": f"{case.title} (reference: {case.reference})",
            "columns": COLUMNS,
            "rows": measure(case, options.draws),
        }
    found = {"study": "choose", "title": "How to choose a method", "paper": None, "tables": tables}
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    text = re.sub(r'\[\s*("[^\[\]]*")\s*\]', lambda row: f"[{' '.join(row[1].split())}]", text)
    if options.json:
        options.json.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
