"""Leave-one-out by every estimator on one axis: log p(t_n | the other rows), row by row.

| estimator      | of               | what it is                                                  |
|----------------|------------------|-------------------------------------------------------------|
| psis           | any draws        | importance sampling without the row, tails smoothed         |
| psis corrected | an approximation | the same, weighed to its target first (Magnusson 2019)      |
| cavity         | EP, a process    | the site taken out of the Gaussian: free, no draws          |
| refit          | any              | the row taken out, the fit made again at the same θ         |

`psis` of an approximation asks how the approximation itself predicts; `psis corrected` how its
target does. A likelihood that is zero on part of the line allows cavities and refits alone.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import logsumexp

from ardvark.diagnostics.compare.psis import (
    LooRows,
    cavity_rows,
    error_of_sum,
    log_weights,
    psis_rows,
)
from ardvark.diagnostics.compare.reference import choose_reference
from ardvark.diagnostics.compare.relations import Relations, share_weights
from ardvark.diagnostics.reading import sampling_kind, theta_variables
from ardvark.errors import ConvergenceWarning, InputError, UnsupportedPair
from ardvark.inference.arguments import check_model, check_trees
from ardvark.inference.pymc_models.fingerprint import require_model, require_same_data
from ardvark.inference.pymc_models.travel import Carried
from ardvark.inference.running.executor import check_executor, run_tasks
from ardvark.inference.sites.arrays import Array

__all__ = ["loo_by_row", "loo_table", "plot_loo", "refit_rows"]

REFIT = "refit"


def loo_table(
    trees: Mapping[str, xr.DataTree],
    model: Any = None,
    *,
    refit: Sequence[str] = (),
    reference: str | None = None,
    executor: Any = None,
) -> pd.DataFrame:
    """Put every estimate of leave-one-out side by side.

    Parameters
    ----------
    trees
        Results of ``fit`` by name.
    model
        The `pm.Model`, for the refits.
    refit
        Names of the trees that are fitted again without each row, at the same hyperparameters:
        N fits each.
    reference
        Name of the tree whose estimate the others are compared with: its refit, else its PSIS, else
        its cavities. By default each has its own, as in a report: one at the same
        hyperparameters, else one that integrates them out.
    executor
        What runs the refits: 2 for two processes, a Dask Client or its address for a cluster.

    Returns
    -------
    DataFrame, index (name, estimator): ``elpd``, ``se``, ``difference`` from the reference with its
    paired ``difference_se``, ``worst_row`` (largest difference of a row), ``high_khat`` (rows whose
    k-hat is too high, where that can matter), ``against`` which estimate, and whether it is a
    ``reference`` itself.
    """
    found = loo_by_row(trees, model, refit=refit, executor=executor)
    return summary_of(found, *_references(trees, reference))


def loo_by_row(
    trees: Mapping[str, xr.DataTree],
    model: Any = None,
    *,
    refit: Sequence[str] = (),
    executor: Any = None,
) -> dict[tuple[str, str], LooRows]:
    """Return each estimate row by row, by (name, estimator)."""
    check_trees(trees)
    check_executor(executor)
    if not isinstance(refit, list | tuple | set) or not all(isinstance(n, str) for n in refit):
        raise InputError(f"refit must be a list of names of trees, got {refit!r}")
    unknown = [name for name in refit if name not in trees]
    if unknown:
        raise InputError(f"refit: {unknown[0]!r} is not among the trees {', '.join(trees)}")
    if refit and model is None:
        raise InputError("refit: the model is needed to fit it again; give model=")
    require_same_data(trees, inputs=False)
    if refit:
        model = check_model(model)
        require_model(model, {name: trees[name] for name in refit}, data=True)
    found: dict[tuple[str, str], LooRows] = {}
    for name, tree in trees.items():
        approximate = sampling_kind(tree) == "iid" and log_weights(tree) is not None
        estimates = [cavity_rows(tree), psis_rows(tree)]
        estimates += [psis_rows(tree, correct=True)] if approximate else []
        estimates += [refit_rows(model, tree, executor=executor)] if name in refit else []
        found |= {(name, rows.estimator): rows for rows in estimates if rows is not None}
    return found


def summary_of(
    found: Mapping[tuple[str, str], LooRows],
    reference: str | None,
    like: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Sum the rows, and compare each estimate with that of its reference in `like`.

    Where that has none (no importance sampling at a hard margin), the tree's own refit takes its
    place.
    """
    chief = choose_estimate(found, reference)
    rows: list[dict[str, Any]] = []
    for key, loo in found.items():
        base = chief
        if like and key[0] in like:
            base = _estimate_of(found, like[key[0]]) or _estimate_of(found, key[0])
        same = base is not None and loo.elpd.size == found[base].elpd.size
        away = loo.elpd - found[base].elpd if base and same else np.full(loo.elpd.size, np.nan)
        rows.append(
            {
                "elpd": float(loo.elpd.sum()),
                "se": error_of_sum(loo.elpd),
                "difference": float(away.sum()),
                "difference_se": error_of_sum(away),
                "worst_row": float(np.abs(away).max(initial=0.0)),
                "high_khat": int(loo.high.sum()) if "psis" in loo.estimator else None,
                "against": None if base is None else " ".join(base),
                "reference": key == base,
            }
        )
    index = pd.MultiIndex.from_tuples(list(found), names=["name", "estimator"])
    return pd.DataFrame(rows, index=index if rows else None)


