"""The sample-feature machines by VB and by Laplace (the RSFM), from the graph to the tree.

Weights are no invariants: eta does not change under (w, lam) -> (c w, lam / c), c of either sign.
In every tree the sign is fixed so that the lam of the largest mean size is positive; the scale is
the one of q. What can be compared are the products w_i lam_j.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ardvark.errors import UnsupportedPair
from ardvark.inference.approximate import Answer, Run
from ardvark.inference.hyper.settings import Evidence, Fixed, fixed_values
from ardvark.inference.progress import progress
from ardvark.inference.sample_feature.rsfm import rsfm
from ardvark.inference.sample_feature.search import ascend
from ardvark.inference.sample_feature.tree import SIDES, approximation_groups, basis_of, target_of
from ardvark.inference.sample_feature.vb import State
from ardvark.inference.sites.likelihoods import Array
from ardvark.inference.tree import TREATMENTS
from ardvark.inference.vb.blocks import Gamma, Known
from ardvark.inference.vb.rows import GammaNoise, GaussianRows, GivenNoise, LogisticRows, Rows
from ardvark.inference.vb.run import checked_hyper, why_not_converged
from ardvark.models.card import card_of

__all__ = ["fit_laplace", "fit_vb"]


# --- VB -------------------------------------------------------------------------------------------


def fit_vb(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Ascend from several starts, and draw from the best q."""
    card: Any = card_of(model)
    hyper = checked_hyper(settings.hyper, name)
    given = _given(model, hyper)
    basis, prior = basis_of(model), Gamma(np.array(card.a), np.array(card.b))
    with progress(name, run.progressbar) as tick:
        fit = ascend(
            basis,
            _first_rows(model, prior, given.get("beta")),
            prior,
            pruning=settings.pruning(sparse=hyper is None),
            starts=settings.starts or 3,
            tolerance=settings.tolerance,
            max_sweeps=settings.max_sweeps,
            memory=settings.memory,
            random_seed=run.seed,
            alpha_w=given.get("alpha_w"),
            alpha_lam=given.get("alpha_lam"),
            tick=tick,
        )
        state = _positive(fit.state)
        groups = approximation_groups(model, state, prior, run)
    groups["fit"] = groups["fit"].assign(
        elbo=("iteration", fit.elbo),
        elbo_whole=fit.whole,
        elbo_starts=("start", np.array(list(fit.ends.values()))),
        n_samples=("iteration", fit.size[:, 0]),
        n_features=("iteration", fit.size[:, 1]),
    )
    return groups, {
        "hyper": "posterior" if hyper is None else "fixed",
        "caption": TREATMENTS["mean field" if hyper is None else "fixed"] + _WITHOUT_TIES,
        "weights": list(SIDES),
        "converged": fit.converged,
        "problems": why_not_converged(fit, settings),
        "caution": _caution(state),
    }


_WITHOUT_TIES = "; w and lam are taken as independent, and mean nothing but by their products"


def _given(model: Any, hyper: Fixed | None) -> dict[str, Array]:
    if hyper is None:
        return {}
    names = tuple(rv.name for rv in model.free_RVs if rv.name not in SIDES)
    return fixed_values(hyper, names)


def _first_rows(model: Any, prior: Gamma, beta: Array | None) -> Rows:
    target, classes = target_of(model)
    if classes:
        return LogisticRows(target, np.ones_like(target))
    if beta is not None:
        return GaussianRows(target, GivenNoise(float(beta)))
    spread = float(target.var()) or 1.0
    return GaussianRows(target, GammaNoise(prior, Gamma(np.array(1.0), np.array(spread))))


def _positive(state: State) -> State:
    """Fix the sign: the largest lam, the constant's aside, is positive."""
    own = np.where(state.features > 0, np.abs(state.lam.mean), -1.0)
    if state.lam.mean[np.argmax(own)] >= 0:
        return state
    return state._replace(
        w=state.w._replace(mean=-state.w.mean), lam=state.lam._replace(mean=-state.lam.mean)
    )


def _caution(state: State) -> str:
    if np.any(state.samples > 0) and np.any(state.features > 0):
        return ""
    return (
        "no sample or no feature but the constant is left: the fit is a constant, and no feature "
        "is relevant. Try another gamma, prune=None, or more starts."
    )


# --- Laplace: the RSFM ----------------------------------------------------------------------------


def fit_laplace(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Type-II maximum likelihood with Laplace on each side in turn."""
    hyper = settings.hyper
    if hyper is not None and not isinstance(hyper, (Evidence, Fixed)):
        raise UnsupportedPair(
            f"{name} with hyper={type(hyper).__name__}(): a sample-feature machine takes "
            "Evidence(), which is the RSFM, or Fixed(...)."
        )
    given = _given(model, hyper if isinstance(hyper, Fixed) else None)
    target, classes = target_of(model)
    with progress(name, run.progressbar) as tick:
        fit = rsfm(
            basis_of(model),
            target,
            classes=classes,
            alpha_w=given.get("alpha_w"),
            alpha_lam=given.get("alpha_lam"),
            beta=float(given["beta"]) if "beta" in given else None,
            tick=tick,
        )
        rows: Rows = (
            LogisticRows(target, np.ones_like(target))
            if classes
            else GaussianRows(target, GivenNoise(fit.beta))
        )
        state = State(
            fit.w.block, fit.lam.block, Known(fit.w.alpha), Known(fit.lam.alpha),
            rows, fit.w.kept, fit.lam.kept,
        )  # fmt: skip
        groups = approximation_groups(model, _positive(state), None, run)
    problem = (
        ""
        if fit.converged
        else f"not converged: after {fit.sweeps} sweeps the fitted values still moved by "
        f"{fit.change:.2g} of their size in one."
    )
    treatment = "fixed" if given else "evidence"
    return groups, {
        "hyper": treatment,
        "caption": TREATMENTS[treatment] + _WITHOUT_TIES,
        "weights": list(SIDES),
        "converged": fit.converged,
        "problems": problem,
        "caution": _caution(state),
    }
