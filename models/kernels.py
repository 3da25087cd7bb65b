"""Kernels k(x, c), and the expansion of inputs into the basis functions of a linear model.

    RBF(width=s)               exp(-|x - c|² / 2 s²)
    Linear()                   x'c
    Polynomial(degree, offset) (x'c + offset)^degree

A kernel is called with (N, d) rows and (M, d) centres, NumPy arrays or PyTensor variables, and
gives (N, M). A new one is a frozen dataclass with a `name` and a `__call__`, and a line in KERNELS.
This file needs no PyMC, so settings can be written down and stored without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from ardvark.errors import InputError
from ardvark.models.checks import positive, positive_integer
from ardvark.models.inputs import Array, Inputs
from ardvark.models.tables import is_number

__all__ = ["KERNELS", "RBF", "Basis", "Design", "Kernel", "Linear", "Polynomial", "expand"]


@runtime_checkable
class Kernel(Protocol):
    """A function of rows and centres that knows its name."""

    name: ClassVar[str]

    def __call__(self, X: Any, centres: Any) -> Any:
        """Give the (N, M) matrix k(x_n, c_m)."""


type Basis = Kernel | Callable[[Array], Array] | None


@dataclass(frozen=True, slots=True)
class RBF:
    """Gaussian bumps: `width` is their sd; None leaves it to be inferred, where a model can."""

    width: float | None
    per_input: bool = False
    name: ClassVar[str] = "rbf"

    def __post_init__(self) -> None:
        if self.width is not None:
            object.__setattr__(self, "width", positive(self.width, "width"))
            if self.per_input:
                raise InputError(
                    f"per_input=True asks for one inferred scale per input, but width is fixed at "
                    f"{self.width}: give width=None, or scale the columns of X instead."
                )

    def __call__(self, X: Any, centres: Any) -> Any:
        """Give exp(-|x_n - c_m|² / 2 s²)."""
        if self.width is None:
            raise InputError(
                "width is None, which means inferred: a model with a fixed basis needs a number, "
                "such as RBF(width=1.0) for standardised inputs."
            )
        xp = _numpy_or_pytensor(X, centres)
        return xp.exp(-_squared_distance(X, centres) / (2 * self.width**2))


@dataclass(frozen=True, slots=True)
class Linear:
    """The inner product."""

    name: ClassVar[str] = "linear"

    def __call__(self, X: Any, centres: Any) -> Any:
        """Give x_n'c_m."""
        return X @ centres.T


@dataclass(frozen=True, slots=True)
class Polynomial:
    """All monomials up to `degree` (with offset 0: of exactly this degree)."""

    degree: int
    offset: float = 1.0
    name: ClassVar[str] = "polynomial"

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", positive_integer(self.degree, "degree"))
        if self.offset != 0:
            object.__setattr__(self, "offset", positive(self.offset, "offset"))

    def __call__(self, X: Any, centres: Any) -> Any:
        """Give (x_n'c_m + offset)^degree."""
        return (X @ centres.T + self.offset) ** self.degree


KERNELS: dict[str, type[Any]] = {kernel.name: kernel for kernel in (RBF, Linear, Polynomial)}


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """How the weights of a linear model meet its inputs.

    The graph holds `values` as data named `data` with dims (row, `columns`); `basis_functions`
    turns them into the (row, weight) matrix; the weights have dim `weights` and names `names`.
    """

    data: str
    values: Array
    columns: str
    weights: str
    names: tuple[str, ...]
    coords: dict[str, Any]
    basis_functions: Callable[[Any], Any]
    new_data: Callable[[Array], dict[str, Array]]


def expand(X: Inputs, basis: Basis) -> Design:
    """Choose the design: the inputs themselves, a kernel on the training rows, or a callable."""
    values = np.array(X)
    coords: dict[str, Any] = {"row": np.arange(len(values)), "feature": X.feature_names}
    basis_functions: Callable[[Any], Any] = _identity
    if basis is None:
        names, weights = X.feature_names, "feature"
    elif isinstance(basis, type) or not callable(basis):
        raise InputError(
            f"basis must be None, a kernel object or a function X -> Phi, got {basis!r}. Kernels: "
            f"{', '.join(kernel.__name__ for kernel in KERNELS.values())}; write RBF(width=1.0)."
        )
    elif isinstance(basis, Kernel):
        names, weights = tuple(f"row{row}" for row in range(len(values))), "basis"
        basis_functions = _centred(basis, values)
        basis_functions(values[:1])  # a kernel with an open setting says so before a graph exists
    else:
        return _tabulated(values, basis, coords)
    coords |= {weights: names}
    return Design("X", values, "feature", weights, names, coords, basis_functions, _as_data_X)


def _tabulated(values: Array, basis: Callable[[Array], Array], coords: dict[str, Any]) -> Design:
    """Take a Python callable, which no graph can hold: its values are the data."""
    table = _table(basis, values)
    n_columns = table.shape[1]
    names = tuple(map(str, getattr(basis, "names", [f"phi{j}" for j in range(n_columns)])))
    if len(names) != n_columns or len(set(names)) != n_columns:
        raise InputError(
            f"basis gives {n_columns} columns and names {names}: one distinct name per column is "
            f"needed."
        )

    def new_data(X: Array) -> dict[str, Array]:
        return {"Phi": _table(basis, X, n_columns)}

    coords |= {"basis": names}
    return Design("Phi", table, "basis", "basis", names, coords, _identity, new_data)


def _table(basis: Callable[[Array], Array], X: Array, n_columns: int | None = None) -> Array:
    table = np.asarray(basis(np.array(X)), dtype=float)
    if table.ndim != 2 or len(table) != len(X) or 0 in table.shape:
        raise InputError(
            f"basis must give a 2-D table with one row per row of X ({len(X)}), got shape "
            f"{table.shape}."
        )
    if n_columns is not None and table.shape[1] != n_columns:
        raise InputError(
            f"basis gives {table.shape[1]} columns on these rows and gave {n_columns} on the "
            f"training rows: its columns must not depend on which rows it is given."
        )
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        raise InputError(f"basis gives {table[row, column]} at row {row}, column {column}.")
    return table


def _centred(kernel: Kernel, centres: Array) -> Callable[[Any], Any]:
    return lambda X: kernel(X, centres)


def _identity(X: Any) -> Any:
    return X


def _as_data_X(X: Array) -> dict[str, Array]:
    return {"X": np.array(X)}


def _squared_distance(X: Any, centres: Any) -> Any:
    """Give |x_n - c_m|² by one matrix product; never below 0."""
    xp = _numpy_or_pytensor(X, centres)
    origin = centres.mean(axis=0)  # near the data the three terms cancel less
    X, centres = X - origin, centres - origin
    squares = (X**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)[None, :]
    return xp.maximum(squares - 2 * (X @ centres.T), 0)


def _numpy_or_pytensor(*arrays: Any) -> Any:
    if all(isinstance(array, np.ndarray) or is_number(array) for array in arrays):
        return np
    import pytensor.tensor as pt

    return pt
