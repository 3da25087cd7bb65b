"""How good predictions are: proper scores with their errors, calibration curves, coverage.

Rows that were kept back are predicted by `predict`; without such rows every training row is
predicted from the others (leave-one-out): by the cavities of EP where the tree has them, else by
Pareto-smoothed weights on the draws.

| target | score of a row | the better |
|---|---|---|
| classes | log p(observed class) | larger |
| | Brier: (p - t)² for two classes, the sum over classes for more | smaller |
| | correct: is the most probable class the observed one? | larger |
| real | log density, CRPS and place u of t under N(mean, sd²) | larger, smaller, uniform |

Real predictions are scored as normals with the predicted mean and sd. Two methods are compared row
by row: the standard error of a difference is that of the mean of paired differences.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy.optimize import isotonic_regression
from scipy.special import ndtr

from ardvark.diagnostics.calibration.checks import checked_events
from ardvark.diagnostics.reading import arviz
from ardvark.errors import InputError
from ardvark.inference.arguments import check_model, check_trees
from ardvark.inference.beliefs import Beliefs
from ardvark.inference.graph.read import read_model
from ardvark.inference.predict import predict
from ardvark.inference.pymc_models.fingerprint import require_model, require_same_data
from ardvark.inference.pymc_models.forms import gaussian_form
from ardvark.inference.sites.arrays import Array, Index
from ardvark.models.card import card_of
from ardvark.models.checks import Seed, as_seed, as_target
from ardvark.models.inputs import as_inputs
from ardvark.models.tables import as_array, as_frame

__all__ = [
    "calibration_curve",
    "check_test",
    "crps_normal",
    "expected_error",
    "row_scores",
    "scores",
    "summed",
]

type Test = Any  # (X, t), a Dataset, or None

COVERAGES = (0.5, 0.9)
TEST, LOO = "test rows", "leave-one-out"


class Curve(NamedTuple):
    """Frequencies by forecast probability, made monotone (PAV), and where they may well lie."""

    probability: Array  # sorted
    frequency: Array
    lower: Array
    upper: Array
    miscalibration: float  # mean square of frequency - probability
    p_value: float  # of that, if the probabilities are right


def scores(
    trees: Mapping[str, xr.DataTree],
    model: Any,
    test: Test = None,
    *,
    reference: str | None = None,
) -> pd.DataFrame:
    """Scores of every method, with standard errors and paired differences.

    Parameters
    ----------
    trees : results of `fit` by name
    model : the `pm.Model` that was fitted
    test : (X, t) or Dataset, optional
        Rows that were not fitted, as they come (scaling is that of the model). None: leave-one-out.
    reference : str, optional
        The tree that the others are compared with; by default the first tree.

    Returns
    -------
    pd.DataFrame
        Per method `rows`, `by`, each score, `<score>_se`, `<score>_difference` from the reference
        and `<score>_difference_se`.
    """
    model = check_model(model)
    check_trees(trees)
    against = next(iter(trees)) if reference is None else reference
    if against not in trees:
        raise InputError(f"reference: {against!r} is not among the trees {', '.join(trees)}")
    require_same_data(trees)
    require_model(model, trees, data=True)
    tables = {name: row_scores(tree, model, test) for name, tree in trees.items()}
    rows = {}
    for name, table in tables.items():
        rows[name] = {"rows": len(table), "by": table.attrs["by"]}
        for score in SCORES:
            if score in table:
                rows[name] |= summed(score, table[score], tables[against].get(score))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


SCORES = ("log_score", "brier", "correct", "squared_error", "crps", "covered_50", "covered_90")
NAMES = {"correct": "accuracy", "squared_error": "rmse"} | {
    f"covered_{100 * p:.0f}": f"coverage_{100 * p:.0f}" for p in COVERAGES
}


def summed(score: str, values: pd.Series[float], other: Any) -> dict[str, float]:
    """Mean, error, and paired difference of one score; squared errors as their root."""
    own: Array = np.asarray(values, dtype=np.float64)
    theirs: Array | None = None if other is None else np.asarray(other, dtype=np.float64)
    name = NAMES.get(score, score)
    if score == "squared_error":  # by the delta method: d sqrt(m) = dm / (2 sqrt(m))
        own, mean = _rooted(own)
        theirs, other = (None, math.nan) if theirs is None else _rooted(theirs)
    else:
        mean, other = float(own.mean()), math.nan if theirs is None else float(theirs.mean())
    answer = {name: mean, f"{name}_se": _error(own)}
    if theirs is not None and theirs.shape == own.shape:
        answer[f"{name}_difference"] = mean - other
        answer[f"{name}_difference_se"] = _error(own - theirs)
    return answer


def _rooted(squares: Array) -> tuple[Array, float]:
    root = math.sqrt(float(squares.mean()))
    return squares / (2.0 * root) if root else squares, root


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


# Rows ------------------------------------------------------------------------------------------


def row_scores(tree: xr.DataTree, model: Any, test: Test = None) -> pd.DataFrame:
    """Scores of every row under one tree; `attrs["by"]` says whether rows were kept back."""
    if test is None:
        found = _left_out(tree, model)
    else:
        found = _on_test(tree, model, *check_test(test, model))
    found.attrs["by"] = TEST if test is not None else LOO
    return found


def check_test(test: Test, model: Any) -> tuple[Any, npt.NDArray[Any]]:
    """Give inputs and target of test rows, or say what is wrong with them."""
    pair = (test.X, test.t) if hasattr(test, "X") else test
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InputError(f"test must be (X, t) or a Dataset, got {type(test).__name__}")
    X, card = pair[0], card_of(model)
    if card is not None or as_frame(X, "test") is not None:
        X = as_inputs(X, argument="X of test")
    t = as_array(pair[1], "t of test", "one value per row")
    rows = len(X) if hasattr(X, "__len__") else 0
    if t.ndim != 1 or rows != len(t) or not rows:
        raise InputError(
            f"test: X has {rows} rows and t has the shape {t.shape}; give one target for each row"
        )
    if card is not None and card.classes is None:
        t = as_target(t, rows, argument="t of test")
    return X, t


def _on_test(tree: xr.DataTree, model: Any, X: Any, t: npt.NDArray[Any]) -> pd.DataFrame:
    predicted = predict(model, tree, X)
    if "class" not in predicted.dims:
        mean, sd = (predicted.sel(statistic=s).values for s in ("mean", "sd"))
        return _normal_scores(mean, sd, np.asarray(t, float))
    labels = predicted["class"].values
    observed = t[:, None] == labels[None, :]
    if not observed.any(axis=1).all():
        bad = t[~observed.any(axis=1)][0]
        raise InputError(f"test: t has {bad!r}, which is none of the classes {labels.tolist()}")
    return _class_scores(predicted.values, observed.argmax(axis=1))


def _class_scores(p: Array, code: Index) -> pd.DataFrame:
    """Scores of probabilities (row, class) of the observed classes."""
    seen = np.take_along_axis(p, code[:, None], axis=1)[:, 0]
    if p.shape[1] == 2:
        brier = (p[:, 1] - code) ** 2
    else:
        brier = np.sum((p - np.eye(p.shape[1])[code]) ** 2, axis=1)
    with np.errstate(divide="ignore"):
        columns = {"log_score": np.log(seen), "brier": brier}
    table = pd.DataFrame(columns | {"correct": (p.argmax(axis=1) == code).astype(float)})
    if p.shape[1] == 2:
        table["probability"], table["observed"] = p[:, 1], code
    return table


def _normal_scores(mean: Array, sd: Array, t: Array, u: Array | None = None) -> pd.DataFrame:
    z = (t - mean) / sd
    u = ndtr(z) if u is None else u
    return pd.DataFrame(
        {
            "log_score": -0.5 * z**2 - np.log(sd) - 0.5 * math.log(2 * math.pi),
            "squared_error": (t - mean) ** 2,
            "crps": crps_normal(mean, sd, t),
            **{
                f"covered_{100 * p:.0f}": (np.abs(u - 0.5) <= 0.5 * p).astype(float)
                for p in COVERAGES
            },
            "place": u,
        }
    )


def crps_normal(mean: Array, sd: Array, t: Array) -> Array:
    """Continuous ranked probability score of N(mean, sd²) at t (Gneiting & Raftery 2007)."""
    z = (t - mean) / sd
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return np.asarray(sd * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / math.sqrt(math.pi)))


# Leave-one-out ---------------------------------------------------------------------------------


def _left_out(tree: xr.DataTree, model: Any) -> pd.DataFrame:
    """Every training row from the others."""
    two = _two_classes(tree, model)
    if "fit" in tree.children and "log_loo_probability" in tree["fit"] and two:
        log_p = np.asarray(tree["fit"].dataset["log_loo_probability"].values)  # of the cavities
    else:
        log_p, weights = _smoothed(tree)
        if not two:
            normal = _left_out_normal(tree, model, weights)
            return pd.DataFrame({"log_score": log_p}) if normal is None else normal
    code = _observed(tree).astype(np.int64)
    p = np.minimum(np.exp(log_p), 1.0)  # smoothed weights sum to one up to rounding
    positive = np.where(code == 1, p, 1.0 - p)
    return _class_scores(np.stack([1.0 - positive, positive], axis=1), code)


def _two_classes(tree: xr.DataTree, model: Any) -> bool:
    card = None if model is None else card_of(model)
    if card is not None:
        return card.task == "binary"
    kind = _observed(tree).dtype.kind
    return kind in "iub" and set(np.unique(_observed(tree))) <= {0, 1}


def _observed(tree: xr.DataTree) -> npt.NDArray[Any]:
    values = list(tree["observed_data"].data_vars.values()) if "observed_data" in tree else []
    if len(values) != 1:
        raise InputError(
            f"tree: leave-one-out needs one observed variable in observed_data, found {len(values)}"
            ". Give test rows"
        )
    return np.asarray(values[0].values)


def _smoothed(tree: xr.DataTree) -> tuple[Array, Array]:
    """Log predictive density of each row left out, and the weights (draw, row) behind it."""
    if tree.attrs.get("loo") == "cavity" or "log_likelihood" not in tree.children:
        raise InputError(
            "tree: importance sampling is not valid for it, or it has no log_likelihood: give "
            "test rows"
        )
    (log_likelihood,) = tree["log_likelihood"].data_vars.values()
    arviz()  # registers the accessor
    stacked = log_likelihood.stack(sample=("chain", "draw"), create_index=False)
    values = stacked.transpose("sample", ...)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore")  # high k-hats are reported by the section on LOO
        log_weight, _ = values.azstats.psislw(dim=["sample"])
    log_weight = log_weight.transpose("sample", ...).values
    weight = np.exp(log_weight - log_weight.max(axis=0))
    weight /= weight.sum(axis=0)
    likelihood = np.exp(values.values)
    with np.errstate(divide="ignore"):
        return np.log(np.sum(weight * likelihood, axis=0)), weight


def _left_out_normal(tree: xr.DataTree, model: Any, weights: Array) -> pd.DataFrame | None:
    """Means, sds and places of Gaussian targets left out; None where the model is none."""
    card = None if model is None else card_of(model)
    if model is None or (card is not None and card.family != "sites"):
        return None
    belief = Beliefs(read_model(gaussian_form(model)), tree)
    etas, noises = list[Array](), list[Array]()
    for theta, part in belief.blocks():
        variance = belief.noise_variance(theta, part.shape[1])
        if variance is None:
            return None
        etas.append(part)
        noises.append(np.broadcast_to(variance, part.shape))
    eta, noise = np.concatenate(etas), np.concatenate(noises)
    if eta.shape != weights.shape:
        return None
    t = _observed(tree).astype(float)
    mean = np.sum(weights * eta, axis=0)
    spread = np.sum(weights * ((eta - mean) ** 2 + noise), axis=0)
    u = np.sum(weights * ndtr((t - eta) / np.sqrt(noise)), axis=0)
    return _normal_scores(mean, np.sqrt(spread), t, u)


# Calibration of probabilities --------------------------------------------------------------------


def calibration_curve(
    probability: Any,
    observed: Any,
    *,
    level: float = 0.9,
    bootstrap: int = 500,
    random_seed: Seed = 0,
) -> Curve:
    """Monotone frequencies by forecast (PAV), with the band they keep to if forecasts are right.

    No bins are chosen (Dimitriadis, Gneiting & Jordan 2021): the band is that of curves whose
    outcomes are drawn with the forecast probabilities.
    """
    p, t = np.asarray(probability, float), np.asarray(observed, float)
    if p.shape != t.shape or p.ndim != 1 or not len(p):
        raise InputError(
            f"probability and observed: expected equal rows, found {p.shape}, {t.shape}"
        )
    checked_events(p, t, "observed")
    order = np.lexsort((-t, p))  # ties pooled: within one forecast the events first
    p, t = p[order], t[order]
    drawn = np.random.default_rng(as_seed(random_seed)).random((bootstrap, len(p))) < p
    curves = np.array([_isotonic(p, row.astype(float)) for row in drawn])
    lower, upper = np.quantile(curves, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    frequency = _isotonic(p, t)
    distance = float(np.mean((frequency - p) ** 2))
    null = np.mean((curves - p) ** 2, axis=1)
    p_value = float((1 + np.sum(null >= distance - 1e-15)) / (bootstrap + 1))
    return Curve(p, frequency, lower, upper, distance, p_value)


def _isotonic(p: Array, t: Array) -> Array:
    """PAV of outcomes by forecast, equal forecasts pooled."""
    values, inverse, counts = np.unique(p, return_inverse=True, return_counts=True)
    means = np.bincount(inverse, weights=t) / counts
    fitted = isotonic_regression(means, weights=counts).x
    return np.asarray(fitted[inverse]) if len(values) < len(p) else np.asarray(fitted)


def expected_error(probability: Any, observed: Any, bins: int = 10) -> float:
    """Expected calibration error with this many bins of equal width: a second figure only.

    It changes with the bins and is above 0 for forecasts that are right; see `calibration_curve`.
    """
    p, t = np.asarray(probability, float), np.asarray(observed, float)
    place = np.minimum((p * bins).astype(int), bins - 1)
    gaps = np.bincount(place, weights=t - p, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))
