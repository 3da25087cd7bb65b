"""Means and sds with their Monte Carlo errors: of long chains, of a fit, and beside each other."""

from __future__ import annotations

import json
import resource
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ardvark.inference.samplers.chain_statistics import ess_bulk, ess_mean, rhat
from ardvark.studies.speed.large import PATH

__all__ = ["Moments", "chain_facts", "errors", "fitted", "kept", "nothing"]

FOLDER = PATH.parent / "effects"


class Moments(NamedTuple):
    """Means and sds by name, with their Monte Carlo errors (zero where there are none)."""

    mean: dict[str, Any]
    sd: dict[str, Any]
    mean_error: dict[str, Any]
    sd_error: dict[str, Any]


def nothing() -> Moments:
    """Moments of no variable yet."""
    return Moments({}, {}, {}, {})


def _of_draws(draws: Mapping[str, Any]) -> Moments:
    """Moments of draws (chain, draw, ...), errors by effective sizes."""
    found = Moments({}, {}, {}, {})
    for name, values in draws.items():
        flat = values.reshape((*values.shape[:2], -1)).astype(float)
        mean, sd = flat.mean(axis=(0, 1)), flat.std(axis=(0, 1))
        square = (flat - mean) ** 2
        sizes = [ess_mean(x) for x in (flat, square)]
        shape = values.shape[2:]
        found.mean[name], found.sd[name] = mean.reshape(shape), sd.reshape(shape)
        found.mean_error[name] = (sd / np.sqrt(sizes[0])).reshape(shape)
        error = square.std(axis=(0, 1)) / (2.0 * sd * np.sqrt(sizes[1]))
        found.sd_error[name] = error.reshape(shape)
    return found


def kept(task: str, make: Callable[[], dict[str, Any]]) -> tuple[Moments, dict[str, Any]]:
    """Moments of a long run of NUTS, from its file or made now."""
    path = FOLDER / f"{task}.npz"
    if not path.exists():
        before = time.process_time()
        made = make()
        facts = {k: v for k, v in made.items() if k != "draws"}
        facts["seconds"] = time.process_time() - before
        found = _of_draws(made["draws"])
        arrays: dict[str, Any] = {
            f"{what}.{name}": np.asarray(v, np.float32)
            for what in Moments._fields
            for name, v in getattr(found, what).items()
        }
        FOLDER.mkdir(exist_ok=True)
        np.savez_compressed(path, **arrays, **{f"fact.{k}": v for k, v in facts.items()})
    with np.load(path, allow_pickle=False) as file:
        parts = {
            what: {
                k.split(".", 1)[1]: file[k].astype(float) for k in file if k.startswith(what + ".")
            }
            for what in (*Moments._fields, "fact")
        }
    facts = {k: float(v) for k, v in parts.pop("fact").items()}
    return Moments(**parts), facts


def chain_facts(tree: Any, names: list[str]) -> dict[str, Any]:
    """The draws of these variables, and how well their chains agree."""
    draws = {n: tree["posterior"][n].transpose("chain", "draw", ...).to_numpy() for n in names}
    every = [d.reshape((*d.shape[:2], -1)) for d in draws.values()]
    return {
        "draws": draws,
        "rhat": max(float(rhat(d).max()) for d in every),
        "ess": min(float(ess_bulk(d).min()) for d in every),
        "divergences": int(tree["sample_stats"]["diverging"].sum()),
    }


def fitted(model: Any, method: Any) -> tuple[Moments, dict[str, Any]]:
    """Moments of a fit with the hyperparameters integrated: those in the tree, else of draws."""
    import ardvark as av

    before = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", av.errors.AccuracyWarning)
        tree = av.fit(model, method, draws=2500, chains=4, random_seed=1, progressbar=False)
    spent = time.process_time() - before
    found, fit = Moments({}, {}, {}, {}), tree["fit"]
    share, weights = fit["node_weight"].to_numpy(), json.loads(tree.attrs["weights"])
    posterior = tree["posterior"].dataset.transpose("chain", "draw", ...)
    for name, values in posterior.items():
        if name not in weights:  # θ: no draws are needed
            at = tree["theta_nodes"][name].to_numpy()
            found.mean[name] = share @ at
            found.sd[name] = np.sqrt(share @ (at - share @ at) ** 2)
            found.mean_error[name] = found.sd_error[name] = 0.0
            continue
        flat = values.to_numpy().reshape((-1, *values.shape[2:]))
        found.mean[name], found.sd[name] = flat.mean(axis=0), flat.std(axis=0)
        found.mean_error[name] = found.sd[name] / np.sqrt(len(flat))
        found.sd_error[name] = found.sd[name] / np.sqrt(2.0 * len(flat))
        if "weight_mean" in fit:
            own = [str(w).split("[")[0] == name for w in fit["weight"].to_numpy()]
            shape = values.shape[2:]
            found.mean[name] = fit["weight_mean"].to_numpy()[own].reshape(shape)
            found.sd[name] = np.sqrt(fit["weight_variance"].to_numpy()[own]).reshape(shape)
            found.mean_error[name] = found.sd_error[name] = np.zeros(shape)
    return found, {
        "cpu_seconds": spent,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "log_evidence": float(fit["log_evidence"]),
        "converged": bool(tree.attrs["converged"]),
        "caution": str(tree.attrs["caution"]),
    }


def errors(own: Moments, truth: Moments) -> dict[str, dict[str, float]]:
    """Differences by name: in sds of the truth, and in Monte Carlo errors of both."""
    found = {}
    for name in truth.mean:
        sd = np.asarray(truth.sd[name])
        away = (np.asarray(own.mean[name]) - truth.mean[name]) / sd
        ratio = np.log(np.asarray(own.sd[name]) / sd)
        noise = np.hypot(own.mean_error[name], truth.mean_error[name]) / sd
        sd_noise = np.hypot(own.sd_error[name], truth.sd_error[name]) / sd
        found[name] = {
            "count": int(np.size(away)),
            "mean_rms": float(np.sqrt(np.mean(away**2))),
            "mean_largest": float(np.abs(away).max()),
            "mean_noise": float(np.sqrt(np.mean(noise**2))),
            "sd_rms": float(np.sqrt(np.mean(ratio**2))),
            "sd_largest": float(np.abs(ratio).max()),
            "sd_noise": float(np.sqrt(np.mean(sd_noise**2))),
        }
    return found
