"""What a row does to a weight: the shift of its posterior mean when the row is left out.

The posterior without row n is importance-sampled from the draws w_s, with weights 1 / p(t_n | w_s)
smoothed by PSIS (Vehtari, Gelman & Gabry 2017; Vehtari et al. 2024), by ArviZ:

    shift_nj = (Σ_s r_ns w_sj - mean_j) / sd_j,    r_ns ∝ 1 / p(t_n | w_s)

ArviZ's `loo_influence` gives |shift|; here the sign is kept, since it says where a row pulls.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.reading import (
    SAMPLE_DIMS,
    arviz,
    draws_of,
    element_labels,
    group_variables,
    weight_variables,
)
from ardvark.inference.sites.arrays import Array

__all__ = ["influence"]

MOST_DRAWS = 4000  # the smoothing of each row sorts all draws


def influence(tree: xr.DataTree) -> pd.DataFrame | None:
    """Shift of each weight without each row, in posterior sds: rows × weights.

    None where importance sampling is not possible: no log likelihood, several of them, or one that
    is zero on part of the line. A weight that never moves has no shift and is left out.
    """
    likelihoods = group_variables(tree, "log_likelihood")
    names = weight_variables(tree)
    if len(likelihoods) != 1 or not names or tree.attrs.get("loo") == "cavity":
        return None
    posterior = tree["posterior"].dataset
    labels = [label for name in names for label in element_labels(posterior[name], name)]
    draws = np.concatenate([draws_of(posterior[name]) for name in names], axis=2)
    log_p = draws_of(next(iter(likelihoods.values())))
    step = max(1, draws.shape[0] * draws.shape[1] // MOST_DRAWS)
    flat, log_p = (part[:, ::step].reshape(-1, part.shape[2]) for part in (draws, log_p))
    moving = np.isfinite(flat).all(axis=0) & (np.ptp(flat, axis=0) > 0)
    if not np.isfinite(log_p).all() or not moving.any():
        return None
    shift = _shifts(flat[:, moving], log_p)
    return pd.DataFrame(shift, columns=[n for n, on in zip(labels, moving, strict=True) if on])


def _shifts(draws: Array, log_p: Array) -> Array:
    """Shifts from draws (sample, weight) and log likelihoods (sample, row)."""
    arviz()  # registers the accessor
    log_ratios = np.stack([_smoothed(row) for row in log_p.T])
    ratios = np.exp(log_ratios - log_ratios.max(axis=1, keepdims=True))
    ratios /= ratios.sum(axis=1, keepdims=True)
    return np.asarray((ratios @ draws - draws.mean(axis=0)) / draws.std(axis=0))


def _smoothed(log_p: Array) -> Array:
    """Log weights of one row; where the largest are all equal there is no tail, and none is fit."""
    row = xr.DataArray(log_p[None], dims=SAMPLE_DIMS)
    try:
        log_weights, _ = row.azstats.psislw(dim=list(SAMPLE_DIMS))  # it negates its argument itself
    except ValueError:
        return -log_p
    return np.asarray(log_weights).ravel()
