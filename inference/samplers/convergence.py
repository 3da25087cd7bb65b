"""Problems of the draws of a sampler: the limits, the checks, and their messages.

`SamplerDraws.problems` says in words and numbers what failed; it is empty if and only if
`SamplerDraws.converged`. The limits are those of Vehtari et al. (2021). A problem is a sentence
without its full stop: `fit` puts several into one warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.inference.sites.arrays import Array

__all__ = [
    "BFMI_MIN",
    "ESS_PER_CHAIN",
    "RHAT_MAX",
    "SamplerDraws",
    "convergence",
    "mixed",
    "moving_elements",
    "rhat_problems",
]

RHAT_MAX = 1.01
ESS_PER_CHAIN = 100
BFMI_MIN = 0.3


class SamplerDraws(NamedTuple):
    """Draws of a sampler and their problems."""

    posterior: xr.Dataset  # (chain, draw, ...) with the model's dims and coords
    sample_stats: xr.Dataset
    converged: bool
    problems: list[str]
    info: dict[str, Any]
    log_rows: Array | None = None  # log likelihood (chain, draw, row), where it is at hand


def convergence(
    posterior: xr.Dataset, sample_stats: xr.Dataset, draws: int
) -> tuple[list[str], dict[str, Any]]:
    """Every failed check in words, and the numbers of all checks.

    Rank-normalised split R-hat, bulk and tail effective sample size (of all elements that are not
    constant), divergences and E-BFMI. A number that cannot be computed counts as failed.
    """
    from ardvark.inference.samplers.chain_statistics import (  # of chains only
        ess_bulk,
        ess_tail,
    )

    names, elements = moving_elements(posterior)
    chains = posterior.sizes["chain"]
    problems, numbers = rhat_problems(names, elements)
    if posterior.sizes["draw"] < draws:
        problems.append(f"The sampler stopped after {posterior.sizes['draw']} of {draws} draws")
    least = ESS_PER_CHAIN * chains
    for part, size in {"bulk": ess_bulk, "tail": ess_tail}.items():
        if not names:
            continue
        ess = size(elements)
        worst = int(np.argmin(ess))
        numbers[f"ess_{part}_min"] = float(ess[worst])
        if not ess[worst] >= least:
            problems.append(
                f"Effective sample size ({part}) {ess[worst]:.0f} of {names[worst]} is below "
                f"{least} ({ESS_PER_CHAIN} per chain): take more draws"
            )
    return problems + _energy_problems(sample_stats, numbers), numbers


def mixed(numbers: Mapping[str, Any], chains: int) -> bool:
    """Whether R-hat and effective sizes pass; more draws mend no divergence and no energy."""
    sizes = (numbers.get(f"ess_{part}_min", 0.0) for part in ("bulk", "tail"))
    return bool(
        numbers.get("rhat_max", float("inf")) <= RHAT_MAX
        and all(size >= ESS_PER_CHAIN * chains for size in sizes)
    )


def _energy_problems(sample_stats: xr.Dataset, numbers: dict[str, Any]) -> list[str]:
    problems = []
    if "diverging" in sample_stats:
        diverging = sample_stats["diverging"]
        numbers["divergences"] = int(diverging.sum())
        if numbers["divergences"]:
            problems.append(
                f"{numbers['divergences']} of {diverging.size} draws diverged: the posterior has "
                "places the sampler cannot enter; raise target_accept"
            )
    if "energy" in sample_stats and sample_stats["energy"].ndim == 2:
        bfmi = _statistic("bfmi", sample_stats["energy"].values)
        worst = int(np.argmin(bfmi))
        numbers["bfmi_min"] = float(bfmi[worst])
        if not bfmi[worst] >= BFMI_MIN:
            problems.append(
                f"E-BFMI {bfmi[worst]:.2f} of chain {worst} is below {BFMI_MIN}: "
                "the energy explores heavy tails slowly"
            )
    return problems


def rhat_problems(
    names: list[str], elements: Array, advice: str = "raise tune and draws"
) -> tuple[list[str], dict[str, Any]]:
    """Do the chains agree? `elements` is (chain, draw, element)."""
    if not names:
        return ["Every stored variable is constant: the sampler never moved"], {}
    if elements.shape[0] < 2:
        return ["One chain only: R-hat compares chains, use chains >= 2"], {}
    from ardvark.inference.samplers.chain_statistics import rhat

    ratio = rhat(elements)
    worst = int(np.argmax(ratio))
    numbers = {"rhat_max": float(ratio[worst])}
    if ratio[worst] <= RHAT_MAX:
        return [], numbers
    text = f"R-hat {ratio[worst]:.4g} of {names[worst]} is not at most {RHAT_MAX}: "
    return [f"{text}the chains disagree; {advice}"], numbers


def _statistic(name: str, draws: Array, **options: Any) -> Array:
    arviz_stats = import_module("arviz_stats")  # slow to import: not before it is needed
    with np.errstate(all="ignore"):  # stuck chains divide by zero: inf or NaN, which fail the check
        return np.atleast_1d(getattr(arviz_stats, name)(draws, **options))


def moving_elements(posterior: xr.Dataset) -> tuple[list[str], Array]:
    """All scalars of all variables side by side, (chain, draw, element), but for constant ones."""
    shape = (posterior.sizes["chain"], posterior.sizes["draw"])
    names: list[str] = []
    columns = [np.empty((*shape, 0))]
    for name, variable in posterior.data_vars.items():
        ordered = variable.transpose("chain", "draw", ...)
        draws = ordered.to_numpy().reshape(*shape, -1).astype(float)
        moving = ~(draws == draws[:1, :1]).all(axis=(0, 1))  # inf - inf is no range
        dims = ordered.dims[2:]
        places = list(product(*(ordered[dim].values for dim in dims)))
        for i in np.flatnonzero(moving):
            names.append(f"{name}[{', '.join(map(str, places[i]))}]" if dims else str(name))
        columns.append(draws[:, :, moving])
    return names, np.concatenate(columns, axis=2)
