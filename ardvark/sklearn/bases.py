"""What all estimators share, and their two bases: a kernel at each row, the inputs themselves.

An `Estimator` holds the posterior of its active weights as arrays; the graph and the tree are made
when they are first used. What is observed, and how the weights are found: `sklearn/__init__.py`.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ardvark.errors import ConvergenceWarning, InputError
from ardvark.inference.ard.columns import Columns
from ardvark.inference.ep.ep import EP
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.arrays import Index
from ardvark.models.checks import as_flag, positive, positive_integer
from ardvark.models.inputs import Array, Inputs
from ardvark.models.kernels import MEDIAN, Kernel, refuse_no_kernel
from ardvark.models.tables import (
    as_array,
    as_frame,
    default_names,
    frame_values,
    table_place,
)

__all__ = [
    "METHODS",
    "Estimator",
    "FittedWeights",
    "LinearBasis",
    "OnRows",
    "known_table",
    "refuse_options",
]

METHODS: dict[str, Any] = {"ep": EP, "laplace": Laplace}
DENSE = 2.5e8  # bytes of Phi beyond which its columns are made when they are needed
DRAWS = 250  # of each of the four chains of `tree_`


class FittedWeights(NamedTuple):
    """The posterior of the active weights of one predictor; the constant is the first of all."""

    precision: Array  # (d,), inf = pruned
    active: Index  # (k,)
    mean: Array  # (k,)
    covariance: Array  # (k, k)
    log_evidence: float
    steps: int
    converged: bool
    noise: float | None = None  # sd

    @property
    def full_mean(self) -> Array:
        """Posterior mean of all weights, 0 where pruned (d,)."""
        mean = np.zeros(self.precision.size)
        mean[self.active] = self.mean
        return mean


class Estimator(BaseEstimator, ABC):  # type: ignore[misc]
    """What all four share; a subclass says what its basis is and how its weights are found."""

    _weights: tuple[FittedWeights, ...]

    def __init__(self, fit_intercept: bool, tolerance: float, max_steps: int) -> None:
        self.fit_intercept = fit_intercept
        self.tolerance = tolerance
        self.max_steps = max_steps

    # The basis ------------------------------------------------------------------------------------

    @abstractmethod
    def _begin_basis(self, X: Array) -> dict[str, Any]:
        """Settle what the basis needs to know of the training rows: options of the builder."""

    @abstractmethod
    def _n_functions(self) -> int:
        """Number of basis functions."""

    @abstractmethod
    def _basis(self, X: Array, which: Index) -> Array:
        """Some basis functions at rows X: (N, len(which))."""

    def _functions(self, X: Array, weights: Index) -> Array:
        """Columns of Phi, those of some weights in ascending order."""
        bias = int(self._options["bias"])
        columns = self._basis(X, np.maximum(weights - bias, 0))
        columns[:, weights < bias] = 1.0  # in place: no copy
        return columns

    def _design(self, X: Array, n_weights: int, on_demand: bool = True) -> Array | Columns:
        """Phi, or its columns made when they are needed if it is large."""
        if 8.0 * len(X) * n_weights <= DENSE or not on_demand:
            return self._functions(X, np.arange(n_weights))
        return Columns(lambda indices: self._functions(X, indices), (len(X), n_weights))

    # Fit ------------------------------------------------------------------------------------------

    def _begin(self, X: Array) -> int:
        """Forget the last fit, check the settings, settle the basis; the number of weights."""
        for name in ("_graphs", "_trees"):
            self.__dict__.pop(name, None)
        positive(self.tolerance, "tolerance")
        positive_integer(self.max_steps, "max_steps")
        self.X_fit_ = np.array(X)  # the caller's may change, the centres must not
        self._options: dict[str, Any] = {"bias": as_flag(self.fit_intercept, "fit_intercept")}
        self._options |= self._begin_basis(X)
        return self._n_functions() + int(self._options["bias"])

    def _end(self, weights: list[FittedWeights]) -> None:
        self._weights = tuple(weights)
        self.n_iter_ = max(w.steps for w in weights)
        evidences = np.array([w.log_evidence for w in weights])
        self.log_evidence_ = evidences if len(evidences) > 1 else float(evidences[0])
        if not all(w.converged for w in weights):
            warnings.warn(self._why(), ConvergenceWarning, stacklevel=3)
        self._describe(
            np.array([w.full_mean for w in weights]), np.array([w.precision for w in weights])
        )

    def _why(self) -> str:
        if self.n_iter_ >= self.max_steps:
            return f"the search stopped after max_steps={self.max_steps} changes. Raise max_steps."
        return (
            "the approximation did not settle at the end of the search. Look for classes that the "
            "inputs separate, standardise the inputs, or use another method."
        )

    def _describe(self, mean: Array, precision: Array) -> None:
        """Set the fitted attributes from (n_predictors, n_weights) arrays."""
        bias = int(self._options["bias"])
        self.intercept_: Any = mean[:, 0] if bias else np.zeros(len(mean))
        self._describe_basis(mean[:, bias:], precision[:, bias:])

    @abstractmethod
    def _describe_basis(self, mean: Array, precision: Array) -> None:
        """Set the fitted attributes that belong to the basis."""

    # Use ------------------------------------------------------------------------------------------

    def _checked(self, X: Any) -> Array:
        check_is_fitted(self)
        return np.asarray(validate_data(self, known_table(X), dtype=np.float64, reset=False))

    def _eta(self, X: Array, weights: FittedWeights) -> tuple[Array, Array]:
        """Mean and variance of the predictor at rows X."""
        Phi = self._functions(X, weights.active)
        variance = np.einsum("nj,nj->n", Phi @ weights.covariance, Phi)
        return Phi @ weights.mean, np.maximum(variance, 0.0)

    # The graph and the tree -----------------------------------------------------------------------

    @abstractmethod
    def _targets(self) -> list[Any]:
        """What each graph observes, in the order of `_weights`."""

    @abstractmethod
    def _builder(self) -> Callable[..., Any]:
        """The builder of the graph."""

    @property
    def model_(self) -> Any:
        """The model as a `pm.Model` with free hyperparameters; a list of K for K > 2 classes."""
        return _one_or_all(self._all_graphs())

    @property
    def tree_(self) -> Any:
        """The ArviZ tree of `model_` at the fitted hyperparameters; a list of K for K > 2."""
        if "_trees" not in self.__dict__:
            from ardvark.inference.fit import fit
            from ardvark.inference.hyper.settings import Fixed

            method = METHODS[self._method]
            self._trees = [
                fit(
                    graph,
                    method(hyper=Fixed(self._theta(weights))),
                    draws=DRAWS,
                    random_seed=0,
                    progressbar=False,
                )
                for graph, weights in zip(self._all_graphs(), self._weights, strict=True)
            ]
        return _one_or_all(self._trees)

    def _all_graphs(self) -> list[Any]:
        check_is_fitted(self)
        if "_graphs" not in self.__dict__:
            X = Inputs(self.X_fit_, getattr(self, "feature_names_in_", None))
            build = self._builder()
            self._graphs = [build(X, t, **self._options) for t in self._targets()]
        return self._graphs

    def _theta(self, weights: FittedWeights) -> dict[str, Any]:
        bias = int(self._options["bias"])
        theta: dict[str, Any] = {"alpha": weights.precision[bias:]}
        if bias:
            theta["alpha_bias"] = weights.precision[0]
        if weights.noise is not None:
            theta["sigma"] = weights.noise
        return theta

    def __dir__(self) -> list[str]:
        """List what there is: of graph and tree it is enough that they can be made."""
        can_be_made = "_weights" in self.__dict__ and "_at_display" not in self.__dict__
        made_later = {"model_": "_graphs", "tree_": "_trees"}
        return [
            name
            for name in object.__dir__(self)
            if (
                can_be_made or made_later[name] in self.__dict__
                if name in made_later
                else hasattr(self, name)
            )
        ]

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """Show what was fitted; scikit-learn looks at each name, which would make the graph."""
        self._at_display = True
        try:
            return super()._get_fitted_attr_html(doc_link)
        finally:
            del self._at_display

    def __getstate__(self) -> dict[str, Any]:
        """Leave the graph and the tree behind: they are made again from what is kept."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_graphs", "_trees")}


