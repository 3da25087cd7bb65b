"""A step that moves ARD precisions together with their weights, along their common scale.

Alpha and w are tied: drawing alpha given w and w given alpha creeps where the data say little of a
weight. Here z = w sqrt(alpha) is held and alpha is moved: in each coordinate by a draw from its
prior, accepted by the likelihood alone, and in all at once by a slice in one common scale.
Beside `GammaGibbs` in one sampler this is the interweaving of Yu & Meng (2011).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pymc.model import modelcontext

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.sampled.kernels import State, problem_of, rescale, site_arrays
from ardvark.inference.sites.arrays import Array
from ardvark.inference.steps.block import BlockStep
from ardvark.inference.steps.gamma import GammaSlope, refuse_improper

__all__ = ["ScaleStep"]


class ScaleStep(BlockStep):
    """Move alpha ~ Gamma(a, b) together with w ~ N(0, 1 / alpha), at fixed w sqrt(alpha).

    Parameters
    ----------
    vars : list of variables
        The weights and their precisions: ScaleStep([w, alpha]). Both belong to other steps too:
        this one alone does not move w sqrt(alpha).
    """

    name = "scale_step"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"scale_acceptance": (np.float64, [])}

    def __init__(self, vars: Any = None, *, model: Any = None, **common: Any) -> None:
        model = modelcontext(model)
        variables = list(vars) if isinstance(vars, (list, tuple)) else [vars]
        positive = [v for v in variables if model.rvs_to_transforms.get(v) is not None]
        weights = [v for v in variables if v not in positive]
        if not positive or len(positive) != len(weights):
            raise InputError("ScaleStep needs weights and their precisions: ScaleStep([w, alpha])")
        super().__init__(weights, model=model, **common)
        self.pairs = self._pairs(positive)
        with quick():
            slopes = [GammaSlope(model, model.rvs_to_values[v]) for v in positive]
            start = model.initial_point()
        for slope in slopes:
            refuse_improper(slope, start)
        self.slopes = slopes
        self.vars = [*self.vars, *(model.rvs_to_values[v] for v in positive)]
        site_model = self.given.at(start)
        if site_arrays(site_model.sites, len(site_model.offset)) is None:
            raise UnsupportedPair(
                "ScaleStep needs a probit, logit or Gaussian likelihood of its predictor. Leave "
                "it out: GammaGibbs alone draws from the same posterior, more slowly."
            )

    def _pairs(self, positive: list[Any]) -> dict[str, str]:
        known = self.given.latent.ard_precisions
        for variable in positive:
            if variable.name not in known:
                raise UnsupportedPair(
                    f"ScaleStep: {variable.name} is not the precision of a zero-mean block among "
                    f"{', '.join(self.given.latent.weights)}, one for each weight."
                )
        return {variable.name: known[variable.name] for variable in positive}

    def step(self, point: dict[str, Array]) -> tuple[dict[str, Array], list[dict[str, Any]]]:
        """Move every pair along its scale."""
        site_model, latent = self.given.at(point), self.given.latent
        w, alpha = self.given.weights(point), np.array(site_model.precision)
        shape, rate = np.zeros(w.size), np.zeros(w.size)
        no_weights = self.given.moved(point, np.zeros(w.size))  # there the conditional is the prior
        for slope in self.slopes:
            block = latent.blocks[self.pairs[slope.name]]
            a, b = slope.at(no_weights)
            shape[block], rate[block] = np.ravel(a) - 0.5, np.ravel(b)
        arrays = site_arrays(site_model.sites, len(site_model.offset))
        assert arrays is not None  # seen to at the beginning
        problem = problem_of(site_model.projection, site_model.offset, arrays, shape, rate)
        moved = rescale(problem, State(w, alpha), self.rng)
        new = self.given.moved(point, w)
        for slope in self.slopes:
            free = np.log(alpha[latent.blocks[self.pairs[slope.name]]])
            new[slope.value] = free.reshape(np.shape(point[slope.value]))
        return new, [{"scale_acceptance": moved / w.size}]
