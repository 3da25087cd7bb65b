"""The evidence of a Gaussian linear model for every subset one input away, by a factor that grows.

Given the noise precision tau and the prior precisions alpha, the weights of a subset I (the bias,
column 0, among them) have the posterior precision M_II, M = tau A'A + diag(alpha), and the
evidence of t is, up to a constant that all subsets share,

    1/2 sum_{j in I} log alpha_j - 1/2 log |M_II| + 1/2 b_I' M_II^-1 b_I,          b = tau A't

`rows` holds L^-1 M_I: with M_II = L L', one row for each member, over *all* columns, so that L' is
among its columns. With it two numbers are kept for each column j, s_j = M_jj - |column|² and
q_j = b_j - column'beta, beta = L^-1 b_I. They say what j would bring:

    gain(j) = 1/2 log(alpha_j / s_j) + q_j² / (2 s_j)         log evidence of I + j over that of I

One more member is one more row, O(k d), and a rank-one update of s and q; the last member leaves
by the reverse; any other when those above it have been taken off and are put back.
"""

from math import log, sqrt

import numpy as np
from numba import njit

__all__ = ["gain", "gain_of_member", "push", "remove", "solve_weights", "without_member"]


@njit(cache=True, nogil=True, error_model="numpy")
def gain(precision, s, q):  # type: ignore[no-untyped-def]
    """Log evidence that a column brings to the members."""
    return 0.5 * (log(precision / s) + q * q / s)


@njit(cache=True, nogil=True, error_model="numpy")
def push(j, k, rows, beta, s, q, members, A, gram, tau, alpha):  # type: ignore[no-untyped-def]
    """Make column j the member number k."""
    columns = s.size
    row = rows[k]
    if gram.shape[0] > 0:
        for i in range(columns):
            row[i] = tau * gram[j, i]
    else:  # too many columns to keep all products: this one is made when it is needed
        row[:] = 0.0
        for n in range(A.shape[0]):
            x = tau * A[n, j]
            for i in range(columns):
                row[i] += x * A[n, i]
    row[j] += alpha[j]
    for r in range(k):
        x = rows[r, j]
        if x != 0.0:
            for i in range(columns):
                row[i] -= x * rows[r, i]
    scale = 1.0 / sqrt(s[j])
    b = q[j] * scale
    beta[k] = b
    members[k] = j
    for i in range(columns):
        x = row[i] * scale
        row[i] = x
        s[i] -= x * x
        q[i] -= x * b


@njit(cache=True, nogil=True, error_model="numpy")
def pop(k, rows, beta, s, q):  # type: ignore[no-untyped-def]
    """Take the last member off; k is the number of members before."""
    b = beta[k - 1]
    for i in range(s.size):
        x = rows[k - 1, i]
        s[i] += x * x
        q[i] += x * b


@njit(cache=True, nogil=True, error_model="numpy")
def remove(place, k, rows, beta, s, q, members, A, gram, tau, alpha):  # type: ignore[no-untyped-def]
    """Take the member at `place` out; those above it move down by one."""
    for top in range(k, place, -1):
        pop(top, rows, beta, s, q)
    for r in range(place + 1, k):
        push(members[r], r - 1, rows, beta, s, q, members, A, gram, tau, alpha)


@njit(cache=True, nogil=True, error_model="numpy")
def without_member(place, k, rows, beta, members, direction):  # type: ignore[no-untyped-def]
    """Give s and q that the member at `place` would have outside; `direction` is what leaves.

    It is the unit vector along L^-1 e_place: orthogonal to the rows of L of all other members.
    """
    square, along = 0.0, 0.0
    for r in range(place):
        direction[r] = 0.0
    for r in range(place, k):
        x = 1.0 if r == place else 0.0
        for c in range(place, r):
            x -= rows[c, members[r]] * direction[c]
        x /= rows[r, members[r]]
        direction[r] = x
        square += x * x
        along += x * beta[r]
    scale = 1.0 / sqrt(square)
    for r in range(place, k):
        direction[r] *= scale
    return 1.0 / square, along / square


@njit(cache=True, nogil=True, error_model="numpy")
def gain_of_member(place, k, rows, beta, members, alpha, direction):  # type: ignore[no-untyped-def]
    """Log evidence that a member brings to the others."""
    s, q = without_member(place, k, rows, beta, members, direction)
    return gain(alpha[members[place]], s, q)


@njit(cache=True, nogil=True, error_model="numpy")
def solve_weights(k, rows, white, members, weights):  # type: ignore[no-untyped-def]
    """Solve L'w = white: the posterior mean for beta, a draw for beta plus standard noise."""
    for r in range(k - 1, -1, -1):
        x = white[r]
        for c in range(r + 1, k):
            x -= rows[r, members[c]] * weights[c]
        weights[r] = x / rows[r, members[r]]


@njit(cache=True, nogil=True, error_model="numpy")
def start(c, diagonal, tau, alpha, s, q):  # type: ignore[no-untyped-def]
    """Set s and q of the empty set; members are then pushed, the bias first."""
    for i in range(s.size):
        s[i] = tau * diagonal[i] + alpha[i]
        q[i] = tau * c[i]


def workspace(columns: int):  # type: ignore[no-untyped-def]
    """Arrays of a factor; rows that are never used are never touched, and cost no memory."""
    return (
        np.empty((columns, columns)),
        np.empty(columns),
        np.empty(columns),
        np.empty(columns),
        np.empty(columns, dtype=np.int64),
    )
