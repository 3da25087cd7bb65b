"""Chu, Keerthi, Ong & Ghahramani 2006: how good the evidence is, how fast, and whose ranking it is.

    ardvark replicate chu2006 --only evidence       # Laplace, EP and Monte Carlo: a minute
    ardvark replicate chu2006 --only ranking        # relevances beside NUTS: some minutes
    python -m ardvark.studies.papers.chu2006        # speed: one evaluation, 500 features: a minute

The Monte Carlo evidence is importance sampling from a mixture of EP's Gaussian (nine tenths) and
the prior (one tenth): its weights are bounded by ten, so its error can be believed.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from ardvark.inference.ep.correction import evidence_correction
from ardvark.inference.ep.ep import EP
from ardvark.inference.process.evidence import Process, site_model
from ardvark.inference.process.support import support_evidence
from ardvark.inference.sites.arrays import Array
from ardvark.models.covariances import ARDGaussian
from ardvark.studies.experiments import Experiment
from ardvark.studies.workloads import Task, curved

__all__ = ["EXPERIMENTS", "evaluation_times", "evidence", "monte_carlo", "ranking", "small_problem"]

SCALES = (0.5, 2.0, 30.0)  # kappa_0 of the small problems
ROWS = (5, 10, 20)
SIZES = (250, 500, 1000, 2000)


def small_problem(seed: int, rows: int, kappa_0: float) -> tuple[Process, Array]:
    """A few rows, two inputs, noisy labels, and their covariance."""
    rng = np.random.default_rng([2006, seed])
    X = rng.normal(size=(rows, 2))
    sign = np.where(X[:, 0] + 0.7 * rng.normal(size=rows) > 0, 1.0, -1.0)
    process = Process.of(X, sign, ARDGaussian())
    scales = np.array(kappa_0), np.array([1.0, 0.3]), np.array(0.5)
    return process, process.matrices(dict(zip(ARDGaussian.NAMES, scales, strict=True)))[1]


def monte_carlo(process: Process, covariance: Array, draws: int, seed: int) -> tuple[float, float]:
    """Log evidence and its standard error, by importance sampling."""
    rng = np.random.default_rng(seed)
    model = site_model(process, covariance)
    posterior = EP().approximate(model).posterior
    from_prior = rng.random(draws) < 0.1
    white = rng.standard_normal((draws, len(process.sign)))
    w = np.where(from_prior[:, None], posterior.prior.coloured(white), posterior.draws(draws, rng))
    log_prior = posterior.prior.log_density(w)
    mixture = np.logaddexp(np.log(0.1) + log_prior, np.log(0.9) + posterior.log_density(w))
    weight = np.exp(model.sites.log(w).sum(axis=1) + log_prior - mixture)
    mean = float(weight.mean())
    return float(np.log(mean)), float(weight.std() / mean / np.sqrt(draws))


def evidence(number: int, rows: int, kappa_0: float, draws: int = 100_000) -> dict[str, float]:
    """Errors in nats of EP, as it is and corrected, and of Laplace, Chu06 (15), on one problem."""
    process, covariance = small_problem(number, rows, kappa_0)
    truth, error = monte_carlo(process, covariance, draws, number)
    fit = EP().approximate(site_model(process, covariance))
    corrected = fit.log_evidence + evidence_correction(fit).value
    laplace = support_evidence(covariance, process.sign).log_evidence
    return {
        "ep": fit.log_evidence - truth,
        "ep_corrected": corrected - truth,
        "laplace": laplace - truth,
        "monte_carlo_error": error,
    }


# Speeds -------------------------------------------------------------------------------------------


def evaluation_times(features: int = 500, repeats: int = 3) -> list[dict[str, float]]:
    """CPU seconds of one evidence with its gradient: from nothing, and from a mode nearby."""
    rows = []
    for size in SIZES:
        rng = np.random.default_rng(size)
        X = rng.normal(size=(size, features))
        signal = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=size)
        process = Process.of(X, np.where(signal > 0, 1.0, -1.0), ARDGaussian())
        kappa_a = np.full(features, 0.5 / features)
        kappa_a[:3] = 0.2
        kappa = {"kappa_0": np.array(10.0), "kappa_a": kappa_a, "kappa_b": np.array(1.0)}
        near = {**kappa, "kappa_0": np.array(10.5)}
        start = support_evidence(process.matrices(near)[1], process.sign).mode.alpha
        seconds: dict[str, float] = {}
        for name, alpha in (("cold", None), ("warm", start)):
            times = []
            for _ in range(repeats):
                begin = time.process_time()
                plain, jittered = process.matrices(kappa)
                found = support_evidence(jittered, process.sign, alpha)
                process.gradient(found.adjoint, found.rows, kappa, plain)
                times.append(time.process_time() - begin)
            seconds[name] = min(times)
        rows.append({"rows": size, "support_vectors": len(found.rows), **seconds})
    return rows


def speed_ardvark(first: bool = False) -> dict[str, Any]:
    """One start of the evidence on the curved task by `fit`.

    On a graph that has been read, or as the `first` fit of a process; its modules are loaded
    before, as those of the peer are.
    """
    import ardvark as av
    import ardvark.inference.process.run

    task = curved()
    model = av.models.trigonometric_svm(task.X, task.t)
    search = av.Evidence(start=("random", 1))
    once: dict[str, Any] = {"draws": 100, "random_seed": 1, "progressbar": False}
    if not first:
        known = av.Fixed({"kappa_0": 1.0, "kappa_a": np.full(13, 0.1), "kappa_b": 1.0})
        av.fit(model, av.Laplace(hyper=known), **once)
    tree, timed = _timed(lambda: av.fit(model, av.Laplace(hyper=search), **once))
    probabilities = av.predict(model, tree, task.X_test).values
    log_evidence = float(tree["fit"]["log_evidence"])
    return {**timed, "log_evidence": log_evidence, **_scores(task, probabilities)}


def speed_sklearn() -> dict[str, Any]:
    """The same task by scikit-learn's Gaussian process classifier."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    task = curved()
    features = task.X.shape[1]
    lengths = RBF([features**0.5] * features, (1e-2, 1e4))
    classifier = GaussianProcessClassifier(ConstantKernel(1.0, (1e-3, 1e4)) * lengths)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lengths at their bounds: the inputs without use
        _, timed = _timed(lambda: classifier.fit(task.X, task.t))
    value = float(classifier.log_marginal_likelihood_value_)
    return {**timed, "log_evidence": value, **_scores(task, classifier.predict_proba(task.X_test))}


