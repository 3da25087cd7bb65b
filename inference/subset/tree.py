"""What a walk over subsets leaves in the tree: each subset with its probability, each jump.

| group | what is in it |
|---|---|
| `subsets` | (subset): `included` (feature), `probability`, `mcse`; `attrs["visited"]` |
| `sample_stats` | by draw: `n_inputs`; `inclusion_probability`, P(included given the others) |
| | by chain, move and size before the move: `tried`, `accepted` |

All sweeps count for `subsets`, not only those whose weights are kept. Its errors are those of batch
means: BATCHES stretches of each chain, taken as independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from ardvark.inference.samplers.convergence import RHAT_MAX, rhat_problems
from ardvark.inference.sites.likelihoods import Array

__all__ = ["jump_counts", "subset_problems", "subsets_group", "tally"]

BATCHES = 25
MOST_KEPT = 20000  # subsets in the tree: the most probable
SELDOM = 0.01  # indicators nearer to 0 or 1 have too few changes for an R-hat


def tally(visited: Array) -> tuple[Array, Array, Array]:
    """Distinct subsets of (chain, sweep, feature) indicators, the most probable first.

    Returns their indicators (subset, feature), probabilities and batch-means errors.
    """
    chains, sweeps, features = visited.shape
    packed = np.packbits(visited.reshape(-1, features).astype(bool), axis=1)
    words = np.ascontiguousarray(packed).view([("", packed.dtype)] * packed.shape[1]).ravel()
    _, first, which = np.unique(words, return_index=True, return_inverse=True)
    batch = np.repeat(np.arange(chains) * BATCHES, sweeps)
    batch += np.tile(np.arange(sweeps) * BATCHES // sweeps, chains)
    lengths = np.bincount(batch, minlength=chains * BATCHES)
    count = np.bincount(which, minlength=len(first))
    probability = count / (chains * sweeps)
    cells, cell_count = np.unique(which * (chains * BATCHES) + batch, return_counts=True)
    subset, at = np.divmod(cells, chains * BATCHES)
    used = lengths > 0
    n, share = int(used.sum()), cell_count / lengths[at]
    square = np.bincount(subset, weights=share**2, minlength=len(first))
    mean = np.bincount(subset, weights=share, minlength=len(first)) / n
    error = np.sqrt(np.maximum(square / n - mean**2, 0.0) / max(n - 1, 1))
    order = np.lexsort((first, -count))
    indicators = visited.reshape(-1, features)[first[order]].astype(bool)
    return indicators, probability[order], error[order]


def subsets_group(visited: Array, names: Sequence[str]) -> xr.Dataset:
    """The `subsets` group of a sampler."""
    included, probability, mcse = tally(visited)
    return xr.Dataset(
        {
            "included": (("subset", "feature"), included[:MOST_KEPT]),
            "probability": ("subset", probability[:MOST_KEPT]),
            "mcse": ("subset", mcse[:MOST_KEPT]),
        },
        coords={"feature": np.array(names)},
        attrs={"visited": len(probability), "sweeps": int(visited.shape[0] * visited.shape[1])},
    )


def jump_counts(moves: Array, names: Sequence[str]) -> xr.Dataset:
    """Jumps `tried` and `accepted`, from counts (chain, move, size, 2)."""
    used = np.flatnonzero(moves.sum(axis=(0, 1, 3)))
    moves = moves[:, :, : (used[-1] + 1 if used.size else 1)]
    dims = ("chain", "move", "size")
    return xr.Dataset(
        {"tried": (dims, moves[..., 0]), "accepted": (dims, moves[..., 1])},
        coords={"move": np.array(names), "size": np.arange(moves.shape[2])},
    )


def subset_problems(
    included: Array, others: dict[str, Array], names: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """What speaks against the chains: R-hat of the size, of each indicator, of other scalars.

    `included` is (chain, draw, feature), each of `others` (chain, draw).
    """
    share = included.mean(axis=(0, 1))
    moving = np.flatnonzero((share > SELDOM) & (share < 1 - SELDOM))
    columns = {"number of inputs": included.sum(axis=2), **others}
    columns |= {f"included[{names[j]}]": included[:, :, j] for j in moving.tolist()}
    columns = {n: c for n, c in columns.items() if not (c == c[:1, :1]).all()}
    if not columns:  # one subset has all the probability, and nothing else is free
        return [], {"rhat_max": 1.0}
    stacked = np.stack([column.astype(float) for column in columns.values()], axis=-1)
    problems, numbers = rhat_problems(list(columns), stacked)
    if problems and numbers:
        spread = np.ptp(included.mean(axis=1), axis=0)
        worst = int(np.argmax(spread))
        problems = [
            f"the chains disagree about the subsets: R-hat {numbers['rhat_max']:.4g} is not at most"
            f" {RHAT_MAX}; P({names[worst]} included) differs by {spread[worst]:.3g} between them."
            " Raise sweeps"
        ]
    return problems, numbers
