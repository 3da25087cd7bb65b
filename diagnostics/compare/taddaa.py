"""Is an approximation wrong? Short chains from its draws, without a long one (TADDAA).

WKH23. Chains are started at independent draws of the approximation and
run for a few steps of a kernel that leaves the target alone. A right approximation stays as it is,
a wrong one moves towards the target. The chains are independent, so the test is exact:

| quantity        | interval                                                    |
|-----------------|-------------------------------------------------------------|
| change of mean  | Student-t of the ends, in sds of the approximation          |
| sd ratio        | chi-square of the ends' variance over the approximation's   |
| quantiles       | order statistics of the ends (binomial)                     |

The distance of an interval from "no change" is a lower bound of the error: chains that are too
short, or that cannot cross to another mode, understate it, so nothing is proved by no change. How
far the ends have forgotten their starts is `memory`, their correlation.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from ardvark.diagnostics.reading import sampling_kind
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.arguments import check_model, check_tree
from ardvark.inference.sites.arrays import Array
from ardvark.models.checks import Seed, as_seed, positive_integer

__all__ = ["taddaa"]


def taddaa(
    model: Any,
    tree: xr.DataTree,
    *,
    chains: int = 400,
    steps: int = 30,
    level: float = 0.95,
    quantiles: tuple[float, ...] = (0.5, 0.9),
    random_seed: Seed = 1,
) -> pd.DataFrame:
    """Bound the errors of an approximation from below, by short chains from its draws.

    Parameters
    ----------
    model : pm.Model
        The graph that was fitted.
    tree
        Of an approximation (`Laplace`, `EP`, `VB`): independent draws.
    chains, steps
        Chains, one from each of so many draws, and their length.
    level
        Of all intervals together, over the weights (Bonferroni): with a right approximation none
        excludes "no change" in so many of all cases.
    quantiles
        Probabilities whose quantiles are compared.
    random_seed
        Same seed, same answer.

    Returns
    -------
    DataFrame, index = parameter (unconstrained, where the model samples it so): ``mean_change``
    with ``mean_low``, ``mean_high`` (sds of the approximation), ``sd_ratio`` with ``sd_low``,
    ``sd_high`` (target over approximation), for each quantile the ``q50_low``, ``q50_high`` of its
    shift in sds, ``mean_error`` and ``sd_error``: lower bounds of |change of the mean| and of
    |log sd ratio|, ``memory``.
    """
    model = check_model(model)
    check_tree(tree)
    from ardvark.inference.bridge.target import target_of
    from ardvark.inference.samplers.short_chains import short_chains

    positive_integer(chains, "chains")
    positive_integer(steps, "steps")
    if not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1, got {level!r}")
    if sampling_kind(tree) != "iid":
        raise UnsupportedPair(
            f"taddaa checks approximations by their independent draws; {tree.attrs.get('method')} "
            "gives a Markov chain, which R-hat checks."
        )
    target = target_of(model, tree)
    draws = target.pack(tree["posterior"].dataset)
    draws = draws.reshape(-1, draws.shape[-1])
    if len(draws) < max(chains, 2 * draws.shape[1]):
        raise InputError(
            f"chains: asked for {chains} from {len(draws)} draws of {draws.shape[1]} parameters; "
            "fit with more draws"
        )
    rng = np.random.default_rng(as_seed(random_seed))
    starts = draws[rng.choice(len(draws), chains, replace=False)]
    mean, covariance = draws.mean(axis=0), np.atleast_2d(np.cov(draws, rowvar=False))
    ends = short_chains(target.log_density, starts, steps, rng, mean=mean, covariance=covariance)
    return intervals(
        target.names,
        target.natural(draws),
        target.natural(starts),
        target.natural(ends),
        level,
        quantiles,
    )


def intervals(
    names: list[str],
    draws: Array,
    starts: Array,
    ends: Array,
    level: float,
    quantiles: tuple[float, ...],
) -> pd.DataFrame:
    """Compare the ends of chains (n, d) with the draws (m, d) of the approximation."""
    n, size = ends.shape
    tail = (1 - level) / (2 * size)
    mean, sd = draws.mean(axis=0), draws.std(axis=0, ddof=1)
    change = (ends.mean(axis=0) - mean) / sd
    # the approximation's own mean and sd are estimated too, from many more draws
    noise = np.hypot(ends.std(axis=0, ddof=1) / np.sqrt(n), sd / np.sqrt(len(draws))) / sd
    reach = stats.t.isf(tail, n - 1) * noise
    ratio = ends.std(axis=0, ddof=1) / sd
    freedom = (n - 1) / (1 + n / len(draws))
    low, high = (np.sqrt(freedom / stats.chi2.isf(p, freedom)) for p in (tail, 1 - tail))
    columns: dict[str, Any] = {
        "mean_change": change,
        "mean_low": change - reach,
        "mean_high": change + reach,
        "sd_ratio": ratio,
        "sd_low": ratio * low,
        "sd_high": ratio * high,
    }
    for p in quantiles:
        place = stats.binom.ppf((tail, 1 - tail), n, p).astype(int)
        ordered = np.sort(ends, axis=0)[np.clip(place, 0, n - 1)]
        moved = (ordered - np.quantile(draws, p, axis=0)) / sd
        columns |= {f"q{100 * p:g}_low": moved[0], f"q{100 * p:g}_high": moved[1]}
    columns["mean_error"] = np.maximum(np.abs(change) - reach, 0.0)
    columns["sd_error"] = np.maximum(np.log(columns["sd_low"]), 0.0) + np.maximum(
        -np.log(columns["sd_high"]), 0.0
    )
    with np.errstate(invalid="ignore"):
        columns["memory"] = [
            float(np.corrcoef(starts[:, k], ends[:, k])[0, 1]) for k in range(size)
        ]
    return pd.DataFrame(columns, index=pd.Index(names, name="parameter"))
