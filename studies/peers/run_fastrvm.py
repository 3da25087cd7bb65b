# mypy: ignore-errors
"""fastrvm's private SparseBayes: sequential evidence-ARD on the columns themselves.

Logit sites by Laplace in C++, with a bias. The public classes take N x N kernels only, so they
would prune rows and not features.
"""

import numpy as np
from fastrvm import _sparsebayes_bindings as bindings
from protocol import main, test_scores

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


if __name__ == "__main__":
    main({"evidence_ard": evidence_ard}, "fastrvm")
