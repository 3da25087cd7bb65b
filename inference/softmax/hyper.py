"""What happens to the hyperparameters of a softmax model.

| choice                              | what is done                                              |
|-------------------------------------|-----------------------------------------------------------|
| `Fixed(values)`                     | a multinomial Laplace there                               |
| `Evidence()`, one alpha per weight  | one against the rest: K sparse two-class machines, each   |
|                                     | by sequential ARD; a kernel scale maximises the sum of    |
|                                     | their log evidences, in turns with the precisions         |
| `Evidence(algorithm="mackay"|"em")` | the multinomial Laplace evidence by fixed point, a kernel |
|                                     | scale by gradient in turns                                |
| `Evidence(with_prior=True)`, or one | the multinomial Laplace evidence by its gradient in all   |
| alpha for all weights               | logs at once; nothing is pruned                           |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ardvark.errors import UnsupportedPair
from ardvark.inference.ard.sparse_logistic import Machine
from ardvark.inference.hyper.settings import UNCONSTRAINED, Evidence, Fixed
from ardvark.inference.hyper.settle import fixed_values
from ardvark.inference.laplace import Laplace
from ardvark.inference.running.progress import Tick
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import LogitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.softmax.ard import ascend, fixed_point_softmax, softmax_bounds
from ardvark.inference.softmax.laplace import MultinomialFit, fit_multinomial
from ardvark.inference.softmax.model import SoftmaxModel
from ardvark.inference.softmax.one_against_rest import sparse_machines
from ardvark.inference.softmax.reading import SoftmaxReading
from ardvark.inference.vb.blocks import Gamma

__all__ = ["SettledSoftmax", "settle_softmax"]

_WIDEST = 12.0  # a kernel scale stays within exp(±this) of what is typical

type Theta = dict[str, Array]


class SettledSoftmax(NamedTuple):
    """Hyperparameters, and the Gaussian there: of the softmax, or of K machines."""

    theta: Theta
    model: SoftmaxModel
    fit: MultinomialFit | list[Machine]
    converged: bool
    treatment: str
    reason: str


def settle_softmax(reading: SoftmaxReading, method: Laplace, tick: Tick) -> SettledSoftmax:
    """Settle the hyperparameters by `method.hyper` and approximate the weights there."""
    hyper = method.hyper
    if hyper is None:
        hyper = Evidence() if reading.hyper else Fixed()
    if isinstance(hyper, Fixed):
        theta = fixed_values(hyper, reading.hyper)
        model = reading.at(theta)
        fit = _fitter(method)(model, None)
        why = "" if fit.converged else _not_found(fit)
        return SettledSoftmax(theta, model, fit, fit.converged, "fixed", why)
    if (
        not isinstance(hyper, Evidence)
        or hyper.start is not None
        or hyper.with_prior == UNCONSTRAINED
    ):
        raise UnsupportedPair(
            f"hyper={hyper!r} is not built for more than two classes; use Fixed(...), or "
            f"Evidence() without start="
        )
    if not reading.hyper:
        raise UnsupportedPair(
            "hyper=Evidence() has nothing to optimise: the model has no free hyperparameter. "
            "Use Fixed()."
        )
    search = _Search(reading, method, hyper, tick)
    if hyper.with_prior or reading.shared or "alpha" not in reading.hyper:
        return search.by_gradient()
    return search.one_against_rest() if hyper.algorithm == "sequential" else search.in_turns()


def _fitter(method: Laplace) -> Callable[[SoftmaxModel, Array | None], MultinomialFit]:
    def fit(model: SoftmaxModel, start: Array | None) -> MultinomialFit:
        return fit_multinomial(
            model,
            start=start,
            space=method.space,
            tolerance=method.tolerance,
            max_iterations=method.max_iterations,
        )

    return fit


def _not_found(fit: MultinomialFit) -> str:
    return (
        f"the mode was not found in {fit.iterations} Newton steps (decrement {fit.decrement:.3g})"
    )


class _Search:
    """The searches of the table, on one graph."""

    def __init__(
        self, reading: SoftmaxReading, method: Laplace, hyper: Evidence, tick: Tick
    ) -> None:
        self.reading, self.method, self.hyper, self.tick = reading, method, hyper, tick
        self.fit = _fitter(method)
        names = [name for name in reading.hyper if name != reading.scale]
        self.gammas = {n: reading.gamma_of(n) for n in names} if hyper.with_prior else {}
        self.theta: Theta = {}
        if reading.scale is not None:
            self.theta[reading.scale] = np.asarray(reading.design.scale.typical, float)

    # In turns with a scale of the kernel ----------------------------------------------------------

    def one_against_rest(self) -> SettledSoftmax:
        """K machines by sequential ARD, their common scale by the sum of their evidences."""
        reading, hyper = self.reading, self.hyper
        positive = [reading.codes == k for k in range(len(reading.classes))]

        def settle_precisions(last: list[Machine] | None) -> tuple[float, bool, Any]:
            machines = sparse_machines(
                reading.basis(self.theta),
                positive,
                self.method,
                tolerance=hyper.tolerance,
                max_steps=hyper.max_steps,
                start=None if last is None else [machine.precision for machine in last],
                tick=self.tick,
            )
            total = sum(machine.log_evidence for machine in machines)
            return float(total), all(machine.converged for machine in machines), machines

        def at_scale(scale: Theta, machines: list[Machine]) -> tuple[float, Array]:
            Phi = reading.basis(scale)
            pairs = zip(machines, positive, strict=True)
            parts = [_two_class_slope(Phi, machine, rows) for machine, rows in pairs]
            outer = np.sum([gradient for _, gradient in parts], axis=0)
            return float(sum(value for value, _ in parts)), outer

        machines, settled, why = self._turns(settle_precisions, at_scale)
        theta = self.theta | reading.theta_of(np.array([m.precision for m in machines]))
        return SettledSoftmax(theta, reading.at(theta), machines, settled, "evidence", why)

    def in_turns(self) -> SettledSoftmax:
        """The multinomial evidence: precisions by fixed point, the scale by gradient."""
        reading, hyper = self.reading, self.hyper

        def settle_precisions(last: Any) -> tuple[float, bool, Any]:
            Phi = reading.basis(self.theta)
            begin = (
                np.ones((len(reading.classes), Phi.shape[1])) if last is None else last.precision
            )
            climb = fixed_point_softmax(
                SoftmaxModel(Phi, reading.codes, begin),
                self.fit,
                algorithm=hyper.algorithm,
                tolerance=hyper.tolerance,
                max_steps=hyper.max_steps,
                tick=self.tick,
            )
            return climb.fit.log_evidence, climb.converged, climb

        def at_scale(scale: Theta, climb: Any) -> tuple[float, Array]:
            model = SoftmaxModel(reading.basis(scale), reading.codes, climb.precision)
            fit = self.fit(model, climb.fit.mean)
            return fit.log_evidence, fit.projection_gradient()

        climb, settled, why = self._turns(settle_precisions, at_scale)
        theta = self.theta | reading.theta_of(climb.precision)
        return SettledSoftmax(theta, climb.fit.model, climb.fit, settled, "evidence", why)

    def _turns(
        self,
        settle_precisions: Callable[[Any], tuple[float, bool, Any]],
        at_scale: Callable[[Theta, Any], tuple[float, Array]],
    ) -> tuple[Any, bool, str]:
        """Precisions at a scale, the scale at these precisions, until a turn gains nothing.

        Each search over precisions begins where the last has ended; the best turn is kept.
        """
        value, settled, found = settle_precisions(None)
        why = "" if settled else "the search over precisions did not settle: raise max_steps"
        scale = self.reading.scale
        if scale is None:
            return found, settled, why
        for _ in range(self.hyper.max_rounds):
            before = self.theta
            self.theta = {scale: self._best_scale(at_scale, found)}
            new, new_settled, new_found = settle_precisions(found)
            if new <= value + self.hyper.tolerance:
                if new < value:
                    self.theta = before
                else:
                    found, settled = new_found, new_settled
                return found, settled, why if not settled else ""
            value, settled, found = new, new_settled, new_found
        return found, False, f"{scale} still gained after {self.hyper.max_rounds} rounds"

    def _best_scale(self, at_scale: Callable[[Theta, Any], tuple[float, Array]], found: Any) -> Any:
        name, bias = self.reading.scale, int(self.reading.bias)
        assert name is not None
        shape, typical = np.shape(self.theta[name]), self.reading.design.scale.typical

        def value(x: Array) -> tuple[float, Array]:
            scale = {name: np.exp(x).reshape(shape)}
            evidence, outer = at_scale(scale, found)
            slope = self.reading.pull(scale, outer[:, bias:]) * scale[name]
            return evidence, np.ravel(slope)

        middle = np.ravel(np.log(typical))
        end, _ = ascend(
            value,
            np.ravel(np.log(self.theta[name])),
            [(m - _WIDEST, m + _WIDEST) for m in middle],
            tolerance=self.hyper.tolerance,
            max_steps=self.hyper.max_steps,
        )
        return np.exp(end).reshape(shape)

    # Everything at once ---------------------------------------------------------------------------

    def by_gradient(self) -> SettledSoftmax:
        """All logs by the exact gradient of the multinomial evidence, with the prior if asked."""
        reading = self.reading
        theta = {name: np.ones(np.shape(self._shape_of(name))) for name in reading.hyper}
        theta |= self.theta
        sizes = [theta[name].size for name in reading.hyper]
        warm: list[Array | None] = [None]

        def unpack(x: Array) -> Theta:
            parts = np.split(x, np.cumsum(sizes)[:-1])
            named = zip(reading.hyper, parts, strict=True)
            return {name: np.exp(part).reshape(theta[name].shape) for name, part in named}

        def value(x: Array) -> tuple[float, Array]:
            here = unpack(x)
            fit = self.fit(reading.at(here), warm[0])
            warm[0] = fit.mean
            slopes = self._slopes(here, fit)
            total = fit.log_evidence
            if self.hyper.with_prior:
                prior, prior_slopes = self._prior(here)
                total += prior
                slopes = {name: slopes[name] + prior_slopes[name] for name in slopes}
            self.tick(f"log evidence {fit.log_evidence:.4f}")
            return total, np.concatenate([np.ravel(slopes[name]) for name in reading.hyper])

        start = np.concatenate([np.ravel(np.log(theta[name])) for name in reading.hyper])
        end, settled = ascend(
            value,
            start,
            self._bounds(theta),
            tolerance=self.hyper.tolerance,
            max_steps=self.hyper.max_steps,
        )
        found = unpack(end)
        fit = self.fit(reading.at(found), warm[0])
        why = "" if settled else "the search over log hyperparameters did not settle"
        why = why or ("" if fit.converged else _not_found(fit))
        return SettledSoftmax(found, fit.model, fit, not why, "evidence", why)

    def _shape_of(self, name: str) -> Any:
        if name == self.reading.scale:
            return self.reading.design.scale.typical
        if name == "alpha_bias":
            return np.zeros(len(self.reading.classes))
        classes, basis = len(self.reading.classes), len(self.reading.design.names)
        return np.zeros(() if self.reading.shared else (classes, basis))

    def _bounds(self, theta: Theta) -> list[tuple[float, float]]:
        least, largest = softmax_bounds(self.reading.basis(theta))
        low, high = float(np.log(least.min())), float(np.log(largest.max()))
        bounds = []
        for name in self.reading.hyper:
            if name == self.reading.scale:
                bounds += [(m - _WIDEST, m + _WIDEST) for m in np.ravel(np.log(theta[name]))]
            else:
                bounds += [(low, high)] * theta[name].size
        return bounds

    def _slopes(self, theta: Mapping[str, Array], fit: MultinomialFit) -> Theta:
        """Give d log evidence / d log of each hyperparameter."""
        reading, bias = self.reading, int(self.reading.bias)
        by_weight = fit.precision_gradient()
        w_slope = by_weight[:, bias:]
        slopes = {
            "alpha_bias": by_weight[:, 0],
            "alpha": np.asarray(w_slope.sum()) if reading.shared else w_slope,
        }
        if reading.scale is not None:
            pulled = reading.pull(theta, fit.projection_gradient()[:, bias:])
            slopes[reading.scale] = pulled * theta[reading.scale]
        return {name: slopes[name] for name in reading.hyper}

    def _prior(self, theta: Theta) -> tuple[float, Theta]:
        """Log density of the hyperprior on the natural scale, and its slopes in the logs."""
        total, slopes = 0.0, {}
        for name, value in theta.items():
            if name == self.reading.scale:
                spread = self.reading.design.scale.spread
                mu = np.log(self.reading.design.scale.typical) - spread**2 / 2
                z = (np.log(value) - mu) / spread
                constant = np.log(spread) + 0.5 * np.log(2 * np.pi)
                total += float(np.sum(-0.5 * z**2 - np.log(value) - constant))
                slopes[name] = -z / spread - 1.0
            else:
                shape, rate = self.gammas[name]
                of_gamma = Gamma(np.asarray(shape), np.asarray(rate))
                total += float(np.sum(of_gamma.log_density(value)))
                slopes[name] = (shape - 1.0) - rate * value
        return total, slopes


def _two_class_slope(Phi: Array, machine: Machine, positive: Any) -> tuple[float, Array]:
    """Evidence of one machine at another Phi, and its gradient in Phi (N, d)."""
    on = machine.active
    model = SiteModel(
        mean=np.zeros(on.size),
        projection=Phi[:, on],
        offset=np.zeros(len(Phi)),
        sites=LogitSites(np.where(positive, 1.0, -1.0)),
        precision=machine.precision[on],
    )
    rule = Laplace()
    fit = rule.approximate(model)
    gradient = np.zeros_like(Phi)
    gradient[:, on] = rule.evidence_gradient(model, fit).projection
    return fit.log_evidence, gradient
