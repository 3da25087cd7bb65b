"""One against the rest: K sparse two-class machines whose probabilities are made to sum to one.

    eta_k = Phi w_k,   p(t = k against the rest) = ∫ link(eta_k) q(eta_k) d eta_k,   k = 1 ... K
    p(t = k) = p(t = k against the rest) / sum_l p(t = l against the rest)

Each machine is fitted by sequential ARD as if the other classes were one, so each has its own
active weights and its own evidence. The K probabilities are no posterior of one joint model: the
division is a convention, and the sum of the K log evidences is the evidence of no model of t. What
it buys is sparsity at the price of K two-class searches.

A table of columns goes to `sequential_ard`; `Columns`, of which no table exists, to
`sparse_logistic`, which has Laplace's sites of the logit only.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_expit, logsumexp

from ardvark.inference.ard.gaussian_ard import Columns
from ardvark.inference.ard.sequential_ard import sequential_ard
from ardvark.inference.ard.sparse_logistic import Machine, sparse_logistic
from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sites.arrays import Array, Mask
from ardvark.inference.sites.likelihoods import LogitSites, ProbitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.posterior import condition

__all__ = ["LINKS", "log_odds", "log_probabilities", "sparse_machines"]

LINKS: dict[str, Any] = {"logit": LogitSites, "probit": ProbitSites}


def sparse_machines(
    projection: Array | Columns,
    positive: Sequence[Mask],
    rule: Any,
    *,
    link: str = "logit",
    tolerance: float = 1e-6,
    max_steps: int = 5000,
    start: Sequence[Array] | None = None,
    tick: Tick = no_tick,
) -> list[Machine]:
    """Fit a machine for each target by sequential ARD.

    Parameters
    ----------
    projection
        Phi (N, d), or `Columns` (then the link must be the logit and the rule Laplace).
    positive
        The rows of the positive class, for each machine.
    rule
        `Laplace()` or `EP()`.
    start
        Precisions of each machine to start from, inf = out; by default all are out. For a table.
    """
    signs = [np.where(rows, 1.0, -1.0) for rows in positive]
    search: dict[str, Any] = {"tolerance": tolerance, "max_steps": max_steps, "tick": tick}
    if isinstance(projection, Columns):
        if link != "logit":
            raise ValueError(f"columns made on demand need the logit link, got {link!r}")
        return sparse_logistic(projection, signs, **search)
    starts = [np.full(projection.shape[1], np.inf)] * len(signs) if start is None else start
    return [
        _machine(projection, LINKS[link](sign), rule, begin, search)
        for sign, begin in zip(signs, starts, strict=True)
    ]


def _machine(Phi: Array, sites: Any, rule: Any, start: Array, search: dict[str, Any]) -> Machine:
    n_rows, n_weights = Phi.shape
    on = np.isfinite(start)
    model = SiteModel(
        mean=np.zeros(n_weights),
        projection=Phi,
        offset=np.zeros(n_rows),
        sites=sites,
        precision=np.where(on, start, 1.0),
    )
    on_path = rule.loosened()
    path = sequential_ard(model, on_path.approximate, start=on, runs=on_path.run_of_steps, **search)
    active = np.flatnonzero(np.isfinite(path.precision))
    small = replace(
        model,
        mean=np.zeros(active.size),
        projection=Phi[:, active],
        precision=path.precision[active],
    )
    fit = rule.approximate(small)
    posterior = condition(small, fit.site_precision, fit.site_shift)
    return Machine(
        path.precision, active, posterior.mean, posterior.covariance, fit.log_evidence,
        path.steps, path.converged and fit.converged,
    )  # fmt: skip


def log_odds(mean: Array, variance: Array, link: str) -> Array:
    """Log odds of the probability averaged over eta ~ N(mean, variance), elementwise."""
    ones = np.ones_like(mean)
    yes, no = (LINKS[link](s).tilted(mean, variance).log_z for s in (ones, -ones))
    return np.asarray(yes - no)


def log_probabilities(odds: Array) -> Array:
    """Log probabilities (N, K) that sum to one, from the log odds of each class and the rest."""
    chances = log_expit(odds)
    return np.asarray(chances - logsumexp(chances, axis=-1, keepdims=True))
