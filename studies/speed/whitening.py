"""Whether NUTS needs fewer gradients in coordinates in which the posterior is round.

    python -m ardvark.studies.speed.whitening [--write FILE]

The density of `av.NUTS()` is sampled as a function of y, x = m + L y, and nutpie adapts its
diagonal metric to y as it does to x. Counted are effective draws of the worst weight per thousand
gradients, those of tuning included: a number that does not depend on the machine.

| coordinates | m, L L'                                                                      |
|-------------|------------------------------------------------------------------------------|
| `as_is`     | 0, I                                                                         |
| `ep`        | mean and covariance of EP at the starting values of the hyperparameters      |
| `posterior` | those of a run before this one: more than any approximation could know       |
| `low_rank`  | 0, I, with `NUTS(metric="low_rank")`: nutpie learns correlations as it tunes  |
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ardvark.inference.ep.ep import EP
from ardvark.inference.graph.read import read_model
from ardvark.inference.joint.joint import Joint
from ardvark.inference.joint.parts import joint_of
from ardvark.inference.known_sites.joint_density import gradient_at
from ardvark.inference.samplers.chain_statistics import ess_bulk
from ardvark.inference.sites.arrays import Array
from ardvark.studies.speed import nuts_speed, record

__all__ = ["COORDINATES", "measure"]

COORDINATES = ("as_is", "ep", "posterior", "low_rank")
TASKS = ("nuts 60 x 5 probit", "nuts 500 x 50 logit", "nuts wdbc probit")
TUNES = (1000, 300)
DRAWS, CHAINS = 1000, 4


def sample(
    joint: Joint, mean: Array, factor: Array, tune: int, seed: int, adaptation: Any = "diag"
) -> tuple[Array, int]:
    """Draws of x (chain, draw, n), and how many gradients they took."""
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    size = mean.size

    def make_log_density() -> Any:
        def log_density(y: Array) -> tuple[float, Array]:
            value, gradient = gradient_at(joint.packed, mean + factor @ y)
            return value, gradient @ factor

        return log_density

    compiled = from_pyfunc(
        size, make_log_density, lambda *_: lambda y: {"y": np.array(y)}, [np.dtype(float)],
        [(size,)], ["y"], make_initial_point_fn=lambda s: _start(joint, mean, factor, s),
    )  # fmt: skip
    tree = nutpie.sample(
        compiled, draws=DRAWS, tune=tune, chains=CHAINS, seed=seed, target_accept=0.9,
        progress_bar=False, save_warmup=True, adaptation=adaptation,
    )  # fmt: skip
    stats = (tree["sample_stats"], tree["warmup_sample_stats"])
    return mean + tree["posterior"]["y"].to_numpy() @ factor.T, sum(
        int(part["n_steps"].sum()) for part in stats
    )


def _start(joint: Joint, mean: Array, factor: Array, seed: Any) -> Array:
    """Where every chain starts whatever the coordinates: within one of the start of x."""
    x = joint.start + np.random.default_rng(seed).uniform(-1.0, 1.0, joint.start.size)
    return np.linalg.solve(factor, x - mean)


def measure(task: str, turns: int, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of one task: effective draws per thousand gradients, by coordinates and tuning."""
    found: dict[tuple[str, int], list[float]] = {(c, t): [] for c in names for t in TUNES}
    for turn in range(turns):
        os.environ[nuts_speed.REPEAT] = str(turn)
        latent = read_model(nuts_speed.model_of(task))
        joint = joint_of(latent, integrate=True)
        same = np.zeros(joint.start.size), np.eye(joint.start.size)
        gaussians = {"as_is": same, "low_rank": same}
        if "ep" in names:
            fit = EP().approximate(latent.at(latent.initial_theta())).posterior
            gaussians["ep"] = fit.mean, np.linalg.cholesky(fit.covariance)
        if "posterior" in names:
            x, _ = sample(joint, *same, tune=1000, seed=100 + turn)
            flat = x.reshape(-1, x.shape[-1])
            gaussians["posterior"] = flat.mean(axis=0), np.linalg.cholesky(np.cov(flat.T))
        for (name, tune), sizes in found.items():
            metric = "low_rank" if name == "low_rank" else "diag"
            x, gradients = sample(joint, *gaussians[name], tune, turn, metric)
            sizes.append(1e3 * float(ess_bulk(x).min()) / gradients)
    for (name, tune), sizes in found.items():
        logs = np.log(sizes)
        error = None if turns < 2 else float(np.exp(logs.mean()) * logs.std(ddof=1) / turns**0.5)
        yield {
            "task": task, "coordinates": name, "tune": tune, "turns": turns,
            "per_thousand": float(np.exp(logs.mean())), "error": error,
        }  # fmt: skip


def main() -> None:
    """Print the table; `--write` keeps it."""
    parser = argparse.ArgumentParser(description="NUTS in coordinates in which all is round.")
    parser.add_argument("--write", type=Path, help="keep the record in this file (JSON)")
    parser.add_argument("--turns", type=int, default=2, help="data sets and seeds of each task")
    parser.add_argument("--coordinates", choices=COORDINATES, action="append", help="only these")
    options = parser.parse_args()
    names = options.coordinates or COORDINATES
    for task in TASKS:
        others, rows = record.Others(), list(measure(task, options.turns, names))
        for row in rows:
            sys.stdout.write(
                f"{task:<22}{row['coordinates']:<12}{row['tune']:>5}  {row['per_thousand']:.2f}\n"
            )
        if options.write is not None:
            keys = ("task", "coordinates", "tune")
            record.write(options.write, "whitening", rows, keys=keys, load=others.load())


if __name__ == "__main__":
    main()
