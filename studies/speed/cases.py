"""Tasks of the bench and their contestants.

ep              probit, N = 500, d = 50, w ~ N(0, I): one call, compiled and warm. GPy works in
                function space; the bare loop is what EP's sweeps cost without any check.
evidence ard    from an empty model to the end, N = 36, d = 7129 and 62 x 2000, warm. fastrvm's
                SparseBayes is private, and by Laplace with logit sites.
whole ard path  the same to the end: ours stops when no step gains 1e-3 nats, fastrvm by its own
                rule; whole costs, with the test errors of both
predictive path the same path, then the step of least leave-one-out error; against ten
                optimiser steps of GPy's EP with a linear ARD kernel, far from converged.
rvm regression  sinc, a kernel at each of N rows and a bias: the whole call of an estimator, its
                kernel too. One function gives every contestant's evidence at what it found.
rvm classification  the same with two classes in the plane, logit and Laplace
first laplace   logit, N = 500, d = 50, w ~ N(0, I): mean and covariance of the weights, import
                and compilation included. scikit-learn finds the mode and the covariance is
                made by hand (no draws, no evidence, no tree); the others return a whole result.
svm evidence    trigonometric SVM, ARD Gaussian covariance, N = 400, d = 13, one start, warm;
                the Gaussian process classifiers of scikit-learn (logit) and GPy (probit) with
                the same kernel, by Laplace and their own optimisers.
first svm evidence  the same as the first fit of a process that has loaded its modules
nuts            effective draws of the worst weight (`nuts_speed.py`), as steps
import          what `import package` costs, and what a first fit with kernels loads first
"""

import importlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ardvark.studies.speed import nuts_speed

__all__ = ["CASES", "TASKS", "US", "Case", "Report"]

type Report = dict[str, Any]  # cpu_seconds, wall_seconds and whatever the contestant found

US = "ardvark"
LOADED = "pymc, numba and xarray at work"


@dataclass(frozen=True, slots=True)
class Case:
    """One contestant in one task.

    Parameters
    ----------
    run
        Timed as a whole process, import included; it `needs` a package of this environment.
    script, method, workload
        Instead: `peers/run_<script>.py` times this method on a warm call, for this workload and
        its arguments.
    per_step
        Whether the ratio is one of costs per step.
    goal
        Least ratio that Ardvark is meant to reach against this peer.
    long
        A peer that takes a minute and more: not in a quick run.
    """

    task: str
    peer: str
    run: Callable[[], Report] | None = None
    needs: str = US
    script: str = ""
    method: str = ""
    workload: tuple[Any, ...] = ()
    per_step: bool = True
    goal: float | None = None
    long: bool = False


def laplace_ardvark() -> Report:
    """Fit the model of `av.models`."""
    import ardvark as av
    from ardvark.studies.workloads import sparse_probit

    task = sparse_probit()
    alpha = [1.0] * task.X.shape[1]
    model = av.models.ard_classification(task.X, task.t, link="logit", bias=False, alpha=alpha)
    return gaussian_answer(av.fit(model, av.Laplace(), random_seed=1, progressbar=False))


def laplace_sklearn() -> Report:
    """Mode by scikit-learn, covariance by hand: inverse of X' diag(p (1 - p)) X + I."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from ardvark.studies.workloads import sparse_probit

    task = sparse_probit()
    fit = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8, max_iter=1000)
    fit.fit(task.X, task.t)
    p = fit.predict_proba(task.X)[:, 1]
    precision = (task.X * (p * (1 - p))[:, None]).T @ task.X + np.eye(task.X.shape[1])
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    return {"mean": fit.coef_[0].tolist(), "sd": sd.tolist()}


def laplace_pymc_extras() -> Report:
    """`fit_laplace` on the same graph as a PyMC user writes it."""
    import pymc as pm

    from ardvark.studies.workloads import sparse_probit

    pmx = importlib.import_module("pymc_extras")  # no dependency of ours, so unknown to mypy
    task = sparse_probit()
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0, shape=task.X.shape[1])
        pm.Bernoulli("t", logit_p=task.X @ w, observed=task.t)
    return gaussian_answer(pmx.fit_laplace(model=model, progressbar=False, random_seed=1))


def gaussian_answer(tree: Any) -> Report:
    """Mean and sd of the weights from a tree's `fit` group."""
    import numpy as np

    fit = tree["fit"]
    sd = np.sqrt(np.diag(fit["covariance_matrix"].values))
    return {"mean": fit["mean_vector"].values.tolist(), "sd": sd.tolist()}


def import_only(package: str) -> Callable[[], Report]:
    """Make a case that imports one package."""

    def run() -> Report:
        importlib.import_module(package)
        return {}

    return run


