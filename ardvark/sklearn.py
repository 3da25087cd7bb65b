"""Estimators in the manner of scikit-learn, thin covers over the functions of the zoo.

    RVR, RVC                        relevance vector machine: a kernel at each training row
    ARDRegressor, ARDClassifier     the inputs themselves, one prior precision per weight

They call `gaussian_ard` and `sequential_ard` on arrays, so that a fit needs no graph and costs what
the search costs. The same model as a graph (`model_`) and its ArviZ tree at the fitted
hyperparameters (`tree_`) are made when they are first asked for: every function of `ardvark` that
takes a model or a tree takes these. Neither is copied or stored with the estimator.

    Phi = (1, X)  or  (1, k(X, X))        w_j ~ N(0, 1/alpha_j), alpha_j of largest evidence

More than two classes go by one-against-rest: each class has its own sparse model against all
others, and the K probabilities are divided by their sum. Data are never rescaled: put a
`StandardScaler` before these estimators.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ardvark.errors import ConvergenceWarning, InputError
from ardvark.inference.columns import Columns
from ardvark.inference.ep import EP
from ardvark.inference.gaussian_ard import gaussian_ard
from ardvark.inference.laplace import Laplace
from ardvark.inference.one_against_rest import (
    LINKS,
    log_odds,
    log_probabilities,
    sparse_machines,
)
from ardvark.models.checks import one_of, positive, positive_integer
from ardvark.models.inputs import Array
from ardvark.models.kernels import KERNELS, MEDIAN, RBF, Kernel

__all__ = ["RVC", "RVR", "ARDClassifier", "ARDRegressor"]

METHODS: dict[str, Any] = {"ep": EP, "laplace": Laplace}
DENSE = 2.5e8  # bytes of Phi beyond which its columns are made when they are needed
DRAWS = 250  # of each of the four chains of `tree_`
KERNEL = RBF(width=MEDIAN)

Index = NDArray[np.intp]


class _Weights(NamedTuple):
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


class _Estimator(BaseEstimator, ABC):  # type: ignore[misc]
    """What all four share; a subclass says what its basis is and how its weights are found."""

    fit_intercept: bool
    tolerance: float
    max_steps: int
    _weights: tuple[_Weights, ...]

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
        columns[:, weights < bias] = 1.0  # in the place of one made for nothing: no copy
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
        self._options: dict[str, Any] = {"bias": bool(self.fit_intercept)}
        self._options |= self._begin_basis(X)
        return self._n_functions() + int(self._options["bias"])

    def _end(self, weights: list[_Weights]) -> None:
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
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _eta(self, X: Array, weights: _Weights) -> tuple[Array, Array]:
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
            from ardvark.inference.hyper import Fixed

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
            import pandas as pd

            names = getattr(self, "feature_names_in_", None)
            X = self.X_fit_ if names is None else pd.DataFrame(self.X_fit_, columns=names)
            build = self._builder()
            self._graphs = [build(X, t, **self._options) for t in self._targets()]
        return self._graphs

    def _theta(self, weights: _Weights) -> dict[str, Any]:
        bias = int(self._options["bias"])
        theta: dict[str, Any] = {"alpha": weights.precision[bias:]}
        if bias:
            theta["alpha_bias"] = weights.precision[0]
        if weights.noise is not None:
            theta["sigma"] = weights.noise
        return theta

    def __dir__(self) -> list[str]:
        """List all names but those of graph and tree, which a display would make by looking."""
        made = {"model_": "_graphs", "tree_": "_trees"}
        return [
            name
            for name in object.__dir__(self)
            if (made[name] in self.__dict__ if name in made else hasattr(self, name))
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the graph and the tree behind: they are made again from what is kept."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_graphs", "_trees")}


# --- two bases --------------------------------------------------------------------------------


class _OnRows(_Estimator):
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


class _Linear(_Estimator):
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


# --- two likelihoods --------------------------------------------------------------------------


class _Regression(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Gaussian noise, its sd of largest evidence too."""

    noise: float | None
    _method = "laplace"  # exact for Gaussian noise

    def fit(self, X: Any, y: Any) -> Self:
        """Find the precisions and the noise of largest evidence."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = np.array(y, dtype=float)
        n_weights = self._begin(X)
        self._options["noise"] = self.noise
        if self.noise is not None:
            positive(self.noise, "noise")
        self.y_fit_ = y
        found = gaussian_ard(
            self._design(X, n_weights),
            y,
            noise=self.noise,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
        )
        self.noise_ = found.noise
        weights = _Weights(
            found.precision, found.active, found.mean, found.covariance, found.log_evidence,
            found.steps, found.converged, found.noise if self.noise is None else None,
        )  # fmt: skip
        self._end([weights])
        return self

    def _design(self, X: Array, n_weights: int, on_demand: bool = True) -> Array | Columns:
        """Columns at any size: the search takes some at a time, which a table would gather."""
        return Columns(lambda indices: self._functions(X, indices), (len(X), n_weights))

    def _describe(self, mean: Array, precision: Array) -> None:
        super()._describe(mean, precision)
        self.intercept_ = float(self.intercept_[0])
        for name in ("coef_", "alpha_", "dual_coef_"):
            if name in self.__dict__:
                setattr(self, name, getattr(self, name)[0])

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean; with `return_std` also its sd, which has the noise in it."""
        X = self._checked(X)
        mean, variance = self._eta(X, self._weights[0])
        return (mean, np.sqrt(variance + self.noise_**2)) if return_std else mean

    def _targets(self) -> list[Any]:
        return [self.y_fit_]


