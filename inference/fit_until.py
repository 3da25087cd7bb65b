"""A fit that is made longer until its checks pass, whatever the sampler (`until.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ardvark.inference.approximate import Answer, Run
from ardvark.inference.methods import METHODS
from ardvark.inference.routes import family_of
from ardvark.inference.samplers.convergence import mixed
from ardvark.inference.until import looks_at, spent

__all__ = ["fit_until"]


def fit_until(
    route: Callable[..., Answer], model: Any, name: str, settings: Any, run: Run
) -> Answer:
    """Fit by a route of `routes.py`; longer and longer where the settings ask for it."""
    plan = settings.hyper if hasattr(settings.hyper, "until") else settings
    if getattr(plan, "until", None) is None or _goes_on(model, name):
        return route(model, name, settings, run)
    what = "sweeps" if hasattr(plan, "most_sweeps") else "draws"
    first = plan.sweeps if what == "sweeps" else run.draws
    lengths = looks_at(first, plan.until, getattr(plan, f"most_{what}"))
    for length in lengths:
        if what == "sweeps":
            settings = replace(settings, sweeps=length)
        else:
            run = run._replace(draws=length)
        groups, facts = route(model, name, settings, run)
        if facts["converged"] or mixed(facts.get("sampler", {}), run.chains):
            break
    else:
        facts["problems"] += f"; {spent(length, what)}"
    told = {what: length, f"most_{what}": lengths[-1]}
    return groups, facts | {"sampler": facts.get("sampler", {}) | told}


def _goes_on(model: Any, name: str) -> bool:
    """Whether the chains can be continued: NUTS, unless it is judged by what it did not draw."""
    return METHODS[name].kind == "sampler" and family_of(model) != "bilinear"
