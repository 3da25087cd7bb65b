"""Find the family behind a log site by its values, never by a name.

The log sites are evaluated on a grid of eta, each family in turn solves for the numbers that would
give these values (`recognisers.py`), row by row, and a row is only taken where the family then has
the same values on the grid and at points far from it. A row is a column of `values` below.

| what is known beforehand               | how it is used                                     |
|----------------------------------------|----------------------------------------------------|
| `groups`: rows of one variable each    | each is recognised by itself, the result stacked   |
| a group's base N(m, s²), for a prior   | multiplied back before, divided out afterwards     |
| `hint`: the sites at another θ         | its families are tried first, at its own places;   |
|                                        | if all were Gaussian, one look tells the new ones  |
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ardvark.inference.known_sites.kernels import (
    BASE_PRECISION,
    COLUMNS,
    CONSTANT,
    DOUBLE_EXPONENTIAL,
    EXPONENTIAL,
    GAUSSIAN,
    LOGISTIC,
    PROBIT,
    STUDENT,
)
from ardvark.inference.known_sites.known import KnownSites, known
from ardvark.inference.known_sites.recognisers import (
    BEND,
    BY_GRID,
    BY_PLACE,
    FLAT,
    GRID,
    Family,
    Values,
    own_places,
    parabolas,
    parabolas_again,
)
from ardvark.inference.known_sites.stacked import Part, StackedSites, stack
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import (
    GaussianSites,
    GraphSites,
    LogitSites,
    PoissonSites,
    ProbitSites,
    Sites,
)
from ardvark.inference.sites.trigonometric import TrigonometricSites

__all__ = ["Group", "recognise"]

TOLERANCE = 1e-6  # PyMC's own inverse probit is off by 2e-7 on the grid
UNKNOWN, NO_FAMILY = -1, -2
Rows = NDArray[np.bool_]


class Group(NamedTuple):
    """Rows of one variable; `base` is the mean and variance its sites were divided by."""

    rows: slice
    base: tuple[Array | float, Array | float] | None = None


def recognise(
    log_site: Callable[[Array], Array],
    rows: int | None = None,
    groups: Sequence[Group | slice] | None = None,
    other: Callable[[slice], Sites] | None = None,
    hint: Sites | None = None,
) -> Sites | None:
    """Find the closed form behind `log_site` by its values, or None.

    Parameters
    ----------
    log_site
        Maps eta (Q, N) to log sites (Q, N).
    rows
        N. Without it `log_site` is given (Q, 1) and must broadcast to its rows by itself.
    groups
        Rows that belong together, in order and without gap; None = one group of all rows. A group
        is known if all of its rows are; they may be of several families.
    other
        Makes the sites of a group that is not known. Without it one such group makes the answer
        None; with it the answer is None only if no group is known.
    hint
        Sites that were found before, at other hyperparameters: their families are tried first,
        and rows that were `GraphSites` then are not looked at again.
    """

    def evaluate(eta: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(log_site(eta), dtype=np.float64)

    if rows is not None and (again := _still_gaussian(evaluate, rows, groups, hint)) is not None:
        return again
    values = evaluate(GRID[:, None] * np.ones((1, 1 if rows is None else rows)))
    if values.ndim != 2 or values.size == 0:
        return None
    count = values.shape[1]
    whole = _groups(groups, count)
    if groups is None and (quickly := _of_two_classes(evaluate, values)) is not None:
        return quickly
    based = _Based(evaluate, whole, count)
    if all(_impossible(values, group) for group in whole):
        found = _nothing(count)
    else:
        found = _families(based, values + based.log(GRID[:, None]), _before(hint, count))
    parts: list[Part] = []
    missing: list[slice] = []
    for group in whole:
        sites = _of_group(found, group, based, values)
        if sites is None:
            missing.append(group.rows)
        else:
            parts.append((group.rows, sites))
    if not parts or (missing and other is None):
        return None
    if other is not None:
        parts += [(rows_of, other(rows_of)) for rows_of in missing]
    return stack(parts)


def _of_two_classes(evaluate: Callable[[Array], Array], values: Array) -> Sites | None:
    """Probit or logit in every row, as most likelihoods are: known without any machine code."""
    sign = np.where(values[-1] > values[0], 1.0, -1.0)
    ones = np.ones_like(values[:1])
    for sites in (ProbitSites(sign), LogitSites(sign)):
        if _same(sites, Values(GRID[:, None] * ones, values)).all():
            between = BEND[:, None] * ones
            return sites if _same(sites, Values(between, evaluate(between))).all() else None
    return None


def _groups(groups: Sequence[Group | slice] | None, count: int) -> list[Group]:
    return [Group(g) if isinstance(g, slice) else g for g in groups or [slice(0, count)]]


def _still_gaussian(
    evaluate: Callable[[Array], Array],
    rows: int,
    groups: Sequence[Group | slice] | None,
    hint: Sites | None,
) -> Sites | None:
    """Every row a parabola, as it was at another θ; None if one is not."""
    before = _before(hint, rows)
    if not np.all((before.code == GAUSSIAN) & (before.table[:, 1] > 0)):
        return None
    whole = _groups(groups, rows)
    based = _Based(evaluate, whole, rows)
    with np.errstate(all="ignore"):
        view, sites, far = parabolas_again(based, before)
        if not (_same(sites, view).all() and _same(sites, Values(far, based(far))).all()):
            return None
    return stack([(g.rows, _of_known(sites.part(g.rows), g)) for g in whole])


class _Based:
    """The log site times its base, where it has one: the prior itself, which has a family."""

    def __init__(
        self, evaluate: Callable[[Array], Array], groups: Sequence[Group], count: int
    ) -> None:
        self.evaluate = evaluate
        self.mean, self.precision, self.constant = np.zeros((3, count))
        for rows, base in groups:
            if base is not None:
                variance = np.asarray(base[1], float)
                self.mean[rows], self.precision[rows] = base[0], 1.0 / variance
                self.constant[rows] = -0.5 * np.log(2.0 * np.pi * variance)

    def log(self, eta: Array) -> Array:
        """Log of the base, 0 where there is none."""
        return np.asarray(self.constant - 0.5 * self.precision * (eta - self.mean) ** 2)

    def __call__(self, eta: Array) -> Array:
        """Log site times base; NaN where the graph refuses these predictors."""
        try:
            return self.evaluate(eta) + self.log(eta)
        except ValueError:  # a graph checks its parameters
            return np.full(np.broadcast_shapes(eta.shape, self.mean.shape), np.nan)


def _impossible(values: Array, group: Group) -> bool:
    """Whether a row has no probability somewhere: of all sites one kind alone, and no family."""
    return bool(np.isneginf(values[:, group.rows]).any())


def _nothing(count: int) -> KnownSites:
    return KnownSites(np.full(count, UNKNOWN), np.zeros((count, COLUMNS)))


def _before(hint: Sites | None, count: int) -> KnownSites:
    """What was found before, `UNKNOWN` where nothing was and `NO_FAMILY` where there was none."""
    nothing = _nothing(count)
    parts = hint.parts if isinstance(hint, StackedSites) else ((slice(0, count), hint),)
    for rows, sites in parts:
        if isinstance(sites, GraphSites):
            nothing.code[rows] = NO_FAMILY
        elif sites is not None and (family := known(sites, len(nothing.code[rows]))) is not None:
            if len(family.code) == len(nothing.code[rows]):
                nothing.code[rows], nothing.table[rows] = family.code, family.table
    return nothing


def _families(evaluate: Callable[[Array], Array], values: Array, before: KnownSites) -> KnownSites:
    """Code and numbers of every row, `UNKNOWN` where no family has its values."""
    count = values.shape[1]
    found = _nothing(count)
    found.code[before.code == NO_FAMILY] = NO_FAMILY

    def claim(view: Values, sites: KnownSites, far: Array) -> None:
        """Take the rows that have these values, on the grid and at points `far` from it."""
        rows = np.flatnonzero((found.code == UNKNOWN) & _same(sites, view))
        if not rows.size:
            return
        eta = np.zeros_like(far)  # the graph may refuse what another row has no use for
        eta[:, rows] = far[:, rows]
        rows = rows[_same(sites, Values(eta, evaluate(eta)))[rows]]
        found.code[rows], found.table[rows] = sites.code[rows], sites.table[rows]

    grid = Values(np.broadcast_to(GRID[:, None], values.shape), values)
    by_grid = sorted(BY_GRID, key=lambda family: family.code not in before.code)
    placed = np.isin(before.code, (STUDENT, DOUBLE_EXPONENTIAL)).any()
    was_flat = np.any((before.code == GAUSSIAN) & (before.table[:, 1] == 0))
    stages: list[Callable[[], None]] = [
        lambda: _by_grid(by_grid, grid, found, claim),
        lambda: claim(*parabolas(evaluate, grid, found.code == UNKNOWN)),
        lambda: _by_place(own_places(evaluate, found.code == UNKNOWN, before), found, claim),
    ]
    curved = np.any((before.code == GAUSSIAN) & (before.table[:, 1] != 0))
    stages = stages[::-1] if placed else [stages[1], stages[0], stages[2]] if curved else stages
    last = [lambda: _by_grid([FLAT], grid, found, claim)]  # a wide Gaussian is flat on the grid
    for stage in [*last, *stages] if was_flat else [*stages, *last]:
        if np.any(found.code == UNKNOWN):
            with np.errstate(all="ignore"):
                stage()
    return found


def _by_grid(
    families: Sequence[Family],
    grid: Values,
    found: KnownSites,
    claim: Callable[[Values, KnownSites, Array], None],
) -> None:
    for family in families:
        if np.any(found.code == UNKNOWN):
            sites = family.solve(grid)
            claim(grid, sites, family.far(sites))


def _by_place(
    view: Values, found: KnownSites, claim: Callable[[Values, KnownSites, Array], None]
) -> None:
    """Families with a location: looked at where they have their own top."""
    far = view.centre + view.reach * np.array([-9.0, -2.5, 2.7, 10.0])[:, None]
    for solve in BY_PLACE:
        if not np.any(found.code == UNKNOWN):
            return
        sites = solve(view)
        # From far enough away a logit has a kink too: it is looked at closely.
        mean, above, below = sites.table[:, :3].T
        close = mean + np.array([[-1.0], [1.0]]) / (above + below)
        kinked = (sites.code == DOUBLE_EXPONENTIAL) & np.isfinite(close).all(axis=0)
        claim(view, sites, np.concatenate([far, np.where(kinked, close, far[:2])]))


def _same(sites: Sites, view: Values) -> Rows:
    """Rows in which sites and values agree at every point.

    Errors are relative to the drop from the row's top, and to the log site itself while that is
    small: what is far below the top need not be right to a millionth of a nat.
    """
    with np.errstate(all="ignore"):
        size = np.abs(view.log)
        scale = view.log.max(axis=0) - view.log + np.clip(size, 0.01, 1.0)
        return np.asarray(
            np.all(np.abs(sites.log(view.eta) - view.log) <= TOLERANCE * scale, axis=0)
        )


def _of_group(
    found: KnownSites, group: Group, evaluate: Callable[[Array], Array], values: Array
) -> Sites | None:
    """Sites of one group, by the name of their class where all rows are of one."""
    if _impossible(values, group):
        return _as_trigonometric(evaluate, values, group.rows)
    part = found.part(group.rows)
    return None if np.any(part.code < 0) else _of_known(part, group)


def _of_known(part: KnownSites, group: Group) -> Sites:
    if group.base is not None:
        return part.over(*group.base)
    return _as_class(part) or part


def _as_class(sites: KnownSites) -> Sites | None:
    """The class that stands for one family alone; other methods than EP and Laplace know it."""
    code, table = sites.code[0], sites.table
    if np.any(sites.code != code) or np.any(table[:, BASE_PRECISION] != 0):
        return None
    constant = table[:, CONSTANT]
    if code == GAUSSIAN:
        positive = np.all(table[:, 1] > 0)
        return GaussianSites(table[:, 0], table[:, 1], constant) if positive else None
    if code == PROBIT and np.all(np.abs(table[:, 0]) == 1) and not table[:, [1, CONSTANT]].any():
        return ProbitSites(table[:, 0])
    if code == LOGISTIC and not table[:, [3, 4, CONSTANT]].any():
        a, b, slope = table[:, :3].T
        if np.all((a + b == 1) & (a * b == 0) & (np.abs(slope) == 1)):
            return LogitSites(slope * (a - b))
    if code == EXPONENTIAL:
        count, slope, shift = table[:, :3].T
        normalised = count * shift - gammaln(count + 1.0)
        whole = (slope == 1) & (count >= 0) & (count == np.round(count))
        if np.all(whole) and np.allclose(constant, normalised, rtol=TOLERANCE, atol=TOLERANCE):
            return PoissonSites(count, shift)
    return None


def _as_trigonometric(
    evaluate: Callable[[Array], Array], values: Array, rows: slice
) -> Sites | None:
    """The SVM's likelihood: zero beyond one margin and one beyond the other."""
    part = values[:, rows]
    sites = TrigonometricSites(np.where(part[-1] > part[0], 1.0, -1.0))
    grid = np.array([-3.0, -1.01, -0.99, -0.7, -0.3, 0.2, 0.6, 0.95, 1.01, 3.0])[:, None]
    ours = sites.log(grid * np.ones_like(part[:1]))
    theirs = evaluate(grid * np.ones_like(values[:1]))[:, rows]
    finite = np.isfinite(ours)
    if not np.array_equal(finite, np.isfinite(theirs)) or np.isposinf(theirs).any():
        return None
    if np.isnan(theirs).any():
        return None
    gap, size = np.abs(ours[finite] - theirs[finite]), np.abs(ours[finite]) + 1e-9
    return sites if np.all(gap <= TOLERANCE * size) else None
