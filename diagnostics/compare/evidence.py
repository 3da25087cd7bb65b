"""Estimates of one evidence: Laplace, EP, the ELBO, importance sampling, SMC, bridge sampling.

| kind          | estimators                                    | error                           |
|---------------|-----------------------------------------------|---------------------------------|
| exact         | a closed form                                 | 0                               |
| simulation    | SMC, bridge, importance sampling, exact draws | one standard error              |
| approximation | Laplace, EP, EP with its correction           | not known: ALLOWANCE is granted |
| lower bound   | the ELBO                                      | none: it may be below by a lot  |

Only estimates of one quantity are compared: p(t | θ) at the same θ, or p(t) with θ integrated out.
Two that differ by more than LIMIT standard errors (plus the allowance) disagree, and then no Bayes
factor is made of them: its logarithm would be off by as much.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import logsumexp

from ardvark.diagnostics.compare.psis import khat, log_weights, loo_figures
from ardvark.diagnostics.compare.reference import (
    integrates_hyperparameters,
    is_reference,
    same_hyperparameters,
)
from ardvark.diagnostics.finding import Finding
from ardvark.diagnostics.reading import group_variables
from ardvark.diagnostics.words import count, mean_and_sd
from ardvark.errors import InputError, UnreadableModel, UnsupportedPair
from ardvark.inference.arguments import check_model, check_trees
from ardvark.inference.pymc_models.fingerprint import require_model, require_same_data
from ardvark.models.checks import Seed, as_seed

__all__ = ["BayesFactor", "bayes_factor", "compare_evidence", "evidence", "evidence_findings"]

LIMIT = 3.0  # standard errors
FLOOR = 0.02  # nats: no Bayes factor is quoted closer than that
ALLOWANCE = 1.0  # nats for an approximation, which has no error of its own
KHAT_MAX = 0.7
COLUMNS = ("quantity", "estimator", "kind", "log_evidence", "error", "difference", "agrees")


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number of one tree."""

    name: str
    estimator: str
    kind: str
    value: float
    error: float = float("nan")


def evidence(
    trees: Mapping[str, xr.DataTree], model: Any = None, *, warp: bool = True, random_seed: Seed = 1
) -> pd.DataFrame:
    """Put every estimate of the evidence side by side.

    Parameters
    ----------
    trees
        Results of ``fit`` by name.
    model
        The `pm.Model`, for bridge sampling from the draws of the samplers among the trees.
    warp, random_seed
        As in `av.diagnostics.bridge`.

    Returns
    -------
    DataFrame, one row per estimate, index = name of the tree: ``quantity`` (what is estimated),
    ``estimator``, ``kind``, ``log_evidence``, ``error`` (nats; NaN where none is known),
    ``difference`` from the most precise estimate of the same quantity, and whether it ``agrees``
    with that. ``attrs["notes"]`` has what could not be estimated, and why.
    """
    check_trees(trees)
    require_same_data(trees, inputs=False)
    if model is not None:
        model = check_model(model)
        require_model(model, trees, data=True)
    notes: list[str] = []
    seed, rows = as_seed(random_seed), []
    for quantity, members in _quantities(trees).items():
        found = [e for name in members for e in _estimates(name, trees[name], notes)]
        if model is not None:
            found += _bridges(members, trees, model, warp, seed, notes)
        best = _most_precise(found)
        rows += [_row(quantity, estimate, best) for estimate in found]
    table = pd.DataFrame(rows, columns=["name", *COLUMNS]).set_index("name")
    table.attrs["notes"] = notes
    return table


def evidence_findings(table: pd.DataFrame) -> list[Finding]:
    """Say for each quantity whether its estimates agree."""
    said = []
    for quantity, rows in table.groupby("quantity", sort=False):
        estimates = _in_rows(rows)
        best, apart = _most_precise(estimates), _disagreement(estimates)
        value = f"log {quantity} is {_display(best)}" if best else f"log {quantity} is only bounded"
        if apart is not None:
            one, two = apart
            text = f"The estimates of {quantity} disagree beyond their errors:"
            advice = "Compute no Bayes factor from them."
            said.append(Finding("bad", f"{text} {_display(one)}, {_display(two)}.", advice))
            continue
        bounds = [e for e in estimates if e.kind == "lower bound"]
        gaps = [
            f"the ELBO of {e.name} is {best.value - e.value:.1f} nats below" for e in bounds if best
        ]
        others = len(estimates) - len(bounds) - 1
        if others > 0:
            gaps.insert(0, f"{count(others, 'other estimate')} agree{'s' * (others == 1)} with it")
        level = "good" if others > 0 else "warn"
        compared = "; ".join(gaps) or "no other estimate to compare it with"
        said.append(Finding(level, f"{value}; {compared}."))
    return said


