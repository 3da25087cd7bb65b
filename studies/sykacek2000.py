"""Sykacek (2000), table 1: subsets of inputs by reversible jump on ionosphere, Pima and wine.

`python -m ardvark.studies.sykacek2000 [names]` fits the training rows of each set with 15000 sweeps
a chain, as the paper does, and prints test accuracy, average and maximal number of inputs and the
number of distinct subsets beside the published figures, and whether chains agree: the largest R-hat
and the largest sd between chains of an input's inclusion. `--alone` has no leaps between the modes
that other chains have found. `--speed` times one chain of each with either kind of proposals;
`--targets` shows what the joint and the conditional target find relevant.

What differs. The paper's ratios lack a density for the inputs outside the subset, so its answer
depends on units; here each has a background mixture, and the joint density makes an input relevant
also when it only helps to describe the others. Subsets are therefore much larger than the paper's.
The splits of ionosphere and wine are not published; seeded ones of the same sizes are taken, of
125 wine samples as in the paper.
"""

import json
import sys
import time
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import ardvark as av
from ardvark.inference.mixture.background import mixture_evidence
from ardvark.inference.mixture.chains import run_chains
from ardvark.inference.mixture.run import conditional_posterior, read_mixture
from ardvark.inference.reversible_jump import Plan
from ardvark.models.subset_prior import log_subset_prior

__all__ = ["SETS", "Published", "Row", "replicate", "speed", "table", "targets"]


@dataclass(frozen=True, slots=True)
class Published:
    """A line of table 1."""

    data: str
    n_kernels: int
    train: int
    test: int
    accuracy: float
    average: float
    maximum: int
    distinct: int  # "about", in 10000 sweeps


@dataclass(frozen=True, slots=True)
class Row:
    """Ours beside it; errors are standard errors, of the test rows and between chains."""

    data: str
    accuracy: float
    accuracy_error: float
    average: float
    average_error: float
    maximum: int
    distinct: int
    seconds: float
    rhat: float  # the largest, of the size and of each input
    between: float  # sd of an input's inclusion between chains, the largest
    converged: bool
    problems: str


SETS = {
    "ionosphere": Published("ionosphere", 6, 175, 176, 91.5, 4.3, 9, 500),
    "pima": Published("ripley_pima", 3, 200, 332, 78.9, 4.0, 7, 60),
    "wine": Published("wine", 3, 62, 63, 100.0, 4.4, 8, 500),
}


def replicate(name: str, *, seed: int = 1, chains: int = 4, **settings: Any) -> Row:
    """Fit one set and give its line."""
    published = SETS[name]
    X, t, train, test = _split(published, seed)
    model = av.models.rbf_mixture(X[train], t[train], n_kernels=published.n_kernels)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.ConvergenceWarning)
        tree = av.fit(
            model,
            av.ReversibleJump(**settings),
            draws=500,
            chains=chains,
            random_seed=seed,
            progressbar=False,
        )
    seconds = time.process_time() - begin
    probability = av.predict(model, tree, X[test])
    right = probability["class"].values[probability.values.argmax(axis=1)] == t[test]
    size = tree.sample_stats["n_inputs"].values
    included = tree["subsets"].included.values
    by_chain = tree["posterior"]["included"].values.mean(axis=1)
    return Row(
        name,
        100 * float(right.mean()),
        100 * float(right.std() / np.sqrt(len(right))),
        float(size.mean()),
        float(size.mean(axis=1).std(ddof=1) / np.sqrt(chains)) if chains > 1 else float("nan"),
        int(included.sum(axis=1).max()),
        len(included),
        seconds,
        float(json.loads(tree.attrs["sampler"]).get("rhat_max", float("nan"))),
        float(by_chain.std(axis=0, ddof=1).max()) if chains > 1 else float("nan"),
        bool(tree.attrs["converged"]),
        str(tree.attrs["problems"]),
    )


def _split(published: Published, seed: int) -> tuple[Any, Any, Any, Any]:
    data = av.load(published.data)
    if len(data.splits) == 1 and len(data.splits[0].train) == published.train:
        train, test = (np.asarray(rows) for rows in (data.splits[0].train, data.splits[0].test))
    else:
        order = np.random.default_rng(seed).permutation(len(data.X))
        train = order[: published.train]
        test = order[published.train : published.train + published.test]
    varies = np.ptp(np.asarray(data.X)[train], axis=0) > 0
    return data.X[:, varies], np.asarray(data.t), train, test


