"""The evidence of a Gaussian linear model for every subset one input away, by a growing factor.

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
from typing import NamedTuple

import numpy as np

from ardvark.inference.running.machine_code import njit
from ardvark.inference.sites.arrays import Array, Index

__all__ = [
    "Factor",
    "Products",
    "gain",
    "gain_of_member",
    "push",
    "remove",
    "solve_weights",
    "start",
    "without_member",
    "workspace",
]


class Products(NamedTuple):
    """The data of a linear model, and what the moves need of them again and again."""

    A: Array  # (N, d + 1), the constant first
    t: Array  # target less the prior mean of the bias; signs for two classes
    probit: bool
    gram: Array  # A'A, empty if it is too large
    diagonal: Array  # of A'A
    c: Array  # A't; of a probit A'z, overwritten in every sweep
    square: float  # t't


class Factor(NamedTuple):
    """The factor of a subset of k members, all overwritten in place; k is carried beside it."""

    rows: Array  # (d + 1, d + 1): the first k are L^-1 M_I:
    beta: Array
    s: Array
    q: Array
    members: Index  # columns, in the order of the rows
    place: Index  # of each column among the members, -1 for one outside
    direction: Array  # room for `without_member`
    gains: Array  # room for an exchange


@njit(cache=True, nogil=True, error_model="numpy")
def gain(precision, s, q):  # type: ignore[no-untyped-def]
    """Log evidence that a column brings to the members."""
    return 0.5 * (log(precision / s) + q * q / s)


@njit(cache=True, nogil=True, error_model="numpy")
def push(j, k, f, data, tau, alpha):  # type: ignore[no-untyped-def]
    """Make column j the member number k."""
    # A field of a tuple is looked up once, not in a loop: each look counts a reference.
    rows, s, q, A, gram = f.rows, f.s, f.q, data.A, data.gram
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
    f.beta[k] = b
    f.members[k], f.place[j] = j, k
    for i in range(columns):
        x = row[i] * scale
        row[i] = x
        s[i] -= x * x
        q[i] -= x * b


@njit(cache=True, nogil=True, error_model="numpy")
def pop(k, f):  # type: ignore[no-untyped-def]
    """Take the last member off; k is the number of members before."""
    row, s, q, b = f.rows[k - 1], f.s, f.q, f.beta[k - 1]
    f.place[f.members[k - 1]] = -1
    for i in range(s.size):
        x = row[i]
        s[i] += x * x
        q[i] += x * b


@njit(cache=True, nogil=True, error_model="numpy")
def remove(at, k, f, data, tau, alpha):  # type: ignore[no-untyped-def]
    """Take the member at the place `at` out; those above it move down by one."""
    for top in range(k, at, -1):
        pop(top, f)
    for r in range(at + 1, k):
        push(f.members[r], r - 1, f, data, tau, alpha)


@njit(cache=True, nogil=True, error_model="numpy")
def without_member(place, k, f):  # type: ignore[no-untyped-def]
    """Give s and q that the member at `place` would have outside; `direction` is what leaves.

    It is the unit vector along L^-1 e_place: orthogonal to the rows of L of all other members.
    """
    rows, beta, members, direction = f.rows, f.beta, f.members, f.direction
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
def gain_of_member(place, k, f, alpha):  # type: ignore[no-untyped-def]
    """Log evidence that a member brings to the others."""
    s, q = without_member(place, k, f)
    return gain(alpha[f.members[place]], s, q)


@njit(cache=True, nogil=True, error_model="numpy")
def solve_weights(k, f, white, weights):  # type: ignore[no-untyped-def]
    """Solve L'w = white: the posterior mean for beta, a draw for beta plus standard noise."""
    rows, members = f.rows, f.members
    for r in range(k - 1, -1, -1):
        x = white[r]
        for c in range(r + 1, k):
            x -= rows[r, members[c]] * weights[c]
        weights[r] = x / rows[r, members[r]]


@njit(cache=True, nogil=True, error_model="numpy")
def start(f, data, tau, alpha):  # type: ignore[no-untyped-def]
    """Set s and q of the empty set; members are then pushed, the bias first."""
    s, q, diagonal, c = f.s, f.q, data.diagonal, data.c
    for i in range(s.size):
        s[i] = tau * diagonal[i] + alpha[i]
        q[i] = tau * c[i]


def workspace(columns: int) -> Factor:
    """Arrays of a factor; rows that are never used are never touched, and cost no memory."""
    s, q, beta, direction, gains = (np.empty(columns) for _ in range(5))
    members, place = np.empty(columns, np.int64), np.full(columns, -1, np.int64)
    return Factor(np.empty((columns, columns)), beta, s, q, members, place, direction, gains)
