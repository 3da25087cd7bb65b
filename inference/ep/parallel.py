"""Expectation propagation, all rows at once: for any sites, log-concave or not.

| Qi, Minka, Picard & Ghahramani 2004            | code                                          |
|------------------------------------------------|-----------------------------------------------|
| (4) to (9)                                     | `_look_at`                                    |
| acceleration (Walker & Ni 2011)                | `_Memory`                                     |

Parallel updates may oscillate: less of each is made whenever they do not help, and a step that has
no posterior is cut until it has one.
"""

from typing import NamedTuple

import numpy as np

from ardvark.inference.ep.sequential import KNOWN, SMALL, Rows
from ardvark.inference.known_sites.known import known
from ardvark.inference.known_sites.stacked import Flags, expansion, log_concave, smooth
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import Sites
from ardvark.inference.sites.model import Prior
from ardvark.inference.sites.posterior import Posterior, condition

__all__ = ["parallel"]

LEAST_DAMPING = 0.02


def parallel(
    prior: Prior,
    start: tuple[Array, Array],
    damping: float,
    tolerance: float,
    max_sweeps: int,
    space: str,
) -> Rows:
    """Update all rows at once, with less of each update whenever that did not help."""
    rows = len(prior.eta_mean)
    sites = prior.model.sites
    sites = known(sites, rows) or sites  # moments in machine code where there are such
    traits = log_concave(sites, rows), smooth(sites, rows)
    try:
        posterior = condition(prior, start[0], start[1], space)
    except np.linalg.LinAlgError:  # a start that belongs to another prior
        none = np.zeros_like(start[0])
        posterior = condition(prior, none, none, space)
    memory, negative, skipped, rises = _Memory(), 0, 0, 0
    look = best = _look_at(sites, traits, posterior)
    for sweep in range(max_sweeps + 1):
        negative, skipped = negative + look.negative, skipped + look.unresolved
        if look.change <= tolerance and not look.unresolved:
            break
        rises = 0 if look.change < best.change else rises + 1
        if memory.in_use and (rises == 3 or look.change > 3.0 * best.change):
            look, rises = best, 0  # acceleration failed: go back, and do without it for a while
            memory.forget(best.change)
        elif rises == 4:
            damping, rises = max(0.6 * damping, LEAST_DAMPING), 0
            best = look
        if look.change <= best.change:
            best = look
        moved = None
        if sweep < max_sweeps:
            moved = _move(prior, look, memory.step(look, damping), space)
        if moved is None:
            break
        look = _look_at(sites, traits, moved)
    posterior = look.posterior
    return Rows(
        sweep, look.change, negative, skipped, look.unresolved,
        posterior.site_precision, posterior.site_shift,
        look.cavity_mean, look.cavity_variance, look.log_z, posterior,
    )  # fmt: skip


class _Look(NamedTuple):
    """Cavities and tilted moments under one q, and the full update that follows."""

    posterior: Posterior
    change: float
    negative: int
    unresolved: int
    step: Array  # (2, N): of site precisions and shifts
    cavity_mean: Array
    cavity_variance: Array
    log_z: Array

    @property
    def sites(self) -> Array:
        """Site precisions and shifts (2, N)."""
        return np.stack([self.posterior.site_precision, self.posterior.site_shift])


class _Memory:
    """Anderson's acceleration (Walker & Ni 2011): the step on which past updates cancel best.

    On separable data plain parallel updates need hundreds of sweeps for a few slow directions.
    Used once the updates are small, and later after each time that it failed.
    """

    DEPTH = 6

    def __init__(self) -> None:
        self.begin = 0.3
        self.past: list[tuple[Array, Array]] = []  # sites and the update they asked for

    @property
    def in_use(self) -> bool:
        return len(self.past) > 1

    def forget(self, change: float) -> None:
        """Rest until the updates are clearly smaller than now."""
        self.past, self.begin = [], 0.3 * change

    def step(self, look: _Look, damping: float) -> Array:
        """Step (2, N) of site precisions and shifts."""
        plain = damping * look.step
        if look.change > self.begin or look.unresolved:
            return np.asarray(plain)
        here = look.sites
        self.past = [*self.past, (here, look.step)][-self.DEPTH :]
        if not self.in_use:
            return np.asarray(plain)
        sd = np.sqrt(np.maximum(look.posterior.eta_variance, 1e-300))
        scale = np.stack([sd**2, sd])  # the units in which a site's change matters
        moves, turns = (np.diff(part, axis=0) for part in zip(*self.past, strict=True))
        columns = (turns * scale).reshape(len(turns), -1).T
        mix, *_ = np.linalg.lstsq(columns, (look.step * scale).ravel(), rcond=1e-10)
        step = plain - np.tensordot(mix, moves + damping * turns, axes=1)
        if np.all(here[0] + look.step[0] >= 0):  # log-concave: stay where every site is proper
            step[0] = np.maximum(step[0], -here[0])
        return np.asarray(step)


def _move(prior: Prior, look: _Look, step: Array, space: str) -> Posterior | None:
    """Posterior after the step, or after less of it where there is none; None if nothing helps."""
    for share in 0.5 ** np.arange(12):
        try:
            tau, nu = look.sites + share * step
            return condition(prior, tau, nu, space)
        except np.linalg.LinAlgError:
            step = look.step if share == 1.0 else step
    return None


def _look_at(sites: Sites, traits: tuple[Flags, Flags], posterior: Posterior) -> _Look:
    concave, differentiable = traits
    tau, nu = posterior.site_precision, posterior.site_shift
    mean, variance = posterior.eta_mean, np.maximum(posterior.eta_variance, 1e-300)
    left = 1.0 - tau * variance
    good = left > 0
    negative = int(np.sum(~good))
    lam = variance / np.where(good, left, 1.0)  # Qi04 (4)
    mu = mean - lam * (nu - tau * mean)  # Qi04 (5)
    with np.errstate(all="ignore"):
        log_z, tilted_mean, tilted_variance = sites.tilted(mu, lam)
        new_tau = 1.0 / tilted_variance - 1.0 / lam  # Qi04 (8)
        new_tau = np.where(concave, np.maximum(new_tau, 0.0), new_tau)  # less is rounding
        new_nu = tilted_mean / tilted_variance - mu / lam  # Qi04 (9) times tau
        settled = (lam < SMALL) & (np.abs(tilted_variance - lam) <= KNOWN * lam)
        settled &= differentiable  # a flat site is no known eta; a step is flat
        if settled.any():
            site = expansion(sites, mu)  # the limit of Qi04 (8), (9), which would cancel here
            new_tau = np.where(settled, -site.second, new_tau)
            new_nu = np.where(settled, site.first - site.second * mu, new_nu)
        good &= np.isfinite(log_z) & np.isfinite(new_tau) & np.isfinite(new_nu)
        good &= tilted_variance > 0
        rest = np.where(
            settled, 1e-300, 1.0 / variance
        )  # sites of a known eta are compared with themselves
        moved = np.maximum(
            np.abs(new_tau - tau) / (np.abs(new_tau) + rest),
            np.abs(new_nu - nu) / (np.abs(new_nu) + np.sqrt(rest)),
        )
    return _Look(
        posterior,
        float(moved[good].max(initial=0.0)),
        negative,
        int(np.sum(~good)),
        np.where(good, np.stack([new_tau - tau, new_nu - nu]), 0.0),
        np.where(good, mu, np.nan),
        np.where(good, lam, np.nan),
        np.where(good, log_z, np.nan),
    )
