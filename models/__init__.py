"""Models of the zoo: each builder takes (X, t) and gives an ordinary `pm.Model`.

Builders are found by name in the registry and imported, PyMC with them, when first asked for.
"""

import typing as _t

from ardvark.models.registry import MODELS as _MODELS
from ardvark.models.registry import builder as _builder

if _t.TYPE_CHECKING:
    from ardvark.models.ard import ard_classification as ard_classification
    from ardvark.models.ard import ard_regression as ard_regression
    from ardvark.models.mixture import rbf_mixture as rbf_mixture
    from ardvark.models.rvm import rvm_classification as rvm_classification
    from ardvark.models.rvm import rvm_regression as rvm_regression
    from ardvark.models.sample_feature import (
        sample_feature_classification as sample_feature_classification,
    )
    from ardvark.models.sample_feature import (
        sample_feature_regression as sample_feature_regression,
    )
    from ardvark.models.subset import subset_classification as subset_classification
    from ardvark.models.subset import subset_regression as subset_regression
    from ardvark.models.svm import trigonometric_svm as trigonometric_svm

__all__ = [
    "ard_classification",
    "ard_regression",
    "rbf_mixture",
    "rvm_classification",
    "rvm_regression",
    "sample_feature_classification",
    "sample_feature_regression",
    "subset_classification",
    "subset_regression",
    "trigonometric_svm",
]

if not _t.TYPE_CHECKING:

    def __getattr__(name):
        if name not in _MODELS:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}; models: {', '.join(_MODELS)}"
            )
        globals()[name] = _builder(name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
