"""The Bayesian trigonometric SVM: a Gaussian process classifier with a margin.

    f ~ N(0, Σ(κ))                    Σ by an ARD covariance, Chu06 (2) or (3), with a jitter
    t_n ~ trigonometric(f(x_n))       p = cos²(π/4 (1 - y f)) on (-1, 1), 0 below, 1 above; y = ±1

The likelihood is normalised, as a hinge loss is not, and flat beyond the margin, as a probit is
not. So the mode is sparse (support vectors are the rows inside the margin) and yet there is an
evidence that sets every κ. The κ_a rank the features.

    Chu, Keerthi, Ong & Ghahramani 2006     here
    Cov[f(x_i), f(x_j)], (2) and (3)         `ARDGaussian`, `ARDLinear`
    y_i = ±1                                 t = 0/1: the second class is +1
    κ_0, κ_a, κ_b                            kappa_0, kappa_a, kappa_b
    flat P(θ)                                `Evidence()`, which does not see the hyperprior

Full Bayes needs a proper hyperprior: log-normal, see `covariances.py`. The paper's relatives for
regression (ε-insensitive losses) are out of scope.

`f` has one value per training row, so new rows need its covariance with the old ones: `av.predict`
has it. PyMC's own `sample_posterior_predictive` keeps `f` at the old rows, and warns when inputs
have changed. Data are never rescaled; the paper's columns have mean 0 and variance 1, as
`av.standardise` makes them.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from ardvark.errors import InputError
from ardvark.models.ard import scale_in_graph
from ardvark.models.card import Card, remember
from ardvark.models.checks import as_binary, as_inputs, warn_about_columns
from ardvark.models.covariances import ARDGaussian, Covariance
from ardvark.models.likelihoods import observe, trigonometric

__all__ = ["trigonometric_svm"]

DEFAULT_KERNEL = ARDGaussian()


def trigonometric_svm(X: Any, t: Any, *, kernel: Covariance = DEFAULT_KERNEL) -> Any:
    """Build the graph of a Gaussian process classifier with the trigonometric likelihood.

    Parameters
    ----------
    X, t
        As in `ard_classification`.
    kernel : `ARDGaussian` or `ARDLinear`
        The covariance of f; each of its parameters that is None is inferred.
    """
    inputs = as_inputs(X)
    codes, classes = as_binary(t, len(inputs))
    if not isinstance(kernel, Covariance):
        raise InputError(
            f"kernel must be a covariance, ARDGaussian(...) or ARDLinear(...); got {kernel!r}"
        )
    values = np.asarray(inputs)
    parameters = kernel.parameters(values)
    warn_about_columns(inputs)
    coords = {"row": np.arange(len(values)), "feature": list(inputs.feature_names)}

    def build(whitened: bool) -> Any:
        with pm.Model(coords=coords) as model:
            rows = pm.Data("X", values, dims=("row", "feature"))
            kappa = {scale.name: scale_in_graph(scale) for scale in parameters}
            covariance = kernel.train(rows, kappa, pt.eye(rows.shape[0]))
            if whitened:
                white = pm.Normal("white", 0.0, 1.0, dims="row")
                f = pm.Deterministic("f", pt.linalg.cholesky(covariance) @ white, dims="row")
            else:
                f = pm.MvNormal("f", pt.zeros((rows.shape[0],)), cov=covariance, dims="row")
            eta = pm.Deterministic("eta", f, dims="row")
            observe(trigonometric, codes, eta)
        return model

    model = build(whitened=False)

    card = Card(
        "trigonometric_svm", "binary", inputs.feature_names, classes, inputs.scaling,
        lambda X_new: {"X": X_new}, family="process", covariance=kernel,
    )  # fmt: skip
    remember(model, card, whitened=lambda: build(whitened=True))
    return model