# ------------------------------------------------------------------------------- Bayes factors


@dataclass(frozen=True, slots=True)
class BayesFactor:
    """Log Bayes factor of a first model over a second, or the reason why there is none."""

    log_bayes_factor: float  # nats; NaN if refused
    error: float
    by: tuple[str, str]  # which estimators
    refused: str = ""

    def __str__(self) -> str:
        if self.refused:
            return f"no Bayes factor: {self.refused}"
        return (
            f"log Bayes factor {self.log_bayes_factor:.2f} ± {self.error:.2f} nats "
            f"({self.by[0]}, {self.by[1]})"
        )


def bayes_factor(first: pd.DataFrame, second: pd.DataFrame) -> BayesFactor:
    """Compare two models by their evidences, if the estimates of either agree among themselves.

    Parameters
    ----------
    first, second
        Tables of `av.evidence` for two models of the same data. p(t) is taken where both have it:
        with hyperparameters at their optimum the larger model is favoured.
    """
    for argument, table in (("first", first), ("second", second)):
        if not isinstance(table, pd.DataFrame) or "quantity" not in table:
            raise InputError(
                f"{argument} must be a table of av.evidence, got {type(table).__name__}"
            )
    integrated = all("p(t)" in set(table["quantity"]) for table in (first, second))
    chosen = []
    for table in (first, second):
        if len(table) == 0:
            return _refusal("a table has no estimate")
        quantity = "p(t)" if integrated else table["quantity"].iloc[0]
        rows = table[table["quantity"] == quantity]
        found, *_ = evidence_findings(rows)
        best = _most_precise(_in_rows(rows))
        if found.level == "bad":
            return _refusal(str(found))
        if best is None:
            return _refusal(f"{quantity} is only bounded from below")
        chosen.append(best)
    one, two = chosen
    errors = [e.error if np.isfinite(e.error) else ALLOWANCE for e in chosen]
    return BayesFactor(one.value - two.value, math.hypot(*errors), (one.estimator, two.estimator))


def _refusal(reason: str) -> BayesFactor:
    return BayesFactor(float("nan"), float("nan"), ("", ""), reason)


# ------------------------------------------------------------------------------ the estimates


def _in_rows(rows: pd.DataFrame) -> list[Estimate]:
    columns = [rows[name] for name in ("estimator", "kind", "log_evidence", "error")]
    return [Estimate(str(row[0]), *row[1:]) for row in zip(rows.index, *columns, strict=True)]


def _quantities(trees: Mapping[str, xr.DataTree]) -> dict[str, list[str]]:
    """Names of the trees by what their evidence is of."""
    leaders: dict[str, list[str]] = {}
    for name, tree in trees.items():
        if tree.attrs.get("coupling") == "one_against_rest":
            continue  # its evidences are of other data: one class against the rest
        home = next((q for q, m in leaders.items() if _same_quantity(tree, trees[m[0]])), None)
        if home is None:
            home = "p(t)" if integrates_hyperparameters(tree) else f"p(t | θ of {name})"
            leaders.setdefault(home, [])
        leaders[home].append(name)
    return leaders


def _same_quantity(tree: xr.DataTree, leader: xr.DataTree) -> bool:
    integrated = integrates_hyperparameters(tree)
    if integrated != integrates_hyperparameters(leader):
        return False
    return integrated or same_hyperparameters(tree, leader)


def _estimates(name: str, tree: xr.DataTree, notes: list[str]) -> list[Estimate]:
    fit = group_variables(tree, "fit")
    method = str(tree.attrs.get("method", "fit"))
    found = []
    if "log_evidence" in fit and fit["log_evidence"].ndim == 0:
        value = float(fit["log_evidence"])
        error = float(fit["log_evidence_error"]) if "log_evidence_error" in fit else float("nan")
        kind = "approximation" if np.isnan(error) else "exact" if error == 0 else "simulation"
        found.append(Estimate(name, method, kind, value, error))
        if "log_evidence_correction" in fit:
            better = value + float(fit["log_evidence_correction"])
            found.append(Estimate(name, f"{method}, corrected", "approximation", better))
    if "elbo" in fit:
        bound = fit["elbo_whole"] if "elbo_whole" in fit else fit["elbo"].isel(iteration=-1)
        found.append(Estimate(name, "elbo", "lower bound", float(bound)))
    return found + _importance(name, tree, notes)


