"""Subset models by reversible jump and by enumeration, and what they predict.

Priors are not read from the graph: the card says which ones the builder wrote, and a graph that has
been added to since is refused. The data are the graph's present ones.

| model | weights | how |
|---|---|---|
| `subset_regression` | integrated out | `collapsed.py` |
| probit | integrated out, given the latent utilities | `collapsed.py` |
| logit | proposed from the Laplace Gaussian of the target subset | `laplace.py` |
| all subsets of a regression, exact evidences | integrated out | `enumerate.py` |
| all subsets of a two-class model | importance sampling, errors told | `weigh.py` |

In the tree `w` of an input that is out is 0, as `w_included` is: in the graph it is a draw from its
prior that no data see, and a summary of it would be one of the prior. Where the draws must be draws
of the graph (a log prior, calibration), `with_excluded` puts them in again.

For a probit both ways are exact. At 200 rows and 13 (33) inputs the first gave 3 (60) times the
effective draws of the inclusion per CPU second of the second, so it is the one taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import expit, log_expit, log_ndtr, ndtr

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.beliefs import Average, class_table, flat_draws, in_blocks, row_table
from ardvark.inference.facts import Answer, Facts, Run
from ardvark.inference.hyper.settings import Fixed
from ardvark.inference.hyper.settle import fixed_values
from ardvark.inference.running.progress import progress
from ardvark.inference.samplers.convergence import RHAT_MAX, rhat_problems
from ardvark.inference.sites.arrays import Array
from ardvark.inference.subset import weigh
from ardvark.inference.subset.collapsed import MOVES, Subsets, sample_collapsed
from ardvark.inference.subset.enumerate import MOST_INPUTS, draw_given_subsets, enumerate_subsets
from ardvark.inference.subset.kernels import FIXED, ONE_EACH, SHARED, Store
from ardvark.inference.subset.laplace import WALKS, sample_laplace
from ardvark.inference.tally import Tally, jump_counts, subsets_group, visited_subsets
from ardvark.inference.tree import TREATMENTS, draws_dataset
from ardvark.models.card import card_of
from ardvark.models.subset import SubsetCard, log_subset_prior

__all__ = ["fit_subset", "fit_subset_exact", "predict_subset", "subset_problem", "with_excluded"]

SELDOM = 0.01  # indicators nearer to 0 or 1 have too few changes for an R-hat
NOTHING_LEFT = 1e-5  # of the size of the target
_SLABS = {"fixed": FIXED, "ard": ONE_EACH, "shared": SHARED}


def fit_subset(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Sample the posterior over the subsets and all that belongs to them."""
    if settings.proposals != "data":
        raise UnsupportedPair(
            f"{name} with proposals={settings.proposals!r}: the weights of a linear model are "
            "integrated out or proposed from their Gaussian. Leave proposals out."
        )
    card, problem, fixed = _problem(model, settings.hyper)
    plan = settings.plan(run.draws)
    sample = sample_laplace if card.link == "logit" else sample_collapsed
    with progress(name, run.progressbar) as tick:
        tick("jumps")
        chains = sample(problem, plan, run.chains, run.seed, settings.jumps)
    names = {"logit": WALKS, "probit": MOVES}.get(card.link, MOVES[:3])  # none is replaced there
    drawn = Store(*(np.stack(part) for part in zip(*chains, strict=True)))
    problems, numbers = _problems(
        drawn.included, {"bias": drawn.weights[..., 0], "sigma": drawn.sigma}, card.feature_names
    )
    groups = _groups(model, card, drawn, "mcmc")
    stats = groups["sample_stats"].merge(jump_counts(drawn.moves[:, : len(names)], names))
    stats["inclusion_probability"] = (("chain", "draw", "feature"), drawn.inclusion)
    groups["sample_stats"] = stats.assign_coords(feature=np.array(card.feature_names))
    groups["subsets"] = visited_subsets(drawn.visited, card.feature_names)
    return groups, replace(
        _facts(fixed),
        problems=problems,
        caution=_caution(problem, drawn.included),
        sampler=numbers | {"sweeps": plan.tune + plan.draws * plan.thin, "tune": plan.tune},
    )


