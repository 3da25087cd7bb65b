"""Estimators in the manner of scikit-learn, thin layers over the functions of this package.

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

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ardvark.errors import InputError
from ardvark.inference.ard.columns import Columns
from ardvark.inference.ard.gaussian_ard import gaussian_ard
from ardvark.inference.softmax.one_against_rest import (
    LINKS,
    log_odds,
    log_probabilities,
    sparse_machines,
)
from ardvark.models.checks import one_of, positive
from ardvark.models.inputs import Array
from ardvark.models.kernels import MEDIAN, RBF
from ardvark.sklearn.bases import (
    METHODS,
    Estimator,
    FittedWeights,
    LinearBasis,
    OnRows,
    known_table,
    refuse_options,
)

__all__ = ["RVC", "RVR", "ARDClassifier", "ARDRegressor"]

KERNEL = RBF(width=MEDIAN)

# --- two likelihoods --------------------------------------------------------------------------


class _Regression(RegressorMixin, Estimator):  # type: ignore[misc]
    """Gaussian noise, its sd of largest evidence too."""

    _method = "laplace"  # exact for Gaussian noise

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        noise: float | None = None,
        tolerance: float = 1e-6,
        max_steps: int = 100_000,
    ) -> None:
        super().__init__(fit_intercept, tolerance, max_steps)
        self.noise = noise

    def fit(self, X: Any, y: Any, **options: Any) -> Self:
        """Find the precisions and the noise of largest evidence.

        The one option is `sample_weight=None`, for callers that always give it: each row is one
        observation. Weights that are counts are rows repeated; others have no likelihood.
        """
        refuse_options(options)
        X, y = validate_data(self, known_table(X), y, dtype=np.float64, y_numeric=True)
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
        weights = FittedWeights(
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


class _Classification(ClassifierMixin, Estimator):  # type: ignore[misc]
    """Two classes by a link; more by one-against-rest."""

    def __init__(
        self,
        *,
        method: str = "ep",
        link: str = "probit",
        fit_intercept: bool = True,
        tolerance: float = 1e-6,
        max_steps: int = 5000,
    ) -> None:
        super().__init__(fit_intercept, tolerance, max_steps)
        self.method = method
        self.link = link

    def fit(self, X: Any, y: Any, **options: Any) -> Self:
        """Find the precisions of largest evidence, for each class against the rest.

        The one option is `sample_weight=None`, for callers that always give it: each row is one
        observation. Weights that are counts are rows repeated; others have no likelihood.
        """
        refuse_options(options)
        X, y = validate_data(self, known_table(X), y, dtype=np.float64)
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
        self._end([FittedWeights(*machine[:-1]) for machine in machines])  # all but `looks`
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


class RVR(OnRows, _Regression):
    """Relevance vector regression.

    Parameters
    ----------
    kernel : kernel object or function k(X, centres)
        `av.RBF(width=1.0)`, `av.kernels.Spline()`, ...; a width "median" is the median distance of
        the training rows. Search over `kernel` for a better one, or compare `log_evidence_`; a
        width of None (inferred) needs a graph: `av.fit(av.models.rvm_regression(X, y))`.
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
        super().__init__(
            fit_intercept=fit_intercept, noise=noise, tolerance=tolerance, max_steps=max_steps
        )
        self.kernel = kernel

    def _builder(self) -> Callable[..., Any]:
        from ardvark.models.rvm import rvm_regression

        return rvm_regression


class ARDRegressor(LinearBasis, _Regression):
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

    def _builder(self) -> Callable[..., Any]:
        from ardvark.models.ard import ard_regression

        return ard_regression


class RVC(OnRows, _Classification):
    """Relevance vector classification; more than two classes by one-against-rest.

    With K > 2 classes there are K sparse models, each of one class against all others, and the
    probabilities are divided by their sum: they sum to one, but are no posterior of one joint
    model. `log_evidence_` and rows of `dual_coef_` are then one per class, `model_` and `tree_`
    lists, and a relevance vector is one for any class. Where the table of kernel values would be
    large its columns are made when they are needed (method="laplace", link="logit"), which is a
    greedier search: `ardvark.studies.papers.usps` is an example.

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
        super().__init__(
            method=method, link=link, fit_intercept=fit_intercept, tolerance=tolerance,
            max_steps=max_steps,
        )  # fmt: skip
        self.kernel = kernel

    def _builder(self) -> Callable[..., Any]:
        from ardvark.models.rvm import rvm_classification

        return rvm_classification


class ARDClassifier(LinearBasis, _Classification):
    """Linear classification with one prior precision per input; K > 2 by one-against-rest.

    More than two classes are treated as in `RVC`.

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

    def _builder(self) -> Callable[..., Any]:
        from ardvark.models.ard import ard_classification

        return ard_classification
