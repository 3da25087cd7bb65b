"""A variational bound as a rule: each site is replaced by the parabola below it that VB would take.

At given hyperparameters mean-field VB is a Gaussian with sites of its own: Jaakkola & Jordan's for
the logit, Albert & Chib's for the probit (`rows.py`). They are tightened in turns with the
posterior they give until its mean stays. The bound is a lower one, so q is too narrow: as an answer
`VB` says so, as the kernel of a step method it only costs trials.
"""

from dataclasses import dataclass

import numpy as np

from ardvark.errors import UnsupportedPair
from ardvark.inference.sites.approximation import GaussianFit
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sites.posterior import Posterior, condition
from ardvark.inference.vb.rows import Parabola, bounded

__all__ = ["Bound"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The Gaussian of mean-field VB at fixed hyperparameters."""

    tolerance: float = 1e-3  # of each eta's mean, in its standard deviations
    max_iterations: int = 50

    def approximate(self, model: SiteModel, warm: GaussianFit | None = None) -> GaussianFit:
        """Tighten the sites until they stay; `warm` is not used, q depends on the model alone."""
        prior, rows = Prior(model), bounded(model.sites, len(model.offset))
        if rows is None:
            raise UnsupportedPair(
                f"no bound is known for {type(model.sites).__name__}: VB has one for logit, probit "
                f"and Gaussian likelihoods. Use EP or Laplace."
            )
        mean, change, iterations = prior.eta_mean, np.inf, 0
        while True:
            parabola = rows.parabola
            posterior = condition(prior, parabola.precision, parabola.shift)
            variance = np.maximum(posterior.eta_variance, 1e-300)
            moved = np.abs(posterior.eta_mean - mean) / np.sqrt(variance)
            mean, change = posterior.eta_mean, float(moved.max(initial=0.0))
            iterations += 1
            if change <= self.tolerance or iterations >= self.max_iterations:
                break
            rows = rows.tightened(mean, mean**2 + variance)
        return GaussianFit(
            posterior=posterior,
            log_evidence=_bound(posterior, parabola),
            iterations=iterations,
            converged=change <= self.tolerance,
            site_precision=posterior.site_precision,
            site_shift=posterior.site_shift,
            info={"eta_change": change},
        )


def _bound(posterior: Posterior, parabola: Parabola) -> float:
    """Log of the integral of prior times parabolas: a lower bound of the log evidence."""
    prior = posterior.prior
    deviation = posterior.mean[prior.on] - prior.mean
    eta = posterior.eta_mean
    pull = parabola.shift - parabola.precision * eta
    at_mode = parabola.value(eta, eta**2)
    return at_mode - 0.5 * float(pull @ (prior.projection @ deviation)) - posterior.half_log_det
