"""What is installed: names, versions, the wheel's content, and what a bare import costs."""

import ast
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import ModuleType

import lazy_loader
import pytest

import ardvark
from ardvark.models.registry import MODELS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"ardvark": "ardvark"} | {
    f"ardvark.{name}": name for name in ("models", "inference", "diagnostics", "studies")
}
HEAVY = {"numpy", "pymc", "pytensor", "arviz", "xarray", "pandas", "scipy", "numba", "sklearn"}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def public() -> list[str]:
    """Every public name below `av`, those of the namespaces too."""
    names = list(ardvark.__all__)
    for name in ardvark.__all__:
        if isinstance(getattr(ardvark, name), ModuleType):
            names += [f"{name}.{inner}" for inner in getattr(ardvark, name).__all__]
    return names


def look_up(name: str) -> object:
    return reduce(getattr, name.split("."), ardvark)


@pytest.mark.parametrize("name", public())
def test_public_name_has_a_docstring(name):
    assert (look_up(name).__doc__ or "").strip(". ")


@pytest.mark.parametrize("package", ["ardvark", "ardvark.models", "ardvark.diagnostics"])
def test_the_stub_is_the_only_list(package):
    """What is public is what the stub imports; the module beside it names none of it again."""
    module = import_module(package)
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    aliases = [alias for node in imports for alias in node.names]
    assert all(alias.asname == alias.name for alias in aliases)  # strict checkers want `X as X`
    assert sorted(alias.name for alias in aliases) == sorted(module.__all__)
    assert set(module.__all__) <= set(dir(module))
    source = Path(module.__file__).read_text()
    written = {n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)}
    spaces = {"diagnostics", "errors", "kernels", "plot"}  # where a missing name is looked for
    assert written & set(module.__all__) <= spaces
    for node in imports:
        for alias in node.names:
            home = import_module(f"{package}.{node.module}") if node.module else module
            assert getattr(module, alias.name) is getattr(home, alias.name)


def test_the_root_has_few_names():
    assert len(ardvark.__all__) <= 42
    assert dir(ardvark) == sorted([*ardvark.__all__, "__version__"])


def test_every_builder_of_the_registry_is_a_public_model():
    assert sorted(MODELS) == sorted(ardvark.models.__all__)


def test_a_name_is_looked_up_once_and_kept():
    value = ardvark.fit
    assert ardvark.__dict__["fit"] is value


def test_star_import_brings_every_name():
    scope: dict[str, object] = {}
    exec("from ardvark import *", scope)
    assert set(ardvark.__all__) <= set(scope)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "module 'ardvark' has no attribute 'nothing'$"),
        ("_private", "no attribute '_private'$"),
        ("plot_loo", r"no attribute 'plot_loo'; it is av\.plot\.loo"),
        ("Spline", r"it is av\.kernels\.Spline"),
        ("InputError", r"it is av\.errors\.InputError"),
        ("scores", r"it is av\.diagnostics\.scores"),
    ],
)
def test_a_name_that_is_not_at_the_root_is_an_attribute_error(name, message):
    with pytest.raises(AttributeError, match=message):
        getattr(ardvark, name)


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"'nothing'; models: ard_classification, .*svm"):
        _ = ardvark.models.nothing


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
        "import sys, io, contextlib; from ardvark.commands.cli import main\n"
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


