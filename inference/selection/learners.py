"""The trigonometric SVM as its own learner in a feature selection: no folds and no grid.

| learner              | loss                                           | cost of a subset      |
|----------------------|------------------------------------------------|-----------------------|
| `EvidenceLearner`    | minus the log evidence: (15), or a rule's      | one search            |
| `LeaveOneOutLearner` | mean of -ln p(t_n given the rest), EP's cavity | one search and one EP |

The evidence pays for features by itself; that of Laplace, Chu06 (15), is coarse (see the README):
`EvidenceLearner(rule=EP())` has EP's. Leave-one-out judges predictions, row by row, at the κ where
the evidence is largest: κ has seen the row, which makes it a little too good.
"""

from dataclasses import dataclass, field

import numpy as np

from ardvark.inference.ep.ep import EP
from ardvark.inference.process.evidence import Process, maximise, random_starts, site_model
from ardvark.inference.selection.walk import Score
from ardvark.inference.sites.approximation import Approximation
from ardvark.inference.sites.arrays import Array
from ardvark.models.covariances import ARDGaussian, Covariance

__all__ = ["EvidenceLearner", "LeaveOneOutLearner"]


@dataclass(frozen=True, slots=True)
class EvidenceLearner:
    """Loss: minus the largest log evidence on the columns."""

    covariance: Covariance = field(default_factory=ARDGaussian)
    rule: Approximation | None = None
    starts: int = 1
    seed: int = 0

    def __call__(self, X: Array, sign: Array) -> Score:
        """Maximise the evidence."""
        process = Process.of(X, sign, self.covariance)
        starts = random_starts(process, self.starts, self.seed)
        found = maximise(process, self.rule, starts=starts)
        end = found.optima.ends[0]
        return Score(-end.value, None, _scalars(found.theta[0]), int(not end.converged))


@dataclass(frozen=True, slots=True)
class LeaveOneOutLearner:
    """Loss: mean negative log probability of a row's label given the other rows."""

    covariance: Covariance = field(default_factory=ARDGaussian)
    search: Approximation | None = None  # whose evidence sets κ; None: (15)
    rule: EP = field(default_factory=EP)
    starts: int = 1
    seed: int = 0

    def __call__(self, X: Array, sign: Array) -> Score:
        """Set κ by the evidence, then read the cavities."""
        process = Process.of(X, sign, self.covariance)
        starts = random_starts(process, self.starts, self.seed)
        found = maximise(process, self.search, starts=starts)
        covariance = process.matrices(process.kappa(found.theta[0]))[1]
        fit = self.rule.approximate(site_model(process, covariance))
        by_row = -fit.by_row["log_loo_probability"]
        cut = int(not found.optima.ends[0].converged) + int(not fit.converged)
        return Score(float(by_row.mean()), by_row, _scalars(found.theta[0]), cut)


def _scalars(theta: dict[str, Array]) -> dict[str, float]:
    return {name: float(value) for name, value in theta.items() if np.ndim(value) == 0}
