"""The inputs of several fits side by side: relevance as each model defines it, aligned by name.

| model | its own measure of an input | column |
|---|---|---|
| ARD, softmax | precision of its weight, inf = pruned; mean and sd of the weight | `precision`, `mean`, `sd` |
| subsets, mixture | P(included), Rao-Blackwellised where the sampler can | `inclusion` |
| trigonometric SVM | kappa_a, and its share of the distance, Chu06 (16) | `kappa` |
| RVM with a scale per input | eta | `scale` |
| sample-feature machine | weight of the feature | `mean`, `sd`, `precision` |

All have `relevance` in [0, 1] and `rank`, as `relevance.py` defines them. Only ranks can be compared
between models: a relevance of 0.9 is a weight two sds from zero in one and a share in another.

Monte Carlo errors come from batches of the draws: r_b is the relevance in batch b of B, its error
sd(r_b) / sqrt(B). To see what that does to ranks and to their agreement (`ranks.py`),
batches are drawn anew with replacement, all inputs of a batch together:
r* = r + mean(r_b*) - mean(r_b).
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.reading import (
    SAMPLE_DIMS,
    WITHOUT_WEIGHTS,
    draws_of,
    moments,
    sampling_kind,
)
from ardvark.diagnostics.relevance.relevance import (
    KINDS,
    feature_variables,
    relevance,
    relevance_of_weights,
)
from ardvark.diagnostics.relevance.subsets import inclusion
from ardvark.errors import InputError
from ardvark.inference.arguments import check_trees
from ardvark.inference.pymc_models.fingerprint import require_same_data
from ardvark.inference.sites.arrays import Array
from ardvark.models.checks import Seed, as_seed, positive_integer

__all__ = [
    "Relevances",
    "batch_relevance",
    "compare_relevance",
    "moved",
    "read_relevances",
    "relevance_table",
]


BATCHES = 20  # of all chains together
LEAST = 10  # draws in a batch
COLUMNS = (
    *("mean", "sd", "precision", "kappa", "scale", "inclusion", "inclusion_mcse"),
    *("relevance", "mcse", "rank", "rank_error"),
)


def compare_relevance(
    trees: Mapping[str, xr.DataTree],
    of: str | None = None,
    *,
    resamples: int = 200,
    random_seed: Seed = 0,
) -> pd.DataFrame:
    """Put the relevance of each input in several fits into one table.

    Parameters
    ----------
    trees
        Results of ``fit`` by name, of one model or of several.
    of : "features", "samples" or "weights", optional
        As in ``relevance``. By default the inputs; fits without a relevance of inputs (an RVM with
        one width) are left out and named in ``attrs["left_out"]``, unless none has: then the
        weights.
    resamples, random_seed
        For ``rank_error``.

    Returns
    -------
    DataFrame, index = input, columns = (method, kind): what applies of ``mean``, ``sd``,
    ``precision``, ``kappa``, ``scale``, ``inclusion`` (with ``inclusion_mcse``), ``relevance`` with
    its Monte Carlo error ``mcse``, ``rank`` (1 = first) and ``rank_error``, by how much another run
    of the same length would move the rank (an sd). An input that a fit does not have is missing.
    ``attrs["rows"]`` says what the rows are.
    """
    found = read_relevances(trees, of)
    rng = np.random.default_rng(as_seed(random_seed))
    return relevance_table(found, rng, positive_integer(resamples, "resamples"))


type Fit = tuple[pd.DataFrame, Array]  # `relevance` of all draws, and of each batch


class Relevances(NamedTuple):
    """The relevances of several fits that rank the same."""

    fits: dict[str, Fit]
    inclusions: dict[str, pd.DataFrame]  # of those that have indicators
    left_out: list[str]  # fits that rank something else
    rows: str  # what is ranked


def relevance_table(found: Relevances, rng: np.random.Generator, resamples: int) -> pd.DataFrame:
    """Put relevances that were read into one table."""
    parts = {
        name: _one_fit(*fit, found.inclusions.get(name), rng, resamples)
        for name, fit in found.fits.items()
    }
    index = pd.Index(dict.fromkeys(label for part in parts.values() for label in part.index))
    frame = pd.concat({n: part.reindex(index) for n, part in parts.items()}, axis=1)
    frame = frame.rename_axis(index="input", columns=["method", "kind"])
    frame.attrs |= {"left_out": found.left_out, "rows": found.rows}
    return frame


def read_relevances(trees: Mapping[str, xr.DataTree], of: str | None = None) -> Relevances:
    """Read the relevances of several fits and their batches."""
    check_trees(trees)
    require_same_data(trees, inputs=False)
    if of not in (None, *KINDS):
        raise InputError(f"of must be one of {', '.join(KINDS)}, or None; got {of!r}.")
    tables = {name: relevance(tree, of) for name, tree in trees.items()}
    rows, left = of or "features", list[str]()
    if of is None:
        left = [name for name, table in tables.items() if not _ranks_inputs(trees[name], table)]
        if len(left) == len(trees):
            rows, left = "weights", []
    kept = [name for name in trees if name not in left]
    fits = {name: (tables[name], batch_relevance(trees[name], of)) for name in kept}
    counted = [name for name in kept if "included" in trees[name]["posterior"].data_vars]
    return Relevances(fits, {name: inclusion(trees[name]) for name in counted}, left, rows)


def input_names(tree: xr.DataTree) -> list[str]:
    """Names of the inputs that a tree knows of, [] if it has none."""
    for group in ("constant_data", "posterior"):
        if group in tree.children and "feature" in tree[group].coords:
            return [str(name) for name in tree[group].coords["feature"].to_numpy()]
    return []


def _ranks_inputs(tree: xr.DataTree, table: pd.DataFrame) -> bool:
    names = input_names(tree)
    return not names or set(table.index) <= set(names)


def _one_fit(
    table: pd.DataFrame,
    batches: Array,
    chances: pd.DataFrame | None,
    rng: np.random.Generator,
    resamples: int,
) -> pd.DataFrame:
    """Complete the table of one fit by errors, and by the better estimate of an inclusion."""
    values = table["relevance"].to_numpy()
    ranks = _ranks(moved(values, batches, rng, resamples))
    spread = batches.std(axis=0, ddof=1) if len(batches) > 1 else np.full(len(values), np.nan)
    mcse = spread / np.sqrt(len(batches))
    table = table.assign(mcse=mcse, rank_error=ranks.std(axis=0))
    if chances is not None and set(table.index) <= set(chances.index):
        chances = chances.loc[table.index]
        best = chances["rao_blackwell"].fillna(chances["counted"])
        error = chances["mcse_rao_blackwell"].fillna(chances["mcse"])
        table = table.assign(inclusion=best, inclusion_mcse=error)
    return table[[column for column in COLUMNS if column in table]]


# ------------------------------------------------------------------------------ Monte Carlo error


def batch_relevance(tree: xr.DataTree, of: str | None = None) -> Array:
    """Relevance (batch, input) in parts of the draws, each within one chain."""
    chains, draws = (tree["posterior"].sizes[dim] for dim in SAMPLE_DIMS)
    blocks = max(1, min(-(-BATCHES // chains), draws // LEAST))
    bounds = np.linspace(0, draws, blocks + 1).astype(int)
    parts = [
        (slice(chain, chain + 1), slice(start, stop))
        for chain in range(chains)
        for start, stop in pairwise(bounds)
    ]
    posterior = tree["posterior"].to_dataset()
    if "precision" in relevance(tree, of) and "feature_term" not in posterior.dims:
        weights = [draws_of(posterior[name]) for name in feature_variables(tree)]
        all_weights = np.concatenate(weights, axis=2)
        return np.array([relevance_of_weights(*moments(all_weights[part])) for part in parts])
    kept = {"fit", "constant_data", "optima"} & set(tree.children)
    if tree.attrs.get("model") in WITHOUT_WEIGHTS and sampling_kind(tree) == "mcmc":
        kept -= {"fit"}  # its inclusion is over all draws: here each batch counts its own
    groups = {name: tree[name].to_dataset() for name in kept}
    found = []
    for chain, draw in parts:
        part = posterior.isel(chain=chain, draw=draw)
        light = xr.DataTree.from_dict({**groups, "posterior": part})
        light.attrs = tree.attrs
        found.append(relevance(light, of)["relevance"].to_numpy())
    return np.array(found)


def moved(values: Array, batches: Array, rng: np.random.Generator, resamples: int) -> Array:
    """Relevances (resample, input) as other runs of the same length would have given them."""
    count = len(batches)
    often = rng.multinomial(count, np.full(count, 1 / count), size=resamples)  # each batch drawn
    return np.asarray(values + often @ batches / count - batches.mean(axis=0))


def _ranks(values: Array) -> Array:
    """Ranks 1.. of each row, the largest first, ties shared."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(-np.round(values, 12), axis=-1))
