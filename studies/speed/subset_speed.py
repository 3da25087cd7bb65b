"""Speed of the samplers of subsets, and of PyMC's indicators on the same data.

    python -m ardvark.studies.speed.subset_speed             # ours: CPU seconds and effective draws
    python -m ardvark.studies.speed.subset_speed --peer      # and PyMC's own sampler, some minutes

200 rows, 13 or 33 inputs in a chain of correlation 0.5, five of them relevant with weights from
0.15 to 0.8; 15000 sweeps of one chain on one core. The peer is what a PyMC user writes:
Bernoulli(1/2) indicators, sampled by `BinaryGibbsMetropolis` with NUTS on the weights; its time is
measured on fewer iterations, without compilation. Our prior of the size is a Poisson with mean
d / 2, the nearest to the peer's. "ess" is the least over the inputs, of the indicator, as 15000
sweeps give it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["correlated_inputs", "ours", "peer"]

SWEEPS = 15000
PEER_DRAWS, PEER_TUNE = 1500, 300


def correlated_inputs(n_inputs: int, task: str, n_rows: int = 200) -> tuple[Any, Any]:
    """Give X and t of the workload: the same seeded data for every contestant."""
    rng = np.random.default_rng(707 + n_inputs)
    noise = rng.standard_normal((n_rows, n_inputs))
    X = noise.copy()
    for j in range(1, n_inputs):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * noise[:, j]
    relevant = rng.choice(n_inputs, 5, replace=False)
    w = np.zeros(n_inputs)
    w[relevant] = rng.choice([-1.0, 1.0], 5) * np.linspace(0.15, 0.8, 5)
    score = X @ w + rng.standard_normal(n_rows)
    return X, score if task == "regression" else (score > 0).astype(int)


def ours(n_inputs: int, task: str, link: str = "probit") -> dict[str, Any]:
    """Time one chain of 15000 sweeps, compiled beforehand."""
    from ardvark.inference.subset.collapsed import sample_collapsed
    from ardvark.inference.subset.laplace import sample_laplace
    from ardvark.inference.subset.run import subset_problem
    from ardvark.models.subset import subset_classification, subset_regression

    X, t = correlated_inputs(n_inputs, task)
    expected = n_inputs / 2
    if task == "regression":
        model = subset_regression(X, t, expected_inputs=expected)
    else:
        model = subset_classification(X, t, link=link, expected_inputs=expected)
    problem = subset_problem(model)
    sample = sample_laplace if link == "logit" else sample_collapsed
    sample(problem, (0, 4, 1), 1, 1)
    begin = time.process_time()
    chain = sample(problem, (0, SWEEPS, 1), 1, 1)[0]
    return {"cpu": time.process_time() - begin, "ess": least_ess(chain.visited[None])}


def peer(n_inputs: int, task: str) -> dict[str, Any]:
    """Time PyMC's indicators, for 15000 iterations."""
    import pymc as pm

    X, t = correlated_inputs(n_inputs, task)
    with pm.Model() as model:
        on = pm.Bernoulli("on", 0.5, shape=n_inputs)
        eta = pm.Normal("bias", 0, 5) + X @ (on * pm.Normal("w", 0, 1, shape=n_inputs))
        if task == "regression":
            pm.Normal("t", eta, pm.HalfNormal("sigma", 2.0), observed=t)
        else:
            pm.Bernoulli("t", p=pm.math.invprobit(eta), observed=t)
    begin: list[float] = []
    tree = pm.sample(
        PEER_DRAWS, tune=PEER_TUNE, chains=1, cores=1, model=model, random_seed=1,
        progressbar=False, compute_convergence_checks=False, quiet=True,
        callback=lambda trace, draw: begin.extend([time.process_time()][len(begin) :]),
    )  # fmt: skip
    cpu = (time.process_time() - begin[0]) * SWEEPS / (PEER_DRAWS + PEER_TUNE)
    return {"cpu": cpu, "ess": least_ess(tree.posterior["on"].values) * SWEEPS / PEER_DRAWS}


def least_ess(indicators: Any) -> float:
    """Least effective sample size over the inputs that come and go."""
    from arviz_stats import ess  # type: ignore[attr-defined]

    draws = np.asarray(indicators, dtype=float)
    moving = draws.std(axis=(0, 1)) > 0
    return float(np.min(ess(draws[..., moving])))  # type: ignore[no-untyped-call]


def rows(with_peer: bool) -> Iterator[str]:
    """One line of the table after the other."""
    yield "| task | inputs | who | CPU s | ess |\n| --- | --- | --- | --- | --- |"
    for task, link in (("regression", ""), ("binary", "probit"), ("binary", "logit")):
        for n_inputs in (13, 33):
            found = {"Ardvark": ours(n_inputs, task, link or "probit")}
            if with_peer and link != "logit":
                found["PyMC"] = peer(n_inputs, task)
            for who, numbers in found.items():
                cells = (link or task, n_inputs, who, f"{numbers['cpu']:.3g}")
                yield f"| {' | '.join(map(str, cells))} | {numbers['ess']:.0f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="run PyMC's own sampler too")
    for row in rows(parser.parse_args().peer):
        sys.stdout.write(row + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
