"""A `Card`: what a builder knows about its graph and a `pm.Model` cannot hold.

A graph has no place for class labels, for how new inputs become its data, or for a second form of
itself. `remember` keeps these by the identity of the model, and only as long as the model exists:
a card must therefore never hold its own model. Second forms have the data of the builder's call:
`inference/pymc_models/forms.py` gives them those that the model holds now.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ardvark.models.inputs import Array, Scaling

__all__ = ["Card", "Precision", "card_of", "hand_on", "received", "remember", "sent_with"]


@dataclass(frozen=True, slots=True)
class Precision:
    """Weights ~ N(0, 1/alpha), alpha ~ Gamma(shape, rate): a pair that can be integrated out."""

    weights: str
    name: str
    shape: float
    rate: float

    def draw_given(self, weights: Array, rng: np.random.Generator) -> Array:
        """Draw alpha from its conditional Gamma(shape + 1/2, rate + w²/2), one per weight."""
        return rng.gamma(self.shape + 0.5, 1.0 / (self.rate + 0.5 * np.square(weights)))


@dataclass(frozen=True, slots=True, eq=False)
class Card:
    """What a builder knows about its graph and the graph cannot hold."""

    builder: str  # name in the registry
    task: str  # "binary" | "multiclass" | "regression"
    feature_names: tuple[str, ...]  # the columns of X
    classes: npt.NDArray[Any] | None  # labels in np.unique order
    scaling: Scaling | None  # X was standardised with it: new rows need it too
    new_data: Callable[[Array], dict[str, Array]]  # checked, scaled X_new -> values for pm.set_data
    precisions: tuple[Precision, ...] = ()
    integrated: Callable[[], Any] | None = None  # the graph with its precisions integrated out
    gaussian: Callable[[], Any] | None = None  # the graph with Gaussian weights, if it has others
    family: str = "sites"  # the shape of the graph, see inference/methods.py
    design: Any = None  # how its data become basis functions, for families that are not read
    whitened: Callable[[], Any] | None = None  # the same variables in a form for samplers
    covariance: Any = None  # of a process: between any two tables of rows
    more_methods: tuple[str, ...] = ()  # that fit this graph, beside those of its builder


_CARDS: WeakKeyDictionary[Any, tuple[Card, tuple[str, ...]]] = WeakKeyDictionary()


def remember(model: Any, card: Card, **forms: Callable[[], Any]) -> None:
    """Keep the card of a finished graph; `forms` build other forms of it, with the same card."""
    known: dict[str, Any] = {name: partial(_built, build, card) for name, build in forms.items()}
    _CARDS[model] = dataclasses.replace(card, **known), _terms(model)


def _built(build: Callable[[], Any], card: Card) -> Any:
    graph = build()
    remember(graph, card)
    return graph


def card_of(model: Any) -> Card | None:
    """Return the card of a graph, None for a user's own graph.

    A graph that has got more terms since it was built is no longer what its second form
    stands for, so that form is withheld and the graph is taken as written.
    """
    card, terms = _CARDS.get(model, (None, ()))
    if card is not None and terms != _terms(model):
        forms: dict[str, Any] = {"integrated": None, "whitened": None, "gaussian": None}
        return dataclasses.replace(card, precisions=(), **forms)
    return card


def hand_on(model: Any, copy: Any) -> None:
    """Copy the card of a graph to a copy of the graph."""
    if model in _CARDS:
        _CARDS[copy] = _CARDS[model]


def sent_with(model: Any) -> Any:
    """What `received` needs to give a model its card again in another process."""
    return _CARDS.get(model)


def received(model: Any, sent: Any) -> None:
    """Keep a card that came with its model from another process."""
    if sent is not None:
        _CARDS[model] = sent


def _terms(model: Any) -> tuple[str, ...]:
    return tuple(term.name for term in (*model.basic_RVs, *model.potentials))
