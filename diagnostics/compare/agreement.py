"""Agreement of an answer with its reference, in units of the reference's posterior sd.

Notation: m, s are mean and sd of a weight under a method, m*, s* under the reference.

| figure            | formula                                                            |
|-------------------|--------------------------------------------------------------------|
| mean error        | (m - m*) / s*                                                      |
| its MCSE          | sqrt(se(m)² + se(m*)²) / s*, se by ArviZ for Markov chains         |
| log sd ratio      | log(s / s*)                                                        |
| its MCSE          | sqrt(se(s)²/s² + se(s*)²/s*²), from the fourth moments             |
| quantile error    | (q - q*) / s* at 5 % and 95 %                                      |
| wasserstein       | W1 of the two marginals / s*                                       |
| wasserstein null  | W1 of two halves of the reference / s*: what noise alone gives     |
| correlation error | largest |r - r*| of two weights; its null is that of two halves    |
| missed mode       | two peaks in the reference, one nearly empty here (`modes.py`)     |
| k-hat             | Pareto shape of the weights p/q at draws of q (joint, not marginal)|
| d2, bounds        | what the importance weights allow at most (`bounds.py`)            |
| elpd difference   | sum of e_n - e*_n over the rows, se = sqrt(N var(e - e*))          |

Like with like: an answer at given hyperparameters θ is judged against a reference at the same θ
(the error of the approximation) or against one that integrates θ out (the price of fixing it, the
approximation's own error included). ``compares`` says which; each row holds one of the two.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ardvark.diagnostics.compare.bounds import bounds
from ardvark.diagnostics.compare.correlations import correlation_error
from ardvark.diagnostics.compare.display import as_comparison
from ardvark.diagnostics.compare.invariants import in_invariants
from ardvark.diagnostics.compare.modes import missed_mode
from ardvark.diagnostics.compare.psis import LooRows, error_of_sum, khat, loo_rows, summed
from ardvark.diagnostics.compare.reference import (
    REFERENCE,
    integrates_hyperparameters,
    relation,
    same_hyperparameters,
)
from ardvark.diagnostics.compare.verdict import conclusion
from ardvark.diagnostics.reading import (
    arviz,
    constant_columns,
    draws_of,
    element_labels,
    has_rows,
    held_values,
    moments,
    sampling_kind,
    weight_variables,
)
from ardvark.errors import InputError
from ardvark.inference.arguments import check_trees
from ardvark.inference.graph.fingerprint import require_same_data

__all__ = ["READ_FIRST", "Paired", "agreement", "all_figures", "compare", "paired_draws"]

type Array = NDArray[np.float64]

LEAST = 0.1  # sd of an indicator that is nearly always on, or off: a tenth in probability counts


def compare(
    trees: Mapping[str, xr.DataTree],
    reference: str | Sequence[str] | None = None,
    *,
    detail: bool = False,
) -> pd.DataFrame:
    """Hold every answer against a reference.

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
        price stand side by side.

    detail
        All figures; without it those that a person reads first.

    Returns
    -------
    DataFrame, one row per name. With a reference: ``worst_mean_error`` (in sd of the reference),
    ``worst_sd_ratio``, ``khat``, ``seconds`` and ``conclusion`` in words; without one
    ``error_mean``, ``error_sd_ratio``, ``price_mean``, ``khat``, ``seconds``, ``conclusion``. What
    does not apply is missing (``pd.isna``).

    ``detail=True`` with a reference: ``method``, ``hyper``, ``reference``,
    ``compares`` (which of the two relations it is), ``like_with_like``, ``n_weights``,
    ``worst_mean_error``, ``worst_mean_error_at``, ``mean_error_mcse``, ``worst_sd_ratio``,
    ``worst_sd_ratio_at``, ``log_sd_ratio_mcse``, ``wasserstein``, ``wasserstein_null``,
    ``correlation_error``, ``correlation_at``, ``correlation_null``, ``missed_mode_at``,
    ``missed_mode_place``, ``missed_mode_share`` (mass in the reference), ``khat``, ``d2``,
    ``mean_error_bound``, ``log_evidence``, ``elpd_loo``, ``elpd_loo_se``, ``loo_high_khat`` (rows
    whose own k-hat is too high for PSIS, where that can matter), ``elpd_difference``,
    ``elpd_difference_se``, ``seconds``, ``speed_up``, ``converged``, ``conclusion``.

    ``detail=True`` without a reference: ``error_against``, ``error_mean``, ``error_mean_at``,
    ``error_sd_ratio``, ``error_sd_ratio_at``, ``error_correlation`` | ``price_against``,
    ``price_mean``, ``price_mean_at``, ``price_sd_ratio``, ``price_sd_ratio_at`` | ``khat``, ``d2``,
    ``log_evidence``, ``elpd_difference``, ``elpd_difference_se``, ``seconds``, ``speed_up``,
    ``converged``, ``conclusion``, ``verdict``.
    """
    if reference is None:
        from ardvark.diagnostics.compare.side_by_side import side_by_side

        _check_trees(trees, ())
        require_same_data(trees)
        return as_comparison(side_by_side(trees), None if detail else READ_FIRST_BESIDE)
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


def all_figures(
    trees: Mapping[str, xr.DataTree],
    references: Sequence[str],
    left_out: Mapping[str, LooRows | None] | None = None,
) -> pd.DataFrame:
    """Give the figures of every (name, reference); `left_out` where it is known already."""
    if left_out is None:
        left_out = {name: loo_rows(tree) for name, tree in trees.items()}
    own = {name: _own_figures(tree, left_out[name]) for name, tree in trees.items()}
    rows = {
        (name, against): _against(tree, trees[against], itself=name == against)
        | own[name]
        | _elpd_difference(left_out[name], left_out[against], itself=name == against)
        | {
            "reference": against,
            "speed_up": own[against]["seconds"] / max(own[name]["seconds"], 1e-9),
        }
        for against in references
        for name, tree in trees.items()
    }
    index = pd.MultiIndex.from_tuples(list(rows), names=["name", "against"])
    return pd.DataFrame(list(rows.values()), index=index)[_COLUMNS]


def agreement(tree: xr.DataTree, reference: xr.DataTree) -> pd.DataFrame:
    """Compare two answers weight by weight.

    A sample-feature machine is compared by the products of its weights, a mixture by which inputs
    are included (``invariants``).
    Hyperparameters are compared where both trees sampled them. What is constant in both (pruned,
    fixed) is left out; constant in ``tree`` alone has log sd ratio -inf, in ``reference`` alone
    +inf, with infinite errors in units of its zero sd. So have draws that are not finite.

    Returns
    -------
    DataFrame, index = ``bias``, ``w[x0]``, …; columns ``role``, ``mean``, ``sd``,
    ``reference_mean``, ``reference_sd``, ``mean_error``, ``mean_error_mcse``, ``log_sd_ratio``,
    ``log_sd_ratio_mcse``, ``q05_error``, ``q95_error``, ``wasserstein``, ``wasserstein_null``.
    """
    return _table(paired_draws(tree, reference))


class Paired(NamedTuple):
    """Draws of two trees of what both have, in one order: (chain, draw, element)."""

    names: list[str]
    roles: list[str]
    ours: Array
    theirs: Array
    kinds: tuple[str, str]  # sampling kinds

    def only_weights(self) -> "Paired":
        """Leave the hyperparameters out."""
        at = [i for i, role in enumerate(self.roles) if role == "weight"]
        names, roles = ([part[i] for i in at] for part in (self.names, self.roles))
        return Paired(names, roles, self.ours[..., at], self.theirs[..., at], self.kinds)


def paired_draws(tree: xr.DataTree, reference: xr.DataTree) -> Paired:
    """Give what both trees have and one at least moves, in invariants where weights have none."""
    tree, reference = in_invariants(tree), in_invariants(reference)
    kinds = sampling_kind(tree), sampling_kind(reference)
    return Paired(*_paired_draws(tree, reference), kinds)


def _table(pairs: Paired) -> pd.DataFrame:
    ours, theirs = pairs.ours, pairs.theirs
    mean, sd = moments(ours)
    reference_mean, reference_sd = moments(theirs)
    indicator = [np.isin(draws, (0.0, 1.0)).all(axis=(0, 1)) for draws in (ours, theirs)]
    both = indicator[0] & indicator[1]
    sd, reference_sd = (np.where(both, np.hypot(s, LEAST), s) for s in (sd, reference_sd))
    errors = [_mcse(draws, kind) for draws, kind in zip((ours, theirs), pairs.kinds, strict=True)]
    noise = np.hypot(errors[0].mean, errors[1].mean)
    quantiles = _quantiles(ours) - _quantiles(theirs)
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = {
            "role": pairs.roles,
            "mean": mean,
            "sd": sd,
            "reference_mean": reference_mean,
            "reference_sd": reference_sd,
            "mean_error": _no_nan((mean - reference_mean) / reference_sd),
            "mean_error_mcse": _no_nan(noise / reference_sd),
            "log_sd_ratio": _no_nan(np.log(sd / reference_sd)),
            "log_sd_ratio_mcse": np.hypot(errors[0].log_sd, errors[1].log_sd),
            "q05_error": _no_nan(quantiles[0] / reference_sd),
            "q95_error": _no_nan(quantiles[1] / reference_sd),
            "wasserstein": _no_nan(_wasserstein(ours, theirs) / reference_sd),
            "wasserstein_null": _no_nan(_wasserstein(*_halves(theirs)) / reference_sd),
        }
    return pd.DataFrame(columns, index=pd.Index(pairs.names, name="parameter"))


# ------------------------------------------------------------------------------ the rows of compare

_COLUMNS = [
    *("method", "hyper", "reference", "compares", "like_with_like", "n_weights"),
    *("worst_mean_error", "worst_mean_error_at", "mean_error_mcse"),
    *("worst_sd_ratio", "worst_sd_ratio_at", "log_sd_ratio_mcse"),
    *("wasserstein", "wasserstein_null"),
    *("correlation_error", "correlation_at", "correlation_null"),
    *("missed_mode_at", "missed_mode_place", "missed_mode_share"),
    *("khat", "d2", "mean_error_bound", "log_evidence"),
    *("elpd_loo", "elpd_loo_se", "loo_high_khat", "elpd_difference", "elpd_difference_se"),
    *("seconds", "speed_up", "converged"),
]
READ_FIRST = ["worst_mean_error", "worst_sd_ratio", "khat", "seconds", "conclusion"]
READ_FIRST_BESIDE = [
    *("error_mean", "error_sd_ratio", "price_mean"),
    *("khat", "seconds", "conclusion"),
]


def _check_trees(trees: Mapping[str, xr.DataTree], references: tuple[str, ...]) -> None:
    check_trees(trees)
    for name in references:
        if name not in trees:
            raise InputError(
                f"reference: asked for {name!r}, found {', '.join(map(repr, trees)) or 'no trees'};"
                " name one of these."
            )


def _against(tree: xr.DataTree, reference: xr.DataTree, *, itself: bool) -> dict[str, Any]:
    """Collect the figures that need both trees."""
    pairs = paired_draws(tree, reference).only_weights()
    weights = _table(pairs)
    same = itself or same_hyperparameters(tree, reference)
    figures: dict[str, Any] = {
        **dict.fromkeys(_COLUMNS, float("nan")),
        "compares": REFERENCE if itself else relation(tree, reference, same),
        "like_with_like": same,
        **dict.fromkeys((name for name in _COLUMNS if name.endswith("_at")), None),
        "n_weights": len(weights),
    }
    if len(weights):
        figures["wasserstein_null"] = weights["wasserstein_null"].max()
    if len(weights) and not itself:
        mean_error, log_ratio = weights["mean_error"].abs(), weights["log_sd_ratio"]
        worst_mean, worst_sd = int(mean_error.argmax()), int(log_ratio.abs().argmax())
        figures |= {
            "worst_mean_error": mean_error.iloc[worst_mean],
            "worst_mean_error_at": weights.index[worst_mean],
            "mean_error_mcse": weights["mean_error_mcse"].iloc[worst_mean],
            "worst_sd_ratio": np.exp(log_ratio.iloc[worst_sd]),
            "worst_sd_ratio_at": weights.index[worst_sd],
            "log_sd_ratio_mcse": weights["log_sd_ratio_mcse"].iloc[worst_sd],
            "wasserstein": weights["wasserstein"].max(),
        }
        figures |= _joint_figures(pairs)
    return figures


def _joint_figures(pairs: Paired) -> dict[str, Any]:
    """Collect what a table of single weights does not show: correlations, and modes."""
    joint = correlation_error(pairs.names, pairs.ours, pairs.theirs, _halves(pairs.theirs))
    figures: dict[str, Any] = {
        "correlation_error": joint.error,
        "correlation_at": None if joint.pair is None else ", ".join(joint.pair),
        "correlation_null": joint.null,
    }
    missed = missed_mode(pairs.ours, pairs.theirs)
    if missed is not None:
        figures |= {
            "missed_mode_at": pairs.names[missed.element],
            "missed_mode_place": missed.place,
            "missed_mode_share": missed.reference_share,
        }
    return figures


def _elpd_difference(
    ours: LooRows | None, theirs: LooRows | None, *, itself: bool
) -> dict[str, float]:
    if ours is None or theirs is None or itself or ours.elpd.size != theirs.elpd.size:
        return {}
    difference = ours.elpd - theirs.elpd
    error = error_of_sum(difference)
    return {"elpd_difference": float(difference.sum()), "elpd_difference_se": error}


def _own_figures(tree: xr.DataTree, rows: LooRows | None) -> dict[str, Any]:
    """Collect the figures that need one tree alone."""
    limit = bounds(tree)
    fit = tree["fit"].data_vars if "fit" in tree.children else {}
    return {
        "method": tree.attrs.get("method"),
        "hyper": tree.attrs.get("hyper"),
        "khat": khat(tree),
        "d2": limit.d2,
        "mean_error_bound": limit.mean_error,
        "log_evidence": float(fit["log_evidence"]) if "log_evidence" in fit else float("nan"),
        "seconds": float(tree.attrs.get("seconds", "nan")),
        "converged": tree.attrs.get("converged"),
        **summed(rows),
    }


# ------------------------------------------------------------------------------------- paired draws


def _paired_draws(
    tree: xr.DataTree, reference: xr.DataTree
) -> tuple[list[str], list[str], Array, Array]:
    """Names, roles, draws (chain, draw, element) of what both trees have and one at least moves."""
    weights, hyperparameters = _common_variables(tree, reference)
    names, ours = _stacked(tree, weights + hyperparameters)
    names_there, theirs = _stacked(reference, weights + hyperparameters)
    place, place_there = _places(names), _places(names_there)
    moving = {n for n, fixed in zip(names, constant_columns(ours), strict=True) if not fixed}
    moving |= {n for n, f in zip(names_there, constant_columns(theirs), strict=True) if not f}
    unmatched = moving - (place.keys() & place_there.keys())
    lonely = [n for n in (*names, *names_there) if n in unmatched]
    if lonely:
        raise InputError(
            f"these answers are not of the same model: {lonely[0]} is free in one and absent in the"
            " other; fit both to the same columns."
        )
    kept = [n for n in names if n in moving]
    roles = ["weight" if n.split("[")[0] in weights else "hyperparameter" for n in kept]
    at, at_there = [place[n] for n in kept], [place_there[n] for n in kept]
    return kept, roles, ours[:, :, at], theirs[:, :, at_there]


def _places(names: list[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _stacked(tree: xr.DataTree, variables: list[str]) -> tuple[list[str], Array]:
    posterior = tree["posterior"].dataset
    names = [label for v in variables for label in element_labels(posterior[v], v)]
    return names, np.concatenate([draws_of(posterior[v]) for v in variables], axis=2)


def _common_variables(tree: xr.DataTree, reference: xr.DataTree) -> tuple[list[str], list[str]]:
    posterior, there = tree["posterior"].dataset, reference["posterior"].dataset
    common = [str(v) for v in posterior.data_vars if v in there and posterior[v].dtype.kind == "f"]
    declared = weight_variables(tree) or weight_variables(reference)
    theta = {*held_values(tree), *held_values(reference)}
    others = [v for v in common if v not in declared and v not in theta]
    others = [v for v in others if not has_rows(tree, posterior[v])]
    weights = [v for v in declared if v in common] if declared else others
    if not weights:
        raise InputError(
            "the two trees have no weights in common: one has"
            f" {', '.join(map(str, posterior.data_vars))}; the other"
            f" {', '.join(map(str, there.data_vars))}. Fit both to the same model."
        )
    both_sample = (
        declared and integrates_hyperparameters(tree) and integrates_hyperparameters(reference)
    )
    return weights, others if both_sample else []


# -------------------------------------------------------------------------------------- the figures


def _quantiles(draws: Array) -> Array:
    return np.asarray(np.quantile(draws, (0.05, 0.95), axis=(0, 1)))


class _Noise(NamedTuple):
    """Monte Carlo errors of a mean, and of the log of an sd."""

    mean: Array
    log_sd: Array


def _mcse(draws: Array, kind: str) -> _Noise:
    """Monte Carlo errors; independent draws need no autocorrelation estimate."""
    _, sd = moments(draws)
    n = draws.shape[0] * draws.shape[1]
    moving = (sd > 0) & np.isfinite(draws).all(axis=(0, 1))
    error, log_error = np.zeros(draws.shape[2]), np.zeros(draws.shape[2])
    if kind == "iid":
        z = (draws[:, :, moving] - draws[:, :, moving].mean(axis=(0, 1))) / sd[moving]
        log_error[moving] = np.sqrt(np.maximum((z**4).mean(axis=(0, 1)) - 1.0, 0.0) / (4 * n))
        return _Noise(np.asarray(sd / np.sqrt(n)), log_error)
    if moving.any():
        axes: dict[str, Any] = {"chain_axis": 0, "draw_axis": 1}
        error[moving] = arviz().mcse(draws[:, :, moving], **axes)
        log_error[moving] = arviz().mcse(draws[:, :, moving], method="sd", **axes) / sd[moving]
    return _Noise(error, log_error)


def _wasserstein(ours: Array, theirs: Array) -> Array:
    """W1 of each marginal; the joint distance cannot tell methods apart at this many draws.

    W1 is the area between two quantile functions, which are constant between the multiples of 1/n
    and of 1/m: whole numbers of 1/(nm), so that no step is lost to rounding.
    """
    a, b = (np.reshape(draws, (-1, draws.shape[2])).T for draws in (ours, theirs))
    finite = np.isfinite(a).all(axis=1) & np.isfinite(b).all(axis=1)
    a, b = np.sort(a[finite], axis=1), np.sort(b[finite], axis=1)
    n, m = a.shape[1], b.shape[1]
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    lengths = np.diff(ends, prepend=0) / (n * m)
    distances = np.full(ours.shape[2], np.nan)
    distances[finite] = np.abs(a[:, (ends - 1) // m] - b[:, (ends - 1) // n]) @ lengths
    return distances


def _halves(draws: Array) -> tuple[Array, Array]:
    """Split by chains, so that chains which disagree show; a single chain is cut in two."""
    axis = 0 if len(draws) > 1 else 1
    middle = draws.shape[axis] // 2
    first, second = np.split(draws, [middle], axis=axis)
    return first, second


def _no_nan(error: Array) -> Array:
    """Let an error that cannot be computed win a maximum instead of vanishing from it."""
    return np.where(np.isnan(error), np.inf, error)
