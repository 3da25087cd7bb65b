"""The papers' figures, redrawn from our results: `docs/ledger/*.svg`.

    python -m ardvark.studies.ledger_page --figures

A figure is drawn from `results/*.json`; the demonstrations (Qi's figure 1, Tipping's on Ripley's
mixture) are small enough to be fitted here. A figure whose results are not there is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ardvark.inference.sites.arrays import Array

__all__ = ["CAPTIONS", "draw"]

CAPTIONS = {
    "qi_figure1": (
        "Qi et al., figure 1: two crosses and their mirror images. Left, the Bayes point (both "
        "inputs) and the classifier that evidence prefers (one). Right, log evidence under the "
        "step function as the precision of the first input grows: pruning gains log evidence "
        "whatever it costs in new rows. EP is within 0.0001 for both inputs, and 0.12 nats off "
        "where the two constraints coincide."
    ),
    "qi_figure2": (
        "Qi et al., figure 2: one path on the synthetic data (empty start, partition 0), each "
        "criterion scaled to its own range."
    ),
    "qi_figures3and4": (
        "Qi et al., figures 3 and 4: errors and features by start, one standard error; dashed: as "
        "published."
    ),
    "mirzaei_figures2to5": (
        "Mirzaei et al., figures 2 to 5: means and standard errors over the cuts that were run."
    ),
    "mirzaei_figures6to8": (
        "Mirzaei et al., figures 6 to 8: Ripley's mixture with eight irrelevant inputs."
    ),
    "tipping_ripley": (
        "Tipping, demonstration on Ripley's mixture: 100 training rows of split 0, the vectors "
        "that are kept in rings, widths by cross-validation. Right, what that choice hangs on: "
        "with 100 rows the cross-validated error hardly tells the widths apart, and it may take "
        "the worst."
    ),
    "chu_figures2and3": (
        "Chu et al., figures 2 and 3: Madelon, ranking and cross-validated error of the first k."
    ),
    "sykacek_figure2": (
        "Sykacek, figure 2: probability that an input is in, means over the splits that were run, "
        "by the order of the coherent posterior; lines: one standard error over splits."
    ),
}
SIDE = {"evidence": "C0", "loo_error": "C1", "loo_probability": "C2"}
PUBLISHED = {  # Qi04: errors and features of evidence and predictive ARD
    "leukaemia": {"errors": (3.86, 2.80), "features": (2.78, 513.82)},
    "colon": {"errors": (2.54, 1.63), "features": (7.92, 156.76)},
}

type Results = Mapping[str, Any]


def draw(results: Results, folder: Path) -> None:
    """Draw every figure that there are results for."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams.update({"svg.hashsalt": "ardvark", "svg.fonttype": "none", "font.size": 8})
    for name in CAPTIONS:
        figure = DRAWN[name](results, plt)
        if figure is not None:
            figure.tight_layout()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


def _numbers(results: Results, study: str, experiment: str) -> Mapping[str, Any] | None:
    found = results.get(study, {}).get("experiments", {}).get(experiment)
    return None if found is None else found["numbers"]


def _curves(results: Results, study: str, experiment: str) -> Mapping[str, Any] | None:
    found = results.get(study, {}).get("experiments", {}).get(experiment, {})
    return found.get("curves")  # type: ignore[no-any-return]


# Qi ---------------------------------------------------------------------------------------------


def _overfitting(results: Results, plt: Any) -> Any:
    from ardvark.studies.papers.qi_curves import LEAN, overfitting

    found = overfitting(0)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8))
    points = np.array([[1.0, LEAN], [LEAN, 1.0]])
    left.plot(*points.T, "kx", *(-points).T, "ko", mfc="none")
    a, b = found["bayes_point"]
    left.plot([-1.2, 1.2], [1.2 * a / b, -1.2 * a / b], "C0", label="Bayes point: both inputs")
    left.axhline(0.0, color="C3", label="evidence: one input")
    left.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), xlabel="first input", ylabel="second input")
    left.legend(loc="lower left")
    right.semilogx(found["alpha"], found["exact"], "k", label="exact")
    right.semilogx(found["alpha"], found["ep"], "C1--", label="EP")
    right.set(xlabel="precision of the first weight", ylabel="log evidence", xlim=(1, 1e7))
    right.legend()
    return figure


def _criteria(results: Results, plt: Any) -> Any:
    from ardvark.studies.papers.qi_curves import criteria

    found = criteria(0, "synthetic", 30, None)
    names = {
        "test_error": "test error",
        "evidence": "- log evidence",
        "features": "features",
        "loo_error": "(12)",
        "loo_probability": "log (13)",
    }
    figure, panels = plt.subplots(1, 5, figsize=(9, 2.0))
    for panel, (name, label) in zip(panels, names.items(), strict=True):
        panel.plot(found[name], "k" if name == "test_error" else "C0")
        correlation = found.get(f"{name}.correlation")
        told = "" if correlation is None else f"\ncorrelation {correlation:.2f}"
        panel.set(title=label + told, xlabel="step")
    return figure


