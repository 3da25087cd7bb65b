"""Selection of inputs by prediction: how few of them predict as well as the whole fit.

The predictor of a fit (the reference) is projected onto submodels with fewer columns, along a path
that grows by the column that brings it nearest (`inference/selection/projection.py`;
Piironen, Paasiniemi & Vehtari 2020). Each size is assessed by

- its divergence from the reference, and the share of it that the columns have explained,
  1 - KL_k / KL_0, KL_0 being that of no column but the constant;
- its expected log predictive density by leave-one-out, with the importance weights of the
  reference: the difference from the reference has a paired standard error.

Suggested is the smallest size whose difference is within one standard error of none. The path
itself has seen all rows, so the figures are a little too good for the smallest sizes.

A weight may be far from zero and yet not needed (another input says the same), or be needed though
its posterior is wide: relevance asks for the first, projection for the second.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ardvark.diagnostics.compare.verdict import KHAT_LIMITS
from ardvark.diagnostics.reading import arviz
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.arguments import check_model, check_tree
from ardvark.inference.graph.read import read_model
from ardvark.inference.selection.projection import Binary, Gaussian, Projected, forward_path
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites, LogitSites, ProbitSites
from ardvark.models.card import card_of
from ardvark.models.checks import positive_integer

__all__ = ["Projection", "project"]


LINKS: dict[str, Any] = {"probit": ProbitSites, "logit": LogitSites}
MOST = 20  # columns of a path, unless asked otherwise


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """What `project` found."""

    path: pd.DataFrame  # index: number of columns; added, divergence, explained, elpd, difference
    suggested: int | None  # smallest size within one standard error; None: not on this path
    reference_elpd: float
    high_khat: int  # rows whose leave-one-out weights are not to be trusted

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the suggested submodel (of the whole path if none is enough)."""
        last = self.path.index[-1] if self.suggested is None else self.suggested
        return tuple(self.path["added"].iloc[1 : last + 1])

    def sentence(self) -> str:
        """The result as a sentence."""
        if self.suggested is None:
            return f"No submodel of up to {self.path.index[-1]} columns predicts as the reference."
        row = self.path.loc[self.suggested]
        names = ", ".join(self.columns) or "the constant alone"
        said = (
            f"{self.suggested} of the columns predict as well as all of them, within one standard "
            f"error (elpd {row['difference']:+.1f} ± {row['difference_se']:.1f}): {names}."
        )
        if self.high_khat:
            said += f" Rows with a k-hat above {KHAT_LIMITS[1]}: {self.high_khat}."
        return said

    def _repr_html_(self) -> str:
        table = self.path.to_html(float_format="{:.3g}".format, border=0)
        return f"<p>{escape(self.sentence())}</p>{table}"


def project(
    tree: xr.DataTree,
    model: Any,
    *,
    most: int | None = None,
    draws: int = 200,
) -> Projection:
    """Project the predictor of a fit onto submodels with fewer columns.

    Parameters
    ----------
    tree
        A result of ``fit``: the reference. One that integrates all out (NUTS) is best.
    model : pm.Model
        The model that was fitted: linear in its weights, with Gaussian noise or a probit or logit
        link; of this package or your own.
    most
        Columns at most (all, but not more than 20).
    draws
        Draws of the reference that are projected, taken evenly from all chains.

    Returns
    -------
    Projection
        ``path`` has a row per size: ``added`` column, ``divergence`` from the reference (nats, mean
        over draws), ``explained`` share of it, ``elpd`` by leave-one-out, ``difference`` from the
        reference with its ``difference_se``; ``suggested`` size, ``columns``, ``sentence()``.
    """
    model = check_model(model)
    check_tree(tree)
    reference, design, names, t = _reference(tree, model, positive_integer(draws, "draws"))
    always = np.array(["[" not in name for name in names])
    limit = min(int((~always).sum()), MOST if most is None else positive_integer(most, "most"))
    added = forward_path(reference, design, always, limit)
    itself = reference.log_density(t, reference.itself)
    weights, shapes = _loo_weights(itself)
    own = _elpd(itself, weights)
    start, rows = np.flatnonzero(always).tolist(), []
    for size in range(len(added) + 1):
        found = _project(reference, design[:, [*start, *added[:size]]])
        elpd = _elpd(reference.log_density(t, found), weights)
        gap = elpd - own
        rows.append(
            {
                "added": "" if size == 0 else _label(names[added[size - 1]]),
                "divergence": float(found.divergence.mean()),
                "elpd": float(elpd.sum()),
                "difference": float(gap.sum()),
                "difference_se": float(np.sqrt(len(gap) * gap.var(ddof=1))),
            }
        )
    path = pd.DataFrame(rows, index=pd.RangeIndex(len(rows), name="size"))
    none = path["divergence"].iloc[0]
    explained = 1 - path["divergence"] / none if none > 0 else np.ones(len(path))
    path.insert(2, "explained", explained)
    enough = path.index[path["difference"] + path["difference_se"] >= -1e-9]
    high = int((~(shapes <= KHAT_LIMITS[1])).sum())
    return Projection(path, int(enough[0]) if len(enough) else None, float(own.sum()), high)


