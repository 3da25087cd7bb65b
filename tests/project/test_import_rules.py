"""The import rules hold on the tree, and each of them catches a planted violation."""

import subprocess
import sys
from pathlib import Path

import pytest
from import_rules import longest_chain, package_graph, read, violations

ROOT = Path(__file__).resolve().parents[2]

CLEAN = {
    "inference/running/executor.py": (
        "def send():\n    import cloudpickle\n\n    cloudpickle.dumps(1)"
    ),
    "ardvark/__init__.py": "import lazy_loader",
    "ardvark/__init__.pyi": "from . import models\nfrom .inference.fit import fit",
    "ardvark/commands/cli.py": "import sys\nimport cyclopts\ndef go():\n    import pymc",
    "models/__init__.py": "",
    "models/checks.py": "import numpy as np",
    "models/ard.py": "import pymc as pm\nfrom ardvark.models import checks",
    "inference/__init__.py": "",
    "inference/sites/model.py": "import numpy as np\nfrom scipy import linalg",
    "inference/laplace.py": "from ardvark.inference.sites.model import condition",
    "inference/graph/read.py": "from pytensor.graph.traversal import walk",
    "inference/fit.py": "from ardvark.inference import laplace\nimport xarray",
    "diagnostics/__init__.py": "",
    "diagnostics/report/__init__.py": "",
    "diagnostics/report/report.py": "from ardvark.inference.fit import fit",
    "diagnostics/compare/__init__.py": "",
    "diagnostics/compare/table.py": "def f():\n    from ardvark.diagnostics.report import report",
}

ARRAYS = "inference/sites/model.py"
CHECKS = "models/checks.py"
FIT = "inference/fit.py"
ARD = "models/ard.py"
REPORT = "diagnostics/report/report.py"
EXECUTOR = "inference/running/executor.py"
PLANTED = {
    "pymc in the array layer": ("inference/laplace.py", "import pymc as pm", "array layer"),
    "in a function": (ARRAYS, "def f():\n    import xarray as xr", "array layer"),
    "by name": (ARRAYS, "f = __import__('pandas')", "array layer"),
    "a part of arviz": (ARRAYS, "from arviz_base import from_dict", "array layer"),
    "through another module": (
        ARRAYS,
        "from ardvark.models.ard import build",
        "importing ardvark.inference.sites.model would load pymc",
    ),
    "walks a graph": (FIT, "from pytensor.graph.basic import Constant", "graph layer"),
    "graph by its parent": (FIT, "from pytensor import graph", "graph layer"),
    "models see inference": (ARD, "from ardvark.inference.fit import fit", "ard.py:4"),
    "models see a public name": (ARD, "from ardvark import fit", "inference.fit"),
    "models see the root": (ARD, "import ardvark as av", "not the root"),
    "models see diagnostics": (ARD, "import ardvark.diagnostics.report.report", "diagnostics"),
    "inference sees diagnostics": (
        FIT,
        "def f():\n    from ardvark.diagnostics import report",
        "must not import ardvark.diagnostics",
    ),
    "inference sees the steps": (
        FIT,
        "from ardvark.steps import EPStep",
        "must not import ardvark.steps",
    ),
    "diagnostics see the estimators": (
        REPORT,
        "def f():\n    from ardvark.sklearn import RVR",
        "must not import ardvark.sklearn",
    ),
    "cycle of sub-packages by an import in a function": (
        REPORT,
        "def f():\n    from ardvark.diagnostics.compare.table import f",
        "cycle of sub-packages: ardvark.diagnostics.",
    ),
    "cycle": (ARRAYS, "from ardvark.inference import laplace", "import cycle"),
    "pickle": (CHECKS, "import pickle", "can run code"),
    "joblib": (CHECKS, "from joblib import load", "can run code"),
    "joblib at the executor": (EXECUTOR, "from joblib import load", "can run code"),
    "a file at the executor": (
        EXECUTOR,
        "import cloudpickle\ncloudpickle.load(open('x'))",
        "cloudpickle.load can run code",
    ),
    "cloudpickle": (CHECKS, "import cloudpickle", "can run code"),
    "numpy pickle": (CHECKS, "np.load('x', allow_pickle=True)", "allow_pickle"),
    "pandas pickle": (CHECKS, "pd.read_pickle('x')", "pickle"),
    "heavy root": ("ardvark/__init__.py", "import numpy", "importing ardvark would load numpy"),
    "heavy cli": ("ardvark/commands/cli.py", "from ardvark.models import ard", "would load pymc"),
}


def plant(root: Path, files: dict[str, str], docstring: bool = True) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(('"""What it is."""\n' if docstring else "") + text + "\n")
    return root


def test_the_tree_keeps_the_rules():
    assert violations(ROOT) == []


def test_a_clean_tree_is_clean(tmp_path):
    assert violations(plant(tmp_path, CLEAN)) == []


@pytest.mark.parametrize("case", PLANTED)
def test_planted_violation_is_found(tmp_path, case):
    name, line, message = PLANTED[case]
    found = violations(plant(tmp_path, {**CLEAN, name: f"{CLEAN[name]}\n{line}"}))
    assert any(message in item for item in found), found


def test_the_graph_of_sub_packages(tmp_path):
    graph = package_graph(read(plant(tmp_path, CLEAN)))
    assert longest_chain(graph) == [
        "ardvark.diagnostics.compare",
        "ardvark.diagnostics.report",
        "ardvark.inference",
    ]


def test_folders_stay_small():
    """A reader takes a folder in at a glance: at most 14 modules."""
    tops = ("ardvark", "models", "inference", "diagnostics", "studies")
    folders = {path.parent for name in tops for path in (ROOT / name).rglob("*.py")}
    sizes = {f.relative_to(ROOT).as_posix(): len(list(f.glob("[!_]*.py"))) for f in folders}
    assert {name: size for name, size in sizes.items() if size > 14} == {}


def test_missing_docstring_is_found(tmp_path):
    plant(tmp_path, CLEAN)
    plant(tmp_path, {"models/bare.py": "x = 1", "models/dot.py": '"""."""'}, docstring=False)
    assert violations(tmp_path) == [
        "models/bare.py:1: no module docstring",
        "models/dot.py:1: no module docstring",
    ]


def test_imports_for_type_checkers_make_no_cycle(tmp_path):
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ardvark.inference.fit"
    files = {**CLEAN, "inference/laplace.py": f"{CLEAN['inference/laplace.py']}\n{typed}"}
    assert violations(plant(tmp_path, files)) == []


def test_the_script_ends_with_1_when_a_rule_is_broken(tmp_path):
    plant(tmp_path, {**CLEAN, "inference/sites/model.py": "import pymc"})
    script = tmp_path / "tests" / "project" / "import_rules.py"
    script.parent.mkdir(parents=True)
    script.write_text((ROOT / "tests" / "project" / "import_rules.py").read_text())
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(
        "inference/sites/model.py:2: the array layer must not import pymc"
    )
