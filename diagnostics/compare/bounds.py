"""How wrong can an approximation be? Bounds from its own draws, without a reference.

HKCB20. With weights r = p*/q at draws of q, p* = Z p,

    ELBO = E_q log r <= log Z,   CUBO = 1/2 log E_q r²,   d2 = 2 (CUBO - ELBO) >= D_2(p || q)
    W_1(p, q) <= 2 C_2^(1/2) (e^d2 - 1)^(1/2),   W_2(p, q) <= 2 C_4^(1/4) (e^d2 - 1)^(1/4)

with C_k = E_q |x - E x|^k. A mean is off by at most W_1 and an sd by at most W_2. Everything is in
sds of the approximation, so C_2 = 1 for one weight and the number of weights for all; for a single
weight the same d2 serves, since the divergence of a marginal is not larger.

Both expectations are of heavy-tailed weights. Where their k-hat is above 0.7 an estimate of them
means nothing, and none is given.
"""

import math
from typing import NamedTuple

import numpy as np
import xarray as xr

from ardvark.diagnostics.compare.psis import khat, log_weights
from ardvark.diagnostics.reading import constant_columns, draws_of, weight_variables

__all__ = ["Bounds", "bounds"]

KHAT_MAX = 0.7
D2_LIMITS = (0.1, 4.6)  # VIABEL: below, all is well; above, very inaccurate


class Bounds(NamedTuple):
    """Bounds in sds of the approximation; NaN with a reason where there are none."""

    d2: float
    mean_error: float  # of any one weight
    sd_error: float
    wasserstein_1: float  # of all weights together
    wasserstein_2: float
    refused: str


def bounds(tree: xr.DataTree) -> Bounds:
    """Bound the errors of an approximation by its own importance weights.

    Parameters
    ----------
    tree
        A result of ``fit`` with `lp` and `log_approximation` in `sample_stats`.
    """
    weight = log_weights(tree)
    if weight is None:
        return _none("the tree has no densities of an approximation")
    shape = khat(tree)
    if not shape <= KHAT_MAX:
        return _none(f"k-hat {shape:.2f} is above {KHAT_MAX}: no bound can be estimated")
    d2 = divergence_bound(weight)
    reach = math.expm1(d2)
    z = _standardised(tree)
    square, fourth = np.square(z).sum(axis=1).mean(), (np.square(z).sum(axis=1) ** 2).mean()
    kurtosis = (z**4).mean(axis=0).max(initial=0.0)
    return Bounds(
        d2=d2,
        mean_error=2 * math.sqrt(reach),
        sd_error=2 * (kurtosis * reach) ** 0.25,
        wasserstein_1=2 * math.sqrt(square * reach),
        wasserstein_2=2 * (fourth * reach) ** 0.25,
        refused="",
    )


def divergence_bound(log_weight: np.ndarray) -> float:
    """2 (CUBO - ELBO) of log p*/q at draws of q; never below zero."""
    peak = log_weight.max()
    cubo = peak + 0.5 * math.log(np.exp(2 * (log_weight - peak)).mean())
    return max(0.0, 2 * (float(cubo) - float(log_weight.mean())))


def _standardised(tree: xr.DataTree) -> np.ndarray:
    """Draws of the weights that move, (n, k), with mean 0 and sd 1."""
    posterior = tree["posterior"].dataset
    parts = [draws_of(posterior[name]) for name in weight_variables(tree)]
    if not parts:
        return np.zeros((1, 0))
    draws = np.concatenate(parts, axis=2)
    moving = draws[:, :, ~constant_columns(draws)]
    flat = moving.reshape(-1, moving.shape[2])
    return np.asarray((flat - flat.mean(axis=0)) / flat.std(axis=0))


def _none(reason: str) -> Bounds:
    nan = float("nan")
    return Bounds(nan, nan, nan, nan, nan, reason)
