"""Sykacek (2000), table 1: subsets of inputs by reversible jump on ionosphere, Pima and wine.

`python -m ardvark.studies.papers.sykacek2000 [names]` fits the training rows of each set with 15000
sweeps a chain, as the paper does, and prints test accuracy, average and maximal number of inputs
and the number of distinct subsets beside the published figures, and the agreement of chains: R-hat
and the largest sd between chains of an input's inclusion. `--alone` has no leaps between the modes
that other chains have found. `--speed` times one chain of each with either kind of proposals;
`--targets` shows what the joint and the conditional target find relevant. `--conditional` fits
under P(t | x, Θ, I), which is the paper's question; `--splits 4` takes as many splits,
`--expected-inputs 5` another λ, which the paper does not state, and `--out rows.json` puts the
lines into a file beside those that it has.

What differs. The paper's ratios lack a density for the inputs outside the subset, so its answer
depends on units; here each has a background mixture, and the joint density makes an input relevant
also when it only helps to describe the others. Subsets are therefore much larger than the paper's.
The paper most likely had P(t | x, Θ) in its ratio and Gibbs updates of the joint density, a chain
that has no target; `--conditional` has one.
The splits of ionosphere and wine are not published; seeded ones of the same sizes are taken, of
125 wine samples as in the paper.
"""

import json
import time
import warnings
from argparse import ArgumentParser
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import ardvark as av
from ardvark.inference.mixture.background import mixture_evidence
from ardvark.inference.mixture.chains import run_chains
from ardvark.inference.mixture.reading import read_mixture
from ardvark.inference.mixture.run import conditional_posterior
from ardvark.inference.reversible_jump import Plan
from ardvark.inference.samplers.chain_statistics import rhat
from ardvark.models.subset import log_subset_prior

__all__ = ["SETS", "Published", "Row", "keep", "main", "replicate", "speed", "table", "targets"]


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
    target: str = "joint"
    expected_inputs: float = 1.0
    split: int = 1
    chains: int = 4
    sweeps: int = 15000
    rhat_size: float = float("nan")
    inclusion: tuple[float, ...] = ()


SETS = {
    "ionosphere": Published("ionosphere", 6, 175, 176, 91.5, 4.3, 9, 500),
    "pima": Published("ripley_pima", 3, 200, 332, 78.9, 4.0, 7, 60),
    "wine": Published("wine", 3, 62, 63, 100.0, 4.4, 8, 500),
}


def replicate(
    name: str,
    *,
    seed: int = 1,
    chains: int = 4,
    target: str = "joint",
    expected_inputs: float = 1.0,
    **settings: Any,
) -> Row:
    """Fit one set and give its line."""
    published = SETS[name]
    X, t, train, test = _split(published, seed)
    model = av.models.rbf_mixture(
        X[train],
        t[train],
        n_kernels=published.n_kernels,
        target=target,
        expected_inputs=expected_inputs,
    )
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.ConvergenceWarning)
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
        target,
        expected_inputs,
        seed,
        chains,
        av.ReversibleJump(**settings).sweeps,
        float(rhat(size[:, :, None].astype(float))[0]) if chains > 1 else float("nan"),
        tuple(tree["fit"].inclusion.values.round(3).tolist()),
    )


def keep(row: Row, path: Path) -> None:
    """Put a line into a file of lines, in the place of the same one of before."""
    rows = json.loads(path.read_text()) if path.exists() else []
    line = {key: None if value != value else value for key, value in asdict(row).items()}
    same = ("data", "target", "expected_inputs", "split", "sweeps", "chains")
    rows = [old for old in rows if any(old[key] != line[key] for key in same)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*rows, line], indent=1) + "\n")


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
            f"  {row.target}, λ {row.expected_inputs:g}, split {row.split}"
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
            warnings.simplefilter("ignore", av.errors.ConvergenceWarning)
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


def main(arguments: list[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", choices=[*SETS, []], metavar="set")
    for flag in ("--speed", "--targets", "--alone", "--conditional"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--first-split", type=int, default=1)
    parser.add_argument("--sweeps", type=int, default=15000)
    parser.add_argument("--expected-inputs", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    if asked.targets:
        print(targets())  # noqa: T201
        return
    settings: dict[str, Any] = {"sweeps": asked.sweeps} | ({"scouts": 0} if asked.alone else {})
    target = "conditional" if asked.conditional else "joint"
    first = 0  # line of the table: the heading once
    for name in asked.names or SETS:
        if asked.speed:
            for proposals in ("data", "prior"):
                found = speed(name, proposals)
                print(name, proposals, {k: round(v, 3) for k, v in found.items()})  # noqa: T201
            continue
        for split in range(asked.first_split, asked.first_split + asked.splits):
            row = replicate(
                name,
                seed=split,
                target=target,
                expected_inputs=asked.expected_inputs,
                **settings,
            )
            print("\n".join(table([row]).splitlines()[first:]), flush=True)  # noqa: T201
            first = 1
            if asked.out is not None:
                keep(row, asked.out)


if __name__ == "__main__":
    main()
