"""The no-U-turn sampler: draws from the exact posterior of a plain `pm.Model`, the reference.

Three things are done beyond a call of the sampler.

* Where the density of a model is known in machine code, nothing is compiled (`uncompiled.py`). It
  is held against PyMC's own log density before the chains start and again where they went.
* Precisions that can be integrated out are integrated out and drawn afterwards (`forms`).
* Other models are compiled by nutpie (6 to 10 s), and that is kept beside the `pm.Model`. The next
  call, also after `pm.set_data` with another number of rows, only hands the new data over (0.2 ms).
  For this no variable with the row dimension is stored: predictors are computed from the draws
  afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from ardvark.errors import UnsupportedPair
from ardvark.inference.pymc_models.compile import kept_with, quick
from ardvark.inference.pymc_models.forms import (
    FORMS,
    check_known,
    check_names,
    dims_of,
    form_to_sample,
    in_order_of,
    length_known,
    names_to_store,
    recover_precisions,
)
from ardvark.inference.running.progress import tell
from ardvark.inference.running.until import check_until, looks_at, spent
from ardvark.inference.samplers.convergence import SamplerDraws, convergence, mixed
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.settings import MethodSettings
from ardvark.models.checks import as_flag, fraction, one_of, positive_integer

if TYPE_CHECKING:
    from ardvark.inference.joint.joint import Joint
    from ardvark.inference.sites.model import SiteModel

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
        known = _Uncompiled(model, found, start or {}, var_names, settings.predictor)
        drawn = _sample(known, model, var_names, job)
        gap = known.gap()
        if not gap:
            return _timed(drawn._replace(log_rows=found.log_rows(known.x)), begin)
        found = gap
    graph = _Graph(model, settings, start or {}, var_names)
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
    route: _Uncompiled | _Graph, model: Any, var_names: Sequence[str] | None, job: _Job
) -> SamplerDraws:
    """Draw, look, and go on if the chains are to be drawn until they have converged."""
    settings = job.settings
    lengths = looks_at(job.draws, settings.until, settings.most_draws)
    options = {
        "tune": settings.tune,
        "chains": job.chains,
        "cores": settings.cores,
        "target_accept": settings.target_accept,
    }
    with _Background(lengths[-1]) as background:
        going_on = background if settings.until else None
        for length in lengths:
            rng = np.random.default_rng(job.seed)  # so that a look does not depend on others
            posterior, sample_stats = route.draw(
                options | {"draws": length}, rng, job.progressbar, going_on
            )
            posterior = in_order_of(model, posterior, var_names)
            problems, numbers = convergence(posterior, sample_stats, length)
            if mixed(numbers, job.chains):
                break
    info: dict[str, Any] = dict(route.info)
    if settings.until:
        info |= {"draws": length, "most_draws": lengths[-1]}
        problems += [] if mixed(numbers, job.chains) else [spent(lengths[-1])]
    return SamplerDraws(posterior, sample_stats, not problems, problems, info | numbers)


# ------------------------------------------------------------------------ two densities, one NUTS


class _Uncompiled:
    """A density in machine code: nutpie is told its address."""

    def __init__(
        self,
        model: Any,
        joint: Joint,
        start: Mapping[str, Any],
        var_names: Sequence[str] | None,
        predictor: str | None,
    ) -> None:
        from ardvark.inference.samplers.uncompiled import for_nutpie

        self.model, self.joint = model, joint
        self.compiled = for_nutpie(joint, start)
        self.more, self.predictor = var_names or (), predictor
        form = "integrated" if joint.integrated else "as_written"
        self.info = {"sampler": "nutpie", "density": "machine code", "form": form}
        self.x = np.zeros(0)  # the last draws, (chain, draw, n)

    def draw(
        self,
        options: dict[str, Any],
        rng: np.random.Generator,
        progressbar: bool,
        background: _Background | None,
    ) -> _Draws:
        """Draw the point x and give what it stands for."""
        from ardvark.inference.samplers.uncompiled import posterior_at

        seed = int(rng.integers(2**31))
        tree = _run_nutpie(self.compiled, options, seed, progressbar, background)
        points, sample_stats = _draws(tree)
        self.x = points["x"].transpose("chain", "draw", ...).to_numpy()
        values = self.joint.natural(self.x, rng)
        return posterior_at(self.model, values, self.predictor, self.more), sample_stats

    def gap(self) -> str:
        """Say where the chains went to places at which this is not the density of the graph."""
        from ardvark.inference.samplers.uncompiled import gap_at

        return gap_at(self.joint, self.model, self.x)


class _Graph:
    """The graph itself, compiled by nutpie or sampled by PyMC."""

    def __init__(
        self,
        model: Any,
        settings: NUTS,
        start: Mapping[str, Any],
        var_names: Sequence[str] | None,
    ) -> None:
        self.form = form = form_to_sample(model, settings.form)
        self.start = {n: value for n, value in start.items() if n in form.model.named_vars}
        self.names = names_to_store(form, model, settings.predictor)
        self.names += [
            n for n in var_names or () if n not in self.names and n in form.model.named_vars
        ]
        self.sampler = choose_sampler(form.model, settings.sampler)
        self.info = {"sampler": self.sampler, "density": "graph", "form": form.name}

    def draw(
        self,
        options: dict[str, Any],
        rng: np.random.Generator,
        progressbar: bool,
        background: _Background | None,
    ) -> _Draws:
        """Draw the variables of the graph, and the precisions that are missing in it."""
        run = partial(_with_nutpie, background=background)
        posterior, sample_stats = (run if self.sampler == "nutpie" else _with_pymc)(
            self.form.model, self.names, self.start, options, rng, progressbar
        )
        recovered = recover_precisions(posterior, self.form.precisions, rng)
        return posterior.merge(recovered), sample_stats


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


def _compiled(model: Any, names: list[str]) -> Any:
    """Give the model compiled by nutpie, with the data the model holds now."""
    import nutpie

    kept: dict[Any, Any] = kept_with(model, "compiled by nutpie", dict)
    tied_to = _signature(model, names)
    if tied_to not in kept:
        compiled = nutpie.compile_pymc_model(model, var_names=names)
        # Shared variables without a name cannot be handed over: such a model is never kept.
        if all(variable.name for variable in compiled.shared_var_keys):
            kept.clear()  # code for other lengths of the data is large, and seldom wanted again
            kept[tied_to] = compiled
        return compiled
    compiled = kept[tied_to]
    return compiled.with_data(**{v.name: v.get_value() for v in compiled.shared_var_keys})


def _signature(model: Any, names: list[str]) -> Any:
    """List what compiled code is tied to: stored variables, and the lengths they may have."""
    loose = not all(length_known(model[name], dims_of(model, name)) for name in names)
    tied = {dim for name in names for dim in dims_of(model, name)}
    labelled = sorted(dim for dim in tied if model.coords.get(dim))
    lengths = tuple((dim, len(model.coords[dim])) for dim in labelled)
    shapes = {}
    for shared in model.data_vars:
        shape = shared.get_value(borrow=True).shape
        dims = dims_of(model, shared.name) or (None,) * len(shape)
        shapes[shared.name] = tuple(
            size if loose or dim is None or dim in tied else None
            for size, dim in zip(shape, dims, strict=True)
        )
    return tuple(sorted(names)), lengths, tuple(shapes.items())


def _with_nutpie(
    model: Any,
    names: list[str],
    start: dict[str, Any],
    options: dict[str, Any],
    rng: np.random.Generator,
    progressbar: bool,
    background: _Background | None = None,
) -> _Draws:
    compiled = _compiled(model, names)
    if start:
        compiled = replace(compiled, initial_point_func=_jittered_around(model, start))
    sample = partial(
        _run_nutpie,
        options=options,
        seed=int(rng.integers(2**31)),
        progressbar=progressbar,
        background=background,
    )
    try:
        tree = sample(compiled)
    except RuntimeError as error:
        if "initialization points failed" not in str(error):
            raise
        drawn_in = _jittered_around(model, start, possible=True)
        tree = sample(replace(compiled, initial_point_func=drawn_in))
    return _draws(tree)


def _run_nutpie(
    compiled: Any,
    options: dict[str, Any],
    seed: int,
    progressbar: bool,
    background: _Background | None,
) -> xr.DataTree:
    """Sample what nutpie has compiled, or what was made to look so."""
    import nutpie

    draw: Any = background or nutpie.sample
    try:
        tree: xr.DataTree = draw(
            compiled, seed=seed, save_warmup=False, progress_bar=progressbar, **options
        )
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's panic is no Exception
            raise
        raise RuntimeError(f"nutpie gave up: {error}. Try NUTS(sampler='pymc').") from error
    return tree


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

    def flat(seed: Any) -> Array:
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