def plot_loo(
    trees: Mapping[str, xr.DataTree],
    model: Any = None,
    *,
    refit: Sequence[str] = (),
    reference: str | None = None,
) -> Any:
    """Draw elpd with its error for every estimate, and row by row against the reference.

    Parameters are those of `loo_table`. Gives the two matplotlib axes.
    """
    import matplotlib.pyplot as plt

    found = loo_by_row(trees, model, refit=refit)
    if not found:
        raise InputError(
            f"none of the trees {', '.join(trees)} has a leave-one-out: it is made from their "
            "group `log_likelihood`, which must be kept"
        )
    figure, axes = plt.subplots(
        1, 2, figsize=(9.0, 1.4 + 0.32 * len(found)), width_ratios=(1.0, 1.2)
    )
    draw_loo(axes, found, summary_of(found, *_references(trees, reference)))
    figure.tight_layout()
    return axes


def draw_loo(
    axes: Any,
    found: Mapping[tuple[str, str], LooRows],
    table: pd.DataFrame,
    look: Any = None,
    ink: str = "0.5",
) -> None:
    """Fill two axes: sums with errors, and the differences row by row; `look(i)` = colour, sign."""
    markers = ("o", "s", "^", "D", "v", "P")
    look = look or (lambda i: (f"C{i % 10}", markers[i % len(markers)]))
    left, right = axes
    labels = [f"{name}, {estimator}" for name, estimator in found]
    known = {" ".join(key): key for key in found}
    names = list(dict.fromkeys(name for name, _ in found))
    sums = zip(table["elpd"], table["se"], table["against"], strict=True)
    for i, ((key, rows), (elpd, se, against)) in enumerate(zip(found.items(), sums, strict=True)):
        colour, marker = look(names.index(key[0]))
        left.errorbar(elpd, i, xerr=se, fmt=marker, color=colour, markersize=5)
        base = known.get(str(against))
        if base is not None and key != base and rows.elpd.size == found[base].elpd.size:
            away = rows.elpd - found[base].elpd
            right.plot(away, np.full(away.size, i), marker, color=colour, markersize=4, alpha=0.5)
    left.set_yticks(range(len(labels)), labels)
    right.set_yticks(range(len(labels)), [])
    for panel in axes:
        panel.set_ylim(len(labels) - 0.5, -0.5)
        panel.grid(axis="x")
        panel.set_axisbelow(True)
    right.axvline(0.0, color=ink, linewidth=0.7)
    left.set_xlabel("elpd by leave-one-out, one standard error")
    right.set_xlabel("row by row, minus its reference")


# ------------------------------------------------------------------------------------- refits


def refit_rows(
    model: Any, tree: xr.DataTree, *, draws: int = 1000, executor: Any = None
) -> LooRows:
    """Fit a model again without each row, by the tree's method at the tree's hyperparameters.

    Settings of the method other than its hyperparameters are those by default. `executor` is what
    runs the fits (`inference/running/executor.py`).
    """
    from ardvark.inference.methods import family_of

    family = family_of(model)
    if family not in ("sites", "process", "softmax"):
        raise UnsupportedPair(
            f"refit: rows of a {family} model cannot be taken out one by one. Leave refit out: "
            f"importance sampling needs the draws alone."
        )
    data = _row_data(model)
    rows = len(next(iter(data.values())))
    work = partial(_without_row, Carried(model), data, _again(tree), draws)
    elpd = np.array(run_tasks(work, range(rows), executor))
    nothing = np.full(rows, np.nan)
    return LooRows(elpd, np.zeros(rows, bool), nothing, REFIT)


