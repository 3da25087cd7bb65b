"""The ascent of a sample-feature machine from start to end: starts, leaps, pruning, stopping.

Different starts reach different optima; the end with the best bound of the whole model is kept.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.running.progress import Tick, no_tick
from ardvark.inference.sample_feature.vb import Ascent, State, Watch, readmitted
from ardvark.inference.sites.arrays import Array
from ardvark.inference.vb.blocks import Gamma, GaussianBlock, Known
from ardvark.inference.vb.climb import climb
from ardvark.inference.vb.rows import GammaNoise, GaussianRows, GivenNoise, LogisticRows, Rows
from ardvark.inference.vb.vb import Pruning

__all__ = ["BilinearFit", "ascend", "first_rows", "first_state"]

_START_SD = 0.01  # of lam: small, since a wide start drowns the first update of w


class BilinearFit(NamedTuple):
    """The best end of several starts."""

    state: State
    elbo: Array  # by sweep
    size: Array  # (sweep, 2): samples and features in the model
    converged: bool
    gain: float  # of the last sweep, as a share of the ELBO
    start: str
    whole: float  # ELBO of the whole model, what was pruned taken in again at its best
    ends: dict[str, float]  # the same by start


def ascend(
    basis: Any,
    rows: Rows,
    prior: Gamma,
    *,
    pruning: Pruning | None,
    starts: int = 3,
    tolerance: float = 1e-6,
    max_sweeps: int = 2000,
    memory: float = 256.0,
    random_seed: int = 0,
    alpha_w: Array | None = None,
    alpha_lam: Array | None = None,
    watch: Watch | None = None,
    tick: Tick = no_tick,
) -> BilinearFit:
    """Ascend from several starts and keep the end with the best ELBO.

    Parameters
    ----------
    rows, prior
        The likelihood with its starting values; Gamma(a, b) of every precision.
    alpha_w, alpha_lam
        Given precisions, inf = not in the model; without them they are inferred.
    watch
        Called with the name of each block and the state after its update.
    """

    def run(ascent: Ascent, start: str) -> BilinearFit:
        sizes = list[tuple[int, int]]()

        def told(number: int, bound: float) -> None:
            sizes.append((len(ascent.state.samples), len(ascent.state.features)))
            tick(f"start {start}, sweep {number}, ELBO {bound:.6g}, {sizes[-1][0]} samples, "
                 f"{sizes[-1][1]} features")  # fmt: skip

        found = climb(ascent, pruning, tolerance, max_sweeps, told)
        end, whole = (found.converged, found.gain), ascent.whole_bound()
        return BilinearFit(ascent.state, found.elbo, np.array(sizes), *end, start, whole, {})

    rng = np.random.default_rng(random_seed)
    fits = []
    for name, mean in _starts(basis.shape[1], starts, rng):
        state = first_state(basis.shape, mean, rows, alpha_w, alpha_lam)
        ascent = Ascent(basis, state, prior, memory, watch)
        fit = run(ascent, name)
        if pruning is not None and pruning.reversible:
            fit = max((fit, run(_whole(ascent, fit.state), name)), key=lambda end: end.whole)
        fits.append(fit)
    best = max(fits, key=lambda fit: fit.whole)
    return best._replace(ends={fit.start: fit.whole for fit in fits})


def _starts(size: int, count: int, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """Means of lam to begin with; zero would be a fixed point."""
    yield "ones", np.ones(size)
    if count > 1:
        yield "shares", np.full(size, 1.0 / size)
    for k in range(count - 2):
        yield f"random {k}", rng.standard_normal(size)


def first_state(
    shape: tuple[int, int, int],
    mean: Array,
    rows: Rows,
    alpha_w: Array | None,
    alpha_lam: Array | None,
) -> State:
    """Give every factor of q a start; precisions that are given stay, infinite ones are out."""
    sides = []
    for size, given in ((shape[2], alpha_w), (shape[1], alpha_lam)):
        known = None if given is None else np.broadcast_to(given, size)
        index = np.arange(size) if known is None else np.flatnonzero(np.isfinite(known))
        ones = np.ones(len(index))
        sides.append((index, Gamma(ones, ones) if known is None else Known(known[index])))
    (samples, of_w), (features, of_lam) = sides
    return State(
        _narrow(np.zeros(len(samples))),
        _narrow(mean[features]),
        of_w,
        of_lam,
        rows,
        samples,
        features,
    )


def _narrow(mean: Array) -> GaussianBlock:
    size = len(mean)
    return GaussianBlock(mean, _START_SD * np.eye(size), size * float(np.log(_START_SD)))


def _whole(ascent: Ascent, state: State) -> Ascent:
    """The same ascent from an end, with what was pruned taken in again."""
    shape = ascent.basis.shape
    narrow, one = _START_SD**2, Gamma(np.array(1.0), np.array(1.0))
    w, of_w = readmitted(state.w, state.alpha_w, state.samples, np.full(shape[2], narrow), one)
    lam, of_lam = readmitted(
        state.lam, state.alpha_lam, state.features, np.full(shape[1], narrow), one
    )
    whole = State(w, lam, of_w, of_lam, state.rows, np.arange(shape[2]), np.arange(shape[1]))
    return Ascent(ascent.basis, whole, ascent.prior, ascent.memory, ascent.watch)


def first_rows(target: Array, classes: bool, prior: Gamma, beta: Any = None) -> Rows:
    """The likelihood with its starting values: signs, or targets with a noise precision."""
    if classes:
        return LogisticRows(target, np.ones_like(target))
    if beta is not None:
        return GaussianRows(target, GivenNoise(float(beta)))
    spread = float(target.var()) or 1.0
    return GaussianRows(target, GammaNoise(prior, Gamma(np.array(1.0), np.array(spread))))
