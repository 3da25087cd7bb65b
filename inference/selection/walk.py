"""Feature selection in two steps: rank the features, then see how many of them a learner needs.

| Chu, Keerthi, Ong & Ghahramani 2006         | code                                               |
|---------------------------------------------|----------------------------------------------------|
| table 1, ranking by (19)                     | `ByRelevance`                                     |
| table 1, selection; section 3.2              | `forward`                                         |
| "not increasing significantly"               | `excess`: in units of the paired standard error   |
| table 1, exit: the top k - 1                 | `Path.stop`                                       |
| backward elimination, section 3.3            | `backward`                                        |
| Fisher score (20), RELIEF                    | `filters.py`                               |

A ranker is a function of (X, y = ±1) that scores every feature, a learner one that gives the loss
of a machine on a subset of the columns: a cross-validated SVM (`svm.py`) as in the paper, or
the trigonometric SVM itself (`learners.py`), whose evidence or leave-one-out needs no fold.

The stopping rule: k features are significantly worse than the best set so far if their mean loss is
larger by more than `significance` standard errors of the difference, taken over the rows. The first
such k ends table 1, which returns k - 1: it falls at the first stumble, and keeps a plateau whole.
`Path.smallest` is the smallest set that is not significantly worse than the best of all; its walk
goes on until `patience` features have been added to that set without a gain. Losses without rows
(an evidence) have a standard error of one nat. `studies/papers/stopping.py` holds the rules
against the truth.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ardvark.inference.process.evidence import Found, Process, maximise, random_starts
from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sites.approximation import Approximation
from ardvark.inference.sites.arrays import Array, Index
from ardvark.models.covariances import ARDGaussian, Covariance

__all__ = [
    "ByRelevance",
    "Learner",
    "Path",
    "Ranking",
    "Score",
    "backward",
    "excess",
    "forward",
    "weighted_columns",
]


ONE_NAT = 1.0


class Score(NamedTuple):
    """Loss of a learner on some columns: the smaller the better."""

    loss: float
    by_row: Array | None  # (N,), of which `loss` is the mean; None where there is no such thing
    setting: dict[str, float]  # what the learner chose
    unfinished: int = 0  # machines or searches behind it that were cut before they converged

    @property
    def error(self) -> float:
        """Standard error of the loss over rows."""
        if self.by_row is None:
            return ONE_NAT
        return float(self.by_row.std(ddof=1) / np.sqrt(len(self.by_row)))


class Learner(Protocol):
    """A machine that is tried on a subset of the columns."""

    def __call__(self, X: Array, sign: Array) -> Score:
        """Loss on the columns of X."""


class Ranking(NamedTuple):
    """A score for each feature, the larger the better, and its spread where there is one."""

    score: Array
    spread: Array
    found: Found | None = None

    @property
    def order(self) -> Index:
        """Features from the best to the worst; ties in the order of the columns."""
        return np.argsort(-self.score, kind="stable")


class Path(NamedTuple):
    """Subsets that were tried, one after the other, and what they were worth."""

    subsets: tuple[Index, ...]  # forward: in the order of the ranking
    scores: tuple[Score, ...]
    stop: int  # number of the subset at which table 1 ends
    smallest: int  # of the smallest subset that is as good as the best

    @property
    def losses(self) -> Array:
        """Loss of each subset."""
        return np.array([score.loss for score in self.scores])


@dataclass(frozen=True, slots=True)
class ByRelevance:
    """Rank by the expected relevance over the optima of the trigonometric SVM's evidence."""

    starts: int = 10
    seed: int = 0
    covariance: Covariance = field(default_factory=ARDGaussian)
    rule: Approximation | None = None  # None: (15), on the support vectors
    executor: Any = None  # None: threads of this process
    tick: Tick = no_tick

    def __call__(self, X: Array, sign: Array) -> Ranking:
        """Infer the hyperparameters from each start."""
        process = Process.of(X, sign, self.covariance)
        starts = random_starts(process, self.starts, self.seed)
        found = maximise(
            process, self.rule, starts=starts, executor=self.executor, tick=self.tick,
            workers=os.cpu_count() or 1,
        )  # fmt: skip
        optima = found.optima
        return Ranking(optima.expected_relevance, optima.relevance_spread, found)  # Chu06 (19)


