"""Models held against each other by their evidence: kernels, widths, bases, links.

The difference of two log evidences of the same data is the log Bayes factor, if θ was integrated
out or given. At hyperparameters that were themselves chosen by the evidence it favours the model
with more of them; leave-one-out stands beside it, and does not.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import xarray as xr

from ardvark.diagnostics.compare.psis import loo_figures
from ardvark.errors import InputError
from ardvark.inference.arguments import check_trees
from ardvark.inference.graph.fingerprint import require_same_data

__all__ = ["compare_evidence"]


def compare_evidence(trees: Mapping[str, xr.DataTree]) -> pd.DataFrame:
    """Rank fits of different models to the same data by their evidence.

    Parameters
    ----------
    trees
        Results of ``fit`` by name, each with a log evidence: of `Laplace`, `EP` or `Exact`.

    Returns
    -------
    DataFrame, one row per name, the largest evidence first: ``log_evidence``, ``below_best``
    (nats), ``active`` (weights that were kept; for a relevance vector machine its vectors and the
    bias), ``elpd_loo``, ``elpd_loo_se``, ``loo_high_khat``, ``method``, ``converged``.
    """
    check_trees(trees)
    require_same_data(trees, inputs=False, observed=True)
    rows = {name: _row(name, tree) for name, tree in trees.items()}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")
    table = table.sort_values("log_evidence", ascending=False, kind="stable")
    table.insert(1, "below_best", table["log_evidence"].iloc[0] - table["log_evidence"])
    return table


def _row(name: str, tree: xr.DataTree) -> dict[str, object]:
    fit: Mapping[Any, Any] = tree["fit"].data_vars if "fit" in tree.children else {}
    if "log_evidence" not in fit:
        raise InputError(
            f"{name!r} ({tree.attrs.get('method', 'no method')}) has no log evidence: fit the "
            f"model by Laplace(), EP() or Exact(), or use av.compare for samplers"
        )
    return {
        "log_evidence": float(fit["log_evidence"]),
        "active": int(fit["active"].sum()) if "active" in fit else None,
        **loo_figures(tree),
        "method": tree.attrs.get("method"),
        "converged": tree.attrs.get("converged"),
    }
