"""The models by name: one line per model, with what must be known of it before it is built.

A model is added here. Its line says in which module its builder is, what it is for, which methods
fit it, why the others do not and what to use instead, and which variants the contract test builds.
Nothing heavy is imported until a builder is used.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = ["MODELS", "ModelEntry", "builder", "sample_data", "samples"]

type Variants = Mapping[str, Mapping[str, Any]]  # name of a variant -> arguments of the builder


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What is known of a model without building it."""

    home: str  # module of ardvark.models
    task: str  # "binary" | "multiclass" | "regression"
    paper: str
    methods: tuple[str, ...]  # fitted by
    reasons: Mapping[str, str] = field(default_factory=dict)  # not fitted by: why, what instead
    sample: Callable[[], Variants] = lambda: {"default": {}}
    also: tuple[str, ...] = ()  # tasks that the same builder takes too

    @property
    def tasks(self) -> tuple[str, ...]:
        """Every kind of target that the builder takes."""
        return (self.task, *self.also)


def _ard_variants() -> dict[str, dict[str, Any]]:
    from ardvark.models.kernels import RBF, Polynomial

    return {
        "default": {},
        "no bias": {"bias": False},
        "kernel": {"basis": RBF(width=1.5)},
        "polynomial": {"basis": Polynomial(degree=2), "bias": False},
        "callable": {"basis": lambda X: X[:, :2] ** 2},
        "fixed precisions": {"alpha": [0.5, 1.0, 2.0, 4.0]},
        "weights off": {"alpha": [0.5, 1.0, float("inf"), 4.0]},
        "bias off": {"alpha": [float("inf"), 1.0, 2.0, 4.0]},
        "own hyperprior": {"a": 2.5, "b": 0.7},
    }


def _ard_classification_variants() -> dict[str, dict[str, Any]]:
    variants = _ard_variants()
    return variants | {
        "logit": {"link": "logit"},
        "logit off": variants["weights off"] | {"link": "logit"},
    }


def _ard_regression_variants() -> dict[str, dict[str, Any]]:
    return _ard_variants() | {
        "fixed noise": {"noise": 0.3},
        "all fixed": {"noise": 0.3, "alpha": [0.5, 1.0, 2.0, 4.0]},
    }


def _rvm_variants() -> dict[str, dict[str, Any]]:
    from ardvark.models.kernels import RBF, Laplacian, Linear, Spline, ThinPlate

    wide = RBF(width=1.5)
    return {
        "default": {},
        "width given": {"kernel": wide},
        "median width": {"kernel": Laplacian(width="median"), "bias": False},
        "inferred width": {"kernel": Laplacian(width=None)},
        "inferred inputs": {"kernel": RBF(width=None, per_input=True)},
        "linear": {"kernel": Linear(), "a": 2.5, "b": 0.7},
        "spline": {"kernel": Spline()},
        "thin plate": {"kernel": ThinPlate()},
        "callable": {"kernel": lambda X, centres: 1.0 / (1.0 + abs(X @ centres.T))},
        "student": {"kernel": wide, "prior": "student"},
        "student, inferred width": {"prior": "student"},
        "shared": {"kernel": wide, "prior": "shared"},
        "shared, no bias": {"prior": "shared", "bias": False},
        "weights off": {"kernel": wide, "alpha": [0.5, *[float("inf"), 2.0, 1.0] * 4]},
    }


def _rvm_classification_variants() -> dict[str, dict[str, Any]]:
    variants = _rvm_variants()  # the kernels are those of the regression
    kept = ("default", "inferred inputs", "callable", "student", "shared", "weights off")
    probit = variants["width given"] | {"link": "probit"}
    three = {"t": sample_data("multiclass")[1]}
    lines = [[0.5, *[1.0] * 12], [float("inf"), *[2.0, float("inf")] * 6], [1.0] * 13]
    several = {
        "three classes": {},
        "three classes, no bias": {"kernel": variants["width given"]["kernel"], "bias": False},
        "three classes, callable": variants["callable"],
        "three classes, student": variants["student"],
        "three classes, shared": variants["shared"],
        "three classes, weights off": variants["weights off"],
        "three classes, by class": variants["weights off"] | {"alpha": lines},
    }
    return (
        {name: variants[name] for name in kept}
        | {"probit": probit}
        | {name: three | arguments for name, arguments in several.items()}
    )


def _rvm_regression_variants() -> dict[str, dict[str, Any]]:
    variants = _rvm_variants()
    return variants | {"fixed noise": variants["width given"] | {"noise": 0.3}}


def _mixture_variants() -> dict[str, dict[str, Any]]:
    t = sample_data("multiclass")[1].astype(float)
    t[[2, 7]] = float("nan")
    return {
        "default": {"n_kernels": 3},
        "gaussian background": {"n_kernels": 2, "background": "gaussian"},
        "unlabelled rows": {"n_kernels": 2, "t": t, "resolution": 0.0},
        "conditional": {"n_kernels": 2, "target": "conditional", "h": 3.0},
    }