def table(rows: list[Row]) -> str:
    """Lines of text, ours and the paper's."""
    lines = [
        "set         accuracy (paper)      inputs (paper)    max (paper)  subsets (paper)"
        "  CPU s  R-hat  sd between"
    ]
    for row in rows:
        p = SETS[row.data]
        lines.append(
            f"{row.data:<11} {row.accuracy:5.1f}({row.accuracy_error:.1f}) ({p.accuracy:.1f})"
            f"  {row.average:6.2f}({row.average_error:.2f}) ({p.average:.1f})"
            f"  {row.maximum:>3} ({p.maximum})  {row.distinct:>5} ({p.distinct})"
            f"  {row.seconds:6.1f}  {row.rhat:.3f}  {row.between:.3f}"
            f"  {'' if row.converged else row.problems}"
        )
    return "\n".join(lines)


def targets(seed: int = 1, rows: int = 60) -> str:
    """What the joint and the conditional target find relevant: inclusion of three inputs.

    The conditional one by draws from the prior, subset by subset (`conditional_posterior`).
    """
    rng = np.random.default_rng(seed)
    t = np.arange(rows) % 2
    alone = rng.normal(size=(rows, 3))
    pair = alone.copy()
    pair[:, 1] = pair[:, 0] + 0.3 * rng.normal(size=rows)
    useful = pair.copy()
    useful[:, 2] += 1.5 * t
    cases = {
        "independent inputs, labels at random": alone,
        "x0 and x1 depend on each other, labels at random": pair,
        "the same, and x2 tells the classes apart": useful,
    }
    lines = ["| inputs | joint: x0, x1, x2 | conditional | prior |", "| --- | --- | --- | --- |"]
    for name, X in cases.items():
        joint = av.models.rbf_mixture(X, t, n_kernels=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", av.ConvergenceWarning)
            tree = av.fit(joint, "reversible_jump", draws=100, random_seed=seed, progressbar=False)
        model = av.models.rbf_mixture(X, t, n_kernels=2, target="conditional")
        found = conditional_posterior(model, 40_000, seed)
        given = (found.probability * found.included).sum("subset").values
        sizes = np.exp(log_subset_prior(3, 1.0)) * np.array([1, 3, 3, 1])
        prior = float(sizes @ np.arange(4) / 3)
        cells = (
            ", ".join(f"{p:.2f}" for p in values)
            for values in (tree["fit"].inclusion.values, given)
        )
        lines.append(f"| {name} | {' | '.join(cells)} | {prior:.2f} |")
    return "\n".join(lines)


def speed(name: str, proposals: str, sweeps: int = 15000, seed: int = 1) -> dict[str, float]:
    """CPU seconds of one chain; of its sweeps after tuning, accepted births and effective draws.

    An effective jump is an effective draw of the size of the subset: changes to and fro that lead
    nowhere do not count. With prior births and none accepted the rate is at most 3 / seconds.
    """
    X, t, train, _ = _split(SETS[name], seed)
    kernels = SETS[name].n_kernels
    model = av.models.rbf_mixture(X[train], t[train], n_kernels=kernels)
    read = read_mixture(model, "reversible_jump", av.ReversibleJump())
    p = read.prior
    evidence = mixture_evidence(read.z, kernels, p.shape, p.g, read.h, p.resolution**2, seed)
    options: dict[str, Any] = {"jumps": len(read.z), "from_data": proposals == "data", "chains": 1}
    problem = read.problem(evidence)
    run_chains(problem, p.n_classes, kernels, Plan(2, 1, 1), **options)  # compiles
    begin = time.process_time()
    plan = Plan(sweeps // 3, 1, sweeps - sweeps // 3)
    chain = run_chains(problem, p.n_classes, kernels, plan, **options)[0]
    seconds = time.process_time() - begin
    size = chain.visited.sum(axis=1).astype(float)
    effective = float(import_module("arviz_stats").ess(size[None])) if np.ptp(size) > 0 else 0.0
    kept = seconds * 2 / 3  # of the sweeps after tuning, scouts shared out
    return {
        "seconds": seconds,
        "births": float(chain.accepted[0].sum()),
        "leaps": float(chain.accepted[3].sum()),
        "births_per_second": float(chain.accepted[0].sum() / kept),
        "ess_per_second": effective / kept,
    }


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if name in SETS] or list(SETS)
    if "--speed" in sys.argv:
        for name in wanted:
            for proposals in ("data", "prior"):
                found = speed(name, proposals)
                print(name, proposals, {k: round(v, 3) for k, v in found.items()})  # noqa: T201
        sys.exit()
    if "--targets" in sys.argv:
        print(targets())  # noqa: T201
        sys.exit()
    alone = {"scouts": 0} if "--alone" in sys.argv else {}
    print(table([replicate(name, **alone) for name in wanted]))  # noqa: T201