# --- two bases --------------------------------------------------------------------------------


class OnRows(Estimator):
    """A kernel at each training row."""

    kernel: Any

    def _begin_basis(self, X: Array) -> dict[str, Any]:
        self.kernel_ = _settled(self.kernel, X)
        return {"kernel": self.kernel_}

    def _n_functions(self) -> int:
        return len(self.X_fit_)

    def _basis(self, X: Array, which: Index) -> Array:
        if which.size == 0:
            return np.empty((len(X), 0))
        table = self.kernel_(X, self.X_fit_[which])
        own = isinstance(self.kernel_, Kernel)  # a user's function may keep what it gave
        table = np.asarray(table, float) if own else np.array(table, float)
        fits = table.shape == (len(X), which.size)
        if not fits or not (np.isfinite(table.sum()) or np.isfinite(table).all()):
            raise InputError(
                f"kernel must give finite numbers of shape {(len(X), which.size)} here, one row "
                f"per row of X and one column per centre; got shape {table.shape}."
            )
        return table

    def _describe_basis(self, mean: Array, precision: Array) -> None:
        self.relevance_ = np.flatnonzero(np.isfinite(precision).any(axis=0))
        self.relevance_vectors_ = self.X_fit_[self.relevance_]
        self.dual_coef_ = mean[:, self.relevance_]


