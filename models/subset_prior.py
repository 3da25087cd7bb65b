"""The prior of a subset of d inputs: a truncated Poisson over its size, uniform within a size.

    p(I) = p(k) / C(d, k),    p(k) = (λ^k / k!) / Σ_{j=0..d} λ^j / j!,    k = |I|

`λ` is `expected_inputs`: the mean size, up to the truncation at d. This is the prior of one subset,
so no binomial coefficient is left for the jumps: the odds of one more input, summed over which
one, are λ / (k + 1). The empty subset has a place in it.
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import gammaln

from ardvark.models.inputs import Array

__all__ = ["log_subset_prior", "subset_variable"]


def log_subset_prior(n_inputs: int, expected_inputs: float) -> Array:
    """Give log p(I) of a subset of each size 0..n_inputs."""
    size = np.arange(n_inputs + 1)
    log_subsets = gammaln(n_inputs + 1) - gammaln(size + 1) - gammaln(n_inputs - size + 1)
    return np.asarray(_log_sizes(size, expected_inputs) - log_subsets)


def subset_variable(name: str, n_inputs: int, expected_inputs: float, dims: str) -> Any:
    """Put a vector of 0 and 1 with this prior into the graph; it starts empty."""
    table = log_subset_prior(n_inputs, expected_inputs)
    sizes = np.exp(_log_sizes(np.arange(n_inputs + 1), expected_inputs))

    def logp(value: Any, probabilities: Any, ones: Any) -> Any:
        size = pt.cast(value, "int64").sum(axis=-1)
        binary = pt.all(pt.or_(pt.eq(value, 0), pt.eq(value, 1)), axis=-1)
        return pt.switch(binary, pt.constant(table)[pt.clip(size, 0, n_inputs)], -np.inf)

    def dist(probabilities: Any, ones: Any, size: Any) -> Any:
        number = pm.Categorical.dist(p=probabilities, size=size)
        noise = pm.Dirichlet.dist(a=ones, size=size)  # exchangeable: every order is as likely
        order = pt.argsort(pt.argsort(noise, axis=-1), axis=-1)
        return pt.cast(order < pt.expand_dims(number, -1), "int64")

    def support_point(rv: Any, size: Any, probabilities: Any, ones: Any) -> Any:
        return pt.zeros_like(rv)

    return pm.CustomDist(
        name,
        sizes,
        np.ones(n_inputs),
        logp=logp,
        dist=dist,
        support_point=support_point,
        signature="(s),(i)->(i)",
        class_name="Subset",
        dims=dims,
    )


def _log_sizes(size: Any, expected_inputs: float) -> Array:
    log_terms = size * np.log(expected_inputs) - gammaln(size + 1)
    return np.asarray(log_terms - np.logaddexp.reduce(log_terms))
