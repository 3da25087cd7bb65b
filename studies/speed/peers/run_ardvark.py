# mypy: ignore-errors
"""Ardvark's array layer: EP at fixed precisions, the ARD path on top of it, and the estimators.

The ARD models have a bias whose precision is optimised like the rest, as in the study `qi2004`.
"""

from dataclasses import replace

import numpy as np
from protocol import (
    gaussian_evidence,
    kernel,
    logistic_evidence,
    main,
    root_mean_square,
    test_scores,
)
from scipy.special import ndtr

from ardvark.inference.ard.sequential_ard import sequential_ard
from ardvark.inference.ep.ep import EP
from ardvark.inference.hyper.settings import Predictive
from ardvark.inference.sites.likelihoods import ProbitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.models.kernels import RBF
from ardvark.sklearn import RVC, RVR

GAIN = 1e-3  # nats of evidence for which a whole path takes another step
NATS = 1e-4  # what a step of a relevance vector machine must gain; fastrvm stops earlier


def probit(X, t):
    """Weights with precision one."""
    rows, weights = X.shape
    return SiteModel(
        mean=np.zeros(weights),
        projection=X,
        offset=np.zeros(rows),
        sites=ProbitSites(2.0 * t - 1.0),
        precision=np.ones(weights),
    )


def ep(X, t, **_):
    """Fixed precisions."""
    model = probit(X, t)

    def answer(fit):
        return {
            "mean": fit.posterior.mean,
            "sd": np.sqrt(fit.posterior.marginal_variance),
            "log_evidence": fit.log_evidence,
            "sweeps": fit.iterations,
        }

    return lambda: EP().approximate(model), answer


def with_bias(X):
    """A column of ones before the others."""
    return np.column_stack([np.ones(len(X)), X])


def ard_answer(path, step, fit, X_test, t_test, informative):
    """What was found at a step of the path, and how long the path is."""
    mean, variance = fit.posterior.predictive(with_bias(X_test), np.zeros(len(X_test)))
    kept = np.flatnonzero(step.active[1:])
    return {
        "steps": path.steps,
        "converged": path.converged,
        "log_evidence": path.path[-1].log_evidence,
        "kept": kept.size,
        "informative_kept": np.isin(kept, informative).sum(),
        **test_scores(ndtr(mean / np.sqrt(1.0 + variance)), t_test),
    }


def by_evidence(model, **search):
    """The search as `av.fit` runs it."""
    rule = EP().loosened()
    return sequential_ard(model, rule.approximate, runs=rule.run_of_steps, **search)


def evidence_ard(X, t, X_test, t_test, informative):
    """From the empty model to the end of the path."""
    model = probit(with_bias(X), t)

    def answer(path):
        return ard_answer(path, path.path[-1], path.fit, X_test, t_test, informative)

    return lambda: by_evidence(model), answer


def whole_path(X, t, X_test, t_test, informative):
    """From the empty model to where no step gains what matters."""
    model = probit(with_bias(X), t)

    def answer(path):
        return ard_answer(path, path.path[-1], path.fit, X_test, t_test, informative)

    return lambda: by_evidence(model, tolerance=GAIN), answer


def predictive_path(X, t, X_test, t_test, informative):
    """The same path, then the step of least leave-one-out error, approximated again."""
    model, criterion = probit(with_bias(X), t), Predictive().of

    def call():
        path = by_evidence(model)
        step = min(path.path, key=criterion)  # the first of equals
        return path, step, EP().approximate(replace(model, precision=step.precision))

    return call, lambda found: ard_answer(*found, X_test, t_test, informative)


def relevant(found, X, gamma):
    """Columns of the active weights, and their precisions."""
    precision = found._weights[0].precision
    on = np.isfinite(precision)
    return with_bias(kernel(X, X, gamma))[:, on], precision[on]


def rvm_regression(X, t, X_test, t_test, gamma):
    """`RVR`: kernel, search and posterior."""

    def answer(found):
        columns, alpha = relevant(found, X, gamma)
        return {
            "steps": found.n_iter_,
            "vectors": len(found.relevance_),
            "log_evidence": gaussian_evidence(columns, t, alpha, found.noise_),
            "test_error": root_mean_square(found.predict(X_test) - t_test),
        }

    bumps = RBF(width=(2 * gamma) ** -0.5)
    return lambda: RVR(bumps, tolerance=NATS).fit(X, t), answer


def rvm_classification(X, t, X_test, t_test, gamma):
    """`RVC`: Laplace and logit, kernel and posterior included."""

    def answer(found):
        columns, alpha = relevant(found, X, gamma)
        return {
            "steps": found.n_iter_,
            "vectors": len(found.relevance_),
            "log_evidence": logistic_evidence(columns, t, alpha),
            **test_scores(found.predict_proba(X_test)[:, 1], t_test),
        }

    bumps = RBF(width=(2 * gamma) ** -0.5)
    return lambda: RVC(bumps, tolerance=NATS).fit(X, t), answer


if __name__ == "__main__":
    methods = (
        ep, evidence_ard, whole_path, predictive_path, rvm_regression, rvm_classification,
    )  # fmt: skip
    main({method.__name__: method for method in methods}, "ardvark")
