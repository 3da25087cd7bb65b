"""The RBF mixture's graph as numbers: data and prior in the units that its samplers work in."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.mixture.background import Evidence
from ardvark.inference.mixture.chains import Scale, make_problem
from ardvark.inference.mixture.kernels import Problem
from ardvark.inference.sites.arrays import Array, Index
from ardvark.models.card import card_of
from ardvark.models.mixture import MixtureCard, MixturePrior
from ardvark.models.subset import log_subset_prior

__all__ = ["Reading", "read_mixture", "reading_of", "refuse_hyper"]

_TERMS = {f"kernel_{n}" for n in ("probability", "mean", "precision", "rate")}
_TERMS |= {f"background_{n}" for n in ("probability", "mean", "precision", "rate")}
_TERMS |= {"included", "class_probability", "x", "t"}


class Reading(NamedTuple):
    """A mixture's graph as numbers."""

    prior: MixturePrior
    scale: Scale
    z: Array
    label: Index
    h: Array  # in the units of z
    target: str

    def problem(self, evidence: Evidence) -> Problem:
        """Give what the sampler works on."""
        prior = self.prior
        log_prior = log_subset_prior(len(self.z), prior.expected_inputs)
        return make_problem(
            self.z, self.label, log_prior, prior.shape, prior.g, self.h, prior.resolution, evidence
        )


def read_mixture(model: Any, name: str, settings: Any) -> Reading:
    """Read data and prior of a mixture for a method."""
    refuse_hyper(name, settings)
    return reading_of(model, name)


def refuse_hyper(name: str, settings: Any) -> None:
    """Refuse to settle hyperparameters: a mixture has none."""
    if settings.hyper is not None:
        raise UnsupportedPair(
            f"{name}: hyper={settings.hyper!r}: every coefficient of rbf_mixture belongs to the "
            f"posterior. Leave hyper out; shape, g, h and expected_inputs are arguments of the "
            f"model."
        )


def reading_of(model: Any, name: str) -> Reading:
    """Read data and prior in the units of z; refuse what a sampler of its own would not see."""
    card = card_of(model)
    if not isinstance(card, MixtureCard) or card.prior is None:
        built = card.builder if card else "a graph of your own"
        raise InputError(f"{name}: the model must be one of rbf_mixture, found {built}")
    if card.included is not None:
        raise UnsupportedPair(
            f"{name}: the subset is given (included=...), so there are none to choose from. Use "
            f"NUTS() or SMC(), or build the model without `included`."
        )
    terms = {v.name for v in (*model.basic_RVs, *model.potentials)}
    if not terms <= _TERMS:
        raise UnsupportedPair(
            f"{name}: the graph has got {', '.join(sorted(terms - _TERMS))}, which the sampler of "
            f"rbf_mixture does not know. Remove it, or use pm.sample."
        )
    prior = card.prior
    scale = Scale(prior.centre, prior.spread)
    label = np.asarray(model["label"].get_value(), np.int64)
    z = scale.to_z(np.asarray(model["X"].get_value(), float))
    return Reading(prior, scale, z, label, prior.h * prior.spread**2, card.target)
