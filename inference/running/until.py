"""Chains that go on until their checks pass: when the checks are made.

    looks at n, 1.5 n, 1.5² n, ... draws of each chain, the last one at the budget

A look is at a fixed number of draws, never at a time, so the same seed stops at the same place on
any machine. NUTS goes on from where it was (`samplers/nuts.py`). The other chains are drawn anew
from the same seed, longer (`inference/fit.py`): all looks together cost less than three times the
last.

Stopping when a check is passed makes the figures of that check a little too good: among several
looks the first favourable one is taken. Means and quantiles are hardly touched; to use R-hat
itself as evidence, take a fixed number of draws.
"""

from ardvark.errors import InputError
from ardvark.models.checks import positive_integer

__all__ = ["check_until", "looks_at", "spent"]

UNTIL = "converged"
BUDGET = 8  # times the first look, unless it is given


def check_until(until: object, most: object, name: str = "most_draws") -> None:
    """Refuse a condition that is unknown, and a budget that is none or has no condition."""
    if until not in (None, UNTIL):
        raise InputError(f"until must be None or {UNTIL!r}, got {until!r}")
    if most is None:
        return
    positive_integer(most, name)
    if until is None:
        raise InputError(
            f"{name}={most} is the budget of until={UNTIL!r}, but until is None: give both, or "
            f"leave {name} out"
        )


def looks_at(first: int, until: str | None, most: int | None) -> list[int]:
    """Give the lengths at which chains are looked at: half as much again, up to the budget."""
    if until is None:
        return [first]
    most = BUDGET * first if most is None else most
    if most < first:
        raise InputError(
            f"the budget of {most} is less than the {first} that are asked for: raise it, or ask "
            f"for fewer"
        )
    lengths = [first]
    while lengths[-1] < most:
        lengths.append(min(most, lengths[-1] + -(-lengths[-1] // 2)))
    return lengths


def spent(most: int, what: str = "draws") -> str:
    """Say that the budget is used up."""
    return f"The budget of {most} {what} a chain is spent: raise most_{what}"
