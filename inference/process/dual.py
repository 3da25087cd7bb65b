"""The mode of the trigonometric SVM by its convex dual: sparse, and certified by a duality gap.

    minimise  D(α) = ½ v'Σv - Σ α_i + Σ g(α_i)   over α >= 0,      v_i = y_i α_i,  f = Σ v

    g(α) = (4/π) α arctan(2α/π) - ln(1 + (2α/π)²),   g' = ξ = (4/π) arctan(2α/π),   g'' = 1/Λ

There is no upper bound (ξ < 2 holds by itself) and no equality constraint (the offset is in κ_b).
Rows with α > 0 are the support vectors. The primal is P(f) = ½ f'Σ⁻¹f + Σ ℓ(y_i f_i), and at
f = Σ v the gap P + D >= 0 needs no inverse: it is a sum over rows, each zero at the optimum.

| Chu, Keerthi, Ong & Ghahramani 2006    | code                                                    |
|----------------------------------------|---------------------------------------------------------|
| dual (11), without its stray n          | `_State.dual`                                          |
| f_MP = Σ v, (12)                        | `Mode.f`                                               |
| Λ, after (14): π²/8 + α²/2              | `curvature`                                            |

Far from the optimum projected steps on α are slow where Σ is strong, so the support is found first,
by active-set steps: rows inside the margin (z < 1) take a Newton step in Σ_M + Λ_M⁻¹, all others
have v = 0, and a step is halved until the primal falls. Projected Newton on the dual (Bertsekas
1982: rows at zero that want to be below it are held there) then finishes in one or two steps. The
last matrix is also the one of the evidence (15), see `support.py`.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from ardvark.inference.sites.arrays import Array, Index, Mask

__all__ = ["Mode", "curvature", "find_mode", "solve_in"]

HALF_PI = 0.5 * np.pi
MOST_STEPS = 200
GAP = 1e-10  # of the duality, relative: at the end, one Newton step later, it is far smaller
FINE = 1e-11  # slope of D that is as good as zero
SETTLED = 1e-9  # slope of D at which one more Newton step leaves rounding only
NEARLY = 1e-6  # relative gain of an active-set step after which the dual steps take over
NEAR_ZERO = 1e-8  # a row this close to zero that wants to be below it is held at once


class Mode(NamedTuple):
    """The mode f = Σ v, its dual variables, and what certifies it."""

    alpha: Array  # (N,), >= 0
    f: Array  # (N,)
    objective: float  # ½ f'Σ⁻¹f + Σ ℓ(y f), Chu06 (9)
    gap: float  # P + D, an upper bound on what the objective can still fall
    slope: float  # largest violation of the dual's optimality conditions
    iterations: int

    @property
    def support(self) -> Mask:
        """The support vectors."""
        return self.alpha > 0


def curvature(alpha: Array) -> Array:
    """Λ = ℓ'' at support vectors, π²/8 + α²/2."""
    return np.pi**2 / 8.0 + 0.5 * np.square(alpha)


def find_mode(covariance: Array, sign: Array, start: Array | None = None) -> Mode:
    """Mode of N(f; 0, Σ) times trigonometric sites; it is unique.

    Parameters
    ----------
    covariance, sign
        Σ (N, N), semi-definite will do; y = ±1 (N,).
    start
        α of a problem nearby: along a path of hyperparameters this saves most of the work.
    """
    alpha, begun = _active_set(covariance, sign, start)
    now = _State.at(covariance, sign, alpha)
    steps = begun
    for steps in range(begun, begun + MOST_STEPS):  # noqa: B007
        last = now.slope <= SETTLED and now.gap <= GAP * (1.0 + abs(now.primal))
        if last and now.slope <= FINE:
            break
        new = _newton(covariance, sign, now)
        if new is None:
            break
        now = new if not last or new.slope <= now.slope else now
        if last:
            break
    return Mode(now.alpha, now.f, now.primal, now.gap, now.slope, steps)


def _active_set(covariance: Array, sign: Array, start: Array | None) -> tuple[Array, int]:
    """α at the mode as the primal sees it, to within what the dual steps finish."""
    v, f = np.zeros(len(sign)), np.zeros(len(sign))
    if start is not None:
        v = sign * np.maximum(start, 0.0)
        f = covariance @ v
        inside = 0.9 / max(-float(np.min(sign * f)), 0.9)  # less than 1 if a row is impossible
        v, f = inside * v, inside * f
    value = _primal(sign, v, f)
    steps = 0
    for steps in range(1, MOST_STEPS + 1):  # noqa: B007
        free = np.flatnonzero(sign * f < 1.0)
        alpha = HALF_PI * np.tan(0.25 * np.pi * (1.0 - sign[free] * f[free]))
        weak = 1.0 / curvature(alpha)
        target = np.zeros_like(v)
        target[free] = solve_in(covariance, free, weak, f[free] + weak * sign[free] * alpha)
        turn, move = target - v, covariance @ target - f
        size = 1.0
        while size > 1e-6:
            new = _primal(sign, v + size * turn, f + size * move)
            if new <= value + 1e-14 * (1.0 + abs(value)):
                break
            size *= 0.5
        gain = value - new
        if size <= 1e-6:
            break
        v, f, value = v + size * turn, f + size * move, new
        if size == 1.0 and gain <= NEARLY * (1.0 + abs(value)):
            break
    return HALF_PI * np.tan(0.25 * np.pi * np.maximum(1.0 - sign * f, 0.0)), steps


def _primal(sign: Array, v: Array, f: Array) -> float:
    """Chu06 (9) at f = Σ v."""
    return 0.5 * float(v @ f) + float(_loss(sign * f).sum())


def solve_in(covariance: Array, free: Index, weak: Array, right: Array) -> Array:
    """(Σ_M + Λ_M⁻¹)⁻¹ times a vector, weak = Λ_M⁻¹."""
    if not free.size:
        return right
    matrix = covariance[np.ix_(free, free)]
    matrix.flat[:: free.size + 1] += weak
    lower, failed = dpotrf(matrix.T, lower=0, overwrite_a=1, clean=0)
    if failed:
        raise np.linalg.LinAlgError(
            "the covariance of the trigonometric SVM is indefinite: give its kernel more jitter="
        )
    return np.asarray(dpotrs(lower, right, lower=0)[0])


class _State(NamedTuple):
    alpha: Array
    f: Array
    dual: float  # D
    primal: float
    gap: float
    gradient: Array
    slope: float

    @classmethod
    def at(cls, covariance: Array, sign: Array, alpha: Array) -> "_State":
        v = sign * alpha
        f = covariance @ v  # all columns: picking those of the support costs more than it saves
        z = sign * f
        half = 0.5 * float(v @ f)
        angle = np.arctan(alpha / HALF_PI)
        excess = 4.0 / np.pi * angle  # ξ(α)
        conjugate = alpha * excess - np.log1p(np.square(alpha / HALF_PI))  # g(α), Chu06 (11)
        gradient = z - 1.0 + excess
        loss = _loss(z)
        # Row by row: Fenchel's inequality ℓ(z) + g(α) >= α (1 - z), equal at the optimum.
        gap = float(np.sum(loss + conjugate - alpha * (1.0 - z)))
        violated = np.where(alpha > 0, np.abs(gradient), np.maximum(-gradient, 0.0))
        dual = half - float(alpha.sum()) + float(conjugate.sum())
        return cls(alpha, f, dual, half + float(loss.sum()), gap, gradient, float(violated.max()))


def _loss(z: Array) -> Array:
    """Chu06 (6); it is called for every row, so no tangent beyond the margin."""
    with np.errstate(divide="ignore"):
        return -2.0 * np.log(np.sin(0.25 * np.pi * (1.0 + np.clip(z, -1.0, 1.0))))


def _newton(covariance: Array, sign: Array, now: _State) -> _State | None:
    """One projected Newton step on the dual; None if no step makes D fall."""
    held = (now.alpha <= min(NEAR_ZERO, now.slope)) & (now.gradient > 0)
    free = np.flatnonzero(~held)
    direction = np.where(held, -now.alpha, 0.0)
    # (yy'∘Σ)⁻¹ g = y ∘ Σ⁻¹ (y ∘ g): the signs stay outside.
    right, weak = sign[free] * now.gradient[free], 1.0 / curvature(now.alpha[free])
    direction[free] = -sign[free] * solve_in(covariance, free, weak, right)
    size = 1.0
    while size > 1e-10:
        alpha = np.maximum(now.alpha + size * direction, 0.0)
        new = _State.at(covariance, sign, alpha)
        promised = float(now.gradient @ (alpha - now.alpha))
        # At the end D no longer tells two points apart, but its slope still does.
        if new.dual <= now.dual + 1e-4 * min(promised, 0.0) or new.slope < 0.1 * now.slope < 1e-4:
            return new
        size *= 0.5
    return None
