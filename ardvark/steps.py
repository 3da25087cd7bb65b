"""Step methods for `pm.sample(step=[...])`: `ardvark.steps`.

| step | moves | exact |
|---|---|---|
| `EPStep`, `LaplaceStep`, `VBStep` | a Normal block, by an approximation | but for "draw" |
| `ExactProbitStep` | a Normal block under a probit likelihood: independent draws | yes |
| `GammaGibbs` | precisions with a Gamma conditional | yes |
| `MixtureGibbs`, `MixtureJump` | `rbf_mixture`: its coefficients; its subset | yes |
| `ScaleStep` | precisions and weights along their common scale | yes |
| `SubsetJump` | a vector of indicators, with or without the weights that they switch | yes |
"""

from ardvark.inference.steps.block import EPStep, ExactProbitStep, LaplaceStep, VBStep
from ardvark.inference.steps.gamma import GammaGibbs
from ardvark.inference.steps.mixture import MixtureGibbs, MixtureJump
from ardvark.inference.steps.scale import ScaleStep
from ardvark.inference.steps.subset import SubsetJump

__all__ = [
    "EPStep",
    "ExactProbitStep",
    "GammaGibbs",
    "LaplaceStep",
    "MixtureGibbs",
    "MixtureJump",
    "ScaleStep",
    "SubsetJump",
    "VBStep",
]
