"""The reconstructed posterior of a hyperparameter as a picture."""

import numpy as np
import pytest
import xarray as xr

import ardvark as av


def tree(log_evidence=(-9.0, -10.0)):
    optima = xr.Dataset(
        {
            "log_evidence": ("optimum", list(log_evidence)),
            "kappa_0": ("optimum", [1.0, 20.0]),
            "kappa_a": (("optimum", "feature"), [[0.1, 1.0], [5.0, 2.0]]),
        },
        {"feature": ["height", "age"]},
    )
    return xr.DataTree.from_dict({"optima": optima})


def test_the_curve_is_a_density_with_the_weights_of_18():
    axis = av.plot.optima(tree(), sd=0.3)
    u, total = axis.lines[0].get_data()
    assert np.trapezoid(total, u) == pytest.approx(1.0, abs=1e-3)  # four sds on each side
    parts = [np.trapezoid(line.get_ydata(), u) for line in axis.lines[1:3]]
    assert parts[0] / parts[1] == pytest.approx(np.e, rel=1e-3)
    np.testing.assert_allclose(total, sum(line.get_ydata() for line in axis.lines[1:3]))
    assert axis.lines[3].get_xdata() == pytest.approx(np.log([1.0, 20.0]))


def test_a_feature_is_asked_for_by_name_and_an_axis_can_be_given():
    first = av.plot.optima(tree(), "kappa_a", "age")
    assert "kappa_a[age]" in first.get_xlabel()
    assert av.plot.optima(tree(), "kappa_0", axis=first) is first


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(av.errors.InputError, match="no optima"):
        av.plot.optima(xr.DataTree())
    with pytest.raises(av.errors.InputError, match="parameter must be one of"):
        av.plot.optima(tree(), "alpha")
    with pytest.raises(av.errors.InputError, match="feature must be one of"):
        av.plot.optima(tree(), "kappa_a")
    with pytest.raises(av.errors.InputError, match="sd"):
        av.plot.optima(tree(), sd=0.0)
