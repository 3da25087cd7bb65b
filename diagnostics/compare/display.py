"""A table of comparison as a notebook shows it: signs and tints beside the figures with limits.

Words and signs stand beside each colour (✓ in order, ▲ look at it, ✗ failed), and the colours are
transparent, so that light and dark notebooks are read alike. Every name is escaped.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from ardvark.diagnostics.compare.reference import APPROXIMATION_ERROR, PRICE_OF_FIXING
from ardvark.diagnostics.compare.verdict import khat_level, mean_level, sd_level
from ardvark.diagnostics.words import number

__all__ = ["SIGNS", "TINTS", "Comparison", "as_comparison"]

SIGNS = {"good": "✓ ", "warn": "▲ ", "bad": "✗ "}
TINTS = {"good": "rgba(20,140,70,.14)", "warn": "rgba(220,150,0,.20)", "bad": "rgba(210,40,30,.20)"}
FIGURES: dict[str, Callable[[float], str]] = {  # of a table → its level
    "worst_mean_error": mean_level,
    "error_mean": mean_level,
    "price_mean": mean_level,
    "worst_sd_ratio": sd_level,
    "error_sd_ratio": sd_level,
    "price_sd_ratio": sd_level,
    "khat": khat_level,
    "theta_mean_error": mean_level,
    "theta_sd_ratio": sd_level,
    "error_theta_mean": mean_level,
    "error_theta_sd_ratio": sd_level,
}
WITH_LEVELS = (*FIGURES, "converged")
BY_RELATION = ("worst_mean_error", "worst_sd_ratio")  # an error or a price, by the row


class Comparison(pd.DataFrame):
    """A DataFrame of `compare` that shows its levels in a notebook, and is otherwise unchanged."""

    @property
    def _constructor(self) -> Any:
        return Comparison

    def _repr_html_(self) -> str:
        """Show signs and tints beside the figures that have limits."""
        heads = "".join(f"<th>{escape(_named(label))}</th>" for label in self.columns)
        rows = []
        for i, label in enumerate(self.index):
            cells = [
                self._cell(label, column, self.iat[i, j]) for j, column in enumerate(self.columns)
            ]
            rows.append(f"<tr><th>{escape(_named(label))}</th>{''.join(cells)}</tr>")
        return (
            '<div style="overflow-x:auto"><table><thead><tr>'
            f"<th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        )

    def _cell(self, label: Any, column: Any, value: Any) -> str:
        transposed = label in WITH_LEVELS and column not in WITH_LEVELS
        figure, name = (label, column) if transposed else (column, label)
        level = self._level(figure, name, value)
        if figure == "khat" and level:
            level = khat_level(value, self._khat_error(label, column))
        return _td(value, level)

    def _khat_error(self, label: Any, column: Any) -> float:
        """Return the standard error beside a k-hat, 0 where the table leaves it out."""
        beside = ("khat_se", column) if label == "khat" else (label, "khat_se")
        known = beside[0] in self.index and beside[1] in self.columns
        return float(np.asarray(self.loc[beside])) if known else 0.0

    def _level(self, figure: Any, name: Any, value: Any) -> str:
        if figure == "converged" and isinstance(value, bool | np.bool_):
            return "good" if value else "bad"
        if figure not in FIGURES or not isinstance(value, float | np.floating):
            return ""
        level = FIGURES[figure](float(value))
        relation = PRICE_OF_FIXING if figure.startswith("price") else APPROXIMATION_ERROR
        if figure in BY_RELATION:
            relation = self.attrs.get("relations", {}).get(name, relation)
        if relation == PRICE_OF_FIXING:
            return "warn" if level == "bad" else level  # a price is no failure
        return level if relation == APPROXIMATION_ERROR else ""


def _named(label: Any) -> str:
    return " against ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _td(value: Any, level: str = "") -> str:
    if isinstance(value, bool | np.bool_):
        text = "yes" if value else "no"
    elif value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        text = "—"
    else:
        text = number(value)
    style = f' style="background:{TINTS[level]}"' if level else ""
    return f"<td{style}>{SIGNS.get(level, '')}{escape(text)}</td>"


def as_comparison(table: pd.DataFrame, columns: list[str] | None = None) -> pd.DataFrame:
    """Format the columns of `compare`; what each row compares is kept with it."""
    shown = Comparison(table if columns is None else table[columns])
    if "compares" in table:
        shown.attrs["relations"] = dict(zip(table.index, table["compares"], strict=True))
    return shown
