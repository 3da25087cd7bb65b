"""An ordinary SVM with a Gaussian kernel, C and κ by repeated cross-validation on two grids.

    k(x, z) = exp(-κ/2 |x - z|²)        coarse: log10 C = -0.5 ... 2.5, log10 κ = -3 ... 0, 7 x 7
                                        fine:   9 x 9 around its best node, 0.1 apart

The learner of Chu06's forward selection (section 4): 5 folds, 10 times over, at every node. That is
6500 machines for one subset, so a matrix of distances serves all of them, one kernel matrix all C
and all folds, and C is followed as a path (`smo.py`).

All repetitions on all nodes are seldom worth it: `screening` of them choose the nodes, and only the
`finalists` best nodes of the fine grid get the rest. screening=10 is what the paper did. C is that
of Chu06 (1), twice the box of other programs.

At the far corner of the grid a machine may need more steps than `max_steps`: it is judged where it
was then, and `Score.unfinished` counts how many of the chosen node were.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from ardvark.inference.running.executor import run_tasks
from ardvark.inference.running.threads import Watch, go_on, in_threads, unwatched
from ardvark.inference.selection.smo import hinge_machine, path_decisions
from ardvark.inference.selection.walk import Score
from ardvark.inference.sites.arrays import Array, Index

__all__ = ["GridSVM", "decide"]

COARSE_C = np.linspace(-0.5, 2.5, 7)
COARSE_KAPPA = np.linspace(-3.0, 0.0, 7)
FINE = np.linspace(-0.4, 0.4, 9)
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class GridSVM:
    """Loss: the share of wrong rows under cross-validation at the best node."""

    folds: int = 5
    repeats: int = 10
    screening: int = 1
    finalists: int = 5
    seed: int = 0
    executor: Any = None  # None: threads of this process
    max_steps: int = 100_000  # of one machine

    def __call__(self, X: Array, sign: Array) -> Score:
        """Search both grids."""
        coarse, _ = self._wrong(X, sign, COARSE_C, COARSE_KAPPA, 0, self.screening)
        kappa, C = np.unravel_index(np.argmin(coarse.mean(axis=2)), coarse.shape[:2])
        grid_C, grid_kappa = COARSE_C[C] + FINE, COARSE_KAPPA[kappa] + FINE
        wrong, cut = self._wrong(X, sign, grid_C, grid_kappa, 0, self.screening)
        rest = self.repeats - self.screening
        nodes = np.argsort(wrong.mean(axis=2), axis=None, kind="stable")
        best: Score | None = None
        for node in nodes[: self.finalists] if rest > 0 else nodes[:1]:
            k, c = np.unravel_index(node, wrong.shape[:2])
            by_row, unfinished = wrong[k, c], cut[k, c]
            if rest > 0:
                more, cut_more = self._wrong(
                    X, sign, grid_C[c : c + 1], grid_kappa[k : k + 1], self.screening, rest
                )
                by_row = (self.screening * by_row + rest * more[0, 0]) / self.repeats
                unfinished += cut_more[0, 0]
            setting = {"log10_C": float(grid_C[c]), "log10_kappa": float(grid_kappa[k])}
            score = Score(float(by_row.mean()), by_row, setting, int(unfinished))
            best = score if best is None or score.loss < best.loss else best
        assert best is not None
        return best

    def _wrong(
        self, X: Array, sign: Array, C: Array, kappa: Array, first: int, repeats: int
    ) -> tuple[Array, Array]:
        """How often each row is wrong when held out, (kappa, C, row), and machines cut there."""
        parts = [
            part
            for repeat in range(first, first + repeats)
            for part in _folds(sign, self.folds, np.random.default_rng([self.seed, repeat]))
        ]
        line = _Line(X, sign, parts, 10.0**C / 2.0, repeats, self.max_steps)
        if self.executor is None:  # machine code, without the interpreter's lock
            distance = cdist(X, X, "sqeuclidean")
            found = in_threads(lambda k, watch: line.wrong(distance, kappa[k], watch), len(kappa))
        else:
            found = run_tasks(line.alone, kappa, self.executor)
        errors, unfinished = zip(*found, strict=True)
        return np.array(errors), np.array(unfinished)


class _Line(NamedTuple):
    """The nodes of one κ: every C, every fold."""

    X: Array
    sign: Array
    parts: list[tuple[Index, Index]]
    boxes: Array
    repeats: int
    max_steps: int

    def alone(self, kappa: float) -> tuple[Array, Array]:
        """In a process of its own."""
        return self.wrong(cdist(self.X, self.X, "sqeuclidean"), kappa, unwatched())

    def wrong(self, distance: Array, kappa: float, watch: Watch) -> tuple[Array, Array]:
        """How often each row is wrong when held out, (C, row), and machines cut there."""
        # Half precision of the other arrays is enough for an error rate, and twice as fast.
        kernel = np.exp(-0.5 * 10.0**kappa * distance).astype(np.float32)
        wrong = np.zeros((len(self.boxes), len(self.sign)))
        unfinished = np.zeros(len(self.boxes))
        for train, test in self.parts:
            go_on(watch)
            f, cut = path_decisions(
                kernel, self.sign, train, test, self.boxes, TOLERANCE, self.max_steps, watch
            )
            wrong[:, test] += f * self.sign[test] <= 0
            unfinished += cut
        return wrong / self.repeats, unfinished


def decide(X: Array, sign: Array, X_new: Array, setting: dict[str, float]) -> Array:
    """Decision f at new rows, of the machine with this C and κ on all rows."""
    rate = 0.5 * 10.0 ** setting["log10_kappa"]
    kernel = np.exp(-rate * cdist(X, X, "sqeuclidean"))
    v, offset = hinge_machine(kernel, sign, 10.0 ** setting["log10_C"] / 2.0)
    return np.asarray(np.exp(-rate * cdist(X_new, X, "sqeuclidean")) @ v + offset)


def _folds(sign: Array, folds: int, rng: np.random.Generator) -> Iterator[tuple[Index, Index]]:
    """Rows to train on and rows to test on, each class dealt out evenly."""
    fold = np.empty(len(sign), dtype=int)
    for value in (-1.0, 1.0):
        rows = rng.permutation(np.flatnonzero(sign == value))
        fold[rows] = np.arange(len(rows)) % folds
    for k in range(folds):
        yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)
