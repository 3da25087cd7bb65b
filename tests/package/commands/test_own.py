"""A model of one's own on the command line: read, fitted, kept, reported, and refused by name."""

import json
from pathlib import Path

import pytest

from ardvark.commands.cli import main
from ardvark.commands.own import own_model
from ardvark.diagnostics.storage.trees import read_tree
from ardvark.errors import InputError

SCHOOLS = """
import numpy as np
import pymc as pm
from beside import EFFECT, ERROR

with pm.Model() as model:
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    z = pm.Normal("z", shape=8)
    theta = pm.Deterministic("theta", mu + tau * z)
    pm.Normal("y", theta, ERROR, observed=EFFECT)


def build():
    return model


def needs(rows):
    return model


number = 3


def broken():
    return 1 / 0
"""
BESIDE = """
EFFECT = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
ERROR = [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "beside.py").write_text(BESIDE)
    path = tmp_path / "schools.py"
    path.write_text(SCHOOLS)
    return path


def test_fit_report_and_go_on(file, tmp_path, capsys):
    out = tmp_path / "run"
    asked = ["fit", "--model", f"{file}:model", "--method", "laplace,ep", "--out", str(out)]
    assert main([*asked, "--draws", "200", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (
        said["ep"]["converged"] and said["ep"]["new"] and said["laplace"]["hyper"] == "integrated"
    )
    mu = read_tree(out / "ep.zarr")["posterior"].mu.values
    assert abs(mu.mean() - 4.4) < 0.5  # 800 draws of sd 3.3
    # The same command finds its answers, by a function of the same graph too.
    assert main([*asked, "--draws", "200", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["ep"]["new"]
    # Other data are another question.
    file.write_text(SCHOOLS.replace("observed=EFFECT", "observed=np.arange(8.0)"))
    assert main([*asked, "--draws", "200"]) == 2
    said = capsys.readouterr().err
    assert "is another question" in said and "the model (or numbers in it) has changed" in said
    file.write_text(SCHOOLS)
    page = tmp_path / "report.html"
    assert main(["report", str(out), "--out", str(page)]) == 0
    text = page.read_text()
    assert "tau" in text and "could not be made" not in text


def test_a_function_that_gives_a_model(file):
    assert {rv.name for rv in own_model(f"{file}:build").free_RVs} == {"mu", "tau", "z"}


def test_a_model_of_bambi(tmp_path):
    pytest.importorskip("bambi")
    path = tmp_path / "glm.py"
    path.write_text(
        "import bambi, numpy, pandas\n"
        "x = numpy.linspace(-1, 1, 20)\n"
        "model = bambi.Model('y ~ x', pandas.DataFrame({'x': x, 'y': 2 * x + 0.1}))\n"
    )
    assert "Intercept" in {rv.name for rv in own_model(f"{path}:model").free_RVs}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("schools.py", "which variable of it"),
        ("schools.txt:model", "no Python file"),
        ("nowhere.py:model", "nowhere.py cannot be read"),
        ("schools.py:modle", "has no 'modle'; it has EFFECT, ERROR, broken, build, model"),
        ("schools.py:needs", "needs rows: it must give a model without arguments"),
        ("schools.py:number", "schools.py:number is int"),
        ("schools.py:broken", "line 26: ZeroDivisionError: division by zero"),
        ("torn.py:model", "torn.py, line 2: "),
        ("wrong.py:model", "wrong.py, line 3: NameError"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_name(file, name, said):
    (file.parent / "torn.py").write_text("model = 3\nwith\n")
    (file.parent / "wrong.py").write_text("import math\n\nmodel = pm.Model()\n")
    with pytest.raises(InputError) as error:
        own_model(str(file.parent / name))
    assert said in str(error.value)


def test_nothing_is_run_before_the_name_is_checked(tmp_path):
    path, trace = tmp_path / "loud.py", tmp_path / "ran"
    path.write_text(f"open({str(trace)!r}, 'w').close()\nmodel = 1\n")
    with pytest.raises(InputError, match="has no 'other'"):
        own_model(f"{path}:other")
    assert not trace.exists()
    with pytest.raises(InputError, match="is int"):
        own_model(f"{path}:model")
    assert trace.exists()


def test_data_beside_such_a_model_are_refused(file, capsys):
    assert main(["fit", "wdbc", "--model", f"{file}:model"]) == 2
    assert "has its data inside: wdbc is not for it" in capsys.readouterr().err


def test_a_model_of_ones_own_is_calibrated(tmp_path, file, capsys):
    path = tmp_path / "line.py"
    path.write_text(
        "import numpy as np\nimport pymc as pm\n"
        "x = np.linspace(-1, 1, 20)\n"
        "with pm.Model() as model:\n"
        "    b = pm.Normal('b', 0, 1)\n"
        "    pm.Normal('y', b * x, 1.0, observed=pm.Data('t', 2 * x))\n"
    )
    asked = ["sbc", f"{path}:model", "--replications", "30", "--json"]
    assert main([*asked, "--method", "laplace"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["replications"] == 30 and said["failed"] == 0 and "b" in said["quantities"]
    assert main([*asked, "--data", "wdbc"]) == 2
    assert "has its inputs inside" in capsys.readouterr().err
    assert main(["sbc", f"{file}:model", "--replications", "2"]) == 2  # observed is a constant
    assert "pm.Data" in capsys.readouterr().err


def test_what_is_asked_of_nuts_reaches_it():
    from ardvark.commands.tasks import Task, command_again, settings_of

    task = Task(target_accept=0.99, tune=1500)
    assert settings_of("nuts", task).target_accept == 0.99
    assert settings_of("nuts", task).tune == 1500
    assert settings_of("nuts", Task()).target_accept == 0.9  # as NUTS() has it
    again = command_again("wdbc", "ard_classification", Path("r.html"), task)
    assert "--target-accept 0.99 --tune 1500" in again
