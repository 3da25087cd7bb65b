"""`compare`: every answer beside a reference, or beside each reference that the trees offer.

| relation | reference                           | what it tells                                   |
|----------|-------------------------------------|-------------------------------------------------|
| error    | at the same hyperparameters         | how good the approximation is                   |
| price    | integrates the hyperparameters out  | what it costs to hold them at one value         |
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import xarray as xr

from ardvark.diagnostics.compare.display import as_comparison
from ardvark.diagnostics.compare.reference import choose_reference
from ardvark.diagnostics.compare.relations import Relations, all_figures, share_weights
from ardvark.diagnostics.compare.verdict import conclusion, in_words
from ardvark.errors import InputError
from ardvark.inference.arguments import check_trees
from ardvark.inference.pymc_models.fingerprint import require_same_data

__all__ = ["READ_FIRST", "compare", "relations_in_words"]

READ_FIRST = [
    *("worst_mean_error", "worst_sd_ratio", "theta_mean_error", "theta_sd_ratio"),
    *("khat", "khat_se", "seconds", "conclusion"),
]
READ_FIRST_BESIDE = [
    *("error_mean", "error_sd_ratio", "error_theta_mean", "error_theta_sd_ratio", "price_mean"),
    *("khat", "khat_se", "seconds", "conclusion"),
]
_FIGURES = {
    "mean": "worst_mean_error",
    "mean_at": "worst_mean_error_at",
    "sd_ratio": "worst_sd_ratio",
    "sd_ratio_at": "worst_sd_ratio_at",
    "theta_mean": "theta_mean_error",
    "theta_mean_at": "theta_mean_error_at",
    "theta_sd_ratio": "theta_sd_ratio",
    "theta_sd_ratio_at": "theta_sd_ratio_at",
    "correlation": "correlation_error",
}
_OWN = ("khat", "khat_se", "d2", "log_evidence")
_AGAINST = ("elpd_difference", "elpd_difference_se", "speed_up")


def compare(
    trees: Mapping[str, xr.DataTree],
    reference: str | Sequence[str] | None = None,
    *,
    detail: bool = False,
) -> pd.DataFrame:
    """Compare every answer with a reference.

    An answer at hyperparameters that were fixed or optimised has two relations to the truth, which
    are never mixed: its **error**, against a reference at the same hyperparameters, and the
    **price** of not integrating them out, against a reference that does.

    Parameters
    ----------
    trees
        Results of ``fit`` by name.
    reference
        The name of the tree to trust; or several names, for a row per (name, reference). Without
        one the references are found among the trees (Markov chains and exact draws), and error and
        price are side by side.
    detail
        All figures; without it those that a person reads first.

    Returns
    -------
    DataFrame, one row per name. With a reference: ``worst_mean_error`` (in sd of the reference),
    ``worst_sd_ratio`` over the weights, ``theta_mean_error``, ``theta_sd_ratio`` over the
    hyperparameters that both have drawn (positive ones by their logs), ``khat`` with its standard
    error ``khat_se``, ``seconds`` and ``conclusion`` in words; without one ``error_mean``,
    ``error_sd_ratio``, ``error_theta_mean``, ``error_theta_sd_ratio``, ``price_mean``, ``khat``,
    ``khat_se``, ``seconds``, ``conclusion``. What does not apply is missing (``pd.isna``). Against
    a reference that fails its own checks (R-hat, effective sizes, divergences) the conclusion is
    "not known", with the check that failed.

    ``detail=True`` with a reference: ``method``, ``hyper``, ``reference``,
    ``compares`` (which of the two relations it is), ``like_with_like``, ``n_weights``,
    ``worst_mean_error``, ``worst_mean_error_at``, ``mean_error_mcse``, ``worst_sd_ratio``,
    ``worst_sd_ratio_at``, ``log_sd_ratio_mcse``, ``theta`` (which hyperparameters one holds and the
    other draws), ``n_theta``, ``theta_mean_error``, ``theta_mean_error_at``,
    ``theta_mean_error_mcse``, ``theta_sd_ratio``, ``theta_sd_ratio_at``,
    ``theta_log_sd_ratio_mcse``, ``wasserstein``, ``wasserstein_null``,
    ``correlation_error``, ``correlation_at``, ``correlation_null``, ``missed_mode_at``,
    ``missed_mode_place``, ``missed_mode_share`` (mass in the reference), ``khat``, ``khat_se``,
    ``d2``, ``mean_error_bound``, ``log_evidence``, ``elpd_loo``, ``elpd_loo_se``,
    ``loo_high_khat`` (rows whose own k-hat is too high for PSIS, where that can matter),
    ``elpd_difference``, ``elpd_difference_se``, ``seconds``, ``speed_up``, ``converged``,
    ``reference_trouble`` (why the reference cannot be trusted), ``conclusion``.

    ``detail=True`` without a reference: ``error_against``, ``error_mean``, ``error_mean_at``,
    ``error_sd_ratio``, ``error_sd_ratio_at``, the same four with ``theta_`` before ``mean`` and
    ``sd_ratio``, ``error_correlation`` | ``price_against`` and the same with ``price`` | ``khat``,
    ``khat_se``, ``d2``,
    ``log_evidence``, ``elpd_difference``, ``elpd_difference_se``, ``seconds``, ``speed_up``,
    ``converged``, ``conclusion``, ``verdict``.
    """
    if reference is None:
        _check_trees(trees, ())
        require_same_data(trees)
        return as_comparison(_side_by_side(trees), None if detail else READ_FIRST_BESIDE)
    if not isinstance(reference, str | Sequence):
        raise InputError(f"reference must be a name or several, got {type(reference).__name__}")
    references = (reference,) if isinstance(reference, str) else tuple(reference)
    if not references:
        raise InputError("reference: no name given; name at least one of the trees.")
    _check_trees(trees, references)
    require_same_data(trees)
    table = all_figures(trees, references)
    table["conclusion"] = [conclusion(row) for _, row in table.iterrows()]
    if isinstance(reference, str):
        table.index = pd.Index(list(trees), name="name")
    return as_comparison(table, None if detail else READ_FIRST)


def _check_trees(trees: Mapping[str, xr.DataTree], references: tuple[str, ...]) -> None:
    check_trees(trees)
    for name in references:
        if name not in trees:
            raise InputError(
                f"reference: asked for {name!r}, found {', '.join(map(repr, trees)) or 'no trees'};"
                " name one of these."
            )


def _side_by_side(trees: Mapping[str, xr.DataTree]) -> pd.DataFrame:
    """Return one row per method, its error and its price beside each other."""
    relations = Relations(share_weights(trees), choose_reference(trees))
    rows = {name: _both_relations(relations, name) for name in relations.trees}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")


def _both_relations(relations: Relations, name: str) -> dict[str, Any]:
    """Collect the figures of one method; None and NaN where it has no such reference."""
    found: dict[str, Any] = {}
    nan, said = float("nan"), []
    for kind, references in (("error", relations.like), ("price", relations.price)):
        against = references.get(name)
        row = relations.rows[name, against] if against else None
        found[f"{kind}_against"] = against
        for short, column in _FIGURES.items():
            missing = None if short.endswith("_at") else nan
            found[f"{kind}_{short}"] = missing if row is None else row[column]
        said += [] if row is None else [conclusion(row)]
    own, nearest = relations.own(name), relations.like.get(name) or relations.price.get(name)
    found |= {column: own[column] for column in _OWN}
    held = relations.rows[name, nearest] if nearest else None
    found |= {column: nan if held is None else held[column] for column in _AGAINST}
    found |= {"seconds": own["seconds"], "converged": own["converged"]}
    words = {"conclusion": "; ".join(said) or _alone(relations, name)}
    return found | words | {"verdict": relations_in_words(relations, name)}


def relations_in_words(relations: Relations, name: str) -> str:
    """Say what the error and the price of a method are."""
    said = [
        f"against {references[name]}: {in_words(relations.rows[name, references[name]])}"
        for references in (relations.like, relations.price)
        if name in references
    ]
    if said:
        return f"{name} {'; '.join(said)}."
    return f"{name}: {_alone(relations, name)}."


def _alone(relations: Relations, name: str) -> str:
    """What an answer is that has no reference."""
    if name not in relations.references:
        return "no reference to compare it with"
    trouble = relations.trouble[name]
    return f"a reference that cannot be trusted ({trouble})" if trouble else "a reference itself"
