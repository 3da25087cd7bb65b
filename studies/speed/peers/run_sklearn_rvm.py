# mypy: ignore-errors
"""sklearn-rvm: expectation maximisation over all precisions, from a model with every row.

It has no bias by default and scales its columns, so the evidence is that of its own columns. One
call, and none that takes more than a minute of CPU time.
"""

import signal
import sys
import warnings

from protocol import gaussian_evidence, logistic_evidence, main, root_mean_square, test_scores
from sklearn_rvm import EMRVC, EMRVR

LIMIT = 60.0  # CPU seconds


def stop(*_):
    """Say why there is no figure."""
    sys.exit(f"no result within {LIMIT:.0f} CPU seconds")


def fitted(machine, X, t):
    """EMRVR's `fit` returns nothing."""
    machine.fit(X, t)
    return machine


def rvm_regression(X, t, X_test, t_test, gamma):
    """`EMRVR`, all by default."""

    def answer(found):
        noise = found.beta_**-0.5
        return {
            "vectors": len(found.relevance_),
            "log_evidence": gaussian_evidence(found.Phi_, t, found.alpha_, noise),
            "test_error": root_mean_square(found.predict(X_test) - t_test),
        }

    return lambda: fitted(EMRVR(kernel="rbf", gamma=float(gamma)), X, t), answer


def rvm_classification(X, t, X_test, t_test, gamma):
    """`EMRVC`, all by default."""

    def answer(found):
        return {
            "vectors": len(found.relevance_),
            "log_evidence": logistic_evidence(found.Phi_, t, found.alpha_),
            **test_scores(found.predict_proba(X_test)[:, 1], t_test),
        }

    return lambda: fitted(EMRVC(kernel="rbf", gamma=float(gamma)), X, t), answer


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    methods = (rvm_regression, rvm_classification)
    main({method.__name__: method for method in methods}, "sklearn-rvm", warm=False)
