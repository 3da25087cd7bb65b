"""The kernel width of a sample-feature machine: by validation rows, by folds, or by the ELBO.

Mir17 choose gamma by the error on a validation set, or in five folds. The ELBO needs neither: it
is the bound on log p(t | gamma) that each fit ends with, so all rows can train. It is quick and not
as good: under the flat hyperpriors it takes narrow kernels (the study `mirzaei2017`, "elbo").

| by           | what is least                                                                     |
|--------------|-----------------------------------------------------------------------------------|
| "elbo"       | minus the ELBO                                                                    |
| "validation" | mean square error, or mean log loss of two classes, on given rows                 |
| "cv"         | the same on the rows left out, over all folds                                     |

The fits are those of `av.fit`, without trees: arrays in, numbers out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.arguments import check_model
from ardvark.inference.laplace import Laplace
from ardvark.inference.running.executor import check_executor, run_tasks
from ardvark.inference.sample_feature.basis import KernelBasis
from ardvark.inference.sample_feature.rsfm import rsfm, rsfm_state
from ardvark.inference.sample_feature.search import ascend, first_rows
from ardvark.inference.sample_feature.vb import State, eta_moments
from ardvark.inference.sites.arrays import Array, Index
from ardvark.inference.sites.likelihoods import LogitSites
from ardvark.inference.sites.quadrature import quadrature_tilted
from ardvark.inference.vb.blocks import Gamma
from ardvark.inference.vb.vb import VB
from ardvark.models.card import card_of
from ardvark.models.checks import Seed, one_of, positive, positive_integer, some_seed
from ardvark.models.inputs import scaled_like

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GAMMAS", "GammaSearch", "Machine", "search_gamma", "train"]

GAMMAS = tuple(2.0**k for k in range(-6, 3))  # Mir17: width 1/gamma in 2^-2 ... 2^6
RULES = ("elbo", "validation", "cv")


class GammaSearch(NamedTuple):
    """The best gamma, and a row for each that was tried."""

    gamma: float
    table: pd.DataFrame  # index gamma: score (least is best), elbo, samples, features, seconds


class Machine(NamedTuple):
    """A trained machine: both blocks, and the ELBO if there is one."""

    basis: KernelBasis
    state: State
    classes: bool
    elbo: float
    converged: bool

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of eta at new rows."""
        basis = KernelBasis(self.basis.kernel, X, self.basis.centres, self.basis.gamma)
        first, second = eta_moments(basis, self.state)
        return first, np.maximum(second - first**2, 0.0)

    def probability(self, X: Array) -> Array:
        """P(second class) at new rows, eta taken as Gaussian."""
        mean, variance = self.moments(X)
        sites = LogitSites(np.ones_like(mean))
        tilted = quadrature_tilted(sites.log, mean, np.maximum(variance, 1e-300))
        return np.asarray(np.exp(tilted.log_z))

    def loss(self, X: Array, target: Array) -> float:
        """Mean square error, or mean log loss where targets are signs."""
        if not self.classes:
            return float(np.mean((self.moments(X)[0] - target) ** 2))
        positive = np.clip(self.probability(X), 1e-12, 1 - 1e-12)
        return float(-np.mean(np.where(target > 0, np.log(positive), np.log1p(-positive))))

    @property
    def samples(self) -> Index:
        """Samples that are in the model, counted from 0."""
        return self.state.samples[self.state.samples > 0] - 1

    @property
    def features(self) -> Index:
        """Features that are in the model, counted from 0; none without a sample."""
        return self.state.features[self.state.features > 0][: None if self.samples.size else 0] - 1


def train(
    method: VB | Laplace,
    basis: KernelBasis,
    target: Array,
    *,
    classes: bool,
    a: float = 1e-6,
    b: float = 1e-6,
    random_seed: int = 0,
) -> Machine:
    """Fit one machine on arrays: targets, or signs ±1 with `classes`."""
    if isinstance(method, Laplace):
        found = rsfm(basis, target, classes=classes)
        state = rsfm_state(found, target, classes)
        return Machine(basis, state, classes, np.nan, found.converged)
    prior = Gamma(np.array(a), np.array(b))
    fit = ascend(
        basis,
        first_rows(target, classes, prior),
        prior,
        pruning=method.pruning(sparse=True),
        starts=method.starts or 3,
        tolerance=method.tolerance,
        max_sweeps=method.max_sweeps,
        memory=method.memory,
        random_seed=random_seed,
    )
    return Machine(basis, fit.state, classes, fit.whole, fit.converged)


