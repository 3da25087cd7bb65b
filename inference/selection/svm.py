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

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ardvark.inference.selection.smo import hinge_machine, path_decisions
from ardvark.inference.selection.walk import Score
from ardvark.inference.sites.likelihoods import Array
from ardvark.inference.threads import Watch, go_on, in_threads

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
    workers: int = 1
    max_steps: int = 100_000  # of one machine

    def __call__(self, X: Array, sign: Array) -> Score:
        """Search both grids."""
        distance = cdist(X, X, "sqeuclidean")
        coarse, _ = self._wrong(distance, sign, COARSE_C, COARSE_KAPPA, 0, self.screening)
        kappa, C = np.unravel_index(np.argmin(coarse.mean(axis=2)), coarse.shape[:2])
        grid_C, grid_kappa = COARSE_C[C] + FINE, COARSE_KAPPA[kappa] + FINE
        wrong, cut = self._wrong(distance, sign, grid_C, grid_kappa, 0, self.screening)
        rest = self.repeats - self.screening
        nodes = np.argsort(wrong.mean(axis=2), axis=None, kind="stable")
        best: Score | None = None
        for node in nodes[: self.finalists] if rest > 0 else nodes[:1]:
            k, c = np.unravel_index(node, wrong.shape[:2])
            by_row, unfinished = wrong[k, c], cut[k, c]
            if rest > 0:
                more, cut_more = self._wrong(
                    distance, sign, grid_C[c : c + 1], grid_kappa[k : k + 1], self.screening, rest
                )
                by_row = (self.screening * by_row + rest * more[0, 0]) / self.repeats
                unfinished += cut_more[0, 0]
            setting = {"log10_C": float(grid_C[c]), "log10_kappa": float(grid_kappa[k])}
            score = Score(float(by_row.mean()), by_row, setting, int(unfinished))
            best = score if best is None or score.loss < best.loss else best
        assert best is not None
        return best

    def _wrong(
        self, distance: Array, sign: Array, C: Array, kappa: Array, first: int, repeats: int
    ) -> tuple[Array, Array]:
        """How often each row is wrong when held out, (kappa, C, row), and machines cut there."""
        boxes = 10.0**C / 2.0
        parts = [
            part
            for repeat in range(first, first + repeats)
            for part in _folds(sign, self.folds, np.random.default_rng([self.seed, repeat]))
        ]

        def at(place: int, watch: Watch) -> tuple[Array, Array]:
            # Half precision of the other arrays is enough for an error rate, and twice as fast.
            kernel = np.exp(-0.5 * 10.0 ** kappa[place] * distance).astype(np.float32)
            wrong, unfinished = np.zeros((len(C), len(sign))), np.zeros(len(C))
            for train, test in parts:
                go_on(watch)
                f, cut = path_decisions(
                    kernel, sign, train, test, boxes, TOLERANCE, self.max_steps, watch
                )
                wrong[:, test] += f * sign[test] <= 0
                unfinished += cut
            return wrong / repeats, unfinished

        found = in_threads(at, len(kappa), self.workers)
        errors, unfinished = zip(*found, strict=True)
        return np.array(errors), np.array(unfinished)


def decide(X: Array, sign: Array, X_new: Array, setting: dict[str, float]) -> Array:
    """Decision f at new rows, of the machine with this C and κ on all rows."""
    rate = 0.5 * 10.0 ** setting["log10_kappa"]
    kernel = np.exp(-rate * cdist(X, X, "sqeuclidean"))
    v, offset = hinge_machine(kernel, sign, 10.0 ** setting["log10_C"] / 2.0)
    return np.asarray(np.exp(-rate * cdist(X_new, X, "sqeuclidean")) @ v + offset)


def _folds(
    sign: Array, folds: int, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows to train on and rows to test on, each class dealt out evenly."""
    fold = np.empty(len(sign), dtype=int)
    for value in (-1.0, 1.0):
        rows = rng.permutation(np.flatnonzero(sign == value))
        fold[rows] = np.arange(len(rows)) % folds
    for k in range(folds):
        yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)
