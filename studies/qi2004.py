"""Qi, Minka, Picard & Ghahramani 2004: gene expression data, evidence against predictive ARD.

    python -m ardvark.studies.qi2004              # both data sets, ten partitions: a minute
    python -m ardvark.studies.qi2004 --starts     # what the start decides
    python -m ardvark.studies.qi2004 --evidence   # EP against exact evidence along a path

One path of ARD steps is walked for each partition; evidence takes its end, the two predictive
criteria take a step of it. Inputs are standardised with the statistics of the training rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from ardvark.inference.ard.sequential_ard import ArdResult, sequential_ard
from ardvark.inference.ep.correction import evidence_correction
from ardvark.inference.ep.ep import EP
from ardvark.inference.exact.exact import Exact
from ardvark.inference.hyper.settings import CRITERIA
from ardvark.inference.hyper.starts import Start, active_at_start
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import Array, ProbitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.models.datasets import load
from ardvark.models.inputs import standardise

__all__ = ["EXPERIMENTS", "Experiment", "replicate"]

RULES = ("evidence", "loo_error", "loo_probability")


@dataclass(frozen=True, slots=True)
class Experiment:
    """A data set, its split, and what the paper printed: rule → (errors, features)."""

    data: str
    n_train: int
    published: dict[str, tuple[float, float]]


EXPERIMENTS = {
    # Section 4: mean test errors and mean numbers of selected features over the partitions.
    "leukaemia": Experiment(
        "leukaemia_golub", 36, {"evidence": (3.86, 2.78), "loo_error": (2.80, 513.82)}
    ),
    "colon": Experiment("colon_alon", 50, {"evidence": (2.54, 7.92), "loo_error": (1.63, 156.76)}),
}


def partition(experiment: Experiment, seed: int) -> tuple[SiteModel, Array, Array]:
    """Training part as a probit model with a bias, and the test part: rows and labels ±1."""
    data = load(experiment.data)
    order = np.random.default_rng(seed).permutation(len(data.t))
    train, test = order[: experiment.n_train], order[experiment.n_train :]
    rows = np.asarray(standardise(data.X, rows=train))
    columns = np.column_stack([np.ones(len(rows)), rows])
    sign = np.where(data.t == np.unique(data.t)[1], 1.0, -1.0)
    model = SiteModel(
        mean=np.zeros(columns.shape[1]),
        projection=np.ascontiguousarray(columns[train]),
        offset=np.zeros(len(train)),
        sites=ProbitSites(sign[train]),
        precision=np.ones(columns.shape[1]),
    )
    return model, columns[test], sign[test]


def walk(model: SiteModel, start: Start | None, max_steps: int = 5000) -> ArdResult:
    """The path of evidence-ARD-EP from a start."""
    everything = np.ones(model.mean.size, bool)
    active, precision = active_at_start(start, model, everything)
    rule = EP().loosened().approximate
    return sequential_ard(
        model,
        rule,
        start=active,
        start_precision=precision,
        max_steps=max_steps,
        tolerance=1e-4,
    )


def chosen(path: ArdResult, rule: str) -> int:
    """The step that a rule takes: the end of the path, or the first of the best."""
    if rule == "evidence":
        return len(path.path) - 1
    return int(np.argmin([step.info[CRITERIA[rule]] for step in path.path]))


def outcome(model: SiteModel, rows: Array, sign: Array, path: ArdResult, rule: str) -> Any:
    """Test errors, mean test log probability and features of the step that a rule takes."""
    step = path.path[chosen(path, rule)]
    fit = EP().approximate(replace(model, precision=step.precision))
    mean, variance = fit.posterior.predictive(rows, np.zeros(len(rows)))
    z = sign * mean / np.sqrt(1.0 + variance)
    errors = float(np.sum(z < 0) + 0.5 * np.sum(z == 0))
    return errors, float(log_ndtr(z).mean()), int(step.active[1:].sum())


def replicate(name: str, partitions: int = 10, start: Start | None = None) -> list[dict[str, Any]]:
    """One row per rule: errors and features with standard errors, beside the published ones."""
    experiment, results, seconds = EXPERIMENTS[name], [], time.process_time()
    converged = 0
    for seed in range(partitions):
        model, rows, sign = partition(experiment, seed)
        path = walk(model, start)
        converged += path.converged
        results.append([outcome(model, rows, sign, path, rule) for rule in RULES])
    numbers = np.array(results)  # (partition, rule, [errors, log probability, features])
    error = numbers.std(axis=0, ddof=1) / np.sqrt(partitions)
    gain = numbers[:, :1, 0] - numbers[:, :, 0]  # paired, against evidence
    table = []
    for i, rule in enumerate(RULES):
        published = experiment.published.get(rule)
        table.append(
            {
                "data": name,
                "start": json.dumps(start or "empty"),
                "rule": rule,
                "errors": numbers[:, i, 0].mean(),
                "errors_se": error[i, 0],
                "published_errors": published[0] if published else None,
                "paired_gain": gain[:, i].mean(),
                "paired_gain_se": gain[:, i].std(ddof=1) / np.sqrt(partitions),
                "log_probability": numbers[:, i, 1].mean(),
                "features": numbers[:, i, 2].mean(),
                "features_se": error[i, 2],
                "published_features": published[1] if published else None,
                "converged": converged,
                "cpu_seconds": time.process_time() - seconds,
            }
        )
    return table


def evidence_along_path(name: str, seed: int = 0, draws: int = 2000) -> list[dict[str, Any]]:
    """EP, Laplace and exact log evidence at steps of one path from the empty start."""
    model, _, _ = partition(EXPERIMENTS[name], seed)
    path = walk(model, None).path
    steps = sorted({0, 1, 2, 3, 5, 8, *np.linspace(10, len(path) - 1, 5).astype(int).tolist()})
    table = []
    for index in (s for s in steps if s < len(path)):
        at = replace(model, precision=path[index].precision)
        fit = EP().approximate(at)
        exact = Exact(min_acceptance=1e-5).sample(at, draws, np.random.default_rng(index))
        table.append(
            {
                "data": name,
                "step": index,
                "active": int(path[index].active.sum()),
                "least_precision": float(path[index].precision.min()),
                "ep": path[index].log_evidence,
                "ep_corrected": fit.log_evidence + evidence_correction(fit).value,
                "laplace": Laplace().approximate(at).log_evidence,
                "exact": exact.log_evidence,
                "exact_se": exact.log_evidence_error,
            }
        )
    return table


def _print(table: list[dict[str, Any]], as_json: bool) -> None:
    write = sys.stdout.write
    if as_json:
        for row in table:
            write(json.dumps(row) + "\n")
        return
    names = list(table[0])
    lines = [names] + [[_text(row[name]) for name in names] for row in table]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    for line in lines:
        write("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) + "\n")


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Command line of the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--starts", action="store_true", help="compare several starts")
    parser.add_argument("--evidence", action="store_true", help="EP against exact evidence")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    starts: list[Start | None] = [None]
    if asked.starts:
        starts = [None, ("random", 20), ("correlated", 20), ("correlated", 200)]
    for name in EXPERIMENTS:
        if asked.evidence:
            _print(evidence_along_path(name), asked.json)
            continue
        _print([r for s in starts for r in replicate(name, asked.partitions, s)], asked.json)


if __name__ == "__main__":
    main()
