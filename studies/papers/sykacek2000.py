"""Sykacek (2000), table 1 and figure 2: which inputs tell the classes apart, on three data sets.

    ardvark replicate sykacek2000 --only wine        # units that are not in the store yet
    ardvark replicate sykacek2000 --list             # how much is there
    python -m ardvark.studies.papers.sykacek2000 --rivals --store FOLDER     # n_a, n_b, binomial test
    python -m ardvark.studies.papers.sykacek2000 --tables --store FOLDER     # both, as the site shows them
    python -m ardvark.studies.papers.sykacek2000 --targets | --speed [sets]

| experiment         | what                                                                          |
|--------------------|-------------------------------------------------------------------------------|
| set/conditional    | P(t | x, Θ, I): the paper's question, coherent (`target="conditional"`), λ = 1  |
| set/conditional5   | the same, λ = 5: the paper does not state λ                                     |
| set/conditional6000 | the same with 6000 sweeps, where time is short (ionosphere, wine)            |
| set/joint          | the joint density with a background: coherent, another question                |
| set/paper, paper4  | the paper's chain, without and with move (4), λ = 10: it has no joint target    |
| set/mlp            | MLP with ARD priors, 25 hidden units                                           |

15000 sweeps, a third of them burn-in, as in the paper; four chains of ours. A unit's number is its
split: those of ionosphere and wine are not published, so seeded ones of the same sizes are taken (of
125 wine samples, as in the paper); Pima has its own, and the number is a seed there. Numbers "in.x"
are the probabilities of inclusion: the bars of figure 2.

What differs. The paper's ratios lack a density for the inputs outside the subset, so its answer
depends on units; the joint target has a background instead. Ours has h = 10/R² and a least width
(`resolution`); the paper's chain has the paper's h on standardised inputs, and a resolution of 0.01,
since without one a kernel on repeated values has no posterior.
"""  # noqa: E501

import json
import time
import warnings
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

import ardvark as av
from ardvark.commands.studies import store_folder
from ardvark.diagnostics.storage.atomic import write_text
from ardvark.inference.mixture.background import Evidence, mixture_evidence
from ardvark.inference.mixture.chains import run_chains
from ardvark.inference.mixture.reading import read_mixture
from ardvark.inference.mixture.run import conditional_posterior
from ardvark.inference.reversible_jump import Plan
from ardvark.inference.samplers.chain_statistics import rhat
from ardvark.models.subset import log_subset_prior
from ardvark.studies.experiments import Experiment, Numbers, Store, share
from ardvark.studies.papers.sykacek_rivals import accuracy, mlp_ard, paper_chain

__all__ = ["EXPERIMENTS", "SETS", "Published", "main", "mlp", "paper", "rbf", "rivals"]

DRAWS = 500  # kept of each chain for predictions
LADDER = 2  # version of units whose chains had not mixed before rungs had a λ of their own
FOLDER = Path(__file__).parents[1] / "results"
RESULTS, TABLES = FOLDER / "sykacek2000.json", FOLDER / "tables" / "sykacek2000.json"
KINDS = {  # of experiments → what the table calls them
    "conditional": "P(t \\| x), λ = 1",
    "conditional6000": "P(t \\| x), λ = 1, 6000 sweeps",
    "conditional5": "P(t \\| x), λ = 5",
    "paper": "the paper's chain, λ = 10",
    "paper4": "the same with move (4)",
    "mlp": "MLP",
}
MOVED = (0.01, 0.99)  # inclusions beyond have too few changes for an R-hat


@dataclass(frozen=True, slots=True)
class Published:
    """A line of table 1."""

    data: str
    n_kernels: int
    h: float
    train: int
    test: int
    accuracy: float
    average: float
    maximum: int
    distinct: int  # "about", in 10000 sweeps
    n_a: int
    mlp: float
    n_b: int


SETS = {
    "ionosphere": Published("ionosphere", 6, 0.5, 175, 176, 91.5, 4.3, 9, 500, 11, 95.5, 4),
    "pima": Published("ripley_pima", 3, 0.16, 200, 332, 78.9, 4.0, 7, 60, 11, 79.8, 8),
    "wine": Published("wine", 3, 0.28, 62, 63, 100.0, 4.4, 8, 500, 0, 96.8, 2),
}


