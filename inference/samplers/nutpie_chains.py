"""Chains of nutpie, whatever they sample: run to their end, or looked at while they run.

`run_nutpie` takes a model that nutpie has compiled (`compiled.py`) or one that was made to look so
(`uncompiled.py`). `Background` keeps the chains of a run that goes on until they have converged.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import xarray as xr

from ardvark.inference.running.progress import tell

__all__ = ["Asked", "Background", "Draws", "draws_of", "run_nutpie"]

PROGRESS_RATE = 50  # ms between two words of nutpie on how far it is
# nutpie's names -> the names of PyMC and of the ArviZ schema
_STATISTICS = {
    "depth": "tree_depth",
    "maxdepth_reached": "reached_max_treedepth",
    "logp": "lp",
    "mean_tree_accept": "acceptance_rate",
}

Draws = tuple[xr.Dataset, xr.Dataset]  # posterior, sample_stats


class Asked(NamedTuple):
    """What a sampler is asked for: `options` are those that nutpie and PyMC have in common."""

    options: dict[str, Any]
    progressbar: bool
    background: Background | None


def run_nutpie(compiled: Any, asked: Asked, seed: int) -> xr.DataTree:
    """Sample a model compiled by nutpie, or an object with the same interface."""
    import nutpie

    draw: Any = asked.background or nutpie.sample
    try:
        tree: xr.DataTree = draw(
            compiled, seed=seed, save_warmup=False, progress_bar=asked.progressbar, **asked.options
        )
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's panic is no Exception
            raise
        raise RuntimeError(f"nutpie gave up: {error}. Try NUTS(sampler='pymc').") from error
    return tree


class Background:
    """Chains of nutpie that run in threads of their own; a call gives the first draws of each.

    The first call starts them, and they run on between calls. What they drew beyond a look is left
    for the next one, so a look has the same draws whatever came before and how fast a chain is.
    """

    def __init__(self, most_draws: int) -> None:
        self._most = most_draws
        self._sampler: Any = None
        self._tree: xr.DataTree | None = None  # all draws, when the budget is spent
        self._done = 0  # draws of the slowest chain, tuning included

    def __call__(
        self, compiled: Any, *, draws: int, tune: int, chains: int, cores: Any, **options: Any
    ) -> xr.DataTree:
        """Give the first draws of each chain, as `nutpie.sample` would."""
        import nutpie

        if self._sampler is None:
            self._sampler = nutpie.sample(  # chains that wait for a core would never be looked at
                compiled, draws=self._most, tune=tune, chains=chains, cores=chains, blocking=False,
                progress_callback=self._told, progress_rate=PROGRESS_RATE, **options,
            )  # fmt: skip
        elif self._tree is None:
            self._sampler.resume()
        try:
            tree = self._tree or self._first(tune + draws)
        except RuntimeError:  # of the chains: a call after it starts others
            self._sampler = None
            raise
        return tree.isel(draw=slice(draws), missing_dims="ignore")

    def _first(self, length: int) -> xr.DataTree:
        """Wait until every chain has so many draws."""
        sampler = self._sampler
        while self._done < length and not _is_finished(sampler):
            tell(f"{self._done} of {length} draws", self._done / length)
            time.sleep(PROGRESS_RATE / 1000)
        if _is_finished(sampler):
            self._tree = sampler.wait()
            return self._tree
        sampler.pause()
        tree: xr.DataTree = sampler.inspect()
        return tree

    def _told(self, chains: list[Any]) -> None:
        self._done = min(chain.finished_draws for chain in chains)

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        if self._sampler is not None and self._tree is None:
            self._sampler.cancel()


def _is_finished(sampler: Any) -> bool:
    try:
        return bool(sampler.is_finished)
    except TimeoutError:  # what nutpie says of chains that run
        return False


def draws_of(tree: xr.DataTree) -> Draws:
    """Posterior and those statistics that a store can hold, under the names of PyMC."""
    stats = tree["sample_stats"].to_dataset()
    storable = [name for name in stats if stats[name].dtype != object]
    renamed = {old: new for old, new in _STATISTICS.items() if old in storable}
    return tree["posterior"].to_dataset(), stats[storable].rename(renamed)
