"""A zoo of sparse Bayesian models on PyMC: one graph, every method, every answer checked.

Every public name is here and is loaded on first use, so that `import ardvark` costs nothing:
neither NumPy nor PyMC is imported by it. `_HOME` says where a name lives; the block for type
checkers and `__all__` repeat it, and a test holds the three together.
"""

import typing as _t
from importlib import import_module as _import

if _t.TYPE_CHECKING:
    from ardvark import models as models
    from ardvark import sklearn as sklearn
    from ardvark import steps as steps
    from ardvark.diagnostics.agreement import compare as compare
    from ardvark.diagnostics.path import plot_path as plot_path
    from ardvark.diagnostics.relevance import relevance as relevance
    from ardvark.diagnostics.relevance import subsets as subsets
    from ardvark.diagnostics.report import report as report
    from ardvark.errors import AccuracyWarning as AccuracyWarning
    from ardvark.errors import ConvergenceWarning as ConvergenceWarning
    from ardvark.errors import InputError as InputError
    from ardvark.errors import InputWarning as InputWarning
    from ardvark.errors import UnreadableModel as UnreadableModel
    from ardvark.errors import UnsupportedPair as UnsupportedPair
    from ardvark.inference.elliptical_slice import EllipticalSlice as EllipticalSlice
    from ardvark.inference.ep import EP as EP
    from ardvark.inference.exact import Exact as Exact
    from ardvark.inference.fit import fit as fit
    from ardvark.inference.graph import read_model as read_model
    from ardvark.inference.hyper import Evidence as Evidence
    from ardvark.inference.hyper import Fixed as Fixed
    from ardvark.inference.hyper import Predictive as Predictive
    from ardvark.inference.hyper import Sampled as Sampled
    from ardvark.inference.laplace import Laplace as Laplace
    from ardvark.inference.nuts import NUTS as NUTS
    from ardvark.inference.path import path_errors as path_errors
    from ardvark.inference.predict import predict as predict
    from ardvark.inference.reversible_jump import ReversibleJump as ReversibleJump
    from ardvark.inference.smc import SMC as SMC
    from ardvark.models.covariances import ARDGaussian as ARDGaussian
    from ardvark.models.covariances import ARDLinear as ARDLinear
    from ardvark.models.datasets import datasets as datasets
    from ardvark.models.datasets import load as load
    from ardvark.models.inputs import standardise as standardise
    from ardvark.models.kernels import RBF as RBF
    from ardvark.models.kernels import Laplacian as Laplacian
    from ardvark.models.kernels import Linear as Linear
    from ardvark.models.kernels import Polynomial as Polynomial
    from ardvark.models.kernels import Spline as Spline
    from ardvark.models.kernels import ThinPlate as ThinPlate

__version__ = "0.1.0"

_HOME: dict[str, str | None] = {  # None: the name is a module itself
    "ARDGaussian": "models.covariances",
    "ARDLinear": "models.covariances",
    "AccuracyWarning": "errors",
    "ConvergenceWarning": "errors",
    "EP": "inference.ep",
    "EllipticalSlice": "inference.elliptical_slice",
    "Evidence": "inference.hyper",
    "Exact": "inference.exact",
    "Fixed": "inference.hyper",
    "InputError": "errors",
    "InputWarning": "errors",
    "Laplace": "inference.laplace",
    "Laplacian": "models.kernels",
    "Linear": "models.kernels",
    "NUTS": "inference.nuts",
    "Polynomial": "models.kernels",
    "Predictive": "inference.hyper",
    "RBF": "models.kernels",
    "ReversibleJump": "inference.reversible_jump",
    "SMC": "inference.smc",
    "Sampled": "inference.hyper",
    "Spline": "models.kernels",
    "ThinPlate": "models.kernels",
    "UnreadableModel": "errors",
    "UnsupportedPair": "errors",
    "compare": "diagnostics.agreement",
    "datasets": "models.datasets",
    "fit": "inference.fit",
    "load": "models.datasets",
    "models": None,
    "path_errors": "inference.path",
    "plot_path": "diagnostics.path",
    "predict": "inference.predict",
    "read_model": "inference.graph",
    "relevance": "diagnostics.relevance",
    "report": "diagnostics.report",
    "sklearn": None,
    "standardise": "models.inputs",
    "steps": None,
    "subsets": "diagnostics.relevance",
}

__all__ = [
    "EP",
    "NUTS",
    "RBF",
    "SMC",
    "ARDGaussian",
    "ARDLinear",
    "AccuracyWarning",
    "ConvergenceWarning",
    "EllipticalSlice",
    "Evidence",
    "Exact",
    "Fixed",
    "InputError",
    "InputWarning",
    "Laplace",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Predictive",
    "ReversibleJump",
    "Sampled",
    "Spline",
    "ThinPlate",
    "UnreadableModel",
    "UnsupportedPair",
    "compare",
    "datasets",
    "fit",
    "load",
    "models",
    "path_errors",
    "plot_path",
    "predict",
    "read_model",
    "relevance",
    "report",
    "sklearn",
    "standardise",
    "steps",
    "subsets",
]

if not _t.TYPE_CHECKING:  # hidden from checkers, to whom `av.nothing` would otherwise look fine

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for."""
        if name not in _HOME:
            raise AttributeError(f"module 'ardvark' has no attribute {name!r}")
        home = _HOME[name]
        module = _import(f"ardvark.{name if home is None else home}")
        value = module if home is None else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
