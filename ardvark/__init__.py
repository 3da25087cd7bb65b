"""Sparse Bayesian models on PyMC: one graph, every inference method, every answer checked.

`__init__.pyi` is the only list of the public names; each is loaded when it is first used, so that
`import ardvark` imports neither NumPy nor PyMC. What is not here is in one of the namespaces
`models`, `plot`, `kernels`, `steps`, `sklearn`, `diagnostics`, `errors`.
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

from ardvark.loading import attach_stub as _attach_stub

__version__ = "0.2.0"

if _find_spec("ardvark.models") is None:
    raise ImportError(
        "this is the folder `ardvark` of the sources, and its sub-packages are not below it: "
        "start Python in another folder, or install with `pip install --editable .`"
    )

_load, _, __all__ = _attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Load a public name; the error for a name of a namespace says which."""
    if name in __all__:
        return _load(name)
    message = f"module 'ardvark' has no attribute {name!r}"
    if not name.startswith("_"):
        short = name.removeprefix("plot_")
        for space in ("plot", "kernels", "diagnostics", "errors"):
            if short in _import_module(f"ardvark.{space}").__all__:
                message += f"; it is av.{space}.{short}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
