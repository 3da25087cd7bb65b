"""ARD for Gaussian noise: a precision per weight and the noise, by maximum evidence.

    t = Phi w + e,   w_j ~ N(0, 1/alpha_j),   e ~ N(0, sigma^2 I)

| algorithm    | a move                                                  | paper                  |
|--------------|---------------------------------------------------------|------------------------|
| "sequential" | adds, re-estimates or deletes the one weight that gains | Faul & Tipping 2003    |
|              | most; then all precisions and the noise together,       | `walk` and `climb` of  |
|              | uphill by Newton: the evidence never falls              | `gaussian_ard_kernels` |
| "mackay"     | alpha = gamma / mu^2,                                   | Tipping 2001 (16),     |
|              | sigma^2 = misfit / (N - sum gamma): fast, may fall      | (18)                   |
| "em"         | alpha = 1 / (mu^2 + Sigma_jj),                          | Tipping 2001,          |
|              | sigma^2 = (misfit + sigma^2 sum gamma) / N: slow        | appendix A             |

with misfit = |t - Phi mu|^2 and gamma_j = 1 - alpha_j Sigma_jj, how well the data determine w_j
(Tipping 2001 (17)). All three end at the same conditions: no precision can gain more than the
tolerance, and the noise is stationary.

A free noise is held at first: fitted to a model that is still small it would hide what is left.
A walk sees a pool of at most a few hundred candidates. When it has settled, all d are looked at, in
one pass over the columns, and the next pool is made of those that promise most and of some spread
evenly over the rest, until none of the d gains. A step costs O(w k), or O(w N) when a weight of the
pool comes in for the first time; a look at all of them O(N d). Nothing is d x d.
For rows of unequal precision tau scale rows and target by sqrt(tau) and fix the noise at 1.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from ardvark.inference.ard.columns import Columns, Dense
from ardvark.inference.ard.gaussian_ard_kernels import (
    LEAST_NEW,
    Products,
    State,
    choose,
    climb,
    walk,
)
from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sites.arrays import Array, Index, Mask
from ardvark.inference.sites.model import factor_by_qr, least_noise

__all__ = ["ACTIONS", "ALGORITHMS", "Columns", "GaussianArd", "Path", "gaussian_ard"]

ALGORITHMS = ("sequential", "mackay", "em")
ACTIONS = ("start", "add", "re-estimate", "delete", "all")  # by number, as in `Path`
START, ALL = 0, 4
HELD, FINE = 0, 2  # the first stage, in which the noise is held, and the last
EXTREME = 1e60  # size of a target, either way, that is brought near 1 first
FIRST_NOISE = 0.15  # of the target's sd: from below, since a large noise hides what there is
LEAST_GAIN = (0.1, 0.01, 0.0)  # nats by stage: what a step must gain, if not the tolerance
CLIMB = ((1e-2, 5), (1e-2, 5), (1e-9, 12))  # by stage: gain that is small, most steps
BATCH = 40  # least number of steps between two fresh posteriors, else as many as active weights
IDLE = 20  # rounds without a gain, after which steps are seen to go in circles
POOL = 256  # candidates in a walk
LEAST_GAMMA = 1e-3  # "mackay", "em": a weight this undetermined, and unwanted, is pruned
STATIONARY = 1e-7  # |d log evidence / d log sigma^2|, relative to N/2


class Path(NamedTuple):
    """What was done, to which weight (-1: to none), and the log evidence after it."""

    action: NDArray[np.int8]  # see `ACTIONS`
    weight: Index
    log_evidence: Array


class GaussianArd(NamedTuple):
    """Precisions and noise at which no single change gains more than the tolerance."""

    precision: Array  # (d,), inf = pruned
    noise: float  # sd
    mean: Array  # (k,) posterior of the active weights
    covariance: Array  # (k, k)
    active: Index  # (k,), ascending
    gamma: Array  # (k,) 0 = the prior decides, 1 = the data do
    log_evidence: float
    path: Path
    converged: bool
    drift: float  # largest error of the evidence by rank-one updates that a fresh posterior found

    @property
    def steps(self) -> int:
        """Changes made, of weights and of the noise."""
        return self.path.action.size - 1


def gaussian_ard(
    projection: Array | Columns,
    target: Array,
    *,
    noise: float | None = None,
    optimised: Mask | None = None,
    precision: Array | None = None,
    start: Mask | None = None,
    start_noise: float | None = None,
    algorithm: str = "sequential",
    tolerance: float = 1e-6,
    max_steps: int = 100_000,
    bounds: tuple[float, float] = (0.0, math.inf),
    tick: Tick = no_tick,
) -> GaussianArd:
    """Maximise the evidence over precisions and noise.

    Parameters
    ----------
    projection
        Phi (N, d), or `Columns`.
    target
        t (N,), less any offset.
    noise
        The noise sd; None = it is optimised too.
    optimised
        Weights whose precision is free (all by default). The others keep theirs, inf = out.
    precision
        Precisions of weights that are not optimised, and of those that are active at the start;
        None: |phi_j|^2 / |t|^2, at which a weight alone could explain the target.
    start
        Optimised weights that are active at first: by default none, but all for "mackay" and
        "em", which cannot add any.
    start_noise
        Where a free noise starts, and stays until no weight gains a tenth of a nat; by default
        0.15 of the target's sd. Ends depend on it: a large one stops early, in a poor optimum.
    algorithm
        "sequential", "mackay" or "em".
    tolerance
        Stop when no change of one precision gains more (nats).
    max_steps
        Changes before the result is returned with `converged=False`.
    bounds
        Least and largest precision; beyond the largest a weight is deleted.
    tick
        Called after each round.
    """
    unit = _unit(np.asarray(target, float))
    if unit != 1.0:
        found = gaussian_ard(
            projection,
            np.asarray(target, float) / unit,
            noise=None if noise is None else noise / unit,
            optimised=optimised,
            precision=None if precision is None else precision * unit**2,
            start=start,
            start_noise=None if start_noise is None else start_noise / unit,
            algorithm=algorithm,
            tolerance=tolerance,
            max_steps=max_steps,
            bounds=(bounds[0] * unit**2, bounds[1] * unit**2),
            tick=tick,
        )
        return _in_units(found, unit, np.size(target))
    search = _Search(projection, target, noise, start_noise, bounds)
    search.begin(optimised, precision, start, algorithm)
    move = search.walk if algorithm == "sequential" else search.sweep
    settled = False
    while not settled and search.steps < max_steps:
        settled = move(tolerance, max_steps)
        tick(f"step {search.steps}, log evidence {search.log_evidence:.4f}")
    return search.result(settled)


def _unit(target: Array) -> float:
    """A power of two near the size of a target whose fourth powers leave double precision, or 1."""
    size = float(np.abs(target).max(initial=0.0))
    if EXTREME > size > 1 / EXTREME or not 0.0 < size < math.inf:
        return 1.0
    return math.ldexp(1.0, min(max(math.frexp(size)[1], -500), 500))


def _in_units(found: GaussianArd, unit: float, rows: int) -> GaussianArd:
    """What was found for target / unit, for the target itself."""
    shift = rows * math.log(unit)
    return found._replace(
        precision=found.precision / unit**2,
        noise=found.noise * unit,
        mean=found.mean * unit,
        covariance=found.covariance * unit**2,
        log_evidence=found.log_evidence - shift,
        path=found.path._replace(log_evidence=found.path.log_evidence - shift),
    )


class _Search:
    """The state of the kernels over a pool of columns, and what needs the data themselves."""

    def __init__(
        self,
        projection: Array | Columns,
        target: Array,
        noise: float | None,
        start_noise: float | None,
        bounds: tuple[float, float],
    ) -> None:
        self.source = projection if isinstance(projection, Columns) else Dense(projection)
        rows, weights = self.source.shape
        self.target = np.ascontiguousarray(target, float)
        if self.target.shape != (rows,) or rows == 0 or not np.all(np.isfinite(self.target)):
            raise ValueError(f"target must be {rows} finite numbers, at least one")
        self.power = float(self.target @ self.target)
        scale = math.sqrt(self.power / rows)
        if noise is None and scale == 0.0:
            raise ValueError("target is zero everywhere: its noise has no scale; give `noise`")
        self.noise_is_free = noise is None
        self.stage = HELD if noise is None else HELD + 1
        self.least = least_noise(self.target) ** 2
        if noise is None:
            noise = start_noise
        if noise is None:
            noise = FIRST_NOISE * max(float(self.target.std()), 1e-2 * scale)
        if not 0.0 < noise < math.inf:
            raise ValueError(f"noise must be a positive number, got {noise!r}")
        if not 0.0 <= bounds[0] < bounds[1]:
            raise ValueError(f"bounds must be a smaller and a larger precision, got {bounds!r}")
        self.beta = noise**-2
        self.bounds = bounds
        self.squares, self.moments = np.empty(weights), np.empty(weights)
        for here, block in self.source.chunks():
            self.squares[here] = np.einsum("nj,nj->j", block, block)
            self.moments[here] = self.target @ block
        if not np.all(np.isfinite(self.squares)):
            bad = int(np.flatnonzero(~np.isfinite(self.squares))[0])
            raise ValueError(f"column {bad} of the projection is not finite")
        self.drift, self.batch = 0.0, BATCH
        self.highest, self.idle = -math.inf, 0
        self.products: dict[int, Array] = {}  # of columns that were active, with all columns
        self.record: list[tuple[NDArray[np.int8], Index, Array]] = []
        self.steps, self.looked = -1, -2

    # The start and the pool -----------------------------------------------------------------------

    def begin(
        self, optimised: Mask | None, precision: Array | None, start: Mask | None, algorithm: str
    ) -> None:
        """Check and take the first precisions."""
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
        self.algorithm, self.pool_is_all = algorithm, True
        weights = self.squares.size
        free = np.ones(weights, bool) if optimised is None else np.array(optimised, bool)
        if precision is None:
            precision = np.where(self.squares > 0, self.squares, np.inf) / (self.power or 1.0)
        if start is None:
            start = np.full(weights, algorithm != "sequential") & (self.squares > 0)
        for name, array in (("optimised", free), ("precision", precision), ("start", start)):
            if np.shape(array) != (weights,):
                raise ValueError(f"{name} must be ({weights},), got {np.shape(array)}")
        self.free = free
        self.precision = np.where(np.where(free, start, True), precision, np.inf)
        if not np.all(self.precision > 0):
            raise ValueError("precisions must be positive (inf = out of the model)")
        self.make_pool(self.beta * self.moments**2 / np.maximum(self.squares, 1e-300))
        self._write([START], [-1], [self.log_evidence])

    def candidates(self, promise: Array) -> Index:
        """Weights out of the model that promise most, and some spread evenly over the rest."""
        others = np.flatnonzero(np.isinf(self.precision) & self.free & (self.squares > 0))
        if self.algorithm != "sequential":
            return others[:0]
        half = max(POOL, int(np.isfinite(self.precision).sum())) // 2
        self.pool_is_all = others.size <= 4 * half
        if self.pool_is_all:
            return others
        ranked = others[np.argsort(-promise[others], kind="stable")]
        rest = np.sort(ranked[half:])
        return np.append(ranked[:half], rest[np.linspace(0, rest.size - 1, half).astype(int)])

    def make_pool(self, promise: Array) -> None:
        """The state over active weights and candidates."""
        on = np.isfinite(self.precision)
        pool = np.sort(np.append(np.flatnonzero(on), self.candidates(promise)))
        size = pool.size
        place = np.full(size, -1)
        active = np.flatnonzero(on[pool])
        place[active] = np.arange(active.size)
        self.pool = pool
        columns = np.ascontiguousarray(self.source.some(pool)).T
        gram, known = np.empty((size, size)), np.zeros(size, bool)
        known[active] = True
        missing = [a for a in active if pool[a] not in self.products]
        gram[missing] = columns[missing] @ columns.T
        for a in set(active) - set(missing):
            gram[a] = self.products[pool[a]][pool]
        self.state = State(
            size=np.array([active.size]),
            active=np.resize(active, size) if active.size else np.zeros(size, np.int64),
            place=place,
            precision=self.precision[pool],
            free=self.free[pool],
            squares=self.squares[pool],
            columns=columns,
            known=known,
            gram=gram,
            covariance=np.empty((size, size)),
            mean=np.empty(size),
            S=np.empty(size),
            Q=np.empty(size),
            work=np.empty(size),
        )
        self.refresh()

    def look_at_all(self, tolerance: float) -> bool:
        """Make a new pool if a weight outside this one would gain; True if none would."""
        if self.pool_is_all or self.steps == self.looked:  # what the last look promised: rounding
            return True
        self.looked = self.steps
        state, k, beta = self.state, int(self.state.size[0]), self.beta
        active = self.pool[state.active[:k]]
        new = [j for j in range(k) if active[j] not in self.products]
        if new:
            columns = state.columns[state.active[new]]
            made = np.empty((len(new), self.squares.size))
            for here, block in self.source.chunks():
                made[:, here] = columns @ block
            self.products |= dict(zip(active[new].tolist(), made, strict=True))
        self.products = {j: self.products[j] for j in active.tolist()}
        products = np.array([self.products[j] for j in active.tolist()]).reshape(
            k, self.squares.size
        )
        spread = self.half @ products
        S = beta * (self.squares - beta * np.einsum("km,km->m", spread, spread))
        Q = beta * (self.moments - state.mean[:k] @ products)
        usable = self.free & np.isinf(self.precision) & (S > LEAST_NEW * beta * self.squares)
        promise = np.where(usable, Q**2, 0.0) / np.where(usable, S, 1.0)
        outside = np.setdiff1d(np.flatnonzero(promise > 1.0), self.pool)
        S, Q, (low, high) = S[outside], Q[outside], self.bounds
        alpha = np.maximum(S * (S / (Q**2 - S)), low)
        gain = 0.5 * (Q**2 / (alpha + S) - np.log1p(S / alpha))
        if not np.any(gain[alpha <= high] > tolerance):
            return True
        self.make_pool(promise)
        return False

    # Moves ----------------------------------------------------------------------------------------

    def walk(self, tolerance: float, max_steps: int) -> bool:
        """Some steps of one weight each, then all together; True if there was nothing to do."""
        least = max(tolerance, LEAST_GAIN[self.stage])
        room = self.batch * max(BATCH, int(self.state.size[0])) // BATCH
        room = min(room, max_steps - self.steps)
        actions, weights, gains = np.empty(room, int), np.empty(room, int), np.empty(room)
        made = walk(self.state, self.beta, least, *self.bounds, actions, weights, gains)
        if made:
            evidence = self.log_evidence + np.cumsum(gains[:made])
            self._write(actions[:made], self.pool[weights[:made]], evidence)
            self.refresh(candidates=self.stage == HELD)
            self._watch(abs(self.log_evidence - evidence[-1]), least)
            if self.stage != HELD:
                self.climb()
            return self.stage == FINE and self._is_idle(tolerance) and self.look_at_all(tolerance)
        if self.stage == FINE and not self.look_at_all(tolerance):
            return False
        if self.stage == FINE and (self.noise_is_stationary() or not self.climb()):
            return True
        if self.stage != FINE:
            self.stage += 1
            self.climb()
        return False

    def _is_idle(self, tolerance: float) -> bool:
        """Whether many rounds have gained nothing: what their steps promised was rounding."""
        gained = self.log_evidence > self.highest + tolerance
        self.highest = max(self.highest, self.log_evidence)
        self.idle = 0 if gained or self.idle >= IDLE else self.idle + 1
        return self.idle >= IDLE

    def _watch(self, drift: float, least: float) -> None:
        """Updates that drift by more than the gains looked for are trusted for fewer steps."""
        self.drift = max(self.drift, drift)
        if drift > least:
            self.batch = max(self.batch // 2, 1)

    def climb(self) -> bool:
        """All free precisions and a free noise, uphill together; True if that gained anything."""
        before, state, k = self.log_evidence, self.state, int(self.state.size[0])
        active = state.active[:k]
        free = np.append(state.free[active], self.noise_is_free)
        if not free.any():
            self.refresh()
            return False
        low, high = np.full(k + 1, -690.0), np.full(k + 1, 690.0)
        with np.errstate(divide="ignore"):
            low[:k], high[:k] = np.clip(np.log(self.bounds), -690.0, 690.0)
        low[k] = math.log(self.least) if self.noise_is_free else -690.0
        data = Products(
            rows=self.target.size,
            inner=self.inner,
            moments=self.moments[self.pool[active]],
            centre=state.mean[:k].copy(),
            misfit=self.misfit,
            force=state.columns[active] @ self.residual,
        )
        alpha, self.beta, made = climb(
            data, state.precision[active], self.beta, free, low, high, *CLIMB[self.stage]
        )
        state.precision[active] = np.where(free[:k], alpha, state.precision[active])
        self.refresh()
        if made:
            self._write([ALL], [-1], [self.log_evidence])
        return self.log_evidence > before + 1e-12 * abs(before)

    def sweep(self, tolerance: float, max_steps: int) -> bool:
        """All precisions and the noise by a fixed-point rule; True if there was nothing to do."""
        state, (low, high), rows = self.state, self.bounds, self.target.size
        k = int(state.size[0])
        active = state.active[:k]
        variance, mean = state.covariance.diagonal()[:k], state.mean[:k]
        alpha = state.precision[active]
        gamma = np.clip(1.0 - alpha * variance, 0.0, 1.0)
        state.S[:] = 0.0  # nothing is added
        state.Q[:] = 0.0
        weight, _, gain = choose(state, self.beta, low, high, tolerance)
        if (weight < 0 or gain <= tolerance) and self.noise_is_stationary():
            return True
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.algorithm == "mackay":
                new = gamma / mean**2  # Tipping 2001 (16)
                noise = self.misfit / max(rows - gamma.sum(), 1e-12 * rows)  # Tipping 2001 (18)
            else:
                new = 1.0 / (mean**2 + variance)
                noise = (self.misfit + gamma.sum() / self.beta) / rows
        unwanted = (gamma < LEAST_GAMMA) & ((mean / variance) ** 2 <= 1.0 / variance - alpha)
        new = np.where(unwanted | ~(new <= high), np.inf, np.clip(new, max(low, 1e-300), 1e300))
        state.precision[active] = np.where(state.free[active], new, alpha)
        kept = active[np.isfinite(state.precision[active])]
        state.place[active] = -1
        state.place[kept] = np.arange(kept.size)
        state.active[: kept.size] = kept
        state.size[0] = kept.size
        if self.noise_is_free:
            self.beta = 1.0 / max(noise, self.least)
        self.refresh(candidates=False)
        self._write([ALL], [-1], [self.log_evidence])
        return False

    def noise_is_stationary(self) -> bool:
        """Fixed, at its least, or where d log evidence / d log sigma^2 is zero."""
        k, rows = int(self.state.size[0]), self.target.size
        alpha = self.state.precision[self.state.active[:k]]
        determined = k - float(alpha @ self.state.covariance.diagonal()[:k])
        slope = self.beta * self.misfit - (rows - determined)
        at_least = self.beta * self.least >= 1.0 - 1e-9 and slope <= 0.0
        return not self.noise_is_free or at_least or abs(slope) <= STATIONARY * rows

    def refresh(self, candidates: bool = True) -> None:
        """Posterior, evidence, and S and Q of the pool, from the definition."""
        state, beta, rows = self.state, self.beta, self.target.size
        k = int(state.size[0])
        active = state.active[:k]
        self.precision[self.pool] = state.precision
        alpha, products = state.precision[active], state.gram[active]
        inner = products[:, active]
        self.inner = 0.5 * (inner + inner.T)
        scale = 1.0 / np.sqrt(alpha + beta * state.squares[active])  # equilibrates the factor
        information = beta * self.inner * np.outer(scale, scale)
        information[np.diag_indices(k)] += alpha * scale**2
        factor, failed = dpotrf(information, lower=1) if k else (information, 0)
        if failed:  # by rounding: a sum of squares is definite, and its root shows it
            root = math.sqrt(beta) * state.columns[active].T
            factor = factor_by_qr(np.vstack([root, np.diag(np.sqrt(alpha))]) * scale)
        half = (dtrtri(factor, lower=1)[0] if k else factor) * scale
        self.half = half  # Sigma = half'half
        moments = self.moments[self.pool]
        state.covariance[:k, :k] = half.T @ half
        mean = state.mean[:k] = half.T @ (half @ (beta * moments[active]))
        self.residual = self.target - mean @ state.columns[active]
        self.misfit = float(self.residual @ self.residual)
        log_det = 2.0 * float(np.log(factor.diagonal() / scale).sum()) - float(np.log(alpha).sum())
        self.log_evidence = -0.5 * (
            rows * math.log(2 * math.pi / beta)
            + log_det
            + beta * self.misfit
            + float(alpha @ mean**2)
        )
        if not candidates:
            return
        spread = half @ products
        state.S[:] = beta * (state.squares - beta * np.einsum("km,km->m", spread, spread))
        state.Q[:] = beta * (moments - mean @ products)

    # The record -----------------------------------------------------------------------------------

    def _write(self, actions: object, weights: object, evidence: object) -> None:
        self.record.append(
            (np.array(actions, np.int8), np.array(weights, np.int64), np.array(evidence, float))
        )
        self.steps += self.record[-1][0].size

    def result(self, settled: bool) -> GaussianArd:
        """The weights in ascending order."""
        state, k = self.state, int(self.state.size[0])
        order = np.argsort(state.active[:k])
        active = self.pool[state.active[:k][order]]
        covariance = state.covariance[:k, :k][np.ix_(order, order)]
        return GaussianArd(
            precision=self.precision.copy(),
            noise=self.beta**-0.5,
            mean=state.mean[:k][order],
            covariance=covariance,
            active=active,
            gamma=1.0 - self.precision[active] * covariance.diagonal(),
            log_evidence=self.log_evidence,
            path=Path(*(np.concatenate(part) for part in zip(*self.record, strict=True))),
            converged=settled,
            drift=self.drift,
        )
