"""Fits that compile at once and show nothing, with one seed."""

from typing import Any

import pytensor

import ardvark as av

__all__ = ["fit"]


def fit(model: Any, method: Any, **settings: Any) -> Any:
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        return av.fit(model, method, **{"random_seed": 1, "progressbar": False} | settings)
