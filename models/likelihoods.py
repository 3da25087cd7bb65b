"""Likelihoods whose log probability is right far out in the tails.

    probit          p(t = 1 | eta) = Phi(eta)                   log p = log_ndtr(z)
    logit           p(t = 1 | eta) = 1/(1 + e^-eta)             log p = log_sigmoid(z)
    trigonometric   p(t = 1 | eta) = (1 + sin(π/2 eta))/2       log p = log_cos_squared(z)
                    on (-1, 1), 0 below and 1 above                            z = (2 t - 1) eta
    softmax         p(t = k | eta) = e^eta_k / sum_l e^eta_l    eta has K columns

The stock routes lose the tail. `Bernoulli(p=invprobit(eta))` is -inf beyond |eta| = 8.3 and carries
a relative error of 3e-8, since PyTensor stores the Python constant of sqrt(2.) in single precision.
`Bernoulli(logit_p=eta)` is -inf beyond 37 as long as no rewrite has stabilised it (FAST_COMPILE).
Here both are right to 1e-12 in the value for every z that a weight can give.

Draws are PyTensor graphs too, so every backend can compile them: a Python `random` would run in
numba's object mode, with a warning at each use.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad

__all__ = [
    "LINKS",
    "log_cos_squared",
    "logit",
    "observe",
    "probit",
    "softmax",
    "trigonometric",
]

ROOT_2 = pt.constant(np.sqrt(2.0), dtype="float64")
QUARTER_PI = pt.constant(np.pi / 4, dtype="float64")
SEAM = -1  # below it the tail is a scaled erfc, above it Phi is far enough from 0 for log1p


def log_ndtr(z: Any) -> Any:
    """Return log Phi(z), elementwise."""
    # Each branch sees only arguments of its own side: the derivative of a branch that is not
    # taken would otherwise overflow, and 0 times inf is NaN.
    low, high = pt.minimum(z, SEAM), pt.maximum(z, SEAM)
    tail = pt.log(pt.erfcx(-low / ROOT_2) / 2) - low**2 / 2
    body = pt.log1p(-pt.erfc(high / ROOT_2) / 2)
    return pt.switch(z < SEAM, tail, body)


def log_sigmoid(z: Any) -> Any:
    """Return -log(1 + exp(-z)), elementwise."""
    return -pt.softplus(-z)


def log_cos_squared(z: Any) -> Any:
    """Return 2 log cos(π/4 (1 - z)) on (-1, 1), -inf below and 0 above, elementwise: Chu06 (6)."""
    # Either half is written from its own end of the margin, where its argument is small; on the
    # side of no probability the slope is 0, not 0 times inf.
    low = pt.log(pt.sin(QUARTER_PI * pt.clip(1 + z, 1e-300, 1)))
    high = pt.log1p(-pt.sqr(pt.sin(QUARTER_PI * pt.clip(1 - z, 0, 1))))
    return pt.switch(z <= -1, -np.inf, pt.switch(z < 0, 2 * low, high))


def probit(name: str, eta: Any, **kwargs: Any) -> Any:
    """Observe t in {0, 1} with p(t = 1) = Phi(eta): a `pm` distribution like any other."""
    return _binary("Probit", log_ndtr, lambda eta: pt.erfc(-eta / ROOT_2) / 2, name, eta, kwargs)


def logit(name: str, eta: Any, **kwargs: Any) -> Any:
    """Observe t in {0, 1} with p(t = 1) = 1/(1 + exp(-eta)): a `pm` distribution like any other."""
    return _binary("Logit", log_sigmoid, pt.sigmoid, name, eta, kwargs)


def softmax(name: str, eta: Any, **kwargs: Any) -> Any:
    """Observe t in {0, ..., K - 1} with log p(t = k) = eta_k - log sum_l exp(eta_l)."""

    def logp(value: Any, eta: Any) -> Any:
        largest = disconnected_grad(eta.max(axis=-1, keepdims=True))  # its share cancels exactly
        log_sum = pt.log(pt.exp(eta - largest).sum(axis=-1)) + largest[..., 0]
        chosen = pt.eq(value[..., None], pt.arange(eta.shape[-1]))
        is_a_class = chosen.any(axis=-1)
        return pt.switch(is_a_class, (chosen * eta).sum(axis=-1) - log_sum, -np.inf)

    def dist(eta: Any, size: Any) -> Any:
        return pm.Categorical.dist(p=pt.special.softmax(eta, axis=-1), size=size)

    return pm.CustomDist(name, eta, logp=logp, dist=dist, class_name="Softmax", **kwargs)


def trigonometric(name: str, eta: Any, **kwargs: Any) -> Any:
    """Observe t in {0, 1} with p(t = 1) = cos²(π/4 (1 - eta)) in the margin (-1, 1): Chu06 (7)."""
    return _binary(
        "Trigonometric",
        log_cos_squared,
        lambda eta: (1 + pt.sin(2 * QUARTER_PI * pt.clip(eta, -1, 1))) / 2,
        name,
        eta,
        kwargs,
    )


def observe(distribution: Callable[..., Any], values: Any, *parameters: Any) -> Any:
    """Put `t`, one observation per row, into the graph; its values are `t_observed`."""
    t_observed = pm.Data("t_observed", values, dims="row")
    return distribution("t", *parameters, observed=t_observed, dims="row")


LINKS: dict[str, Callable[..., Any]] = {"probit": probit, "logit": logit}


def _binary(
    class_name: str,
    log_probability: Callable[[Any], Any],
    probability: Callable[[Any], Any],
    name: str,
    eta: Any,
    kwargs: dict[str, Any],
) -> Any:
    def logp(value: Any, eta: Any) -> Any:
        is_a_class = pt.or_(pt.eq(value, 0), pt.eq(value, 1))
        return pt.switch(is_a_class, log_probability((2 * value - 1) * eta), -np.inf)

    def dist(eta: Any, size: Any) -> Any:
        return pm.Bernoulli.dist(p=probability(eta), size=size)

    return pm.CustomDist(name, eta, logp=logp, dist=dist, class_name=class_name, **kwargs)
