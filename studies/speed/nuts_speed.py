"""NUTS by effective draws of the worst weight per CPU second, everything counted from `av.fit`.

Contestants of `bench`, each a fresh process that has loaded its modules, with one data set:
`av.NUTS()` with its reading, check, tree and all, as the first fit of a process (our own modules
are loaded and numba starts inside it) and as a later one, of a new model; nutpie on the same graph
with the precisions integrated out (what `av.NUTS(compiled=True)` compiles), and its sampling alone.
Four chains of 1000 draws after 1000 of tuning, target_accept 0.9. A turn of the bench takes another
data set and seed, but for wdbc, which has one data set.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["TASKS", "model_of", "nuts_ardvark", "nuts_nutpie"]

TASKS = {
    "nuts 60 x 5 probit": (60, 5, "probit"),
    "nuts 60 x 5 logit": (60, 5, "logit"),
    "nuts 500 x 50 probit": (500, 50, "probit"),
    "nuts 500 x 50 logit": (500, 50, "logit"),
    "nuts wdbc probit": (569, 30, "probit"),
}
REPEAT = "ARDVARK_BENCH_REPEAT"


def _repeat() -> int:
    return int(os.environ.get(REPEAT, "0"))


def model_of(task: str) -> Any:
    """The model of `av.models`; a fifth of the inputs matter."""
    import numpy as np

    import ardvark as av

    rows, inputs, link = TASKS[task]
    if "wdbc" in task:
        data = av.load("wdbc")
        return av.models.ard_classification(av.standardise(data.X), data.t, link=link)
    rng = np.random.default_rng(100 + _repeat())
    X = rng.normal(size=(rows, inputs))
    score = X[:, : max(2, inputs // 5)].sum(axis=1) + rng.normal(size=rows)
    return av.models.ard_classification(X, (score > 0).astype(int), link=link)


def _worst(posterior: Any) -> dict[str, Any]:
    """Effective draws of the worst weight as `steps`, and means and sds of all."""
    import numpy as np

    from ardvark.inference.samplers.chain_statistics import ess_bulk

    w = np.concatenate([posterior["bias"].values[..., None], posterior["w"].values], axis=-1)
    mean, sd = w.mean(axis=(0, 1)), w.std(axis=(0, 1))
    return {"steps": int(ess_bulk(w).min()), "mean": mean.tolist(), "sd": sd.tolist()}


def nuts_ardvark(task: str, later: bool = False) -> Callable[[], dict[str, Any]]:
    """Make the case of `av.NUTS()`: the first fit of a process, or one after it of a new model."""

    def run() -> dict[str, Any]:
        import nutpie  # noqa: F401  # loaded before the clock starts, as for the peer

        import ardvark as av

        warnings.simplefilter("ignore")
        if later:
            av.fit(model_of(task), av.NUTS(tune=10), draws=10, random_seed=0, progressbar=False)
        model = model_of(task)
        begin, wall = time.process_time(), time.perf_counter()
        tree = av.fit(model, av.NUTS(), random_seed=_repeat(), progressbar=False)
        spent = {"cpu_seconds": time.process_time() - begin}
        spent["wall_seconds"] = time.perf_counter() - wall
        return spent | _worst(tree["posterior"])

    return run


def nuts_nutpie(task: str, with_compile: bool) -> Callable[[], dict[str, Any]]:
    """Make the case of nutpie on the graph with the precisions integrated out."""

    def run() -> dict[str, Any]:
        import nutpie

        from ardvark.models.card import card_of

        card = card_of(model_of(task))
        assert card is not None and card.integrated is not None
        graph = card.integrated()
        begin, wall = time.process_time(), time.perf_counter()
        compiled = nutpie.compile_pymc_model(graph, var_names=["bias", "w"])
        if not with_compile:
            begin, wall = time.process_time(), time.perf_counter()
        tree = nutpie.sample(
            compiled, draws=1000, tune=1000, chains=4, seed=_repeat(), target_accept=0.9,
            progress_bar=False, save_warmup=False,
        )  # fmt: skip
        spent = {"cpu_seconds": time.process_time() - begin}
        spent["wall_seconds"] = time.perf_counter() - wall
        return spent | _worst(tree["posterior"])

    return run
