"""Trees in; a table, axes or a page out: relevance of inputs, agreement of methods, calibration.

The main functions are at the root (`av.compare`, `av.relevance`, `av.report`, ...); `__init__.pyi`
lists the others, each loaded when it is first used. Open `compare/agreement.py` first.
"""

from ardvark.loading import attach_stub as _attach_stub

__getattr__, __dir__, __all__ = _attach_stub(__name__, __file__)
