"""A case of the corpus: a model as a PyMC user writes it, and why it is there."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pymc as pm

__all__ = ["CASES", "Case", "block", "case"]

type Builder = Callable[[], Any]  # makes a pm.Model, or a bambi model that is built


@dataclass(frozen=True, slots=True)
class Case:
    """A model, the idiom that it stands for, and what is expected of a reader."""

    name: str
    build: Builder
    theme: str  # the file that it is in
    why: str  # the idiom
    refused: str | None = None  # why it is no Gaussian block with scalar sites, if it is none
    twin: Builder | None = None  # the same posterior in a form that NUTS samples well
    also: tuple[str, ...] = ()  # deterministics whose moments are kept too
    heavy: tuple[str, ...] = ()  # without a variance: held to their quantiles
    target_accept: float = 0.9  # of the reference run

    @property
    def expect(self) -> str:
        """ "readable" or "refused"."""
        return "refused" if self.refused else "readable"

    @property
    def graph(self) -> Any:
        """The model as a `pm.Model`."""
        return as_graph(self.build())


CASES: dict[str, Case] = {}


def case(why: str, **facts: Any) -> Callable[[Builder], Builder]:
    """Register a builder under its own name."""

    def register(build: Builder) -> Builder:
        name = build.__name__
        if name in CASES:
            raise ValueError(f"two cases are called {name!r}; give one of them another name")
        theme = build.__module__.rpartition(".")[2]
        CASES[name] = Case(name, build, theme, why, **facts)
        return build

    return register


def block(why: str, **facts: Any) -> Callable[[Callable[[], None]], Builder]:
    """Register what stands in a `with pm.Model():` block, data and variables."""

    def register(body: Callable[[], None]) -> Builder:
        @wraps(body)
        def build() -> Any:
            with pm.Model() as model:
                body()
            return model

        return case(why, **facts)(build)

    return register


def as_graph(model: Any) -> Any:
    """Give the `pm.Model` of a bambi model; a `pm.Model` is given back."""
    return model.backend.model if hasattr(model, "backend") else model
