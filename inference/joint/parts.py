"""From a reading to a `Joint`: how hyperparameters enter is found by value.

What machine code knows (`known_sites/joint_density.py`): sites of known families, Gaussian rows
as priors, and hyperparameters φ that enter as exp(linear in φ): a precision, the sd of a block or
of the noise, the scale of a non-centred block, products of these. One element of φ is moved at a
time and the arrays of the reading are compared; a log scale that is not linear in φ is seen when
the whole is held against PyMC's own (`joint.differs`). A Gamma that is the precision of Gaussian
rows and of nothing else can be integrated out. `Uncompiled` says why a model has no such density.

| here               | meaning                                                            |
|--------------------|--------------------------------------------------------------------|
| `Level`            | ((element of φ, coefficient), ...): the log of a scale             |
| `_Found.prior`     | levels of the prior rows, `.noise` of the data, `.columns` of A    |
| `_Found.group_of`  | row → the precision that is integrated out of it                   |
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.joint.joint import Integrated, Joint, Piece, Uncompiled
from ardvark.inference.joint.line_priors import is_log, kind_of, numbers_of_prior, prior_on_line
from ardvark.inference.known_sites.kernels import COLUMNS, GAUSSIAN, STEP
from ardvark.inference.known_sites.known import KnownSites, known
from ardvark.inference.known_sites.packed import (
    Groups,
    JointDensity,
    Normals,
    Rows,
    Singles,
    Sparse,
    pack,
)
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import Prior, SiteModel

__all__ = ["conditional_density", "joint_of"]

MOST_PROBED = 64  # scalar hyperparameters whose part is found one at a time
STEP_IN_PHI = 0.5
SNAP = 1e-6  # coefficients near a quarter of a whole number are taken as that
LOG_2_PI = float(np.log(2 * np.pi))

type Level = tuple[tuple[int, float], ...]
Indices = NDArray[np.int64]


class Arrays(NamedTuple):
    """The arrays of a model at one θ."""

    projection: Array
    offset: Array
    sites: KnownSites
    towards: Array | None  # I - M of the prior rows, None where it is I
    mean: Array
    variance: Array


def joint_of(latent: LatentGaussian, integrate: bool) -> Joint:
    """Make the density of all free variables; with `integrate` but for conjugate precisions."""
    _refuse_others(latent)
    return _Found(latent, integrate).joint()


def conditional_density(site_model: SiteModel) -> Joint:
    """Density of u ~ N(0, I) with w = m0 + C u, as `conditional.py` has it, at given θ."""
    prior = Prior(site_model)
    size, rows = int(prior.on.sum()), len(site_model.offset)
    sites = _known_sites(site_model)
    density = JointDensity(
        Rows(
            np.ascontiguousarray(prior.white_projection), prior.eta_mean, sites.code, sites.table,
            np.full(rows, -1), np.full(size, -1),
        ),
        _singles([]),
        Normals(
            _sparse(None, size), np.zeros(size), np.ones(size), np.full(size, -1),
            np.full(size, -1),
        ),
        Groups(np.zeros(0), np.zeros(0), np.zeros(0)),
        *_Levels({}, np.zeros(0)).arrays(),
        np.array([-0.5 * size * LOG_2_PI]),
    )  # fmt: skip
    piece = Piece(slice(0, size), (size,), False)
    return Joint(pack(density), {"u": piece}, {}, np.zeros(size), np.arange(rows), rows)


def _known_sites(site_model: SiteModel) -> KnownSites:
    sites = known(site_model.sites, len(site_model.offset))
    if sites is None or np.any(sites.code == STEP):
        raise Uncompiled("its sites are of no family that has a gradient in machine code")
    return sites


def _refuse_others(latent: LatentGaussian) -> None:
    reading, model = latent.reading, latent.model
    if any(reading.dense) or reading.lines or reading.excess or reading.rows[0].coupled:
        raise Uncompiled("its prior or its likelihood is no product of scalar terms")
    named = {*latent.weights, *latent.hyper}
    others = {rv.name for rv in model.free_RVs} - named
    others |= set(reading.terms) - named - {part.name for part in reading.rows}
    if others:
        raise Uncompiled(f"{min(others)} is neither weight nor hyperparameter")
    for name in (*latent.weights, *latent.hyper):
        log = is_log(latent, name)
        if log is None or (log and name in latent.weights):
            transform = model.rvs_to_transforms[model[name]]
            raise Uncompiled(f"{name} is sampled through {type(transform).__name__}")
        if not model[name].dtype.startswith("float"):
            raise Uncompiled(f"{name} is discrete")


# ------------------------------------------------------------------------------- how φ enters


class _Found:
    """The parts of a density, found at one θ and around it."""

    def __init__(self, latent: LatentGaussian, integrate: bool) -> None:
        self.latent = latent
        self.logs = {n: bool(is_log(latent, n)) for n in latent.hyper}
        sizes = [int(np.prod(latent.shapes[n])) for n in latent.hyper]
        stops = np.cumsum([0, *sizes]).tolist()
        self.elements = {n: range(*ab) for n, *ab in zip(latent.hyper, stops, stops[1:])}  # noqa: B905
        start = latent.initial_theta()
        lines = [np.log(start[n]) if self.logs[n] else start[n] for n in latent.hyper]
        self.phi = np.concatenate([np.zeros(0), *map(np.ravel, lines)])
        self.base = self._arrays(self.phi)
        rows, weights = self.base.projection.shape
        self.prior: list[Level] = [()] * weights
        self.noise: list[Level] = [()] * rows
        self.columns: list[Level] = [()] * weights
        for name in latent.hyper:
            self._probe(name)
        self.integrated: dict[str, Integrated] = {}
        self.group_of: dict[int, int] = {}
        for name in latent.hyper if integrate else ():
            self._integrate(name)

    def _arrays(self, phi: Array) -> Arrays:
        theta = {}
        for name, part in self.elements.items():
            line = phi[part.start : part.stop].reshape(self.latent.shapes[name])
            theta[name] = np.exp(line) if self.logs[name] else line
        site_model = self.latent.at(theta)
        towards, mean, variance = self.latent.prior_rows(theta)
        if not np.all(np.isfinite(variance) & (variance > 0)):
            raise Uncompiled("a weight has no spread, or no prior")
        return Arrays(
            site_model.projection, site_model.offset, _known_sites(site_model), towards, mean,
            variance,
        )  # fmt: skip

    def _probe(self, name: str) -> None:
        """Find how each element of one hyperparameter enters."""
        elements, latent = self.elements[name], self.latent
        if self.logs[name] and name in latent.ard_precisions:
            block = latent.blocks[latent.ard_precisions[name]]
            for j, i in zip(range(block.start, block.stop), elements, strict=True):
                self.prior[j] += ((i, 1.0),)
            return
        if len(elements) > MOST_PROBED:
            raise Uncompiled(f"{name} has {len(elements)} elements that are no precisions")
        base = self.base
        for i in elements:
            phi = self.phi.copy()
            phi[i] += STEP_IN_PHI
            moved = self._arrays(phi)
            if not _same(base, moved):
                raise Uncompiled(f"{name} is added to the predictor or to a prior mean")
            _add(self.prior, i, np.log(base.variance / moved.variance))
            _add(self.columns, i, _column_ratios(base.projection, moved.projection, name))
            _add(self.noise, i, _noise_ratios(base.sites, moved.sites, name))

    def _integrate(self, name: str) -> None:
        """Take a hyperparameter out of x if it is a Gamma precision of rows and nothing else."""
        elements, numbers = self.elements[name], None
        if self.logs[name] and kind_of(self.latent, name) == "GammaRV":
            numbers = numbers_of_prior(self.latent, name)
        uses = [(j, i, c) for j, level in enumerate(self.prior) for i, c in level if i in elements]
        elsewhere = {i for level in {*self.noise, *self.columns} for i, _ in level}
        shared = any(c != 1.0 or j in self.group_of for j, _, c in uses)
        if numbers is None or shared or elsewhere & set(elements):
            return
        first = sum(len(part.gamma) for part in self.integrated.values())
        counts = np.bincount([i - elements.start for _, i, _ in uses], minlength=len(elements))
        self.group_of |= {j: first + i - elements.start for j, i, _ in uses}
        self.integrated[name] = Integrated(
            slice(first, first + len(elements)), numbers[0] + 0.5 * counts, self.latent.shapes[name]
        )

    # The parts -------------------------------------------------------------------------------

    def joint(self) -> Joint:
        latent, at = self.latent, self.latent.n_weights
        pieces = {n: Piece(block, latent.shapes[n], False) for n, block in latent.blocks.items()}
        place: dict[int, int] = {}  # of elements of φ in x
        start = [np.ravel(latent.reading.start[n]) for n in latent.weights]
        for name in (n for n in latent.hyper if n not in self.integrated):
            part = self.elements[name]
            pieces[name] = Piece(slice(at, at + len(part)), latent.shapes[name], self.logs[name])
            place |= {i: at + k for k, i in enumerate(part)}
            start.append(self.phi[part.start : part.stop])
            at += len(part)
        density, row_at = self._density(pieces, place)
        return Joint(
            pack(density), pieces, self.integrated, np.concatenate(start).astype(float), row_at,
            len(self.base.offset),
        )  # fmt: skip

    def _density(
        self, pieces: dict[str, Piece], place: dict[int, int]
    ) -> tuple[JointDensity, Indices]:
        base, latent, levels = self.base, self.latent, _Levels(place, self.phi)
        gone = [sum(c * self.phi[i] for i, c in lv if i not in place) for lv in self.prior]
        precision = np.exp(-np.array(gone)) / base.variance  # of a group: where its α is 1
        weight_of = _weights_of_rows(base, latent)
        row_at = np.flatnonzero(weight_of < 0)
        singles = [(weight_of[weight_of >= 0], base.sites.part(weight_of >= 0))]
        for name, piece in pieces.items():
            if name in self.elements:
                sites = prior_on_line(latent, name)
                if sites is None:
                    kind = kind_of(latent, name)
                    raise Uncompiled(f"the prior of {name} ({kind}) is not in machine code")
                singles.append((np.arange(piece.at.start, piece.at.stop), sites))
        sites, rest = (
            base.sites.part(weight_of < 0),
            [tuple((i, c) for i, c in level if i in place) for level in self.prior],
        )
        rows = Rows(
            np.ascontiguousarray(base.projection[row_at]), base.offset[row_at], sites.code,
            sites.table, levels.of([self.noise[n] for n in row_at]), levels.of(self.columns),
        )  # fmt: skip
        group = np.array([self.group_of.get(j, -1) for j in range(len(precision))], dtype=np.int64)
        matrix = _sparse(base.towards, latent.n_weights)
        normals = Normals(matrix, base.mean, precision, levels.of(rest), group)
        groups, constant = self._groups()
        constant += 0.5 * float(np.sum(np.log(precision) - LOG_2_PI))
        return JointDensity(
            rows, _singles(singles), normals, groups, *levels.arrays(), np.array([constant])
        ), row_at

    def _groups(self) -> tuple[Groups, float]:
        """Precisions that are integrated out, and the logarithms that do not depend on x."""
        shape, rate, gamma = np.zeros((3, 0))
        for name, part in self.integrated.items():
            numbers = numbers_of_prior(self.latent, name)
            assert numbers is not None
            shape, rate = np.append(shape, numbers[0]), np.append(rate, 1.0 / numbers[1])
            gamma = np.append(gamma, part.gamma)
        constant = np.sum(shape * np.log(rate) - gammaln(shape) + gammaln(gamma))
        return Groups(shape, rate, 2.0 * (gamma - shape)), float(constant)


def _same(base: Arrays, moved: Arrays) -> bool:
    """Whether what may not move with φ has stayed."""
    pairs = [(base.offset, moved.offset), (base.mean, moved.mean)]
    if base.towards is not None and moved.towards is not None:
        pairs.append((base.towards, moved.towards))
    return all(np.allclose(one, two, rtol=1e-12, atol=1e-12) for one, two in pairs)


def _add(levels: list[Level], i: int, change: Array) -> None:
    """Note the coefficient of element i of φ, from the change of the log of each scale."""
    slopes = change / STEP_IN_PHI
    quarters = np.round(4.0 * slopes) / 4.0
    slopes = np.where(np.abs(slopes - quarters) <= SNAP, quarters, slopes)
    for j in np.flatnonzero(slopes):
        levels[j] += ((i, float(slopes[j])),)


def _column_ratios(before: Array, after: Array, name: str) -> Array:
    """Log of what each column was multiplied by; 0 where it is all zeros."""
    if np.array_equal(before, after):
        return np.zeros(before.shape[1])
    top = np.abs(before).argmax(axis=0), np.arange(before.shape[1])
    ratio = np.divide(after[top], before[top], out=np.ones(len(top[1])), where=before[top] != 0)
    close = np.allclose(before * ratio, after, rtol=1e-10, atol=1e-12 * np.abs(after).max())
    if np.any(ratio <= 0) or not close:
        raise Uncompiled(f"{name} changes the predictor by more than a scale of weights")
    return np.log(ratio)


def _noise_ratios(before: KnownSites, after: KnownSites, name: str) -> Array:
    """Log of what the precision of each Gaussian row was multiplied by; 0 elsewhere."""
    moved, ratio = np.any(before.table != after.table, axis=1), np.zeros(len(before.code))
    if np.any(after.code != before.code) or np.any(before.code[moved] != GAUSSIAN):
        raise Uncompiled(f"{name} is in the likelihood, and not the noise of a Gaussian")
    ratio[moved] = np.log(after.table[moved, 1] / before.table[moved, 1])
    return ratio


def _weights_of_rows(base: Arrays, latent: LatentGaussian) -> Indices:
    """For each row that is the site of one weight's prior that weight; else -1."""
    found = np.full(len(base.offset), -1)
    if len(latent.reading.rows) == 1:
        return found
    slices = latent.row_slices(latent.initial_theta())
    for part in latent.reading.rows:
        block = base.projection[slices[part.name]]
        alone = np.all((block != 0).sum(axis=1) == 1) and np.all(block.max(axis=1) == 1)
        if part.kind == "prior" and alone and not base.offset[slices[part.name]].any():
            found[slices[part.name]] = np.argmax(block, axis=1)
    return found


