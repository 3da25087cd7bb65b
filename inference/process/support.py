"""Evidence of the trigonometric SVM on its support vectors, and its gradient in all parameters.

    -log p(t | θ) = ½ v'Σ_M v + 2 Σ ln sec(π/4 ξ) + ½ ln |I + Σ_M Λ_M|        M: the support vectors

Everything comes from one Cholesky factor of Σ_M + Λ_M⁻¹, of which W is the inverse:

| Chu, Keerthi, Ong & Ghahramani 2006         | code                                               |
|---------------------------------------------|----------------------------------------------------|
| (15)                                         | `support_evidence`, its value                     |
| gradient of (15), not printed                | `support_evidence`, the matrix G                  |
| an inverse for each feature (end of 2.5)     | not needed: `Covariance.pull`, one matrix product |
| relevance variables (16)                     | `relevance_of`                                    |

The gradient has three parts, each of them a sum over G ∘ dΣ_M: the mode's own quadratic (envelope
theorem), the determinant, and the move of Λ with the mode. With q_i the posterior variance of f_i,

    G = ½ vv' - ½ W + g v',   g = (I + Λ Σ)⁻¹ (½ q ∘ v ∘ Λ) = ½ W (q ∘ v),  q_i = (1 - W_ii/Λ_i)/Λ_i

Without the third part the gradient is off by tens of per cent.

(15) is not continuous: a row that enters M makes it rise by ½ ln(1 + π² q / 8), because ℓ'' jumps
there from 0 to π²/8. Hundreds of rows make it a saw whose teeth hide its slope. With a `ramp` δ the
curvature of rows with 1 - δ < z < 1 + δ is drawn out of that step by a smooth share h(z), in the
determinant only: the mode is the same, the value has no jumps, and a search can follow it before
(15) itself is climbed (`search.py`).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from ardvark.inference.process.dual import Mode, curvature, find_mode, solve_in
from ardvark.inference.sites.arrays import Array, Index

__all__ = ["SupportEvidence", "relevance_of", "support_evidence"]


class SupportEvidence(NamedTuple):
    """Laplace's evidence at the mode, and its adjoint in the covariance of the support vectors."""

    log_evidence: float  # minus Chu06 (15)
    mode: Mode
    rows: Index  # rows of the adjoint: M, with a ramp some more
    adjoint: Array  # G (s, s), symmetric: d log evidence = sum(G * dΣ_M)
    variance: Array  # posterior variance of f at these rows


def support_evidence(
    covariance: Array, sign: Array, start: Array | None = None, *, ramp: float = 0.0
) -> SupportEvidence:
    """Evidence and adjoint at Σ (N, N) and y = ±1, the mode searched from α = `start`."""
    mode = find_mode(covariance, sign, start)
    rows, lam, turn = _curvatures(mode, sign, ramp)
    if not rows.size:  # no row inside the margin: the likelihood is 1 around the mode
        nothing = np.zeros(0)
        return SupportEvidence(-mode.objective, mode, rows, np.zeros((0, 0)), nothing)
    matrix = covariance[np.ix_(rows, rows)]
    matrix.flat[:: rows.size + 1] += 1.0 / lam
    factor, failed = dpotrf(matrix.T, lower=0, overwrite_a=1, clean=0)
    if failed:
        raise np.linalg.LinAlgError(
            "the covariance of the support vectors is indefinite: give the kernel a larger jitter="
        )
    half_log_det = float(np.log(factor.diagonal()).sum() + 0.5 * np.log(lam).sum())
    W = np.asarray(dpotri(factor, lower=0, overwrite_c=1)[0])
    _mirror(W)
    q = (1.0 - W.diagonal() / lam) / lam
    pull = -0.5 * q * turn * sign[rows]  # d log evidence / d f through Λ
    v = sign[rows] * mode.alpha[rows]
    if ramp:
        on = np.flatnonzero(v)
        shift = covariance[np.ix_(rows[on], rows)] @ pull
        g = pull.copy()
        g[on] -= solve_in(covariance, rows[on], 1.0 / curvature(v[on]), shift)
    else:
        g = W @ (pull / lam)
    half = np.outer(v, 0.25 * v + 0.5 * g)  # and its transpose: ½ vv' + g v' made symmetric
    adjoint = half + half.T - 0.5 * W
    return SupportEvidence(-mode.objective - half_log_det, mode, rows, adjoint, q)  # Chu06 (15)


def _curvatures(mode: Mode, sign: Array, ramp: float) -> tuple[Index, Array, Array]:
    """Rows with curvature, their Λ, and dΛ/dz = -α Λ."""
    if not ramp:
        rows = np.flatnonzero(mode.support)
        lam = curvature(mode.alpha[rows])
        return rows, lam, -mode.alpha[rows] * lam
    rows = np.flatnonzero(1.0 - sign * mode.f > -ramp * (1.0 - 1e-3))
    s = np.minimum((1.0 - sign[rows] * mode.f[rows]) / ramp, 1.0)
    share, slope = (2.0 + 3.0 * s - s**3) / 4.0, -3.0 * (1.0 - s**2) / (4.0 * ramp)
    alpha = mode.alpha[rows]
    full = curvature(alpha)
    return rows, full * share, full * (slope - alpha * share)


def _mirror(matrix: Array) -> None:
    """Copy the upper triangle into the lower one; NumPy: machine code would have to be loaded."""
    below = np.tri(len(matrix), k=-1, dtype=bool)
    matrix[below] = matrix.T[below]


def relevance_of(kappa: Array, inputs: Array) -> Array:
    """Share of each feature in sum_l kappa_l var(x_l): Chu06 (16), for columns of any unit.

    The paper's columns have variance 1, so there it is (16) as printed. Leading axes broadcast.
    """
    spread = np.asarray(kappa) * np.var(np.asarray(inputs), axis=0)
    return np.asarray(spread / spread.sum(axis=-1, keepdims=True))
