"""NUTS with nothing compiled: the density of `joint/joint.py`, handed to nutpie by its address.

nutpie's own models of PyMC hand it the address of two C functions, and of the data these are
called with. So do we: `LOG_DENSITY` and `COPY` lie in numba's cache, the data are the arrays of the
model. Chains run side by side without the interpreter's lock, and a fit waits for no compiler.

What is found is a density that was held against PyMC's own, or the reason why there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import UnreadableModel
from ardvark.inference.graph.read import read_model
from ardvark.inference.joint.joint import Joint, Uncompiled, differs
from ardvark.inference.joint.parts import conditional_density, joint_of
from ardvark.inference.known_sites.joint_density import COPY, LOG_DENSITY
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.pymc_models.forms import stored_names
from ardvark.inference.samplers.nutpie_chains import Asked, Draws, draws_of, run_nutpie
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.tree import draws_dataset

__all__ = [
    "MachineCode",
    "find_conditional",
    "find_density",
    "for_nutpie",
    "gap_at",
    "posterior_at",
]

HALVINGS = 30  # of a jitter that leads where nothing is possible
LOOKED_AT = 3  # draws of each chain that are held against PyMC's density: first, middle, last


class MachineCode:
    """A density in machine code, ready to be sampled: nutpie gets its address."""

    def __init__(
        self,
        model: Any,
        joint: Joint,
        start: Mapping[str, Any],
        var_names: Sequence[str] | None,
        predictor: str | None,
    ) -> None:
        self.model, self.joint = model, joint
        self.compiled = for_nutpie(joint, start)
        self.more, self.predictor = var_names or (), predictor
        form = "integrated" if joint.integrated else "as_written"
        self.info = {"sampler": "nutpie", "density": "machine code", "form": form}
        self.x = np.zeros(0)  # the last draws, (chain, draw, n)

    def draw(self, asked: Asked, rng: np.random.Generator) -> Draws:
        """Draw the point x and give what it stands for."""
        tree = run_nutpie(self.compiled, asked, seed=int(rng.integers(2**31)))
        points, sample_stats = draws_of(tree)
        self.x = points["x"].transpose("chain", "draw", ...).to_numpy()
        values = self.joint.natural(self.x, rng)
        return posterior_at(self.model, values, self.predictor, self.more), sample_stats

    def gap(self) -> str:
        """Say where the chains went to places at which this is not the density of the graph."""
        return gap_at(self.joint, self.model, self.x)


def find_density(model: Any, settings: Any) -> Joint | str:
    """Density of all variables, precisions integrated out where the form allows it; or why not."""
    try:
        latent = read_model(model, weights=settings.weights, predictor=settings.predictor)
        joint = joint_of(latent, integrate=settings.form in ("auto", "integrated"))
    except (UnreadableModel, Uncompiled) as refused:
        return str(refused)
    if settings.form == "integrated" and not joint.integrated:
        return "no precision can be integrated out"
    return _checked(joint, model)


def find_conditional(site_model: SiteModel, model: Any) -> Joint | str:
    """Density of the weights at given hyperparameters; `model` is that of `conditional.py`."""
    try:
        return _checked(conditional_density(site_model), model)
    except Uncompiled as refused:
        return str(refused)


def _checked(joint: Joint, model: Any) -> Joint | str:
    return differs(joint, model) or joint


def gap_at(joint: Joint, model: Any, x: Array) -> str:
    """Like `differs`, at some of the draws x (chain, draw, n): where the chains really went."""
    some = np.linspace(0, x.shape[1] - 1, LOOKED_AT).astype(int)
    return differs(joint, model, x[:, some].reshape(-1, x.shape[-1]))


def for_nutpie(joint: Joint, start: Mapping[str, Any]) -> Any:
    """Make a model of nutpie's; chains start around `start`, jittered as PyMC does."""
    import pandas as pd
    from nutpie.compile_pymc import CompiledPyMCModel

    size, centre = joint.start.size, joint.point(start)
    address = joint.packed.address

    def jittered(seed: Any) -> Array:
        x = centre + np.random.default_rng(seed).uniform(-1.0, 1.0, size)
        for _ in range(HALVINGS):
            if np.isfinite(joint.log_density(x)):
                break
            x = (x + centre) / 2
        return x

    return CompiledPyMCModel(
        dims={"x": ("unconstrained_parameter",)},
        compiled_logp_func=LOG_DENSITY,
        compiled_expand_func=COPY,
        initial_point_func=jittered,
        shared_data={"blocks": joint.packed},  # nutpie keeps the model, and this its numbers
        shared_var_keys={},
        user_data=address,
        n_expanded=size,
        shape_info=(["x"], [slice(0, size)], [(size,)]),
        logp_func=None,
        expand_func=None,
        _n_dim=size,
        _shapes={"x": (size,)},
        _coords={"unconstrained_parameter": pd.RangeIndex(size)},
        reparameterized_names=[],
    )


def posterior_at(
    model: Any, values: Mapping[str, Array], predictor: str | None, more: Sequence[str]
) -> xr.Dataset:
    """Draws of every free variable, and of the Deterministics that a sampler stores."""
    import pymc as pm

    posterior = draws_dataset(model, {rv.name: values[rv.name] for rv in model.free_RVs})
    derived = [n for n in (*stored_names(model, predictor), *more) if n not in posterior]
    if not derived:
        return posterior
    with quick():
        found: xr.Dataset = pm.compute_deterministics(
            posterior, var_names=list(dict.fromkeys(derived)), model=model, extend_dataset=True,
            progressbar=False, compile_kwargs={"mode": "FAST_COMPILE"},
        )  # fmt: skip
    return found