def _singles(parts: list[tuple[Indices, KnownSites]]) -> Singles:
    """Sites of single coordinates, side by side."""
    none = np.zeros(0, dtype=np.int64)
    at, sites = zip((none, KnownSites(none, np.zeros((0, COLUMNS)))), *parts, strict=True)
    return Singles(
        np.concatenate(at),
        np.concatenate([part.code for part in sites]),
        np.concatenate([part.table for part in sites]),
    )


def _sparse(matrix: Array | None, size: int) -> Sparse:
    """Rows of a matrix; None is the identity."""
    if matrix is None:
        return Sparse(np.arange(size + 1), np.arange(size), np.ones(size))
    i, j = np.nonzero(matrix)
    return Sparse(np.searchsorted(i, np.arange(len(matrix) + 1)), j, matrix[i, j])


class _Levels:
    """Scales that differ, each once."""

    def __init__(self, place: dict[int, int], phi: Array) -> None:
        self.place, self.phi = place, phi
        self.index: dict[Level, int] = {}

    def of(self, levels: list[Level]) -> Indices:
        """Index of each level, -1 for none."""
        found = [self.index.setdefault(lv, len(self.index)) if lv else -1 for lv in levels]
        return np.array(found, dtype=np.int64)

    def arrays(self) -> tuple[Sparse, Array]:
        """S and s: u = 0 where φ is what the tables were made at."""
        pairs = [(self.place[i], c) for level in self.index for i, c in level]
        start = np.cumsum([0, *(len(level) for level in self.index)])
        shift = [-sum(c * self.phi[i] for i, c in level) for level in self.index]
        at, value = np.array(pairs, dtype=float).reshape(-1, 2).T
        return Sparse(start, at.astype(np.int64), value), np.array(shift, dtype=float)
