"""Answers as a notebook shows them: a card for each tree.

Whatever cannot be computed for a card is left out of it: a card must not fail where the tree is
fine. Colours and signs are those of a comparison (`compare/display.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import xarray as xr

from ardvark.diagnostics.compare.display import SIGNS, TINTS
from ardvark.diagnostics.compare.psis import khat_and_error
from ardvark.diagnostics.compare.reference import reference_quality
from ardvark.diagnostics.compare.verdict import khat_in_words, khat_level
from ardvark.diagnostics.reading import group_variables, sampling_kind
from ardvark.diagnostics.relevance.relevance import relevance
from ardvark.diagnostics.summary import held_variables
from ardvark.diagnostics.words import duration, listed
from ardvark.inference.arguments import check_tree, check_trees

__all__ = ["Shown", "show"]

TOP = 5  # inputs on a card


class Shown:
    """One or several answers as cards: `_repr_html_` for notebooks, `str` for a terminal."""

    def __init__(self, cards: Mapping[str, list[tuple[str, str, str]]]) -> None:
        self.cards = dict(cards)

    def __repr__(self) -> str:
        lines = []
        for title, facts in self.cards.items():
            lines.append(title)
            lines += [f"  {label}: {SIGNS.get(level, '')}{text}" for label, text, level in facts]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        box = (
            "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:.6em 1em;"
            "max-width:34em;flex:1 1 22em"
        )
        cards = []
        for title, facts in self.cards.items():
            rows = "".join(
                f'<tr><th style="text-align:left;vertical-align:top">{escape(label)}</th>'
                f'<td style="text-align:left{_tint(level)}">'
                f"{SIGNS.get(level, '')}{escape(text)}</td></tr>"
                for label, text, level in facts
            )
            cards.append(f'<div style="{box}"><b>{escape(title)}</b><table>{rows}</table></div>')
        return f'<div style="display:flex;flex-wrap:wrap;gap:1em">{"".join(cards)}</div>'


def _tint(level: str) -> str:
    return f";background:{TINTS[level]}" if level else ""


def show(tree: xr.DataTree | Mapping[str, xr.DataTree]) -> Shown:
    """Show what was fitted, whether to trust it, and what it found.

    Parameters
    ----------
    tree
        A result of ``fit``, or several by name, for cards side by side.

    Returns
    -------
    Shown
        In a notebook a card: model, method, treatment of the hyperparameters, convergence, own
        checks, warnings, log evidence, the most relevant inputs. As text the same.
    """
    if isinstance(tree, xr.DataTree):
        check_tree(tree)
        title = f"{tree.attrs.get('model', 'model')} by {tree.attrs.get('method', 'method')}"
        return Shown({title: _facts(tree)})
    check_trees(tree)
    return Shown({name: _facts(one) for name, one in tree.items()})


def _facts(tree: xr.DataTree) -> list[tuple[str, str, str]]:
    """Label, text and level of each line of a card."""
    attributes, posterior = tree.attrs, tree["posterior"]
    converged = attributes.get("converged")
    lines = [
        ("Model", str(attributes.get("model", "unknown")), ""),
        ("Method", _method(attributes), ""),
        ("Draws", f"{posterior.sizes['chain']} × {posterior.sizes['draw']}{_kind(tree)}", ""),
    ]
    if converged is not None:
        lines.append(
            ("Converged", "yes" if converged else "no", "good" if converged else "bad"),
        )
    lines += [
        ("Problem" if key == "problems" else "Caution", str(attributes[key]), level)
        for key, level in (("problems", "bad"), ("caution", "warn"))
        if attributes.get(key)
    ]
    for make in (_quality, _importance, _evidence, _inputs):
        try:
            lines += make(tree)
        except Exception:
            continue
    if held := held_variables(tree):
        lines.append(("Held at one value", listed(list(held)), ""))
    if attributes.get("caption"):
        lines.append(("Note", str(attributes["caption"]), ""))
    return lines


def _method(attributes: Mapping[Any, Any]) -> str:
    treatment = attributes.get("hyper")
    words = {"posterior": "integrated out", "fixed": "held fixed", "evidence": "set by evidence"}
    words |= {"integrated": "integrated out over points", "mode": "at their mode"}
    said = f"; hyperparameters {words.get(str(treatment), treatment)}" if treatment else ""
    seconds = float(attributes.get("seconds", "nan"))
    took = "" if np.isnan(seconds) else f" ({duration(seconds)})"
    return f"{attributes.get('method', 'unknown')}{said}{took}"


def _kind(tree: xr.DataTree) -> str:
    return ", independent" if sampling_kind(tree) == "iid" else " of Markov chains"


def _quality(tree: xr.DataTree) -> list[tuple[str, str, str]]:
    if sampling_kind(tree) == "iid":
        return []
    quality = reference_quality(tree)
    return [("Chains", " ".join(quality.sentences), "good" if quality.ok else "bad")]


def _importance(tree: xr.DataTree) -> list[tuple[str, str, str]]:
    found = khat_and_error(tree)
    return [] if np.isnan(found[0]) else [("k-hat", khat_in_words(*found), khat_level(*found))]


def _evidence(tree: xr.DataTree) -> list[tuple[str, str, str]]:
    fit = group_variables(tree, "fit")
    for name, label in (("log_evidence", "Log evidence"), ("elbo", "Evidence bound")):
        if name in fit:
            return [(label, f"{float(np.ravel(fit[name])[-1]):.2f}", "")]
    return []


def _inputs(tree: xr.DataTree) -> list[tuple[str, str, str]]:
    table = relevance(tree).sort_values("rank")
    on = table.index[table["relevance"] > 0]
    off = len(table) - len(on)
    text = listed(on, TOP) + (f"; {off} of {len(table)} switched off" if off else "")
    return [("Most relevant", text, "")]
