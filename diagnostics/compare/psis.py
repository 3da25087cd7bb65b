"""Importance weights and their Pareto shapes: of an approximation to its target, and of LOO.

Pareto-smoothed importance sampling is Vehtari, Simpson, Gelman, Yao and Gabry (2024), by ArviZ.

A k-hat is blind to location and scale: weights 1 + 1e-9 x have the k-hat of x. A row that is far on
its own side of a boundary has log p = -1e-9 x with x of a very heavy tail, so its k-hat is high and
its elpd right to many digits. Such rows are the rule where classes are nearly parted; they are not
counted. In refits of wdbc without one row the elpd of 31 such rows differs from PSIS by at most
1e-4 nats, that of the 4 rows which are counted by 0.1 to 0.3.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.diagnostics.reading import (
    SAMPLE_DIMS,
    arviz,
    constant_columns,
    draws_of,
    group_variables,
    sampling_kind,
    weight_variables,
)
from ardvark.inference.hyper.pareto import smooth
from ardvark.inference.samplers.chain_statistics import ess_mean
from ardvark.inference.sites.arrays import Array, Mask

__all__ = [
    "LooRows",
    "cavity_rows",
    "error_of_sum",
    "khat",
    "khat_and_error",
    "log_weights",
    "loo_figures",
    "loo_rows",
    "psis_rows",
    "summed",
]


MOST_NUMBERS = 2**23  # of a log likelihood at a time: 64 MB, and some copies in ArviZ
LOG_DENSITIES = ("lp", "log_approximation")
LOO_SHIFT = 1e-3  # nats: a row that moves less when it is left out cannot be wrong by much


def khat(tree: xr.DataTree) -> float:
    """Pareto k-hat of the importance weights from the approximation to its target.

    It sees the target that the approximation had: at given θ, not the posterior of θ. NaN if the
    tree has no densities (NUTS), -inf if the approximation is exact (constant weights), inf if a
    weight is not a number or unbounded. A fit computes it from the same draws by the same function
    and keeps it in ``attrs["k_hat"]``.
    """
    return khat_and_error(tree)[0]


def khat_and_error(tree: xr.DataTree) -> tuple[float, float]:
    """Return `khat` and its standard error, about 0.1 from 4000 draws; NaN where it has none."""
    weights = log_weights(tree)
    if weights is None:
        return float("nan"), float("nan")
    tail = smooth(weights)
    return tail.k_hat, tail.error


def log_weights(tree: xr.DataTree) -> Array | None:
    """Log importance weights of the draws of an approximation; None of other draws."""
    statistics = group_variables(tree, "sample_stats")
    if not set(LOG_DENSITIES) <= set(statistics):
        return None
    return np.asarray((statistics["lp"] - statistics["log_approximation"]).to_numpy().ravel())


class LooRows(NamedTuple):
    """Leave-one-out row by row: log predictive density, and where its k-hat is too high."""

    elpd: Array
    high: Mask  # too high, and the row moves when it is left out
    khat: Array  # NaN where there is none
    estimator: str  # "psis" | "psis corrected" | "cavity"


def loo_figures(tree: xr.DataTree) -> dict[str, float]:
    """Leave-one-out of a tree in three numbers."""
    return summed(loo_rows(tree))


def summed(rows: LooRows | None) -> dict[str, float]:
    """Sum the rows of leave-one-out; NaN if there are none.

    ``loo_high_khat`` counts the rows whose k-hat is too high and whose log predictive density moves
    by more than ``LOO_SHIFT`` when they are left out: the rows for which it matters.
    """
    if rows is None:
        return dict.fromkeys(("elpd_loo", "elpd_loo_se", "loo_high_khat"), float("nan"))
    cavity = rows.estimator == "cavity"
    return {
        "elpd_loo": float(rows.elpd.sum()),
        "elpd_loo_se": error_of_sum(rows.elpd),
        "loo_high_khat": float("nan") if cavity else int(rows.high.sum()),
    }


def error_of_sum(values: Array) -> float:
    """Standard error of a sum over rows, which are taken as drawn at random."""
    return float(np.sqrt(values.size) * values.std(ddof=1)) if values.size > 1 else float("nan")


def loo_rows(tree: xr.DataTree) -> LooRows | None:
    """Leave-one-out of the draws as they are, for an approximation of the approximation.

    By the way that is valid for the tree, cavities or PSIS; None if there is none.
    """
    if tree.attrs.get("loo") == "cavity":
        return cavity_rows(tree)
    return psis_rows(tree)


def psis_rows(tree: xr.DataTree, *, correct: bool = False) -> LooRows | None:
    """PSIS from draws; with `correct` draws of an approximation are weighed to its target first."""
    variables = group_variables(tree, "log_likelihood")
    if len(variables) != 1 or tree.attrs.get("loo") == "cavity":
        return None
    log_p = next(iter(variables.values())).transpose(*SAMPLE_DIMS, ...)
    values = log_p.to_numpy().reshape((*log_p.shape[:2], -1))
    reff = 1.0 if correct else _relative_efficiency(tree)
    at_a_time = max(1, MOST_NUMBERS // (values.shape[0] * values.shape[1]))
    parts = []
    for begin in range(0, values.shape[2], at_a_time):
        part = _psis_of(tree, values[:, :, begin : begin + at_a_time], correct, reff)
        if part is None:
            return None
        parts.append(part)
    found = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return LooRows(found[0], found[1], found[2], "psis corrected" if correct else "psis")


def _psis_of(
    tree: xr.DataTree, values: Array, correct: bool, reff: float
) -> tuple[Array, Mask, Array] | None:
    """PSIS of some rows (chain, draw, row): their elpd, whether it is doubtful, k-hats."""
    log_p: Any = xr.DataArray(
        values,
        dims=(*SAMPLE_DIMS, "row"),
        coords={n: np.arange(k) for n, k in zip(SAMPLE_DIMS, values.shape[:2], strict=True)},
    )
    some = xr.DataTree.from_dict({"log_likelihood": log_p.to_dataset(name="rows")})
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", UserWarning)  # high k-hats are counted instead
        try:
            if correct:
                statistics = tree["sample_stats"].dataset
                joint = [statistics[n].assign_coords(log_p.coords) for n in LOG_DENSITIES]
                loo = arviz().loo_approximate_posterior(
                    some, *joint, pointwise=True, var_name="rows"
                )
            else:
                loo = arviz().loo(some, pointwise=True, var_name="rows", reff=reff)
        except ValueError:  # a constant log likelihood has no tail to fit
            return None
    peak = log_p.max(SAMPLE_DIMS)
    shift = np.log(np.exp(log_p - peak).mean(SAMPLE_DIMS)) + peak - loo.elpd_i
    # a draw with log p = -inf makes both of them NaN: that counts
    high = ~(loo.pareto_k <= loo.good_k) & ~(np.abs(shift) <= LOO_SHIFT)
    return loo.elpd_i.to_numpy(), high.to_numpy(), loo.pareto_k.to_numpy()


def cavity_rows(tree: xr.DataTree) -> LooRows | None:
    """Leave-one-out of the cavities: free, exact for a Gaussian, the only one for hard margins.

    Where a site is zero importance sampling is not valid: some draws have weight 1/0, and exact
    draws never reach the part of the cavity where the row has no probability. A sampler has no
    cavities: None.
    """
    fit = group_variables(tree, "fit")
    if "log_loo_probability" not in fit or fit["log_loo_probability"].ndim != 1:
        return None
    elpd = fit["log_loo_probability"].to_numpy()
    nothing = np.full(elpd.size, np.nan)
    return LooRows(elpd.astype(float), np.zeros(elpd.size, bool), nothing, "cavity")


def _relative_efficiency(tree: xr.DataTree) -> float:
    weights = weight_variables(tree)
    if sampling_kind(tree) == "iid" or not weights:
        return 1.0
    draws = np.concatenate([draws_of(tree["posterior"].dataset[name]) for name in weights], axis=2)
    moving = draws[:, :, ~constant_columns(draws)]
    if moving.shape[2] == 0:
        return 1.0
    ess = ess_mean(moving) / (moving.shape[0] * moving.shape[1])
    return float(np.clip(np.mean(ess), 1e-3, 1.0))