def fit_subset_exact(model: Any, name: str, settings: Any, run: Run) -> Answer:
    """Enumerate all subsets, and draw from them."""
    card, problem, fixed = _problem(model, settings.hyper)
    two = card.link != "identity"
    most = weigh.MOST_INPUTS if two else MOST_INPUTS
    reason = ""
    if problem.n_inputs > most:
        reason = f"2^{problem.n_inputs} subsets are too many: the limit is {most} inputs"
    elif problem.slab != FIXED and not two:
        reason = f"it has none with slab={card.slab.kind!r}: give the slab as a number"
    if reason:
        raise UnsupportedPair(
            f"{name}: all subsets are enumerated, each with its evidence, and {reason}. "
            "Use ReversibleJump()."
        )
    with progress(name, run.progressbar) as tick:
        tick("all subsets")
        enumerated = _classes if two else _regression
        drawn, found, table, evidence, problems = enumerated(card, problem, run)
    groups = _groups(model, card, drawn, "iid")
    order = np.argsort(-found.probability, kind="stable")
    known = Tally._make(part[order] for part in found)
    groups["subsets"] = subsets_group(known, card.feature_names).assign(
        {key: ("subset", values[order]) for key, values in table.items()}
    )
    groups["fit"] = xr.Dataset(evidence)
    caution = _caution(problem, drawn.included)
    return groups, replace(_facts(fixed), problems=problems, caution=caution)


def _caution(problem: Subsets, included: Array) -> str:
    """Fewer weights than rows explain the target: the density grows without end as σ falls."""
    if not problem.scale:
        return ""
    subsets, counts = np.unique(
        included.reshape(-1, problem.n_inputs) != 0, axis=0, return_counts=True
    )
    usual = subsets[counts.argmax()]
    A = problem.A[:, np.append(True, usual)]
    rest = problem.t - A @ np.linalg.lstsq(A, problem.t)[0]
    size, left = (np.sqrt(np.mean(np.square(v))) for v in (problem.t, rest))
    if A.shape[1] >= len(A) or left > NOTHING_LEFT * size:
        return ""
    return (
        f"the {usual.sum()} inputs of the most frequent subset explain the target with a residual "
        f"of {left:.1g}, where it has a size of {size:.1g}: nothing is left for noise, whose "
        "posterior has no end at zero. Fix the noise."
    )


# Draws, all subsets, further numbers of each, numbers of the whole, problems.
type _Enumerated = tuple[Store, Tally, dict[str, Array], dict[str, float], list[str]]


def _regression(card: SubsetCard, problem: Subsets, run: Run) -> _Enumerated:
    """Exact evidences, independent draws."""
    found = enumerate_subsets(problem)
    rng, shape = np.random.default_rng(run.seed), (run.chains, run.draws)
    which, weights, sigma = draw_given_subsets(problem, found, run.chains * run.draws, rng)
    alpha = np.broadcast_to(problem.alpha, (*shape, len(problem.alpha)))
    drawn = _store(shape, weights, found.included[which], alpha, sigma)
    known = Tally(found.included != 0, found.probability, np.zeros(len(found.probability)))
    table = {"log_evidence": np.logaddexp.reduce(found.log_evidence, axis=1)}
    return drawn, known, table, {"log_evidence": found.total}, []


def _classes(card: SubsetCard, problem: Subsets, run: Run) -> _Enumerated:
    """Evidences by importance sampling with their errors, EP's beside them."""
    seeds = [int(s) for s in np.random.SeedSequence(run.seed).generate_state(2)]
    found = weigh.weigh_subsets(problem, card.link, seeds[0])
    shape = (run.chains, run.draws)
    which, weights, alpha = weigh.draw_from_subsets(
        problem, card.link, found, run.chains * run.draws, seeds[1]
    )
    drawn = _store(shape, weights, found.included[which], alpha, np.ones(len(which)))
    worst = float(found.probability_error.max())
    problems = []
    if not worst <= weigh.MOST_ERROR:
        problems = [
            f"the probability of a subset has a standard error of {worst:.2g} (limit "
            f"{weigh.MOST_ERROR}): the posterior of its weights is far from a Student-t"
        ]
    known = Tally(found.included != 0, found.probability, found.probability_error)
    table = {"log_evidence": found.log_evidence, "log_evidence_error": found.error}
    numbers = {"log_evidence": found.total, "log_evidence_error": found.total_error}
    if problem.slab == FIXED:
        by_ep = weigh.ep_evidences(problem, card.link, found)
        table["log_evidence_ep"] = by_ep
        numbers["ep_difference"] = float(np.nanmax(np.abs(by_ep - found.log_evidence)))
    return drawn, known, table, numbers, problems


