"""What can happen to the hyperparameters θ around an approximation: the settings.

| choice | what it does |
|---|---|
| `Fixed(values)` | nothing: θ is given, by a mapping or by another fit's tree |
| `Evidence()` | maximises log p(t | θ): ARD precisions one at a time, the rest by gradient |
| `Integrated()` | integrates θ out under the priors that were written, by weighted points |
| `Predictive()` | walks the same path of ARD steps, then takes the step of the best leave-one-out |
| `Sampled()` | draws θ too: a Markov chain that moves the weights by the approximation, exactly |

`Evidence` does not see the hyperprior (type-II maximum likelihood) unless `with_prior=True`;
then everything goes by gradient and no weight is pruned, since the sequential steps maximise the
evidence alone. Qi, Minka, Picard & Ghahramani 2004: ARD-Laplace is `Laplace(hyper=Evidence())`,
evidence-ARD-EP `EP(hyper=Evidence())`, predictive-ARD-EP `EP(hyper=Predictive())` and
predictive_Prob-ARD-EP `EP(hyper=Predictive("loo_probability"))`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.ard.fixed_point import UPDATES
from ardvark.inference.ard.sequential_ard import ArdStep
from ardvark.inference.hyper.starts import SCALE_FACTORS, Start, checked_start
from ardvark.inference.running.until import check_until
from ardvark.inference.sites.moves import KERNELS
from ardvark.models.checks import (
    as_count,
    as_flag,
    integer_from,
    one_of,
    positive,
    positive_integer,
)

__all__ = [
    "CRITERIA",
    "UNCONSTRAINED",
    "Evidence",
    "Fixed",
    "Integrated",
    "Predictive",
    "Sampled",
]

ALGORITHMS = ("sequential", *UPDATES)
UNCONSTRAINED = "unconstrained"
SAMPLED_KERNELS = (*KERNELS, "exact", "nuts")
# criterion → the number of an ARD step that it minimises
CRITERIA = {
    "loo_error": "loo_error",  # Qi04 (12)
    "loo_probability": "log_loo_error_smooth",  # Qi04 (13), in the log domain
    "loo_unsigned": "loo_error_unsigned",  # Opper & Winther's alternative to (13)
}


@dataclass(frozen=True, slots=True)
class Fixed:
    """Hyperparameters at given values: a mapping name → value, or the tree of another fit."""

    values: Any = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hyperparameters that maximise the evidence.

    Parameters
    ----------
    algorithm : str
        How ARD precisions are searched: "sequential" (one weight at a time: fast, can add what was
        deleted), "mackay" or "em" (all at once, from a model with every weight). More than two
        classes: "sequential" fits one machine for each class against the rest.
    with_prior : bool or "unconstrained"
        Add the log density of the hyperprior: a mode, not type-II ML. True: on the natural scale.
        "unconstrained": on the scale on which PyMC samples, log |dθ/dφ| included, where no scale
        can go to zero under a prior that is finite there; the centre of `Integrated()`.
    start : str, tuple, mapping, or a list of these; optional
        Where ARD precisions start: "empty" (the default: the first step adds the weight of the
        largest gain), "all", ("random", k), ("random", k, seed), ("correlated", k), all with
        precision 1; or values by name, `inf` = this weight starts outside the model (other
        hyperparameters may be given too; Gaussian noise starts at a tenth of its support point).
        Of a list the start with the best end is kept. For the covariance of a process
        ("random", k, seed) is k starts with scattered kappa_a, ten of them (one for EP) by default.
    starts : int
        How many starts of kernel scales (a width, the scales of inputs) are tried where `start` is
        not given: 1, 1/3, 3, 1/9 and 9 times the support point, in this order. At each the ARD
        steps are walked once, and the search goes on from the largest evidence. One by default: a
        narrow kernel with a precision per row can explain everything, so that more starts find
        larger evidences and, at times, worse predictions.
    tolerance : float
        Stop when a round, or an ARD step, gains less than this many nats.
    max_rounds : int
        Rounds of (ARD steps, gradient ascent on the rest).
    max_steps : int
        ARD steps, or gradient iterations, in a round.
    """

    algorithm: str = "sequential"
    with_prior: bool | str = False
    start: Start | list[Start] | None = None
    starts: int = 1
    tolerance: float = 1e-6
    max_rounds: int = 50
    max_steps: int = 5000

    def __post_init__(self) -> None:
        if positive_integer(self.starts, "starts") > len(SCALE_FACTORS):
            raise InputError(
                f"starts must be a whole number from 1 to {len(SCALE_FACTORS)}; got {self.starts!r}"
            )
        one_of(self.algorithm, ALGORITHMS, "algorithm")
        if self.with_prior not in (False, True, UNCONSTRAINED):
            raise InputError(
                f"with_prior must be False, True or {UNCONSTRAINED!r}; got {self.with_prior!r}"
            )
        _check_search(self)


