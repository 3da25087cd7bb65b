"""A model's own log density, term by term, on the natural scale of its variables.

PyMC derives it from the graph as the user wrote it; what was read of the graph, and the density in
machine code, are held against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymc.logprob.basic import conditional_logp
from pymc.logprob.utils import replace_rvs_by_values

from ardvark.inference.pymc_models.compile import kept_with, quick
from ardvark.inference.pytensor_graphs.rebuild import by_row, narrow

__all__ = ["natural_terms"]


def natural_terms(model: Any, free: Sequence[Any]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Inputs for free random variables, and the log density as terms by name; kept with the model.

    Free variables that are not among those given have no input and no term.
    """
    wanted = [rv for rv in model.free_RVs if rv in free]

    def derive() -> tuple[dict[Any, Any], dict[str, Any]]:
        inputs = {rv: rv.type(name=rv.name) for rv in wanted}
        values = {**inputs, **{rv: model.rvs_to_values[rv] for rv in model.observed_RVs}}
        with quick():
            terms = conditional_logp(values, warn_rvs=False)
            named = {rv.name: narrow(by_row(terms[value])) for rv, value in values.items()}
            potentials = replace_rvs_by_values(
                list(model.potentials), rvs_to_values=values, rvs_to_transforms={}
            )
        return inputs, named | dict(
            zip((p.name for p in model.potentials), potentials, strict=True)
        )

    key = ("log density in natural terms", tuple(rv.name for rv in wanted))
    inputs, terms = kept_with(model, key, derive)
    return dict(inputs), dict(terms)
