"""Agreement of an answer with its reference, in units of the reference's posterior sd.

Notation: m, s are mean and sd of a weight under a method, m*, s* under the reference.

| figure            | formula                                                            |
|-------------------|--------------------------------------------------------------------|
| mean error        | (m - m*) / s*                                                      |
| its MCSE          | sqrt(se(m)² + se(m*)²) / s*, se as ArviZ has it for chains         |
| log sd ratio      | log(s / s*)                                                        |
| its MCSE          | sqrt(se(s)²/s² + se(s*)²/s*²), from the fourth moments             |
| quantile error    | (q - q*) / s* at 5 % and 95 %                                      |
| wasserstein       | W1 of the two marginals / s*                                       |
| wasserstein null  | W1 of two halves of the reference / s*: what noise alone gives     |
| correlation error | largest |r - r*| of two weights; its null is that of two halves    |

What can be compared. A sample-feature machine, eta_n = w' Phi_n lam, is the same for (w, lam) and
(c w, lam / c), so two correct answers may differ in every weight: it is compared by the products
w_i lam_j of samples and features, which depend neither on c nor on its sign, and by its noise. The
kernels of a mixture can be in any order: it is compared by which inputs are included.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.compare.reference import integrates_hyperparameters
from ardvark.diagnostics.reading import (
    WITHOUT_WEIGHTS,
    constant_columns,
    draws_of,
    element_labels,
    has_rows,
    held_values,
    moments,
    sampling_kind,
    theta_variables,
    weight_variables,
)
from ardvark.errors import InputError
from ardvark.inference.samplers.chain_statistics import mcse_mean, mcse_sd
from ardvark.inference.sites.arrays import Array

__all__ = [
    "Paired",
    "agreement",
    "correlation_error",
    "figures_by_weight",
    "halves",
    "paired_draws",
    "wasserstein",
]

Known = Mapping[str, tuple[float, float]]  # mean and sd by name

LEAST = 0.1  # sd of an indicator that hardly ever changes: a tenth in probability counts
MOST_CORRELATIONS = 1000  # weights; the correlations of more are not computed
MOST_NUMBERS = 2**25  # of products of weights, which are thinned; of distances, made in parts


def agreement(tree: xr.DataTree, reference: xr.DataTree) -> pd.DataFrame:
    """Compare two answers weight by weight.

    Hyperparameters are compared where both trees sampled them. What is constant in both (pruned,
    fixed) is left out; constant in ``tree`` alone has log sd ratio -inf, in ``reference`` alone
    +inf, with infinite errors in units of its zero sd. Draws that are not finite are treated alike.

    Returns
    -------
    DataFrame, index = ``bias``, ``w[x0]``, …; columns ``role``, ``mean``, ``sd``,
    ``reference_mean``, ``reference_sd``, ``mean_error``, ``mean_error_mcse``, ``log_sd_ratio``,
    ``log_sd_ratio_mcse``, ``q05_error``, ``q95_error``, ``wasserstein``, ``wasserstein_null``.
    """
    return figures_by_weight(paired_draws(tree, reference))


class Paired(NamedTuple):
    """Draws of two trees of what both have, in one order: (chain, draw, element)."""

    names: list[str]
    roles: list[str]
    ours: Array
    theirs: Array
    kinds: tuple[str, str]  # sampling kinds
    known: tuple[Known, Known] = ({}, {})  # moments that need no draws

    def only_weights(self) -> "Paired":
        """Leave the hyperparameters out."""
        return self._only("weight")

    def only_hyperparameters(self) -> "Paired":
        """Leave the weights out; positive hyperparameters by their logs, which have moments."""
        found = self._only("hyperparameter")
        positive = (found.ours > 0).all(axis=(0, 1)) & (found.theirs > 0).all(axis=(0, 1))
        names = [f"log {n}" if p else n for n, p in zip(found.names, positive, strict=True)]
        ours, theirs = (
            np.where(positive, np.log(np.where(positive, draws, 1.0)), draws)
            for draws in (found.ours, found.theirs)
        )
        return found._replace(names=names, ours=ours, theirs=theirs)

    def _only(self, role: str) -> "Paired":
        at = [i for i, found in enumerate(self.roles) if found == role]
        names, roles = ([part[i] for i in at] for part in (self.names, self.roles))
        draws = self.ours[..., at], self.theirs[..., at]
        return Paired(names, roles, *draws, self.kinds, self.known)


def paired_draws(tree: xr.DataTree, reference: xr.DataTree) -> Paired:
    """Return what both trees have and one at least moves, in invariants where weights have none."""
    tree, reference = _in_invariants(tree), _in_invariants(reference)
    kinds = sampling_kind(tree), sampling_kind(reference)
    known = known_moments(tree), known_moments(reference)
    return Paired(*_paired_draws(tree, reference), kinds, known)


def figures_by_weight(pairs: Paired) -> pd.DataFrame:
    """Return the figures of every element of a pair."""
    ours, theirs = pairs.ours, pairs.theirs
    indicator = [np.isin(draws, (0.0, 1.0)).all(axis=(0, 1)) for draws in (ours, theirs)]
    both = indicator[0] & indicator[1]
    (mean, sd, ours_noise), (reference_mean, reference_sd, theirs_noise) = (
        _moments(draws, kind, [known.get(name) for name in pairs.names])
        for draws, kind, known in zip((ours, theirs), pairs.kinds, pairs.known, strict=True)
    )
    sd, reference_sd = (np.where(both, np.hypot(s, LEAST), s) for s in (sd, reference_sd))
    noise = np.hypot(ours_noise.mean, theirs_noise.mean)
    quantiles = _quantiles(ours) - _quantiles(theirs)
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = {
            "role": pairs.roles,
            "mean": mean,
            "sd": sd,
            "reference_mean": reference_mean,
            "reference_sd": reference_sd,
            "mean_error": _no_nan((mean - reference_mean) / reference_sd),
            "mean_error_mcse": _no_nan(noise / reference_sd),
            "log_sd_ratio": _no_nan(np.log(sd / reference_sd)),
            "log_sd_ratio_mcse": np.hypot(ours_noise.log_sd, theirs_noise.log_sd),
            "q05_error": _no_nan(quantiles[0] / reference_sd),
            "q95_error": _no_nan(quantiles[1] / reference_sd),
            "wasserstein": _no_nan(wasserstein(ours, theirs) / reference_sd),
            "wasserstein_null": _no_nan(wasserstein(*halves(theirs)) / reference_sd),
        }
    return pd.DataFrame(columns, index=pd.Index(pairs.names, name="parameter"))


# ------------------------------------------------------------------------------------- paired draws


def _paired_draws(
    tree: xr.DataTree, reference: xr.DataTree
) -> tuple[list[str], list[str], Array, Array]:
    """Names, roles, draws (chain, draw, element) of what both trees have and one at least moves."""
    weights, hyperparameters = _common_variables(tree, reference)
    names, ours = _stacked(tree, weights + hyperparameters)
    names_there, theirs = _stacked(reference, weights + hyperparameters)
    place, place_there = _places(names), _places(names_there)
    moving = {n for n, fixed in zip(names, constant_columns(ours), strict=True) if not fixed}
    moving |= {n for n, f in zip(names_there, constant_columns(theirs), strict=True) if not f}
    unmatched = moving - (place.keys() & place_there.keys())
    lonely = [n for n in (*names, *names_there) if n in unmatched]
    if lonely:
        raise InputError(
            f"these answers are not of the same model: {lonely[0]} is free in one and absent in the"
            " other; fit both to the same columns."
        )
    kept = [n for n in names if n in moving]
    roles = ["weight" if n.split("[")[0] in weights else "hyperparameter" for n in kept]
    at, at_there = [place[n] for n in kept], [place_there[n] for n in kept]
    return kept, roles, ours[:, :, at], theirs[:, :, at_there]


def _places(names: list[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _stacked(tree: xr.DataTree, variables: list[str]) -> tuple[list[str], Array]:
    posterior = tree["posterior"].dataset
    names = [label for v in variables for label in element_labels(posterior[v], v)]
    return names, np.concatenate([draws_of(posterior[v]) for v in variables], axis=2)


def _common_variables(tree: xr.DataTree, reference: xr.DataTree) -> tuple[list[str], list[str]]:
    posterior, there = tree["posterior"].dataset, reference["posterior"].dataset
    common = [str(v) for v in posterior.data_vars if v in there and posterior[v].dtype.kind == "f"]
    declared = weight_variables(tree) or weight_variables(reference)
    theta = {*held_values(tree), *held_values(reference)}
    others = [v for v in common if v not in declared and v not in theta]
    others = [v for v in others if not has_rows(tree, posterior[v])]
    weights = [v for v in declared if v in common] if declared else others
    if not weights:
        raise InputError(
            "the two trees have no weights in common: one has"
            f" {', '.join(map(str, posterior.data_vars))}; the other"
            f" {', '.join(map(str, there.data_vars))}. Fit both to the same model."
        )
    both_sample = (
        declared and integrates_hyperparameters(tree) and integrates_hyperparameters(reference)
    )
    named = {*theta_variables(tree), *theta_variables(reference)}
    theta_drawn = [v for v in others if v in named] or others  # else what is derived counts too
    return weights, theta_drawn if both_sample else []


def _in_invariants(tree: xr.DataTree) -> xr.DataTree:
    """Return products for the weights of a sample-feature machine, indicators for a mixture."""
    posterior = tree["posterior"].to_dataset()
    if tree.attrs.get("model") in WITHOUT_WEIGHTS and "included" in posterior:
        return _with_posterior(tree, {"included": posterior["included"].astype(float)})
    if "feature_term" not in posterior.dims or "lam" not in posterior:
        return tree
    pairs = (posterior.sizes["sample_term"] - 1) * (posterior.sizes["feature_term"] - 1)
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    thinned = posterior.isel(draw=slice(None, None, max(1, pairs * draws // MOST_NUMBERS)))
    w, lam = thinned["w"].isel(sample_term=slice(1, None)), thinned["lam"].isel(
        feature_term=slice(1, None)
    )  # fmt: skip
    product = (w * lam).transpose("chain", "draw", ...)
    kept = {"product": product} | ({"beta": thinned["beta"]} if "beta" in thinned else {})
    return _with_posterior(tree, kept)


def _with_posterior(tree: xr.DataTree, kept: dict[str, xr.DataArray]) -> xr.DataTree:
    """Return the tree with these variables in its posterior, the first of them for weights."""
    groups = {name: group.to_dataset() for name, group in tree.children.items()}
    groups["posterior"] = xr.Dataset(kept, attrs=tree["posterior"].attrs)
    changed = xr.DataTree.from_dict(groups)
    changed.attrs = tree.attrs | {"weights": json.dumps([next(iter(kept))])}
    return changed


# -------------------------------------------------------------------------------------- the figures


def _quantiles(draws: Array) -> Array:
    return np.asarray(np.quantile(draws, (0.05, 0.95), axis=(0, 1)))


class _Noise(NamedTuple):
    """Monte Carlo errors of a mean, and of the log of an sd."""

    mean: Array
    log_sd: Array


def known_moments(tree: xr.DataTree) -> Known:
    """Mean and sd by name where a large sparse fit stored them beside its few draws.

    Not where the draws were resampled towards the target: they are then better than the fit.
    """
    if not {"fit", "sample_stats"} <= set(tree.children):
        return {}
    fit = tree["fit"].dataset
    if "log_approximation" not in tree["sample_stats"]:
        return {}
    for mean, variance in (("weight_mean", "weight_variance"), ("mean_vector", "variance_vector")):
        if mean in fit and variance in fit and fit[mean].dims[0] in fit.coords:
            names = map(str, fit[fit[mean].dims[0]].to_numpy())
            return dict(zip(
                names, zip(fit[mean].to_numpy(), np.sqrt(fit[variance].to_numpy()), strict=True),
                strict=True,
            ))  # fmt: skip
    return {}


def _moments(
    draws: Array, kind: str, known: list[tuple[float, float] | None]
) -> tuple[Array, Array, _Noise]:
    """Means, sds and their Monte Carlo errors, which are zero where they are known."""
    mean, sd = moments(draws)
    noise = _mcse(draws, kind)
    at = [i for i, pair in enumerate(known) if pair is not None]
    if at:
        stored = np.array([known[i] for i in at], float)
        mean[at], sd[at] = stored[:, 0], stored[:, 1]
        noise.mean[at] = noise.log_sd[at] = 0.0
    return mean, sd, noise


def _mcse(draws: Array, kind: str) -> _Noise:
    """Monte Carlo errors; independent draws need no autocorrelation estimate."""
    _, sd = moments(draws)
    n = draws.shape[0] * draws.shape[1]
    moving = (sd > 0) & np.isfinite(draws).all(axis=(0, 1))
    error, log_error = np.zeros(draws.shape[2]), np.zeros(draws.shape[2])
    if kind == "iid":
        z = (draws[:, :, moving] - draws[:, :, moving].mean(axis=(0, 1))) / sd[moving]
        log_error[moving] = np.sqrt(np.maximum((z**4).mean(axis=(0, 1)) - 1.0, 0.0) / (4 * n))
        return _Noise(np.asarray(sd / np.sqrt(n)), log_error)
    if moving.any():
        error[moving] = mcse_mean(draws[:, :, moving])
        log_error[moving] = mcse_sd(draws[:, :, moving]) / sd[moving]
    return _Noise(error, log_error)


def wasserstein(ours: Array, theirs: Array) -> Array:
    """W1 of each marginal; the joint distance cannot tell methods apart at this many draws.

    W1 is the area between two quantile functions, which are constant between the multiples of 1/n
    and of 1/m: whole numbers of 1/(nm), so that no step is lost to rounding.
    """
    numbers = 2 * (ours.shape[0] * ours.shape[1] + theirs.shape[0] * theirs.shape[1])
    at_a_time = max(1, MOST_NUMBERS // numbers)
    if ours.shape[2] > at_a_time:
        begins = range(0, ours.shape[2], at_a_time)
        parts = [wasserstein(*(d[:, :, i : i + at_a_time] for d in (ours, theirs))) for i in begins]
        return np.concatenate(parts)
    a, b = (np.reshape(draws, (-1, draws.shape[2])).T for draws in (ours, theirs))
    finite = np.isfinite(a).all(axis=1) & np.isfinite(b).all(axis=1)
    a, b = np.sort(a[finite], axis=1), np.sort(b[finite], axis=1)
    n, m = a.shape[1], b.shape[1]
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    lengths = np.diff(ends, prepend=0) / (n * m)
    distances = np.full(ours.shape[2], np.nan)
    distances[finite] = np.abs(a[:, (ends - 1) // m] - b[:, (ends - 1) // n]) @ lengths
    return distances


def halves(draws: Array) -> tuple[Array, Array]:
    """Split by chains, so that chains which disagree show; a single chain is cut in two."""
    axis = 0 if len(draws) > 1 else 1
    middle = draws.shape[axis] // 2
    first, second = np.split(draws, [middle], axis=axis)
    return first, second


def _no_nan(error: Array) -> Array:
    """Make an error that cannot be computed infinite: it is then the largest, not lost."""
    return np.where(np.isnan(error), np.inf, error)


# ------------------------------------------------------------------------------------- correlations


class CorrelationError(NamedTuple):
    """Largest |r - r*|, the pair, both values, and the largest difference of two halves."""

    error: float
    pair: tuple[str, str] | None
    ours: float
    theirs: float
    null: float


def correlation_error(
    names: Sequence[str], ours: Array, theirs: Array, halves: tuple[Array, Array]
) -> CorrelationError:
    """Compare the correlations of draws (chain, draw, element), and of two halves of the reference.

    Elements that are constant in one of the two have no correlation and are left out.
    """
    usable = ~(constant_columns(ours) | constant_columns(theirs))
    usable &= np.isfinite(ours).all(axis=(0, 1)) & np.isfinite(theirs).all(axis=(0, 1))
    for half in halves:
        usable &= ~constant_columns(half)
    at = np.flatnonzero(usable)[:MOST_CORRELATIONS]
    if at.size < 2:
        return CorrelationError(float("nan"), None, float("nan"), float("nan"), float("nan"))
    r, reference = _correlations(ours[..., at]), _correlations(theirs[..., at])
    null = np.abs(np.subtract(*(_correlations(half[..., at]) for half in halves)))
    difference = np.abs(np.triu(r - reference, 1))
    i, j = np.unravel_index(int(difference.argmax()), difference.shape)
    pair = names[at[i]], names[at[j]]
    return CorrelationError(
        float(difference[i, j]), pair, float(r[i, j]), float(reference[i, j]), float(null.max())
    )


def _correlations(draws: Array) -> Array:
    """Correlations of draws (chain, draw, element)."""
    return np.atleast_2d(np.corrcoef(draws.reshape(-1, draws.shape[2]), rowvar=False))
