"""The predictor at new rows as a fit believes it, and what is averaged over draws of it.

`GaussianBelief` is closed form: N(m, V) of the weights gives η* ~ N(a'm + o, a'Va). `Beliefs` are
draws, each with its own hyperparameters, which are taken in blocks that bound the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import InputError
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.hyper.stored import theta_of
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.posterior import Posterior
from ardvark.models.card import card_of

__all__ = [
    "Average",
    "Beliefs",
    "GaussianBelief",
    "class_table",
    "flat_draws",
    "in_blocks",
    "row_table",
]

DRAWS_AT_A_TIME = 2000


class GaussianBelief:
    """η at the new rows under the Gaussian approximation of the tree."""

    def __init__(
        self, latent: LatentGaussian, tree: xr.DataTree, posterior: Posterior | None = None
    ) -> None:
        fit = tree["fit"].to_dataset()
        self.latent = latent
        self.theta = theta_of(tree, latent.hyper)
        projection, offset = latent.affine_map(self.theta)
        kept = fit["active"].values
        if len(kept) != latent.n_weights:
            raise InputError(
                f"tree has {len(kept)} weights, the model has {latent.n_weights}: it is the "
                f"tree of another model"
            )
        mean = latent.prior(self.theta)[0]
        mean[kept] = fit["mean_vector"].values
        own = _own_rows(latent, self.theta)
        self.mean = (projection @ mean + offset)[own]
        rows = projection[own][:, kept]
        if posterior is not None:
            self.variance = posterior.predictive(projection[own], offset[own])[1]
        elif "covariance_matrix" in fit:
            rows = rows.toarray() if hasattr(rows, "toarray") else rows
            self.variance = np.einsum("ni,ij,nj->n", rows, fit["covariance_matrix"].values, rows)
        else:
            factor = rows @ fit["covariance_factor"].values
            self.variance = rows**2 @ fit["covariance_diagonal"].values - np.square(factor).sum(
                axis=1
            )

    def at_its_mean(self) -> GaussianBelief:
        """The same as if η were known at its mean."""
        self.variance = np.zeros_like(self.mean)
        return self

    def probability(self, label: int) -> Array:
        """Probability of a class at each row."""
        sites = self.latent.sites(self.theta, observed=np.full(len(self.mean), label))
        return np.exp(sites.tilted(self.mean, np.maximum(self.variance, 1e-300)).log_z)

    def gaussian_noise(self) -> tuple[Array, Array] | None:
        """Mean and sd of the target, if the noise is Gaussian."""
        noise = _noise_variance(self.latent, self.theta, len(self.mean))
        return None if noise is None else (self.mean, np.sqrt(self.variance + noise))


class Average:
    """Mean and variance over all draws of values (draw, row) that come in blocks."""

    def __init__(self) -> None:
        self.count, self.mean, self.variance = 0, np.zeros(()), np.zeros(())

    def add(self, values: Array) -> None:
        """Take more draws in."""
        share = len(values) / (self.count + len(values))
        mean = values.mean(axis=0)
        between = share * (1.0 - share) * (mean - self.mean) ** 2
        self.variance = (1.0 - share) * self.variance + share * values.var(axis=0) + between
        self.mean = self.mean + share * (mean - self.mean)
        self.count += len(values)


def flat_draws(tree: xr.DataTree, names: Sequence[str]) -> dict[str, Array]:
    """Draws (S, ...) of some variables, which the tree must have."""
    posterior = tree["posterior"].to_dataset()
    if missing := [name for name in names if name not in posterior]:
        raise InputError(f"tree has no draws of {missing[0]!r}: it is the tree of another model")
    flat = posterior[list(names)].stack(sample=("chain", "draw"), create_index=False)
    return {name: flat[name].transpose("sample", ...).values for name in names}


def in_blocks(draws: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Give all draws (S, ...), a block at a time: predictions at many rows are large."""
    for start in range(0, len(next(iter(draws.values()))), DRAWS_AT_A_TIME):
        yield {name: values[start : start + DRAWS_AT_A_TIME] for name, values in draws.items()}


