"""Models on their way to another process of the same run.

A graph can be sent, but not all that belongs to it is in it: its card is kept beside it
(`models/card.py`), and PyMC makes a class for every `CustomDist` and keeps its log density in a
table of functions by class. Both go along and are put back where the model arrives.
"""

from __future__ import annotations

import sys
from typing import Any

from pymc.distributions.distribution import _support_point
from pymc.distributions.shape_utils import _change_dist_size
from pymc.logprob.abstract import _icdf, _logcdf, _logprob
from pytensor.graph.traversal import ancestors

from ardvark.models.card import received, sent_with

__all__ = ["Carried"]

TABLES = (_logprob, _logcdf, _icdf, _support_point, _change_dist_size)


class Carried:
    """A model that can be sent: `Carried(model).model` is the model, here and there."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.model, _entries(self.model), sent_with(self.model))


def _arrived(model: Any, entries: list[tuple[int, type, Any]], card: Any) -> Carried:
    for table, kind, function in entries:
        if kind not in TABLES[table].registry:
            TABLES[table].register(kind, function)
    received(model, card)
    return Carried(model)


def _entries(model: Any) -> list[tuple[int, type, Any]]:
    """What PyMC keeps by class for those classes of the graph that no module has."""
    nodes = {v.owner.op for v in ancestors(list(model.named_vars.values())) if v.owner is not None}
    kinds = sorted({type(op) for op in nodes}, key=lambda kind: kind.__qualname__)
    return [
        (number, kind, table.registry[kind])
        for kind in kinds
        if not _importable(kind)
        for number, table in enumerate(TABLES)
        if kind in table.registry
    ]


def _importable(kind: type) -> bool:
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind
