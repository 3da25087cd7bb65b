"""Read a `pm.Model` as a Gaussian block times scalar sites, or say why it cannot be read as one.

    p(w, t | θ) = N(w; m0, P0^-1) · Π_n site_n(a_n' w + o_n)

| here | meaning |
|---|---|
| `weights` | free variables w with a Gaussian prior, or one that is a site over a Gaussian |
| predictor | the node η = A w + o through which they reach the data, named or not |
| `hyper` | every other free variable θ, always on its natural scale (no transform) |
| `cut` | log p(t_n | η_n, θ), elementwise, as a function of a free η |

`find.py` looks for the block and the predictors, `priors.py` knows the priors, this file takes the
graph apart there; `latent.py` evaluates what was read and `verify.py` checks it by number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.basic import conditional_logp
from pymc.logprob.utils import replace_rvs_by_values
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors

from ardvark.errors import InputError, UnreadableModel
from ardvark.inference.graph.find import Found, find_block, start_of
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.parts import Line, ModelHere, Reading, Rows, stacked
from ardvark.inference.graph.predictor import Part, is_zero
from ardvark.inference.graph.priors import Base, base_of, kind
from ardvark.inference.graph.verify import verify
from ardvark.inference.pymc_models.compile import kept_with, named_tensor, quick
from ardvark.inference.pymc_models.own import check_model
from ardvark.inference.pymc_models.terms import natural_terms
from ardvark.inference.pytensor_graphs.affine import depends
from ardvark.inference.pytensor_graphs.prior_rows import PriorRows, own_params, prior_rows
from ardvark.inference.pytensor_graphs.rebuild import by_row, narrow, rebuilt
from ardvark.models.card import card_of

__all__ = ["read_model"]


def read_model(
    model: Any,
    *,
    weights: str | Sequence[str] | None = None,
    predictor: str | None = None,
    sparse: bool | None = False,
) -> LatentGaussian:
    """Read `model` as a latent Gaussian; the reading is kept with the model and used again.

    Print the answer to see what was found: the block, the predictor, the likelihood and what is
    left as hyperparameters.

    Parameters
    ----------
    model : pm.Model, or a model of bambi
    weights : str or sequence of str, optional
        Names of the Gaussian variables. Default: every free variable with a Gaussian prior, or one
        that is a site over a Gaussian, that enters the predictor affinely.
    predictor : str, optional
        Name of the variable through which the weights reach the likelihood. Default: it is found.
    sparse : bool, optional
        True: sparse arrays of many weights, of which each row holds a few. False: dense ones, which
        samplers and exact methods need. None: whichever a fit by Laplace() or EP() would take.

    Raises
    ------
    UnreadableModel
        With the name of what does not fit and the reason.
    """
    model = check_model(model)
    names = None if weights is None else _as_names(weights)
    if predictor is not None and not isinstance(predictor, str):
        raise InputError(f"predictor must be the name of a variable, got {predictor!r}")
    lengths = tuple(sorted((d, len(model.coords[d])) for d in _free_dims(model)))

    def read() -> LatentGaussian:
        wanted = False if sparse is None and card_of(model) is not None else sparse
        with quick():
            latent = LatentGaussian(_read(model, names, predictor), wanted)
            verify(latent)
        return latent

    return kept_with(model, ("reading", names, predictor, lengths, sparse), read)


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


def _read(model: Any, names: tuple[str, ...] | None, predictor: str | None) -> Reading:
    if not model.observed_RVs:
        raise UnreadableModel(
            "an observed variable is needed; the model has none. A likelihood written as a "
            "potential says not what was observed: write it as pm.CustomDist(..., observed=t)"
        )
    start = start_of(model)
    found = find_block(model, start, names, predictor)
    return _Taken(model, found, start).reading()


class _Taken:
    """A graph taken apart at what was found: natural-scale inputs for every free variable."""

    def __init__(self, model: Any, found: Found, start: dict[str, Any]) -> None:
        self.model, self.found, self.start = model, found, start
        self.needed = [*found.members, *found.hyper]
        self.free, self.terms = natural_terms(model, self.needed)
        self.observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
        self.values = {**self.free, **self.observed}

    def reading(self) -> Reading:
        found, model = self.found, self.model
        bases = self._bases()
        ws = [self.free[rv] for rv in found.members]
        rows = [self._rows(part, ws) for part in found.parts]
        rows += [
            _prior_rows(rv.name, self.free[rv], base)
            for rv, base in zip(found.members, bases, strict=True)
            if base.site is not None
        ]
        shapes = [tuple(np.shape(self.start[rv.name])) for rv in found.members]
        if len(rows) > 1 and (coupled := [part.name for part in rows if part.coupled]):
            raise UnreadableModel(
                f"the softmax of {coupled[0]!r} can be read alone, not beside other observed "
                f"variables, potentials or priors that are sites. Use NUTS."
            )
        eta, inside, cut = stacked(rows, ws, shapes)
        reading = Reading(
            model=ModelHere(model),
            rows=rows,
            weights=tuple(rv.name for rv in found.members),
            hyper=tuple(rv.name for rv in found.hyper),
            marginalised=tuple(rv.name for rv in found.marginalised),
            reasons=dict(found.reasons),
            kinds={rv.name: kind(rv).removesuffix("RV") for rv in model.basic_RVs},
            w=ws,
            theta=[self.free[rv] for rv in found.hyper],
            priors=[(base.mean, base.scale) for base in bases],
            dense=[base.dense for base in bases],
            eta=eta,
            inside=inside,
            cut=cut,
            terms=self.terms,
            start=self.start,
            lines={},
            rows_of_priors=self._prior_rows(),
            excess=[base.excess for base in bases if base.excess is not None],
        )
        return self._on_lines(reading)

    def in_values(self, variables: list[Any]) -> list[Any]:
        """Copies of graph nodes with values in place of random variables."""
        return list(
            replace_rvs_by_values(variables, rvs_to_values=self.values, rvs_to_transforms={})
        )

    def _bases(self) -> list[Base]:
        members = self.found.members
        at_zero = {self.free[m]: pt.zeros(self.start[m.name].shape) for m in members}
        params = self._each_in_values([list(rv.owner.op.dist_params(rv.owner)) for rv in members])
        return [
            base_of(rv, own, self.free, tuple(self.start[rv.name].shape), at_zero)
            for rv, own in zip(members, params, strict=True)
        ]

    def _prior_rows(self) -> list[PriorRows | None]:
        members = self.found.members
        params = self._each_in_values([own_params(rv) for rv in members])
        return [
            prior_rows(rv, own, self.free[rv], self.start[rv.name].shape)
            for rv, own in zip(members, params, strict=True)
        ]

    def _each_in_values(self, params: list[list[Any]]) -> list[list[Any]]:
        """Parameters of several variables with values in place of random variables."""
        moved = iter(self.in_values([p for some in params for p in some if hasattr(p, "ndim")]))
        return [[next(moved) if hasattr(p, "ndim") else p for p in some] for some in params]

    def _rows(self, part: Part, ws: list[Any]) -> Rows:
        eta = part.predictor
        [eta_value] = self.in_values([eta])
        same = eta_value.ndim == len(part.shape) and all(
            n in (None, m) for n, m in zip(eta.type.shape, part.shape, strict=True)
        )
        if not same:
            eta_value = pt.broadcast_to(eta_value, part.shape)
        inside = eta_value.type(name="eta_input")
        if part.observed is not None:
            log_sites = self._observed_sites(part, inside, same)
            cut = log_sites(self.observed[part.observed])
        else:
            [term] = graph_replace([part.term], dict.fromkeys(part.equal, inside), strict=False)
            [cut], log_sites = self.in_values([term]), None
        if leaking := [w.name for w in ws if depends(cut, [w])]:
            raise UnreadableModel(
                f"{', '.join(leaking)} reaches {part.name!r} past its predictor: the likelihood "
                f"may hold the weights only through it"
            )
        if not depends(cut, [inside]):
            raise UnreadableModel(
                f"log p({part.name}) does not depend on its predictor {inside.name!r}: name the "
                f"variable that it does depend on by predictor="
            )
        if cut.ndim != inside.ndim - part.coupled:
            raise UnreadableModel(
                f"log p({part.name}) has {cut.ndim} dimensions, its predictor {inside.ndim}: not "
                f"separable, it must be one number for each element of the data"
            )
        return Rows(
            part.name,
            "potential" if part.observed is None else "observed",
            eta.name if eta.name in self.model.named_vars else None,
            eta_value,
            inside,
            cut,
            log_sites,
            self.observed.get(part.observed),
            part.coupled,
        )

    def _observed_sites(self, part: Part, inside: Any, same: bool) -> Callable[[Any], Any]:
        """Log sites of an observed value, as a function of it."""
        # Only what lies between eta and the data is copied: a clone of any other random variable
        # would be drawn at random instead of taking its value.
        if same:
            new = dict.fromkeys(part.equal, inside)
            [moved] = graph_replace([part.term], new, strict=False)
        else:
            moved = rebuilt(part.term, part.equal, inside, set(self.values))

        # PyMC derives the densities of all that it is given: nothing more where all depends on eta.
        free = {} if self.free.keys().isdisjoint(ancestors([moved])) else dict(self.free)

        def log_sites(value: Any) -> Any:
            log_density = conditional_logp({**free, moved: value}, warn_rvs=False)[value]
            return log_density if part.coupled else narrow(by_row(log_density, inside))

        return log_sites

    def _on_lines(self, reading: Reading) -> Reading:
        """Members that sum to zero live on PyMC's unconstrained scale, which is an isometry."""
        for rv in self.found.members:
            transform = self.model.rvs_to_transforms[rv]
            if transform is None:
                continue
            inputs, natural = rv.owner.inputs, self.free[rv]
            given = named_tensor(rv.name, rv.dtype, self.start[rv.name].shape)
            line = transform.forward(given, *inputs)
            shape = line.eval({given: self.start[rv.name]}, mode="FAST_COMPILE").shape
            free = named_tensor(rv.name, rv.dtype, shape)
            back = transform.backward(free, *inputs)
            reading = _moved(reading, natural, back, rv.name, Line(free, back, given, line))
        return reading