class Beliefs:
    """η at the new rows for each draw, with the draw's own hyperparameters."""

    def __init__(self, latent: LatentGaussian, tree: xr.DataTree) -> None:
        self.latent = latent
        self.known: Array | None = None
        self.draws = flat_draws(tree, (*latent.weights, *latent.hyper))

    def blocks(self) -> Iterator[tuple[dict[str, Array], Array]]:
        """Draws of θ (S, ...) and η (S, N) at them, block by block."""
        for draws in in_blocks(self.draws):
            theta = {name: draws[name] for name in self.latent.hyper}
            if self.known is None:
                first = {name: values[0] for name, values in theta.items()}
                yield theta, self.latent.eta_of(draws)[:, _own_rows(self.latent, first)]
            else:
                count = len(next(iter(draws.values())))
                yield theta, np.broadcast_to(self.known, (count, len(self.known)))

    def at_its_mean(self) -> Beliefs:
        """The same as if η were known at its mean."""
        mean = Average()
        for _, eta in self.blocks():
            mean.add(eta)
        self.known = mean.mean
        return self

    def probability(self, label: int) -> Array:
        """Probability of a class at each row."""
        found = Average()
        for theta, eta in self.blocks():
            labels = np.full(eta.shape[1], label)
            found.add(np.exp(self.latent.log_sites_of(eta, theta, labels)))
        return found.mean

    def gaussian_noise(self) -> tuple[Array, Array] | None:
        """Mean and sd of the target, if the noise is Gaussian."""
        predictor, noise = Average(), Average()
        for theta, eta in self.blocks():
            variance = self.noise_variance(theta, eta.shape[1])
            if variance is None:
                return None
            predictor.add(eta)
            noise.add(variance)
        return predictor.mean, np.sqrt(predictor.variance + noise.mean)

    def noise_variance(self, theta: Mapping[str, Array], rows: int) -> Array | None:
        """σ² of each draw and row, if the noise is Gaussian."""
        start = {name: values[0] for name, values in theta.items()}
        constant = _noise_variance(self.latent, start, rows)
        if constant is None or not theta:
            return None if constant is None else np.atleast_2d(constant)
        # At t = 0 and η = 0 a Gaussian site is log N(0; 0, σ²): the noise of each draw.
        zeros = np.zeros((len(next(iter(theta.values()))), rows))
        log_peak = self.latent.log_sites_of(zeros, theta, np.zeros(rows))
        return np.asarray(np.exp(-2.0 * log_peak) / (2.0 * np.pi))


def _own_rows(latent: LatentGaussian, theta: Mapping[str, Array]) -> slice:
    """Rows of the observed variable that is predicted; others are of priors and potentials."""
    if len(latent.reading.rows) == 1:
        return slice(None)
    return latent.row_slices(theta)[latent.observed]


def _noise_variance(latent: LatentGaussian, theta: Mapping[str, Any], rows: int) -> Array | None:
    """σ² if t ~ N(η, σ²): sites that are Gaussian and centred on the observed t, whatever it is."""
    for value in (0.0, 1.0):  # at 0 alone t ~ N(c η, σ²) would pass
        sites = latent.sites(theta, observed=np.full(rows, value))
        if not isinstance(sites, GaussianSites) or not np.allclose(sites.mean, value, atol=1e-9):
            return None
    assert isinstance(sites, GaussianSites)
    return 1.0 / np.asarray(sites.precision)


def class_table(model: Any, probabilities: Array) -> xr.DataArray:
    """Probabilities (row, class) under the labels of the model."""
    card = card_of(model)
    labels = [0, 1] if card is None or card.classes is None else list(card.classes)
    return row_table(probabilities, "class", labels)


def row_table(values: Array, dim: str, labels: list[Any]) -> xr.DataArray:
    """Predictions (row, dim) with their labels."""
    return xr.DataArray(
        values,
        dims=("row", dim),
        coords={"row": np.arange(len(values)), dim: np.asarray(labels)},
        name="prediction",
    )