def _store(
    shape: tuple[int, int], weights: Array, included: Any, alpha: Any, sigma: Array
) -> Store:
    weights, included, alpha = (part.reshape(*shape, -1) for part in (weights, included, alpha))
    return Store(weights, included, alpha, sigma.reshape(shape), *(np.empty(0),) * 3)


def predict_subset(model: Any, tree: xr.DataTree, X_new: Any, random_seed: int) -> xr.DataArray:
    """Predict new rows, averaged over the subsets in proportion to their probability."""
    card = _card(model)
    noise = ("sigma",) if "sigma" in tree["posterior"] else ()
    draws = flat_draws(tree, ("included", "w", "bias", *noise))
    weights = draws["included"] * draws["w"]
    link = {"probit": ndtr, "logit": expit, "identity": lambda eta: eta}[card.link]
    found, rows = Average(), np.asarray(X_new, dtype=float).T
    for block in in_blocks({"bias": draws["bias"], "w": weights}):
        found.add(link(block["bias"][:, None] + block["w"] @ rows))
    if card.link != "identity":
        return class_table(model, np.stack([1.0 - found.mean, found.mean], axis=1))
    sigma = draws.get("sigma", np.array(card.noise[0]))
    sd = np.sqrt(found.variance + np.mean(sigma**2))
    return row_table(np.stack([found.mean, sd], axis=1), "statistic", ["mean", "sd"])


def with_excluded(
    model: Any, draws: Mapping[str, Array], rng: np.random.Generator
) -> dict[str, Array]:
    """Complete draws (S, ...) of a subset model: weights of excluded inputs from their prior."""
    w = np.asarray(draws["w"])
    alpha = np.asarray(draws["alpha"] if "alpha" in draws else model["alpha"].get_value()[None])
    one_for_all = alpha.ndim < w.ndim
    sd = (alpha[:, None] if one_for_all else alpha) ** -0.5
    drawn = sd * rng.standard_normal(w.shape)
    return {**draws, "w": np.where(np.asarray(draws["included"]) != 0, w, drawn)}


# --- from the graph to arrays and back ----------------------------------------------------------


def _card(model: Any) -> SubsetCard:
    card = card_of(model)
    assert isinstance(card, SubsetCard)  # only its builders name this family
    return card


def subset_problem(model: Any) -> Subsets:
    """Give a subset model as arrays, with the data it has now."""
    card = _card(model)
    free = {rv.name for rv in model.free_RVs}
    known = {"included", "bias", "w", "alpha", "sigma"}
    odd = sorted(free - known) + [term.name for term in model.potentials]
    if odd:
        raise UnsupportedPair(
            f"the model has got {odd[0]!r} since {card.builder} built it, which this sampler does "
            "not see. Use pm.sample with the step av.steps.SubsetJump, which takes any graph."
        )
    X = np.asarray(model["X"].get_value(), dtype=np.float64)
    t = np.asarray(model["t_observed"].get_value(), dtype=np.float64)
    two = card.link != "identity"
    slab = card.slab
    mean = slab.a / slab.b
    alpha = model["alpha"].get_value() if slab.kind == "fixed" else np.full(X.shape[1], mean)
    sigma, is_fixed = card.noise
    if is_fixed and not two:
        sigma = float(model["sigma"].get_value())
    return Subsets(
        A=np.column_stack([np.ones(len(X)), X]),
        t=2.0 * t - 1.0 if two else t - card.bias[0],
        log_prior=log_subset_prior(X.shape[1], card.expected_inputs),
        alpha=np.concatenate([[card.bias[1] ** -2], alpha]),
        slab=_SLABS[slab.kind],
        a=slab.a,
        b=slab.b,
        sigma=sigma,
        scale=0.0 if is_fixed else sigma,
        probit=card.link == "probit",
    )