class _Classification(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Two classes by a link; more by one-against-rest."""

    method: str
    link: str

    def fit(self, X: Any, y: Any) -> Self:
        """Find the precisions of largest evidence, for each class against the rest."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self._method = one_of(self.method, METHODS, "method")
        link = one_of(self.link, LINKS, "link")
        self.classes_, self.y_fit_ = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"y must have at least two classes, and has one class only: {self.classes_[0]!r}."
            )
        n_weights = self._begin(X)
        self._options["link"] = link
        machines = sparse_machines(
            self._design(X, n_weights, on_demand=(self._method, link) == ("laplace", "logit")),
            self._positive(),
            METHODS[self._method](),
            link=link,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
        )
        self._end([_Weights(*machine) for machine in machines])
        return self

    def _positive(self) -> list[NDArray[np.bool_]]:
        """Rows of the positive class in each two-class problem."""
        codes = range(len(self.classes_)) if len(self.classes_) > 2 else [1]
        return [self.y_fit_ == code for code in codes]

    def decision_function(self, X: Any) -> Array:
        """Log odds of the second class (N,), or of each class against the rest (N, K).

        Odds are those of the probability averaged over the posterior of the weights.
        """
        X = self._checked(X)
        link = self._options["link"]
        odds = [log_odds(*self._eta(X, weights), link) for weights in self._weights]
        return odds[0] if len(odds) == 1 else np.column_stack(odds)

    def predict_log_proba(self, X: Any) -> Array:
        """Log probability of each class, in the order of `classes_` (N, K)."""
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.column_stack([log_expit(-odds), log_expit(odds)])
        return log_probabilities(odds)

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, in the order of `classes_`; rows sum to one (N, K).

        Two classes: averaged over the posterior of the weights. More: each class against the rest,
        then divided by their sum.
        """
        odds = self.decision_function(X)
        if odds.ndim == 1:
            return np.column_stack([expit(-odds), expit(odds)])
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the largest probability."""
        odds = self.decision_function(X)
        codes = (odds > 0).astype(int) if odds.ndim == 1 else odds.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _targets(self) -> list[Any]:
        if len(self.classes_) == 2:
            return [self.classes_[self.y_fit_]]
        return self._positive()


# --- the estimators ---------------------------------------------------------------------------


class RVR(_OnRows, _Regression):
    """Relevance vector regression.

    Parameters
    ----------
    kernel : kernel object or function k(X, centres)
        `av.RBF(width=1.0)`, `av.Spline()`, ...; a width "median" is the median distance of the
        training rows. Search over `kernel` for a better one, or compare `log_evidence_`; a width
        of None (inferred) needs a graph: `av.fit(av.models.rvm_regression(X, y))`.
    fit_intercept : bool
        Whether there is a constant weight, with its own precision.
    noise : float, optional
        The noise sd; None = of largest evidence.
    tolerance : float
        Stop when no change gains more (nats).
    max_steps : int
        Changes of a precision before the search is given up.

    Attributes
    ----------
    relevance_, relevance_vectors_ : rows of X that are relevance vectors: indices, and themselves
    dual_coef_, intercept_ : posterior means of their weights, and of the constant
    noise_ : the noise sd
    log_evidence_, n_iter_, kernel_, n_features_in_, feature_names_in_
    model_, tree_ : the `pm.Model`, and the ArviZ tree at the fitted hyperparameters
    """

    def __init__(
        self,
        kernel: Any = KERNEL,
        *,
        fit_intercept: bool = True,
        noise: float | None = None,
        tolerance: float = 1e-6,
        max_steps: int = 100_000,
    ) -> None:
        self.kernel = kernel
        self.fit_intercept = fit_intercept
        self.noise = noise
        self.tolerance = tolerance
        self.max_steps = max_steps

    def _builder(self) -> Callable[..., Any]:
        from ardvark.models.rvm import rvm_regression

        return rvm_regression