def rbf(
    number: int,
    data: str,
    target: str,
    expected_inputs: float,
    sweeps: int = 15000,
    chains: int = 4,
) -> Numbers:
    """Our chains on one split."""
    published = SETS[data]
    X, t, train, test = _split(published, number + 1)
    model = av.models.rbf_mixture(
        X[train],
        t[train],
        n_kernels=published.n_kernels,
        target=target,
        expected_inputs=expected_inputs,
    )
    begin = time.process_time()
    tree = av.fit(
        model,
        av.ReversibleJump(sweeps=sweeps),
        draws=DRAWS,
        chains=chains,
        random_seed=number + 1,
        progressbar=False,
    )
    seconds = time.process_time() - begin
    probability = av.predict(model, tree, X[test])
    right = probability["class"].values[probability.values.argmax(axis=1)] == t[test]
    included = tree["posterior"]["included"].values.astype(float)
    often = included.mean(axis=(0, 1))
    moving = included[:, :, (often > MOVED[0]) & (often < MOVED[1])]
    return _scores(right, tree["fit"].inclusion.values, X.feature_names) | {
        "average": included.sum(axis=2).mean(),
        "maximum": int(tree["subsets"].included.values.sum(axis=1).max()),
        "distinct": tree["subsets"].sizes["subset"],
        "rhat_size": _worst(included.sum(axis=2)[:, :, None]),
        "rhat_inclusion": _worst(moving),
        "between": included.mean(axis=1).std(axis=0, ddof=1).max() if chains > 1 else None,
        "seconds_a_chain": seconds / chains,
        "converged": int(tree.attrs["converged"]),
    }


def _worst(values: Any) -> float | None:
    """The largest R-hat; None of a single chain."""
    if len(values) < 2 or values.shape[2] == 0:
        return None
    found = np.asarray(rhat(values))
    return float(np.max(found[np.isfinite(found)], initial=1.0))


def _scores(right: Any, inclusion: Any, names: Any) -> Numbers:
    bars = {f"in.{name}": float(p) for name, p in zip(names, inclusion, strict=True)}
    wrong = np.flatnonzero(~np.asarray(right)).tolist()
    return share(right, "accuracy") | {"wrong": wrong} | bars


def paper(
    number: int, data: str, expected_inputs: float, move_4: bool, sweeps: int = 15000
) -> Numbers:
    """The paper's own chain on one split: no joint target, see `sykacek_rivals.py`."""
    published = SETS[data]
    X, t, train, test = _split(published, number + 1)
    scaled = av.standardise(X[train])
    model = av.models.rbf_mixture(
        scaled,
        t[train],
        n_kernels=published.n_kernels,
        h=published.h,
        resolution=0.01,
        expected_inputs=expected_inputs,
    )
    read = read_mixture(model, "reversible_jump", av.ReversibleJump())
    nothing = np.zeros(len(read.z))
    begin = time.process_time()
    chain = paper_chain(
        read.problem(Evidence(nothing, nothing)), read.prior.n_classes, published.n_kernels,
        sweeps, DRAWS, number + 1, move_4,
    )  # fmt: skip
    seconds = time.process_time() - begin
    centre, spread = (np.asarray(X[train]).mean(axis=0), np.asarray(X[train]).std(axis=0))
    z = read.scale.to_z((np.asarray(X[test]) - centre) / spread)
    classes, label = np.unique(t, return_inverse=True)
    assert len(classes) == read.prior.n_classes
    right = accuracy(chain, z, label[test])
    size = chain.visited.sum(axis=1)
    return _scores(right, chain.visited.mean(axis=0), X.feature_names) | {
        "average": size.mean(),
        "maximum": int(size.max()),
        "distinct": len(np.unique(chain.visited, axis=0)),
        "births_accepted": chain.accepted[0],
        "seconds_a_chain": seconds,
    }


def mlp(number: int, data: str, hidden: int = 25, draws: int = 300, chains: int = 2) -> Numbers:
    """The MLP with ARD priors on one split."""
    X, t, train, test = _split(SETS[data], number + 1)
    values = np.asarray(X, float)
    z = (values - values[train].mean(axis=0)) / values[train].std(axis=0)
    label = np.unique(t, return_inverse=True)[1]
    begin = time.process_time()
    found = mlp_ard(
        z[train], label[train], z[test], hidden=hidden, draws=draws, chains=chains, seed=number + 1
    )
    right = found["probability"].argmax(axis=1) == label[test]
    scores = _scores(right, found["relevance"], X.feature_names)
    return {name.replace("in.", "scale."): value for name, value in scores.items()} | {
        "rhat": found["rhat"],
        "divergences": found["divergences"],
        "seconds": time.process_time() - begin,
    }


def _experiments() -> tuple[Experiment, ...]:
    """Chains that take minutes are not in the quick part: there, ours is seen on wine."""
    found = []
    for data in SETS:
        splits = 1 if data == "pima" else 10
        for name, target, expected in (
            ("conditional", "conditional", 1.0),
            ("conditional5", "conditional", 5.0),
            ("joint", "joint", 1.0),
        ):
            settings = {"data": data, "target": target, "expected_inputs": expected}
            version = LADDER if target == "conditional" and data == "ionosphere" else 1
            found.append(Experiment(f"{data}/{name}", "table 1", rbf, settings, splits, 0, version))
        for name, move_4 in (("paper", False), ("paper4", True)):
            asked = {"data": data, "expected_inputs": 10.0, "move_4": move_4}
            found.append(Experiment(f"{data}/{name}", "table 1", paper, asked, 10))
        found.append(Experiment(f"{data}/mlp", "table 1", mlp, {"data": data}, splits, quick=0))
        if data != "pima":
            short = {"data": data, "target": "conditional", "expected_inputs": 1.0, "sweeps": 6000}
            few, version = (1, 1) if data == "wine" else (0, LADDER)
            name = f"{data}/conditional6000"
            found.append(Experiment(name, "table 1", rbf, short, 10, few, version))
    return tuple(found)


