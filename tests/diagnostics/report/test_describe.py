"""What a report says of the model: sizes of variables, its title."""

import numpy as np
import pymc as pm
import pytest

from ardvark.diagnostics.report.describe import describe_model
from ardvark.diagnostics.report.page import environment


def test_a_variable_without_named_dimensions_has_its_sizes():
    with pm.Model(coords={"ward": range(3)}) as model:
        level = pm.Normal("level", 0, 1, dims="ward")
        spread = pm.HalfNormal("spread", 1)
        pm.Normal("y", level[[0, 1, 2, 0]], spread, observed=np.zeros(4))
    found = {v["name"]: v["dims"] for v in describe_model(model)["variables"]}
    assert found == {"level": ["ward"], "spread": [], "y": ["4"]}


@pytest.mark.parametrize(
    ("data", "model", "title"),
    [
        ("wdbc", "ard_regression", "wdbc: ard_regression"),
        ("not named", "ard_regression", "ard_regression"),
        ("not named", "user graph", "Your own model"),
        ("mine.csv", "user graph", "mine.csv: Your own model"),
    ],
)
def test_the_title_of_a_report(data, model, title):
    macros = environment().get_template("macros.html.j2").module
    assert macros.heading({"Data set": data, "Model": model}).strip() == title
