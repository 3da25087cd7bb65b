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
    from ardvark.diagnostics.calibration import scores as scores
    from ardvark.diagnostics.discovery import discoveries as discoveries
    from ardvark.diagnostics.discovery import selected as selected
    from ardvark.diagnostics.evidence import compare_evidence as compare_evidence
    from ardvark.diagnostics.evidence_table import bayes_factor as bayes_factor
    from ardvark.diagnostics.evidence_table import evidence as evidence
    from ardvark.diagnostics.groups import correlated_groups as correlated_groups
    from ardvark.diagnostics.groups import group_relevance as group_relevance
    from ardvark.diagnostics.loo import loo_table as loo_table
    from ardvark.diagnostics.loo import plot_loo as plot_loo
    from ardvark.diagnostics.optima_plot import plot_optima as plot_optima
    from ardvark.diagnostics.path import plot_path as plot_path
    from ardvark.diagnostics.projection import project as project
    from ardvark.diagnostics.rank_agreement import rank_agreement as rank_agreement
    from ardvark.diagnostics.relevance import relevance as relevance
    from ardvark.diagnostics.relevance_plot import plot_relevance as plot_relevance
    from ardvark.diagnostics.report import report as report
    from ardvark.diagnostics.sbc import sbc as sbc
    from ardvark.diagnostics.sbc_checks import sbc_summary as sbc_summary
    from ardvark.diagnostics.selection import compare_relevance as compare_relevance
    from ardvark.diagnostics.selection_plot import plot_selection as plot_selection
    from ardvark.diagnostics.show import show as show
    from ardvark.diagnostics.stability import stability as stability
    from ardvark.diagnostics.subset_checks import plot_inclusion as plot_inclusion
    from ardvark.diagnostics.subset_checks import subset_diagnostics as subset_diagnostics
    from ardvark.diagnostics.subsets import chosen_subsets as chosen_subsets
    from ardvark.diagnostics.subsets import credible_sets as credible_sets
    from ardvark.diagnostics.subsets import inclusion as inclusion
    from ardvark.diagnostics.subsets import joint_inclusion as joint_inclusion
    from ardvark.diagnostics.subsets import replacements as replacements
    from ardvark.diagnostics.subsets import subset_sizes as subset_sizes
    from ardvark.diagnostics.subsets import subsets as subsets
    from ardvark.diagnostics.summary import summary as summary
    from ardvark.diagnostics.taddaa import taddaa as taddaa
    from ardvark.errors import AccuracyWarning as AccuracyWarning
    from ardvark.errors import ConvergenceWarning as ConvergenceWarning
    from ardvark.errors import InputError as InputError
    from ardvark.errors import InputWarning as InputWarning
    from ardvark.errors import UnreadableModel as UnreadableModel
    from ardvark.errors import UnsupportedPair as UnsupportedPair
    from ardvark.inference.bridge_run import bridge as bridge
    from ardvark.inference.elliptical_slice import EllipticalSlice as EllipticalSlice
    from ardvark.inference.ep import EP as EP
    from ardvark.inference.exact import Exact as Exact
    from ardvark.inference.fit import fit as fit
    from ardvark.inference.gamma_search import search_gamma as search_gamma
    from ardvark.inference.graph import read_model as read_model
    from ardvark.inference.hyper import Evidence as Evidence
    from ardvark.inference.hyper import Fixed as Fixed
    from ardvark.inference.hyper import Predictive as Predictive
    from ardvark.inference.hyper import Sampled as Sampled
    from ardvark.inference.laplace import Laplace as Laplace
    from ardvark.inference.mixture_runs import conditional_posterior as conditional_posterior
    from ardvark.inference.nuts import NUTS as NUTS
    from ardvark.inference.path import path_errors as path_errors
    from ardvark.inference.predict import predict as predict
    from ardvark.inference.reversible_jump import ReversibleJump as ReversibleJump
    from ardvark.inference.select import select_features as select_features
    from ardvark.inference.smc import SMC as SMC
    from ardvark.inference.vb import VB as VB
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
    "bayes_factor": "diagnostics.evidence_table",
    "bridge": "inference.bridge_run",
    "chosen_subsets": "diagnostics.subsets",
    "VB": "inference.vb",
    "compare": "diagnostics.agreement",
    "credible_sets": "diagnostics.subsets",
    "compare_evidence": "diagnostics.evidence",
    "compare_relevance": "diagnostics.selection",
    "conditional_posterior": "inference.mixture_runs",
    "rank_agreement": "diagnostics.rank_agreement",
    "plot_relevance": "diagnostics.relevance_plot",
    "project": "diagnostics.projection",
    "selected": "diagnostics.discovery",
    "show": "diagnostics.show",
    "discoveries": "diagnostics.discovery",
    "correlated_groups": "diagnostics.groups",
    "group_relevance": "diagnostics.groups",
    "stability": "diagnostics.stability",
    "datasets": "models.datasets",
    "evidence": "diagnostics.evidence_table",
    "fit": "inference.fit",
    "inclusion": "diagnostics.subsets",
    "joint_inclusion": "diagnostics.subsets",
    "load": "models.datasets",
    "loo_table": "diagnostics.loo",
    "models": None,
    "path_errors": "inference.path",
    "plot_inclusion": "diagnostics.subset_checks",
    "plot_loo": "diagnostics.loo",
    "plot_optima": "diagnostics.optima_plot",
    "plot_path": "diagnostics.path",
    "plot_selection": "diagnostics.selection_plot",
    "predict": "inference.predict",
    "read_model": "inference.graph",
    "relevance": "diagnostics.relevance",
    "replacements": "diagnostics.subsets",
    "report": "diagnostics.report",
    "sbc": "diagnostics.sbc",
    "sbc_summary": "diagnostics.sbc_checks",
    "scores": "diagnostics.calibration",
    "search_gamma": "inference.gamma_search",
    "select_features": "inference.select",
    "sklearn": None,
    "standardise": "models.inputs",
    "steps": None,
    "subset_diagnostics": "diagnostics.subset_checks",
    "subset_sizes": "diagnostics.subsets",
    "subsets": "diagnostics.subsets",
    "summary": "diagnostics.summary",
    "taddaa": "diagnostics.taddaa",
}

__all__ = [
    "EP",
    "NUTS",
    "RBF",
    "SMC",
    "VB",
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
    "bayes_factor",
    "bridge",
    "chosen_subsets",
    "compare",
    "compare_evidence",
    "compare_relevance",
    "conditional_posterior",
    "correlated_groups",
    "credible_sets",
    "datasets",
    "discoveries",
    "evidence",
    "fit",
    "group_relevance",
    "inclusion",
    "joint_inclusion",
    "load",
    "loo_table",
    "models",
    "path_errors",
    "plot_inclusion",
    "plot_loo",
    "plot_optima",
    "plot_path",
    "plot_relevance",
    "plot_selection",
    "predict",
    "project",
    "rank_agreement",
    "read_model",
    "relevance",
    "replacements",
    "report",
    "sbc",
    "sbc_summary",
    "scores",
    "search_gamma",
    "select_features",
    "selected",
    "show",
    "sklearn",
    "stability",
    "standardise",
    "steps",
    "subset_diagnostics",
    "subset_sizes",
    "subsets",
    "summary",
    "taddaa",
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
