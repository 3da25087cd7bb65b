"""Speeds as ratios against named peers, all measured in one run: `make bench`.

Each case runs in a fresh process, import and compilation included, one BLAS thread. The figure is
the CPU seconds of that process and its children, the best of k (so with warm caches); wall seconds
depend on what else runs. A ratio below 1.5 either way is no difference. Where a case has an answer,
its distance from the peer's is shown, for a fast wrong answer is worth nothing.

    first laplace   logit, N = 500, d = 50, w ~ N(0, I): mean and covariance of the weights.
                    scikit-learn finds the mode and the covariance is made by hand (no draws, no
                    evidence, no tree); the others return a whole result. A fresh process spends
                    most of this on imports, so read it beside the second task.
    import          what `import package` costs
"""

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    type Array = NDArray[np.float64]

__all__ = ["CASES", "Case", "Timing", "measure", "sparse_probit", "table"]

Answer = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to time: `run` is called in a fresh process; `needs` must be installed."""

    task: str
    peer: str
    run: Callable[[], Answer]
    needs: str
    reference: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """Best of k: `ratio` to the reference peer, `distance` from its answer in its sd."""

    task: str
    peer: str
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    ratio: float | None = None
    distance: float | None = None
    note: str = ""


def sparse_probit(
    rows: int = 500, features: int = 50, relevant: int = 10, seed: int = 101
) -> "tuple[Array, NDArray[np.int64]]":
    """Linear probit task: the first weights are ±(0.5 … 1.5), the rest nought."""
    import numpy as np
    from scipy.special import ndtr

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features))
    w = np.zeros(features)
    w[:relevant] = rng.choice([-1.0, 1.0], relevant) * np.linspace(0.5, 1.5, relevant)
    return X, (rng.random(rows) < ndtr(X @ w)).astype(np.int64)


def laplace_ardvark() -> Answer:
    """Fit the zoo's own model."""
    import ardvark as av

    X, t = sparse_probit()
    alpha = [1.0] * X.shape[1]
    model = av.models.ard_classification(X, t, link="logit", bias=False, alpha=alpha)
    return gaussian_answer(av.fit(model, av.Laplace(), random_seed=1, progressbar=False))


def laplace_sklearn() -> Answer:
    """Mode by scikit-learn, covariance by hand: inverse of X' diag(p (1 - p)) X + I."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    X, t = sparse_probit()
    fit = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8, max_iter=1000).fit(X, t)
    p = fit.predict_proba(X)[:, 1]
    precision = (X * (p * (1 - p))[:, None]).T @ X + np.eye(X.shape[1])
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    return {"mean": fit.coef_[0].tolist(), "sd": sd.tolist()}


def laplace_pymc_extras() -> Answer:
    """`fit_laplace` on the same graph as a PyMC user writes it."""
    import pymc as pm

    pmx = importlib.import_module("pymc_extras")  # no dependency of ours, so unknown to mypy

    X, t = sparse_probit()
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0, shape=X.shape[1])
        pm.Bernoulli("t", logit_p=X @ w, observed=t)
    return gaussian_answer(pmx.fit_laplace(model=model, progressbar=False, random_seed=1))


def gaussian_answer(tree: Any) -> Answer:
    """Mean and sd of the weights from a tree's `fit` group."""
    import numpy as np

    fit = tree["fit"]
    sd = np.sqrt(np.diag(fit["covariance_matrix"].values))
    return {"mean": fit["mean_vector"].values.tolist(), "sd": sd.tolist()}


def import_only(package: str) -> Callable[[], Answer]:
    """Make a case that imports one package."""

    def run() -> Answer:
        importlib.import_module(package)
        return {}

    return run


CASES = (
    Case("first laplace", "scikit-learn", laplace_sklearn, "sklearn", reference=True),
    Case("first laplace", "ardvark", laplace_ardvark, "ardvark"),
    Case("first laplace", "pymc-extras", laplace_pymc_extras, "pymc_extras"),
    Case("import", "pymc", import_only("pymc"), "pymc", reference=True),
    Case("import", "numpy", import_only("numpy"), "numpy"),
    Case("import", "ardvark", import_only("ardvark"), "ardvark"),
)


def run_once(index: int) -> tuple[float, float, Answer]:
    """CPU and wall seconds of one fresh process, and its answer."""
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ}
    command = [sys.executable, "-m", "ardvark.studies.bench", "--case", str(index)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as child:
        assert child.stdout is not None
        text = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if child.returncode != 0:
        raise RuntimeError(f"failed with exit code {child.returncode}")
    return usage.ru_utime + usage.ru_stime, wall, json.loads(text.splitlines()[-1])


def measure(cases: Sequence[int], repeats: int) -> list[Timing]:
    """Time each case; a peer that is not installed or fails gets a note instead of a figure."""
    best: dict[int, tuple[float, float, Answer]] = {}
    notes: dict[int, str] = {}
    for index in cases:
        if importlib.util.find_spec(CASES[index].needs) is None:
            notes[index] = "not installed"
            continue
        try:
            best[index] = min((run_once(index) for _ in range(repeats)), key=lambda r: r[0])
        except RuntimeError as error:
            notes[index] = str(error)
    return [timing(index, best, notes.get(index, "")) for index in cases]


def timing(index: int, best: dict[int, tuple[float, float, Answer]], note: str) -> Timing:
    """One line of the table: a case beside the reference of its task."""
    case = CASES[index]
    if index not in best:
        return Timing(case.task, case.peer, note=note)
    cpu, wall, answer = best[index]
    reference = next(
        (best[i] for i, c in enumerate(CASES) if c.task == case.task and c.reference and i in best),
        None,
    )
    if reference is None:
        return Timing(case.task, case.peer, cpu, wall, note="the reference has no figure")
    distance = None
    if answer and not case.reference:
        pairs = zip(answer["mean"], reference[2]["mean"], reference[2]["sd"], strict=True)
        distance = max(abs(m - r) / s for m, r, s in pairs)
    return Timing(case.task, case.peer, cpu, wall, cpu / reference[0], distance)


def table(timings: Sequence[Timing]) -> str:
    """Set the timings as plain text, one task after the other."""

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    head = f"{'task':<15}{'peer':<14}{'cpu s':>8}{'wall s':>8}{'ratio':>8}{'max |Δ|/sd':>12}"
    lines = [head, "-" * len(head)]
    for t in timings:
        cells = f"{number(t.cpu_seconds, '.2f'):>8}{number(t.wall_seconds, '.2f'):>8}"
        cells += f"{number(t.ratio, '.2f'):>8}{number(t.distance, '.1e'):>12}"
        lines.append(f"{t.task:<15}{t.peer:<14}{cells}  {t.note}".rstrip())
    return "\n".join(lines)


def main() -> None:
    """Command line: the table, or JSON lines with `--json`."""
    parser = argparse.ArgumentParser(description="Speeds as ratios against named peers.")
    parser.add_argument("--json", action="store_true", help="one JSON object per case")
    parser.add_argument("--repeats", type=int, default=3, help="runs per case; the best counts")
    parser.add_argument("--task", choices=sorted({c.task for c in CASES}), help="only this task")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        sys.stdout.write(json.dumps(CASES[options.case].run()) + "\n")
        return
    chosen = [i for i, c in enumerate(CASES) if options.task in (None, c.task)]
    timings = measure(chosen, options.repeats)
    lines = [json.dumps(asdict(t)) for t in timings] if options.json else [table(timings)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
