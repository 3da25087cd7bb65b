"""The loops of sparse factorisation in machine code.

A symmetric matrix P (n, n) in its order of elimination, upper triangle by columns: the rows
`index[start[k] : start[k + 1]]` of column k are sorted and end with k. P = L D L', L with unit
diagonal; its first s columns are sparse, what they leave of the last n - s is dense.

| formula                                                    | code              |
|------------------------------------------------------------|-------------------|
| elimination tree, counts of L: Davis 2005 (LDL), fig. 1     | `tree_and_counts` |
| row k of L from the rows above: Davis 2005, fig. 2          | `factorise`       |
| Z = (L D L')^-1 where L is not zero: Takahashi et al. 1973, | `inverse_columns` |
| Z_Rj = -Z_RR L_Rj,  Z_jj = 1/D_j - L_Rj'Z_Rj                |                   |
| P += w_n j_n j_n' over rows n                               | `assemble`        |
"""

import numpy as np

from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array, Index

__all__ = [
    "assemble",
    "colours_of_columns",
    "entries",
    "factorise",
    "inverse_columns",
    "pair_places",
    "quadratic_rows",
    "solve_backward",
    "solve_forward",
    "structure",
    "tree_and_counts",
]


@njit(cache=True, error_model="numpy")
def tree_and_counts(start: Index, index: Index) -> tuple[Index, Index]:
    """Parent of each column in the elimination tree, and entries of L below its diagonal."""
    n = len(start) - 1
    parent, seen = np.full(n, -1), np.full(n, -1)
    count = np.zeros(n, np.int64)
    for k in range(n):
        seen[k] = k
        for p in range(start[k], start[k + 1]):
            i = index[p]
            while i < k and seen[i] != k:
                if parent[i] == -1:
                    parent[i] = k
                count[i] += 1
                seen[i] = k
                i = parent[i]
    return parent, count


@njit(cache=True, error_model="numpy")
def structure(start: Index, index: Index, parent: Index, begin: Index, sparse: int) -> Index:
    """Rows of L in each of its first `sparse` columns, in order."""
    n = len(start) - 1
    seen, filled = np.full(n, -1), np.zeros(n, np.int64)
    rows = np.empty(begin[sparse], np.int64)
    for k in range(n):
        seen[k] = k
        for p in range(start[k], start[k + 1]):
            i = index[p]
            while i < min(k, sparse) and seen[i] != k:
                rows[begin[i] + filled[i]] = k
                filled[i] += 1
                seen[i] = k
                i = parent[i]
    return rows


@njit(cache=True, nogil=True, error_model="numpy")
def factorise(
    start: Index, index: Index, data: Array, parent: Index, begin: Index, rows: Index, sparse: int
) -> tuple[Array, Array, Array, int]:
    """L's sparse columns, D, what is left of the last columns, and the first bad pivot or -1."""
    n = len(start) - 1
    lower, pivot = np.empty(len(rows)), np.empty(sparse)
    left = np.zeros((n - sparse, n - sparse))
    work, seen = np.zeros(n), np.full(n, -1)
    filled = np.zeros(sparse, np.int64)
    order, path = np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        seen[k] = k
        top = n  # order[top:] are the columns that row k needs, in order of elimination
        for p in range(start[k], start[k + 1]):
            i = index[p]
            work[i] += data[p]
            length = 0
            while i < min(k, sparse) and seen[i] != k:
                path[length] = i
                length += 1
                seen[i] = k
                i = parent[i]
            while length > 0:
                length -= 1
                top -= 1
                order[top] = path[length]
        diagonal = work[k]
        work[k] = 0.0
        for t in range(top, n):
            i = order[t]
            value = work[i]
            work[i] = 0.0
            for p in range(begin[i], begin[i] + filled[i]):
                work[rows[p]] -= lower[p] * value
            share = value / pivot[i]
            diagonal -= share * value
            lower[begin[i] + filled[i]] = share
            filled[i] += 1
        if k < sparse:
            pivot[k] = diagonal
            if not diagonal > 0.0:
                return lower, pivot, left, k
        else:
            for i in range(sparse, k):
                left[k - sparse, i - sparse] = work[i]
                left[i - sparse, k - sparse] = work[i]
                work[i] = 0.0
            left[k - sparse, k - sparse] = diagonal
    return lower, pivot, left, -1


@njit(cache=True, nogil=True, error_model="numpy")
def solve_forward(begin: Index, rows: Index, lower: Array, sparse: int, x: Array) -> None:
    """X (n, m) becomes L^-1 x by the sparse columns."""
    for i in range(sparse):
        for p in range(begin[i], begin[i + 1]):
            k, share = rows[p], lower[p]
            for c in range(x.shape[1]):
                x[k, c] -= share * x[i, c]


