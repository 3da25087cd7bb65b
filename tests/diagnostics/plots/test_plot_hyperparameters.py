"""The picture of p(θ | t): nodes, draws and points of several trees, and the report's own."""

import matplotlib
import numpy as np
import pymc as pm
import pytest

import ardvark as av
from ardvark.diagnostics.plots.report import hyperparameters

matplotlib.use("Agg")
QUIET = {"draws": 100, "random_seed": 1, "progressbar": False}


@pytest.fixture(scope="module")
def trees():
    t = np.random.default_rng(2).normal(1.0, 2.0, size=12)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 3.0)
        mu = pm.Normal("mu", 0.0, 5.0)
        pm.Normal("t", mu, sigma, observed=t)
    return {
        "ep": av.fit(model, "ep", **QUIET),
        "point": av.fit(model, av.Laplace(hyper=av.Evidence()), **QUIET),
    }


def test_a_panel_has_density_nodes_and_points(trees):
    (panel,) = av.plot.hyperparameters(trees)
    assert panel.get_xlabel() == "sigma"
    dashed = [line for line in panel.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 1  # the type-II point
    assert dashed[0].get_xdata()[0] == pytest.approx(float(trees["point"]["theta"].sigma))
    assert len(panel.collections) == 1  # stems of the nodes


def test_the_reports_figure_has_its_colours(trees):
    figure = hyperparameters(trees, ["point", "ep"])
    assert len(figure.axes) == 1 and figure.axes[0].get_legend() is not None


def test_a_tree_without_hyperparameters_is_refused(trees):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        pm.Normal("t", mu, 1.0, observed=[0.3, 0.4])
    with pytest.raises(av.errors.InputError, match="no hyperparameters"):
        av.plot.hyperparameters(av.fit(model, "ep", **QUIET))
