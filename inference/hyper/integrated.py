"""Hyperparameters integrated out, with an approximation of the weights at each of their values.

    p(θ | t) ∝ p̂(t | θ) p(θ),        p(w, θ | t) ≈ q(w | θ) p̂(θ | t)

p̂(t | θ) is the evidence and q(w | θ) the Gaussian of Laplace or EP. The density lives on PyMC's
unconstrained scale φ (`graph/chart.py`): log p̂(t | θ) + log p(θ) + log |dθ/dφ|. Its mode is found
by adjoint gradients (`axes.py`), weighted points that stand for it by `integrate.py`; each keeps
the sites of its approximation, from which its Gaussian is made again when draws are taken.

| Rue, Martino & Chopin 2009 | here |
|---|---|
| mode, Hessian, axes (section 3.1) | `axes.py` |
| π̃(θ | y) at points θ_k, (3) | `Nested.value` |
| sum over θ_k with weights, (5) | draws of (w, θ) from the weighted points: `run_integrated.py` |

EP inside as in Cseke & Heskes 2011; its evidence is taken to second order (`ep/correction.py`)
where that is cheap and small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from pymc.logprob.utils import ParameterValueError

from ardvark.errors import UnsupportedPair
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.hyper.axes import axes_at, find_mode
from ardvark.inference.hyper.descend import ends
from ardvark.inference.hyper.integrate import Integral, integrate
from ardvark.inference.hyper.pareto import HIGH
from ardvark.inference.hyper.settings import Integrated
from ardvark.inference.running.progress import Tick
from ardvark.inference.sites.approximation import REJECTED, Approximation, GaussianFit
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import Sites
from ardvark.inference.sites.model import SiteModel

__all__ = ["FAILURES", "Mixture", "Nested", "Node"]

_CORRECTED_ROWS = 500  # beyond, the correction at every point is no longer cheap
_MOST_PRODUCTS = 10**8  # rows² weights: a tenth of a second at every point
_SMALL = 0.5  # nats: a larger correction is not to be trusted itself
_POINTS = {1: 128, 2: 128}  # by dimension ...
_MORE_POINTS = 256  # ... and in more, in each round
_KEPT_ROWS = 10**5  # beyond, the sites of all points would take more room than anything else
_FEW = 50  # effective points
_EDGE = 1e-2  # mass at the edge of a grid
_BAD = 0.05  # share of points that failed, or mass of those that did not converge
# What an approximation far from the data may say instead of an evidence.
FAILURES = (np.linalg.LinAlgError, ValueError, ZeroDivisionError, ParameterValueError)

type Fitted = tuple[dict[str, Array], SiteModel, GaussianFit]


class Node(NamedTuple):
    """A value of the hyperparameters and the approximation there."""

    theta: dict[str, Array]
    log_evidence: float
    correction: float  # of the log evidence; 0 where none is taken
    left_out: float  # a correction that is known and not taken; NaN where none is
    log_prior: float
    log_jacobian: float
    site_precision: Array
    site_shift: Array
    likelihood: Sites | None  # of a dense model, so that it need not be read again
    converged: bool
    errors: Mapping[str, Array]  # by weight, as the approximation estimates them; or empty

    @property
    def has_sites(self) -> bool:
        """Whether its sites are kept; those of very many rows are made again."""
        return self.site_precision.size > 0

    @property
    def log_density(self) -> float:
        """Log p(t, φ)."""
        return self.log_evidence + self.correction + self.log_prior + self.log_jacobian


class Mixture(NamedTuple):
    """Weighted nodes, and what is to be said of them."""

    mode: dict[str, Array]
    nodes: list[Node]  # None of them failed
    phi: Array  # (K, d) of the nodes
    labels: list[str]  # of the elements of φ
    log_weight: Array  # (K,) normalised
    integral: Integral
    problems: list[str]
    warm: GaussianFit | None  # at the mode


class Nested:
    """The density of φ, with every fit made so far."""

    def __init__(self, latent: LatentGaussian, method: Approximation, tick: Tick) -> None:
        self.latent, self.tick = latent, tick
        # Sites good to 1e-6 move an evidence by as much: enough for weights of nodes.
        self.method = method.loosened()
        self.chart = latent.adjoint.chart()
        self.seen: dict[bytes, Node | None] = {}
        self.warm: GaussianFit | None = None
        self.corrected = False
        self.assessable = True
        self.why = ""  # the last failure

    def _fitted(self, phi: Array) -> Fitted | None:
        """The approximation at φ, or None where there is none."""
        with np.errstate(all="ignore"):
            theta = self.chart.from_line(phi)
            site_model = self.latent.at(theta)
            fit = None
            if self.warm is not None:
                try:
                    fit = self.method.approximate(site_model, self.warm)
                except FAILURES:  # what was found elsewhere may have no density here
                    fit = None
            if fit is None or not fit.converged:
                fit = self.method.approximate(site_model)
        return (theta, site_model, fit) if np.isfinite(fit.log_evidence) else None

    def objective(self, phi: Array) -> tuple[float, Array]:
        """Minus the log density and its gradient, for the search of the mode."""
        try:
            found = self._fitted(phi)
            if found is None:
                return REJECTED, np.zeros_like(phi)
            theta, site_model, fit = found
            cotangents = self.method.evidence_gradient(site_model, fit)
            gradient = self.latent.pull(theta, cotangents)
            log_prior, prior_gradient = self.latent.adjoint.log_prior(theta)
            log_jacobian, jacobian_gradient = self.chart.log_jacobian(phi)
        except UnsupportedPair:  # whatever θ is
            raise
        except FAILURES as error:
            self.why = str(error)
            return REJECTED, np.zeros_like(phi)
        total = {name: gradient[name] + prior_gradient[name] for name in gradient}
        value = fit.log_evidence + log_prior + log_jacobian
        slope = self.chart.pull(phi, total) + jacobian_gradient
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return REJECTED, np.zeros_like(phi)
        self.warm = fit
        self.tick(f"mode of the hyperparameters, log density {value:.4f}")
        return -value, -slope

    def value(self, phi: Array) -> float:
        """Log density of φ, -inf where the approximation fails; the node is kept."""
        key = phi.tobytes()
        if key not in self.seen:
            try:
                self.seen[key] = self._node(phi)
            except FAILURES as error:
                self.why, self.seen[key] = str(error), None
        node = self.seen[key]
        return -math.inf if node is None else node.log_density

    def _node(self, phi: Array) -> Node | None:
        found = self._fitted(phi)
        if found is None:
            return None
        theta, site_model, fit = found
        if self.assessable:
            fit = self.method.assessed(site_model, fit)
        correction = fit.info.get("log_evidence_correction", math.nan)
        keeps = not site_model.sparse or len(fit.site_precision) <= _KEPT_ROWS
        node = Node(
            theta=theta,
            log_evidence=fit.log_evidence,
            correction=float(np.nan_to_num(correction)) if self.corrected else 0.0,
            left_out=math.nan if self.corrected else correction,
            log_prior=self.latent.adjoint.log_prior(theta)[0],
            log_jacobian=self.chart.log_jacobian(phi)[0],
            site_precision=fit.site_precision if keeps else np.zeros(0),
            site_shift=fit.site_shift if keeps else np.zeros(0),
            likelihood=None if site_model.sparse else site_model.sites,
            converged=fit.converged,
            errors=fit.by_weight,
        )
        return node if np.isfinite(node.log_density) else None

    def run(self, settings: Integrated, rng: np.random.Generator) -> Mixture:
        """Find the mode, integrate around it, and check the result."""
        start = self.chart.to_line(self.latent.initial_theta())
        mode = find_mode(self.objective, start, rng)
        if mode is None:
            raise UnsupportedPair(
                f"hyper=Integrated(): no start around the initial values of "
                f"{', '.join(self.latent.hyper)} has a finite density"
                f"{': ' + self.why if self.why else ''}. Give them an initval=, or use NUTS()."
            )
        at_mode = self._fitted(mode.end.u)
        self.warm = at_mode[2] if at_mode is not None else None
        self.assessable = self._cheap(self.warm)
        self.corrected = self.assessable and self._correctable(at_mode)
        value = self.value
        axes = axes_at(mode.end.u, self.objective, value)
        self.warm = at_mode[2] if at_mode is not None else None
        points = settings.points or _POINTS.get(start.size, _MORE_POINTS)
        integral = integrate(value, axes, points=points, rng=rng, tick=self.tick)
        unbounded = np.full(start.size, np.inf)
        no_mode = ends(
            lambda phi: -value(phi),
            mode.start,
            mode.end._replace(value=-value(mode.end.u)),
            self.chart.labels,
            -unbounded,
            unbounded,
        )
        return self._mixture(mode.end.u, integral, no_mode)

    def _cheap(self, fit: GaussianFit | None) -> bool:
        """Whether the approximation is to estimate its error at every node."""
        if fit is None or "cavity_mean" not in fit.by_row:
            return True
        rows, weights = fit.posterior.prior.model.projection.shape
        return bool(rows <= _CORRECTED_ROWS and rows**2 * weights <= _MOST_PRODUCTS)

    def _correctable(self, found: Fitted | None) -> bool:
        """Whether the evidence is to be taken to second order at every node."""
        if found is None or not found[2].converged or not getattr(self.method, "corrected", True):
            return False
        fit = self.method.assessed(found[1], found[2])
        return bool(abs(fit.info.get("log_evidence_correction", math.inf)) <= _SMALL)

    def _mixture(self, mode: Array, integral: Integral, no_mode: list[str]) -> Mixture:
        found = [self.seen[phi.tobytes()] for phi in integral.phi]
        kept = np.array([node is not None for node in found])
        nodes = [node for node in found if node is not None]
        weight = np.exp(integral.log_weight[kept])
        problems = list(no_mode)
        if integral.edge > _EDGE:
            problems.append(
                f"{integral.edge:.2g} of the mass of the hyperparameters is at the edge of the grid"
            )
        if not integral.k_hat <= HIGH or integral.effective < _FEW:
            problems.append(
                f"the points do not cover the posterior of the hyperparameters: k-hat "
                f"{integral.k_hat:.2g}, effective number {integral.effective:.0f} of {len(found)}. "
                f"Raise points"
            )
        if (failed := 1.0 - kept.mean()) > _BAD:
            problems.append(f"the approximation failed at {failed:.0%} of the points ({self.why})")
        loose = float(weight[[not node.converged for node in nodes]].sum())
        if loose > _BAD:
            problems.append(
                f"the approximation did not converge at points with {loose:.0%} of the mass"
            )
        theta = self.chart.from_line(mode)
        weights = integral.log_weight[kept]
        return Mixture(
            theta,
            nodes,
            integral.phi[kept],
            self.chart.labels,
            weights,
            integral,
            problems,
            self.warm,
        )
