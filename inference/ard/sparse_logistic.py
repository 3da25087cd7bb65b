"""Sequential ARD for logistic sites without the table of all columns: several targets at once.

    p(t_n = ±1 | eta_n) = 1 / (1 + exp(-t_n eta_n)),   eta = Phi w,   w_j ~ N(0, 1/alpha_j)

The steps are those of `sequential_ard.py` with Laplace's sites: the weight that gains most comes
in, is re-estimated or goes, and the mode of the active weights is found anew. What differs is what
is looked at. A search walks over a pool: the active columns, those that promised most when all were
looked at, and some spread evenly over the rest. Weights come in that gain at least a share of the
best gain then; less is put off, since outside the pool there may be better. When nothing is left
to do, all d columns are made once more, a chunk at a time, and looked at for every target of the
pass; a search ends when none of them gains. Memory is O(N (pool + chunk)), whatever d is, and what
`Columns` may keep.

| FT03; Tip01                                  | code                                       |
|----------------------------------------------|--------------------------------------------|
| B = diag(y (1 - y)), t - y                   | `_Search.curvature`, `_Search.residual`    |
| S_j, Q_j of a weight that is out             | r = phi'B phi - phi'B Phi V Phi'B phi,     |
|                                              | u = phi'(t - y): at the mode exactly       |
| s_j, q_j of a weight that is in              | r = 1/V_jj - alpha_j, u = m_j / V_jj       |
| best alpha_j and its gain                    | `best_precisions` of `ard/kernels.py`       |
| the mode by Newton (IRLS)                    | `_Search.find_mode`                        |

With every column in the pool the steps are `sequential_ard`'s own, one by one.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import expit, log_expit

from ardvark.inference.ard.gaussian_ard import Columns
from ardvark.inference.ard.kernels import best_precisions
from ardvark.inference.ard.sequential_ard import BOUNDS
from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sites.arrays import Array, Index

__all__ = ["Machine", "sparse_logistic"]

POOL = 256  # candidates in a walk: half of them promise most, half are spread over the rest
SHARE = 0.3  # of the best gain when all were looked at: what a weight must gain to come in
MODE = 1e-10  # a Newton step that promises less, relative to 1 + |psi|, is the last
MAX_NEWTON = 100
LEAST_KEPT = 0.1  # of the tolerance: what a careful step must gain, so that a search must end
LEAST_NEW = 1e-10  # r of a new weight, relative to phi'B phi: less is rounding


class Machine(NamedTuple):
    """A sparse two-class machine, at precisions of which no single change gains enough."""

    precision: Array  # (d,), inf = pruned
    active: Index  # (k,), ascending
    mean: Array  # (k,) posterior of the active weights
    covariance: Array  # (k, k)
    log_evidence: float
    steps: int
    converged: bool
    looks: int = 0  # passes over all columns, where no table of them exists


def sparse_logistic(
    columns: Columns,
    signs: Sequence[Array],
    *,
    tolerance: float = 1e-6,
    max_steps: int = 5000,
    pool: int = POOL,
    tick: Tick = no_tick,
) -> list[Machine]:
    """Maximise the Laplace evidence of each target over the precisions of all columns.

    Parameters
    ----------
    columns
        Phi, made when it is needed.
    signs
        Targets of +1 and -1, (N,) each. They share every pass over the columns.
    tolerance, max_steps
        As in `sequential_ard`, for each target.
    pool
        Candidates in a walk.
    """
    scale = _mean_squares(columns)
    searches = [_Search(columns, np.asarray(s, float), scale, tolerance, max_steps) for s in signs]
    looks = 0
    while going := [search for search in searches if not search.finished]:
        looks += 1
        promises = _look_at_all(columns, going)
        for search, (gain, relevance) in zip(going, promises, strict=True):
            search.looks += 1
            if not search.take_pool(gain, relevance, pool):
                continue
            search.walk()
            search.pool_rows = np.empty((0, 0))  # one pool at a time: memory is O(N pool)
            active = sum(len(s.active) for s in searches)
            tick(f"pass {looks}: {active} weights, {sum(s.finished for s in searches)} finished")
    return [search.result() for search in searches]


def _mean_squares(columns: Columns) -> Array:
    """Mean of phi² by column: the scale of its precision; checks that all is finite."""
    squares = np.empty(columns.shape[1])
    for here, block in columns.chunks():
        squares[here] = np.einsum("nj,nj->j", block, block) / columns.shape[0]
    if not np.isfinite(squares).all():
        bad = int(np.argmin(np.isfinite(squares)))
        raise ValueError(f"column {bad} of the projection is not finite")
    return squares


def _look_at_all(columns: Columns, searches: "list[_Search]") -> list[tuple[Array, Array]]:
    """The gain that each column promises to each search, and u²/r by which it is ranked."""
    r, u = np.empty((2, len(searches), columns.shape[1]))
    for here, block in columns.chunks():
        rows = np.ascontiguousarray(block.T)
        for i, search in enumerate(searches):
            r[i, here], u[i, here] = search.information_and_pull(rows)
    return [search.promise(*told) for search, *told in zip(searches, r, u, strict=True)]


@njit(cache=True)
def _weighted_squares(rows: Array, weights: Array) -> Array:
    """sum_n b_n phi_nj² for each row of `rows`, without a table of its size."""
    squares = np.empty(rows.shape[0])
    for j in range(rows.shape[0]):
        total = 0.0
        for n in range(rows.shape[1]):
            total += weights[n] * rows[j, n] * rows[j, n]
        squares[j] = total
    return squares


class _Search:
    """One target: its active weights, the mode, and a pool of columns (as rows, contiguous)."""

    def __init__(
        self, columns: Columns, sign: Array, scale: Array, tolerance: float, max_steps: int
    ) -> None:
        if sign.shape != columns.shape[:1] or not np.all(np.abs(sign) == 1.0):
            raise ValueError(f"signs must be {columns.shape[0]} numbers, each +1 or -1")
        self.columns, self.sign = columns, sign
        self.scale, self.tolerance, self.max_steps = scale, tolerance, max_steps
        positive = np.where(scale > 0, scale, 1.0)
        self.bounds = BOUNDS[0] * positive, BOUNDS[1] * positive
        self.precision = np.full(scale.size, np.inf)
        self.active = np.zeros(0, np.intp)  # ascending
        self.rows = np.empty((0, sign.size))  # columns of the active weights
        self.mean = np.zeros(0)
        self.pool, self.pool_rows = np.zeros(0, np.intp), np.empty((0, 0))
        self.seen: set[bytes] = set()
        self.blocked: set[int] = set()
        self.steps, self.looks, self.floor = 0, 0, tolerance
        self.finished = self.settled = self.careful = False
        self.find_mode()
        self.seen.add(self._state())

    # The mode of the active weights -----------------------------------------------------------

    def find_mode(self) -> None:
        """Newton with halving from the present weights; then V, B and t - y there."""
        self.root = np.sqrt(self.precision[self.active])
        eta, psi = self._at(self.mean)
        self.mode_found = False
        for _ in range(MAX_NEWTON):
            self._expand(eta)
            gradient = self.rows @ self.residual - self.root**2 * self.mean
            direction = self.covariance @ gradient
            promised = 0.5 * float(gradient @ direction)
            size, enough = 1.0, promised <= MODE * (1.0 + abs(psi))
            while size > 1e-12:
                eta_new, psi_new = self._at(self.mean + size * direction)
                if psi_new >= psi + (0.0 if enough else 2e-4 * size * promised) - _rounding(psi):
                    self.mean, eta, psi = self.mean + size * direction, eta_new, psi_new
                    break
                if enough:
                    break
                size *= 0.5
            if enough or size <= 1e-12:
                self.mode_found = enough
                break
        self._expand(eta)
        self.log_evidence = psi - self.half_log_det  # RW06 (3.32)

    def _at(self, mean: Array) -> tuple[Array, float]:
        eta = mean @ self.rows if mean.size else np.zeros(self.sign.size)
        penalty = 0.5 * float(np.square(self.root * mean).sum())
        return eta, float(log_expit(self.sign * eta).sum()) - penalty

    def _expand(self, eta: Array) -> None:
        """V = (A + Phi'B Phi)^-1 through I + A^-1/2 Phi'B Phi A^-1/2, which is never singular."""
        chance = expit(eta)
        self.residual = 0.5 * (self.sign + 1.0) - chance  # t - y
        self.curvature = chance * expit(-eta)  # y (1 - y), without loss where y is 1
        k = self.active.size
        if k == 0:
            self.half, self.covariance, self.half_log_det = np.empty((0, 0)), np.empty((0, 0)), 0.0
            return
        weighted = self.rows * np.sqrt(self.curvature)
        information = weighted @ weighted.T / np.outer(self.root, self.root)
        information[np.diag_indices(k)] += 1.0
        factor = dpotrf(information, lower=1)[0]
        self.half = dtrtri(factor, lower=1)[0] / self.root  # V = half'half
        self.covariance = self.half.T @ self.half
        self.half_log_det = float(np.log(factor.diagonal()).sum())

    # What the data say of a weight ----------------------------------------------------------------

    def information_and_pull(self, rows: Array) -> tuple[Array, Array]:
        """Information r and pull u on weights that are out, a column of Phi in each row."""
        squares = _weighted_squares(rows, self.curvature)
        spread = rows @ (self.rows * self.curvature).T @ self.half.T
        information = squares - np.einsum("jk,jk->j", spread, spread)
        information[information <= LEAST_NEW * squares] = 0.0  # a copy of what is in: never gains
        return information, rows @ self.residual

    def promise(self, r: Array, u: Array) -> tuple[Array, Array]:
        """The gain of each column by coming in, and u²/r; nothing for what is in."""
        out = np.isinf(self.precision)
        _, gain = best_precisions(np.full(r.size, np.inf), out, r, u, *self.bounds)
        with np.errstate(divide="ignore", invalid="ignore"):
            return gain, np.where(out & (r > 0), u * u / r, 0.0)

    def take_pool(self, gain: Array, relevance: Array, size: int) -> bool:
        """A new pool if any column gains; otherwise the search has ended."""
        if not gain.max(initial=-np.inf) > self.tolerance and self._best_inside() is None:
            self.finished, self.settled = True, True
            return False
        others, self.floor = np.flatnonzero(relevance > 0), self.tolerance
        half = max(size, self.active.size) // 2
        if others.size > 4 * half:
            ranked = others[np.argsort(-relevance[others], kind="stable")]
            rest = np.sort(ranked[half:])
            spread = rest[np.linspace(0, rest.size - 1, half).astype(int)]
            others = np.append(ranked[:half], spread)
            self.floor = max(self.tolerance, SHARE * float(gain.max()))
        self.pool = np.union1d(others, self.active).astype(np.intp)
        self.pool_rows = np.ascontiguousarray(np.asarray(self.columns.make(self.pool), float).T)
        return True

    # Steps ------------------------------------------------------------------------------------

    def walk(self) -> None:
        """Steps within the pool until none gains.

        Weights that are in need no product with the pool: they alone are looked at while one of
        them promises more than the best of the others did.
        """
        rival, begin = None, self.steps
        while True:
            if self.steps >= self.max_steps:
                self.finished = True
                return
            best = self._best_inside()
            if rival is None or best is None or best[2] <= max(rival, self.tolerance):
                outside = self._best_outside()
                rival = -np.inf if outside is None else outside[2]
                if outside is not None and (best is None or outside[2] > best[2]):
                    best = outside
            if best is None and self.steps == begin and self.floor > self.tolerance:
                self.floor = self.tolerance  # the best of all was not kept: take what there is
                continue
            if best is None:  # without a step: what is promised is kept by none
                self.finished = self.settled = self.steps == begin
                return
            before = self.active.size
            if not self._move(best[0], best[1]):
                self.blocked.add(best[0])
                continue
            self.steps += 1
            if self.active.size != before:
                self.blocked.clear()
                rival = None

    def _best_inside(self) -> tuple[int, float, float] | None:
        variance = self.covariance.diagonal()
        r = 1.0 / variance - self.precision[self.active]
        return self._best(self.active, r, self.mean / variance, self.tolerance)

    def _best_outside(self) -> tuple[int, float, float] | None:
        r, u = self.information_and_pull(self.pool_rows)
        out = np.isinf(self.precision[self.pool])
        return self._best(self.pool[out], r[out], u[out], self.floor)

    def _best(
        self, which: Index, r: Array, u: Array, least_gain: float
    ) -> tuple[int, float, float] | None:
        free = np.array([j not in self.blocked for j in which.tolist()], bool)
        least, largest = (bound[which] for bound in self.bounds)
        best, gain = best_precisions(self.precision[which], free, r, u, least, largest)
        if not gain.size or not gain.max() > least_gain:
            return None
        first = int(np.argmax(gain))
        return int(which[first]), float(best[first]), float(gain[first])

    def _move(self, weight: int, wanted: float) -> bool:
        """Move one precision: as promised, or, once a state came back, by what the evidence keeps.

        Sites move with the weights, so full steps may add and delete one weight for ever.
        """
        before = self.precision[weight], self.active, self.rows, self.mean, self.log_evidence
        tries = _tries(float(before[0]), wanted) if self.careful else [wanted]
        least = self.log_evidence + LEAST_KEPT * self.tolerance
        for value in tries:
            self._set(weight, value)
            self.find_mode()
            if len(tries) == 1 or self.log_evidence >= least:
                state = self._state()
                self.careful = self.careful or state in self.seen
                self.seen.add(state)
                return True
            self.precision[weight], self.active, self.rows, self.mean, _ = before
        self.find_mode()
        return False

    def _set(self, weight: int, value: float) -> None:
        was_in, self.precision[weight] = math.isfinite(self.precision[weight]), value
        place = int(np.searchsorted(self.active, weight))
        if was_in and math.isinf(value):
            self.active = np.delete(self.active, place)
            self.rows, self.mean = np.delete(self.rows, place, 0), np.delete(self.mean, place)
        elif not was_in:
            row = self.pool_rows[np.searchsorted(self.pool, weight)]
            self.active = np.insert(self.active, place, weight)
            self.rows = np.insert(self.rows, place, row, axis=0)
            self.mean = np.insert(self.mean, place, 0.0)

    def _state(self) -> bytes:
        """Active weights and rounded log precisions: a key, to see whether a state comes back."""
        return np.round(np.log(self.precision[self.active]), 6).tobytes() + self.active.tobytes()

    def result(self) -> Machine:
        """What was found."""
        return Machine(
            precision=self.precision,
            active=self.active,
            mean=self.mean,
            covariance=self.covariance,
            log_evidence=self.log_evidence,
            steps=self.steps,
            looks=self.looks,
            converged=self.settled and self.mode_found,
        )


def _tries(now: float, wanted: float) -> list[float]:
    """The full step, then shorter ones in the log of the precision."""
    if math.isinf(now):
        return [wanted * 16.0**k for k in range(3)]
    if math.isinf(wanted):
        return [wanted, now * 16.0, now * 2.0]
    return [now * (wanted / now) ** (0.25**k) for k in range(3)]


def _rounding(psi: float) -> float:
    return 1e-13 * (1.0 + abs(psi))
