"""Counts with a log link."""

from typing import Any


def poisson_log(X: Any, t: Any) -> Any:
    """Counts with a log link."""
    import pymc as pm

    with pm.Model() as model:
        level = pm.Normal("level", 0, 1)
        slopes = pm.Normal("slopes", 0, 1, shape=X.shape[1])
        eta = pm.Deterministic("eta", level + X @ slopes)
        pm.Poisson("t", pm.math.exp(eta), observed=pm.Data("t_observed", t))
    return model
