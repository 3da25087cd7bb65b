"""What every step of this package promises to `pm.sample`.

It is used only when requested, since which variables belong together is the user's to say; its block
is one step; nothing of it is tuned; its state is its random numbers and what its own state class adds.
"""  # noqa: E501

from __future__ import annotations

from typing import Any

from pymc.model import modelcontext
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars

from ardvark.errors import InputError

__all__ = ["OwnStep", "PlainState"]


@dataclass_state
class PlainState(StepMethodState):  # type: ignore[misc]
    """Nothing but names and random numbers: a step remembers no earlier one."""


class OwnStep(BlockedStep):  # type: ignore[misc]
    """A step that is requested by name."""

    _state_class: Any = PlainState
    example = "w"  # of its variables

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
        """Take the arguments that PyMC may hand to any step."""
        name = type(self).__name__
        if vars is None:
            raise InputError(f"{name} needs its variables: {name}([{self.example}])")
        variables = list(vars) if isinstance(vars, (list, tuple)) else [vars]
        self.vars = get_value_vars_from_user_vars(variables, modelcontext(model))
        self.rng = get_random_generator(rng)