def _label(name: str) -> str:
    """Return x0 for w[x0]."""
    return name.partition("[")[2].removesuffix("]") or name


def _project(reference: Gaussian | Binary, columns: Array) -> Projected:
    return reference.project(columns if columns.shape[1] else np.zeros((len(columns), 1)))


# --------------------------------------------------------------------- leave-one-out by importance


def _loo_weights(log_density: Array) -> tuple[Array, Array]:
    """Log weights (S, N) of leaving a row out, smoothed, summing to one by row; their k-hats."""
    arviz()  # registers the accessor
    values = xr.DataArray(log_density[None], dims=("chain", "draw", "row"))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", UserWarning)  # high k-hats are counted instead
        weights, shapes = values.azstats.psislw(dim=["chain", "draw"])
    drawn = weights.transpose("chain", "draw", "row").to_numpy()[0]
    return np.asarray(drawn), np.asarray(shapes)


def _elpd(log_density: Array, weights: Array) -> Array:
    return np.asarray(np.logaddexp.reduce(log_density + weights, axis=0))


# --------------------------------------------------------------------- the reference, as arrays


def _reference(
    tree: xr.DataTree, model: Any, draws: int
) -> tuple[Gaussian | Binary, Array, tuple[str, ...], Array]:
    if "posterior" not in tree.children:
        raise InputError("tree has no posterior group: it is not the tree of a fit.")
    card = card_of(model)
    family = "sites" if card is None else card.family
    posterior = tree["posterior"].to_dataset().stack(sample=("chain", "draw"), create_index=False)
    thinned = np.linspace(0, posterior.sizes["sample"] - 1, draws).round().astype(int)
    posterior = posterior.isel(sample=np.unique(thinned))
    values = {
        str(n): np.moveaxis(v.to_numpy(), v.dims.index("sample"), 0)
        for n, v in posterior.items()
        if "sample" in v.dims
    }
    if family == "subset":
        return _of_subsets(values, model, card)
    if family != "sites":
        raise UnsupportedPair(
            f"project needs a predictor that is linear in its weights; models of the family "
            f"{family!r} have none. Compare inputs by compare_relevance."
        )
    return _of_sites(tree, values, model)


def _of_subsets(
    values: Mapping[str, Array], model: Any, card: Any
) -> tuple[Gaussian | Binary, Array, tuple[str, ...], Array]:
    X, t = (np.asarray(model[name].get_value(), float) for name in ("X", "t_observed"))
    design = np.column_stack([np.ones(len(X)), X])
    names = ("bias", *(f"w[{name}]" for name in card.feature_names))
    eta = np.column_stack([values["bias"], values["w_included"]]) @ design.T
    if card.link != "identity":
        return Binary(eta, np.zeros(len(X)), LINKS[card.link]), design, names, t
    sigma = values["sigma"] if "sigma" in values else np.full(len(eta), card.noise[0])
    return Gaussian(eta, sigma, np.zeros(len(X))), design, names, t


def _of_sites(
    tree: xr.DataTree, values: Mapping[str, Array], model: Any
) -> tuple[Gaussian | Binary, Array, tuple[str, ...], Array]:
    settings = json.loads(tree.attrs.get("settings", "{}"))
    asked = settings.get("weights")
    latent = read_model(
        model,
        weights=tuple(asked) if isinstance(asked, list) else asked,
        predictor=settings.get("predictor"),
    )
    if latent.eta_depends:
        raise UnsupportedPair(
            "project needs columns that do not change: the predictor of this model depends on "
            f"{', '.join(latent.hyper)}. Fix what it depends on."
        )
    if missing := [n for n in (*latent.weights, *latent.hyper) if n not in values]:
        raise InputError(f"tree has no draws of {missing[0]!r}: it is the tree of another model.")
    theta = {name: values[name] for name in latent.hyper}
    design, offset = latent.affine_map({name: draw[0] for name, draw in theta.items()})
    blocks = [values[name].reshape(len(values[name]), -1) for name in latent.weights]
    eta = np.concatenate(blocks, axis=1) @ design.T
    sites = latent.sites({name: draw[0] for name, draw in theta.items()})
    names, t = latent.weight_names, np.asarray(latent.observed_data[0].get_value(), float)
    if isinstance(sites, ProbitSites | LogitSites):
        return Binary(eta, offset, type(sites)), design, names, (sites.sign > 0).astype(float)
    if not isinstance(sites, GaussianSites):
        raise UnsupportedPair(
            "project is for Gaussian noise and for two classes with a probit or logit link; this "
            f"likelihood is read as {type(sites).__name__}."
        )
    # At t = 0 and eta = 0 a Gaussian site is log N(0; 0, sigma²): the noise of each draw.
    nothing = np.zeros_like(eta)
    peak = latent.log_sites_of(nothing, theta, np.zeros(eta.shape[1]))
    sigma = np.exp(-peak) / np.sqrt(2 * np.pi)
    if not np.allclose(sigma, sigma[:, :1]):
        raise UnsupportedPair(
            f"project needs one noise sd for all rows, and here it goes from {sigma.min():.3g} to "
            f"{sigma.max():.3g}. Compare inputs by compare_relevance."
        )
    return Gaussian(eta, sigma[:, 0], offset), design, names, t
