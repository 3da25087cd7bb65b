"""A regression whose noise is a Student-t of unknown scale."""

from typing import Any


def student_noise(X: Any, t: Any) -> Any:
    """A regression whose noise is a Student-t of unknown scale."""
    import pymc as pm

    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        slopes = pm.Normal("slopes", 0, 1, shape=X.shape[1])
        eta = pm.Deterministic("eta", X @ slopes)
        pm.StudentT("t", nu=4, mu=eta, sigma=scale, observed=pm.Data("t_observed", t))
    return model
