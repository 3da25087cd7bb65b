"""Groups that ArviZ's plots ask for and a fit alone does not make: `fit(..., extend=True)`.

| group | what it is for |
|---|---|
| `posterior_predictive` | `plot_ppc_*`, `plot_loo_pit`, `plot_ppc_pava` |
| `prior`, `prior_predictive` | `plot_prior_posterior`, `plot_ppc_dist(group=...)` |
| `log_prior` | `psense`, `plot_psense_*` |

All of them are PyMC's own work on the graph and the draws. `log_prior` has the top of the prior
only: the variables that depend on no other one. What lies below is part of the model, and to weigh
it too would count the prior of a hierarchy twice; the standardised effects z of tau * z, which are
N(0, 1) by themselves, are below it as the effects of N(0, tau²) are. Hyperparameters that a fit
holds at one value are no top: the weights are, given them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import UnsupportedPair
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.pymc_models.copies import without_starts
from ardvark.inference.running.progress import silent

__all__ = ["more_groups", "standardised", "top_of_prior"]

PRIOR_DRAWS = 1000


def more_groups(model: Any, posterior: xr.Dataset, seed: int) -> dict[str, xr.Dataset]:
    """Make the groups for the draws of a fit."""
    import pymc as pm

    free = [rv.name for rv in model.free_RVs]
    if missing := [name for name in free if name not in posterior]:
        raise UnsupportedPair(
            f"extend=True: the fit has no draws of {missing[0]!r}, and PyMC would take them from "
            f"the prior. Leave extend out."
        )
    varying = [name for name in free if _varies(posterior[name])]
    drawn = xr.DataTree.from_dict({"posterior": posterior[free]})
    model = without_starts(model)
    how: dict[str, Any] = {"model": model, "compile_kwargs": {"mode": "FAST_COMPILE"}}
    with quick(), silent("pymc.sampling.forward"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = pm.sample_posterior_predictive(drawn, random_seed=seed, progressbar=False, **how)
        before = pm.sample_prior_predictive(PRIOR_DRAWS, random_seed=seed, **how)
        log_prior = pm.compute_log_prior(
            drawn, var_names=top_of_prior(model, varying), progressbar=False,
            extend_inferencedata=False, **how,
        )  # fmt: skip
    found = {name: before[name].to_dataset() for name in ("prior", "prior_predictive")}
    found["posterior_predictive"] = after["posterior_predictive"].to_dataset()
    found["log_prior"] = _counted(log_prior, posterior)
    return found


def top_of_prior(model: Any, varying: list[str] | None = None) -> list[str]:
    """Free variables, of those that vary, that depend on no other one of them.

    Standardised effects are left out where another variable that varies scales them.
    """
    free = [rv for rv in model.free_RVs if varying is None or rv.name in varying]
    below = standardised(model, [rv.name for rv in free])
    top = [rv for rv in free if not set(free) & (_above(rv) - {rv})]
    return [rv.name for rv in top if rv.name not in below]


def standardised(model: Any, varying: list[str] | None = None) -> dict[str, list[str]]:
    """Effects z of a non-centred form, N(0, 1) by themselves, and what they are multiplied by."""
    free = [rv for rv in model.free_RVs if varying is None or rv.name in varying]
    unit = [rv for rv in free if _standard_normal(rv)]
    scales = set(free) - set(unit)
    found: dict[str, set[str]] = {}
    for variable in _above(*model.deterministics, *model.observed_RVs) if unit else ():
        if not _multiplies(variable):
            continue
        parts = [_above(part) for part in variable.owner.inputs]
        for z in unit:
            by = set().union(*(part for part in parts if z not in part)) & scales
            if by and any(z in part for part in parts):
                found.setdefault(z.name, set()).update(s.name for s in by)
    return {name: sorted(by) for name, by in found.items()}


def _above(*variables: Any) -> set[Any]:
    from pytensor.graph.traversal import ancestors

    return set(ancestors(variables))


def _standard_normal(rv: Any) -> bool:
    """Whether a variable is N(0, 1), element by element."""
    if type(rv.owner.op).__name__ != "NormalRV":
        return False
    values = []
    for parameter in rv.owner.op.dist_params(rv.owner):
        while parameter.owner is not None and len(parameter.owner.inputs) == 1:  # more dims
            parameter = parameter.owner.inputs[0]
        values.append(getattr(parameter, "data", np.nan))
    return all(np.all(value == wanted) for value, wanted in zip(values, (0, 1), strict=True))


def _multiplies(variable: Any) -> bool:
    op = getattr(variable.owner, "op", None)
    return type(getattr(op, "scalar_op", None)).__name__ in ("Mul", "TrueDiv")


def _varies(draws: xr.DataArray) -> bool:
    values = draws.values.reshape((-1, *draws.shape[2:]))
    return bool(np.any(values != values[:1]))


def _counted(log_prior: xr.Dataset | xr.DataTree, posterior: xr.Dataset) -> xr.Dataset:
    """A weight that is pruned, or not in the subset, counts as nothing."""
    known = log_prior.to_dataset() if isinstance(log_prior, xr.DataTree) else log_prior
    known = known.where(np.isfinite(known), 0.0)
    if "included" in posterior and "w" in known:
        known["w"] = known["w"].where(posterior["included"] != 0, 0.0)
    return known