def search_gamma(
    model: Any,
    method: Any = None,
    *,
    by: str = "cv",
    gammas: Sequence[float] = GAMMAS,
    validation: tuple[Any, Any] | None = None,
    folds: int = 5,
    random_seed: Seed = 0,
    executor: Any = None,
) -> GammaSearch:
    """Choose the gamma of a sample-feature machine.

    Parameters
    ----------
    model : pm.Model
        Of `sample_feature_*`; it is not changed: `model.set_data("gamma", found.gamma)`.
    method : VB() or Laplace()
        VB() by default; the RSFM has no ELBO.
    by : "cv", "validation" or "elbo"
        The ELBO needs neither folds nor rows, and takes narrower kernels than predict best.
    gammas : numbers to try
    validation : (X, t)
        Rows for by="validation".
    folds : int
        For by="cv".
    executor : int, Dask Client, address or concurrent.futures' Executor, optional
        Who tries them: 2 for two processes, `"tcp://..."` for a cluster.
    """
    model, executor = check_model(model), check_executor(executor)
    method = method or VB()
    card: Any = card_of(model)
    _check(card, method, one_of(by, RULES, "by"), validation)
    grid = [positive(g, "gammas") for g in gammas]
    if not grid:
        raise InputError("gammas is empty: give at least one number to try.")
    trials = list(_trials(model, card, by, validation, positive_integer(folds, "folds")))
    seed = some_seed(random_seed)
    shape = _Shape(card.kernel, card.a, card.b, card.task == "binary")
    lines = run_tasks(partial(_line, method, shape, trials, by, seed), grid, executor)
    import pandas as pd

    table = pd.DataFrame(lines, index=pd.Index(grid, name="gamma"))
    return GammaSearch(grid[int(np.argmin(table["score"].to_numpy()))], table)


class _Shape(NamedTuple):
    """What a machine is made of, from the card of its model."""

    kernel: Any
    a: float
    b: float
    classes: bool


class _Trial(NamedTuple):
    X: Array
    target: Array
    X_left: Array
    target_left: Array


def _check(card: Any, method: Any, by: str, validation: Any) -> None:
    if card is None or card.family != "sample_feature":
        built = "a graph of your own" if card is None else card.builder
        raise UnsupportedPair(f"search_gamma is for models of sample_feature_*, found {built}.")
    if not isinstance(method, (VB, Laplace)):
        raise UnsupportedPair(f"search_gamma takes VB() or Laplace(), got {method!r}.")
    if by == "elbo" and isinstance(method, Laplace):
        raise UnsupportedPair('by="elbo": Laplace() has no ELBO. Use by="validation" or "cv".')
    if (by == "validation") != (validation is not None):
        raise InputError('by="validation" and validation=(X, t) go together: give both or neither.')


def _trials(model: Any, card: Any, by: str, validation: Any, folds: int) -> Iterator[_Trial]:
    from ardvark.inference.sample_feature.tree import target_of

    X, (target, classes) = model["X"].get_value(), target_of(model)
    if by == "elbo":
        yield _Trial(X, target, X[:0], target[:0])
    elif by == "validation":
        X_left = np.asarray(scaled_like(validation[0], card.scaling, card.feature_names), float)
        left = np.asarray(validation[1])
        if len(left) != len(X_left):
            raise InputError(f"validation has {len(X_left)} rows of X and {len(left)} of t.")
        signs = np.where(left == card.classes[1], 1.0, -1.0) if classes else left.astype(float)
        yield _Trial(X, target, X_left, signs)
    else:
        fold = np.random.default_rng(0).permutation(np.arange(len(X)) % folds)
        for k in range(folds):
            out = fold == k
            yield _Trial(X[~out], target[~out], X[out], target[out])


def _line(
    method: Any, shape: _Shape, trials: list[_Trial], by: str, seed: int, gamma: float
) -> dict[str, float]:
    """Score one gamma: means over the folds."""
    begin, numbers = time.process_time(), []
    for trial in trials:
        basis = KernelBasis(shape.kernel, trial.X, trial.X, gamma)
        machine = train(
            method, basis, trial.target,
            classes=shape.classes, a=shape.a, b=shape.b, random_seed=seed,
        )  # fmt: skip
        score = -machine.elbo if by == "elbo" else machine.loss(trial.X_left, trial.target_left)
        numbers.append((score, machine.elbo, len(machine.samples), len(machine.features)))
    names = ("score", "elbo", "samples", "features")
    means = np.mean(numbers, axis=0)
    return {
        **dict(zip(names, means.tolist(), strict=True)),
        "seconds": time.process_time() - begin,
    }
