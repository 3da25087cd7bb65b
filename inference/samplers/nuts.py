"""The no-U-turn sampler: draws from the exact posterior of a plain `pm.Model`, the reference.

Two things are done beyond a call of the sampler.

* Precisions that the builder can integrate out are integrated out and drawn afterwards (`forms`).
* The model compiled by nutpie (6 to 10 s) is kept beside the `pm.Model`. The next call, also after
  `pm.set_data` with another number of rows, only hands the new data over (0.2 ms). For this no
  variable with the row dimension is stored: predictors are computed from the draws afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr

from ardvark.errors import UnsupportedPair
from ardvark.inference.graph.compile import quick
from ardvark.inference.graph.forms import (
    FORMS,
    check_known,
    check_names,
    dims_of,
    form_to_sample,
    fraction,
    in_order_of,
    length_known,
    names_to_store,
    recover_precisions,
)
from ardvark.inference.samplers.convergence import SamplerDraws, convergence, mixed
from ardvark.inference.until import check_until, looks_at, spent
from ardvark.models.checks import one_of, positive_integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NUTS", "sample_nuts"]

SAMPLERS = ("auto", "nutpie", "pymc")
PROGRESS_RATE = 50  # ms between two words of nutpie on how far it is
HALVINGS = 30  # of a jitter that leads where nothing is possible
# nutpie's names -> the names of PyMC and of the ArviZ schema
_STATISTICS = {
    "depth": "tree_depth",
    "maxdepth_reached": "reached_max_treedepth",
    "logp": "lp",
    "mean_tree_accept": "acceptance_rate",
}


@dataclass(frozen=True, slots=True)
class NUTS:
    """Settings of the no-U-turn sampler.

    Parameters
    ----------
    hyper
        `None`: the hyperparameters belong to the posterior; `Fixed(...)`: they are given.
    weights, predictor
        Names in the graph, when they are not the usual ones.
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
        "auto" integrates when the model's builder offers it.
    until, most_draws
        "converged": the chains go on until R-hat <= 1.01 and the effective sizes of every element
        are at least 100 a chain, looked at after `draws` and each time half as many again, up to
        `most_draws` a chain (None: eight times `draws`); all chains then run at a time. None:
        `draws` and no more. The figures of a check that decides when to stop are a little too good
        (`until.py`).
    """

    hyper: Any = None
    weights: str | tuple[str, ...] | None = None
    predictor: str = "eta"
    tune: int = 1000
    target_accept: float = 0.9
    sampler: str = "auto"
    cores: int | None = None
    form: str = "auto"
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
) -> SamplerDraws:
    """Sample `model`; the same seed gives the same draws.

    Parameters
    ----------
    var_names
        What to keep. `None`: every free variable and every Deterministic without the row dim.
    start
        Values, on their natural scale, around which the chains start (jittered). A variable of
        the model that is integrated out has no start and is passed over.
    """
    lengths = looks_at(draws, settings.until, settings.most_draws)
    form = form_to_sample(model, settings.form)
    check_known(model, [*(var_names or ()), *(start or ())])
    start = {name: value for name, value in (start or {}).items() if name in form.model.named_vars}
    names = names_to_store(form, model, settings.predictor)
    names += [n for n in var_names or () if n not in names and n in form.model.named_vars]
    sampler = choose_sampler(form.model, settings.sampler)
    options = {
        "tune": settings.tune,
        "chains": chains,
        "cores": settings.cores,
        "target_accept": settings.target_accept,
    }
    begin = time.perf_counter()
    with _Background(lengths[-1]) as background:
        going_on = background if settings.until else None
        run = partial(_with_nutpie, background=going_on) if sampler == "nutpie" else _with_pymc
        for length in lengths:
            rng = np.random.default_rng(random_seed)  # so that a look does not depend on others
            posterior, sample_stats = run(
                form.model, names, start, options | {"draws": length}, rng, progressbar
            )
            posterior = posterior.merge(recover_precisions(posterior, form.precisions, rng))
            posterior = in_order_of(model, posterior, var_names)
            problems, numbers = convergence(posterior, sample_stats, length)
            if mixed(numbers, chains):
                break
    info = {"sampler": sampler, "form": form.name, "seconds": time.perf_counter() - begin}
    if settings.until:
        info |= {"draws": length, "most_draws": lengths[-1]}
        problems += [] if mixed(numbers, chains) else [spent(lengths[-1])]
    return SamplerDraws(posterior, sample_stats, not problems, problems, info | numbers)


# --------------------------------------------------------------------------------- the two samplers


def choose_sampler(model: Any, sampler: str) -> str:
    """Nutpie where it can be used: it knows continuous variables only."""
    discrete = [rv.name for rv in model.free_RVs if not _continuous(rv)]
    if discrete and sampler == "nutpie":
        raise UnsupportedPair(
            f"nutpie samples continuous variables only; {', '.join(discrete)} is discrete. "
            'Use NUTS(sampler="auto").'
        )
    return ("pymc" if discrete else "nutpie") if sampler == "auto" else sampler


def _continuous(rv: Any) -> bool:
    return str(rv.dtype).startswith("float")


_Draws = tuple[xr.Dataset, xr.Dataset]
_COMPILED: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()


def _compiled(model: Any, names: list[str]) -> Any:
    """Give the model compiled by nutpie, with the data the model holds now."""
    import nutpie

    tied_to = _signature(model, names)
    known, compiled = _COMPILED.get(model, (None, None))
    if known != tied_to:
        compiled = nutpie.compile_pymc_model(model, var_names=names)
        # Shared variables without a name cannot be handed over: such a model is never kept.
        if all(variable.name for variable in compiled.shared_var_keys):
            _COMPILED[model] = tied_to, compiled
        return compiled
    return compiled.with_data(**{v.name: v.get_value() for v in compiled.shared_var_keys})


def _signature(model: Any, names: list[str]) -> Any:
    """List what compiled code is tied to: variables, and lengths a stored variable may have."""
    variables = [v.name for v in (*model.basic_RVs, *model.deterministics, *model.potentials)]
    loose = not all(length_known(model[name], dims_of(model, name)) for name in names)
    tied = {dim for name in names for dim in dims_of(model, name)}
    lengths = {dim: len(model.coords[dim]) for dim in tied if model.coords.get(dim)}
    shapes = {}
    for shared in model.data_vars:
        shape = shared.get_value(borrow=True).shape
        dims = dims_of(model, shared.name) or (None,) * len(shape)
        shapes[shared.name] = tuple(
            size if loose or dim is None or dim in tied else None
            for size, dim in zip(shape, dims, strict=True)
        )
    return variables, sorted(names), lengths, shapes


def _with_nutpie(
    model: Any,
    names: list[str],
    start: dict[str, Any],
    options: dict[str, Any],
    rng: np.random.Generator,
    progressbar: bool,
    background: _Background | None = None,
) -> _Draws:
    import nutpie

    compiled = _compiled(model, names)
    if start:
        compiled = replace(compiled, initial_point_func=_jittered_around(model, start))
    draw: Any = background or nutpie.sample
    sample = partial(draw, **options, save_warmup=False, progress_bar=progressbar)
    seed = int(rng.integers(2**31))
    try:
        try:
            tree = sample(compiled, seed=seed)
        except RuntimeError as error:
            if "initialization points failed" not in str(error):
                raise
            drawn_in = _jittered_around(model, start, possible=True)
            tree = sample(replace(compiled, initial_point_func=drawn_in), seed=seed)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's panic is no Exception
            raise
        raise RuntimeError(f"nutpie gave up: {error}. Try NUTS(sampler='pymc').") from error
    return _draws(tree)


class _Background:
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
            time.sleep(PROGRESS_RATE / 1000)
        if _is_finished(sampler):
            self._tree = sampler.wait()
            return self._tree
        sampler.pause()
        tree: xr.DataTree = sampler.inspect()
        return tree

    def _told(self, chains: list[Any]) -> None:
        self._done = min(chain.finished_draws for chain in chains)

    def __enter__(self) -> _Background:
        return self

    def __exit__(self, *_: object) -> None:
        if self._sampler is not None and self._tree is None:
            self._sampler.cancel()


def _is_finished(sampler: Any) -> bool:
    try:
        return bool(sampler.is_finished)
    except TimeoutError:  # what nutpie says of chains that run
        return False


def _draws(tree: xr.DataTree) -> _Draws:
    """Posterior and those statistics that a store can hold, under the names of PyMC."""
    stats = tree["sample_stats"].to_dataset()
    storable = [name for name in stats if stats[name].dtype != object]
    renamed = {old: new for old, new in _STATISTICS.items() if old in storable}
    return tree["posterior"].to_dataset(), stats[storable].rename(renamed)


def _jittered_around(model: Any, start: dict[str, Any], possible: bool = False) -> Any:
    """Make a function of the seed: the start in nutpie's flat unconstrained space, jittered.

    With `possible` a jittered start of probability zero is drawn in towards the start itself: a
    likelihood that is zero beyond a margin leaves no other.
    """
    from pymc.initial_point import make_initial_point_fn

    point = make_initial_point_fn(model=model, overrides=start, jitter_rvs=set(model.free_RVs))
    lock = Lock()  # the chains' threads share one compiled function
    if possible:
        with quick():
            centre = make_initial_point_fn(model=model, overrides=start, jitter_rvs=set())(0)
            log_density = model.compile_logp(mode="FAST_COMPILE")

    def flat(seed: Any) -> NDArray[np.float64]:
        with lock:
            values = point(seed)
            for _ in range(HALVINGS if possible else 0):
                if np.isfinite(log_density(values)):
                    break
                values = {name: (values[name] + centre[name]) / 2 for name in values}
            return np.concatenate([np.ravel(value) for value in values.values()]).astype(float)

    return flat


def _with_pymc(
    model: Any,
    names: list[str],
    start: dict[str, Any],
    options: dict[str, Any],
    rng: np.random.Generator,
    progressbar: bool,
) -> _Draws:
    import pymc as pm
    from pymc.initial_point import make_initial_point_fn

    continuous = {rv for rv in model.free_RVs if _continuous(rv)}
    starts: Any = start or None
    if len(continuous) < len(model.free_RVs):  # PyMC would start all chains at one point
        point = make_initial_point_fn(
            model=model, overrides=start, jitter_rvs=continuous, return_transformed=False
        )
        starts = [point(int(seed)) for seed in rng.integers(2**31, size=options["chains"])]
    if not continuous:  # no step would take it
        options = {name: value for name, value in options.items() if name != "target_accept"}
    tree = pm.sample(
        model=model,
        **options,
        random_seed=int(rng.integers(2**31)),
        nuts_sampler="pymc",
        init="jitter+adapt_diag",
        initvals=starts,
        var_names=names,
        progressbar=progressbar,
        quiet=not progressbar,
        compute_convergence_checks=False,
    )
    return _draws(tree)
