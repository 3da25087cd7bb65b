"""Where ARD precisions start: an explicit setting, because the end depends on it.

| start | weights that are in the model at first |
|---|---|
| "empty" | none: the first step adds the one with the largest gain |
| "all" | all |
| ("random", k), ("random", k, seed) | k of them, drawn without replacement |
| ("correlated", k) | the k whose columns have the largest correlation with the sites' slopes |
| mapping name → values | those with a finite value |

All but the mapping start with precision 1. Kernel scales that are searched for with them start at
`SCALE_FACTORS` times their support point, and the best after a first walk goes on: evidence as a
function of a width has several maxima, and a gradient climbs the nearest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ardvark.errors import InputError
from ardvark.inference.sites.arrays import Mask
from ardvark.inference.sites.model import SiteModel

__all__ = ["SCALE_FACTORS", "START_PRECISION", "Start", "active_at_start", "checked_start"]

START_PRECISION = 1.0
SCALE_FACTORS = (1.0, 1 / 3, 3.0, 1 / 9, 9.0)
_COUNTED = ("random", "correlated")

type Start = str | tuple[Any, ...] | Mapping[str, Any]


def checked_start(start: Any) -> None:
    """Refuse what is no start."""
    if start is None or isinstance(start, Mapping) or start in ("empty", "all"):
        return
    if isinstance(start, tuple) and len(start) in (2, 3) and start[0] in _COUNTED:
        if all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in start[1:]):
            if start[1] >= 1 and (len(start) == 2 or start[0] == "random"):
                return
    raise InputError(
        f"start must be 'empty', 'all', ('random', k), ('random', k, seed), ('correlated', k), "
        f"a mapping name → values, or a list of these; got {start!r}"
    )


def active_at_start(
    start: Any, model: SiteModel, optimised: Mask
) -> tuple[Mask | None, float | None]:
    """Weights that are active at first and their precision (None: the model's own)."""
    if start is None or start == "empty":
        return None, None
    if isinstance(start, Mapping):
        assert model.precision is not None
        return optimised & np.isfinite(model.precision), None
    if start == "all":
        return optimised.copy(), START_PRECISION
    candidates = np.flatnonzero(optimised)
    size = min(start[1], candidates.size)
    if start[0] == "random":
        rng = np.random.default_rng(start[2] if len(start) == 3 else 0)
        chosen = rng.choice(candidates, size, replace=False)
    else:
        columns = model.projection[:, candidates]
        norm = np.sqrt(np.square(columns).sum(axis=0))
        pull = np.abs(columns.T @ model.sites.derivatives(model.offset).first)
        order = np.argsort(-pull / np.where(norm > 0, norm, np.inf), kind="stable")
        chosen = candidates[order[:size]]
    active = np.zeros_like(optimised)
    active[chosen] = True
    return active, START_PRECISION
