"""Weights with a precision each, a logit."""

from typing import Any

import ardvark as av


def ard_logit(X: Any, t: Any) -> Any:
    """Weights with a precision each, a logit."""
    return av.models.ard_classification(X, t, link="logit")
