"""What is installed: names, versions, the wheel's content, and what a bare import costs."""

import ast
import os
import resource
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import ardvark

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"ardvark": "ardvark"} | {
    f"ardvark.{name}": name for name in ("models", "inference", "diagnostics", "studies")
}
HEAVY = {"numpy", "pymc", "pytensor", "arviz", "xarray", "pandas", "scipy", "numba", "sklearn"}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def checker_block() -> dict[str, str]:
    """Public name -> module, as the `if TYPE_CHECKING` block of ardvark/__init__.py has it."""
    tree = ast.parse(Path(ardvark.__file__).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n))
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, f"{alias.name}: strict checkers want `X as X`"
            found[alias.name] = node.module
    return found


def test_homes_names_and_checker_block_agree():
    homes = {n: f"ardvark.{h}" if h else "ardvark" for n, h in ardvark._HOME.items()}
    assert checker_block() == homes
    assert sorted(ardvark.__all__) == sorted(homes)
    assert dir(ardvark) == sorted([*ardvark.__all__, "__version__"])


@pytest.mark.parametrize("name", ardvark.__all__)
def test_public_name_resolves_to_its_home(name):
    value = getattr(ardvark, name)
    home = ardvark._HOME[name]
    assert value.__name__ == (name if home else f"ardvark.{name}")
    assert ardvark.__dict__[name] is value  # looked up once, kept afterwards


def test_star_import_brings_every_name():
    scope: dict[str, object] = {}
    exec("from ardvark import *", scope)
    assert set(ardvark.__all__) <= set(scope)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ardvark.nothing


def test_version_is_the_projects():
    assert ardvark.__version__ == PROJECT["project"]["version"]


def test_import_is_cheap_and_loads_nothing_heavy():
    code = (
        "import sys, time; start = time.process_time(); import ardvark; "
        "print(time.process_time() - start, *{m.partition('.')[0] for m in sys.modules})"
    )
    seconds, *modules = run_python(code).split()
    assert not HEAVY & set(modules)
    assert float(seconds) < 0.3  # the promise; about 0.01 on a quiet machine


def test_help_answers_without_pymc():
    # `main` may end with SystemExit as a command line does; the modules are read after it.
    code = (
        "import sys, io, contextlib; from ardvark.cli import main\n"
        "sys.argv, text = ['ardvark', '--help'], io.StringIO()\n"
        "with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit): main()\n"
        "print(*{m.partition('.')[0] for m in sys.modules}); print(text.getvalue())"
    )
    modules, _, text = run_python(code).partition("\n")
    assert "report" in text
    assert not HEAVY & set(modules.split())


def test_help_of_the_installed_command_is_quick():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [Path(sys.executable).parent / "ardvark", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert seconds < 1.0  # CPU, not wall: other tests run beside this one


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of a wheel, built from a copy so that no trace is left in the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for folder in set(FOLDERS.values()):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    code = f"from setuptools import build_meta; build_meta.build_wheel({os.fspath(out)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
        return set(wheel.namelist())


def test_wheel_has_every_file_of_the_package(wheel_names):
    wanted = {
        "/".join((*package.split("."), *path.relative_to(ROOT / folder).parts))
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not {"__pycache__", "peers"} & set(path.parts)  # peers: other Pythons
    }
    missing = wanted - wheel_names
    assert not missing, f"not in the wheel (package-data in pyproject.toml): {sorted(missing)}"
    assert {"ardvark/__init__.py", "ardvark/py.typed"} <= wheel_names


def test_wheel_installs_only_ardvark(wheel_names):
    tops = {name.partition("/")[0] for name in wheel_names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"ardvark"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)