def test_the_sources_alone_say_that_they_are_not_the_package(tmp_path):
    """As in a clone after `pip install .`, where Python finds the folder `ardvark` first."""
    shutil.copytree(ROOT / "ardvark", tmp_path / "ardvark")
    packages = Path(lazy_loader.__file__).parents[1]  # as a path its .pth files are not read
    command = [sys.executable, "-S", "-c", "import ardvark"]
    environment = {**os.environ, "PYTHONPATH": os.fspath(packages)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "ImportError: this is the folder `ardvark` of the sources" in done.stderr


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and an sdist, built from a copy: no trace is left in the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for folder in set(FOLDERS.values()):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools.build_meta import build_sdist, build_wheel"
    code = f"{build}; build_sdist({os.fspath(out)!r}); build_wheel({os.fspath(out)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def built(archives: Path) -> dict[str, set[str]]:
    """The files of the wheel and of the sdist."""
    with (
        zipfile.ZipFile(next(archives.glob("*.whl"))) as wheel,
        tarfile.open(next(archives.glob("*.tar.gz"))) as sdist,
    ):
        # The first folder of an sdist is ardvark-<version>.
        sources = {name.partition("/")[2] for name in sdist.getnames()}
        return {"wheel": set(wheel.namelist()), "sdist": sources}


def files_of_the_package(installed: bool) -> set[str]:
    """Every file below the folders, as `ardvark/...` where installed, else as in the checkout."""
    return {
        "/".join((*(package.split(".") if installed else [folder]), *parts))
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and not {"__pycache__", "peers"} & set(parts := path.relative_to(ROOT / folder).parts)
    }  # peers: scripts for other Pythons


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_every_file_of_the_package_is_built_in(built, kind):
    missing = files_of_the_package(kind == "wheel") - built[kind]
    assert not missing, f"not in the {kind} (package_data in setup.py): {sorted(missing)}"


@pytest.mark.parametrize(
    "file",
    [
        "ardvark/py.typed",
        "ardvark/__init__.pyi",
        "ardvark/models/__init__.pyi",
        "ardvark/commands/cli.py",
        "ardvark/sklearn/bases.py",
        "ardvark/studies/papers/qi2004.py",
        "ardvark/diagnostics/report/parts/verdict.py",
        "ardvark/diagnostics/report/templates/report.css",
        "ardvark/diagnostics/calibration/calibration_record.json",
    ],
)
def test_files_that_a_careless_build_forgets_are_in_the_wheel(built, file):
    assert file in built["wheel"]


def test_wheel_installs_only_ardvark(built):
    wheel_names = built["wheel"]
    tops = {name.partition("/")[0] for name in wheel_names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"ardvark"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)


# --- dependencies -------------------------------------------------------------------------------

MODULE_OF = {"scikit-learn": "sklearn", "lazy-loader": "lazy_loader", "arviz-stats": "arviz_stats"}
USED_BY_OTHERS = {
    "arviz": "the plots that our trees are made for",
    "zarr": "DataTree.to_zarr",
    "h5netcdf": "DataTree.to_netcdf",
}
OF_PEERS = {"GPy", "fastrvm", "sklearn_rvm", "pymc_extras", "protocol", "statsmodels"}  # of bench
OPTIONAL = {"bambi", "dask", "distributed", "graphviz", "plotly", "playwright"}
OPTIONAL |= {"arviz_base", "arviz_plots"}  # parts of arviz, for the interactive page


def imported() -> set[str]:
    """Top names of what the package imports, by statement or by `import_module("name")`."""
    names = set()
    for folder in FOLDERS.values():
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.add(node.module)
                elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
                    literal = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
                    names |= {name for name in literal if isinstance(name, str)}
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"ardvark"}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    declared = {re.split(r"[\[<>=]", text)[0] for text in PROJECT["project"]["dependencies"]}
    modules = {MODULE_OF.get(name, name) for name in declared - set(USED_BY_OTHERS)}
    assert modules <= imported()
    assert imported() - OF_PEERS - OPTIONAL == modules


def test_the_files_around_the_package_have_its_version():
    version = PROJECT["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n  version = {{{version}}},\n" in (ROOT / "docs" / "references.md").read_text()
    recipe = (ROOT / "conda" / "recipe.yaml").read_text()
    assert f'version: "{version}"' in recipe
    for text in PROJECT["project"]["dependencies"]:
        name, bound = re.fullmatch(r"([\w-]+)(?:\[\w+\])?(>=[\d.]+)", text).groups()
        known = {"lazy-loader": "lazy_loader", "matplotlib": "matplotlib-base"}.get(name, name)
        assert f"    - {known} {bound}\n" in recipe, text


@pytest.mark.validate
def test_the_wheel_in_an_empty_environment_runs_the_first_block_of_the_readme(archives, tmp_path):
    uv = shutil.which("uv") or ROOT / ".tools" / "bin" / "uv"
    python = tmp_path / "venv" / "bin" / "python"
    wheel = next(archives.glob("*.whl"))
    steps = [
        [uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"],
        [uv, "pip", "install", "--quiet", "--python", python, wheel],
    ]
    for step in steps:
        subprocess.run(step, check=True, capture_output=True)
    block = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M)
    done = subprocess.run(
        [python, "-I", "-c", block[1]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "worst texture" in done.stdout