def _errors_and_features(results: Results, plt: Any) -> Any:
    every = results.get("qi2004", {}).get("experiments", {})
    figure, panels = plt.subplots(2, 3, figsize=(9, 4.6))
    for (above, below), data in zip(panels.T, ("synthetic", "leukaemia", "colon"), strict=True):
        starts = [name for name in every if name.startswith(f"{data}/") and "rivals" not in name]
        for panel, what in ((above, "errors"), (below, "features")):
            for shift, (rule, colour) in zip((-0.2, 0.0, 0.2), SIDE.items(), strict=True):
                values = [every[name]["numbers"][f"{rule}.{what}"] for name in starts]
                panel.errorbar(
                    np.arange(len(starts)) + shift, [v["mean"] for v in values],
                    [v["error"] or 0.0 for v in values], fmt="o", ms=3, color=colour, label=rule,
                )  # fmt: skip
            for value, colour in zip(
                PUBLISHED.get(data, {}).get(what, ()), ("C0", "C1"), strict=False
            ):
                panel.axhline(value, color=colour, ls="--", lw=0.8)
            panel.set_xticks(range(len(starts)), [n.split("/", 1)[1] for n in starts], rotation=35)
        below.set_yscale("log")
        above.set_title(data)
    panels[0, 0].set_ylabel("test errors (%, of 36, of 12)")
    panels[1, 0].set_ylabel("features")
    panels[0, 0].legend()
    return figure


# Mirzaei ----------------------------------------------------------------------------------------


def _curve(panel: Any, results: Results, data: str, machine: str, what: str, style: str) -> None:
    """Mean and standard error of a machine against the number of training rows."""
    sizes, means, errors = [], [], []
    for n in (30, 50, 70, 100, 200):
        numbers = _numbers(results, "mirzaei2017", f"{data}/{n}/{machine}")
        if numbers is not None:
            sizes.append(n)
            means.append(numbers[what]["mean"])
            errors.append(numbers[what]["error"] or 0.0)
    if sizes:
        panel.errorbar(sizes, means, errors, fmt=style, ms=3, lw=1, label=machine)


def _regression(results: Results, plt: Any) -> Any:
    machines = ("vrsfm", "rsfm", "rvm", "svr", "rfe_gau", "rfe_lap", "slcca", "slcca_each")
    figure, panels = plt.subplots(2, 2, figsize=(8, 5), sharex=True)
    for row, (what, label) in zip(panels, (("error", "MSE"), ("scc", "SCC")), strict=True):
        for panel, data in zip(row, ("sin2d", "additive"), strict=True):
            for number, machine in enumerate(machines):
                _curve(panel, results, data, machine, what, "o-" if number < 2 else "s--")
            panel.set(title=f"{label}, {data}", xlabel="training rows", xscale="log")
            panel.set_xticks((30, 50, 70, 100, 200), ("30", "50", "70", "100", "200"))
            panel.minorticks_off()
    panels[0, 0].legend(ncols=2)
    return figure


def _classes(results: Results, plt: Any) -> Any:
    shown = (("error", "errors of 1000"), ("features", "features"), ("samples", "samples"))
    figure, panels = plt.subplots(1, 3, figsize=(8, 2.6))
    for panel, (what, label) in zip(panels, shown, strict=True):
        for machine in ("vrsfm", "rsfm", "rvm"):
            _curve(panel, results, "ripley", machine, what, "o-")
        panel.set(title=label, xlabel="training rows")
    if not panels[0].has_data():
        plt.close(figure)
        return None
    panels[0].legend()
    return figure


# Tipping, Chu -----------------------------------------------------------------------------------


