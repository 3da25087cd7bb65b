"""Weights with a precision each, a probit."""

from typing import Any

import ardvark as av


def ard_probit(X: Any, t: Any) -> Any:
    """Weights with a precision each, a probit."""
    return av.models.ard_classification(X, t, link="probit")