@njit(cache=True, nogil=True, error_model="numpy")
def solve_backward(begin: Index, rows: Index, lower: Array, sparse: int, x: Array) -> None:
    """X (n, m) becomes L'^-1 x by the sparse columns."""
    for i in range(sparse - 1, -1, -1):
        for p in range(begin[i], begin[i + 1]):
            k, share = rows[p], lower[p]
            for c in range(x.shape[1]):
                x[i, c] -= share * x[k, c]


@njit(cache=True, nogil=True, error_model="numpy")
def inverse_columns(
    begin: Index, rows: Index, lower: Array, pivot: Array, last: Array
) -> tuple[Array, Array]:
    """Inverse where L is not zero, and its diagonal; `last` is that of the dense columns."""
    sparse, n = len(pivot), len(pivot) + len(last)
    inverse, diagonal = np.zeros(len(rows)), np.zeros(n)
    for i in range(len(last)):
        diagonal[sparse + i] = last[i, i]
    share, found, column = np.zeros(n), np.zeros(n), np.full(n, -1)
    for i in range(sparse - 1, -1, -1):
        stop = begin[i + 1]
        for p in range(begin[i], stop):
            column[rows[p]] = i
            share[rows[p]] = lower[p]
            found[rows[p]] = 0.0
        for p in range(begin[i], stop):
            j = rows[p]
            found[j] += diagonal[j] * share[j]
            if j < sparse:
                for t in range(begin[j], begin[j + 1]):
                    k = rows[t]
                    if column[k] == i:  # k is a row of column i
                        found[j] += inverse[t] * share[k]
                        found[k] += inverse[t] * share[j]
            else:
                for t in range(p + 1, stop):
                    k = rows[t]
                    entry = last[j - sparse, k - sparse]
                    found[j] += entry * share[k]
                    found[k] += entry * share[j]
        total = 1.0 / pivot[i]
        for p in range(begin[i], stop):
            j = rows[p]
            inverse[p] = -found[j]
            total += share[j] * found[j]
        diagonal[i] = total
    return inverse, diagonal


@njit(cache=True, error_model="numpy")
def entries(
    start: Index,
    index: Index,
    begin: Index,
    rows: Index,
    inverse: Array,
    diagonal: Array,
    last: Array,
) -> Array:
    """The inverse at the entries of P."""
    sparse = len(diagonal) - len(last)
    found = np.empty(len(index))
    for k in range(len(start) - 1):
        for p in range(start[k], start[k + 1]):
            i = index[p]
            if i == k:
                found[p] = diagonal[k]
            elif i < sparse:
                low, high = begin[i], begin[i + 1]
                found[p] = inverse[low + np.searchsorted(rows[low:high], k)]
            else:
                found[p] = last[k - sparse, i - sparse]
    return found


@njit(cache=True, error_model="numpy")
def pair_places(row: Index, column: Index, start: Index, index: Index) -> Index:
    """Where in P each pair of entries of a row of J stands; rows have sorted columns."""
    total = 0
    for n in range(len(row) - 1):
        size = row[n + 1] - row[n]
        total += size * (size + 1) // 2
    places = np.empty(total, np.int64)
    at = 0
    for n in range(len(row) - 1):
        for a in range(row[n], row[n + 1]):
            k = column[a]
            low, high = start[k], start[k + 1]
            for b in range(row[n], a + 1):
                places[at] = low + np.searchsorted(index[low:high], column[b])
                at += 1
    return places


@njit(cache=True, nogil=True, error_model="numpy")
def assemble(row: Index, value: Array, places: Index, weight: Array, size: int) -> Array:
    """Entries of J'WJ."""
    data = np.zeros(size)
    at = 0
    for n in range(len(row) - 1):
        for a in range(row[n], row[n + 1]):
            share = weight[n] * value[a]
            for b in range(row[n], a + 1):
                data[places[at]] += share * value[b]
                at += 1
    return data


@njit(cache=True, nogil=True, error_model="numpy")
def quadratic_rows(row: Index, value: Array, places: Index, inverse: Array) -> Array:
    """J Z at the entries of J, from the entries of Z."""
    found = np.zeros(len(value))
    at = 0
    for n in range(len(row) - 1):
        for a in range(row[n], row[n + 1]):
            for b in range(row[n], a + 1):
                entry = inverse[places[at]]
                found[a] += value[b] * entry
                if a != b:
                    found[b] += value[a] * entry
                at += 1
    return found


@njit(cache=True, error_model="numpy")
def colours_of_columns(
    row: Index, column: Index, by_column: Index, row_of: Index, most: int
) -> Index:
    """A colour for each column, such that two in one row differ; -1 where `most` were too few."""
    colour = np.full(len(by_column) - 1, -1)
    taken = np.full(most, -1)
    for j in range(len(colour)):
        for p in range(by_column[j], by_column[j + 1]):
            n = row_of[p]
            for q in range(row[n], row[n + 1]):
                other = colour[column[q]]
                if other >= 0:
                    taken[other] = j
        for c in range(most):
            if taken[c] != j:
                colour[j] = c
                break
        if colour[j] < 0:
            return colour
    return colour
