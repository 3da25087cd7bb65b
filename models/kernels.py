"""Kernels k(x, c), and the expansion of inputs into the basis functions of a linear model.

    RBF(width=s)                   exp(-|x - c|² / 2 s²)
    RBF(None, per_input=True)      exp(-sum_k eta_k (x_k - c_k)²)
    Laplacian(width=s)             exp(-sum_k |x_k - c_k| / s)
    Linear()                       x'c
    Polynomial(degree, offset)     (x'c + offset)^degree
    Spline()                       prod_k 1 + xc + xc m - (x + c) m²/2 + m³/3,  m = min(x_k, c_k)
    ThinPlate(width=s)             (r/s)² log(r/s),  r = |x - c|

A kernel is called with (N, d) rows and (M, d) centres, NumPy arrays or PyTensor variables, and
gives (N, M); it need not be positive definite (thin plates are not). A new one is a frozen
dataclass with a `name` and a `__call__`, and a line in KERNELS. A width is a number, "median" (the
median distance of the training rows) or None (inferred, where a model can). This file needs no
PyMC, so settings can be written down and stored without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add, mul
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from ardvark.errors import InputError
from ardvark.models.checks import positive, positive_integer
from ardvark.models.inputs import Array, Inputs
from ardvark.models.tables import is_number

__all__ = [
    "KERNELS",
    "RBF",
    "Basis",
    "Design",
    "Kernel",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Scale",
    "Spline",
    "ThinPlate",
    "centred_on_rows",
    "expand",
    "refuse_no_kernel",
]

MEDIAN = "median"
_IN_CACHE = 2**16  # numbers
_NARROW = 1e5  # spread of the rows in squared widths: the exponent is then wrong by 1e-11
_MOST_ROWS = 1000  # for a median distance: more would cost memory and change nothing


@runtime_checkable
class Kernel(Protocol):
    """A function of rows and centres, with its name."""

    name: ClassVar[str]

    def __call__(self, X: Any, centres: Any) -> Any:
        """Return the (N, M) matrix k(x_n, c_m)."""


type Basis = Kernel | Callable[[Array], Array] | None


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """A positive setting of a kernel on given rows: a value, or what is typical if it is open.

    An open one has a log-normal prior of mean `typical`, and of sd `spread` in the log.
    """

    name: str
    value: Array | None
    typical: Array
    spread: float = 1.0
    dims: str | None = None


class _Scaled:
    """What kernels with a width share; `distance` is the one that the width divides."""

    __slots__ = ()
    width: float | str | None

    def __post_init__(self) -> None:
        if self.width is not None and self.width != MEDIAN:
            object.__setattr__(self, "width", _positive_width(self.width))

    def distance(self, X: Any, centres: Any) -> Any:
        """Return |x_n - c_m|, (N, M)."""
        return _numpy_or_pytensor(X, centres).sqrt(_squared_distance(X, centres))

    def scale(self, X: Array) -> Scale:
        """Return the width on these training rows."""
        typical = _median(self.distance, X)
        value = typical if self.width == MEDIAN else self.width
        return Scale("width", None if value is None else np.array(value), np.array(typical))

    def _settled(self, width: Any) -> Any:
        if width is not None:
            return width
        if self.width is None or self.width == MEDIAN:
            raise InputError(
                f"width is {self.width}, which means "
                f"{'inferred' if self.width is None else 'taken from the training rows'}: a model "
                f"with a fixed basis needs a number, such as {type(self).__name__}(width=1.0) for "
                f"standardised inputs."
            )
        return self.width


@dataclass(frozen=True, slots=True)
class RBF(_Scaled):
    """Gaussian bumps: `width` is their sd.

    With `per_input` (and width=None) each input has its own inferred `input_scale`, the eta_k of
    Tipping's η-RVR: eta_k = 1 / (2 width_k²), and an input of eta_k = 0 plays no part.
    """

    width: float | str | None
    per_input: bool = False
    name: ClassVar[str] = "rbf"

    def __post_init__(self) -> None:
        _Scaled.__post_init__(self)
        if self.per_input and self.width is not None:
            raise InputError(
                f"per_input=True asks for one inferred scale per input, but width is fixed at "
                f"{self.width}: give width=None, or scale the columns of X instead."
            )

    def scale(self, X: Array) -> Scale:
        """Return the width, or the scales of the inputs, on these training rows."""
        if not self.per_input:
            return _Scaled.scale(self, X)
        variance = X.var(axis=0)
        share = 1 / (4 * X.shape[1] * np.where(variance > 0, variance, 0.25))
        # Two rows are then exp(-1/2) alike on average. The log of 1/2s² has twice the sd of log s.
        return Scale("input_scale", None, share, spread=2.0, dims="feature")

    def __call__(self, X: Any, centres: Any, scale: Any = None) -> Any:
        """Return exp(-|x_n - c_m|² / 2 s²); `scale` is an inferred width or the eta_k."""
        scale = self._settled(scale)
        xp = _numpy_or_pytensor(X, centres, scale)
        if xp is np:
            return _gaussian_bumps(X, centres, scale if self.per_input else 0.5 / scale**2)
        if self.per_input:
            return xp.exp(-_squared_distance(X, centres, scale))
        return xp.exp(-_squared_distance(X, centres) / (2 * scale**2))


@dataclass(frozen=True, slots=True)
class Laplacian(_Scaled):
    """Exponential peaks in the sum of absolute differences (the L1 distance, not Euclid's)."""

    width: float | str | None
    name: ClassVar[str] = "laplacian"

    def distance(self, X: Any, centres: Any) -> Any:
        """Return sum_k |x_nk - c_mk|, (N, M)."""
        return _over_inputs(X, centres, lambda x, c: abs(x - c), add)

    def __call__(self, X: Any, centres: Any, scale: Any = None) -> Any:
        """Return exp(-|x_n - c_m|_1 / s); `scale` is an inferred width."""
        scale = self._settled(scale)
        return _numpy_or_pytensor(X, centres, scale).exp(-self.distance(X, centres) / scale)


@dataclass(frozen=True, slots=True)
class Linear:
    """The inner product."""

    name: ClassVar[str] = "linear"

    def __call__(self, X: Any, centres: Any) -> Any:
        """Return x_n'c_m."""
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
        """Return (x_n'c_m + offset)^degree."""
        return (X @ centres.T + self.offset) ** self.degree


@dataclass(frozen=True, slots=True)
class Spline:
    """Vapnik's linear spline, a product over the inputs; piecewise cubic, knots at the centres.

    It has no width, but it knows an origin: where all x >= 0 it is positive definite, elsewhere it
    is the same formula (as Tipping uses it) and is not.
    """

    name: ClassVar[str] = "spline"

    def __call__(self, X: Any, centres: Any) -> Any:
        """Return prod_k 1 + xc + xc m - (x + c) m²/2 + m³/3 with m = min(x_nk, c_mk)."""
        xp = _numpy_or_pytensor(X, centres)

        def factor(x: Any, c: Any) -> Any:
            least = xp.minimum(x, c)
            square = least * least  # a power costs ten times as much
            return 1 + x * c * (1 + least) - (x + c) / 2 * square + square * least / 3

        return _over_inputs(X, centres, factor, mul)


@dataclass(frozen=True, slots=True)
class ThinPlate(_Scaled):
    """Thin-plate splines, which grow without bound and are no Mercer kernel."""

    width: float | str | None = 1.0
    name: ClassVar[str] = "thin_plate"

    def __call__(self, X: Any, centres: Any, scale: Any = None) -> Any:
        """Return q log(q) / 2 with q = |x_n - c_m|² / s², and 0 on the centre itself."""
        scale = self._settled(scale)
        xp = _numpy_or_pytensor(X, centres, scale)
        square = _squared_distance(X, centres) / scale**2
        return square * xp.log(xp.where(square > 0, square, 1)) / 2


KERNELS: dict[str, type[Any]] = {
    kernel.name: kernel for kernel in (RBF, Laplacian, Linear, Polynomial, Spline, ThinPlate)
}


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """How the weights of a linear model are combined with its inputs.

    The graph holds `values` as data named `data` with dims (row, `columns`); `basis_functions`
    turns them into the (row, weight) matrix; the weights have dim `weights` and names `names`. If
    there is a `scale`, the graph holds it too and it is the second argument of `basis_functions`.
    """

    data: str
    values: Array
    columns: str
    weights: str
    names: tuple[str, ...]
    coords: dict[str, Any]
    basis_functions: Callable[..., Any]
    new_data: Callable[[Array], dict[str, Array]]
    scale: Scale | None = None


def basis_size(design: Design) -> float:
    """Return the squares of the basis functions, summed and averaged over (at most 1000) rows.

    An input counts 1, as if of unit scale; a kernel with an open scale is taken at its typical one.
    """
    if design.weights == "feature":
        return float(len(design.names))
    rows = design.values[:: -(-len(design.values) // _MOST_ROWS)]
    scale = design.scale
    settings = [] if scale is None else [scale.typical if scale.value is None else scale.value]
    table = np.asarray(design.basis_functions(rows, *settings), dtype=np.float64)
    size = float(np.square(table).sum(axis=1).mean())
    return size if 0 < size < np.inf else float(len(design.names))


def expand(X: Inputs, basis: Basis) -> Design:
    """Choose the design: the inputs themselves, a kernel on the training rows, or a callable."""
    values = np.array(X)
    coords = _coords(X)
    basis_functions: Callable[..., Any] = _identity
    if basis is None:
        names, weights = X.feature_names, "feature"
    elif isinstance(basis, type) or not callable(basis):
        raise InputError(
            f"basis must be None, a kernel object or a function X -> Phi, got {basis!r}. "
            f"{_the_kernels()}"
        )
    elif isinstance(basis, Kernel):
        names, weights = _row_names(values), "basis"
        basis_functions = _centred(basis, values)
        basis_functions(values[:1])  # a kernel with a free setting is refused before a graph exists
    else:
        return _tabulated(values, basis, coords)
    coords |= {weights: names}
    return Design("X", values, "feature", weights, names, coords, basis_functions, _as_data_X)


def centred_on_rows(X: Inputs, kernel: Any) -> Design:
    """Return one basis function per training row, its scale in the graph if the kernel has one.

    A function k(X, centres) that is no `Kernel` need not know PyTensor: its values are the data.
    """
    values = np.array(X)
    refuse_no_kernel(kernel)
    names = _row_names(values)
    if not isinstance(kernel, Kernel):
        return _tabulated(values, _OnRows(kernel, values, names), _coords(X))
    scale = kernel.scale(values) if isinstance(kernel, _Scaled) else None
    functions = _centred(kernel, values)
    coords = {**_coords(X), "basis": names}
    return Design("X", values, "feature", "basis", names, coords, functions, _as_data_X, scale)


def refuse_no_kernel(kernel: Any) -> None:
    """Refuse what is neither a kernel object nor a function of rows and centres."""
    if isinstance(kernel, type) or not callable(kernel):
        raise InputError(
            f"kernel must be a kernel object or a function k(X, centres), got {kernel!r}. "
            f"{_the_kernels()}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _OnRows:
    """A function of rows and centres as one of rows, with a name for each centre."""

    kernel: Callable[[Array, Array], Array]
    centres: Array
    names: tuple[str, ...]

    def __call__(self, X: Array) -> Array:
        return self.kernel(X, self.centres)


def _tabulated(values: Array, basis: Callable[[Array], Array], coords: dict[str, Any]) -> Design:
    """Take a Python callable, which cannot be part of a graph: its values are the data."""
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


def _centred(kernel: Callable[..., Any], centres: Array) -> Callable[..., Any]:
    return lambda X, *scale: kernel(X, centres, *scale)


def _identity(X: Any) -> Any:
    return X


def _coords(X: Inputs) -> dict[str, Any]:
    return {"row": np.arange(len(X)), "feature": X.feature_names}


def _row_names(values: Array) -> tuple[str, ...]:
    return tuple(f"row{row}" for row in range(len(values)))


def _the_kernels() -> str:
    names = ", ".join(kernel.__name__ for kernel in KERNELS.values())
    return f"Kernels: {names}; write RBF(width=1.0)."


def _as_data_X(X: Array) -> dict[str, Array]:
    return {"X": np.array(X)}


# --- distances -------------------------------------------------------------------------------


def _squared_distance(X: Any, centres: Any, weights: Any = None) -> Any:
    """Return |x_n - c_m|², or sum_k weights_k (x_nk - c_mk)², by one matrix product; never < 0."""
    xp = _numpy_or_pytensor(X, centres, *(() if weights is None else (weights,)))
    origin = centres.mean(axis=0)  # near the data the three terms cancel less
    X, centres = X - origin, centres - origin
    weighted = (X, centres) if weights is None else (X * weights, centres * weights)
    squares = (X * weighted[0]).sum(axis=1)[:, None] + (centres * weighted[1]).sum(axis=1)[None, :]
    return xp.maximum(squares - 2 * (weighted[0] @ centres.T), 0)


def _gaussian_bumps(X: Array, centres: Array, rates: Any) -> Array:
    """Return exp(-sum_k rates_k (x_nk - c_mk)²), four times as fast as a table after the other.

    One product gives the whole exponent, and some rows at a time stay in the cache until they are
    exponentials. Where bumps are so narrow that its terms would cancel, differences come first.
    """
    origin = centres.mean(axis=0)
    X, centres = X - origin, centres - origin
    scaled = rates * X
    left = np.column_stack([2 * scaled, -(scaled * X).sum(axis=1), -np.ones(len(X))])
    right = np.vstack([centres.T, np.ones(len(centres)), (rates * centres**2).sum(axis=1)])
    if max(-left[:, -2].min(), right[-1].max()) > _NARROW:
        rates = np.broadcast_to(rates, X.shape[1])[None, :]
        X, centres = X * np.sqrt(rates), centres * np.sqrt(rates)
        return np.asarray(np.exp(-_over_inputs(X, centres, lambda x, c: (x - c) ** 2, add)))
    bumps = np.empty((len(X), len(centres)))
    step = max(1, _IN_CACHE // len(centres))
    for begin in range(0, len(X), step):
        some = bumps[begin : begin + step]
        np.matmul(left[begin : begin + step], right, out=some)
        np.minimum(some, 0.0, out=some)
        np.exp(some, out=some)
    return bumps


def _over_inputs(X: Any, centres: Any, term: Callable[..., Any], join: Callable[..., Any]) -> Any:
    """Join a term of each input, (N, M) at a time: never (N, M, d)."""
    columns = range(centres.shape[1])
    return reduce(join, (term(X[:, k][:, None], centres[:, k][None, :]) for k in columns))


def _median(distance: Callable[[Array, Array], Array], X: Array) -> float:
    """Return the median distance of two different rows; 1 if there are none."""
    some = X[:: -(-len(X) // _MOST_ROWS)]
    between = distance(some, some)[np.triu_indices(len(some), 1)]
    apart = between[between > 0]
    return float(np.median(apart)) if apart.size else 1.0


def _positive_width(width: Any) -> float:
    if isinstance(width, str):
        raise InputError(f"width must be a finite number > 0, 'median' or None, got {width!r}.")
    return positive(width, "width")


def _numpy_or_pytensor(*arrays: Any) -> Any:
    if all(isinstance(array, np.ndarray) or is_number(array) for array in arrays):
        return np
    import pytensor.tensor as pt

    return pt
