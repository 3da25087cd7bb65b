"""Groups of correlated columns, and the relevance of a group as one.

Of two columns that are nearly equal a model needs one. Each then has a probability of about a half
of being included, or a wide weight, and looks like nothing; the group has it all.

| figure | formula |
|---|---|
| group | complete linkage on 1 - |corr|: all pairs of a group have |corr| above the limit |
| VIF of column j | 1 / (1 - R²_j) = j-th diagonal of the inverse correlation matrix |
| inclusion of G | P(at least one of G is included), from the same draws as P(j included) |
| relevance of G | sqrt(q / (1 + q)), q = m' V⁻¹ m, of mean m and covariance V of the weights of G |

With one member the relevance of a group is that of the input, |m| / sqrt(m² + v); with more it is
that of the direction in which the group is farthest from zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.reading import draws_of, element_labels, group_variables, weight_variables
from ardvark.diagnostics.relevance.subsets import indicators, mean_and_error
from ardvark.diagnostics.words import listed
from ardvark.errors import InputError
from ardvark.inference.arguments import check_tree
from ardvark.inference.sites.arrays import Array, Mask
from ardvark.models.inputs import as_inputs

__all__ = ["correlated_groups", "group_relevance", "groupable"]


LIMIT = 0.7  # |corr|: half of the variance in common
GROUP_COLUMNS = ["features", "size", "least_correlation", "largest_inflation"]


def correlated_groups(X: Any, limit: float = LIMIT) -> pd.DataFrame:
    """Group the columns of a table that are correlated with each other.

    Parameters
    ----------
    X
        A table with or without names, or a Dataset.
    limit
        All pairs in a group have an absolute correlation of at least this.

    Returns
    -------
    DataFrame, a row per group of two or more, the largest first: ``features`` (tuple), ``size``,
    ``least_correlation`` (absolute, of its pairs) and ``largest_inflation``, the variance inflation
    within the group (inf = one is a sum of the others).
    """
    if not 0 < limit <= 1:
        raise InputError(f"limit must be above 0 and not above 1, got {limit!r}.")
    inputs = as_inputs(X.X if hasattr(X, "feature_names") and hasattr(X, "X") else X)
    correlation = _correlation(np.asarray(inputs))
    rows: list[dict[str, Any]] = []
    for members in _clusters(np.abs(correlation), limit):
        block = correlation[np.ix_(members, members)]
        pairs = np.abs(block[np.triu_indices(len(members), 1)])
        rows.append(
            {
                "features": tuple(inputs.feature_names[j] for j in members),
                "size": len(members),
                "least_correlation": float(pairs.min()),
                "largest_inflation": float(_inflation(block).max()),
            }
        )
    rows.sort(key=lambda row: (-row["size"], -row["least_correlation"]))
    return pd.DataFrame(rows, columns=GROUP_COLUMNS)


def _correlation(X: Array) -> Array:
    """Correlations; a constant column has none with any other."""
    centred = X - X.mean(axis=0)
    size = np.sqrt(np.square(centred).sum(axis=0))
    constant = np.ptp(X, axis=0) == 0
    unit = np.divide(centred, size, out=np.zeros_like(centred), where=~constant)
    correlation: Array = np.clip(unit.T @ unit, -1.0, 1.0)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _clusters(similarity: Array, limit: float) -> list[list[int]]:
    from scipy.cluster.hierarchy import fcluster, linkage

    size = len(similarity)
    if size < 2:
        return []
    distance = (1.0 - similarity)[np.triu_indices(size, 1)]
    tree = linkage(np.maximum(distance, 0.0), method="complete")
    labels = fcluster(tree, 1.0 - limit + 1e-12, criterion="distance")
    groups = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
    return [members for members in groups if len(members) > 1]


def _inflation(correlation: Array) -> Array:
    values, vectors = np.linalg.eigh(correlation)
    null = values < 1e-10 * len(values)
    inverse = np.square(vectors[:, ~null]) @ (1.0 / values[~null])
    touched = np.square(vectors[:, null]).sum(axis=1) > 1e-10
    return np.where(touched, np.inf, inverse)


# ------------------------------------------------------------------------- their relevance in a fit


def group_relevance(tree: xr.DataTree, groups: Any = None, limit: float = LIMIT) -> pd.DataFrame:
    """Relevance of groups of inputs, each taken as one.

    Parameters
    ----------
    groups
        What ``correlated_groups`` gave, or a list of lists of names; by default the groups of the
        tree's own inputs, correlated above ``limit``.

    Returns
    -------
    DataFrame, one row per group: ``features``; where the fit has subsets, ``inclusion`` =
    P(at least one) with ``mcse``, ``largest_alone``, the largest inclusion of a member, and
    ``together``, how many are included on average when any is; where it has weights,
    ``relevance`` of the group and ``largest_relevance`` of a member.
    """
    check_tree(tree)
    sets = _as_sets(tree, groups, limit)
    rows: list[dict[str, Any]] = [{"features": features} for features in sets]
    if "included" in tree["posterior"].data_vars:
        names, drawn = indicators(tree)
        for row, features in zip(rows, sets, strict=True):
            row |= _group_inclusion(tree, drawn[..., _columns(features, names)])
    weights = _input_weights(tree)
    if weights is not None:
        for row, features in zip(rows, sets, strict=True):
            row |= _joint_relevance(weights[1][..., _columns(features, weights[0])])
    if sets and len(rows[0]) == 1:
        raise InputError(
            "group_relevance: this fit has neither indicators nor weights of inputs (model"
            f" {tree.attrs.get('model', 'unknown')!r}). Its inputs have a relevance one by"
            " one only: av.relevance(tree)."
        )
    return pd.DataFrame(rows, columns=None if rows else ["features"])


def groupable(tree: xr.DataTree) -> list[str]:
    """Names of the inputs that can be grouped; [] for kappas and scales."""
    if "included" in tree["posterior"].data_vars:
        return indicators(tree)[0]
    weights = _input_weights(tree)
    return [] if weights is None else weights[0]


def _as_sets(tree: xr.DataTree, groups: Any, limit: float) -> list[tuple[str, ...]]:
    if groups is None:
        constants = group_variables(tree, "constant_data")
        if "X" not in constants or constants["X"].ndim != 2:
            raise InputError("groups: the tree keeps no table `X` in `constant_data`; give groups.")
        table = constants["X"]
        names = element_labels(table.isel({table.dims[0]: 0}, drop=True))
        groups = correlated_groups(pd.DataFrame(table.to_numpy(), columns=names), limit)
    if isinstance(groups, pd.DataFrame):
        groups = groups["features"]
    return [tuple(map(str, features)) for features in groups]


def _columns(features: tuple[str, ...], names: list[str]) -> list[int]:
    for name in features:
        if name not in names:
            raise InputError(
                f"groups name {name!r}, which is no input of this fit; they are {listed(names, 9)}."
            )
    return [names.index(name) for name in features]


def _group_inclusion(tree: xr.DataTree, drawn: Mask) -> dict[str, float]:
    any_of = drawn.any(axis=2, keepdims=True)
    probability, mcse, _ = mean_and_error(any_of.astype(float), tree)
    number = drawn.sum(axis=2)[any_of[..., 0]]
    return {
        "inclusion": float(probability[0]),
        "mcse": float(mcse[0]),
        "largest_alone": float(drawn.mean(axis=(0, 1)).max()),
        "together": float(number.mean()) if number.size else np.nan,
    }


def _input_weights(tree: xr.DataTree) -> tuple[list[str], Array] | None:
    """Names and draws of the one block of weights that belongs to the inputs."""
    posterior = tree["posterior"].dataset
    for name in weight_variables(tree):
        if posterior[name].dims[2:] in (("feature",), ("feature_term",)):
            return element_labels(posterior[name]), draws_of(posterior[name])
    return None


def _joint_relevance(draws: Array) -> dict[str, float]:
    flat = draws.reshape(-1, draws.shape[2])
    mean, centred = flat.mean(axis=0), flat - flat.mean(axis=0)
    covariance = centred.T @ centred / (len(flat) - 1)
    variance = np.diag(covariance)
    alone = np.divide(mean**2, variance, out=np.zeros_like(mean), where=variance > 0)
    joint = float(mean @ np.linalg.pinv(covariance, rcond=1e-10, hermitian=True) @ mean)
    q = np.array([max(joint, 0.0), alone.max()])
    group, member = np.sqrt(q / (1 + q))
    return {"relevance": float(group), "largest_relevance": float(member)}
