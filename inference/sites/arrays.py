"""The three kinds of arrays that flow through the library; imported from here and nowhere else."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Index", "Mask"]

type Array = NDArray[np.float64]
type Index = NDArray[np.integer[Any]]  # positions or counts
type Mask = NDArray[np.bool_]
