"""What every step of this package promises to `pm.sample`.

It is used only when requested, since which variables belong together is the user's to say; its block is
one step; nothing of it is tuned unless it says so; its state is its random numbers and what its own
state class adds.
"""  # noqa: E501

from __future__ import annotations

from typing import Any

from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state

__all__ = ["OwnStep", "PlainState"]


@dataclass_state
class PlainState(StepMethodState):  # type: ignore[misc]
    """Nothing but names and random numbers: a step remembers no earlier one."""


class OwnStep(BlockedStep):  # type: ignore[misc]
    """A step that is requested by name."""

    _state_class: Any = PlainState
    default_blocked = True

    def stop_tuning(self) -> None:
        """Nothing is tuned."""

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Any:
        """Used only when requested."""
        return Competence.INCOMPATIBLE