def excess(score: Score, best: Score) -> float:
    """By how many standard errors a score is worse than another one on the same rows."""
    worse = score.loss - best.loss
    if score.by_row is None or best.by_row is None:
        return worse / ONE_NAT
    apart = score.by_row - best.by_row
    error = float(apart.std(ddof=1) / np.sqrt(len(apart)))
    return worse / error if error > 0 else float(np.sign(worse)) * np.inf if worse else 0.0


def forward(
    X: Array,
    sign: Array,
    order: Index,
    learner: Learner,
    *,
    most: int | None = None,
    significance: float = 1.0,
    patience: int | None = None,
    beyond: bool = False,
    tick: Tick = no_tick,
) -> Path:
    """Try the top 1, 2, ... features of a ranking: table 1 of Chu06.

    Parameters
    ----------
    most, significance, beyond
        As in `select_features`.
    patience
        End when this many features have been added without a gain to the smallest set that is as
        good as the best; None: end where table 1 does.
    """
    subsets: list[Index] = []
    scores: list[Score] = []
    stop: int | None = None
    for k in range(1, min(most or len(order), len(order)) + 1):
        subsets.append(np.asarray(order[:k]))
        scores.append(learner(X[:, subsets[-1]], sign))
        tick(f"{k} features: {scores[-1].loss:.4f}")
        if stop is None and excess(scores[-1], _best(scores)) > significance:
            stop = k - 2  # the k - 1 features before the one that hurt
        if patience is None:
            over = stop is not None
        else:
            over = k - 1 - _smallest(subsets, scores, significance) >= patience
        if over and not beyond:
            break
    stop = len(scores) - 1 if stop is None else stop
    return Path(tuple(subsets), tuple(scores), stop, _smallest(subsets, scores, significance))


def backward(
    X: Array,
    sign: Array,
    rank: Callable[[Array, Array], Ranking],
    learner: Learner | None = None,
    *,
    least: int = 1,
    share: float = 0.0,
    significance: float = 1.0,
    tick: Tick = no_tick,
) -> Path:
    """Drop the least relevant feature, rank the others anew, and so on: section 3.3 of Chu06.

    Parameters
    ----------
    rank
        Called on every subset; its ranking tells what goes next. Where it searches an evidence
        and no `learner` is given, minus that evidence is the loss.
    least
        Number of features at which to end.
    share
        This share of the features goes at once (0.5 halves them), but always one at least.
    """
    subsets: list[Index] = []
    scores: list[Score] = []
    kept = np.arange(X.shape[1])
    while True:
        ranking = rank(X[:, kept], sign)
        kept = kept[ranking.order]
        subsets.append(kept)
        scores.append(learner(X[:, kept], sign) if learner else _evidence_of(ranking))
        tick(f"{len(kept)} features: {scores[-1].loss:.4f}")
        if len(kept) <= least:
            break
        kept = kept[: max(least, min(len(kept) - 1, round(len(kept) * (1.0 - share))))]
    smallest = _smallest(subsets, scores, significance)
    return Path(tuple(subsets), tuple(scores), smallest, smallest)


def weighted_columns(X: Array, relevance: Array) -> Array:
    """Columns on a scale where a Gaussian kernel of one width weighs them by their relevance.

    The mean weight is 1, so that the width means what it means without weights.
    """
    return np.asarray(X * np.sqrt(relevance / np.mean(relevance)))


def _best(scores: Sequence[Score]) -> Score:
    return min(scores, key=lambda score: score.loss)


def _smallest(subsets: Sequence[Index], scores: Sequence[Score], significance: float) -> int:
    best = _best(scores)
    good = [n for n, score in enumerate(scores) if excess(score, best) <= significance]
    return min(good, key=lambda n: len(subsets[n]))


def _evidence_of(ranking: Ranking) -> Score:
    if ranking.found is None:
        raise ValueError("this ranking has no evidence: give a learner that scores the subsets.")
    return Score(-ranking.found.optima.ends[0].value, None, {})