def _svm_variants() -> dict[str, dict[str, Any]]:
    from ardvark.models.covariances import ARDGaussian, ARDLinear

    return {
        "default": {},
        "linear": {"kernel": ARDLinear()},
        "all fixed": {"kernel": ARDGaussian(2.0, [0.5, 0.1, 0.3], 1.0)},
        "some fixed": {"kernel": ARDGaussian(kappa_b=1.0, jitter=1e-6)},
        "linear, fixed": {"kernel": ARDLinear(kappa_a=0.5, kappa_b=2.0)},
    }


def _subset_variants() -> dict[str, dict[str, Any]]:
    return {
        "default": {},
        "ard": {"slab": "ard", "expected_inputs": 2.0},
        "shared": {"slab": "shared", "a": 2.5, "b": 0.7},
    }


def _subset_classification_variants() -> dict[str, dict[str, Any]]:
    return _subset_variants() | {"logit": {"link": "logit", "slab": 2.0}}


def _subset_regression_variants() -> dict[str, dict[str, Any]]:
    return _subset_variants() | {"fixed noise": {"noise": 0.3}}


def _sample_feature_variants() -> dict[str, dict[str, Any]]:
    # The paper's a = b = 1e-6 has no prior predictive: its draws under- and overflow.
    proper = {"a": 2.5, "b": 0.7}
    return {
        "default": proper,
        "width given": proper | {"gamma": 0.3},
        "own kernel": proper | {"kernel": lambda x, c, gamma: 1.0 / (1.0 + gamma * (x - c) ** 2)},
    }


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
        "ard",
        "binary",
        "Qi, Minka, Picard & Ghahramani 2004",
        ARD_METHODS,
        _no_jump("subset_classification"),
        _ard_classification_variants,
    ),
    "ard_regression": ModelEntry(
        "ard",
        "regression",
        "Tipping 2001",
        ARD_METHODS,
        _no_jump("subset_regression"),
        _ard_regression_variants,
    ),
    "rvm_classification": ModelEntry(
        "rvm",
        "binary",
        "Tipping 2001",
        ARD_METHODS,
        _no_jump("subset_classification"),
        _rvm_classification_variants,
        also=("multiclass",),
    ),
    "rvm_regression": ModelEntry(
        "rvm",
        "regression",
        "Tipping 2001",
        ARD_METHODS,
        _no_jump("subset_regression"),
        _rvm_regression_variants,
    ),
    "trigonometric_svm": ModelEntry(
        "svm",
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
        _svm_variants,
    ),
    "subset_classification": ModelEntry(
        "subset",
        "binary",
        "George & McCulloch 1993",
        ("reversible_jump", "nuts"),
        SUBSET_REASONS
        | {
            "exact": "the evidence of a subset has no closed form for two classes. "
            "Use ReversibleJump()."
        },
        _subset_classification_variants,
    ),
    "subset_regression": ModelEntry(
        "subset",
        "regression",
        "George & McCulloch 1993",
        ("reversible_jump", "exact", "nuts"),
        SUBSET_REASONS,
        _subset_regression_variants,
    ),
    "sample_feature_classification": ModelEntry(
        "sample_feature",
        "binary",
        "Mirzaei, Mohsenzadeh & Sheikhzadeh 2017",
        SAMPLE_FEATURE_METHODS,
        _NOT_FOR_PRODUCTS,
        _sample_feature_variants,
    ),
    "sample_feature_regression": ModelEntry(
        "sample_feature",
        "regression",
        "Mirzaei, Mohsenzadeh & Sheikhzadeh 2017",
        SAMPLE_FEATURE_METHODS,
        _NOT_FOR_PRODUCTS,
        _sample_feature_variants,
    ),
    "rbf_mixture": ModelEntry(
        "mixture",
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
        _mixture_variants,
    ),
}


def builder(name: str) -> Callable[..., Any]:
    """Return the builder of a registered model (this imports PyMC)."""
    build: Callable[..., Any] = getattr(import_module(f"ardvark.models.{MODELS[name].home}"), name)
    return build


def sample_data(task: str, n_rows: int = 12) -> tuple[Any, Any]:
    """Return a small seeded data set for a task: X (rows, 3) and t."""
    import numpy as np

    rng = np.random.default_rng(20)
    X = rng.normal(size=(n_rows, 3))
    score = X[:, 0] - 0.5 * X[:, 2] + 0.4 * rng.normal(size=n_rows)
    if task == "regression":
        return X, score
    n_classes = {"binary": 2, "multiclass": 3}[task]
    return X, np.argsort(np.argsort(score)) * n_classes // n_rows


def samples(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each variant of a model with the arguments, X and t among them, that build it."""
    X, t = sample_data(MODELS[name].task)
    for variant, arguments in MODELS[name].sample().items():
        yield variant, {"X": X, "t": t, **arguments}
