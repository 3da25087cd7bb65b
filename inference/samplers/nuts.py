"""The no-U-turn sampler: draws from the exact posterior of a plain `pm.Model`, the reference.

Three things are done beyond a call of the sampler.

* Where the density of a model is known in machine code, nothing is compiled (`uncompiled.py`). It
  is held against PyMC's own log density before the chains start and again where they went.
* Precisions that can be integrated out are integrated out and drawn afterwards (`forms`).
* Other models are compiled by nutpie, once (`compiled.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ardvark.inference.pymc_models.forms import (
    FORMS,
    check_known,
    check_names,
    in_order_of,
)
from ardvark.inference.running.until import check_until, looks_at, spent
from ardvark.inference.samplers.compiled import Graph, choose_sampler
from ardvark.inference.samplers.convergence import SamplerDraws, convergence, mixed
from ardvark.inference.samplers.nutpie_chains import Asked, Background
from ardvark.inference.sites.settings import MethodSettings
from ardvark.models.checks import as_flag, fraction, one_of, positive_integer

if TYPE_CHECKING:
    from ardvark.inference.joint.joint import Joint
    from ardvark.inference.samplers.uncompiled import MachineCode
    from ardvark.inference.sites.model import SiteModel

__all__ = ["NUTS", "sample_nuts"]

SAMPLERS = ("auto", "nutpie", "pymc")
METRICS = {"diagonal": "diag", "low_rank": "low_rank"}  # ours -> nutpie's


@dataclass(frozen=True, slots=True)
class NUTS(MethodSettings):
    """Settings of the no-U-turn sampler.

    Parameters
    ----------
    hyper
        `None`: the hyperparameters belong to the posterior; `Fixed(...)`: they are given.
    weights, predictor
        Names in the graph; None = every Gaussian block that enters the predictor.
    tune
        Draws per chain that adapt the step size and are thrown away.
    target_accept
        Mean acceptance the step size is adapted to; higher = smaller steps, fewer divergences.
    sampler
        "auto" is nutpie if every free variable is continuous, else PyMC's own compound sampler.
    cores
        Chains that run at a time; the draws do not depend on it.
    form
        "integrated" samples with the precisions integrated out, "as_written" does not,
        "auto" integrates where it is known how.
    metric
        What tuning learns of the posterior's shape: "diagonal" (scales) or "low_rank" (scales and
        the strongest correlations; nutpie calls it experimental). The second takes fewer
        gradients for an effective draw where rows are many (`docs/speeds.md`).
    compiled
        False: a density that is known in machine code is sampled without compiling anything, any
        other graph is compiled; the tree says which (`sampler_density`). True: the graph is
        compiled whatever is known of it, an independent check.
    until, most_draws
        "converged": the chains go on until R-hat <= 1.01 and the effective sizes of every element
        are at least 100 a chain, looked at after `draws` and each time half as many again, up to
        `most_draws` a chain (None: eight times `draws`); all chains then run at a time. None:
        `draws` and no more. The figures of a check that decides when to stop are a little too good
        (`until.py`).
    """

    tune: int = 1000
    target_accept: float = 0.9
    sampler: str = "auto"
    cores: int | None = None
    form: str = "auto"
    metric: str = "diagonal"
    compiled: bool = False
    until: str | None = None
    most_draws: int | None = None

    def __post_init__(self) -> None:
        check_names(self.weights, self.predictor)
        positive_integer(self.tune, "tune")
        fraction(self.target_accept, "target_accept")
        one_of(self.sampler, SAMPLERS, "sampler")
        if self.cores is not None:
            positive_integer(self.cores, "cores")
        one_of(self.form, FORMS, "form")
        one_of(self.metric, tuple(METRICS), "metric")
        as_flag(self.compiled, "compiled")
        check_until(self.until, self.most_draws)


def sample_nuts(
    model: Any,
    settings: NUTS,
    *,
    draws: int,
    chains: int,
    random_seed: Any,
    progressbar: bool,
    var_names: Sequence[str] | None = None,
    start: Mapping[str, Any] | None = None,
    site_model: SiteModel | None = None,
) -> SamplerDraws:
    """Sample `model`; the same seed gives the same draws.

    Parameters
    ----------
    var_names
        What to keep. `None`: every free variable and every Deterministic without the row dim.
    start
        Values, on their natural scale, around which the chains start (jittered). A variable of
        the model that is integrated out has no start and is passed over.
    site_model
        The arrays behind a `model` that `conditional_model` made.
    """
    begin = time.perf_counter()
    looks_at(draws, settings.until, settings.most_draws)
    check_known(model, [*(var_names or ()), *(start or ())])
    job = _Job(settings, draws, chains, random_seed, progressbar)
    found = _in_machine_code(model, settings, site_model)
    if not isinstance(found, str):
        from ardvark.inference.samplers.uncompiled import MachineCode

        known = MachineCode(model, found, start or {}, var_names, settings.predictor)
        drawn = _sample(known, model, var_names, job)
        gap = known.gap()
        if not gap:
            return _timed(drawn._replace(log_rows=found.log_rows(known.x)), begin)
        found = gap
    graph = Graph(model, settings, start or {}, var_names)
    drawn = _sample(graph, model, var_names, job)
    return _timed(drawn._replace(info={**drawn.info, "why_compiled": found}), begin)


class _Job(NamedTuple):
    """What was asked for, whatever the density is made of."""

    settings: NUTS
    draws: int
    chains: int
    seed: Any
    progressbar: bool


def _timed(drawn: SamplerDraws, begin: float) -> SamplerDraws:
    drawn.info["seconds"] = time.perf_counter() - begin
    return drawn


def _in_machine_code(model: Any, settings: NUTS, site_model: SiteModel | None) -> Joint | str:
    """Look for a density that needs no compiling, unless something else was asked for."""
    if settings.compiled or settings.sampler == "pymc" or settings.form == "whitened":
        return "it was asked for"
    if choose_sampler(model, settings.sampler) == "pymc" or not model.free_RVs:
        return "it has discrete variables"
    from ardvark.inference.samplers.uncompiled import find_conditional, find_density

    if site_model is not None:
        return find_conditional(site_model, model)
    return find_density(model, settings)


def _sample(
    route: MachineCode | Graph, model: Any, var_names: Sequence[str] | None, job: _Job
) -> SamplerDraws:
    """Draw; go on until the chains have converged if that was requested."""
    settings = job.settings
    lengths = looks_at(job.draws, settings.until, settings.most_draws)
    options: dict[str, Any] = {
        "tune": settings.tune,
        "chains": job.chains,
        "cores": settings.cores,
        "target_accept": settings.target_accept,
    }
    if settings.metric != "diagonal":
        options["adaptation"] = METRICS[settings.metric]
    with Background(lengths[-1]) as background:
        going_on = background if settings.until else None
        for length in lengths:
            rng = np.random.default_rng(job.seed)  # so that a look does not depend on others
            asked = Asked(options | {"draws": length}, job.progressbar, going_on)
            posterior, sample_stats = route.draw(asked, rng)
            posterior = in_order_of(model, posterior, var_names)
            problems, numbers = convergence(posterior, sample_stats, length)
            if mixed(numbers, job.chains):
                break
    info: dict[str, Any] = dict(route.info)
    if settings.until:
        info |= {"draws": length, "most_draws": lengths[-1]}
        problems += [] if mixed(numbers, job.chains) else [spent(lengths[-1])]
    return SamplerDraws(posterior, sample_stats, not problems, problems, info | numbers)
