"""The fast route for Gaussian noise: precisions and noise of a graph by `gaussian_ard`.

Taken when every site is Gaussian with the same noise, the noise, if free, is one scalar of the
graph (its sd, its variance or its precision, found by value), and no weight has a prior mean.
Everything else goes by the general route of `ascent.py`, which ends at the same optimum (a test) at
a higher price.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.ard.gaussian_ard import ACTIONS, GaussianArd, gaussian_ard
from ardvark.inference.ard.sequential_ard import ArdResult, ArdStep
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.running.progress import Tick
from ardvark.inference.sites.approximation import GaussianFit
from ardvark.inference.sites.arrays import Array, Mask
from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.model import SiteModel, least_noise

__all__ = ["Noise", "ard_path", "noise_of", "search"]

_FORMS = {"sd": 1.0, "variance": 2.0, "precision": -2.0}  # θ = sd ** power
_NOTHING = 1e-14  # of the noise's sd: a mean this near to zero was read off as zero


class Noise(NamedTuple):
    """The hyperparameter that is the noise (None: it is fixed), as a power of its sd.

    The target stands here too: a noise near zero hides it, and even that the sites are Gaussian.
    """

    name: str | None
    power: float
    fixed_sd: float
    target: Array

    def sd(self, theta: Mapping[str, Any]) -> float:
        """The noise at these hyperparameters."""
        return self.fixed_sd if self.name is None else float(theta[self.name]) ** (1 / self.power)

    @property
    def least(self) -> Array:
        """The hyperparameter where the noise has its least sd."""
        return np.array(least_noise(self.target) ** self.power)


def noise_of(latent: LatentGaussian, rest: tuple[str, ...]) -> Noise | None:
    """The noise parameter of the graph, or None if its sites are not Gaussian with one noise."""
    start = latent.initial_theta()
    inputs = dict(zip(latent.hyper, latent.reading.theta, strict=True))
    names = [n for n in rest if depends(latent.reading.cut, [inputs[n]])]
    sites, sd = latent.sites(start), _sd(latent, start)
    if sd is None or len(names) > 1:
        return None
    assert isinstance(sites, GaussianSites)
    target = np.where(np.abs(sites.mean) > _NOTHING * sd, sites.mean, 0.0)
    if not names:
        return Noise(None, 1.0, sd, target)
    [name] = names
    for power in _FORMS.values():
        if all(
            _is_power(latent, {**start, name: start[name] * f}, name, power) for f in (0.7, 1.3)
        ):
            return Noise(name, power, sd, target)
    return None


def _sd(latent: LatentGaussian, theta: Mapping[str, Any]) -> float | None:
    sites = latent.sites(theta)
    if not isinstance(sites, GaussianSites):
        return None
    precision = np.asarray(sites.precision)
    same = np.allclose(precision, precision.flat[0], rtol=1e-9)
    return float(precision.flat[0] ** -0.5) if same else None


def _is_power(latent: LatentGaussian, theta: Mapping[str, Any], name: str, power: float) -> bool:
    sd, value = _sd(latent, theta), theta[name]
    return np.ndim(value) == 0 and sd is not None and bool(np.isclose(sd**power, value, rtol=1e-9))


def search(
    model: SiteModel,
    noise: Noise,
    sd: float,
    *,
    optimised: Mask,
    start: Mask | None,
    start_precision: float | None,
    given_noise: bool,
    tolerance: float,
    max_steps: int,
    tick: Tick,
) -> GaussianArd:
    """Precisions and noise that maximise the evidence, from a start."""
    assert model.precision is not None
    precision = model.precision
    if start_precision is not None:
        precision = np.where(optimised, start_precision, precision)
    return gaussian_ard(
        model.projection,
        noise.target - model.offset,
        noise=sd if noise.name is None else None,
        optimised=optimised,
        precision=precision,
        start=start,
        start_noise=sd if given_noise else None,
        tolerance=tolerance,
        max_steps=max_steps,
        tick=tick,
    )


def ard_path(found: GaussianArd, fit: GaussianFit, first: Mask | None) -> ArdResult:
    """The path in the form of the general route; precisions are known at its two ends only."""
    size = found.precision.size
    on = set() if first is None else set(np.flatnonzero(first).tolist())
    steps = []
    for action, weight, evidence in zip(
        found.path.action, found.path.weight, found.path.log_evidence, strict=True
    ):
        name = ACTIONS[int(action)]
        if name == "add":
            on.add(int(weight))
        elif name == "delete":
            on.discard(int(weight))
        where = np.array(sorted(on), dtype=np.intp)
        unknown = np.full(where.size, np.nan)
        action = "re-estimate" if name == "all" else name
        steps.append(
            ArdStep(action, int(weight), np.nan, float(evidence), size, where, unknown, {})
        )
    end = ArdStep.at(steps[-1].action, steps[-1].weight, np.nan, found.precision, fit)
    return ArdResult(found.precision, fit, [*steps[:-1], end], found.converged and fit.converged)
