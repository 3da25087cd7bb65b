"""The methods by name: one line per method, and nothing heavy imported to read it.

Four kinds:

* "gaussian": its settings have `approximate` and the adjoint of the evidence (`approximation.py`);
  the hyperparameters are settled around it (`hyper.py`).
* "exact": its settings have `sample(SiteModel)`, independent draws at fixed hyperparameters.
* "jump": moves between subsets of the inputs; how, depends on the family (`routes.py`).
* "sampler": draws from the posterior, hyperparameters included unless `hyper=Fixed(...)`.
* "slice": a Markov chain on the Gaussian block given its sites, at fixed hyperparameters.
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
    kind: str  # "gaussian" | "exact" | "sampler" | "slice"
    sample: str = ""  # samplers: name of the function that draws

    def load(self, name: str) -> Any:
        """Give a name of the method's module."""
        return getattr(import_module(f"ardvark.inference.{self.home}"), name)


METHODS: dict[str, MethodEntry] = {
    "laplace": MethodEntry("laplace", "Laplace", "gaussian"),
    "ep": MethodEntry("ep", "EP", "gaussian"),
    "exact": MethodEntry("exact", "Exact", "exact"),
    "reversible_jump": MethodEntry("reversible_jump", "ReversibleJump", "jump"),
    "nuts": MethodEntry("nuts", "NUTS", "sampler", "sample_nuts"),
    "smc": MethodEntry("smc", "SMC", "sampler", "sample_smc"),
    "elliptical_slice": MethodEntry("elliptical_slice", "EllipticalSlice", "slice"),
}
