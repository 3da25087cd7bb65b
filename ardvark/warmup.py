"""Compile the machine code once: small fits that reach every kernel, so that no user's fit waits.

The kernels are kept by numba beside their sources (`cache=True`), or in `NUMBA_CACHE_DIR`; what is
kept already is loaded and not compiled. `make env` and `ardvark doctor --warm-up` call this.
"""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["PROBLEMS", "compile_for", "warm_up"]


def warm_up() -> None:
    """Compile for all of `PROBLEMS`, one process each, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(_in_a_process, PROBLEMS):
            pass


def _in_a_process(name: str) -> None:
    command = [sys.executable, "-m", "ardvark.warmup", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed: {done.stderr.strip()[-500:]}")


def compile_for(name: str) -> None:
    """Compile for one of `PROBLEMS` in this process."""
    import pytensor

    with warnings.catch_warnings(), pytensor.config.change_flags(cxx=""):
        warnings.simplefilter("ignore")  # fits this small converge to nothing
        PROBLEMS[name]()


def _data() -> tuple[Any, Any, Any]:
    """Inputs, a target and two classes."""
    import numpy as np

    rng = np.random.default_rng(1)
    X = rng.normal(size=(24, 3))
    score = X[:, 0] - 0.5 * X[:, 1] + 0.5 * rng.normal(size=24)
    return X, score, (score > 0).astype(int)


def _fit(model: Any, method: Any, **options: Any) -> Any:
    import ardvark as av

    settings = {"draws": 20, "random_seed": 1, "progressbar": False} | options
    return av.fit(model, method, **settings)


def _weights() -> None:
    import ardvark as av

    X, t, label = _data()
    for link in ("probit", "logit"):
        model = av.models.ard_classification(X, label, link=link)
        ep = _fit(model, "ep")
        _fit(model, av.EP(space="functions"))
        _fit(model, av.EP(hyper=av.Sampled(tune=5)))
        _fit(model, av.EP(hyper=av.Sampled(tune=5, kernel="exact")))
        _fit(model, av.EllipticalSlice(hyper=av.Fixed(ep)))
        _fit(model, av.NUTS(tune=20))
    probit = av.models.ard_classification(X, label)
    _fit(probit, av.Exact(hyper=av.Fixed(_fit(probit, "laplace"))))
    for regression in (av.models.ard_regression(X, t), av.models.rvm_regression(X, t)):
        for method in ("laplace", "vb", av.EP(hyper=av.Sampled(tune=5))):
            _fit(regression, method)
    av.evidence({"ep": _fit(probit, "ep"), "again": _fit(probit, "laplace")}, probit)


def _effects() -> None:
    import numpy as np
    import pymc as pm

    import ardvark as av

    X, _, label = _data()
    group = np.arange(24) % 6
    with pm.Model() as model:  # a sparse block with a border
        slope = pm.Normal("slope", 0, 1)
        level = pm.Normal("level", 0, pm.HalfNormal("sd", 1), shape=6)
        pm.Bernoulli("y", logit_p=slope * X[:, 0] + level[group], observed=label)
    for method in (av.Laplace, av.EP):
        _fit(model, method(space="sparse"))


def _subsets() -> None:
    import ardvark as av

    X, t, label = _data()
    for link in ("probit", "logit"):
        model = av.models.subset_classification(X, label, link=link)
        _fit(model, av.ReversibleJump(sweeps=60))
    model = av.models.subset_regression(X, t)
    _fit(model, av.ReversibleJump(sweeps=60))
    _fit(model, "exact")


def _mixtures() -> None:
    import ardvark as av

    X, _, label = _data()
    model = av.models.rbf_mixture(X[:6, :2], label[:6])
    _fit(model, av.ReversibleJump(sweeps=60, scouts=2))
    _fit(model, "exact")
    model = av.models.rbf_mixture(X[:6, :2], label[:6], target="conditional")
    _fit(model, av.ReversibleJump(sweeps=60))


def _machines() -> None:
    import numpy as np

    import ardvark as av
    from ardvark.inference.ard.sparse_logistic import _weighted_squares
    from ardvark.inference.running.threads import unwatched
    from ardvark.inference.selection.smo import hinge_machine, path_decisions

    X, _, label = _data()
    av.sklearn.RVC().fit(X, label)
    _weighted_squares(np.ascontiguousarray(X.T), np.ones(len(X)))  # of many rows
    kernel, sign, rows = X @ X.T + np.eye(len(X)), 2.0 * label - 1.0, np.arange(len(X))
    hinge_machine(kernel, sign, 1.0)
    path_decisions(
        kernel, sign, rows[:16], rows[16:], np.array([0.5, 1.0]), 1e-6, 1000, unwatched()
    )


def _graphs() -> None:
    """Mostly a matrix product: half a minute, which PyTensor keeps for all graphs."""
    import ardvark as av

    X, t, _ = _data()
    _fit(av.models.ard_regression(X, t), av.NUTS(tune=20, compiled=True))


PROBLEMS: dict[str, Callable[[], None]] = {  # the longest first
    "weights": _weights,
    "graphs": _graphs,
    "mixtures": _mixtures,
    "subsets": _subsets,
    "machines": _machines,
    "effects": _effects,
}

if __name__ == "__main__":
    if sys.argv[1:]:
        compile_for(sys.argv[1])
    else:
        warm_up()