class LinearBasis(Estimator):
    """The inputs themselves."""

    def _begin_basis(self, X: Array) -> dict[str, Any]:
        return {}

    def _n_functions(self) -> int:
        return int(self.X_fit_.shape[1])

    def _basis(self, X: Array, which: Index) -> Array:
        return X[:, which]

    def _describe_basis(self, mean: Array, precision: Array) -> None:
        self.coef_, self.alpha_ = mean, precision
        self.support_ = np.isfinite(precision).any(axis=0)

    def get_support(self, indices: bool = False) -> NDArray[Any]:
        """Inputs that have a weight (for any class): a mask, or their indices."""
        check_is_fitted(self)
        return np.flatnonzero(self.support_) if indices else self.support_


def refuse_options(options: dict[str, Any]) -> None:
    """Refuse what `fit` was given besides X and y, but for `sample_weight=None`.

    It is no parameter by name: scikit-learn would then take these estimators for weighted ones.
    """
    if any(name != "sample_weight" for name in options):
        raise TypeError(f"fit() got an unexpected keyword argument {min(options)!r}")
    if options.get("sample_weight") is not None:
        raise InputError(
            "sample_weight must be None: the posterior and its evidence are those of rows that "
            "were observed once each. Repeat rows that were observed several times (np.repeat)."
        )


def known_table(X: Any) -> Any:
    """Convert a table to one whose names scikit-learn finds; other values stay unchanged."""
    if isinstance(X, Inputs):
        import pandas as pd

        named = X.ndim == 2 and X.feature_names != default_names(X.shape[1])
        return pd.DataFrame(np.asarray(X), columns=list(X.feature_names)) if named else X
    frame = as_frame(X, "X")
    if frame is None:
        _refuse_other_than_numbers(X)
        return X
    frame_values(frame, tuple(map(str, frame.columns)), "X")
    return frame.to_native()


def _refuse_other_than_numbers(X: Any) -> None:
    """Refuse masks, ragged rows and what is no number, by its place.

    scikit-learn drops a mask, and leaves the other two to NumPy. Text that is a number is taken, as
    scikit-learn does.
    """
    if not isinstance(X, np.ndarray | list | tuple):
        return
    array = as_array(X, "X", "an (N, d) table of numbers")
    if array.dtype.kind not in "OUS":
        return
    for where, value in np.ndenumerate(array):
        try:
            float(value)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"X has {value!r} ({type(value).__name__}) at {table_place(where)}: argument must "
                f"be a string of digits or a real number"
            ) from None


def _settled(kernel: Any, X: Array) -> Any:
    """The kernel with its width as a number."""
    refuse_no_kernel(kernel)
    if getattr(kernel, "width", 1.0) is None:
        raise InputError(
            f"kernel={kernel!r} is to be inferred, which needs a graph: use av.fit on a model of "
            f"av.models, or give a width here (a number or {MEDIAN!r}) and search over it."
        )
    if getattr(kernel, "width", 1.0) == MEDIAN:
        return replace(kernel, width=float(kernel.scale(X).value))
    return kernel


def _one_or_all(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else found