def _importance(name: str, tree: xr.DataTree, notes: list[str]) -> list[Estimate]:
    """Importance sampling from an approximation to its target, if the weights allow it."""
    weight = log_weights(tree)
    if weight is None:
        return []
    shape = khat(tree)
    if not shape <= KHAT_MAX:
        notes.append(f"{name}: no importance sampling, k-hat is {shape:.2f} > {KHAT_MAX}.")
        return []
    value = float(logsumexp(weight) - np.log(weight.size))
    relative = np.exp(weight - value)
    error = float(relative.std(ddof=1) / np.sqrt(weight.size))
    return [Estimate(name, "importance sampling", "simulation", value, error)]


def _bridges(
    members: Sequence[str],
    trees: Mapping[str, xr.DataTree],
    model: Any,
    warp: bool,
    seed: int | None,
    notes: list[str],
) -> list[Estimate]:
    from ardvark.inference.bridge.run import bridge

    found = []
    for name in members:
        if not is_reference(trees[name]) or trees[name].attrs.get("method") == "smc":
            continue
        try:
            bridged = bridge(model, trees[name], warp=warp, random_seed=seed)
        except (InputError, UnsupportedPair, UnreadableModel) as error:
            notes.append(f"{name}: no bridge. {error}")
            continue
        if not bridged.reliable:
            notes.append(f"{name}: the bridge has an error of {bridged.error:.2f} nats.")
        found.append(Estimate(name, "bridge", "simulation", bridged.log_evidence, bridged.error))
    return found


# --------------------------------------------------------------------------- do they agree?

_ORDER = ("exact", "simulation", "approximation")


def _most_precise(estimates: Sequence[Estimate]) -> Estimate | None:
    """Exact, else the smallest error, else the correction of EP, EP, Laplace."""
    preferred = ("ep, corrected", "ep", "laplace")

    def key(estimate: Estimate) -> tuple[int, float, int]:
        error = estimate.error if np.isfinite(estimate.error) else 0.0
        place = preferred.index(estimate.estimator) if estimate.estimator in preferred else 9
        return _ORDER.index(estimate.kind), error, place

    usable = [e for e in estimates if e.kind in _ORDER and np.isfinite(e.value)]
    return min(usable, key=key, default=None)


def _apart(one: Estimate, two: Estimate) -> bool:
    """Whether two estimates contradict each other."""
    errors = math.hypot(*(e.error if np.isfinite(e.error) else 0.0 for e in (one, two)))
    allowed = LIMIT * errors + FLOOR
    if "approximation" in (one.kind, two.kind):
        allowed += ALLOWANCE
    if one.kind == two.kind == "lower bound":
        return False
    if one.kind == "lower bound":
        return bool(one.value - two.value > allowed)
    if two.kind == "lower bound":
        return bool(two.value - one.value > allowed)
    return bool(not abs(one.value - two.value) <= allowed)


def _disagreement(estimates: Sequence[Estimate]) -> tuple[Estimate, Estimate] | None:
    """Return the two that contradict each other most, None if none do."""
    pairs = [(a, b) for i, a in enumerate(estimates) for b in estimates[:i] if _apart(a, b)]
    return max(pairs, key=lambda pair: abs(pair[0].value - pair[1].value), default=None)


def _row(quantity: str, estimate: Estimate, best: Estimate | None) -> tuple[Any, ...]:
    away = float("nan") if best is None else estimate.value - best.value
    agrees = best is None or not _apart(estimate, best)
    name, estimator, *numbers = astuple(estimate)
    return name, quantity, estimator, *numbers, away, agrees


def _display(estimate: Estimate) -> str:
    plain = f"{estimate.value:.2f}".replace("-", "−")
    value = mean_and_sd(estimate.value, estimate.error) if estimate.error > 0 else plain
    by = estimate.estimator
    who = by if by.startswith(estimate.name) else f"{by} of {estimate.name}"
    return f"{value} ({who})"


# ------------------------------------------------------------------------------- different models


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
    rows = {name: _model_row(name, tree) for name, tree in trees.items()}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")
    table = table.sort_values("log_evidence", ascending=False, kind="stable")
    table.insert(1, "below_best", table["log_evidence"].iloc[0] - table["log_evidence"])
    return table


def _model_row(name: str, tree: xr.DataTree) -> dict[str, object]:
    fit = group_variables(tree, "fit")
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
