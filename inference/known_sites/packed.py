"""The parts of a log density of weights and hyperparameters, and two blocks that hold them all.

What the parts mean is told in `joint_density.py`, which evaluates them. A sampler without an
interpreter is told one address, so `pack` puts every array into one of two blocks, of whole and of
floating-point numbers; `unpacked` cuts the blocks into the parts again, in machine code.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ardvark.inference.known_sites.kernels import BASE_PRECISION, CONSTANT, LOGISTIC, PROBIT
from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array

__all__ = ["Groups", "JointDensity", "Normals", "Packed", "Rows", "Singles", "Sparse", "pack"]

Indices = NDArray[np.int64]
THIN = 0.1  # share of entries that are not zero, up to which they are taken one by one


class Sparse(NamedTuple):
    """A sparse matrix: row i has `value[start[i]:start[i + 1]]` in the columns `at`."""

    start: Indices
    at: Indices
    value: Array


NOTHING = Sparse(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0))


class Rows(NamedTuple):
    """Sites of eta = A z + o, their noise levels (-1 = none), and the levels of the columns.

    A is `projection`; in a packed density it is `thin` where few of its entries are not zero.
    """

    projection: Array
    offset: Array
    code: Indices
    table: Array
    noise: Indices
    columns: Indices
    thin: Sparse = NOTHING


class Singles(NamedTuple):
    """Sites of one coordinate each."""

    at: Indices
    code: Indices
    table: Array


class Normals(NamedTuple):
    """Rows r = B x - m with their precisions, levels and groups (-1 = none)."""

    matrix: Sparse
    mean: Array
    precision: Array
    level: Indices
    group: Indices


class Groups(NamedTuple):
    """Precisions that are integrated out: a and b of their Gammas, and how many rows have each."""

    shape: Array
    rate: Array
    size: Array


class JointDensity(NamedTuple):
    """All parts; `levels` and `shift` are S and s, `link` is -1 or that of all rows."""

    rows: Rows
    singles: Singles
    normals: Normals
    groups: Groups
    levels: Sparse
    shift: Array
    constant: Array  # one number
    link: int = -1


class Packed(NamedTuple):
    """Sizes, whole numbers and floating-point numbers of a `JointDensity`, each in one block."""

    sizes: Indices
    whole: Indices
    real: Array

    @property
    def address(self) -> Indices:
        """The argument of `LOG_DENSITY`: three addresses. The blocks must outlive their use."""
        return np.array([block.ctypes.data for block in self], dtype=np.int64)


def _standardised(rows: Rows) -> tuple[Rows, int]:
    """Rows that are all σ(u), or all Phi(u), as rows of u itself, and which; else -1."""
    for link, slope, shift in ((LOGISTIC, 2, 3), (PROBIT, 0, 1)):
        rest = rows.table[:, [CONSTANT, BASE_PRECISION]].any()
        if link == LOGISTIC:
            rest |= np.any(rows.table[:, :2] != (1.0, 0.0))
        if np.all(rows.code == link) and not rest:
            scale, table = rows.table[:, slope], rows.table.copy()
            table[:, slope], table[:, shift] = 1.0, 0.0
            return rows._replace(
                projection=scale[:, None] * rows.projection,
                offset=scale * rows.offset + rows.table[:, shift],
                table=table,
            ), link
    return rows, -1


def _thinned(rows: Rows) -> Rows:
    """The projection row by row, if so few of its entries are not zero that this is faster."""
    n, d = rows.projection.shape
    i, j = np.nonzero(rows.projection)
    if len(i) > THIN * n * d:
        return rows
    thin = Sparse(np.searchsorted(i, np.arange(n + 1)), j, rows.projection[i, j])
    return rows._replace(thin=thin, projection=np.zeros((0, d)))


def pack(density: JointDensity) -> Packed:
    """Put the arrays of a density side by side, in the order of `unpacked`."""
    rows, singles, normals, groups, levels, shift, constant, _ = density
    rows, link = _standardised(rows)
    rows = _thinned(rows)
    whole = [
        rows.code, rows.noise, rows.columns, singles.at, singles.code, normals.matrix.start,
        normals.matrix.at, normals.level, normals.group, levels.start, levels.at,
        rows.thin.start, rows.thin.at,
    ]  # fmt: skip
    real = [
        rows.projection, rows.offset, rows.table, singles.table, normals.matrix.value,
        normals.mean, normals.precision, *groups, levels.value, shift, rows.thin.value, constant,
    ]  # fmt: skip
    columns = rows.projection.shape[1]
    sizes = [len(rows.code), columns, singles.at.size, normals.mean.size, normals.matrix.at.size]
    sizes += [groups.shape.size, shift.size, levels.at.size]
    blocks = [np.concatenate([np.ravel(part) for part in parts]) for parts in (whole, real)]
    sizes += [*map(len, blocks), len(rows.projection), len(rows.thin.start), rows.thin.at.size]
    sizes += [link]
    return Packed(np.array(sizes), blocks[0].astype(np.int64), blocks[1])


@njit(cache=True, error_model="numpy")
def _cut(block, size):  # type: ignore[no-untyped-def]
    """The first numbers of a block, and the rest."""
    return block[:size], block[size:]


@njit(cache=True, error_model="numpy")
def unpacked(sizes, whole, real):  # type: ignore[no-untyped-def]
    """Give the parts again, as views."""
    n, d, k, r, b, g, u, s = (
        sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7],
    )  # fmt: skip
    code, whole = _cut(whole, n)
    noise, whole = _cut(whole, n)
    columns, whole = _cut(whole, d)
    single_at, whole = _cut(whole, k)
    single_code, whole = _cut(whole, k)
    row_start, whole = _cut(whole, r + 1)
    row_at, whole = _cut(whole, b)
    level, whole = _cut(whole, r)
    group, whole = _cut(whole, r)
    level_start, whole = _cut(whole, u + 1)
    level_at, whole = _cut(whole, s)
    thin_start, thin_at = _cut(whole, sizes[11])
    projection, real = _cut(real, sizes[10] * d)
    offset, real = _cut(real, n)
    table, real = _cut(real, 8 * n)
    single_table, real = _cut(real, 8 * k)
    row_value, real = _cut(real, b)
    mean, real = _cut(real, r)
    precision, real = _cut(real, r)
    shape, real = _cut(real, g)
    rate, real = _cut(real, g)
    size, real = _cut(real, g)
    level_value, real = _cut(real, s)
    shift, real = _cut(real, u)
    thin_value, constant = _cut(real, sizes[12])
    return JointDensity(
        Rows(
            projection.reshape((sizes[10], d)), offset, code, table.reshape((n, 8)), noise, columns,
            Sparse(thin_start, thin_at, thin_value),
        ),
        Singles(single_at, single_code, single_table.reshape((k, 8))),
        Normals(Sparse(row_start, row_at, row_value), mean, precision, level, group),
        Groups(shape, rate, size),
        Sparse(level_start, level_at, level_value), shift, constant, sizes[13],
    )  # fmt: skip
