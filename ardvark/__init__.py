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
    from ardvark.diagnostics.calibration.checks import sbc_summary as sbc_summary
    from ardvark.diagnostics.calibration.sbc import sbc as sbc
    from ardvark.diagnostics.calibration.scores import scores as scores
    from ardvark.diagnostics.compare.agreement import compare as compare
    from ardvark.diagnostics.compare.evidence import bayes_factor as bayes_factor
    from ardvark.diagnostics.compare.evidence import evidence as evidence
    from ardvark.diagnostics.compare.evidence_ranking import compare_evidence as compare_evidence
    from ardvark.diagnostics.compare.loo import loo_table as loo_table
    from ardvark.diagnostics.compare.loo import plot_loo as plot_loo
    from ardvark.diagnostics.compare.taddaa import taddaa as taddaa
    from ardvark.diagnostics.plots.optima import plot_optima as plot_optima
    from ardvark.diagnostics.plots.path import plot_path as plot_path
    from ardvark.diagnostics.plots.relevance import plot_relevance as plot_relevance
    from ardvark.diagnostics.plots.selection import plot_selection as plot_selection
    from ardvark.diagnostics.relevance.compare import compare_relevance as compare_relevance
    from ardvark.diagnostics.relevance.discovery import discoveries as discoveries
    from ardvark.diagnostics.relevance.discovery import selected as selected
    from ardvark.diagnostics.relevance.groups import correlated_groups as correlated_groups
    from ardvark.diagnostics.relevance.groups import group_relevance as group_relevance
    from ardvark.diagnostics.relevance.projection import project as project
    from ardvark.diagnostics.relevance.ranks import rank_agreement as rank_agreement
    from ardvark.diagnostics.relevance.relevance import relevance as relevance
    from ardvark.diagnostics.relevance.stability import stability as stability
    from ardvark.diagnostics.relevance.subset_checks import plot_inclusion as plot_inclusion
    from ardvark.diagnostics.relevance.subset_checks import subset_diagnostics as subset_diagnostics
    from ardvark.diagnostics.relevance.subsets import chosen_subsets as chosen_subsets
    from ardvark.diagnostics.relevance.subsets import credible_sets as credible_sets
    from ardvark.diagnostics.relevance.subsets import inclusion as inclusion
    from ardvark.diagnostics.relevance.subsets import joint_inclusion as joint_inclusion
    from ardvark.diagnostics.relevance.subsets import replacements as replacements
    from ardvark.diagnostics.relevance.subsets import subset_sizes as subset_sizes
    from ardvark.diagnostics.relevance.subsets import subsets as subsets
    from ardvark.diagnostics.report.report import report as report
    from ardvark.diagnostics.report.show import show as show
    from ardvark.diagnostics.summary import summary as summary
    from ardvark.errors import AccuracyWarning as AccuracyWarning
    from ardvark.errors import ConvergenceWarning as ConvergenceWarning
    from ardvark.errors import InputError as InputError
    from ardvark.errors import InputWarning as InputWarning
    from ardvark.errors import UnreadableModel as UnreadableModel
    from ardvark.errors import UnsupportedPair as UnsupportedPair
    from ardvark.inference.bridge.run import bridge as bridge
    from ardvark.inference.ep.ep import EP as EP
    from ardvark.inference.exact.exact import Exact as Exact
    from ardvark.inference.fit import fit as fit
    from ardvark.inference.graph.read import read_model as read_model
    from ardvark.inference.hyper.path import path_errors as path_errors
    from ardvark.inference.hyper.settings import Evidence as Evidence
    from ardvark.inference.hyper.settings import Fixed as Fixed
    from ardvark.inference.hyper.settings import Predictive as Predictive
    from ardvark.inference.hyper.settings import Sampled as Sampled
    from ardvark.inference.laplace import Laplace as Laplace
    from ardvark.inference.mixture.run import conditional_posterior as conditional_posterior
    from ardvark.inference.predict import predict as predict
    from ardvark.inference.reversible_jump import ReversibleJump as ReversibleJump
    from ardvark.inference.sample_feature.run_gamma import search_gamma as search_gamma
    from ardvark.inference.samplers.elliptical_slice import EllipticalSlice as EllipticalSlice
    from ardvark.inference.samplers.nuts import NUTS as NUTS
    from ardvark.inference.samplers.smc import SMC as SMC
    from ardvark.inference.selection.run import select_features as select_features
    from ardvark.inference.vb.vb import VB as VB
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
    "EP": "inference.ep.ep",
    "EllipticalSlice": "inference.samplers.elliptical_slice",
    "Evidence": "inference.hyper.settings",
    "Exact": "inference.exact.exact",
    "Fixed": "inference.hyper.settings",
    "InputError": "errors",
    "InputWarning": "errors",
    "Laplace": "inference.laplace",
    "Laplacian": "models.kernels",
    "Linear": "models.kernels",
    "NUTS": "inference.samplers.nuts",
    "Polynomial": "models.kernels",
    "Predictive": "inference.hyper.settings",
    "RBF": "models.kernels",
    "ReversibleJump": "inference.reversible_jump",
    "SMC": "inference.samplers.smc",
    "Sampled": "inference.hyper.settings",
    "Spline": "models.kernels",
    "ThinPlate": "models.kernels",
    "UnreadableModel": "errors",
    "UnsupportedPair": "errors",
    "bayes_factor": "diagnostics.compare.evidence",
    "bridge": "inference.bridge.run",
    "chosen_subsets": "diagnostics.relevance.subsets",
    "VB": "inference.vb.vb",
    "compare": "diagnostics.compare.agreement",
    "credible_sets": "diagnostics.relevance.subsets",
    "compare_evidence": "diagnostics.compare.evidence_ranking",
    "compare_relevance": "diagnostics.relevance.compare",
    "conditional_posterior": "inference.mixture.run",
    "rank_agreement": "diagnostics.relevance.ranks",
    "plot_relevance": "diagnostics.plots.relevance",
    "project": "diagnostics.relevance.projection",
    "selected": "diagnostics.relevance.discovery",
    "show": "diagnostics.report.show",
    "discoveries": "diagnostics.relevance.discovery",
    "correlated_groups": "diagnostics.relevance.groups",
    "group_relevance": "diagnostics.relevance.groups",
    "stability": "diagnostics.relevance.stability",
    "datasets": "models.datasets",
    "evidence": "diagnostics.compare.evidence",
    "fit": "inference.fit",
    "inclusion": "diagnostics.relevance.subsets",
    "joint_inclusion": "diagnostics.relevance.subsets",
    "load": "models.datasets",
    "loo_table": "diagnostics.compare.loo",
    "models": None,
    "path_errors": "inference.hyper.path",
    "plot_inclusion": "diagnostics.relevance.subset_checks",
    "plot_loo": "diagnostics.compare.loo",
    "plot_optima": "diagnostics.plots.optima",
    "plot_path": "diagnostics.plots.path",
    "plot_selection": "diagnostics.plots.selection",
    "predict": "inference.predict",
    "read_model": "inference.graph.read",
    "relevance": "diagnostics.relevance.relevance",
    "replacements": "diagnostics.relevance.subsets",
    "report": "diagnostics.report.report",
    "sbc": "diagnostics.calibration.sbc",
    "sbc_summary": "diagnostics.calibration.checks",
    "scores": "diagnostics.calibration.scores",
    "search_gamma": "inference.sample_feature.run_gamma",
    "select_features": "inference.selection.run",
    "sklearn": None,
    "standardise": "models.inputs",
    "steps": None,
    "subset_diagnostics": "diagnostics.relevance.subset_checks",
    "subset_sizes": "diagnostics.relevance.subsets",
    "subsets": "diagnostics.relevance.subsets",
    "summary": "diagnostics.summary",
    "taddaa": "diagnostics.compare.taddaa",
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
