"""Which subsets of the inputs, read from a result tree: probabilities, pairs, sets, with errors.

| question | function |
|---|---|
| how probable is each subset? | `subsets` |
| how probable is each input? | `inclusion`: counted, and Rao-Blackwellised where the tree has it |
| how many inputs? | `subset_sizes` |
| which one subset, if one must be named? | `chosen_subsets`: the most probable, the median one |
| which inputs go together, which replace each other? | `joint_inclusion`, `replacements` |
| of which inputs is at least one needed? | `credible_sets` |

The median probability subset holds the inputs whose probability exceeds 1/2; for prediction by one
linear model it is often better than the most probable one (Barbieri & Berger 2004). Whether the
chains can be trusted at all is asked in `subset_checks.py`.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.reading import (
    constant_columns,
    draws_of,
    element_labels,
    group_variables,
    sampling_kind,
)
from ardvark.errors import InputError
from ardvark.inference.arguments import check_tree
from ardvark.inference.samplers.chain_statistics import ess_mean
from ardvark.inference.sites.arrays import Array, Mask
from ardvark.inference.tally import tally
from ardvark.models.checks import positive_integer

__all__ = [
    "chosen_subsets",
    "credible_sets",
    "inclusion",
    "indicators",
    "joint_inclusion",
    "mean_and_error",
    "of_moving",
    "replacements",
    "subset_sizes",
    "subsets",
]


def subsets(tree: xr.DataTree) -> pd.DataFrame:
    """List the visited subsets of features, the most probable first.

    Returns
    -------
    DataFrame with the columns ``features`` (tuple of names), ``probability`` and ``mcse``,
    its Monte Carlo error: as the sampler gave it; else from the stored draws.
    """
    check_tree(tree, group=None)
    if "subsets" in tree.children:
        group = tree["subsets"].dataset
        included = group["included"].transpose("subset", ...)
        probability = group["probability"].to_numpy()
        mcse = group["mcse"].to_numpy() if "mcse" in group else np.full(len(probability), np.nan)
        patterns = included.to_numpy().astype(bool)
        names = element_labels(included.isel(subset=0, drop=True))
    else:
        names, drawn = indicators(tree)
        patterns, probability, mcse = tally(drawn, independent=sampling_kind(tree) == "iid")
    order = np.argsort(-probability, kind="stable")
    features = [
        tuple(name for name, on in zip(names, patterns[i], strict=True) if on) for i in order
    ]
    table = {"features": features, "probability": probability[order], "mcse": mcse[order]}
    return pd.DataFrame(table)


def inclusion(tree: xr.DataTree) -> pd.DataFrame:
    """Posterior probability of each input.

    Returns
    -------
    DataFrame, index = feature name, columns

    - ``counted`` and ``mcse``: the share of the draws that have it;
    - ``rao_blackwell`` and ``mcse_rao_blackwell``: the mean of its probability given the other
      inputs, over all sweeps, with less noise; NaN where the sampler has no such estimate;
    - ``ess``: effective number of draws of the indicator (NaN if it never changed).

    After an enumeration ``counted`` is the exact probability and its error is 0.
    """
    names, drawn = indicators(tree)
    counted, error, ess = mean_and_error(drawn.astype(float), tree)
    group = tree["subsets"].dataset if "subsets" in tree.children else None
    if group is not None and sampling_kind(tree) == "iid":  # all subsets are there
        exact = group["probability"].to_numpy() @ group["included"].to_numpy().astype(float)
        counted, error = exact, np.zeros(len(names))
    rao = rao_error = np.full(len(names), np.nan)
    stats = group_variables(tree, "sample_stats")
    if "inclusion_probability" in stats:
        rao, rao_error, _ = mean_and_error(draws_of(stats["inclusion_probability"]), tree)
    return pd.DataFrame(
        {
            "counted": counted,
            "mcse": error,
            "rao_blackwell": rao,
            "mcse_rao_blackwell": rao_error,
            "ess": ess,
        },
        index=pd.Index(names, name="feature"),
    )


def subset_sizes(tree: xr.DataTree) -> pd.DataFrame:
    """Posterior probability of each number of inputs, index = size, with its Monte Carlo error."""
    _, drawn = indicators(tree)
    size = drawn.sum(axis=2)
    levels = np.arange(size.max() + 1)
    probability, mcse, _ = mean_and_error((size[..., None] == levels).astype(float), tree)
    if "subsets" in tree.children and sampling_kind(tree) == "iid":  # all subsets are there
        group = tree["subsets"].dataset
        sizes = group["included"].transpose("subset", ...).to_numpy().sum(axis=1)
        probability = np.bincount(sizes.astype(int), weights=group["probability"].to_numpy())
        levels, mcse = np.arange(len(probability)), np.zeros(len(probability))
    index = pd.Index(levels, name="size")
    return pd.DataFrame({"probability": probability, "mcse": mcse}, index=index)


def chosen_subsets(tree: xr.DataTree) -> pd.DataFrame:
    """The most probable subset, and the median probability subset (each input above 1/2)."""
    table, chances = subsets(tree), inclusion(tree)
    best = chances["rao_blackwell"].fillna(chances["counted"])
    median = tuple(best.index[best > 0.5])
    same = table["features"] == median
    rows = {
        "highest probability": table.iloc[0],
        "median probability": table[same].iloc[0]
        if same.any()
        else pd.Series({"features": median, "probability": 0.0, "mcse": np.nan}),
    }
    return pd.DataFrame(rows).T


def joint_inclusion(tree: xr.DataTree) -> pd.DataFrame:
    """P(both included) for each pair of inputs; the diagonal has P(included)."""
    names, drawn = indicators(tree)
    flat = drawn.reshape(-1, len(names)).astype(float)
    index = pd.Index(names, name="feature")
    return pd.DataFrame(flat.T @ flat / len(flat), index=index, columns=index)


def replacements(tree: xr.DataTree, most: int = 10) -> pd.DataFrame:
    """Pairs of inputs that replace each other: seldom together, often one of the two.

    Returns
    -------
    DataFrame with ``first``, ``second``, P(``both``), P(``either``), ``one`` = P(exactly one) and
    the ``correlation`` of the two indicators: the most negative first, no positive ones.
    """
    joint = joint_inclusion(tree)
    names, p = list(joint.index), np.diag(joint.to_numpy())
    sd = np.sqrt(np.maximum(p * (1 - p), 1e-300))
    correlation = (joint.to_numpy() - np.outer(p, p)) / np.outer(sd, sd)
    first, second = np.triu_indices(len(names), 1)
    value = correlation[first, second]
    both = joint.to_numpy()[first, second]
    table = pd.DataFrame(
        {
            "first": np.array(names)[first],
            "second": np.array(names)[second],
            "both": both,
            "either": p[first] + p[second] - both,
            "one": p[first] + p[second] - 2 * both,
            "correlation": value,
        }
    )
    negative = table[(value < 0) & (table["one"] > 0)]
    order = negative["correlation"].sort_values(kind="stable").index
    ranked: pd.DataFrame = negative.loc[order].reset_index(drop=True)
    return ranked.head(positive_integer(most, "most"))


def credible_sets(tree: xr.DataTree, level: float = 0.9) -> pd.DataFrame:
    """Sets of inputs of which, with probability ``level``, at least one is in the model.

    Each set begins with the most probable input that is in none yet, and takes in what adds most to
    the probability that one of them is included; a set that does not reach the level is no set.
    Inputs that replace each other come together so, though none of them may be probable alone.

    Returns
    -------
    DataFrame with ``features`` (tuple, the most probable first), ``probability`` and ``mcse``.
    """
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level!r}.")
    names, drawn = indicators(tree)
    free = list(np.argsort(-drawn.mean(axis=(0, 1)), kind="stable"))
    found = []
    while free:
        members = [free.pop(0)]
        covered = drawn[..., members[0]].copy()
        while covered.mean() < level and free:
            gains = [(drawn[..., j] & ~covered).mean() for j in free]
            best = int(np.argmax(gains))
            if gains[best] == 0:
                break
            covered |= drawn[..., free[best]]
            members.append(free.pop(best))
        if covered.mean() < level:
            break  # what is left is less probable still
        p, mcse, _ = mean_and_error(covered[..., None].astype(float), tree)
        features = tuple(names[j] for j in members)
        found.append({"features": features, "probability": p[0], "mcse": mcse[0]})
    return pd.DataFrame(found, columns=["features", "probability", "mcse"])


# ------------------------------------------------------------------------------ draws and errors


def indicators(tree: xr.DataTree) -> tuple[list[str], Mask]:
    """Names of the inputs and their indicators (chain, draw, feature)."""
    check_tree(tree, group=None)
    if "posterior" not in tree.children or "included" not in tree["posterior"].data_vars:
        raise InputError(
            "subsets: this tree has neither a group `subsets` nor a posterior variable `included`"
            f" (method {tree.attrs.get('method', 'unknown')!r}). Fit a model that switches features"
            " on and off (a subset model by reversible jump), or use relevance(tree)."
        )
    variable = tree["posterior"].dataset["included"]
    return element_labels(variable), draws_of(variable) != 0


def effective_draws(draws: Array) -> Array:
    """Effective sample size of the mean of each element of (chain, draw, element)."""
    return of_moving(ess_mean, draws)


def of_moving(statistic: Callable[[Array], Array], draws: Array) -> Array:
    """A statistic of each element of (chain, draw, element) that moves; NaN of the others."""
    moving = ~constant_columns(draws)
    found = np.full(draws.shape[2], np.nan)
    found[moving] = statistic(draws[..., moving])
    return found


def mean_and_error(draws: Array, tree: xr.DataTree) -> tuple[Array, Array, Array]:
    """Mean, Monte Carlo error and effective draws of each element of (chain, draw, element)."""
    number = draws.shape[0] * draws.shape[1]
    moving = ~constant_columns(draws)
    iid = sampling_kind(tree) == "iid"
    ess = np.where(moving, float(number), np.nan) if iid else effective_draws(draws)
    sd = draws.std(axis=(0, 1), ddof=1) if number > 1 else np.zeros(draws.shape[2])
    with np.errstate(invalid="ignore"):
        error = np.where(moving, sd / np.sqrt(ess), 0.0)
    return draws.mean(axis=(0, 1)), error, ess