def _timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    begin, wall = time.process_time(), time.perf_counter()
    found = work()
    cpu, wall = time.process_time() - begin, time.perf_counter() - wall
    return found, {"cpu_seconds": cpu, "wall_seconds": wall}


def _scores(task: Task, probabilities: Array) -> dict[str, float]:
    """Test error, and mean log probability of the right class."""
    right = probabilities[np.arange(len(task.t_test)), task.t_test]
    return {
        "test_error": float(np.mean(right < 0.5)),
        "test_log_score": float(np.mean(np.log(np.maximum(right, 1e-12)))),
    }


# Ranking ------------------------------------------------------------------------------------------


def ranking(number: int, rows: int = 40, features: int = 10, draws: int = 500) -> dict[str, Any]:
    """Rank correlation of relevances with those of full NUTS, on one problem of ten inputs."""
    import ardvark as av

    rng = np.random.default_rng(5 + number)
    X = rng.normal(size=(rows, features))
    noise = 0.3 * rng.normal(size=rows)
    t = (2 * X[:, 0] - 1.5 * X[:, 1] + X[:, 2] ** 2 - 1 + noise > 0).astype(int)
    model = av.models.trigonometric_svm(X, t)
    methods = {
        "laplace": av.Laplace(),
        "laplace, with prior": av.Laplace(hyper=av.Evidence(with_prior=True)),
        "ep": av.EP(),
        "ep, with prior": av.EP(hyper=av.Evidence(with_prior=True)),
        "nuts": av.NUTS(tune=500),
    }
    asked: dict[str, Any] = {"draws": draws, "chains": 2, "random_seed": 1, "progressbar": False}
    trees = {name: av.fit(model, method, **asked) for name, method in methods.items()}
    tables = {name: av.relevance(tree)["relevance"] for name, tree in trees.items()}
    found: dict[str, Any] = {
        f"{name}.correlation": float(spearmanr(table, tables["nuts"]).statistic)
        for name, table in tables.items()
        if name != "nuts"
    }
    found |= {f"{name}.problems": str(tree.attrs["problems"]) for name, tree in trees.items()}
    return found | {f"{n}.relevance": table.to_numpy() for n, table in tables.items()}


EXPERIMENTS = (
    *(
        Experiment(
            f"evidence/{rows} rows/kappa_0 {scale:g}", "equation 15", evidence,
            {"rows": rows, "kappa_0": scale}, 10,
        )
        for rows, scale in product(ROWS, SCALES)
    ),
    Experiment("ranking", "equation 19", ranking, {}, 1, quick=0),
)  # fmt: skip


def main() -> None:
    """Speeds, one JSON object per line."""
    for row in evaluation_times():
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
