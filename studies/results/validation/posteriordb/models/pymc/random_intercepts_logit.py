"""A logit with slopes and random intercepts."""

from typing import Any


def random_intercepts_logit(X: Any, t: Any, group: Any) -> Any:
    """A logit with slopes and random intercepts."""
    import pymc as pm

    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1.0)
        slopes = pm.Normal("slopes", 0, 1, shape=X.shape[1])
        effects = pm.Normal("effects", 0, tau, shape=int(group.max()))
        eta = pm.Deterministic("eta", X @ slopes + effects[group - 1])
        pm.Bernoulli("t", logit_p=eta, observed=pm.Data("t_observed", t))
    return model
