"""Effective draws per CPU second of a hierarchical ARD posterior: whole sweeps against NUTS.

    python -m ardvark.studies.speed.samplers [--case 60x5-probit] [--sampler exact] [--seconds 20]

Every sampler draws weights and precisions of one posterior, two classes, Gamma(a, b) precisions:

    elliptical      EP(hyper=Sampled()): slices on the ellipse of EP, precisions by Gibbs and scale
    independence    the same with Metropolis-Hastings proposals from EP
    exact           exact draws of the weights, precisions with the weights integrated out
    integrated      nutpie, NUTS with the precisions integrated out (Student-t weights)
    centred, non-centred    nutpie, NUTS on weights and precisions

The effective size is the bulk ESS, over the draws of two chains, of every weight, every predictor
eta_n, the log likelihood and log |w|²: the least of all of them, the least of the predictors, and
the median of the weights. CPU seconds are of this process: sampling and tuning alone (no check of
convergence, no tree), and what was done before the first draw: to compile, or to read the graph
and load machine code from its cache. A short run before says how many draws fit into the seconds
asked for, which for NUTS is a guess, since its first trees are its largest: `--draws` is safer.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_expit, log_ndtr

import ardvark as av
from ardvark.inference.graph.read import read_model
from ardvark.inference.running.progress import no_tick
from ardvark.inference.sampled.run_chains import sample_chains
from ardvark.inference.samplers.chain_statistics import ess_bulk, rhat

__all__ = ["CASES", "Case", "Measured", "measure", "quantities", "samplers", "table"]

CHAINS, TUNE, PILOT, MOST_DRAWS = 2, 500, 50, 20_000
MOST_NUMBERS = 40_000_000  # of weights kept: 320 MB


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
    least: float  # effective draws: of all quantities
    predictors: float  # the least of the predictors
    median: float  # of the weights
    seconds: float  # CPU, sampling and tuning
    setup_seconds: float
    divergences: int
    rhat: float

    @property
    def rate(self) -> float:
        """Effective draws per CPU second of sampling, of the worst quantity."""
        return self.least / self.seconds


# draws and tune per chain -> w (chain, draw, d), divergences
type Draw = Callable[[int, int], tuple[np.ndarray, int]]


def _sweeps(case: Case, kernel: str) -> Draw:
    model = case.model()
    latent = read_model(model)

    def draw(draws: int, tune: int, held: Any = model) -> tuple[np.ndarray, int]:
        hyper = av.Sampled(kernel=kernel, tune=tune)
        chains = sample_chains(
            latent,
            av.EP(),
            hyper,
            draws=draws,
            chains=CHAINS,
            seed=1,
            tick=no_tick,
        )
        return chains.weights, 0

    draw(4, 1)  # numba's cache is loaded
    return draw  # which holds the graph: its reading does not


def _nutpie(case: Case, form: str) -> Draw:
    import nutpie

    compiled = nutpie.compile_pymc_model(_graph(case, form), var_names=["w"])

    def draw(draws: int, tune: int) -> tuple[np.ndarray, int]:
        trace = nutpie.sample(
            compiled, draws=draws, tune=tune, chains=CHAINS, seed=1, progress_bar=False,
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


def samplers(case: Case) -> dict[str, Callable[[], Draw]]:
    """Give those that can sample the case, by name."""
    kernels = ["elliptical", "independence"]
    if not 20 < case.inputs < case.rows:
        kernels.append("exact")  # in between nearly every proposal is rejected: `Exact` refuses
    forms = ("integrated", "centred", "non-centred")
    found: dict[str, Callable[[], Draw]] = {k: partial(_sweeps, case, k) for k in kernels}
    return found | {form: partial(_nutpie, case, form) for form in forms}


def quantities(case: Case, w: np.ndarray) -> np.ndarray:
    """Predictors, log likelihood and log |w|² of draws (chain, draw, d), side by side."""
    model = case.model()
    sign = 2.0 * model["t_observed"].get_value() - 1.0
    eta = w @ model["X"].get_value().T
    log_site = log_ndtr if case.link == "probit" else log_expit
    log_likelihood = log_site(sign * eta).sum(axis=-1, keepdims=True)
    return np.concatenate([eta, log_likelihood, np.log(np.sum(w**2, axis=-1, keepdims=True))], -1)


def measure(
    case: Case, seconds: float, chosen: list[str] | None = None, draws: int | None = None
) -> Iterator[Measured]:
    """Each sampler for about so many CPU seconds, or for so many draws per chain."""
    for name, make in samplers(case).items():
        if chosen and name not in chosen:
            continue
        begin = time.process_time()
        draw = make()
        setup = time.process_time() - begin
        many = draws or _affordable(draw, case, seconds)
        begin = time.process_time()
        w, diverged = draw(many, TUNE)
        spent = time.process_time() - begin
        others = quantities(case, w)
        of_weights, of_others = ess_bulk(w), ess_bulk(others)
        worst = max(float(rhat(w).max()), float(rhat(others).max()))
        least = min(float(of_weights.min()), float(of_others.min()))
        yield Measured(
            name, many, least, float(of_others[: case.rows].min()), float(np.median(of_weights)),
            spent, setup, diverged, worst,
        )  # fmt: skip


def _affordable(draw: Draw, case: Case, seconds: float) -> int:
    begin = time.process_time()
    draw(PILOT, PILOT)
    pilot = (time.process_time() - begin) / (2 * PILOT)
    most = min(MOST_DRAWS, MOST_NUMBERS // (CHAINS * case.inputs))
    return int(np.clip(seconds / pilot - TUNE, 2 * PILOT, most))


def table(measured: list[Measured]) -> str:
    """Lines of text: effective draws per CPU second, and with what came before sampling."""
    lines = [
        f"{'sampler':14}{'draws':>7}{'CPU s':>7}{'before':>8}{'worst':>8}{'/ s':>8}{'with':>8}"
        f"{'eta / s':>9}{'w / s':>9}{'diverged':>10}{'R-hat':>8}"
    ]
    for m in measured:
        with_setup = m.least / (m.seconds + m.setup_seconds)
        lines.append(
            f"{m.sampler:14}{m.draws:7d}{m.seconds:7.1f}{m.setup_seconds:8.1f}{m.least:8.0f}"
            f"{m.rate:8.1f}{with_setup:8.1f}{m.predictors / m.seconds:9.1f}"
            f"{m.median / m.seconds:9.1f}{m.divergences:10d}{m.rhat:8.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table of every case asked for."""
    parser = argparse.ArgumentParser(description="Effective draws per CPU second.")
    names = sorted({name for case in CASES.values() for name in samplers(case)})
    parser.add_argument("--case", action="append", choices=CASES, help="default: all of them")
    parser.add_argument("--sampler", action="append", choices=names, help="default: all of them")
    parser.add_argument("--seconds", type=float, default=20.0, help="of sampling, each")
    parser.add_argument("--draws", type=int, help="per chain, in place of seconds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in options.case or CASES:
        measured = list(measure(CASES[name], options.seconds, options.sampler, options.draws))
        if options.json:
            rows = [m._asdict() | {"case": name, "rate": m.rate} for m in measured]
            sys.stdout.write(json.dumps(rows) + "\n")
        else:
            sys.stdout.write(f"{name}\n{table(measured)}\n\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
