"""The part "How close are the approximations?": weight by weight, jointly, and at most.

| shown                 | from                                                                |
|-----------------------|---------------------------------------------------------------------|
| means and sds         | `agreement`, against a reference at the same hyperparameters            |
| densities             | the weights that differ most, reference and approximations overlaid     |
| correlations, modes   | `correlations.py` and `modes.py` of `compare/`                      |
| k-hat, d2, bounds     | importance weights of the approximation (`compare/bounds.py`)       |
| price                 | against a reference that integrates the hyperparameters out             |
"""

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter1d

from ardvark.diagnostics.compare.agreement import paired_draws
from ardvark.diagnostics.compare.bounds import D2_LIMITS, bounds
from ardvark.diagnostics.compare.taddaa import taddaa
from ardvark.diagnostics.compare.verdict import (
    CORRELATION_LIMITS,
    CORRELATION_NULL,
    verdict,
)
from ardvark.diagnostics.finding import LEVELS, worst_level
from ardvark.diagnostics.plots.report import GRID, STYLE, look
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.report.parts.verdict import errors_listed
from ardvark.diagnostics.words import as_sentences, records
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.sites.arrays import Array

__all__ = ["closeness_part", "densities_figure"]


LEAD = "Each approximation against a reference at the same hyperparameters:"
WORST = 4  # weights whose densities are drawn
CELLS = 400
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (8, 3)))


def closeness_part(case: Case) -> dict[str, Any]:
    """Collect the numbers of the part."""
    levels = ["bad" if case.untrusted else "good"]
    levels += [verdict(case.rows[pair]).level for pair in case.like.items()] or ["warn"]
    pairs = {"errors": case.like, "prices": case.price}
    return {
        **as_sentences(LEAD, errors_listed(case)),
        "level": worst_level(levels),
        "khat": {name: float(case.own(name)["khat"]) for name in case.trees},
        "khat_se": {name: float(case.own(name)["khat_se"]) for name in case.trees},
        "theta": [
            {"name": n, "against": j, "rows": records(table)}
            for (n, j), table in case.theta_differences.items()
        ],
        "joint": [_joint(case, name, reference) for name, reference in case.like.items()],
        "bounds": {name: _bounds(case, name) for name in case.trees if _has_densities(case, name)},
        "densities": list(_by_reference(case)),
        "taddaa": _short_chains(case),
        **{
            kind: [
                {"name": n, "against": j, "weights": records(case.differences[n, j])}
                for n, j in held.items()
            ]
            for kind, held in pairs.items()
        },
    }


def _joint(case: Case, name: str, reference: str) -> dict[str, Any]:
    """What a table of single weights does not show."""
    row = case.rows[name, reference]
    error, null = row["correlation_error"], row["correlation_null"]
    loud = error > CORRELATION_NULL * null  # NaN is not
    level = LEVELS[int(np.searchsorted(CORRELATION_LIMITS, error))] if loud else "good"
    columns = [
        *("correlation_error", "correlation_at", "correlation_null"),
        *("wasserstein", "wasserstein_null"),
        *("missed_mode_at", "missed_mode_place", "missed_mode_share"),
    ]
    found = {column: row[column] for column in columns}
    return {"name": name, "against": reference, "level": "" if np.isnan(error) else level, **found}


def _bounds(case: Case, name: str) -> dict[str, Any]:
    found = bounds(case.trees[name])
    level = "" if found.refused else LEVELS[int(np.searchsorted(D2_LIMITS, found.d2))]
    khat = {part: float(case.own(name)[part]) for part in ("khat", "khat_se")}
    return {**khat, "level": level, **found._asdict()}


def _short_chains(case: Case) -> list[dict[str, Any]]:
    """Lower bounds by short chains, if requested; the largest first."""
    found: list[dict[str, Any]] = []
    for name, tree in case.trees.items() if case.taddaa and case.model is not None else ():
        if not _has_densities(case, name):
            continue
        try:
            table = taddaa(case.model, tree)
        except (InputError, UnsupportedPair) as error:
            found.append({"name": name, "refused": str(error), "weights": []})
            continue
        worst = table[["mean_error", "sd_error"]].max(axis=1).to_numpy()
        ordered = table.iloc[np.argsort(-worst, kind="stable")]
        found.append({"name": name, "refused": "", "weights": records(ordered)})
    return found


def _has_densities(case: Case, name: str) -> bool:
    return bool(case.own(name)["khat"] == case.own(name)["khat"])


def _by_reference(case: Case) -> dict[str, list[str]]:
    """Methods by the reference that their error is measured against."""
    found: dict[str, list[str]] = {}
    for name, reference in case.like.items():
        found.setdefault(reference, []).append(name)
    return found


# -------------------------------------------------------------------------------- densities


def densities_figure(case: Case, reference: str) -> Figure:
    """Draw the densities of the weights that differ most, under the reference and the methods."""
    names = _by_reference(case)[reference]
    worst: dict[str, float] = {}
    for name in names:
        table = case.differences[name, reference]
        size = table[["mean_error", "log_sd_ratio"]].abs().max(axis=1)
        for weight, error in size.items():
            worst[str(weight)] = max(worst.get(str(weight), 0.0), float(error))
    shown = sorted(worst, key=lambda weight: -worst[weight])[:WORST]
    drawn = {name: paired_draws(case.trees[name], case.trees[reference]) for name in names}
    order = list(case.summaries)
    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, 0.4 + 2.1 * ((len(shown) + 1) // 2)))
        grid = figure.subplots((len(shown) + 1) // 2, 2, squeeze=False)
        for axes, weight in zip(grid.ravel(), shown, strict=False):
            curves: dict[str, Array] = {}
            for name, pairs in drawn.items():
                if weight in pairs.names:
                    at = pairs.names.index(weight)
                    curves.setdefault(reference, pairs.theirs[..., at].ravel())
                    curves[name] = pairs.ours[..., at].ravel()
            _overlay(axes, curves, order)
            axes.set_title(weight, loc="left")
        for axes in grid.ravel()[len(shown) :]:
            axes.set_axis_off()
        grid[0][0].legend(fontsize=8)
        figure.tight_layout()
    return figure


def _overlay(axes: Any, curves: dict[str, Array], order: list[str]) -> None:
    """One density per curve; constant draws are a vertical line."""
    moving = [d for d in curves.values() if np.ptp(d) > 0 and np.isfinite(d).all()]
    if not moving:
        return
    low = min(np.quantile(draws, 0.001) for draws in moving)
    high = max(np.quantile(draws, 0.999) for draws in moving)
    for i, (name, draws) in enumerate(curves.items()):  # the reference first, in a solid line
        place = order.index(name) if name in order else 0
        line = {"color": look(place)[0], "linestyle": DASHES[i % len(DASHES)]}
        if np.ptp(draws) == 0:
            axes.axvline(draws[0], label=f"{name} (no spread)", linewidth=1.4, **line)
            continue
        width = 0.9 * min(draws.std(), np.subtract(*np.quantile(draws, (0.75, 0.25))) / 1.34)
        counts, edges = np.histogram(draws, CELLS, (low, high))
        step = edges[1] - edges[0]
        smooth = gaussian_filter1d(counts / draws.size / step, width * draws.size**-0.2 / step)
        axes.plot(0.5 * (edges[1:] + edges[:-1]), smooth, label=name, linewidth=1.5, **line)
    axes.set_yticks([])
    axes.grid(axis="x", color=GRID)
    axes.set_ylim(bottom=0.0)
