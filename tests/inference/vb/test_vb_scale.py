"""A scale that VB searches for: labelled as a point, and named where it has no best value."""

import numpy as np
import pymc as pm
import pytest

import ardvark as av

QUIET = {"random_seed": 1, "progressbar": False}
GROUP = np.repeat(np.arange(12), 10)


def random_intercept(effect):
    rng = np.random.default_rng(7)
    x = rng.normal(size=120)
    level = effect * rng.normal(size=12)
    t = (x + level[GROUP] + rng.logistic(size=120) > 0).astype(int)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.5)
        tau = pm.HalfNormal("tau", 1.0)
        z = pm.Normal("z", 0.0, 1.0, shape=12)
        eta = pm.Deterministic("eta", slope * x + tau * z[GROUP])
        pm.Bernoulli("t", logit_p=eta, observed=t)
    return model


def test_a_point_is_called_one():
    """It was hyper="posterior" beside "posterior at fixed hyperparameters"."""
    tree = av.fit(random_intercept(1.5), "vb", **QUIET)
    assert tree.attrs["hyper"] == "mode" and tree.attrs["converged"]
    assert "tau = " in tree.attrs["caption"] and "maximises ELBO" in tree.attrs["caption"]
    assert tree["posterior"]["tau"].attrs["held"] == "mode"
    assert "tau" not in av.summary(tree).index


def test_a_collapsed_scale_is_named():
    with pytest.warns(av.errors.ConvergenceWarning, match="tau has collapsed"):
        tree = av.fit(random_intercept(0.0), "vb", **QUIET)
    assert not tree.attrs["converged"] and float(tree["theta"].tau) < 0.05
    whole = av.fit(random_intercept(0.0), "ep", **QUIET)
    assert whole["posterior"]["tau"].values.mean() > 0.1 and whole.attrs["converged"]
