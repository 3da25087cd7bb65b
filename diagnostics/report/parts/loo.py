"""The part "Leave one out": cavities, PSIS, corrected PSIS and refits on one axis."""

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from ardvark.diagnostics.compare.loo import choose_estimate, draw_loo
from ardvark.diagnostics.plots.report import INK, STYLE, look
from ardvark.diagnostics.report.case import Case
from ardvark.diagnostics.words import count, listed, number, records

__all__ = ["loo_figure", "loo_part"]

MOST_ROWS = 10  # of the rows that differ most
TOLERABLE = 0.5  # nats of elpd beyond two standard errors: PSIS has a Monte Carlo error too


def loo_part(case: Case) -> dict[str, Any]:
    """Collect the numbers of the part."""
    found, table = case.loo
    if not found:
        sentence = "No method has a leave-one-out: none keeps its log likelihoods or cavities."
        return {"sentence": sentence, "level": "", "estimates": [], "rows": []}
    chief = choose_estimate(found, case.reference)
    level, sentence = _said(case, chief)
    return {
        "sentence": sentence,
        "level": level,
        "reference": None if chief is None else list(chief),
        "estimates": records(table),
        "rows": _rows(case, chief),
    }


def _said(case: Case, reference: tuple[str, str] | None) -> tuple[str, str]:
    found, table = case.loo
    rows = len(next(iter(found.values())).elpd)
    if reference is None or len(found) == 1:
        (name, estimator), *_ = found
        elpd, se = table["elpd"].iloc[0], table["se"].iloc[0]
        value = f"{number(float(elpd), 4)} ± {number(float(se), 2)}"
        return "", f"elpd over {rows} rows is {value} ({name}, {estimator})."
    # a difference from a reference with other hyperparameters is a price, and no disagreement
    like = [key[0] in case.like or key[0] == reference[0] for key in found]
    others = table[~table["reference"].to_numpy() & np.array(like)]
    apart = others[others["difference"].abs() > 2 * others["difference_se"] + TOLERABLE]
    high = table[(table["high_khat"].fillna(0).astype(float) > 0).to_numpy()]
    best = table.loc[[reference]].iloc[0]
    value = f"{number(float(best['elpd']), 4)} ± {number(float(best['se']), 2)}"
    said = [f"elpd over {rows} rows is {value} ({' '.join(reference)})"]
    if len(apart):
        said.append(f"apart from their references: {listed(' '.join(key) for key in apart.index)}")
    else:
        said.append(f"{count(len(others), 'other estimate')} agree with their references")
    if len(high):
        said.append(f"k-hats too high for PSIS in {listed(' '.join(key) for key in high.index)}")
    return ("warn" if len(apart) or len(high) else "good"), "; ".join(said) + "."


def _rows(case: Case, reference: tuple[str, str] | None) -> list[dict[str, Any]]:
    """The rows on which estimates differ most, with all of them."""
    found, _ = case.loo
    if reference is None or len(found) == 1:
        return []
    values = np.stack([rows.elpd for rows in found.values()])
    spread = np.ptp(values, axis=0)
    worst = np.argsort(-spread, kind="stable")[:MOST_ROWS]
    names = [" ".join(key) for key in found]
    return [
        {"row": int(n), **dict(zip(names, map(float, values[:, n]), strict=True))} for n in worst
    ]


def loo_figure(case: Case) -> Figure:
    """Draw sums and single rows of every estimate, in the colours of the page."""
    found, table = case.loo
    order = list(case.summaries)
    names = list(dict.fromkeys(name for name, _ in found))

    def shown(i: int) -> tuple[str, str]:
        return look(order.index(names[i]) if names[i] in order else i)

    with rc_context(STYLE):
        figure = Figure(figsize=(9.0, 1.1 + 0.3 * len(found)))
        axes = figure.subplots(1, 2, width_ratios=(1.0, 1.1))
        draw_loo(axes, found, table, shown, INK)
        figure.tight_layout()
    return figure
