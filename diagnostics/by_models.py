"""Diagnostics that evaluate the model itself, not only its tree: they live in `inference`.

`bridge`: the evidence of any graph from a sampler's draws; `conditional_posterior`: all subsets of
a small mixture without a chain; `path_errors`: test errors along the path of an ARD search.
"""

from ardvark.inference.bridge.run import bridge
from ardvark.inference.hyper.path import path_errors
from ardvark.inference.mixture.run import conditional_posterior

__all__ = ["bridge", "conditional_posterior", "path_errors"]
