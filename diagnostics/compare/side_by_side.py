"""Error and price side by side: each method against the judges that the trees themselves offer.

| relation | judge                               | what it tells                                   |
|----------|-------------------------------------|-------------------------------------------------|
| error    | at the same hyperparameters         | how good the approximation is                   |
| price    | integrates the hyperparameters out  | what it costs to hold them at one value         |
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import xarray as xr

from ardvark.diagnostics.compare.verdict import conclusion, verdict
from ardvark.diagnostics.report.case import Case, choose_reference, share_weights

__all__ = ["RELATIONS", "both_relations", "side_by_side"]

_FIGURES = {
    "mean": "worst_mean_error",
    "mean_at": "worst_mean_error_at",
    "sd_ratio": "worst_sd_ratio",
    "sd_ratio_at": "worst_sd_ratio_at",
    "correlation": "correlation_error",
}
RELATIONS = ("error", "price")
_OWN = ("khat", "d2", "log_evidence")
_AGAINST = ("elpd_difference", "elpd_difference_se", "speed_up")


def side_by_side(trees: Mapping[str, xr.DataTree]) -> pd.DataFrame:
    """Give one row per method, its error and its price beside each other."""
    case = Case(share_weights(trees), choose_reference(trees))
    rows = {name: both_relations(case, name) for name in case.trees}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")


def both_relations(case: Case, name: str) -> dict[str, Any]:
    """Collect the figures of one method; None and NaN where it has no such judge."""
    found: dict[str, Any] = {}
    for relation, judges in zip(RELATIONS, (case.like, case.price), strict=True):
        judge = judges.get(name)
        row = case.rows[name, judge] if judge else None
        found[f"{relation}_against"] = judge
        for short, column in _FIGURES.items():
            missing = None if short.endswith("_at") else float("nan")
            found[f"{relation}_{short}"] = missing if row is None else row[column]
    own, judge = case.own(name), case.like.get(name) or case.price.get(name)
    found |= {column: own[column] for column in _OWN}
    against = case.rows[name, judge] if judge else None
    nan = float("nan")
    found |= {column: nan if against is None else against[column] for column in _AGAINST}
    found |= {"seconds": own["seconds"], "converged": own["converged"]}
    said = [conclusion(case.rows[name, j[name]]) for j in (case.like, case.price) if name in j]
    words = "; ".join(said) or ("a reference itself" if name in case.judges else "not judged")
    return found | {"conclusion": words, "verdict": sentence(case, name)}


def sentence(case: Case, name: str) -> str:
    """Say in plain words what error and price of a method are."""
    said = []
    for judges in (case.like, case.price):
        if name in judges:
            row = case.rows[name, judges[name]]
            words = verdict(row)[1].partition(": ")[2].rstrip(".")
            said.append(f"against {judges[name]}: {words}")
    if not said:
        what = "a reference itself" if name in case.judges else "no reference to hold it against"
        return f"{name}: {what}."
    return f"{name} {'; '.join(said)}."
