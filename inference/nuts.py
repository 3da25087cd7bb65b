"""The no-U-turn sampler: draws from the exact posterior of a plain `pm.Model`, the reference.

Two things are done beyond a call of the sampler.

* A model whose builder offers an `integrated` form (see `models.card`) is sampled with its Gamma
  precisions integrated out, and they are drawn afterwards from their exact conditional:

      alpha ~ Gamma(a, b),  w | alpha ~ N(0, 1/alpha)                      as written
      w ~ StudentT(2a, scale sqrt(b/a))                                    what is sampled
      alpha | w ~ Gamma(a + 1/2, b + w²/2)                                 `recover_precisions`

* The model compiled by nutpie (6 to 10 s) is kept beside the `pm.Model`. The next call, also after
  `pm.set_data` with another number of rows, only hands the new data over (0.2 ms). For this no
  variable with the row dimension is stored: predictors are computed from the draws afterwards.

`Sampled.problems` says in words and numbers what speaks against the draws; it is empty if and
only if `Sampled.converged`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr

from ardvark.errors import InputError, UnsupportedPair
from ardvark.models.card import card_of, copy_data
from ardvark.models.checks import one_of, positive_integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ardvark.models.card import Precision

__all__ = [
    "BFMI_MIN",
    "ESS_PER_CHAIN",
    "NUTS",
    "RHAT_MAX",
    "Sampled",
    "convergence",
    "recover_precisions",
    "sample_nuts",
]

RHAT_MAX = 1.01
ESS_PER_CHAIN = 100
BFMI_MIN = 0.3

SAMPLERS = ("auto", "nutpie", "pymc")
FORMS = ("auto", "integrated", "as_written")

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
    """

    hyper: Any = None
    weights: str | tuple[str, ...] | None = None
    predictor: str = "eta"
    tune: int = 1000
    target_accept: float = 0.9
    sampler: str = "auto"
    cores: int | None = None
    form: str = "auto"

    def __post_init__(self) -> None:
        check_names(self.weights, self.predictor)
        positive_integer(self.tune, "tune")
        fraction(self.target_accept, "target_accept")
        one_of(self.sampler, SAMPLERS, "sampler")
        if self.cores is not None:
            positive_integer(self.cores, "cores")
        one_of(self.form, FORMS, "form")


class Sampled(NamedTuple):
    """Draws of a sampler and what speaks against them."""

    posterior: xr.Dataset  # (chain, draw, ...) with the model's dims and coords
    sample_stats: xr.Dataset
    converged: bool
    problems: list[str]
    info: dict[str, Any]


def check_names(weights: Any, predictor: Any) -> None:
    """Refuse `weights` and `predictor` that cannot be names of variables."""
    names = (weights,) if isinstance(weights, str) else weights
    if names is not None and not (
        isinstance(names, tuple) and names and all(isinstance(name, str) for name in names)
    ):
        raise InputError(f"weights must be a name, a tuple of names or None, got {weights!r}.")
    if not isinstance(predictor, str):
        raise InputError(f"predictor must be the name of a variable, got {predictor!r}.")


def fraction(value: Any, argument: str) -> float:
    """Check a number between 0 and 1, both excluded."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise InputError(f"{argument} must lie between 0 and 1, got {value!r}.")
    return float(value)


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
) -> Sampled:
    """Sample `model`; the same seed gives the same draws.

    Parameters
    ----------
    var_names
        What to keep. `None`: every free variable and every Deterministic without the row dim.
    start
        Values, on their natural scale, around which the chains start (jittered). A variable of
        the model that is integrated out has no start and is passed over.
    """
    rng = np.random.default_rng(random_seed)
    form = form_to_sample(model, settings.form)
    check_known(model, [*(var_names or ()), *(start or ())])
    start = {name: value for name, value in (start or {}).items() if name in form.model.named_vars}
    names = stored_names(form.model, settings.predictor)
    names += [n for n in var_names or () if n not in names and n in form.model.named_vars]
    sampler = choose_sampler(form.model, settings.sampler)
    run = _with_nutpie if sampler == "nutpie" else _with_pymc
    options = {
        "draws": draws,
        "tune": settings.tune,
        "chains": chains,
        "cores": settings.cores,
        "target_accept": settings.target_accept,
    }
    begin = time.perf_counter()
    posterior, sample_stats = run(form.model, names, start, options, rng, progressbar)
    posterior = posterior.merge(recover_precisions(posterior, form.precisions, rng))
    posterior = in_order_of(model, posterior, var_names)
    problems, numbers = convergence(posterior, sample_stats, draws)
    info = {"sampler": sampler, "form": form.name, "seconds": time.perf_counter() - begin}
    return Sampled(posterior, sample_stats, not problems, problems, info | numbers)


# ---------------------------------------------------------------- which graph is sampled


class Form(NamedTuple):
    """The graph that is sampled and the precisions that are missing in it."""

    model: Any
    precisions: tuple[Precision, ...]
    name: str


_INTEGRATED: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def form_to_sample(model: Any, form: str) -> Form:
    """Give the integrated form of `model` with the model's present data, or `model` itself."""
    if not model.free_RVs:
        raise UnsupportedPair("The model has no free variable: there is nothing to sample.")
    card = card_of(model)
    build = None if card is None else card.integrated
    if build is None and form == "integrated":
        raise UnsupportedPair(
            'form="integrated" was asked, but this model has no form with the precisions '
            'integrated out. Use form="auto".'
        )
    if card is None or build is None or form == "as_written":
        return Form(model, (), "as_written")
    if model not in _INTEGRATED:
        _INTEGRATED[model] = build()
    copy_data(model, _INTEGRATED[model])
    return Form(_INTEGRATED[model], tuple(card.precisions), "integrated")


