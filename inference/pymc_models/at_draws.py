"""Graphs of a model at many draws of its free variables: one call for all, compiled once.

PyMC goes from draw to draw, and compiles anew for every tree. Here the graph gets one more axis in
front, in blocks of as many draws as memory allows, and the function is kept with the model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
from pymc.logprob.basic import conditional_logp
from pytensor.graph.replace import vectorize_graph

from ardvark.inference.pymc_models.compile import compile_graph, kept_with, named_tensor
from ardvark.inference.sites.arrays import Array

__all__ = ["at_draws", "log_likelihood_at", "log_terms"]

_NUMBERS = 4 * 10**6  # of a block: a kernel has rows x rows of them for each draw
type Values = Mapping[Any, Any]  # a free variable -> what stands for its value


def at_draws(
    model: Any, key: Hashable, build: Callable[[Values], list[Any]], draws: Mapping[str, Array]
) -> list[Array]:
    """Values (S, ...) of the graphs that `build` makes, at draws (S, ...) of the free variables.

    `build` is called once for a model and a `key`.
    """
    function, ndims = kept_with(model, ("at draws", key), lambda: _compiled(model, build))
    ordered = [np.asarray(draws[rv.name], rv.dtype) for rv in model.free_RVs]
    count, start, size = len(ordered[0]), 0, 1
    blocks = []
    while start < count:
        block = [values[start : start + size] for values in ordered]
        of_block = zip(map(np.asarray, function(*block)), ndims, strict=True)
        blocks.append([_whole(value, ndim, len(block[0])) for value, ndim in of_block])
        start += size
        widest = max(value[0].size for value in blocks[0])
        size = max(1, _NUMBERS // max(widest**2, 1))
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def log_terms(model: Any, values: Values) -> tuple[list[Any], list[Any]]:
    """Log densities, elementwise, of the free and of the observed variables; no Jacobian."""
    seen = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    terms = conditional_logp({**values, **seen})
    return [terms[v] for v in values.values()], [terms[v] for v in seen.values()]


def log_likelihood_at(model: Any, draws: Mapping[str, Array]) -> dict[str, Array]:
    """Elementwise log likelihood (S, ...) of every observed variable."""
    found = at_draws(model, "log likelihood", lambda values: log_terms(model, values)[1], draws)
    return {rv.name: value for rv, value in zip(model.observed_RVs, found, strict=True)}


def _compiled(
    model: Any, build: Callable[[Values], list[Any]]
) -> tuple[Callable[..., list[Array]], list[int]]:
    single = {rv: rv.clone() for rv in model.free_RVs}
    outputs = build(single)
    batch = [named_tensor(f"{v.name}_draws", v.dtype, (None,) * (v.ndim + 1)) for v in single]
    every = vectorize_graph(outputs, dict(zip(single.values(), batch, strict=True)))
    return compile_graph(batch, every), [output.ndim for output in outputs]


def _whole(value: Array, ndim: int, count: int) -> Array:
    """A value for each draw, also where it is the same in all."""
    return value if value.ndim > ndim else np.broadcast_to(value, (count, *value.shape))