EXPERIMENTS = _experiments()


def rivals(store: Store) -> list[dict[str, Any]]:
    """n_a, n_b and p of the binomial test, for each split on which both have been run."""
    units = {e.name: e.units(e.full) for e in EXPERIMENTS}
    found = []
    for data in SETS:
        for a, b in zip(units[f"{data}/conditional"], units[f"{data}/mlp"], strict=True):
            one, other = store.get(a), store.get(b)
            if not one or not other or "wrong" not in one or "wrong" not in other:
                continue
            ours, theirs = set(one["wrong"]), set(other["wrong"])
            n_a, n_b = len(ours - theirs), len(theirs - ours)
            p = binomtest(n_a, n_a + n_b).pvalue if n_a + n_b else 1.0
            found.append({"data": data, "split": a.number, "n_a": n_a, "n_b": n_b, "p": p})
    return found


def table(found: Mapping[str, Any]) -> list[list[str]]:
    """Rows of table 1: what is published, and means over the splits of all that has been run."""
    rows = []
    for data, p in SETS.items():
        sizes = f"{p.average}, {p.maximum}"
        rows.append([data, "published", f"{p.accuracy}", sizes, f"about {p.distinct}", "", "", ""])
        for kind, said in KINDS.items():
            if one := found.get(f"{data}/{kind}"):
                rows.append([data, said, *_cells(one["numbers"]), str(one["units"])])
        rows.append([data, "MLP, published", f"{p.mlp}", "", "", "", "", ""])
    return rows


def _cells(numbers: Mapping[str, Any]) -> list[str]:
    """Figures with one standard error, of the test rows where there is one split."""

    def cell(name: str, digits: int) -> str:
        mean, error = numbers[name]["mean"], numbers[name]["error"]
        if error is None and name == "accuracy":
            error = numbers["accuracy_se"]["mean"]
        return f"{mean:.{digits}f}" + ("" if error is None else f"({error:.{digits}f})")

    seconds = "seconds_a_chain" if "seconds_a_chain" in numbers else "seconds"
    chains = [f"{numbers[n]['mean']:.3f}" for n in ("rhat_size", "rhat_inclusion") if n in numbers]
    if "rhat" in numbers:
        chains = [f"{numbers['rhat']['mean']:.2f} of scales"]
    has = "average" in numbers
    return [
        cell("accuracy", 1),
        f"{cell('average', 2)}, {numbers['maximum']['mean']:.0f}" if has else "",
        cell("distinct", 0) if has else "",
        ", ".join(chains),
        f"{numbers[seconds]['mean']:.1f}",
    ]


def write_tables(store: Store) -> None:
    """Table 1 from the record of results; n_a, n_b and p of splits that a store has of both."""
    kept = json.loads(TABLES.read_text(encoding="utf-8"))
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["experiments"]
    kept["tables"]["table_1"]["rows"] = table(found)
    if lines := rivals(store):
        kept["tables"]["rivals"] = {
            "command": "python -m ardvark.studies.papers.sykacek2000 --tables --store FOLDER",
            "caption": "Test rows that only ours (n_a) and only the MLP (n_b) has wrong",
            "columns": ["data", "split", "n_a", "n_b", "p", "published n_a, n_b"],
            "rows": [
                [o["data"], *(str(o[k]) for k in ("split", "n_a", "n_b")), f"{o['p']:.2g}",
                 f"{SETS[o['data']].n_a}, {SETS[o['data']].n_b}"]
                for o in lines
            ],
        }  # fmt: skip
    write_text(TABLES, json.dumps(kept, indent=2, ensure_ascii=False) + "\n")


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
    for flag in ("--speed", "--targets", "--rivals", "--tables"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--store", type=Path)
    asked = parser.parse_args(arguments)
    if asked.targets:
        print(targets())  # noqa: T201
    if asked.tables:
        write_tables(Store(store_folder(asked.store)))
    if asked.rivals:
        lines = [json.dumps(line) for line in rivals(Store(store_folder(asked.store)))]
        print("\n".join(lines) or f"no split in {asked.store} has been run by both")  # noqa: T201
    for name in (asked.names or SETS) if asked.speed else ():
        for proposals in ("data", "prior"):
            found = speed(name, proposals)
            print(name, proposals, {k: round(v, 3) for k, v in found.items()})  # noqa: T201


if __name__ == "__main__":
    # By its own name: the key of a unit has the module of its function.
    import_module("ardvark.studies.papers.sykacek2000").main()
