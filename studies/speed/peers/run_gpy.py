# mypy: ignore-errors
"""GPy: EP in function space with a linear kernel, Laplace with a Gaussian one; its defaults."""

import sys
import warnings

import GPy
import numpy as np
from protocol import main, test_scores

OPTIMISER_STEPS = 10


def classifier(X, t, kernel):
    """Building the model runs EP."""
    return GPy.models.GPClassification(X, t[:, None].astype(float), kernel=kernel)


def ep(X, t, **_):
    """Weights ~ N(0, I), recovered from the function-space posterior."""
    features = X.shape[1]

    def answer(model):
        covariance = np.eye(features) - X.T @ model.posterior.woodbury_inv @ X
        return {
            "mean": X.T @ model.posterior.woodbury_vector.ravel(),
            "sd": np.sqrt(np.diag(covariance)),
            "log_evidence": model.log_likelihood(),
        }

    return lambda: classifier(X, t, GPy.kern.Linear(features, variances=1.0)), answer


def predictive_path(X, t, X_test, t_test, informative):
    """One variance per feature, ten steps of its optimiser from 1 / d; no bias.

    GPy optimises with the sites of its first EP held; the evidence is from a fresh EP at the end.
    """
    features = X.shape[1]

    def call():
        start = np.full(features, 1.0 / features)
        model = classifier(X, t, GPy.kern.Linear(features, variances=start, ARD=True))
        model.optimize(max_iters=OPTIMISER_STEPS)
        return model

    def answer(model):
        variances = np.asarray(model.kern.variances)
        fresh = classifier(X, t, GPy.kern.Linear(features, variances=variances, ARD=True))
        strongest = np.argsort(-variances)[: informative.size]
        return {
            "steps": OPTIMISER_STEPS,
            "converged": model.optimization_runs[-1].status == "Converged",
            "log_evidence": fresh.log_likelihood(),
            "log_evidence_printed": model.log_likelihood(),
            "kept": np.sum(variances > 1e-8),
            "informative_among_strongest": np.isin(strongest, informative).sum(),
            **test_scores(model.predict(X_test)[0], t_test),
        }

    return call, answer


def svm_evidence(X, t, X_test, t_test, informative):
    """Laplace's evidence of a Gaussian ARD kernel and a constant, probit, by its own optimiser."""
    features = X.shape[1]

    def call():
        lengths = np.full(features, features**0.5)
        kernel = GPy.kern.RBF(features, lengthscale=lengths, ARD=True) + GPy.kern.Bias(features)
        model = GPy.core.GP(
            X,
            t[:, None].astype(float),
            kernel,
            GPy.likelihoods.Bernoulli(),
            inference_method=GPy.inference.latent_function_inference.Laplace(),
        )
        model.optimize()
        return model

    def answer(model):
        scores = test_scores(model.predict(X_test)[0], t_test)
        return {
            "converged": model.optimization_runs[-1].status == "Converged",
            "log_evidence": model.log_likelihood(),
            "test_error": scores["test_error"],
            "test_log_score": scores["test_log_probability"],
        }

    return call, answer


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    methods = {"ep": ep, "predictive_path": predictive_path, "svm_evidence": svm_evidence}
    main(methods, "GPy", warm=sys.argv[1] != "svm_evidence")  # nothing to warm, and long
