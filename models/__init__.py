"""Builders of models: each takes (X, t) and gives an ordinary `pm.Model`.

`__init__.pyi` lists them; each is imported, PyMC with it, when it is first used. `registry.py` says
which methods fit them: open it first, then `ard.py`.
"""

from ardvark.loading import attach_stub as _attach_stub

_load, __dir__, __all__ = _attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; models: {', '.join(__all__)}"
        )
    return _load(name)
