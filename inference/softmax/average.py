"""Probabilities of a softmax averaged over a Gaussian: RW06, algorithm 3.4, on fixed nodes."""

import numpy as np
from scipy.special import ndtri

from ardvark.inference.sites.likelihoods import Array

__all__ = ["mean_probabilities"]

NODES = 2048  # of the fixed rule that averages a softmax over a Gaussian
_SEED = 20  # of its scrambling


def mean_probabilities(mean: Array, covariance: Array, nodes: int = NODES) -> Array:
    """E softmax(eta) for eta_n ~ N(mean_n, covariance_n): (N, K), rows sum to one.

    By a fixed rule, quasi-Monte Carlo: the first `nodes` points of a scrambled Sobol sequence with
    a seed of its own, and their mirror images, taken to the Gaussian; the same for all rows and all
    calls, so equal calls give equal numbers. For predictors of sd 2 errors are near 3e-5 with
    three classes and 2e-4 with ten.
    """
    rows, classes = mean.shape
    centred = covariance - covariance.mean(axis=1, keepdims=True)  # what all share has no effect
    centred = centred - centred.mean(axis=2, keepdims=True)
    values, vectors = np.linalg.eigh(0.5 * (centred + np.swapaxes(centred, 1, 2)))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])[:, :, :0:-1]
    normal = _points(nodes, classes - 1)  # the first are its best: for the largest variances
    found = np.zeros((rows, classes))
    chunk = max(1, int(4e6 / (nodes * classes)))
    for begin in range(0, rows, chunk):
        here = slice(begin, begin + chunk)
        spread = normal @ np.swapaxes(root[here], 1, 2)  # (chunk, nodes, K)
        for sign in (1.0, -1.0):
            eta = mean[here, None, :] + sign * spread
            eta -= eta.max(axis=2, keepdims=True)
            np.exp(eta, out=eta)
            eta /= eta.sum(axis=2, keepdims=True)
            found[here] += eta.mean(axis=1)
    return found / found.sum(axis=1, keepdims=True)


def _points(nodes: int, dimensions: int) -> Array:
    """Standard normal points (nodes, dimensions) that cover it evenly."""
    from scipy.stats.qmc import Sobol  # heavy to import, and needed for predictions only

    power = int(np.ceil(np.log2(nodes)))
    uniform = Sobol(dimensions, rng=np.random.default_rng(_SEED)).random_base2(power)
    return np.asarray(ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12)))
