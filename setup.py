"""Where the packages are: only `ardvark` is importable, the folders of the top level are its own.

A new sub-package needs no line here; pyproject.toml has all else.
"""

from setuptools import find_packages, setup

FOLDERS = ("models", "inference", "diagnostics", "studies")

packages = {"ardvark": "ardvark"}
packages |= {f"ardvark.{name}": f"ardvark/{name}" for name in find_packages("ardvark")}
for folder in FOLDERS:
    packages[f"ardvark.{folder}"] = folder
    for name in find_packages(folder):
        packages[f"ardvark.{folder}.{name}"] = f"{folder}/{name.replace('.', '/')}"

setup(
    packages=list(packages),
    package_dir=packages,
    package_data={
        "": ["*.pyi"],
        "ardvark": ["py.typed"],
        "ardvark.diagnostics.report": ["templates/*"],
        "ardvark.diagnostics.calibration": ["*.json"],
        "ardvark.studies": ["results/**/*"],
        "ardvark.studies.papers": ["*.csv"],
    },
)
