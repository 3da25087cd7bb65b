"""Colours of the columns of a sparse matrix: columns of one colour never meet in a row.

One product with the sum of all columns of a colour shows each of their entries (Curtis, Powell &
Reid 1974), so a map of any number of columns is read in as many products as there are colours.
"""

from typing import Any

import numpy as np
from scipy.sparse import csc_array

from ardvark.inference.sites.arrays import Index
from ardvark.inference.sparse.kernels import colours_of_columns

__all__ = ["colours"]


def colours(pattern: Any, most: int) -> Index | None:
    """A colour for each column of a `csr_array`, None if more than `most` are needed."""
    if np.diff(pattern.indptr).max(initial=0) > most:
        return None
    by_column = csc_array(pattern)
    found = colours_of_columns(
        np.asarray(pattern.indptr, np.int64),
        np.asarray(pattern.indices, np.int64),
        np.asarray(by_column.indptr, np.int64),
        np.asarray(by_column.indices, np.int64),
        most,
    )
    return None if np.any(found < 0) else np.asarray(found)
