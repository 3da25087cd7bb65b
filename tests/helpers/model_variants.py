"""Variants of every model that the contract tests build, on a small seeded data set."""

from collections.abc import Iterator
from typing import Any

import numpy as np

import ardvark.models
from ardvark.models.covariances import ARDGaussian, ARDLinear
from ardvark.models.kernels import RBF, Laplacian, Linear, Polynomial, Spline, ThinPlate
from ardvark.models.registry import MODELS

type Variants = dict[str, dict[str, Any]]  # name of a variant -> arguments of the builder

INF = float("inf")


def sample_data(task: str) -> tuple[Any, Any]:
    """A small seeded data set for a task: X (12, 3) and t."""
    rng = np.random.default_rng(20)
    X = rng.normal(size=(12, 3))
    score = X[:, 0] - 0.5 * X[:, 2] + 0.4 * rng.normal(size=12)
    if task == "regression":
        return X, score
    n_classes = {"binary": 2, "multiclass": 3}[task]
    return X, np.argsort(np.argsort(score)) * n_classes // 12


def builder(name: str) -> Any:
    return getattr(ardvark.models, name)


def samples(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each variant of a model with the arguments, X and t among them, that build it."""
    X, t = sample_data(MODELS[name].task)
    for variant, arguments in VARIANTS.get(name, {"default": {}}).items():
        yield variant, {"X": X, "t": t, **arguments}


ARD: Variants = {
    "default": {},
    "no bias": {"bias": False},
    "kernel": {"basis": RBF(width=1.5)},
    "polynomial": {"basis": Polynomial(degree=2), "bias": False},
    "callable": {"basis": lambda X: X[:, :2] ** 2},
    "fixed precisions": {"alpha": [0.5, 1.0, 2.0, 4.0]},
    "weights off": {"alpha": [0.5, 1.0, INF, 4.0]},
    "bias off": {"alpha": [INF, 1.0, 2.0, 4.0]},
    "own hyperprior": {"a": 2.5, "b": 0.7},
}
WIDE = {"kernel": RBF(width=1.5)}
RVM: Variants = {
    "default": {},
    "width given": WIDE,
    "median width": {"kernel": Laplacian(width="median"), "bias": False},
    "inferred width": {"kernel": Laplacian(width=None)},
    "inferred inputs": {"kernel": RBF(width=None, per_input=True)},
    "linear": {"kernel": Linear(), "a": 2.5, "b": 0.7},
    "spline": {"kernel": Spline()},
    "thin plate": {"kernel": ThinPlate()},
    "callable": {"kernel": lambda X, centres: 1.0 / (1.0 + abs(X @ centres.T))},
    "student": WIDE | {"prior": "student"},
    "student, inferred width": {"prior": "student"},
    "shared": WIDE | {"prior": "shared"},
    "shared, no bias": {"prior": "shared", "bias": False},
    "weights off": WIDE | {"alpha": [0.5, *[INF, 2.0, 1.0] * 4]},
}
THREE = {"t": sample_data("multiclass")[1]}
BY_CLASS = [[0.5, *[1.0] * 12], [INF, *[2.0, INF] * 6], [1.0] * 13]
KEPT = ("default", "inferred inputs", "callable", "student", "shared", "weights off")
RVM_CLASSES: Variants = {  # the kernels are those of the regression
    **{name: RVM[name] for name in KEPT},
    "probit": WIDE | {"link": "probit"},
    "three classes": THREE,
    "three classes, no bias": THREE | WIDE | {"bias": False},
    **{f"three classes, {name}": THREE | RVM[name] for name in KEPT[2:]},
    "three classes, by class": THREE | RVM["weights off"] | {"alpha": BY_CLASS},
}
SUBSET: Variants = {
    "default": {},
    "ard": {"slab": "ard", "expected_inputs": 2.0},
    "shared": {"slab": "shared", "a": 2.5, "b": 0.7},
}
# The paper's a = b = 1e-6 has no prior predictive: its draws under- and overflow.
PROPER = {"a": 2.5, "b": 0.7}
SAMPLE_FEATURE: Variants = {
    "default": PROPER,
    "width given": PROPER | {"gamma": 0.3},
    "own kernel": PROPER | {"kernel": lambda x, c, gamma: 1.0 / (1.0 + gamma * (x - c) ** 2)},
}
SOME_LABELS = np.where(np.isin(np.arange(12), [2, 7]), np.nan, THREE["t"])

VARIANTS: dict[str, Variants] = {
    "ard_classification": ARD
    | {"logit": {"link": "logit"}, "logit off": ARD["weights off"] | {"link": "logit"}},
    "ard_regression": ARD
    | {"fixed noise": {"noise": 0.3}, "all fixed": ARD["fixed precisions"] | {"noise": 0.3}},
    "rvm_classification": RVM_CLASSES,
    "rvm_regression": RVM | {"fixed noise": WIDE | {"noise": 0.3}},
    "trigonometric_svm": {
        "default": {},
        "linear": {"kernel": ARDLinear()},
        "all fixed": {"kernel": ARDGaussian(2.0, [0.5, 0.1, 0.3], 1.0)},
        "some fixed": {"kernel": ARDGaussian(kappa_b=1.0, jitter=1e-6)},
        "linear, fixed": {"kernel": ARDLinear(kappa_a=0.5, kappa_b=2.0)},
    },
    "subset_classification": SUBSET | {"logit": {"link": "logit", "slab": 2.0}},
    "subset_regression": SUBSET | {"fixed noise": {"noise": 0.3}},
    "sample_feature_classification": SAMPLE_FEATURE,
    "sample_feature_regression": SAMPLE_FEATURE,
    "rbf_mixture": {
        "default": {"n_kernels": 3},
        "gaussian background": {"n_kernels": 2, "background": "gaussian"},
        "unlabelled rows": {"n_kernels": 2, "t": SOME_LABELS, "resolution": 0.0},
        "conditional": {"n_kernels": 2, "target": "conditional", "h": 3.0},
    },
}
