"""Step methods for `pm.sample(step=[...])`: `ardvark.steps`.

| step | moves | exact |
|---|---|---|
| `EPStep`, `LaplaceStep` | a Normal block given the rest, by an approximation | but for "draw" |
| `ExactProbitStep` | a Normal block under a probit likelihood: independent draws | yes |
| `GammaGibbs` | precisions with a Gamma conditional | yes |
| `ScaleStep` | precisions and weights along their common scale | yes |
"""

from ardvark.inference.step_block import EPStep, ExactProbitStep, LaplaceStep
from ardvark.inference.step_gamma import GammaGibbs
from ardvark.inference.step_scale import ScaleStep

__all__ = ["EPStep", "ExactProbitStep", "GammaGibbs", "LaplaceStep", "ScaleStep"]
"""PyMC step methods for `pm.sample(step=[...])`; each can be combined with NUTS on the rest."""

from ardvark.inference.subset_step import SubsetJump

__all__ = ["SubsetJump"]
