"""The columns of a design, all there or made when they are needed."""

from collections.abc import Callable, Iterator

import numpy as np

from ardvark.inference.sites.arrays import Array, Index

__all__ = ["Columns", "Dense"]


class Columns:
    """Columns that are made when they are needed: `make(indices)` gives (N, len(indices)).

    Products with all columns are made `chunk` columns at a time; the first chunks are kept, as far
    as `memory` (bytes) allows.
    """

    def __init__(
        self,
        make: Callable[[Index], Array],
        shape: tuple[int, int],
        *,
        chunk: int = 1024,
        memory: float = 2.5e8,
    ) -> None:
        self.make, self.shape, self.chunk = make, shape, chunk
        self._keep = int(memory / (8.0 * max(shape[0] * chunk, 1)))
        self._kept: dict[int, Array] = {}

    def chunks(self) -> Iterator[tuple[slice, Array]]:
        """All columns, some at a time."""
        for begin in range(0, self.shape[1], self.chunk):
            here = slice(begin, min(begin + self.chunk, self.shape[1]))
            block = self._kept.get(begin)
            if block is None:
                block = np.asarray(self.make(np.arange(here.start, here.stop)), float)
                if len(self._kept) < self._keep:
                    self._kept[begin] = block
            yield here, block

    def some(self, indices: Index) -> Array:
        """Some columns, in ascending order: taken from a chunk that is kept, if one has them all.

        A kernel costs more than to gather its columns. Read only: they may be the chunk itself.
        """
        begin = int(indices[0]) // self.chunk * self.chunk if indices.size else -1
        block = self._kept.get(begin)
        if block is None or indices[-1] >= begin + self.chunk:
            return np.asarray(self.make(indices), float)
        if indices.size == block.shape[1]:  # all of it: the first touch of a copy is what costs
            return block
        return np.asarray(block.take(indices - begin, axis=1))


class Dense(Columns):
    """Columns of an array: one chunk."""

    def __init__(self, projection: Array) -> None:
        projection = np.asarray(projection, float)
        if projection.ndim != 2:
            raise ValueError(f"projection must be (N, d), got {projection.shape}")
        super().__init__(lambda indices: projection.take(indices, axis=1), projection.shape)
        self._projection = projection

    def chunks(self) -> Iterator[tuple[slice, Array]]:
        """The array itself."""
        yield slice(0, self.shape[1]), self._projection