def loaded() -> Report:
    """Load what a first fit with kernels needs: PyMC, numba's registries, xarray's first array."""
    import numpy as np
    import pymc  # noqa: F401
    import xarray
    from numba.core.registry import cpu_target

    cpu_target.target_context.refresh()
    xarray.Variable("x", np.zeros(1))  # looks for dask and other kinds of arrays
    return {}


def chu2006() -> Any:
    """The study with the speeds of the trigonometric SVM."""
    return importlib.import_module("ardvark.studies.papers.chu2006")


def ard_cases(rows: int, features: int) -> Iterable[Case]:
    """Both ARD tasks at one shape."""
    data = ("wide", rows, features)
    name, method = f"evidence ard {rows} x {features}", "evidence_ard"
    yield Case(name, US, script="ardvark", method=method, workload=data)
    yield Case(name, "fastrvm", script="fastrvm", method=method, workload=data, goal=1.0)
    name = f"whole ard path {rows} x {features}"
    yield Case(name, US, None, US, "ardvark", "whole_path", data, per_step=False)
    yield Case(name, "fastrvm", None, US, "fastrvm", method, data, per_step=False, goal=1 / 3)
    name, method = f"predictive path {rows} x {features}", "predictive_path"
    yield Case(name, US, script="ardvark", method=method, workload=data)
    yield Case(name, "GPy", script="gpy", method=method, workload=data, goal=5.0)


def rvm_cases(
    kind: str, data: str, rows: int, goal: float | None = None, both: bool = False
) -> Iterable[Case]:
    """The relevance vector machine on so many rows; with `both` against sklearn-rvm too."""
    name, task, method = f"rvm {kind} {rows}", (data, rows), f"rvm_{kind}"
    peers = {US: None, "fastrvm": goal} | ({"sklearn-rvm": 50.0} if both else {})
    for peer, least in peers.items():
        script = peer.replace("-", "_")
        yield Case(
            name, peer, None, US, script, method, task, per_step=False, goal=least,
            long=peer == "sklearn-rvm",
        )  # fmt: skip


def nuts_cases(task: str) -> Iterable[Case]:
    """NUTS with everything from `av.fit`, against nutpie with and without its compile."""
    yield Case(task, US, nuts_speed.nuts_ardvark(task))
    yield Case(task, "ardvark, a later fit", nuts_speed.nuts_ardvark(task, later=True))
    for peer, compiles, goal in (("nutpie, compile counted", True, 5.0), ("nutpie", False, 0.5)):
        yield Case(task, peer, nuts_speed.nuts_nutpie(task, compiles), "nutpie", goal=goal)


PROBIT = ("sparse_probit", 500, 50)
CURVED = ("curved", 400, 13)
CASES = (
    Case("ep", US, script="ardvark", method="ep", workload=PROBIT),
    Case("ep", "bare loop", script="bare_loop", method="ep", workload=PROBIT, goal=1 / 1.5),
    Case("ep", "GPy", script="gpy", method="ep", workload=PROBIT, goal=100.0),
    *ard_cases(36, 7129),
    *ard_cases(62, 2000),
    *rvm_cases("regression", "sinc", 500, goal=1.0),
    *rvm_cases("regression", "sinc", 1000),
    *rvm_cases("regression", "sinc", 2000, goal=2.0, both=True),
    *rvm_cases("regression", "sinc", 4000),
    *rvm_cases("classification", "ripley", 1000, goal=2.0, both=True),
    Case("first laplace", US, laplace_ardvark),
    Case("first laplace", "scikit-learn", laplace_sklearn, "sklearn", goal=1.0),
    Case("first laplace", "pymc-extras", laplace_pymc_extras, "pymc_extras"),
    Case("svm evidence", US, lambda: chu2006().speed_ardvark()),
    Case("svm evidence", "scikit-learn", lambda: chu2006().speed_sklearn(), "sklearn", goal=5.0),
    Case("svm evidence", "GPy", script="gpy", method="svm_evidence", workload=CURVED, goal=5.0),
    Case("first svm evidence", US, lambda: chu2006().speed_ardvark(first=True)),
    Case(
        "first svm evidence", "scikit-learn", lambda: chu2006().speed_sklearn(), "sklearn", goal=5.0
    ),
    *(case for task in nuts_speed.TASKS for case in nuts_cases(task)),
    Case("import", US, import_only(US)),
    Case("import", "numpy", import_only("numpy"), "numpy"),
    Case("import", "pymc", import_only("pymc"), "pymc"),
    Case("import", LOADED, loaded, "pymc"),
)
TASKS = tuple(dict.fromkeys(case.task for case in CASES))


if __name__ == "__main__":  # a process of one case, which loads nothing of the bench
    call = CASES[int(sys.argv[1])].run
    sys.stdout.write(json.dumps(call() if call is not None else {}) + "\n")
