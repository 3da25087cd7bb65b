"""Sequential Monte Carlo: draws from the posterior and, for any graph, its log evidence.

Particles are drawn from the prior and moved to the posterior through the tempered
posteriors p(w) p(t | w)^beta, beta from 0 to 1; the product of the mean weights of all stages
estimates the evidence Z = p(t). The work is done by `pm.sample_smc`; each chain is an independent
run with its own estimate Z_c.

| quantity | definition |
|---|---|
| `log_evidence` | log of the mean of Z_c over the runs (each Z_c aims at Z, not log Z_c at log Z) |
| `log_evidence_error` | sd of log Z_c between the runs / sqrt(runs): to first order the error of the above, and unlike its exact form (at most 1) it grows with a bad spread |
| `log_evidence_chain` | log Z_c |

Precisions that the builder can integrate out are integrated out (`forms.form_to_sample`): the
same evidence in half the dimensions. A `pm.Potential` counts as likelihood, without its normaliser.
"""  # noqa: E501

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from ardvark.errors import UnsupportedPair
from ardvark.inference.pymc_models.forms import (
    FORMS,
    check_names,
    form_to_sample,
    in_order_of,
    names_to_store,
    recover_precisions,
)
from ardvark.inference.running.progress import silent
from ardvark.inference.samplers.convergence import SamplerDraws, moving_elements, rhat_problems
from ardvark.inference.sites.settings import MethodSettings
from ardvark.models.checks import fraction, one_of, positive_integer

__all__ = ["SMC", "SPREAD_MAX", "sample_smc"]

SPREAD_MAX = 0.5  # nats between the lowest and the highest log evidence of the runs

KERNELS = {"independent": "IMH", "random_walk": "MH"}  # ours -> PyMC's class


@dataclass(frozen=True, slots=True)
class SMC(MethodSettings):
    """Settings of sequential Monte Carlo.

    Parameters
    ----------
    hyper, weights, predictor
        As in `NUTS`.
    kernel
        How particles move: "independent" proposes from a Gaussian fitted to the cloud,
        "random_walk" around each particle.
    threshold
        Effective fraction of particles that a stage must keep; higher = more, smaller stages.
    correlation_threshold
        Moves per stage go on until the correlation with its start falls by less than this.
    cores
        Runs at a time, in processes of their own; the draws do not depend on it.
    form
        As in `NUTS`.
    """

    kernel: str = "independent"
    threshold: float = 0.5
    correlation_threshold: float = 0.01
    cores: int = 1
    form: str = "auto"

    def __post_init__(self) -> None:
        check_names(self.weights, self.predictor)
        one_of(self.kernel, KERNELS, "kernel")
        for name in ("threshold", "correlation_threshold"):
            fraction(getattr(self, name), name)
        positive_integer(self.cores, "cores")
        one_of(self.form, FORMS, "form")


def sample_smc(
    model: Any,
    settings: SMC,
    *,
    draws: int,
    chains: int,
    random_seed: Any,
    progressbar: bool,
) -> SamplerDraws:
    """Run `chains` independent clouds of `draws` particles; the same seed gives the same draws."""
    import pymc as pm

    rng = np.random.default_rng(random_seed)
    form = form_to_sample(model, settings.form)
    _starts_from_prior(form.model)
    begin = time.perf_counter()
    with silent("pymc", not progressbar), _starts_with_a_density():
        tree = pm.sample_smc(
            draws,
            model=form.model,
            kernel=getattr(pm.smc.kernels, KERNELS[settings.kernel]),
            threshold=settings.threshold,
            correlation_threshold=settings.correlation_threshold,
            chains=chains,
            cores=settings.cores,
            random_seed=[int(seed) for seed in rng.integers(2**31, size=chains)],
            progressbar=progressbar,
            compute_convergence_checks=False,
        )
    posterior = tree["posterior"].to_dataset()[names_to_store(form, model, settings.predictor)]
    posterior = posterior.merge(recover_precisions(posterior, form.precisions, rng))
    posterior = in_order_of(model, posterior, None)
    stages = _stages(tree["sample_stats"].to_dataset(), chains)
    info = {"form": form.name, "seconds": time.perf_counter() - begin} | _evidence(stages)
    problems, numbers = rhat_problems(*moving_elements(posterior), advice="raise draws")
    problems += _spread_problems(info["log_evidence_chain"])
    return SamplerDraws(posterior, stages, not problems, problems, info | numbers)


def _starts_from_prior(model: Any) -> None:
    for rv, start in model.rvs_to_initial_values.items():
        if start is not None and not (isinstance(start, str) and start == "prior"):
            raise UnsupportedPair(
                f"SMC starts from draws of the prior, but {rv.name} has an initval, which PyMC "
                "would take for all particles: the evidence would be wrong. Remove initval=."
            )


@contextmanager
def _starts_with_a_density() -> Iterator[None]:
    try:
        yield
    except ZeroDivisionError as error:  # in the machine code that draws from the prior
        raise UnsupportedPair(
            "SMC starts from draws of the prior, and a prior of this model is so vague that some "
            "have no density: a precision of 1e-300 or 0 has no sd. Give less vague ones, such as "
            "a=2, b=1 to the builder, or use NUTS()."
        ) from error


def _stages(stats: xr.Dataset, chains: int) -> xr.Dataset:
    """Give the statistics as (chain, stage) numbers, NaN after the last stage of a shorter run.

    PyMC has objects holding lists, and for one chain calls the stages chains.
    """
    table = {}
    for name, values in stats.data_vars.items():
        runs = [values.values] if chains == 1 else list(values.values)
        longest = max(len(run) for run in runs)
        padded = np.full((chains, longest), np.nan)
        for row, run in zip(padded, runs, strict=True):
            row[: len(run)] = np.asarray(run, dtype=float)
        table[str(name)] = (("chain", "stage"), padded)
    coords = {"chain": np.arange(chains), "stage": np.arange(longest)}
    return xr.Dataset(table, coords=coords, attrs=stats.attrs)


def _evidence(stages: xr.Dataset) -> dict[str, Any]:
    # NaN but at the last stage, where the estimate is complete
    per_chain = stages["log_marginal_likelihood"].max("stage").values
    runs = len(per_chain)
    error = np.std(per_chain, ddof=1) / np.sqrt(runs) if runs > 1 else np.nan
    return {
        "log_evidence": float(logsumexp(per_chain) - np.log(runs)),
        "log_evidence_error": float(error),
        "log_evidence_chain": per_chain,
    }


def _spread_problems(log_evidence_chain: Any) -> list[str]:
    spread = float(np.ptp(log_evidence_chain))
    if spread <= SPREAD_MAX:
        return []
    return [
        f"The log evidence differs by {spread:.2f} nats between the runs (limit {SPREAD_MAX}): "
        "take more draws or a higher threshold"
    ]
