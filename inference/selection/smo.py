"""The ordinary support vector machine (hinge loss, free offset) by sequential minimal optimisation.

    maximise  Σ y_i v_i - ½ v'K v    over  Σ v_i = 0,  0 <= y_i v_i <= C        f = K v + b

It is the learner of Chu06's forward selection, called many thousands of times on one kernel matrix,
so it works on a given K, follows a whole path of C with the last solution as its start (v grows in
proportion to C), and holds no lock: threads can share the work.

A step moves two rows, v_i += s and v_j -= s. With F = y - K v the most violating row i has the
largest F among those that may rise, j is the one that may fall with which the objective gains most
(second-order choice of Fan, Chen & Lin, 2005), and the search ends when no pair with F_i - F_j
above the tolerance is left. Every free row then has F = b.

In Chu06 (1) the penalty is |f|²/C and here it is ½|f|², so its C is twice the box of this file.
"""

from typing import Any

import numpy as np

from ardvark.inference.running.machine_code import njit
from ardvark.inference.running.threads import STOP, Watch, aside
from ardvark.inference.sites.arrays import Array

__all__ = ["hinge_machine", "path_decisions"]

FLAT = 1e-12  # curvature along a pair whose rows are equal


def hinge_machine(
    kernel: Array, sign: Array, box: float, *, tolerance: float = 1e-3, max_steps: int = 10_000_000
) -> tuple[Array, float]:
    """Solve for v (N,) and the offset b on K (N, N), y = ±1, the box C."""
    v = np.zeros(len(sign))
    offset, steps = aside(
        lambda watch: _solve(kernel, sign, box, v, sign.copy(), tolerance, max_steps, watch)
    )
    if steps >= max_steps:
        raise RuntimeError(
            f"no solution after {max_steps} steps: C = {box:g} is too large for this kernel. Give "
            f"a smaller C."
        )
    return v, offset


@njit(nogil=True, cache=True)
def path_decisions(
    kernel: Array, sign: Array, train: Any, test: Any, boxes: Array, tolerance: float,
    max_steps: int, watch: Watch,
) -> tuple[Array, Any]:  # fmt: skip
    """Decisions f at rows `test` of machines trained on rows `train`, boxes rising: (C, test).

    `max_steps` cuts a machine that will not end; its f is then that of where it was, and it is
    marked in what comes second, (C,).
    """
    known = kernel[train][:, train]
    cross = kernel[test][:, train]
    y = sign[train]
    v = np.zeros(len(train))
    F = y.copy()
    f = np.empty((len(boxes), len(test)))
    cut = np.zeros(len(boxes), dtype=np.bool_)
    for k in range(len(boxes)):
        if k:
            growth = boxes[k] / boxes[k - 1]
            v *= growth
            F[:] = y - growth * (y - F)
        offset, steps = _solve(known, y, boxes[k], v, F, tolerance, max_steps, watch)
        cut[k] = steps >= max_steps
        for n in range(len(test)):
            total = offset
            for m in range(len(train)):
                total += cross[n, m] * v[m]
            f[k, n] = total
    return f, cut


@njit(nogil=True, cache=True)
def _solve(
    kernel: Array, y: Array, box: float, v: Array, F: Array, tolerance: float, max_steps: int,
    watch: Watch,
) -> tuple[float, int]:  # fmt: skip
    """Move v and F = y - K v to the solution; the offset, and how many steps it took."""
    rows = len(y)
    low, high = np.minimum(0.0, box * y), np.maximum(0.0, box * y)
    steps = 0
    while True:
        i, top = -1, -np.inf
        for n in range(rows):
            if v[n] < high[n] and F[n] > top:
                i, top = n, F[n]
        j, bottom, gain = -1, np.inf, 0.0
        row_i = kernel[i]
        for n in range(rows):
            if v[n] > low[n]:
                bottom = min(bottom, F[n])
                apart = top - F[n]
                if apart > 0.0:
                    bend = max(row_i[i] + kernel[n, n] - 2.0 * row_i[n], FLAT)
                    if apart * apart > gain * bend:
                        gain, j = apart * apart / bend, n
        if top - bottom < tolerance or j < 0 or steps >= max_steps or watch[STOP]:
            return 0.5 * (top + bottom), steps
        row_j = kernel[j]
        size = (top - F[j]) / max(row_i[i] + row_j[j] - 2.0 * row_i[j], FLAT)
        room_i, room_j = high[i] - v[i], v[j] - low[j]
        size = min(size, room_i, room_j)
        # To the bound exactly, or rounding would leave a row that may still move by nothing.
        v[i] = high[i] if size == room_i else v[i] + size
        v[j] = low[j] if size == room_j else v[j] - size
        for n in range(rows):
            F[n] -= size * (row_i[n] - row_j[n])
        steps += 1