def recover_precisions(
    posterior: xr.Dataset, card_precisions: Sequence[Precision], rng: np.random.Generator
) -> xr.Dataset:
    """Draw alpha | w ~ Gamma(a + 1/2, rate b + w²/2) for every draw of w, with w's dims."""
    recovered = {}
    for precision in card_precisions:
        weight = posterior[precision.weights]
        recovered[precision.name] = weight.copy(data=precision.draw_given(weight.values, rng))
    return xr.Dataset(recovered)


def dims_of(model: Any, name: str) -> tuple[Any, ...]:
    """Give the named dims of a variable; empty if it has none."""
    return tuple(model.named_vars_to_dims.get(name) or ())


def stored_names(model: Any, predictor: str) -> list[str]:
    """Free variables and Deterministics whose length cannot change with the number of rows."""
    rows = {dim for rv in model.observed_RVs for dim in dims_of(model, rv.name)[:1]}
    names = [rv.name for rv in model.free_RVs]
    for variable in model.deterministics:
        dims = dims_of(model, variable.name)
        if variable.name != predictor and not rows & set(dims) and _length_known(variable, dims):
            names.append(variable.name)
    return names


def _length_known(variable: Any, dims: tuple[Any, ...]) -> bool:
    lengths = variable.type.shape
    named = dims or (None,) * len(lengths)
    return all(d is not None or n is not None for d, n in zip(named, lengths, strict=True))


def check_known(model: Any, names: Sequence[str]) -> None:
    """Refuse names that are no unobserved variables of the model."""
    known = [variable.name for variable in model.unobserved_RVs]
    for name in names:
        if name not in known:
            raise InputError(f"The model has no variable {name!r}. It has: {', '.join(known)}.")


def in_order_of(model: Any, posterior: xr.Dataset, var_names: Sequence[str] | None) -> xr.Dataset:
    """Put the variables in the order of the model, with its present coordinates."""
    known = [v.name for v in model.unobserved_RVs if v.name in posterior]
    posterior = posterior[list(var_names) if var_names is not None else known]
    coords = {dim: list(model.coords[dim]) for dim in posterior.dims if model.coords.get(dim)}
    return posterior.assign_coords(coords)


# ---------------------------------------------------------------- the two samplers


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
    loose = not all(_length_known(model[name], dims_of(model, name)) for name in names)
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
) -> _Draws:
    import nutpie

    compiled = _compiled(model, names)
    if start:
        compiled = replace(compiled, initial_point_func=_jittered_around(model, start))
    try:
        tree = nutpie.sample(
            compiled,
            **options,
            seed=int(rng.integers(2**31)),
            save_warmup=False,
            progress_bar=progressbar,
        )
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's panic is no Exception
            raise
        raise RuntimeError(f"nutpie gave up: {error}. Try NUTS(sampler='pymc').") from error
    return _draws(tree)


def _draws(tree: xr.DataTree) -> _Draws:
    """Posterior and those statistics that a store can hold, under the names of PyMC."""
    stats = tree["sample_stats"].to_dataset()
    storable = [name for name in stats if stats[name].dtype != object]
    renamed = {old: new for old, new in _STATISTICS.items() if old in storable}
    return tree["posterior"].to_dataset(), stats[storable].rename(renamed)


def _jittered_around(model: Any, start: dict[str, Any]) -> Any:
    """Make a function of the seed: the start in nutpie's flat unconstrained space, jittered."""
    from pymc.initial_point import make_initial_point_fn

    point = make_initial_point_fn(model=model, overrides=start, jitter_rvs=set(model.free_RVs))
    lock = Lock()  # the chains' threads share one compiled function

    def flat(seed: Any) -> NDArray[np.float64]:
        with lock:
            return np.concatenate([np.ravel(value) for value in point(seed).values()]).astype(float)

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


