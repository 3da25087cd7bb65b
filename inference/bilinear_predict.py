"""Predictions of a sample-feature machine: moments of eta under q, or a sampler's draws.

A class probability takes eta as Gaussian with these moments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ardvark.inference.bilinear_basis import KernelBasis
from ardvark.inference.bilinear_tree import basis_of, eta_of, target_of
from ardvark.inference.predict import class_table, row_table
from ardvark.inference.quadrature import quadrature_tilted
from ardvark.inference.sites import Array, LogitSites
from ardvark.inference.vb_bilinear import State, eta_moments
from ardvark.inference.vb_blocks import GaussianBlock, Known
from ardvark.inference.vb_rows import LogisticRows

__all__ = ["predict"]

_MOST_DRAWS = 1000  # of a sampler: beyond this the Monte Carlo error no longer matters


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
        eta, noise = _by_draws(basis, tree)
        mean, variance = eta.mean(axis=0), eta.var(axis=0)
        positive = np.exp(LogitSites(np.ones(eta.shape[1])).log(eta)).mean(axis=0)
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


def _by_draws(basis: KernelBasis, tree: xr.DataTree) -> tuple[Array, float]:
    posterior = tree["posterior"].to_dataset()
    flat = {}
    for name in ("w", "lam"):
        values = posterior[name].transpose("chain", "draw", ...).values
        flat[name] = values.reshape(-1, values.shape[-1])
    step = max(1, len(flat["w"]) // _MOST_DRAWS)
    w, lam = flat["w"][::step], flat["lam"][::step]
    eta = eta_of(basis, w, lam, np.arange(w.shape[1]), np.arange(lam.shape[1]))
    noise = float((1.0 / posterior["beta"]).mean()) if "beta" in posterior else 0.0
    return eta, noise
