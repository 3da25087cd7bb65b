"""The methods by name: one line per method, and nothing heavy imported to read it.

Six kinds:

* "gaussian": its settings have `approximate` and the adjoint of the evidence
  (`sites/approximation.py`); the hyperparameters are settled around it (`hyper/settings.py`).
* "exact": its settings have `sample(SiteModel)`, independent draws at fixed hyperparameters.
* "vb": a factorised approximation of weights and hyperparameters together, by its own route.
* "sampler": draws from the posterior, hyperparameters included unless `hyper=Fixed(...)`.
* "slice": a Markov chain on the Gaussian block given its sites, at fixed hyperparameters.
* "jump": samples subsets of the inputs, in a way of its own for each family (`routes.py`).
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["METHODS", "MethodEntry"]


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """Where a method lives and what kind it is."""

    home: str  # module of ardvark.inference
    settings: str  # name of its settings class
    kind: str  # "gaussian" | "exact" | "vb" | "sampler" | "slice" | "jump"
    sample: str = ""  # samplers: name of the function that draws

    def load(self, name: str) -> Any:
        """Give a name of the method's module."""
        return getattr(import_module(f"ardvark.inference.{self.home}"), name)


METHODS: dict[str, MethodEntry] = {
    "laplace": MethodEntry("laplace", "Laplace", "gaussian"),
    "ep": MethodEntry("ep.ep", "EP", "gaussian"),
    "vb": MethodEntry("vb.vb", "VB", "vb"),
    "exact": MethodEntry("exact.exact", "Exact", "exact"),
    "nuts": MethodEntry("samplers.nuts", "NUTS", "sampler", "sample_nuts"),
    "smc": MethodEntry("samplers.smc", "SMC", "sampler", "sample_smc"),
    "elliptical_slice": MethodEntry("samplers.elliptical_slice", "EllipticalSlice", "slice"),
    "reversible_jump": MethodEntry("reversible_jump", "ReversibleJump", "jump"),
}