# ---------------------------------------------------------------- what speaks against the draws


def convergence(
    posterior: xr.Dataset, sample_stats: xr.Dataset, draws: int
) -> tuple[list[str], dict[str, Any]]:
    """Every failed check in words, and the numbers of all checks.

    Rank-normalised split R-hat, bulk and tail effective sample size (of all elements that are not
    constant), divergences and E-BFMI. A number that cannot be computed counts as failed.
    """
    names, elements = moving_elements(posterior)
    chains = posterior.sizes["chain"]
    problems, numbers = rhat_problems(names, elements)
    if posterior.sizes["draw"] < draws:
        problems.append(f"The sampler stopped after {posterior.sizes['draw']} of {draws} draws.")
    least = ESS_PER_CHAIN * chains
    for part, option in {"bulk": {}, "tail": {"prob": (0.05, 0.95)}}.items():
        if not names:
            continue
        ess = _statistic("ess", elements, method=part, **option)
        worst = int(np.argmin(ess))
        numbers[f"ess_{part}_min"] = float(ess[worst])
        if not ess[worst] >= least:
            problems.append(
                f"Effective sample size ({part}) {ess[worst]:.0f} of {names[worst]} is below "
                f"{least} ({ESS_PER_CHAIN} per chain): take more draws."
            )
    return problems + _energy_problems(sample_stats, numbers), numbers


def _energy_problems(sample_stats: xr.Dataset, numbers: dict[str, Any]) -> list[str]:
    problems = []
    if "diverging" in sample_stats:
        diverging = sample_stats["diverging"]
        numbers["divergences"] = int(diverging.sum())
        if numbers["divergences"]:
            problems.append(
                f"{numbers['divergences']} of {diverging.size} draws diverged: the posterior has "
                "places the sampler cannot enter; raise target_accept."
            )
    if "energy" in sample_stats and sample_stats["energy"].ndim == 2:
        bfmi = _statistic("bfmi", sample_stats["energy"].values)
        worst = int(np.argmin(bfmi))
        numbers["bfmi_min"] = float(bfmi[worst])
        if not bfmi[worst] >= BFMI_MIN:
            problems.append(
                f"E-BFMI {bfmi[worst]:.2f} of chain {worst} is below {BFMI_MIN}: "
                "the energy explores heavy tails slowly."
            )
    return problems


def rhat_problems(
    names: list[str], elements: NDArray[np.float64]
) -> tuple[list[str], dict[str, Any]]:
    """Do the chains agree? `elements` is (chain, draw, element)."""
    if not names:
        return ["Every stored variable is constant: the sampler never moved."], {}
    if elements.shape[0] < 2:
        return ["One chain only: R-hat compares chains, use chains >= 2."], {}
    rhat = _statistic("rhat", elements)
    worst = int(np.argmax(rhat))
    numbers = {"rhat_max": float(rhat[worst])}
    if rhat[worst] <= RHAT_MAX:
        return [], numbers
    text = f"R-hat {rhat[worst]:.4g} of {names[worst]} is not at most {RHAT_MAX}: "
    return [text + "the chains disagree; raise tune and draws."], numbers


def _statistic(name: str, draws: NDArray[np.float64], **options: Any) -> NDArray[np.float64]:
    arviz_stats = import_module("arviz_stats")  # slow to import: not before it is needed
    with np.errstate(all="ignore"):  # stuck chains divide by zero: inf or NaN, which fail the check
        return np.atleast_1d(getattr(arviz_stats, name)(draws, **options))


def moving_elements(posterior: xr.Dataset) -> tuple[list[str], NDArray[np.float64]]:
    """All scalars of all variables side by side, (chain, draw, element), but for constant ones."""
    names: list[str] = []
    columns = []
    for name, variable in posterior.data_vars.items():
        ordered = variable.transpose("chain", "draw", ...)
        dims = ordered.dims[2:]
        labels = [list(ordered[dim].values) for dim in dims]
        for index in np.ndindex(*ordered.shape[2:]):
            column = ordered.values[(slice(None), slice(None), *index)]
            if np.all(column == column[:1, :1]):
                continue
            place = ", ".join(str(label[i]) for label, i in zip(labels, index, strict=True))
            names.append(f"{name}[{place}]" if dims else str(name))
            columns.append(column.astype(float))
    empty = np.empty((posterior.sizes["chain"], posterior.sizes["draw"], 0))
    return names, np.stack(columns, axis=-1) if columns else empty
