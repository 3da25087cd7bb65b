"""What the outer loop hands on: hyperparameters, and the approximation there."""

from typing import NamedTuple

from ardvark.inference.ard.sequential_ard import ArdResult
from ardvark.inference.sites.approximation import GaussianFit
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import SiteModel

__all__ = ["Settled"]


class Settled(NamedTuple):
    """Hyperparameters that were settled on, and the approximation there."""

    theta: dict[str, Array]
    model: SiteModel
    fit: GaussianFit
    converged: bool
    treatment: str  # "fixed" | "evidence" | "predictive"
    reason: str  # why not converged, or ""
    path: ArdResult | None = None
    chosen: int = -1  # the step of the path that was taken