def _ripley(results: Results, plt: Any) -> Any:
    from sklearn.svm import SVC

    from ardvark.inference.ard.sequential_ard import sequential_ard
    from ardvark.inference.laplace import Laplace
    from ardvark.inference.sites.likelihoods import LogitSites
    from ardvark.models.kernels import RBF
    from ardvark.studies.papers.qi_paths import probit_model, with_constant
    from ardvark.studies.papers.tipping2001 import (
        SETS,
        cross_validated,
        error_of,
        machine,
        split,
        validated,
    )

    case = SETS["ripley"]
    part = split(case, 0)
    typical = float(RBF(width="median").scale(part.X).typical)
    kernel = RBF(width=validated(part, case)[0] * typical)
    model = probit_model(with_constant(kernel(part.X, part.X)), part.t, LogitSites)
    path = sequential_ard(model, Laplace().approximate, tolerance=1e-3, max_steps=3000)
    factor, C, _ = validated(part, case, "svm")
    svm = SVC(C=C, gamma=0.5 / (factor * typical) ** 2).fit(part.X, part.t)
    shown: list[tuple[str, Callable[[Array], Array], Any]] = [
        (
            "RVM",
            lambda X: np.asarray(with_constant(kernel(X, part.X)) @ path.fit.posterior.mean),
            np.flatnonzero(np.isfinite(path.precision[1:])),
        ),
        ("SVM", svm.decision_function, svm.support_),
    ]
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.8))
    for panel, (name, predictor, vectors) in zip(panels, shown, strict=False):
        wrong = 100 * np.mean(predictor(part.X_test) * part.t_test <= 0)
        _decided(panel, part, predictor, vectors)
        panel.set_title(f"{name}: error {wrong:.1f} %, {len(vectors)} vectors")
    tested = [error_of(case, machine(part, case, w).predictor, part.t_test) for w in case.widths]
    panels[2].semilogx(case.widths, cross_validated(part, case), "C0o-", label="cross-validated")
    panels[2].semilogx(case.widths, tested, "ko-", label="on the test rows")
    panels[2].set(xlabel="width / median distance", ylabel="error of the RVM (%)", ylim=(0, 30))
    panels[2].legend()
    return figure


def _decided(panel: Any, part: Any, predictor: Callable[[Array], Array], vectors: Any) -> None:
    """Two classes, the vectors in rings, and where the predictor is 0."""
    for sign, style in ((1.0, "kx"), (-1.0, "C0.")):
        panel.plot(*part.X[part.t == sign].T, style, ms=4)
    panel.plot(*part.X[vectors].T, "o", ms=9, mfc="none", mec="C3")
    low, high = part.X.min(axis=0) - 0.3, part.X.max(axis=0) + 0.3
    across, up = (np.linspace(a, b, 80) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    panel.contour(across, up, predictor(grid).reshape(80, 80), [0.0], colors="C3")


def _madelon(results: Results, plt: Any) -> Any:
    rankings = {"relevance": "by relevance (figure 2)", "fisher": "by Fisher score (figure 3)"}
    found = {by: _curves(results, "madelon", f"selection/{by}/svm") for by in rankings}
    shown: Sequence[str] = [by for by, curves in found.items() if curves]
    if not shown:
        return None
    figure, panels = plt.subplots(1, len(shown), figsize=(3.5 * len(shown), 2.6), squeeze=False)
    for panel, by in zip(panels[0], shown, strict=True):
        curves = found[by] or {}
        errors = curves["cross_validation_error"]
        panel.errorbar(range(1, len(errors) + 1), errors, curves["standard_error"], fmt="o-", ms=3)
        panel.set(title=rankings[by], xlabel="features", ylabel="cross-validated error (%)")
    return figure


def _inclusion(results: Results, plt: Any) -> Any:
    kinds = {"conditional": "P(t | x), λ = 1", "paper4": "the paper's chain, with move (4)"}
    sets = ("ionosphere", "pima", "wine")
    found = {(d, k): _numbers(results, "sykacek2000", f"{d}/{k}") for d in sets for k in kinds}
    if None in found.values():
        return None
    figure, panels = plt.subplots(len(sets), 1, figsize=(7, 7))
    for panel, data in zip(panels, sets, strict=True):
        first = found[data, "conditional"] or {}
        inputs = [name for name in first if name.startswith("in.")]
        inputs.sort(key=lambda name: -first[name]["mean"])
        for i, (kind, said) in enumerate(kinds.items()):
            bars = [(found[data, kind] or {})[name] for name in inputs]
            errors = [bar["error"] or 0.0 for bar in bars]
            across = np.arange(len(inputs)) + 0.4 * i - 0.2
            panel.bar(across, [b["mean"] for b in bars], 0.4, yerr=errors, label=said)
        names = [name.removeprefix("in.") for name in inputs]
        panel.set_xticks(range(len(inputs)), names, rotation=40, ha="right", rotation_mode="anchor")
        panel.set(title=data, ylim=(0, 1.05), ylabel="probability")
    panels[0].legend(frameon=False)
    return figure


DRAWN: dict[str, Callable[[Results, Any], Any]] = {
    "qi_figure1": _overfitting,
    "qi_figure2": _criteria,
    "qi_figures3and4": _errors_and_features,
    "mirzaei_figures2to5": _regression,
    "mirzaei_figures6to8": _classes,
    "tipping_ripley": _ripley,
    "chu_figures2and3": _madelon,
    "sykacek_figure2": _inclusion,
}
