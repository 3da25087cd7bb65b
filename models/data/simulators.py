"""Seeded simulators of the papers' synthetic tasks: NumPy only, exact, with the truth attached.

| name           | task                                           | where from              |
|----------------|------------------------------------------------|-------------------------|
| `ripley`       | two classes, each a mixture of two Gaussians   | Ripley 1994             |
| `sinc`         | sin(x)/x on [-10, 10]                          | Tipping 2001            |
| `friedman1..3` | ten inputs, five relevant; two circuits        | Friedman 1991           |
| `qi_synthetic` | separable, 10 of 200 inputs relevant, 30 rows  | Qi et al. 2004, 4       |
| `additive`     | additive surface, 5 of 10 inputs relevant      | Mirzaei et al. 2017, 5.2|
| `sin2d`        | sin(x1) + 0.1 x2, 2 of 10 inputs relevant      | Mirzaei et al. 2017, 5.2|

All take `n` training rows, `n_test` further rows, `noise` and `seed`. Training rows come first and
do not change with `n_test`. `truth` holds `signal` (the target without noise, or the probability
of class 1), `relevant` (the columns that matter) and, for a linear task, `weights`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import erf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ardvark.errors import InputError
from ardvark.models.checks import Seed, as_count, as_seed, non_negative, positive, positive_integer
from ardvark.models.inputs import Array

__all__ = ["SIMULATORS"]

RIPLEY_MEANS = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])  # class, kernel, x


class Simulated(NamedTuple):
    """Training rows, then test rows, and what the data were made of."""

    X: Array
    t: npt.NDArray[Any]
    n_train: int
    truth: dict[str, npt.NDArray[Any]]


def ripley(
    n: int = 250,
    n_test: int = 1000,
    noise: float = 0.03**0.5,
    irrelevant: int = 0,
    seed: Seed = 0,
) -> Simulated:
    """Two classes, each an equal mixture of two Gaussians.

    The Bayes error is 8.93 %; the 8 % that is often quoted is what the same rule scores on Ripley's
    own 1000 test rows. Both classes have as many rows (an odd row goes to class 0). `noise` is the
    standard deviation of the Gaussians. `irrelevant` inputs ~ N(0, 1) can be added, as Mirzaei et
    al. do.
    """
    positive(noise, "noise")
    parts = []
    for rows, rng in _parts(n, n_test, seed):
        t = rng.permutation(np.arange(rows) % 2)
        X = RIPLEY_MEANS[t, rng.integers(2, size=rows)] + noise * rng.standard_normal((rows, 2))
        parts.append((_with_irrelevant(X, irrelevant, rng), t))
    X, t = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    distance = ((X[:, None, None, :2] - RIPLEY_MEANS) ** 2).sum(axis=-1)  # row, class, kernel
    log_density = np.logaddexp.reduce(-distance / (2 * noise**2), axis=-1)
    probability = np.exp(log_density[:, 1] - np.logaddexp.reduce(log_density, axis=1))
    return Simulated(X, t, n, {"signal": probability, "relevant": np.arange(2)})


def sinc(n: int = 100, n_test: int = 1000, noise: float = 0.1, seed: Seed = 0) -> Simulated:
    """sin(x)/x with x uniform on [-10, 10] and Gaussian noise."""
    return _regression(
        lambda rng, rows: rng.uniform(-10, 10, (rows, 1)),
        lambda X: np.sinc(X[:, 0] / np.pi),
        *(1, n, n_test, noise, seed),
    )


def friedman1(n: int = 240, n_test: int = 1000, noise: float = 1.0, seed: Seed = 0) -> Simulated:
    """Five of ten inputs matter, all uniform on [0, 1]."""

    def signal(X: Array) -> Array:
        x1, x2, x3, x4, x5, *_ = X.T
        mean: Array = 10 * np.sin(np.pi * x1 * x2) + 20 * (x3 - 0.5) ** 2 + 10 * x4 + 5 * x5
        return mean

    return _regression(lambda rng, rows: rng.random((rows, 10)), signal, 5, n, n_test, noise, seed)


def friedman2(n: int = 240, n_test: int = 1000, noise: float = 125.0, seed: Seed = 0) -> Simulated:
    """Impedance of a circuit; the default noise is about a third of the signal's sd."""
    return _regression(
        _circuits, lambda X: np.hypot(X[:, 0], _reactance(X)), 4, n, n_test, noise, seed
    )


def friedman3(n: int = 240, n_test: int = 1000, noise: float = 0.1, seed: Seed = 0) -> Simulated:
    """Phase shift of the same circuit; the default noise is about a third of the signal's sd."""
    return _regression(
        _circuits, lambda X: np.arctan(_reactance(X) / X[:, 0]), 4, n, n_test, noise, seed
    )


