"""Predictions of a sample-feature machine: moments of eta under q, or a sampler's draws.

A class probability takes eta as Gaussian with these moments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from scipy.special import expit

from ardvark.inference.predict import Average, class_table, in_blocks, row_table
from ardvark.inference.sample_feature.basis import KernelBasis
from ardvark.inference.sample_feature.tree import basis_of, eta_of, target_of
from ardvark.inference.sample_feature.vb import State, eta_moments
from ardvark.inference.sites.likelihoods import Array, LogitSites
from ardvark.inference.sites.quadrature import quadrature_tilted
from ardvark.inference.vb.blocks import GaussianBlock, Known
from ardvark.inference.vb.rows import LogisticRows

__all__ = ["predict"]


def predict(model: Any, tree: xr.DataTree, X_new: Array, random_seed: int) -> xr.DataArray:
    """Moments of eta under q; draws of a sampler are averaged."""
    basis = basis_of(model, np.asarray(X_new, float))
    classes = target_of(model)[1]
    if "mean_vector" in tree.children.get("fit", {}):
        mean, variance, noise = _by_moments(basis, tree)
        if classes:
            ones = LogitSites(np.ones_like(mean))
            tilted = quadrature_tilted(ones.log, mean, np.maximum(variance, 1e-300))
            positive = np.exp(tilted.log_z)
    else:
        predictor, probability, noise = _by_draws(basis, tree)
        mean, variance, positive = predictor.mean, predictor.variance, probability.mean
    if classes:
        return class_table(model, np.stack([1.0 - positive, positive], axis=1))
    values = np.stack([mean, np.sqrt(variance + noise)], axis=1)
    return row_table(values, "statistic", ["mean", "sd"])


def _by_moments(basis: KernelBasis, tree: xr.DataTree) -> tuple[Array, Array, float]:
    fit = tree["fit"].to_dataset()
    covariance, mean = fit["covariance_matrix"].values, fit["mean_vector"].values
    on, at = fit["active"].values, fit.sizes["sample_term"]
    samples, features = np.flatnonzero(on[:at]), np.flatnonzero(on[at:])
    cut, nothing = len(samples), Known(np.empty(0))
    w, lam = (
        GaussianBlock(mean[part], _root(covariance[part, part]), 0.0)
        for part in (slice(None, cut), slice(cut, None))
    )
    rows = LogisticRows(np.ones(basis.shape[0]), np.ones(basis.shape[0]))
    state = State(w, lam, nothing, nothing, rows, samples, features)
    first, second = eta_moments(basis, state)
    noise = 1.0 / float(fit["beta"]) if "beta" in fit else 0.0
    return first, np.maximum(second - first**2, 0.0), noise


def _root(covariance: Array) -> Array:
    return np.asarray(np.linalg.cholesky(covariance[::-1, ::-1])[::-1, ::-1])


def _by_draws(basis: KernelBasis, tree: xr.DataTree) -> tuple[Average, Average, float]:
    """Moments of eta and of the probability of the second class over all draws; the noise."""
    posterior = tree["posterior"].to_dataset()
    flat = {}
    for name in ("w", "lam"):
        values = posterior[name].transpose("chain", "draw", ...).values
        flat[name] = values.reshape(-1, values.shape[-1])
    predictor, positive = Average(), Average()
    samples, features = (np.arange(values.shape[1]) for values in flat.values())
    for block in in_blocks(flat):
        eta = eta_of(basis, block["w"], block["lam"], samples, features)
        predictor.add(eta)
        positive.add(expit(eta))
    noise = float((1.0 / posterior["beta"]).mean()) if "beta" in posterior else 0.0
    return predictor, positive, noise
