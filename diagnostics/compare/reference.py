"""Which results can be references, whether they can be trusted, and for what.

A reference is a result whose draws are of the posterior itself: a Markov chain, or exact and
independent draws.

An answer at given hyperparameters θ is compared with a reference at the same θ (the error of the
approximation) or with one that integrates θ out (the price of fixing it, the approximation's own
error included). ``relation`` tells which of the two a pair of trees is.

The limits are those of Vehtari et al. (2021) and of ArviZ's ``diagnose``. Independent draws have no
chains to disagree: for them R-hat and effective sizes would be numbers without a meaning.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ardvark.diagnostics.finding import Finding
from ardvark.diagnostics.reading import (
    SAMPLE_DIMS,
    arviz,
    constant_columns,
    draws_of,
    group_variables,
    has_rows,
    held_values,
    sampling_kind,
    theta_variables,
    weight_variables,
)
from ardvark.diagnostics.words import count, listed
from ardvark.errors import InputError
from ardvark.inference.samplers.chain_statistics import LEAST_DRAWS, ess_bulk, ess_tail, rhat
from ardvark.inference.samplers.convergence import (
    BFMI_MIN,
    ESS_PER_CHAIN,
    RHAT_MAX,
    moving_elements,
)
from ardvark.inference.sites.arrays import Array
from ardvark.inference.tree import FREE

__all__ = [
    "APPROXIMATION_ERROR",
    "OTHER_HYPERPARAMETERS",
    "OTHER_LIKELIHOOD",
    "PRICE_OF_FIXING",
    "REFERENCE",
    "ReferenceQuality",
    "choose_reference",
    "integrates_hyperparameters",
    "is_reference",
    "moving_parameters",
    "reference_quality",
    "relation",
    "same_hyperparameters",
    "theta_in_words",
    "trouble",
]

REFERENCE = "reference"
APPROXIMATION_ERROR = "approximation error"
PRICE_OF_FIXING = "price of fixing the hyperparameters"
OTHER_HYPERPARAMETERS = "different hyperparameters"
OTHER_LIKELIHOOD = "different likelihoods"  # one class against the rest is no softmax
SAME_VALUE = 1e-6  # relative: hyperparameters passed from one fit to another


def choose_reference(trees: Mapping[str, xr.DataTree], reference: str | None = None) -> str | None:
    """The reference: the one named, else an exact joint posterior, else NUTS, else other chains."""
    if reference is not None:
        if not isinstance(reference, str) or reference not in trees:
            raise InputError(f"reference: {reference!r} is not among the trees {', '.join(trees)}")
        return reference
    chains = [n for n, tree in trees.items() if is_reference(tree)]

    def preference(name: str) -> tuple[bool, bool, bool]:
        attributes = trees[name].attrs
        integrated = attributes.get("hyper") == "posterior"
        method = attributes.get("method")
        return not (method == "exact" and integrated), method != "nuts", not integrated

    return min(chains, key=preference, default=None)


def is_reference(tree: xr.DataTree) -> bool:
    """Whether its draws are of the posterior itself: Markov chains, or exact and independent."""
    kind = tree["posterior"].attrs.get("sampling_kind")
    return bool(kind != "iid" or tree.attrs.get("method") == "exact")


@dataclass(frozen=True, slots=True)
class ReferenceQuality:
    """Diagnostics of the draws of a tree; NaN or None where a figure has no meaning."""

    sampling_kind: str  # "mcmc" | "iid"
    max_rhat: float
    max_rhat_at: str | None
    min_bulk_ess: float
    min_bulk_ess_at: str | None
    min_tail_ess: float
    min_tail_ess_at: str | None
    divergences: int | None
    min_bfmi: float
    ok: bool
    findings: list[Finding]

    @property
    def sentences(self) -> list[str]:
        """The findings, each with its advice."""
        return [str(found) for found in self.findings]

    def as_dict(self) -> dict[str, Any]:
        """The figures and the sentences, for JSON."""
        kept = {name: getattr(self, name) for name in self.__slots__ if name != "findings"}
        return kept | {"sentences": self.sentences}


def reference_quality(tree: xr.DataTree) -> ReferenceQuality:
    """Check the draws of a tree: R-hat, effective sizes, divergences and energy.

    Parameters
    ----------
    tree
        A result of ``fit``. Parameters that never move and predictors (one value per row) are
        left out.
    """
    names, draws = moving_parameters(tree)
    finite = bool(np.isfinite(draws).all())
    if sampling_kind(tree) == "iid":
        return _independent(finite)
    usable = finite and draws.shape[2] > 0 and draws.shape[1] >= LEAST_DRAWS
    extremes: dict[str, tuple[float, str | None]] = dict.fromkeys(("rhat", "bulk", "tail"), _NONE)
    if usable:
        extremes["rhat"] = _extreme(np.argmax, rhat(draws), names)
        extremes["bulk"] = _extreme(np.argmin, ess_bulk(draws), names)
        extremes["tail"] = _extreme(np.argmin, ess_tail(draws), names)
    statistics = group_variables(tree, "sample_stats")
    diverging = int(statistics["diverging"].sum()) if "diverging" in statistics else None
    bfmi = _smallest_bfmi(statistics)
    findings = [
        *_finite_enough(usable, finite),
        *_rhat_finding(*extremes["rhat"], chains=len(draws), usable=usable),
        *_ess_findings(extremes, chains=len(draws)),
        *_sampler_findings(diverging, bfmi),
    ]
    return ReferenceQuality(
        "mcmc",
        *extremes["rhat"],
        *extremes["bulk"],
        *extremes["tail"],
        divergences=diverging,
        min_bfmi=bfmi,
        ok=not findings,
        findings=findings or [_all_well(extremes, diverging)],
    )


def trouble(tree: xr.DataTree, quality: ReferenceQuality) -> str:
    """Say why a tree cannot be a reference, "" if it can.

    Draws that do not say whether they converged, as those of ``pm.sample``, have their checks only.
    """
    if not quality.ok:
        return quality.findings[0].text.rstrip(".:")
    return "" if tree.attrs.get("converged", True) else "It did not converge"


def theta_in_words(tree: xr.DataTree, reference: xr.DataTree) -> str:
    """Which hyperparameters one of the two holds at one value and the other draws, in words."""
    sides = {
        "held at one value here, drawn in the reference": {*held_values(tree)} & _drawn(reference),
        "drawn here, held at one value in the reference": {*held_values(reference)} & _drawn(tree),
    }
    return "; ".join(f"{listed(sorted(names))} {how}" for how, names in sides.items() if names)


def relation(tree: xr.DataTree, reference: xr.DataTree, same: bool) -> str:
    """Name what the difference between two trees measures, given ``same_hyperparameters``."""
    if not _same_likelihood(tree, reference):
        return OTHER_LIKELIHOOD
    if same:
        return APPROXIMATION_ERROR
    if _fixes_what_moves_in(reference, tree):
        return PRICE_OF_FIXING
    return OTHER_HYPERPARAMETERS


def same_hyperparameters(tree: xr.DataTree, reference: xr.DataTree) -> bool:
    """Whether θ was integrated out in both or held at the same values, on the same data."""
    if _fixes_what_moves_in(reference, tree) or _fixes_what_moves_in(tree, reference):
        return False
    if not _same_likelihood(tree, reference):  # its hyperparameters are not the other's
        return False
    ours, theirs = _values(tree), _values(reference)
    held = {*held_values(tree), *held_values(reference)}
    given = {*group_variables(tree, "constant_data")} & {
        *group_variables(reference, "constant_data")
    }
    return all(
        name in ours and name in theirs and _equal(ours[name], theirs[name])
        for name in held | given
    )


def _same_likelihood(tree: xr.DataTree, reference: xr.DataTree) -> bool:
    return bool(tree.attrs.get("coupling") == reference.attrs.get("coupling"))


def integrates_hyperparameters(tree: xr.DataTree) -> bool:
    """Whether the hyperparameters are part of the posterior."""
    return bool(tree.attrs.get("hyper", "posterior") in FREE)


# ------------------------------------------------------------------------------- like with like


def _values(tree: xr.DataTree) -> dict[Any, xr.DataArray]:
    return theta_variables(tree) | group_variables(tree, "constant_data") | held_values(tree)


def _fixes_what_moves_in(full: xr.DataTree, tree: xr.DataTree) -> bool:
    """Whether θ was held in ``tree`` and sampled in ``full``.

    A model with no free θ may call its answer "fixed" or "posterior": then nothing moves.
    """
    if integrates_hyperparameters(tree) or not integrates_hyperparameters(full):
        return False
    weights = weight_variables(tree) or weight_variables(full)
    return tree.attrs["hyper"] == "evidence" or bool(
        (_drawn(full) - set(weights)) & set(_values(tree))
    )


def _drawn(tree: xr.DataTree) -> set[Any]:
    """Variables of the posterior that are not the same in all draws."""
    posterior = tree["posterior"].dataset
    return {v for v, x in posterior.items() if not constant_columns(draws_of(x)).all()}


def _equal(ours: xr.DataArray, theirs: xr.DataArray) -> bool:
    """Whether values with the same label are equal: a reference at fixed θ drops pruned columns."""
    if set(ours.dims) != set(theirs.dims):
        return False
    try:
        ours, theirs = xr.align(ours, theirs.transpose(*ours.dims), join="inner")
    except ValueError:  # other lengths and no labels
        return False
    a, b = ours.to_numpy(), theirs.to_numpy()
    if a.size == 0:
        return False
    if a.dtype.kind in "biuf" and b.dtype.kind in "biuf":
        return bool(np.allclose(a, b, rtol=SAME_VALUE, atol=0, equal_nan=True))
    return bool(np.array_equal(a, b))


# ------------------------------------------------------------------------------------- findings

_NONE: tuple[float, str | None] = (float("nan"), None)


def moving_parameters(tree: xr.DataTree) -> tuple[list[str], Array]:
    """Return every parameter that moves, (chain, draw, element); predictors are left out."""
    posterior, weights = tree["posterior"].to_dataset(), weight_variables(tree)
    variables = [v for v in posterior if v in weights or not has_rows(tree, posterior[v])]
    return moving_elements(posterior[variables])


def _independent(finite: bool) -> ReferenceQuality:
    found = [Finding("good", "Independent draws: there are no chains to converge, so no R-hat.")]
    if not finite:
        advice = "Look at the fit before anything else."
        found.insert(0, Finding("bad", "Some draws are not finite.", advice))
    nothing = (*_NONE, *_NONE, *_NONE)
    return ReferenceQuality("iid", *nothing, None, float("nan"), finite, found)


def _extreme(pick: Any, values: Array, names: list[str]) -> tuple[float, str | None]:
    place = int(pick(values))  # NaN wins both searches, as it should
    return float(values[place]), names[place]


def _smallest_bfmi(statistics: dict[Any, xr.DataArray]) -> float:
    if "energy" not in statistics:
        return float("nan")
    return float(np.min(arviz().bfmi(statistics["energy"].transpose(*SAMPLE_DIMS).to_numpy())))


def _finite_enough(usable: bool, finite: bool) -> Iterator[Finding]:
    if not finite:
        advice = "Look at the model before anything else."
        yield Finding("bad", "Some draws are not finite.", advice)
    elif not usable:
        yield Finding("bad", "There are too few draws or no free parameters: nothing to check.")


def _rhat_finding(rhat: float, at: str | None, *, chains: int, usable: bool) -> Iterator[Finding]:
    if chains < 2:
        yield Finding("bad", "There is only one chain: R-hat cannot be computed.", "Run four.")
    elif usable and not rhat <= RHAT_MAX:
        text = f"R-hat of {at} is {rhat:.3f} > {RHAT_MAX}: the chains disagree."
        yield Finding("bad", text, "Run longer, or sample another form of the model.")


def _ess_findings(
    extremes: dict[str, tuple[float, str | None]], *, chains: int
) -> Iterator[Finding]:
    least = ESS_PER_CHAIN * chains
    for part, what in (("bulk", "means"), ("tail", "interval ends")):
        size, at = extremes[part]
        if at is not None and not size >= least:
            text = f"The {part} effective sample size of {at} is {size:.0f} < {least}:"
            yield Finding("bad", f"{text} its {what} are noisy.", "Draw more.")


def _sampler_findings(divergences: int | None, bfmi: float) -> Iterator[Finding]:
    if divergences:
        text = f"{count(divergences, 'divergence')}: part of the posterior was not reached."
        yield Finding("bad", text, "Raise target_accept, or sample another form of the model.")
    if bfmi < BFMI_MIN:
        text = f"E-BFMI is {bfmi:.2f} < {BFMI_MIN}: the energy mixes badly, tails may be missed."
        yield Finding("bad", text)


def _all_well(extremes: dict[str, tuple[float, str | None]], divergences: int | None) -> Finding:
    rhat, bulk, tail = (extremes[part][0] for part in ("rhat", "bulk", "tail"))
    without = ", no divergences" if divergences == 0 else ""
    return Finding(
        "good",
        f"The chains agree: R-hat at most {rhat:.3f}, effective sizes at least {bulk:.0f} (bulk)"
        f" and {tail:.0f} (tail){without}.",
    )