def _moved(reading: Reading, natural: Any, back: Any, name: str, line: Line) -> Reading:
    """The same reading with one block on another scale."""

    def put(variables: list[Any]) -> list[Any]:
        return list(clone_replace(variables, {natural: back}, rebuild_strict=False))

    rows = [part._replace(eta=put([part.eta])[0]) for part in reading.rows]
    eta, cut = put([reading.eta, reading.cut])
    terms = dict(zip(reading.terms, put(list(reading.terms.values())), strict=True))
    flat = put([p for pair in reading.priors for p in pair])
    own = [
        None if rows is None else rows._replace(residual=put([rows.residual])[0])
        for rows in reading.rows_of_priors
    ]
    return replace(
        reading,
        rows=rows,
        eta=eta,
        cut=cut,
        terms=terms,
        w=[line.free if w is natural else w for w in reading.w],
        priors=list(zip(flat[::2], flat[1::2], strict=True)),
        rows_of_priors=own,
        lines={**reading.lines, name: line},
    )


def _prior_rows(name: str, value: Any, base: Base) -> Rows:
    """The prior of a member as a site on what it deviates from its location."""
    assert base.site is not None
    location, log_site = base.site
    residual = value if is_zero(location) else value - location
    inside = pt.tensor("eta_input", dtype="float64", shape=(None,) * residual.ndim)
    return Rows(name, "prior", None, residual, inside, log_site(inside), None, None)
