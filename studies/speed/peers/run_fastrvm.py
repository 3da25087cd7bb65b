# mypy: ignore-errors
"""fastrvm: its relevance vector machines, and its private SparseBayes on the columns themselves.

Logit sites by Laplace in C++, with a bias. The public classes take N x N kernels only, so they
would prune rows and not features. They keep no precision of the bias: for the evidence, which is
not timed, the private search is run once more on the same kernel.
"""

import numpy as np
from fastrvm import RVC, RVR
from fastrvm import _sparsebayes_bindings as bindings
from protocol import (
    best_bias,
    gaussian_evidence,
    kernel,
    logistic_evidence,
    main,
    root_mean_square,
    test_scores,
)

MAX_STEPS = 10000


def evidence_ard(X, t, X_test, t_test, informative):
    """From its own start to its own end."""
    target, features = t.astype(float), X.shape[1]

    def call():
        bernoulli = bindings.Likelihood.Bernoulli
        return bindings.SparseBayes(bernoulli, MAX_STEPS, True, False).inference(X, target)

    def answer(found):
        index, mean = np.ravel(found["relevant_idx"]), np.ravel(found["mean"])
        inputs = index < features  # the bias is the column after the last
        eta = X_test[:, index[inputs]] @ mean[inputs] + mean[~inputs].sum()
        return {
            "steps": found["n_iter"],
            "converged": found["status"] == 0,
            "log_evidence_logit": found["log_marginal_likelihood_trace"][-1],
            "kept": inputs.sum(),
            "informative_kept": np.isin(index[inputs], informative).sum(),
            **test_scores(1.0 / (1.0 + np.exp(-eta)), t_test),
        }

    return call, answer


def again(likelihood, X, t, gamma):
    """What the public class found, with nothing left out: columns, precisions, everything.

    The precisions that it returns are those it used divided by |phi|⁴: with that undone they give
    its mean, its covariance and its own evidence to the last digit. That of the bias is about 1e-13
    and not searched for, so it is given the best there is.
    """
    Phi = kernel(X, X, gamma)
    found = bindings.SparseBayes(likelihood, MAX_STEPS, True, False).inference(Phi, t.astype(float))
    index = np.ravel(found["relevant_idx"])
    columns = np.column_stack([Phi, np.ones(len(Phi))])[:, index]
    return columns, np.ravel(found["alpha"]) * (columns**2).sum(axis=0) ** 2, found


def rvm_regression(X, t, X_test, t_test, gamma):
    """`RVR` with a bias, all else by default."""

    def answer(found):
        columns, alpha, inner = again(bindings.Likelihood.Gaussian, X, t, gamma)
        return {
            "steps": found.n_iter_,
            "vectors": found.n_relevance_,
            "log_evidence": best_bias(
                lambda a: gaussian_evidence(columns, t, a, inner["beta"] ** -0.5), alpha
            ),
            "test_error": root_mean_square(found.predict(X_test) - t_test),
        }

    return lambda: RVR(kernel="rbf", gamma=float(gamma), fit_intercept=True).fit(X, t), answer


def rvm_classification(X, t, X_test, t_test, gamma):
    """`RVC` with a bias, all else by default."""

    def answer(found):
        columns, alpha, _ = again(bindings.Likelihood.Bernoulli, X, t, gamma)
        return {
            "steps": found.n_iter_[0],
            "vectors": found.n_relevance_[0],
            "log_evidence": best_bias(lambda a: logistic_evidence(columns, t, a), alpha),
            **test_scores(found.predict_proba(X_test)[:, 1], t_test),
        }

    return lambda: RVC(kernel="rbf", gamma=float(gamma), fit_intercept=True).fit(X, t), answer


if __name__ == "__main__":
    methods = (evidence_ard, rvm_regression, rvm_classification)
    main({method.__name__: method for method in methods}, "fastrvm")