def _without_row(
    carried: Carried, data: Mapping[str, Array], method: Any, draws: int, n: int
) -> float:
    """Log predictive density of row n after a fit to the others."""
    from ardvark.inference.fit import fit
    from ardvark.inference.pymc_models.copies import private_copy, put_data

    rest = {name: np.delete(values, n, axis=0) for name, values in data.items()}
    one = {name: values[n : n + 1] for name, values in data.items()}
    with warnings.catch_warnings(), private_copy(carried.model) as own:
        warnings.simplefilter("ignore", ConvergenceWarning)  # reported by the fit of all rows
        put_data(own, rest)
        left = fit(own, method, draws=draws, random_seed=1, progressbar=False)
        return _log_density(own, left, one)


def _again(tree: xr.DataTree) -> Any:
    """Return the settings that fit the same posterior to other rows."""
    from ardvark.inference.hyper.settings import Fixed, Integrated, Sampled
    from ardvark.inference.methods import METHODS

    method = str(tree.attrs.get("method"))
    if method not in METHODS:
        raise InputError(
            f"refit: the tree was made by {method!r}, which is no method of fit. Name trees of "
            f"av.fit only"
        )
    settings = METHODS[method].load(METHODS[method].settings)
    if tree.attrs.get("hyper") == "posterior":
        return settings(hyper=Sampled()) if METHODS[method].kind == "gaussian" else settings()
    if tree.attrs.get("hyper") == "integrated":
        return settings(hyper=Integrated())
    if not theta_variables(tree):
        return settings()
    kept = {name: tree[name].to_dataset() for name in ("theta", "fit") if name in tree.children}
    held = xr.DataTree.from_dict(kept)  # the draws need not travel
    held.attrs = tree.attrs
    return settings(hyper=Fixed(held))


def _row_data(model: Any) -> dict[str, Array]:
    """Values of every `pm.Data` that has one entry per observed row."""
    named = [model.named_vars_to_dims.get(rv.name) for rv in model.observed_RVs]
    dims = {dims[0] for dims in named if dims}
    found = {
        v.name: v.get_value()
        for v in model.data_vars
        if (model.named_vars_to_dims.get(v.name) or (None,))[0] in dims
    }
    if not found:
        raise UnsupportedPair(
            "refit: no pm.Data of the model has the dim of the observed rows, so none can be taken"
            " out. Give inputs and target as pm.Data with dims."
        )
    return found


def _log_density(model: Any, tree: xr.DataTree, one: Mapping[str, Array]) -> float:
    """Log predictive density of one row that is not in the data."""
    from ardvark.inference.graph.read import read_model
    from ardvark.inference.methods import prediction_route
    from ardvark.inference.pymc_models.copies import private_copy, put_data

    route = prediction_route(model)
    if route is not None:
        chances = route(model, tree, one["X"], 1).to_numpy()[0]
        return float(np.log(chances[int(one["t_observed"][0])]))
    posterior = tree["posterior"].dataset.stack(sample=("chain", "draw"), create_index=False)
    with private_copy(model) as own:
        latent = read_model(own)
        put_data(own, one)
        draws = {
            name: posterior[name].transpose("sample", ...).to_numpy()
            for name in (*latent.weights, *latent.hyper)
        }
        eta = latent.eta_of(draws)
        theta = {name: draws[name] for name in latent.hyper}
        observed = latent.observed_data[0].get_value()
        log_p = latent.log_sites_of(eta, theta, observed)
    return float(logsumexp(log_p) - np.log(log_p.size))


def _references(
    trees: Mapping[str, xr.DataTree], reference: str | None
) -> tuple[str | None, Mapping[str, str]]:
    """The main reference, and that of each tree unless one was named for all."""
    chief = choose_reference(trees, reference)
    if reference is not None:
        return chief, {}
    return chief, Relations(share_weights(trees), chief).like


def choose_estimate(
    found: Mapping[tuple[str, str], LooRows], reference: str | None
) -> tuple[str, str] | None:
    """Return the estimate that the others are compared with: the reference's, else the best."""
    if (own := _estimate_of(found, reference)) is not None:
        return own
    order = (REFIT, "cavity", "psis corrected", "psis")
    return min(found, key=lambda key: order.index(key[1]), default=None)


def _estimate_of(
    found: Mapping[tuple[str, str], LooRows], name: str | None
) -> tuple[str, str] | None:
    """Return the best estimate of one tree."""
    keys = ((str(name), estimator) for estimator in (REFIT, "psis", "cavity", "psis corrected"))
    return next((key for key in keys if key in found), None)
