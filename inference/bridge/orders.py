"""The orders of a mixture's kernels: a posterior with D! copies, and a proposal that has them too.

p*(x) does not change when kernels change places. A chain keeps to one order, or to some, so that a
Gaussian of its draws knows one copy only, and a bridge to it would lose the factor D! where copies are
apart, and something between where they touch. The proposal of the bridge is therefore

    q(x) = 1/D! Σ_π N(π x; μ, V)

which has every copy, whatever the draws have seen. On PyMC's scale a change of places is linear and keeps
volumes: a simplex (class, D - 1) gets its last value, minus the sum of the others, before and loses the
last after.
"""  # noqa: E501

from __future__ import annotations

from itertools import permutations
from math import factorial
from typing import Any

import numpy as np

from ardvark.errors import UnsupportedPair
from ardvark.inference.sites.arrays import Array, Index
from ardvark.models.card import card_of
from ardvark.models.mixture import MixtureCard

__all__ = ["MOST_KERNELS", "KernelOrders", "orders_of"]

MOST_KERNELS = 6
SIMPLEX = "kernel_probability"


class KernelOrders:
    """All orders of the kernels, on the unconstrained scale of a graph."""

    def __init__(self, parts: list[tuple[str, slice, tuple[int, ...]]], n_kernels: int) -> None:
        """Take name, place and shape of each variable; those with "kernel_" have kernels last."""
        self.parts, self.n_kernels = parts, n_kernels

    def __len__(self) -> int:
        return factorial(self.n_kernels)

    def _full(self, x: Array) -> Array:
        """Draws with the last value of each simplex, in the order of the parts."""
        pieces = []
        for name, part, shape in self.parts:
            piece = x[:, part]
            if name == SIMPLEX:
                values = piece.reshape(len(x), *shape)
                last = -values.sum(axis=-1, keepdims=True)
                piece = np.concatenate([values, last], axis=-1).reshape(len(x), -1)
            pieces.append(piece)
        return np.concatenate(pieces, axis=1)

    def _places(self, order: tuple[int, ...]) -> Index:
        """Where each value of the new vector is in the full one."""
        found, begin = [], 0
        for name, part, shape in self.parts:
            size = part.stop - part.start
            if name == SIMPLEX:
                rows = np.arange(begin, begin + shape[0] * self.n_kernels).reshape(shape[0], -1)
                found.append(rows[:, list(order)][:, :-1].ravel())
                begin += rows.size
                continue
            places = np.arange(begin, begin + size)
            if name in ("kernel_mean", "kernel_precision"):
                places = places.reshape(shape)[:, list(order)].ravel()
            found.append(places)
            begin += size
        return np.concatenate(found)

    def moved(self, x: Array) -> Any:
        """Yield draws (n, d) in every order."""
        full = self._full(x)
        for order in permutations(range(self.n_kernels)):
            yield full[:, self._places(order)]


def orders_of(model: Any, target: Any) -> KernelOrders | None:
    """Give the orders of a mixture at a given subset; None of any other model."""
    card = card_of(model)
    if not isinstance(card, MixtureCard) or card.prior is None:
        return None
    if card.prior.n_kernels > MOST_KERNELS:
        raise UnsupportedPair(
            f"bridge: {card.prior.n_kernels} kernels have too many orders, {MOST_KERNELS} are the "
            "most. Use SMC() for the evidence."
        )
    names = [rv.name for rv in target.variables]
    parts = list(zip(names, target.parts, target.shapes, strict=True))
    return KernelOrders(parts, card.prior.n_kernels)