class ARDRegressor(_Linear, _Regression):
    """Linear regression with one prior precision per input.

    Parameters
    ----------
    fit_intercept, noise, tolerance, max_steps
        As in `RVR`.

    Attributes
    ----------
    coef_, intercept_, alpha_ : posterior means and prior precisions (inf = pruned)
    support_ : inputs that are not pruned; `get_support()` as in scikit-learn's selectors
    noise_, log_evidence_, n_iter_, n_features_in_, feature_names_in_, model_, tree_ : as in `RVR`
    """

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        noise: float | None = None,
        tolerance: float = 1e-6,
        max_steps: int = 100_000,
    ) -> None:
        self.fit_intercept = fit_intercept
        self.noise = noise
        self.tolerance = tolerance
        self.max_steps = max_steps

    def _builder(self) -> Callable[..., Any]:
        from ardvark.models.ard import ard_regression

        return ard_regression


class RVC(_OnRows, _Classification):
    """Relevance vector classification; more than two classes by one-against-rest.

    With K > 2 classes there are K sparse models, each of one class against all others, and the
    probabilities are divided by their sum: they sum to one, but are no posterior of one joint
    model. `log_evidence_` and rows of `dual_coef_` are then one per class, `model_` and `tree_`
    lists, and a relevance vector is one for any class. Where the table of kernel values would be
    large its columns are made when they are needed (method="laplace", link="logit"), which is a
    greedier search: `ardvark.studies.usps` is an example.

    Parameters
    ----------
    kernel, fit_intercept, tolerance, max_steps
        As in `RVR`.
    method : "laplace" or "ep"
        How the likelihood becomes Gaussian. "ep" is quick with link="probit"; with "logit" each
        site is a quadrature.
    link : "logit" or "probit"

    Attributes
    ----------
    classes_ : labels in `np.unique` order
    relevance_, relevance_vectors_, dual_coef_, intercept_, log_evidence_, n_iter_, kernel_,
    n_features_in_, feature_names_in_, model_, tree_ : as in `RVR`
    """

    def __init__(
        self,
        kernel: Any = KERNEL,
        *,
        method: str = "laplace",
        link: str = "logit",
        fit_intercept: bool = True,
        tolerance: float = 1e-6,
        max_steps: int = 5000,
    ) -> None:
        self.kernel = kernel
        self.method = method
        self.link = link
        self.fit_intercept = fit_intercept
        self.tolerance = tolerance
        self.max_steps = max_steps

    def _builder(self) -> Callable[..., Any]:
        from ardvark.models.rvm import rvm_classification

        return rvm_classification


class ARDClassifier(_Linear, _Classification):
    """Linear classification with one prior precision per input; K > 2 by one-against-rest.

    What `RVC` says of more than two classes holds here too.

    Parameters
    ----------
    method : "ep" or "laplace"
        How the likelihood becomes Gaussian.
    link : "probit" or "logit"
    fit_intercept, tolerance, max_steps
        As in `RVR`.

    Attributes
    ----------
    classes_ : labels in `np.unique` order
    coef_, intercept_, alpha_ : posterior means and prior precisions (inf = pruned), a row for two
        classes and K rows for more
    support_ : inputs that are not pruned (for any class); `get_support()`
    log_evidence_, n_iter_, n_features_in_, feature_names_in_, model_, tree_ : as in `RVC`
    """

    def __init__(
        self,
        *,
        method: str = "ep",
        link: str = "probit",
        fit_intercept: bool = True,
        tolerance: float = 1e-6,
        max_steps: int = 5000,
    ) -> None:
        self.method = method
        self.link = link
        self.fit_intercept = fit_intercept
        self.tolerance = tolerance
        self.max_steps = max_steps

    def _builder(self) -> Callable[..., Any]:
        from ardvark.models.ard import ard_classification

        return ard_classification


def _settled(kernel: Any, X: Array) -> Any:
    """The kernel with its width as a number."""
    if isinstance(kernel, type) or not callable(kernel):
        names = ", ".join(known.__name__ for known in KERNELS.values())
        raise InputError(
            f"kernel must be a kernel object or a function k(X, centres), got {kernel!r}. "
            f"Kernels: {names}; write RBF(width=1.0)."
        )
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
