"""A logit with slopes and random intercepts tau z, not centred."""

from typing import Any


def random_intercepts_logit(X: Any, t: Any, group: Any) -> Any:
    """A logit with slopes and random intercepts tau z, not centred."""
    import pymc as pm

    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1.0)
        slopes = pm.Normal("slopes", 0, 1, shape=X.shape[1])
        z = pm.Normal("z", 0, 1, shape=int(group.max()))
        eta = pm.Deterministic("eta", X @ slopes + tau * z[group - 1])
        pm.Bernoulli("t", logit_p=eta, observed=pm.Data("t_observed", t))
    return model
