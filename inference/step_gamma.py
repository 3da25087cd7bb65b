"""Gibbs draws of precisions whose conditional is a Gamma: found in the graph, checked by number.

With f(α) the log density as a function of one variable, α f'(α) = (A - 1) - B α if and only if α
given everything else is Gamma(A, B). On the scale u = log α that PyMC samples, α f'(α) is the slope
of the log density without its Jacobian: two evaluations give A and B, a third one checks.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pymc.model import modelcontext
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.affine import depends
from ardvark.inference.compile import quick
from ardvark.inference.sites import Array

__all__ = ["GammaGibbs", "GammaSlope", "refuse_others"]

_STRAIGHT = 1e-8  # of the slopes: rounding of two differences


@dataclass_state
class GibbsState(StepMethodState):  # type: ignore[misc]
    """Nothing but names and random numbers."""


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
        total = model.logp(vars=[*terms, *potentials], jacobian=False)
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

    def misfit(self, point: dict[str, Array]) -> float:
        """Largest departure from a straight line, in units of what rounding allows."""
        shape, rate = self.at(point)
        rng = np.random.default_rng(0)  # moves elements differently: sees a coupling of them too
        three = np.asarray(point[self.value], float) + rng.uniform(-1.0, 1.0, np.shape(rate))
        found, line = self._slope(point, three), shape - 1.0 - rate * np.exp(three)
        allowed = _STRAIGHT * (1.0 + np.abs(found) + np.abs(rate * np.exp(three)))
        proper = np.all(shape > 0) and np.all(rate > 0)
        return float(np.max(np.abs(found - line) / allowed)) if proper else np.inf

    def _slope(self, point: dict[str, Array], value: Array) -> Array:
        return np.asarray(self.slope(*({**point, self.value: value}[n] for n in self.order)))


class GammaGibbs(BlockedStep):  # type: ignore[misc]
    """Draw precisions from their conditional Gamma, given everything else.

    Parameters
    ----------
    vars : list of variables
        Positive variables, each of whose conditional is a Gamma, elementwise. This is checked at
        three points, and refused with the number where it is not so.
    """

    name = "gamma_gibbs"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {}
    _state_class = GibbsState
    default_blocked = True

    def __init__(
        self,
        vars: Any = None,
        *,
        model: Any = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        model = modelcontext(model)
        if vars is None:
            raise InputError("GammaGibbs needs its variables: GammaGibbs([alpha])")
        variables = list(vars) if isinstance(vars, (list, tuple)) else [vars]
        self.vars = get_value_vars_from_user_vars(variables, model)
        self.rng = get_random_generator(rng)
        with quick():
            self.slopes = [GammaSlope(model, value, compile_kwargs) for value in self.vars]
            start = model.initial_point() if initial_point is None else initial_point
        for slope in self.slopes:
            refuse_others(slope, start)

    def stop_tuning(self) -> None:
        """Nothing is tuned."""

    def step(self, point: dict[str, Array]) -> tuple[dict[str, Array], list[dict[str, Any]]]:
        """Draw each variable in turn."""
        new = dict(point)
        for slope in self.slopes:
            shape, rate = slope.at(new)
            drawn = np.log(self.rng.standard_gamma(shape)) - np.log(rate)
            new[slope.value] = np.asarray(drawn, point[slope.value].dtype)
        return new, [{}]

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Any:
        """Never chosen unasked."""
        return Competence.INCOMPATIBLE


def refuse_others(slope: GammaSlope, start: dict[str, Array]) -> None:
    """Refuse a conditional that is no Gamma at one of three points of the rest."""
    rng = np.random.default_rng(1)
    for spread in (0.0, 0.3, 1.0):
        point = {
            name: value + spread * rng.standard_normal(np.shape(value))
            if np.issubdtype(np.asarray(value).dtype, np.floating)
            else value
            for name, value in start.items()
        }
        misfit = slope.misfit(point)
        if not misfit <= 1.0:
            raise UnsupportedPair(
                f"GammaGibbs: the conditional of {slope.name} is no Gamma (departure {misfit:.3g} "
                f"times what rounding allows). Leave it to NUTS or Slice."
            )
