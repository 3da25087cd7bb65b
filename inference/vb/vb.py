"""Mean-field variational Bayes: the settings, shared by every model that VB fits.

    q(everything) = q(w) q(alpha) q(noise)                        ard_*, rvm_*     `linear.py`
                    q(w) q(lam) q(alpha_w) q(alpha_lam) q(beta)   `sample_feature/vb.py`

Coordinate ascent on the ELBO, put together from the blocks of `blocks.py` (Bishop & Tipping
2000; Mirzaei, Mohsenzadeh & Sheikhzadeh 2017, Mir17). The independence is paid for: sds are too
small, most of all those of parameters that the posterior ties together, and means are off where the
data do not say how large a weight is: the more so the fewer rows there are for a weight, the more
alike the inputs, and the farther the hyperprior is from the weights. Against Gibbs sampling with
the default hyperprior, regressions on 4 to 14 inputs with 40 to 4177 rows have means within 0.03 sd
and sds up to 5 % too small; 30 rows for 25 inputs, or 186 for 60, means within 0.15 sd and sds up
to 30 % too small; 30 rows for 60 inputs, a mean off by 0.3 sd. A hyperprior that is wrong by orders
of magnitude costs more:
Boston in its own units with b = 2/d, as if t had sd 1, has a mean off by 0.33 sd and an sd 37 % too
small; with a tenth of that b 0.79 sd and 84 % (`test_linear.py`). Classes: 0.2 sd with a
logit, 0.6 with a probit, on the cases of `test_references.py`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ardvark.errors import InputError
from ardvark.inference.sites.settings import MethodSettings
from ardvark.models.checks import as_flag, one_of, positive, positive_integer

__all__ = ["AUTO", "VB", "Pruning"]

AUTO = "auto"
CRITERIA = ("size", "mean")  # what the threshold is for: sqrt(E w²), or |E w| (Algorithm 1)
_PAPER = 0.01  # TH_w = TH_lambda of Mir17


class Pruning(NamedTuple):
    """When a weight leaves the model: below `threshold` times the largest, after `warm_up`."""

    threshold: float
    by: str
    warm_up: int
    reversible: bool


@dataclass(frozen=True, slots=True)
class VB(MethodSettings):
    """Settings of mean-field variational Bayes.

    Parameters
    ----------
    hyper, weights, predictor
        As in `NUTS`.
    prune : float, None or "auto"
        A weight below this share of the largest leaves the model; None keeps all. "auto" is 0.01
        for the sample-feature machine, whose flat priors drive weights to zero, and None for
        linear models, whose proper hyperpriors do not.
    prune_by : "size" or "mean"
        What is compared: sqrt(E w²), small only if mean and sd are, or |E w|, as in the paper.
    warm_up : int
        Sweeps before the first weight may leave, unless the ascent has settled earlier: precisions
        must settle first.
    reversible : bool
        After convergence, take the pruned weights in again and ascend anew; the better end is kept.
    starts : int or None
        Different starts, of which the best ELBO is kept. None: 3 for the sample-feature machine,
        1 for linear models.
    tolerance : float
        Stop when three sweeps in a row gain less than this share of the ELBO each.
    max_sweeps : int
        Sweeps from one start.
    memory : float
        Megabytes that the basis of a sample-feature machine may take; beyond it is made in chunks.
    """

    prune: float | str | None = AUTO
    prune_by: str = "mean"
    warm_up: int = 20
    reversible: bool = False
    starts: int | None = None
    tolerance: float = 1e-6
    max_sweeps: int = 2000
    memory: float = 256.0

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        if isinstance(self.prune, str):
            one_of(self.prune, (AUTO,), "prune")
        elif self.prune is not None and not positive(self.prune, "prune") < 1:
            raise InputError(f"prune is a share of the largest weight, below 1; got {self.prune!r}")
        one_of(self.prune_by, CRITERIA, "prune_by")
        as_flag(self.reversible, "reversible")
        for name in ("warm_up", "max_sweeps"):
            positive_integer(getattr(self, name), name)
        if self.starts is not None:
            positive_integer(self.starts, "starts")
        positive(self.tolerance, "tolerance")
        positive(self.memory, "memory")

    def pruning(self, *, sparse: bool) -> Pruning | None:
        """What "auto" means for a model that is (or is not) made to be sparse."""
        if self.prune is None or (self.prune == AUTO and not sparse):
            return None
        threshold = _PAPER if isinstance(self.prune, str) else float(self.prune)
        return Pruning(threshold, self.prune_by, self.warm_up, self.reversible)
