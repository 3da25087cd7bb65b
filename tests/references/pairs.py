"""A few numbers of every pair of model and method at one seed: a change of order changes none.

    python tests/references/pairs.py --write      store them all in pairs.json
    python tests/references/pairs.py              which differ from the stored ones?
    python tests/references/pairs.py --quick      the same without NUTS and SMC

Approximations agree to 1e-6 on every processor, and `tests/contracts/test_pairs.py` holds them to
that. A Markov chain turns on the last bit of a number, so its draws are equal on one machine only:
run the script before and after a change that should change nothing.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import ardvark as av
from ardvark.inference.methods import METHODS
from ardvark.models.registry import MODELS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from model_variants import builder, samples

STORED = Path(__file__).with_name("pairs.json")
LONG = ("nuts", "smc")
CHAINS = (*LONG, "reversible_jump", "elliptical_slice")
VARIANTS = ("default", "fixed precisions", "all fixed", "logit", "width given", "linear", "ard")


def pairs() -> list[tuple[str, str, str]]:
    """Model, variant and method of every pair."""
    found = []
    for model, entry in MODELS.items():
        for variant in (v for v, _ in samples(model) if v in VARIANTS):
            found += [(model, variant, method) for method in entry.methods if method in METHODS]
    return found


def numbers(model: str, variant: str, method: str) -> dict[str, Any]:
    """Means and sds of the draws of every variable, and the evidence, or why there are none."""
    graph = builder(model)(**dict(samples(model))[variant])
    draws = 50 if method in CHAINS else 200
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = av.fit(graph, method, draws=draws, chains=2, random_seed=1, progressbar=False)
        except (av.errors.UnsupportedPair, av.errors.UnreadableModel) as refusal:
            return {"refused": type(refusal).__name__}
    found: dict[str, Any] = {}
    for name, values in tree["posterior"].data_vars.items():
        kept = values.values[np.isfinite(values.values)]
        found[str(name)] = [float(kept.mean()), float(kept.std())] if kept.size else []
    fit = tree["fit"].data_vars if "fit" in tree.children else {}
    for name in ("log_evidence", "elbo"):
        if name in fit:
            found[name] = float(np.ravel(fit[name].values)[-1])
    return found


def differences(found: Any, stored: Any, rtol: float) -> list[str]:
    """Names of what differs."""
    if found.keys() != stored.keys():
        return sorted(found.keys() ^ stored.keys())
    return [name for name in stored if not _equal(found[name], stored[name], rtol)]


def _equal(found: Any, stored: Any, rtol: float) -> bool:
    if isinstance(stored, str):
        return bool(found == stored)
    return np.shape(found) == np.shape(stored) and np.allclose(found, stored, rtol=rtol, atol=rtol)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    stored = {} if options.write else json.loads(STORED.read_text())
    bad = 0
    for pair in pairs():
        key = " | ".join(pair)
        if options.quick and not options.write and pair[2] in LONG:
            continue
        found = numbers(*pair)
        if options.write:
            stored[key] = found
            continue
        differ = differences(found, stored.get(key, {}), 1e-12)
        bad += bool(differ)
        if differ:
            print(f"{key}: {', '.join(differ)}", flush=True)
    if options.write:
        STORED.write_text(json.dumps(stored, indent=0, sort_keys=True) + "\n")
    print(f"{len(pairs())} pairs, {bad} differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
