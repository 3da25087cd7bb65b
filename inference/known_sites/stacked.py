"""Sites of several groups of rows in one: several observed variables, priors, potentials.

`stack` fuses groups of known families into one `KnownSites` (or groups of one class into that
class), so that a sweep of EP stays in machine code; other groups are asked one after the other.
`log_concave`, `smooth` and `expansion` say what holds of each row, whatever the sites are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ardvark.inference.known_sites.known import KnownSites, known
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import (
    Derivatives,
    GaussianSites,
    LogitSites,
    PoissonSites,
    ProbitSites,
    Sites,
    StepSites,
)
from ardvark.inference.sites.quadrature import Tilted
from ardvark.inference.sites.trigonometric import TrigonometricSites

__all__ = ["StackedSites", "expansion", "log_concave", "smooth", "stack"]

Flags = NDArray[np.bool_]
Part = tuple[slice, Sites]
ONE_CLASS = (ProbitSites, LogitSites, GaussianSites, PoissonSites)  # stay what they are
LOG_CONCAVE = (ProbitSites, LogitSites, StepSites, PoissonSites, TrigonometricSites)


@dataclass(frozen=True, slots=True)
class StackedSites:
    """Groups of rows, each with its own sites; together the groups are all rows, once each."""

    parts: tuple[Part, ...]

    def log(self, eta: Array, /) -> Array:
        """Log site at eta (..., N)."""
        eta = np.asarray(eta, dtype=np.float64)
        found = np.empty_like(eta)
        for rows, sites in self.parts:
            found[..., rows] = sites.log(eta[..., rows])
        return found

    def derivatives(self, eta: Array, /) -> Derivatives:
        """Log site and three derivatives at eta (..., N)."""
        return self._expanded(eta, lambda sites, part: sites.derivatives(part))

    def expansion(self, eta: Array, /) -> Derivatives:
        """Like `derivatives`, with those of one side at a kink."""
        return self._expanded(eta, expansion)

    def _expanded(self, eta: Array, expand: Callable[[Sites, Array], Derivatives]) -> Derivatives:
        eta = np.asarray(eta, dtype=np.float64)
        found = np.empty((4, *eta.shape))
        for rows, sites in self.parts:
            found[..., rows] = np.stack(expand(sites, eta[..., rows]))
        return Derivatives(*found)

    def tilted(self, mean: Array, variance: Array, /) -> Tilted:
        """Moments of the site times N(mean, variance)."""
        mean, variance = np.broadcast_arrays(np.asarray(mean, float), np.asarray(variance, float))
        found = np.empty((3, *mean.shape))
        for rows, sites in self.parts:
            found[..., rows] = np.stack(sites.tilted(mean[..., rows], variance[..., rows]))
        return Tilted(*found)


def stack(parts: Sequence[Part]) -> Sites:
    """Sites of all rows, from the sites of groups of rows; fused where all are known."""
    parts = sorted(parts, key=lambda part: part[0].start or 0)
    sizes = _sizes(parts)
    if len(parts) == 1:
        return parts[0][1]
    kind = type(parts[0][1])
    if kind in ONE_CLASS and all(type(sites) is kind for _, sites in parts):
        columns = ([np.broadcast_to(getattr(sites, field.name), size)
                    for (_, sites), size in zip(parts, sizes, strict=True)]
                   for field in fields(kind))  # fmt: skip
        return kind(*(np.concatenate(column) for column in columns))
    as_known = [known(sites, size) for (_, sites), size in zip(parts, sizes, strict=True)]
    families = [part for part in as_known if part is not None]
    if len(families) < len(parts):
        return StackedSites(tuple(parts))
    return KnownSites(
        np.concatenate([part.code for part in families]),
        np.concatenate([part.table for part in families]),
    )


def _sizes(parts: Sequence[Part]) -> list[int]:
    """Rows of each group; refuse gaps and overlaps, where a row would have no site or two."""
    end = 0
    for rows, _ in parts:
        if (rows.start or 0) != end or rows.step not in (None, 1) or rows.stop is None:
            raise ValueError(
                f"groups of rows must follow each other without gap or overlap; after row {end} "
                f"comes {rows}"
            )
        end = rows.stop
    return [rows.stop - (rows.start or 0) for rows, _ in parts]


def log_concave(sites: Sites, rows: int) -> Flags:
    """Rows whose log site is surely concave."""
    if isinstance(sites, StackedSites):
        return np.concatenate([log_concave(s, r.stop - (r.start or 0)) for r, s in sites.parts])
    if isinstance(sites, KnownSites):
        return sites.log_concave
    if isinstance(sites, GaussianSites):
        return np.broadcast_to(sites.precision >= 0, rows)
    return np.full(rows, isinstance(sites, LOG_CONCAVE))


def smooth(sites: Sites, rows: int) -> Flags:
    """Rows whose log site has derivatives everywhere."""
    if isinstance(sites, StackedSites):
        return np.concatenate([smooth(s, r.stop - (r.start or 0)) for r, s in sites.parts])
    if isinstance(sites, KnownSites):
        return sites.smooth
    return np.full(rows, not isinstance(sites, StepSites))


def expansion(sites: Sites, eta: Array) -> Derivatives:
    """Derivatives at eta, of one side where a known site has a kink."""
    if isinstance(sites, KnownSites | StackedSites):
        return sites.expansion(eta)
    return sites.derivatives(eta)
