"""Mean-field VB of linear models: q(w) q(alpha) q(noise), w in one Gaussian block.

    eta = A w + o        w_j ~ N(m_j, 1/alpha_g(j))        alpha_g ~ Gamma(a_g, b_g)

Bishop & Tipping 2000 (BT00) is this with one precision for each weight; a precision may also be
shared by several weights, or given. Notation as in `sites/model.py`; the Gaussian algebra is that
of `sites/posterior.py`, in weight space or in function space, whichever is smaller.

| block      | code               |
|------------|--------------------|
| Q(w)       | `condition`        |
| Q(alpha)   | `conjugate`        |
| Q(noise)   | `Rows.tightened`   |
| the bound  | `elbo`             |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sites.arrays import Array, Index, Mask
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sites.posterior import Posterior, condition
from ardvark.inference.vb.blocks import Gamma, Precisions, conjugate, weights_term
from ardvark.inference.vb.climb import Climber, climb
from ardvark.inference.vb.rows import Rows
from ardvark.inference.vb.vb import Pruning

__all__ = ["LinearFit", "LinearState", "PrecisionPlan", "ascend_linear", "elbo"]

_FIRST = (1.0, 100.0, 0.01)  # precisions of the starts, times the typical one


@dataclass(frozen=True, eq=False)
class PrecisionPlan:
    """Which precision each weight has."""

    group: Index  # (d,) index of its Gamma, -1 = given
    given: Array  # (d,) where group is -1; inf = the weight is off
    prior: Gamma  # (g,)

    def spread(self, of_groups: Array, given: Array) -> Array:
        """One value for each weight, from one for each group."""
        held = self.group >= 0
        values = given.copy()
        values[held] = of_groups[self.group[held]]
        return values

    def sums(self, of_weights: Array, on: Mask) -> Array:
        """Sum over the weights of each group."""
        held = (self.group >= 0) & on
        return np.bincount(
            self.group[held], weights=of_weights[held], minlength=len(self.prior.shape)
        )


class LinearState(NamedTuple):
    """Every factor of q."""

    posterior: Posterior  # q(w)
    alpha: Precisions  # of each group
    rows: Rows


class LinearFit(NamedTuple):
    """The best end of several starts."""

    state: LinearState
    active: Mask  # (d,)
    elbo: Array  # by sweep
    converged: bool
    gain: float
    ends: tuple[float, ...]


def elbo(plan: PrecisionPlan, state: LinearState) -> float:
    """The bound, every constant and hyperprior in it, from the factors of q alone."""
    q = state.posterior
    on = q.prior.on
    second = (q.mean - q.prior.model.mean) ** 2 + q.marginal_variance
    with np.errstate(divide="ignore"):
        mean = plan.spread(state.alpha.mean, plan.given)[on]
        mean_log = plan.spread(state.alpha.mean_log, np.log(plan.given))[on]
    half_log_det = -(q.half_log_det + q.prior.half_log_det_precision)
    alive = plan.sums(np.ones(len(on)), on) > 0
    value = state.rows.parabola.value(q.eta_mean, q.eta_mean**2 + q.eta_variance)
    value += weights_term(mean_log, mean, second[on], half_log_det)
    return value + state.rows.minus_kl + state.alpha.kept(alive).minus_kl(plan.prior.kept(alive))


class _Ascent(Climber):
    def __init__(
        self,
        arrays: SiteModel,
        plan: PrecisionPlan,
        rows: Rows,
        first: float,
        watch: Callable[[str, LinearState], None] | None,
    ) -> None:
        self.arrays, self.plan, self.watch = arrays, plan, watch
        self.active = (plan.group >= 0) | np.isfinite(plan.given)
        scale = first * plan.prior.mean
        self.alpha: Precisions = Gamma(np.ones_like(scale), 1.0 / scale)
        self.rows, self.posterior = rows, self._gaussian(rows)

    @property
    def state(self) -> LinearState:
        return LinearState(self.posterior, self.alpha, self.rows)

    def _gaussian(self, rows: Rows) -> Posterior:
        precision = self.plan.spread(self.alpha.mean, self.plan.given)
        precision[~self.active] = np.inf
        old, parabola = self.arrays, rows.parabola
        model = SiteModel(old.mean, old.projection, old.offset, old.sites, precision)
        return condition(Prior(model), parabola.precision, parabola.shift)

    def sweep(self) -> float:
        self.posterior = self._gaussian(self.rows)
        self.tell("w")
        q = self.posterior
        if self.plan.prior.shape.size:
            second = (q.mean - self.arrays.mean) ** 2 + q.marginal_variance
            count = self.plan.sums(np.ones(len(second)), self.active)
            total = self.plan.sums(second, self.active)
            self.alpha = conjugate(self.plan.prior, total, count)
            self.tell("alpha")
        self.rows = self.rows.tightened(q.eta_mean, q.eta_mean**2 + q.eta_variance)
        self.tell("rows")
        return self.bound()

    def bound(self) -> float:
        return elbo(self.plan, self.state)

    def place(self) -> Array:
        return np.log(self.alpha.rate) if isinstance(self.alpha, Gamma) else np.empty(0)

    def go_to(self, place: Array) -> None:
        assert isinstance(self.alpha, Gamma)
        self.alpha = Gamma(self.alpha.shape, np.exp(place))

    def prune(self, pruning: Pruning) -> bool:
        q = self.posterior
        size = np.abs(q.mean)
        if pruning.by == "size":
            size = np.sqrt(q.mean**2 + q.marginal_variance)
        size = size * np.sqrt(np.mean(self.arrays.projection**2, axis=0))  # what it adds to eta
        free = self.plan.group >= 0
        small = self.active & free & (size < pruning.threshold * size[self.active].max())
        if not small.any():
            return False
        self.active = self.active & ~small
        self.posterior = self._gaussian(self.rows)
        return True


def ascend_linear(
    arrays: SiteModel,
    plan: PrecisionPlan,
    rows: Rows,
    *,
    pruning: Pruning | None,
    starts: int = 1,
    tolerance: float = 1e-6,
    max_sweeps: int = 2000,
    watch: Callable[[str, LinearState], None] | None = None,
    tick: Tick = no_tick,
) -> LinearFit:
    """Coordinate ascent from several starts; the end with the best ELBO.

    Precision and sites of `arrays` are not looked at: `plan` and `rows` have them. `watch` is
    called with the name of each block and the state after its update.
    """

    def run(ascent: _Ascent) -> LinearFit:
        def told(number: int, bound: float) -> None:
            tick(f"sweep {number}, ELBO {bound:.6g}, {int(ascent.active.sum())} weights")

        found = climb(ascent, pruning, tolerance, max_sweeps, told)
        return LinearFit(ascent.state, ascent.active, *found, ())

    fits = []
    for first in _FIRST[:starts]:
        ascent = _Ascent(arrays, plan, rows, first, watch)
        fit = run(ascent)
        if pruning is not None and pruning.reversible and not fit.active.all():
            ascent.active = (plan.group >= 0) | np.isfinite(plan.given)
            fit = max((fit, run(ascent)), key=lambda end: end.elbo[-1])
        fits.append(fit)
    best = max(fits, key=lambda fit: fit.elbo[-1])
    return best._replace(ends=tuple(float(fit.elbo[-1]) for fit in fits))