@dataclass(frozen=True, slots=True)
class Integrated:
    """Hyperparameters integrated out under the priors that were written, by weighted points.

    The default for a graph of one's own with at most ten of them. `Fixed(tree)` of such a fit
    takes the mode on the unconstrained scale, around which the points stand.

    Parameters
    ----------
    points : int, optional
        Values of the hyperparameters at which the weights are approximated, rounded up to a power
        of two; in three and more dimensions in each of two to eight rounds. None: 128 for one or
        two scalar hyperparameters, 256 for more.
    correct : bool
        Resample the draws of weights and hyperparameters by Pareto-smoothed importance weights
        towards the posterior of the graph itself: right where k-hat is below 0.7.
    """

    points: int | None = None
    correct: bool = False

    def __post_init__(self) -> None:
        if self.points is not None:
            integer_from(32, self.points, "points")
        as_flag(self.correct, "correct")


@dataclass(frozen=True, slots=True)
class Predictive:
    """ARD precisions from the path of the evidence, chosen by leave-one-out.

    Parameters
    ----------
    criterion : str or callable
        "loo_error": Qi04 (12); "loo_probability": Qi04 (13); "loo_unsigned": Opper & Winther; or a
        function of an `ArdStep` (its `.info`, `.active`, `.log_evidence`), to be minimised. A tie
        goes to the first on the path.
    start, tolerance, max_rounds, max_steps
        As in `Evidence`. Of a list of starts the path with the best chosen step is kept.
    """

    criterion: str | Callable[[ArdStep], float] = "loo_error"
    start: Start | list[Start] | None = None
    tolerance: float = 1e-6
    max_rounds: int = 50
    max_steps: int = 5000

    def __post_init__(self) -> None:
        known = isinstance(self.criterion, str) and self.criterion in CRITERIA
        if not callable(self.criterion) and not known:
            raise InputError(
                f"criterion must be one of {', '.join(CRITERIA)}, or a function; "
                f"got {self.criterion!r}"
            )
        _check_search(self)

    def of(self, step: ArdStep) -> float:
        """The criterion at a step of the path."""
        if callable(self.criterion):
            return float(self.criterion(step))
        number = CRITERIA[self.criterion]
        if number not in step.info:
            raise UnsupportedPair(
                f"hyper=Predictive({self.criterion!r}) needs leave-one-out errors of two classes, "
                f"which EP gives for a classification model; this fit has "
                f"{', '.join(step.info) or 'none'}. Use EP(hyper=Predictive()), or Evidence()."
            )
        return step.info[number]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Hyperparameters drawn together with the weights: the full posterior, by a Markov chain.

    Parameters
    ----------
    kernel : str
        How weights move given θ: "elliptical" (a slice on an ellipse of the approximation, never
        rejects), "independence" (Metropolis-Hastings with proposals from it), "draw" (the
        approximation itself: not exact, and the tree says so), or "exact" (independent exact
        draws: probit and logit likelihoods with more weights than rows, or few weights). "nuts"
        uses no approximation: it is the fit by NUTS().
    scale : bool
        Also move ARD precisions together with their weights, at a fixed w sqrt(alpha), and with
        kernel="exact" given no weights at all: without it precisions of weights that the data say
        little about mix badly.
    tune : int
        Sweeps of each chain that are thrown away.
    sweeps : int
        Sweeps of EP that make the approximation at each new θ, always from a cold start. More
        of them make the moves better, not more exact.
    until, most_draws
        As in `NUTS`, with the longer chains run again from the same seed.
    """

    kernel: str = "elliptical"
    scale: bool = True
    tune: int = 500
    sweeps: int = 4
    until: str | None = None
    most_draws: int | None = None

    def __post_init__(self) -> None:
        one_of(self.kernel, SAMPLED_KERNELS, "kernel")
        as_count(self.tune, "tune")
        positive_integer(self.sweeps, "sweeps")
        check_until(self.until, self.most_draws)


def _check_search(settings: Any) -> None:
    positive(settings.tolerance, "tolerance")
    positive_integer(settings.max_rounds, "max_rounds")
    positive_integer(settings.max_steps, "max_steps")
    for start in settings.start if isinstance(settings.start, list) else [settings.start]:
        checked_start(start)
