"""Small result trees with a known posterior, made without PyMC: Gaussian weights `bias` and `w`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

SAMPLE = ("chain", "draw")
MEAN = np.array([0.5, 1.0, -2.0, 0.0])
SD = np.array([0.3, 0.2, 1.5, 0.7])
ALPHA = np.array([1.0, 2.0, 3.0])


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng([2024, seed])


def four_weights(seed: int, mean: Any = MEAN, sd: Any = SD, **settings: Any) -> xr.DataTree:
    """A fit of a bias and three weights, by Laplace unless said otherwise."""
    return gaussian_tree(rng(seed), mean, sd, **{"alpha": ALPHA} | settings)


def gaussian_tree(
    rng: np.random.Generator,
    mean: ArrayLike,
    sd: ArrayLike,
    *,
    method: str = "laplace",
    hyper: str = "fixed",
    alpha: ArrayLike | None = None,
    target_sd: ArrayLike | None = None,
    bias: bool = True,
    features: Sequence[str] | None = None,
    chains: int = 4,
    draws: int = 1000,
    autocorrelation: float = 0.0,
    rows: int = 12,
    attrs: Mapping[str, Any] | None = None,
) -> xr.DataTree:
    """Draw a tree whose weights are independent normals, the bias first when there is one.

    `alpha` are the precisions of `w`, None = sampled (for `hyper="posterior"`) or all one. An
    approximation has a `fit` group and the log densities of itself and of N(mean, target_sd²).
    Method "nuts" has neither, but chains (autoregressive of order one) and sampler statistics.
    """
    mean, sd = np.asarray(mean, float), np.asarray(sd, float)
    d = len(mean) - bias
    names = list(features or [f"x{j}" for j in range(d)])
    z = autoregressive(rng, (chains, draws, len(mean)), autocorrelation)
    values = mean + sd * z
    coords = {"chain": np.arange(chains), "draw": np.arange(draws), "feature": names}
    posterior = xr.Dataset({"w": ((*SAMPLE, "feature"), values[..., bias:])}, coords=coords)
    if bias:
        posterior["bias"] = (SAMPLE, values[..., 0])
    if hyper == "posterior":
        precision = rng.gamma(2.0, size=(chains, draws, d))
        posterior["alpha"] = ((*SAMPLE, "feature"), precision)
    else:
        fixed = np.ones(d) if alpha is None else np.asarray(alpha, float)
        posterior["alpha"] = ((*SAMPLE, "feature"), np.broadcast_to(fixed, (chains, draws, d)))
    is_chain = method == "nuts"
    posterior.attrs["sampling_kind"] = "mcmc" if is_chain else "iid"

    projection = np.random.default_rng(5).normal(size=(len(mean), rows))
    eta = values @ projection / np.sqrt(len(mean))
    posterior["eta"] = ((*SAMPLE, "row"), eta)
    groups: dict[str, xr.Dataset] = {
        "posterior": posterior,
        "log_likelihood": xr.Dataset({"t": ((*SAMPLE, "row"), -np.logaddexp(0.0, -eta))}),
        "observed_data": xr.Dataset({"t": ("row", np.ones(rows, int))}),
        "constant_data": xr.Dataset(
            {"X": (("row", "feature"), projection[bias:].T)}, coords={"feature": names}
        ),
    }
    if is_chain:
        groups["sample_stats"] = xr.Dataset(
            {
                "diverging": (SAMPLE, np.zeros((chains, draws), bool)),
                "energy": (SAMPLE, rng.normal(size=(chains, draws))),
            }
        )
    else:
        weight = ["bias"] * bias + [f"w[{name}]" for name in names]
        active = sd > 0
        target = sd if target_sd is None else np.asarray(target_sd, float)
        kept = values[..., active]
        log_p = log_normal(kept, mean[active], target[active])
        log_q = log_normal(kept, mean[active], sd[active])
        groups["sample_stats"] = xr.Dataset(
            {"lp": (SAMPLE, log_p - 7.0), "log_approximation": (SAMPLE, log_q)}
        )
        kept_names = [name for name, on in zip(weight, active, strict=True) if on]
        fit = {
            "mean_vector": ("rows", mean[active]),
            "covariance_matrix": (("rows", "columns"), np.diag(sd[active] ** 2)),
            "active": ("weight", active),
            "log_evidence": ((), -7.0),
        }
        coords = {"rows": kept_names, "columns": kept_names, "weight": weight}
        groups["fit"] = xr.Dataset(fit, coords=coords)
        if hyper != "posterior":
            groups["theta"] = xr.Dataset({"alpha": ("feature", fixed)}, {"feature": names})
    tree = xr.DataTree.from_dict(groups)
    tree.attrs |= {
        "method": method,
        "hyper": hyper,
        "seconds": 0.5,
        "converged": True,
        "model": "ard_classification",
        "settings": json.dumps({}),
        **(attrs or {}),
    }
    return tree


def autoregressive(
    rng: np.random.Generator, shape: tuple[int, ...], correlation: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Stationary N(0, 1) chains along the second axis."""
    noise = rng.normal(size=shape)
    z = noise.copy()
    for i in range(1, shape[1]):
        z[:, i] = correlation * z[:, i - 1] + np.sqrt(1 - correlation**2) * noise[:, i]
    return z


def log_normal(x: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> Any:
    z = (np.asarray(x) - mean) / sd
    return (-0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi)).sum(axis=-1)


def replaced(tree: xr.DataTree, group: str, **variables: Any) -> xr.DataTree:
    """Copy a tree with some variables of one group replaced or added."""
    changed = tree.copy(deep=True)
    changed[group] = xr.DataTree(changed[group].to_dataset().assign(**variables))
    return changed


def without(tree: xr.DataTree, group: str) -> xr.DataTree:
    """Copy a tree without one group."""
    return tree.filter(lambda node: node.name != group)
