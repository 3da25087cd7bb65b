"""Effective draws per CPU second of a hierarchical ARD posterior: whole sweeps against NUTS.

    python -m ardvark.studies.samplers [--case 60x5-probit] [--seconds 20] [--json]

Every sampler draws weights and precisions of one posterior, two classes, Gamma(a, b) precisions:

    ardvark elliptical     EP(hyper=Sampled()): slices on the ellipse of EP, precisions by Gibbs and scale
    ardvark independence   the same with Metropolis-Hastings proposals from EP
    ardvark exact          the same with exact independent draws of the weights (probit)
    nutpie integrated      NUTS with the precisions integrated out (Student-t weights)
    nutpie centred, non-centred   NUTS on weights and precisions

The effective size is the smallest bulk ESS over all weights, over the draws of all chains (for more
than 200 weights: over the first 200); the CPU seconds are of this process, sampling and tuning
alone, and then with what was compiled. Each sampler is run twice: a short run says how many draws
fit into the seconds asked for.
"""  # noqa: E501

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import ardvark as av

__all__ = ["CASES", "Case", "Measured", "measure", "table"]

CHAINS, PILOT, MOST_WEIGHTS, LEAST = 2, 100, 200, 100


class Case(NamedTuple):
    """A data set and its hyperprior."""

    rows: int
    inputs: int
    link: str
    a: float = 2.0
    b: float | None = None

    def model(self) -> Any:
        """Five inputs matter; with more inputs than rows the classes are separable."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(self.rows, self.inputs))
        score = X[:, :5] @ [2.0, -1.0, 1.0, 0.5, 0.5]
        t = (score + rng.normal(size=self.rows) > 0).astype(int)
        return av.models.ard_classification(X, t, link=self.link, bias=False, a=self.a, b=self.b)


CASES = {
    "60x5-probit": Case(60, 5, "probit"),
    "60x5-logit": Case(60, 5, "logit"),
    "500x50-probit": Case(500, 50, "probit"),
    "500x50-logit": Case(500, 50, "logit"),
    "60x2000-probit-b1": Case(60, 2000, "probit", 1.0, 1.0),
    "60x2000-probit-b0.01": Case(60, 2000, "probit", 1.0, 0.01),
    "60x2000-logit": Case(60, 2000, "logit", 1.0, 1.0),
}


class Measured(NamedTuple):
    """One sampler on one case."""

    sampler: str
    draws: int
    ess: float
    seconds: float  # CPU, sampling and tuning
    compile_seconds: float
    divergences: int
    rhat: float

    @property
    def rate(self) -> float:
        """Effective draws per CPU second of sampling."""
        return self.ess / self.seconds


type Draw = Callable[
    [int], tuple[np.ndarray, int]
]  # draws per chain -> w (chain, draw, d), diverged


def _sweeps(case: Case, kernel: str) -> Draw:
    model = case.model()

    def draw(draws: int) -> tuple[np.ndarray, int]:
        import warnings

        hyper = av.Sampled(kernel=kernel, tune=min(500, draws))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", av.ConvergenceWarning)  # judged by the table
            tree = av.fit(
                model, av.EP(hyper=hyper), draws=draws, chains=CHAINS, random_seed=1,
                progressbar=False,
            )  # fmt: skip
        return tree["posterior"]["w"].values, 0

    draw(4)  # numba's cache is loaded
    return draw


def _nutpie(case: Case, form: str) -> Draw:
    import nutpie

    compiled = nutpie.compile_pymc_model(_graph(case, form), var_names=["w"])

    def draw(draws: int) -> tuple[np.ndarray, int]:
        trace = nutpie.sample(
            compiled, draws=draws, tune=500, chains=CHAINS, seed=1, progress_bar=False,
            target_accept=0.9,
        )  # fmt: skip
        diverged = int(trace["sample_stats"]["diverging"].sum())
        return trace["posterior"]["w"].values, diverged

    return draw


def _graph(case: Case, form: str) -> Any:
    import pymc as pm

    from ardvark.models.card import card_of

    model = case.model()
    if form == "centred":
        return model
    card = card_of(model)
    assert card is not None and card.integrated is not None
    if form == "integrated":
        return card.integrated()
    precision, X = card.precisions[0], model["X"].get_value()
    with pm.Model(coords={"feature": list(card.feature_names)}) as other:
        alpha = pm.Gamma("alpha", precision.shape, precision.rate, dims="feature")
        z = pm.Normal("z", dims="feature")
        w = pm.Deterministic("w", z / alpha**0.5, dims="feature")
        t = model["t_observed"].get_value()
        eta = X @ w
        if case.link == "logit":
            pm.Bernoulli("t", logit_p=eta, observed=t)
        else:
            pm.Bernoulli("t", p=pm.math.invprobit(eta), observed=t)
    return other


def _samplers(case: Case) -> Iterator[tuple[str, Callable[[], Draw]]]:
    for kernel in ("elliptical", "independence", *(["exact"] if case.link == "probit" else [])):
        if kernel == "exact" and 20 < case.inputs < case.rows:
            continue  # nearly every proposal is rejected there: `Exact` refuses
        yield f"ardvark {kernel}", partial(_sweeps, case, kernel)
    for form in ("integrated", "centred", "non-centred"):
        yield f"nutpie {form}", partial(_nutpie, case, form)


def measure(case: Case, seconds: float) -> Iterator[Measured]:
    """Each sampler for about so many CPU seconds."""
    from arviz import ess, rhat

    for name, make in _samplers(case):
        begin = time.process_time()
        draw = make()
        compiled = time.process_time()
        draw(PILOT)
        pilot = time.process_time() - compiled
        draws = int(np.clip(PILOT * seconds / max(pilot, 1e-3), LEAST, 20_000))
        start = time.process_time()
        w, diverged = draw(draws)
        spent = time.process_time() - start
        some = w[:, :, :MOST_WEIGHTS]
        sizes = [float(ess(some[:, :, j])) for j in range(some.shape[2])]
        worst = max(float(rhat(some[:, :, j])) for j in range(some.shape[2]))
        yield Measured(name, draws, min(sizes), spent, compiled - begin, diverged, worst)


def table(measured: list[Measured]) -> str:
    """Lines of text, the reference nutpie integrated = 1."""
    base = next((m.rate for m in measured if m.sampler == "nutpie integrated"), np.nan)
    lines = [
        f"{'sampler':24}{'draws':>8}{'min ESS':>10}{'CPU s':>8}{'compile':>9}{'ESS / s':>10}"
        f"{'ratio':>8}{'diverged':>10}{'R-hat':>7}"
    ]
    for m in measured:
        lines.append(
            f"{m.sampler:24}{m.draws:8d}{m.ess:10.0f}{m.seconds:8.1f}{m.compile_seconds:9.1f}"
            f"{m.rate:10.2f}{m.rate / base:8.2f}{m.divergences:10d}{m.rhat:7.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table of every case asked for."""
    parser = argparse.ArgumentParser(description="Effective draws per CPU second.")
    parser.add_argument("--case", action="append", choices=CASES, help="default: all of them")
    parser.add_argument("--seconds", type=float, default=20.0, help="of sampling, each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in options.case or CASES:
        measured = list(measure(CASES[name], options.seconds))
        if options.json:
            rows = [m._asdict() | {"case": name, "rate": m.rate} for m in measured]
            sys.stdout.write(json.dumps(rows) + "\n")
        else:
            sys.stdout.write(f"{name}\n{table(measured)}\n\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
