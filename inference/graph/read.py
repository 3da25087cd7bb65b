"""Read a `pm.Model` as a Gaussian block times scalar sites, or say why it is none.

    p(w, t | θ) = N(w; m0, P0^-1) · Π_n site_n(a_n' w + o_n)

| here | meaning |
|---|---|
| `weights` | free Normal / MvNormal variables w, one block or several |
| `predictor` | the variable η = A w + o, by default called `eta` |
| `hyper` | every other free variable θ, always on its natural scale (no transform) |
| `cut` | log p(t_n | η_n, θ), elementwise, as a function of a free η |

This file takes the graph apart and refuses by name and reason; `latent.py` evaluates what was
read and `verify.py` checks it by number.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from pymc.logprob.basic import conditional_logp
from pymc.logprob.utils import replace_rvs_by_values
from pytensor.graph.replace import graph_replace

from ardvark.errors import InputError, UnreadableModel
from ardvark.inference.graph.affine import depends, first_nonaffine
from ardvark.inference.graph.compile import SETTINGS
from ardvark.inference.graph.latent import LatentGaussian, Reading, WeakModel
from ardvark.inference.graph.verify import verify

__all__ = ["read_model"]

_GAUSSIAN = ("NormalRV", "MvNormalRV")
_READ: weakref.WeakKeyDictionary[Any, dict[Any, LatentGaussian]] = weakref.WeakKeyDictionary()


def read_model(
    model: Any, *, weights: str | Sequence[str] | None = None, predictor: str = "eta"
) -> LatentGaussian:
    """Read `model` as a latent Gaussian; the reading is kept with the model and used again.

    Parameters
    ----------
    model : pm.Model
    weights : str or sequence of str, optional
        Names of the Gaussian variables. Default: every free Normal or MvNormal whose value enters
        the predictor, if the predictor is jointly affine in them.
    predictor : str
        Name of the variable through which the weights reach the likelihood.

    Raises
    ------
    UnreadableModel
        With the name of what does not fit and the reason.
    """
    if not hasattr(model, "free_RVs"):
        raise InputError(f"model must be a pm.Model, got {type(model).__name__}")
    names = None if weights is None else _as_names(weights)
    if not isinstance(predictor, str):
        raise InputError(f"predictor must be the name of a variable, got {predictor!r}")
    terms = tuple(v.name for v in (*model.basic_RVs, *model.deterministics, *model.potentials))
    lengths = tuple(sorted((d, len(model.coords[d])) for d in _free_dims(model)))
    key = (names, predictor, terms, lengths)  # a graph that has grown since is read anew
    kept = _READ.setdefault(model, {})
    if key not in kept:
        with SETTINGS:
            latent = LatentGaussian(_read(model, names, predictor))
            verify(latent)
        kept[key] = latent
    return kept[key]


def _as_names(weights: Any) -> tuple[str, ...]:
    names = (weights,) if isinstance(weights, str) else weights
    known = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not known or not names:
        raise InputError(
            f"weights must be the name of a Gaussian variable or a sequence of names, got "
            f"{weights!r}; leave it out for all that enter the predictor"
        )
    return tuple(names)


def _free_dims(model: Any) -> set[str]:
    """Dims of the free variables that have coordinates: these can change their length."""
    dims = {d for rv in model.free_RVs for d in model.named_vars_to_dims.get(rv.name) or ()}
    return {d for d in dims if model.coords.get(d) is not None}


def _read(model: Any, names: tuple[str, ...] | None, predictor: str) -> Reading:
    observed, eta = _the_observed(model), _the_predictor(model, predictor)
    # Natural-scale inputs in place of every free variable: no transform anywhere.
    free = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    values = {**free, observed: model.rvs_to_values[observed]}
    gaussian = {rv: rv.owner.op.dist_params(rv.owner) for rv in free if _kind(rv) in _GAUSSIAN}
    [eta_value, *flat] = replace_rvs_by_values(
        [eta, *(p for params in gaussian.values() for p in params)],
        rvs_to_values=values,
        rvs_to_transforms={},
    )
    priors = {rv: (flat[2 * i], flat[2 * i + 1]) for i, rv in enumerate(gaussian)}
    chosen = _choose_weights(model, free, eta_value, names, predictor)
    _check_priors(model, chosen, free, priors)
    cut, inside, label = _cut(values, observed, eta, [free[rv] for rv in chosen])
    hyper = [rv for rv in model.free_RVs if rv not in chosen]
    return Reading(
        model=WeakModel(model),
        predictor=predictor,
        observed=observed.name,
        weights=tuple(rv.name for rv in chosen),
        hyper=tuple(rv.name for rv in hyper),
        w=[free[rv] for rv in chosen],
        theta=[free[rv] for rv in hyper],
        priors=[priors[rv] for rv in chosen],
        dense=[_kind(rv) == "MvNormalRV" for rv in chosen],
        eta=eta_value,
        cut=cut,
        inside=inside,
        label=label,
        observed_value=values[observed],
        terms=_log_density_terms(model, values),
    )


# The parts ------------------------------------------------------------------------------------


def _kind(rv: Any) -> str:
    return type(rv.owner.op).__name__


def _spoken(rv: Any) -> str:
    return f"{rv.name} ({_kind(rv).removesuffix('RV')})"


def _the_observed(model: Any) -> Any:
    observed = {rv.name for rv in model.observed_RVs}
    stems = [rv.name.removesuffix("_unobserved") for rv in model.free_RVs]
    missing = [f"{stem}_unobserved" for stem in stems if f"{stem}_observed" in observed]
    if missing:
        raise UnreadableModel(
            f"{missing[0]!r}: the observed data have missing values, which PyMC imputes. "
            f"Remove these rows, or give them to a model that takes unlabelled rows."
        )
    if len(model.observed_RVs) != 1:
        names = ", ".join(rv.name for rv in model.observed_RVs) or "none"
        raise UnreadableModel(
            f"exactly one observed variable is needed; found {len(model.observed_RVs)}: {names}"
        )
    return model.observed_RVs[0]


def _the_predictor(model: Any, predictor: str) -> Any:
    if predictor not in model.named_vars:
        known = ", ".join(d.name for d in model.deterministics) or "none"
        raise UnreadableModel(
            f"the model has no variable {predictor!r} to take as predictor; its deterministics: "
            f"{known}. Name it with predictor=, or wrap it: pm.Deterministic('eta', ...)."
        )
    eta = model[predictor]
    if eta.ndim != 1:
        raise UnreadableModel(
            f"the predictor {predictor!r} has {eta.ndim} dimensions; sites need one number per row"
        )
    return eta


def _choose_weights(
    model: Any, free: dict[Any, Any], eta: Any, names: tuple[str, ...] | None, predictor: str
) -> list[Any]:
    """Give the Gaussian blocks: those asked for, or all Normals that enter the predictor."""
    entering = [rv for rv in model.free_RVs if depends(eta, [free[rv]])]
    if names is None:
        chosen = [
            rv for rv in entering if _kind(rv) in _GAUSSIAN and model.rvs_to_transforms[rv] is None
        ]
        if not chosen:
            found = ", ".join(map(_spoken, entering)) or "no free variable"
            raise UnreadableModel(
                f"no free Normal or MvNormal enters the predictor {predictor!r}; found {found}"
            )
    else:
        known = {rv.name: rv for rv in model.free_RVs}
        if unknown := [n for n in names if n not in known]:
            listed = ", ".join(map(_spoken, model.free_RVs))
            raise UnreadableModel(
                f"weights={unknown[0]!r} is no free variable of the model; it has {listed}"
            )
        chosen = [rv for rv in model.free_RVs if rv.name in names]
    for rv in chosen:
        _check_gaussian(model, rv, entering, predictor)
    _check_affine(eta, chosen, free, predictor, named=names is not None)
    if names is None:
        _check_left_out(eta, chosen, entering, free, predictor)
    return chosen


def _check_gaussian(model: Any, rv: Any, entering: list[Any], predictor: str) -> None:
    if rv.type.dtype.startswith(("int", "uint", "bool")):
        raise UnreadableModel(f"{_spoken(rv)} is discrete: weights must be Normal or MvNormal")
    if _kind(rv) not in _GAUSSIAN:
        raise UnreadableModel(
            f"{_spoken(rv)} has no Gaussian prior: weights must be Normal or MvNormal"
        )
    if model.rvs_to_transforms[rv] is not None:
        raise UnreadableModel(f"{rv.name!r} has a transform, so its prior is no longer Gaussian")
    if _kind(rv) == "MvNormalRV" and rv.ndim != 1:
        raise UnreadableModel(
            f"{_spoken(rv)} has {rv.ndim} dimensions: one MvNormal vector can be read, not a batch"
        )
    if rv not in entering:
        raise UnreadableModel(f"{rv.name!r} does not enter the predictor {predictor!r}")


def _check_affine(
    eta: Any, chosen: list[Any], free: dict[Any, Any], predictor: str, named: bool
) -> None:
    operation = first_nonaffine(eta, [free[rv] for rv in chosen])
    if operation is not None:
        advice = "" if named and len(chosen) == 1 else " Name one block with weights=."
        raise UnreadableModel(
            f"the predictor {predictor!r} is not affine in {', '.join(map(_spoken, chosen))}: it "
            f"passes through {operation}.{advice}"
        )


def _check_left_out(
    eta: Any, chosen: list[Any], entering: list[Any], free: dict[Any, Any], predictor: str
) -> None:
    """Refuse a variable that is as affine as the weights: it is one, with another prior."""
    for rv in entering:
        together = [free[v] for v in (*chosen, rv)]
        if rv not in chosen and first_nonaffine(eta, together) is None:
            raise UnreadableModel(
                f"{_spoken(rv)} enters the predictor {predictor!r} like a weight, but its prior is "
                f"not Normal. Give it a Normal prior, or name the Gaussian block with weights= to "
                f"condition on {rv.name}."
            )


def _check_priors(
    model: Any, chosen: list[Any], free: dict[Any, Any], priors: dict[Any, Any]
) -> None:
    """Weights may reach the rest of the model through the predictor only."""
    for rv in chosen:
        for other in chosen:
            if any(depends(p, [free[other]]) for p in priors[rv]):
                raise UnreadableModel(
                    f"the prior of {rv.name!r} depends on the weight {other.name!r}: blocks must "
                    f"be independent given the hyperparameters. Write it non-centred, or name one "
                    f"block with weights=."
                )
    for potential in model.potentials:
        if depends(potential, chosen):
            raise UnreadableModel(
                f"the potential {potential.name!r} holds the weights: it would have to be a prior "
                f"or a site. Write it as a distribution."
            )
    for rv in model.free_RVs:
        if rv not in chosen and any(depends(p, chosen) for p in rv.owner.inputs):
            raise UnreadableModel(
                f"the prior of {rv.name!r} depends on the weights: they may reach the data only "
                f"through the predictor"
            )


def _cut(
    values: dict[Any, Any], observed: Any, eta: Any, ws: list[Any]
) -> tuple[Any, Any, tuple[Any, Any]]:
    """Give log sites as a function of a free eta, and once more of a free observed value too."""
    inside = eta.type(name="eta_input")
    # Only what lies between eta and the data is copied: a clone of any other random variable
    # would be drawn at random instead of taking its value.
    [free_observed] = graph_replace([observed], {eta: inside}, strict=False)
    if free_observed is observed:
        raise UnreadableModel(
            f"{observed.name!r} does not use the variable {eta.name!r}: write the likelihood with "
            f"the Deterministic itself"
        )
    free = {rv: v for rv, v in values.items() if rv is not observed}

    def log_sites(value: Any) -> Any:
        return conditional_logp({**free, free_observed: value}, warn_rvs=False)[value]

    cut = log_sites(values[observed])
    if leaking := [w.name for w in ws if depends(cut, [w])]:
        raise UnreadableModel(
            f"{', '.join(leaking)} reaches {observed.name!r} past the predictor {eta.name!r}: the "
            f"likelihood may hold the weights only through it"
        )
    if not depends(cut, [inside]):
        raise UnreadableModel(
            f"log p({observed.name}) does not depend on the predictor {eta.name!r}"
        )
    if cut.ndim != 1:
        raise UnreadableModel(
            f"log p({observed.name} | {eta.name}) has {cut.ndim} dimensions: not separable, it "
            f"must be one number per row"
        )
    anything = observed.type.clone(shape=(None,))(name="observed_input")
    return cut, inside, (anything, log_sites)


def _log_density_terms(model: Any, values: dict[Any, Any]) -> dict[str, Any]:
    """Give the model's own log density term by term: a route independent of the reading."""
    terms = conditional_logp(values, warn_rvs=False)
    named = {rv.name: terms[value] for rv, value in values.items()}
    potentials = replace_rvs_by_values(model.potentials, rvs_to_values=values, rvs_to_transforms={})
    return named | {p.name: v for p, v in zip(model.potentials, potentials, strict=True)}
