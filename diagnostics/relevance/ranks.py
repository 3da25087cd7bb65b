"""Do two fits rank the inputs alike? Kendall's tau and the overlap of the first, beside chance.

| figure | formula |
|---|---|
| tau | Kendall's tau-b: (concordant - discordant) pairs / sqrt of untied pairs of both |
| overlap | share of the first k inputs of one that are among the first k of the other |
| chance | what two rankings at random have in common on average: k / d |

An input of no relevance is not among the first k, so a fit that keeps m < k has only m, and the
chance with it is m / d.

Errors are Monte Carlo errors: what another run of the same length would change (`compare.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.relevance.compare import Fit, Relevances, moved, read_relevances
from ardvark.inference.sites.arrays import Array
from ardvark.models.checks import Seed, as_seed, positive_integer

__all__ = ["agreement_table", "rank_agreement"]


TINY = 1e-9  # relevance: less is none


def rank_agreement(
    trees: Mapping[str, xr.DataTree],
    *,
    k: int = 5,
    of: str | None = None,
    resamples: int = 200,
    random_seed: Seed = 0,
) -> pd.DataFrame:
    """How far the rankings of each pair of fits agree.

    Parameters
    ----------
    k
        How many of the first inputs are compared (at most all of them).
    of, resamples, random_seed
        As in ``compare_relevance``.

    Returns
    -------
    DataFrame, a row per pair: ``first``, ``second``, ``inputs`` (that both have), ``tau`` with its
    Monte Carlo error ``tau_error``, ``p_value`` of no association, ``k``, ``overlap`` with
    ``overlap_error``, and ``chance``, the overlap of rankings at random. A tau of a ranking that is
    one tie is missing.
    """
    found = read_relevances(trees, of)
    rng = np.random.default_rng(as_seed(random_seed))
    count = positive_integer(resamples, "resamples")
    return agreement_table(found, positive_integer(k, "k"), rng, count)


def agreement_table(
    found: Relevances, k: int, rng: np.random.Generator, resamples: int
) -> pd.DataFrame:
    """Compare each pair of rankings that were read."""
    fits = found.fits
    pairs = [
        {"first": a, "second": b, **_pair(fits[a], fits[b], k, rng, resamples)}
        for a, b in combinations(fits, 2)
    ]
    return pd.DataFrame(pairs, columns=_PAIR)


def _pair(
    first: Fit, second: Fit, k: int, rng: np.random.Generator, resamples: int
) -> dict[str, float]:
    """Hold two rankings of the inputs that both have against each other."""
    shared = [label for label in first[0].index if label in second[0].index]
    values, others = [], []
    for table, batches in (first, second):
        values.append(table["relevance"][shared].to_numpy(float))
        columns = table.index.get_indexer(pd.Index(shared))
        others.append(moved(values[-1], batches[:, columns], rng, resamples))
    tau, overlap, p_value = _agreement(values[0], values[1], k)
    errors = np.array([_agreement(a, b, k)[:2] for a, b in zip(*others, strict=True)])
    size = min(k, len(shared))
    tops = [len(_first(value, size)) for value in values]
    return {
        "inputs": len(shared),
        "tau": tau,
        "tau_error": errors[:, 0].std(),
        "p_value": p_value,
        "k": size,
        "overlap": overlap,
        "overlap_error": errors[:, 1].std(),
        "chance": tops[0] * tops[1] / (size * len(shared)) if shared else np.nan,
    }


_PAIR = [
    *("first", "second", "inputs", "tau", "tau_error", "p_value"),
    *("k", "overlap", "overlap_error", "chance"),
]


def _agreement(first: Array, second: Array, k: int) -> tuple[float, float, float]:
    """Kendall's tau-b, the overlap of the first k, and the p-value of the tau."""
    from scipy.stats import kendalltau

    size = min(k, len(first))
    if not size:
        return np.nan, np.nan, np.nan
    overlap = len(_first(first, size) & _first(second, size)) / size
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return np.nan, overlap, np.nan
    found = kendalltau(first, second)
    return float(found.statistic), overlap, float(found.pvalue)


def _first(values: Array, size: int) -> set[int]:
    """The first inputs; one of no relevance is not among them, however few there are."""
    return {j for j in np.argsort(-values, kind="stable")[:size].tolist() if values[j] > TINY}
