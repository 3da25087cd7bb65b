"""The section on selection: which weights were in the model at each step of a search.

| path                     | from                                               |
|--------------------------|----------------------------------------------------|
| search over precisions   | group `selection_path` of a tree (`plot_path`)     |
| projection on fewer      | the part on relevance of the report (`av.project`) |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from ardvark.diagnostics.report.case import Case

__all__ = ["paths_section"]

MOST_STEPS = 300  # of a path: a longer one is shown in strides
CRITERIA = {
    "log_evidence": "log evidence",
    "log_loo_probability": "leave-one-out log probability",
    "loo_error": "leave-one-out error",
    "log_loo_error_smooth": "smoothed log leave-one-out error",
}
# action of a step → words; weight and action are filled in
DONE = {
    "start": "the start",
    "add": "added {}",
    "delete": "deleted {}",
    "re-estimate": "prior sd of {} estimated again",
}


def paths_section(case: Case, relevance: Mapping[str, Any]) -> dict[str, Any]:
    """Every path of the report; or why there is none."""
    paths = [
        _search(name, case.trees[name]["selection_path"].to_dataset())
        for name in case.summaries
        if "selection_path" in case.trees[name].children
    ]
    projection = relevance.get("projection") or {}
    if projection.get("path"):
        paths.append(_projection(projection))
    why = "" if paths else "No method of this report added or deleted weights one at a time."
    return {"paths": paths, "why": why}


def _search(name: str, path: xr.Dataset) -> dict[str, Any]:
    """Steps of a search: what was done, which weights are in, and the prior sd of each."""
    length, chosen = path.sizes["step"], int(path.attrs["chosen"])
    kept = np.unique(np.linspace(0, length - 1, min(length, MOST_STEPS)).round().astype(int))
    kept = np.union1d(kept, [chosen])
    active, precision = path["active"].to_numpy(), path["precision"].to_numpy()
    with np.errstate(divide="ignore"):
        scale = 1.0 / np.sqrt(precision)
    inside = [np.flatnonzero(active[step]) for step in kept]
    criteria = [
        {"label": label, "values": path[key].to_numpy()[kept].tolist()}
        for key, label in CRITERIA.items()
        if key in path
    ]
    done = path[["action", "feature_changed"]].isel(step=kept)
    return {
        "title": f"Search over precisions by {name}",
        "noun": "step",
        "method": name,
        "names": [str(label) for label in path["feature"].to_numpy()],
        "steps": [int(step) for step in kept],
        "all_steps": length,
        "chosen": int(np.searchsorted(kept, chosen)),
        "actions": [
            DONE.get(str(action), "{} {}").format(weight, action).strip()
            for action, weight in zip(*(done[key].to_numpy() for key in done), strict=True)
        ],
        "inside": [places.tolist() for places in inside],
        "scales": [scale[s][p].tolist() for s, p in zip(kept, inside, strict=True)],
        "criteria": criteria,
    }


def _projection(found: Mapping[str, Any]) -> dict[str, Any]:
    """Steps of a projection: each adds the column that helps most."""
    rows = found["path"]
    added = [str(row["added"] or "") for row in rows]
    names = [label for label in added if label]
    sizes = [sum(bool(label) for label in added[: i + 1]) for i in range(len(rows))]
    suggested = [int(row["size"]) for row in rows].index(int(found["suggested"]))
    return {
        "title": f"Projection of {found['reference']} onto fewer columns",
        "noun": "columns",
        "method": str(found["reference"]),
        "names": names,
        "steps": [int(row["size"]) for row in rows],
        "all_steps": len(rows),
        "chosen": suggested,
        "actions": [f"added {label}" if label else "the constant alone" for label in added],
        "inside": [list(range(size)) for size in sizes],
        "scales": [],
        "criteria": [
            {
                "label": "elpd difference from all columns",
                "values": [row["difference"] for row in rows],
                "errors": [row["difference_se"] for row in rows],
            },
            {"label": "divergence (nats)", "values": [row["divergence"] for row in rows]},
        ],
    }
