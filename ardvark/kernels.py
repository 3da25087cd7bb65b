"""Kernels and covariances of the models: `av.kernels`.

`RBF`, `Laplacian`, `Linear`, `Polynomial`, `Spline`, `ThinPlate`: functions of a row and a centre,
the basis of `rvm_*` and `ard_*`. `ARDGaussian`, `ARDLinear`: the covariance of `trigonometric_svm`,
with a scale for each input.
"""

from ardvark.models.covariances import ARDGaussian, ARDLinear
from ardvark.models.kernels import RBF, Laplacian, Linear, Polynomial, Spline, ThinPlate

__all__ = [
    "RBF",
    "ARDGaussian",
    "ARDLinear",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Spline",
    "ThinPlate",
]