def _problem(model: Any, hyper: Any) -> tuple[SubsetCard, Subsets, bool]:
    """Give card, arrays, and whether there are hyperparameters, all of them fixed."""
    card, problem = _card(model), subset_problem(model)
    free = tuple(rv.name for rv in model.free_RVs if rv.name in ("alpha", "sigma"))
    if hyper is None:
        return card, problem, False
    if not isinstance(hyper, Fixed):
        raise UnsupportedPair(
            f"hyper={hyper!r}: a sampler of subsets takes the hyperparameters into the posterior. "
            "Leave hyper out, or fix them: hyper=Fixed({'alpha': ...})."
        )
    values = fixed_values(hyper, free)
    if "sigma" in values:
        problem = replace(problem, sigma=float(values["sigma"]), scale=0.0)
    if "alpha" in values:
        wanted = (problem.n_inputs,) if card.slab.kind == "ard" else ()
        if values["alpha"].shape != wanted:
            raise InputError(
                f"Fixed(values) has alpha of shape {values['alpha'].shape}, the model has {wanted}"
            )
        alpha = np.concatenate(
            [problem.alpha[:1], np.broadcast_to(values["alpha"], problem.n_inputs)]
        )
        problem = replace(problem, alpha=alpha, slab=FIXED)
    return card, problem, bool(free)


def _groups(model: Any, card: SubsetCard, drawn: Store, kind: str) -> dict[str, xr.Dataset]:
    bias, w = drawn.weights[..., 0] + card.bias[0], drawn.included * drawn.weights[..., 1:]
    alpha = drawn.alpha[..., 1] if card.slab.kind == "shared" else drawn.alpha[..., 1:]
    included: Any = drawn.included.astype(np.int64)
    values: dict[str, Any] = {
        "included": included,
        "alpha": alpha,
        "bias": bias,
        "w": w,
        "sigma": drawn.sigma,
    }
    free = {rv.name: values[rv.name] for rv in model.free_RVs}
    posterior = draws_dataset(model, free | {"w_included": w})
    posterior.attrs["sampling_kind"] = kind
    X, t = model["X"].get_value(), model["t_observed"].get_value()
    eta = bias[..., None] + posterior["w_included"].values @ X.T
    if card.link == "identity":
        sigma = drawn.sigma[..., None]
        log_likelihood = -0.5 * ((t - eta) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    else:
        log_likelihood = (log_ndtr if card.link == "probit" else log_expit)((2.0 * t - 1.0) * eta)
    return {
        "posterior": posterior,
        "log_likelihood": draws_dataset(model, {"t": log_likelihood}),
        "sample_stats": draws_dataset(model, {"n_inputs": included.sum(axis=-1)}),
    }


def _facts(fixed: bool) -> Facts:
    return Facts(
        hyper="fixed" if fixed else "posterior",
        caption=TREATMENTS["fixed"] if fixed else "",
        weights=("bias", "w_included"),
    )


def _problems(
    included: Array, others: dict[str, Array], names: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """Problems of the chains: R-hat of the size, of each indicator, of other scalars.

    `included` is (chain, draw, feature), each of `others` (chain, draw).
    """
    share = included.mean(axis=(0, 1))
    moving = np.flatnonzero((share > SELDOM) & (share < 1 - SELDOM))
    columns = {"number of inputs": included.sum(axis=2), **others}
    columns |= {f"included[{names[j]}]": included[:, :, j] for j in moving.tolist()}
    columns = {n: c for n, c in columns.items() if not (c == c[:1, :1]).all()}
    if not columns and len(included) > 1:  # one subset has all the probability, all else is given
        return [], {"rhat_max": 1.0}
    columns = columns or {"number of inputs": included.sum(axis=2)}
    stacked = np.stack([column.astype(float) for column in columns.values()], axis=-1)
    problems, numbers = rhat_problems(list(columns), stacked)
    if problems and numbers:
        spread = np.ptp(included.mean(axis=1), axis=0)
        worst = int(np.argmax(spread))
        problems = [
            f"the chains disagree about the subsets: R-hat {numbers['rhat_max']:.4g} is not at most"
            f" {RHAT_MAX}; P({names[worst]} included) differs by {spread[worst]:.3g} between them."
            " Raise sweeps"
        ]
    return problems, numbers
