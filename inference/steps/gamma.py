"""Gibbs draws of precisions whose conditional is a Gamma: read from the operations of the graph.

With f(α) the log density as a function of one variable, α f'(α) = (A - 1) - B α if and only if α
given everything else is Gamma(A, B); whether it is so for all α, only the graph can tell
(`graph/gamma_form.py`). On the scale u = log α that PyMC samples, α f'(α) is the slope of the log
density without its Jacobian: two evaluations give A and B.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.model import modelcontext

from ardvark.errors import UnsupportedPair
from ardvark.inference.graph.gamma_form import first_other_form
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.sites.arrays import Array
from ardvark.inference.steps.contract import OwnStep

__all__ = ["GammaGibbs", "GammaSlope", "refuse_improper"]


class GammaSlope:
    """Shape and rate of the conditional Gamma of a log-transformed variable, at any point."""

    def __init__(self, model: Any, value: Any, compile_kwargs: Any = None) -> None:
        rv = model.values_to_rvs[value]
        transform = model.rvs_to_transforms[rv]
        if type(transform).__name__ != "LogTransform":
            raise UnsupportedPair(
                f"GammaGibbs: {rv.name} does not live on (0, inf), so its conditional is no Gamma. "
                f"Leave it to NUTS or Slice."
            )
        self.name, self.value = rv.name, value.name
        terms = [other for other in model.basic_RVs if other is rv or depends(other, [rv])]
        potentials = [p for p in model.potentials if depends(p, [rv])]
        if potentials:
            raise _no_gamma(self.name, f"it enters the potential {potentials[0].name!r}")
        densities = model.logp(vars=terms, jacobian=False, sum=False)
        for term, density in zip(terms, densities, strict=True):
            if other := first_other_form(density, None, value):
                raise _no_gamma(self.name, f"the density of {term.name!r} holds {other}")
        total = sum((density.sum() for density in densities), pt.constant(0.0))
        self.slope = model.compile_fn(
            pt.grad(total, value),
            inputs=model.value_vars,
            on_unused_input="ignore",
            point_fn=False,
            **(compile_kwargs or {"mode": "FAST_COMPILE"}),
        )
        self.order = [v.name for v in model.value_vars]

    def at(self, point: dict[str, Array]) -> tuple[Array, Array]:
        """Shape A and rate B, elementwise."""
        one = np.asarray(point[self.value], float)
        two = one + np.log(2.0)
        at_one, at_two = self._slope(point, one), self._slope(point, two)
        rate = (at_one - at_two) * np.exp(-one)  # α2 - α1 = α1
        return 1.0 + at_one + rate * np.exp(one), rate

    def _slope(self, point: dict[str, Array], value: Array) -> Array:
        return np.asarray(self.slope(*({**point, self.value: value}[n] for n in self.order)))


class GammaGibbs(OwnStep):
    """Draw precisions from their conditional Gamma, given everything else.

    Parameters
    ----------
    vars : list of variables
        Positive variables, each of whose conditional is a Gamma, elementwise. This is read from the
        graph, and refused with the reason where it is not so.
    """

    name = "gamma_gibbs"
    example = "alpha"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        vars: Any = None,
        *,
        model: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        **common: Any,
    ) -> None:
        model = modelcontext(model)
        super().__init__(vars, model=model, **common)
        with quick():
            self.slopes = [GammaSlope(model, value, compile_kwargs) for value in self.vars]
            start = model.initial_point() if initial_point is None else initial_point
        for slope in self.slopes:
            refuse_improper(slope, start)

    def step(self, point: dict[str, Array]) -> tuple[dict[str, Array], list[dict[str, Any]]]:
        """Draw each variable in turn."""
        new = dict(point)
        for slope in self.slopes:
            shape, rate = slope.at(new)
            drawn = np.log(self.rng.standard_gamma(shape)) - np.log(rate)
            new[slope.value] = np.asarray(drawn, point[slope.value].dtype)
        return new, [{}]


def refuse_improper(slope: GammaSlope, start: dict[str, Array]) -> None:
    """Refuse a conditional that has no integral."""
    shape, rate = slope.at(start)
    if not (np.all(shape > 0) and np.all(rate > 0)):
        found = f"its shape would be {np.min(shape):.3g}, its rate {np.min(rate):.3g}"
        raise _no_gamma(slope.name, found)


def _no_gamma(name: str, reason: str) -> UnsupportedPair:
    return UnsupportedPair(
        f"GammaGibbs: the conditional of {name} is no Gamma: {reason}. Leave {name} to NUTS or "
        f"Slice."
    )
