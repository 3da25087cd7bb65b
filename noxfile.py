#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""Tasks for those who use nox; the Makefile has the same and more."""

import re
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"


@nox.session(python=["3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """Run the tests."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site."""
    session.install("-e", ".[docs]")
    session.run("python", "-m", "sphinx", "-W", "-b", "html", "docs", "docs/_build/html")


@nox.session(python="3.12", default=False)
def lowest(session: nox.Session) -> None:
    """Run the README's code with the oldest versions that pyproject.toml allows."""
    oldest = ["--only-binary", ":all:", "--resolution", "lowest-direct"]
    session.install(*oldest, "-r", "pyproject.toml", "pytest>=8.3", "pytest-timeout>=2.3")
    session.install("--no-deps", ".")
    readme = "tests/project/test_documents.py"
    session.run("python", "-m", "pytest", readme, "-k", "readme_code", "-W", "default")


@nox.session(python=["3.12", "3.13", "3.14"], default=False)
@nox.parametrize("resolution", ["lowest-direct", "highest"])
def wheel(session: nox.Session, resolution: str) -> None:
    """Install the wheel alone, oldest or newest dependencies; run the README's first block."""
    folder = Path(session.create_tmp())
    session.run("uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), external=True)
    built = max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    # of a wheel's own dependencies, which are not direct ones, uv would always take the newest
    binary = ["--only-binary", ":all:", "--resolution", resolution]
    session.install(*binary, "-r", "pyproject.toml")
    session.install("--no-deps", str(built))
    readme = Path("README.md").read_text()
    block = re.search(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    session.chdir(folder)  # the checkout would be imported instead
    session.run("python", "-I", "-c", block[1])


if __name__ == "__main__":
    nox.main()
