"""The same seed gives the same draws bit for bit in fresh processes, and with two BLAS threads
nearly the same numbers; another seed gives others.

    python tests/contracts/test_same_seed.py SEED      prints what a process finds, as JSON
"""

import hashlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import ardvark as av
from ardvark.inference.methods import METHODS
from ardvark.models.registry import MODELS
from ardvark.studies.validation.hard_inputs import PAIRS, build, settings

QUICK = ("laplace", "ep", "vb", "exact", "elliptical_slice", "reversible_jump")
SAMPLED = (("ard_classification", "nuts"), ("rvm_regression", "nuts"), ("ard_regression", "smc"))
TAKEN = [p for p in PAIRS if p[1] in QUICK or p in SAMPLED]
DRAWS_NOTHING = ("gaussian", "vb")


def found(seed: int) -> dict[str, tuple[str, float | None]]:
    """By pair: a digest of all draws, and what a rule says of its evidence."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 4))  # products are large enough for BLAS to use two threads
    score = X[:, 0] - X[:, 1] + 0.7 * rng.normal(size=150)
    answers = {}
    for model, method in TAKEN:
        t = score if MODELS[model].task == "regression" else (score > 0).astype(int)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tree = av.fit(
                    build(model, method, X, t), settings(model, method, 4), draws=20, chains=2,
                    random_seed=seed, progressbar=False,
                )  # fmt: skip
            except av.errors.UnsupportedPair:
                continue
        draws = tree["posterior"].to_dataset()
        digest = hashlib.sha256(b"".join(draws[v].values.tobytes() for v in sorted(draws)))
        evidence = None
        for name in ("elbo", "log_evidence"):
            if METHODS[method].kind in DRAWS_NOTHING and name in tree["fit"].data_vars:
                evidence = float(np.ravel(tree["fit"][name].values)[-1])
        answers[f"{model} {method}"] = (digest.hexdigest(), evidence)
    return answers


def in_a_process(seed, threads):
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(variables, str(threads))
    command = [sys.executable, str(Path(__file__).resolve()), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.validate
def test_processes_agree_bit_for_bit_and_thread_counts_nearly():
    one, again, threads, other = (in_a_process(*a) for a in ((1, 1), (1, 1), (1, 2), (2, 1)))
    assert len(one) >= 25
    assert [name for name in one if one[name] != again[name]] == []
    for name, (digest, evidence) in one.items():
        if evidence is not None:
            np.testing.assert_allclose(threads[name][1], evidence, rtol=1e-6, err_msg=name)
        assert other[name][0] != digest, name


if __name__ == "__main__":
    sys.stdout.write(json.dumps(found(int(sys.argv[1]))) + "\n")