def qi_synthetic(
    n: int = 30,
    n_test: int = 5000,
    noise: float = 0.0,
    d: int = 200,
    useful: int = 10,
    seed: Seed = 0,
) -> Simulated:
    """Linear two-class task with few rows, separable by `useful` weights ~ N(-0.5, 1).

    The paper does not state how x is distributed: here x ~ N(0, I). Its 201st input, the constant,
    is a model's bias. `noise` is the standard deviation of an error added to x'w before its sign is
    taken; the paper has none.
    """
    if as_count(useful, "useful") > positive_integer(d, "d"):
        raise InputError(f"useful must not exceed d = {d}, got {useful}.")
    non_negative(noise, "noise")
    (_, weights_rng), *parts = _parts(n, n_test, seed, before=1)
    weights = np.zeros(d)
    weights[:useful] = weights_rng.normal(-0.5, 1.0, useful)
    X = np.concatenate([rng.standard_normal((rows, d)) for rows, rng in parts])
    error = np.concatenate([rng.standard_normal(rows) for rows, rng in parts])
    margin = X @ weights
    t = (margin + noise * error > 0).astype(np.int64)
    signal = _normal_cdf(margin / noise) if noise else (margin > 0).astype(float)
    return Simulated(X, t, n, {"signal": signal, "relevant": np.arange(useful), "weights": weights})


def additive(
    n: int = 100,
    n_test: int = 2000,
    noise: float = 1.0,
    irrelevant: int = 5,
    seed: Seed = 0,
) -> Simulated:
    """Five inputs uniform on [0, 1] add up, `irrelevant` ones ~ N(0, 1) do nothing.

    The paper's sizes: 30 to 200 training rows, 2000 test rows (and 100 for validation: take them
    from `n`).
    """

    def signal(X: Array) -> Array:
        x1, x2, x3, x4, x5, *_ = X.T
        step = 4 / (1 + np.exp(-20 * (x2 - 0.5)))
        mean: Array = 0.1 * np.exp(4 * x1) + step + 3 * x3 + 2 * x4 + x5  # VRSFM 5.2, item 1
        return mean

    def inputs(rng: np.random.Generator, rows: int) -> Array:
        return _with_irrelevant(rng.random((rows, 5)), irrelevant, rng)

    return _regression(inputs, signal, 5, n, n_test, noise, seed)


def sin2d(
    n: int = 100,
    n_test: int = 2000,
    noise: float = 1.0,
    irrelevant: int = 8,
    seed: Seed = 0,
) -> Simulated:
    """Two inputs uniform on [-10, 10] matter, `irrelevant` ones ~ N(0, 1) do nothing."""

    def signal(X: Array) -> Array:
        return np.sin(X[:, 0]) + 0.1 * X[:, 1]  # VRSFM 5.2, item 2

    def inputs(rng: np.random.Generator, rows: int) -> Array:
        return _with_irrelevant(rng.uniform(-10, 10, (rows, 2)), irrelevant, rng)

    return _regression(inputs, signal, 2, n, n_test, noise, seed)


@dataclass(frozen=True, slots=True)
class Simulator:
    """A simulator as `load` uses it."""

    draw: Callable[..., Simulated]
    task: str
    source: str


SIMULATORS = {
    "ripley": Simulator(ripley, "binary", "Ripley 1994"),
    "sinc": Simulator(sinc, "regression", "Tipping 2001"),
    "friedman1": Simulator(friedman1, "regression", "Friedman 1991"),
    "friedman2": Simulator(friedman2, "regression", "Friedman 1991"),
    "friedman3": Simulator(friedman3, "regression", "Friedman 1991"),
    "qi_synthetic": Simulator(qi_synthetic, "binary", "Qi et al. 2004, section 4"),
    "additive": Simulator(additive, "regression", "Mirzaei et al. 2017, section 5.2"),
    "sin2d": Simulator(sin2d, "regression", "Mirzaei et al. 2017, section 5.2"),
}


# --- parts -----------------------------------------------------------------------------------


def _parts(
    n: int, n_test: int, seed: Seed, before: int = 0
) -> list[tuple[int, np.random.Generator]]:
    """Generators of training and of test rows: neither depends on the size of the other."""
    rows = [0] * before + [positive_integer(n, "n"), as_count(n_test, "n_test")]
    generators = np.random.default_rng(as_seed(seed, "seed")).spawn(len(rows))
    return list(zip(rows, generators, strict=True))


def _regression(
    inputs: Callable[[np.random.Generator, int], Array],
    signal: Callable[[Array], Array],
    relevant: int,
    n: int,
    n_test: int,
    noise: float,
    seed: Seed,
) -> Simulated:
    non_negative(noise, "noise")
    parts = [
        (inputs(rng, rows), rng.standard_normal(rows)) for rows, rng in _parts(n, n_test, seed)
    ]
    X, error = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    clean = signal(X)
    truth = {"signal": clean, "relevant": np.arange(relevant)}
    return Simulated(X, clean + noise * error, n, truth)


def _with_irrelevant(X: Array, irrelevant: int, rng: np.random.Generator) -> Array:
    columns = as_count(irrelevant, "irrelevant")
    return np.column_stack([X, rng.standard_normal((len(X), columns))])


def _circuits(rng: np.random.Generator, rows: int) -> Array:
    """Draw resistance, angular frequency, inductance and 1/capacitance."""
    low = np.array([0.0, 40 * np.pi, 0.0, 1.0])
    high = np.array([100.0, 560 * np.pi, 1.0, 11.0])
    return rng.uniform(low, high, (rows, 4))


def _reactance(X: Array) -> Array:
    return X[:, 1] * X[:, 2] - 1 / (X[:, 1] * X[:, 3])


def _normal_cdf(z: Array) -> Array:
    return np.array([0.5 + 0.5 * erf(value / 2**0.5) for value in z])
