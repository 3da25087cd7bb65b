"""Settle the hyperparameters θ around an approximation of the weights, as the settings say.

`settings.py` has the choices; `ascent.py` does the search for a maximum of the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.ard.sequential_ard import ArdResult
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.hyper.settings import UNCONSTRAINED, Evidence, Fixed, Integrated, Predictive
from ardvark.inference.hyper.stored import stored_theta
from ardvark.inference.running.progress import Tick
from ardvark.inference.sites.approximation import Approximation, GaussianFit
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import SiteModel
from ardvark.models.card import card_of

__all__ = ["Settled", "default_hyper", "fixed_values", "settle"]

MOST_INTEGRATED = 10  # scalar hyperparameters of a user's graph that are integrated out by default


class Settled(NamedTuple):
    """Hyperparameters that were settled on, and the approximation there."""

    theta: dict[str, Array]
    model: SiteModel
    fit: GaussianFit
    converged: bool
    treatment: str  # "fixed" | "evidence" | "predictive"
    reason: str  # why not converged, or ""
    path: ArdResult | None = None
    chosen: int = -1  # the step of the path that was taken


def default_hyper(latent: LatentGaussian) -> Any:
    """What happens to the hyperparameters where nothing was said.

    The models of `av.models` have precisions that the papers set by evidence. In a user's own graph
    the priors that were written count: few hyperparameters are integrated out, many are set to the
    mode of their posterior on the scale on which PyMC samples (on the natural scale the mode of a
    non-centred scale is at zero).
    """
    if not latent.hyper:
        return Fixed()
    if card_of(latent.model) is not None:
        return Evidence()
    few = latent.adjoint.chart().size <= MOST_INTEGRATED
    return Integrated() if few else Evidence(with_prior=UNCONSTRAINED)


def settle(latent: LatentGaussian, method: Approximation, hyper: Any, tick: Tick) -> Settled:
    """Settle the hyperparameters by `hyper` and approximate the weights there."""
    if hyper is None:
        hyper = Evidence() if latent.hyper else Fixed()
    if isinstance(hyper, Fixed):
        theta = fixed_values(hyper, latent.hyper)
        site_model = latent.at(theta)
        fit = method.approximate(site_model)
        return Settled(theta, site_model, fit, fit.converged, "fixed", "")
    if not isinstance(hyper, (Evidence, Predictive)):
        raise UnsupportedPair(
            f"hyper={hyper!r} is no way to treat hyperparameters here; use Fixed(...), Evidence(), "
            f"Predictive() or Sampled()"
        )
    if not latent.hyper:
        raise UnsupportedPair(
            f"hyper={type(hyper).__name__}() has nothing to optimise: the model has no free "
            f"hyperparameter. Use Fixed()."
        )
    from ardvark.inference.hyper.ascent import Ascent  # loads SciPy's optimisers: not for a fixed θ

    return Ascent(latent, method, hyper, tick).run()


def fixed_values(hyper: Fixed, names: tuple[str, ...]) -> dict[str, Array]:
    """Values of the named hyperparameters from a mapping or from a tree."""
    values = hyper.values
    if values is None:
        values = {}
    elif hasattr(values, "children"):  # a DataTree
        stored = stored_theta(values)
        values = {name: stored[name] for name in names if name in stored}
        if names and not values:
            raise InputError(
                "Fixed(tree) needs a tree with a `theta` group, where an approximation keeps the "
                "hyperparameters it used; this tree has none. Give values by name: "
                "Fixed({'alpha': ...})."
            )
    elif not isinstance(values, Mapping):
        raise InputError(f"Fixed(values) takes a mapping or a tree, got {type(values).__name__}")
    missing = [name for name in names if name not in values]
    if missing:
        raise InputError(
            f"Fixed(values) lacks {', '.join(missing)}: the model's free hyperparameters are "
            f"{', '.join(names)}"
        )
    unknown = [name for name in values if name not in names]
    if unknown:
        raise InputError(
            f"Fixed(values) has {unknown[0]!r}, which is no free hyperparameter of the model; "
            f"these are {', '.join(names) or 'none'}"
        )
    found = {name: np.asarray(values[name], float) for name in names}
    for name, value in found.items():
        if np.isnan(value).any():
            raise InputError(
                f"Fixed(values) has NaN in {name!r}: give numbers; inf as a precision switches a "
                f"weight off"
            )
    return found
