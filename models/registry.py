"""The models by name: one line per model, with what must be known of it before it is built.

A model is added here. Its line says what it is for, which methods fit it, why the others do not
and what to use instead. In which module its builder is says `__init__.pyi`; which variants the
contract tests build, `tests/helpers/model_variants.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["MODELS", "ModelEntry"]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What is known of a model without building it."""

    task: str  # "binary" | "multiclass" | "regression"
    paper: str
    methods: tuple[str, ...]  # fitted by
    reasons: Mapping[str, str] = field(default_factory=dict)  # not fitted by: why, what instead
    also: tuple[str, ...] = ()  # tasks that the same builder takes too

    @property
    def tasks(self) -> tuple[str, ...]:
        """Every kind of target that the builder takes."""
        return (self.task, *self.also)


SAMPLE_FEATURE_METHODS = ("laplace", "vb", "nuts", "smc")
_NOT_FOR_PRODUCTS = {
    "ep": "eta is a product of two blocks of weights, so there is no Gaussian block whose sites "
    "could be matched. Use VB(), or Laplace() for the type-II machine.",
    "exact": "the posterior of a product of weights has no closed form. Use NUTS() as a reference.",
    "elliptical_slice": "w and lam are no one Gaussian block. Use NUTS().",
    "reversible_jump": "its weights shrink but never leave the model, so there is no dimension to "
    "jump between. Use VB(), which prunes, or a subset model.",
}

ARD_METHODS = ("laplace", "ep", "vb", "nuts", "smc", "exact", "elliptical_slice")


def _no_jump(instead: str) -> dict[str, str]:
    return {
        "reversible_jump": "its weights shrink but never leave the model, so there is no dimension "
        f"to jump between. Use {instead}, or a method that fits this model."
    }


_ONE_GAUSSIAN = (
    "its posterior is a mixture over subsets, which no single Gaussian describes. "
    "Use ReversibleJump()."
)
SUBSET_REASONS = {
    "laplace": _ONE_GAUSSIAN,
    "ep": _ONE_GAUSSIAN,
    "vb": _ONE_GAUSSIAN,
    "smc": "its particles cannot move between subsets. Use ReversibleJump().",
    "elliptical_slice": "an ellipse stays within one subset. Use ReversibleJump().",
}

MODELS: dict[str, ModelEntry] = {
    "ard_classification": ModelEntry(
        "binary",
        "Qi, Minka, Picard & Ghahramani 2004",
        ARD_METHODS,
        _no_jump("subset_classification"),
    ),
    "ard_regression": ModelEntry(
        "regression",
        "Tipping 2001",
        ARD_METHODS,
        _no_jump("subset_regression"),
    ),
    "rvm_classification": ModelEntry(
        "binary",
        "Tipping 2001",
        ARD_METHODS,
        _no_jump("subset_classification"),
        also=("multiclass",),
    ),
    "rvm_regression": ModelEntry(
        "regression",
        "Tipping 2001",
        ARD_METHODS,
        _no_jump("subset_regression"),
    ),
    "trigonometric_svm": ModelEntry(
        "binary",
        "Chu, Keerthi, Ong & Ghahramani 2006",
        ("laplace", "ep", "nuts", "smc", "elliptical_slice"),
        {
            "exact": "no independent draws are known for a likelihood that is neither Gaussian nor "
            "probit. Use EllipticalSlice(hyper=Fixed(...)), a chain without rejections.",
            "vb": "its likelihood is zero on part of the line, where no Gaussian has bounded "
            "divergence from it. Use EP or Laplace.",
            "reversible_jump": "its features are weighed by kappa_a and never leave the model. Use "
            "subset_classification, or rank them by av.relevance.",
        },
    ),
    "subset_classification": ModelEntry(
        "binary",
        "George & McCulloch 1993",
        ("reversible_jump", "exact", "nuts"),
        SUBSET_REASONS,
    ),
    "subset_regression": ModelEntry(
        "regression",
        "George & McCulloch 1993",
        ("reversible_jump", "exact", "nuts"),
        SUBSET_REASONS,
    ),
    "sample_feature_classification": ModelEntry(
        "binary",
        "Mirzaei, Mohsenzadeh & Sheikhzadeh 2017",
        SAMPLE_FEATURE_METHODS,
        _NOT_FOR_PRODUCTS,
    ),
    "sample_feature_regression": ModelEntry(
        "regression",
        "Mirzaei, Mohsenzadeh & Sheikhzadeh 2017",
        SAMPLE_FEATURE_METHODS,
        _NOT_FOR_PRODUCTS,
    ),
    "rbf_mixture": ModelEntry(
        "multiclass",
        "Sykacek 2000",
        ("reversible_jump", "exact"),
        {
            name: "it is no Gaussian block times one site per row: kernels, allocations and the "
            "subset are unknown together. Use reversible_jump."
            for name in ("laplace", "ep", "vb", "elliptical_slice")
        }
        | {
            name: "its subset is discrete and changes what the other variables mean. Use "
            "reversible_jump, or give a subset: rbf_mixture(..., included=[...])."
            for name in ("nuts", "smc")
        },
    ),
}
