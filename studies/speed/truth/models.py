"""Models of large effects whose posterior is known by other means."""

from __future__ import annotations

from typing import Any

import numpy as np

from ardvark.studies.speed.large import build

__all__ = ["gaussian_walk", "lip", "observed_counts", "walked"]

# Clayton & Kaldor (1987), Breslow & Clayton (1993): cases, expected cases, percentage in outdoor
# work, and the neighbours that come after each district. Islands are joined to the mainland.
CASES = """9 39 11 9 15 8 26 7 6 20 13 5 3 8 17 9 2 7 9 7 16 31 11 7 19 15 7 10 16 11 5 3 7 8
11 9 11 8 6 4 10 8 2 6 19 3 2 3 28 6 1 1 1 1 0 0"""
EXPECTED = """1.38 8.66 3.04 2.53 4.26 2.40 8.11 2.30 1.98 6.63 4.40 1.79 1.08 3.31 7.84 4.55
1.07 4.18 5.53 4.44 10.46 22.67 8.77 5.62 15.47 12.49 6.04 8.96 14.37 10.20 4.75 2.88 7.03 8.53
12.32 10.10 12.68 9.35 7.20 5.27 18.76 15.78 4.32 14.63 50.72 8.20 5.59 9.34 88.66 19.62 3.44
3.62 5.74 7.03 4.16 1.76"""
OUTDOORS = """16 16 10 24 10 24 10 7 7 16 7 16 10 24 7 16 10 7 7 10 7 16 10 7 1 1 7 7 10 10 7
24 10 7 7 0 10 1 16 0 1 16 16 0 1 7 1 1 0 1 1 0 1 1 16 10"""
LATER = """5 9 11 19; 7 10; 6 12; 18 20 28; 11 12 13 19; 8; 10 13 16 17; ; 11 17 19 23 29; 16
22; 12; ; 17 19; 31 32 35; 25 29 50; 17 21 22 29; 19 29; 20 28 33 55 56; ; 55; 29 50; ; 29 34
36 37 39; 27 30 31 44 47 48 55 56; 26 29; 29 42 43; 31 32 55; 33 45; 34 43 50; 38 42 44 45 56;
32 35 46 47; 35; 45 56; 39 40 42 43 51 52 54; 37 46; 37 39 41; 39 41 46; 42 44 49 51 54; 40 41;
41 49 52; 46 49 53; 43 51; ; 48 49; 56; 47 53; 48 49 53; 49; 52 53 54; ; 54; 54; ; ; 56;"""


def lip(_: int = 56) -> Any:
    """Besag, York and Mollié's model: a field of neighbours, and effects without structure."""
    import pymc as pm

    cases, expected, outdoors = (np.array(s.split(), float) for s in (CASES, EXPECTED, OUTDOORS))
    W = np.zeros((56, 56), int)
    for place, after in enumerate(LATER.split(";")):
        for other in after.split():
            W[place, int(other) - 1] = W[int(other) - 1, place] = 1
    with pm.Model() as model:
        a, b = pm.Normal("a", 0.0, 5.0), pm.Normal("b", 0.0, 5.0)
        s, r = pm.HalfNormal("s", 1.0), pm.HalfNormal("r", 1.0)
        phi = pm.ICAR("phi", W=W, sigma=1.0, zero_sum_stdev=0.001)
        u = pm.Normal("u", 0.0, 1.0, shape=56)
        eta = np.log(expected) + a + b * outdoors / 10.0 + s * phi + r * u
        pm.Poisson("t", pm.math.exp(eta), observed=cases.astype(int))
    return model


def gaussian_walk(points: int) -> Any:
    """A random walk under Gaussian noise."""
    import pymc as pm

    with pm.Model() as model:
        s, r = pm.HalfNormal("s", 1.0), pm.HalfNormal("r", 1.0)
        v = pm.GaussianRandomWalk("v", sigma=s, init_dist=pm.Normal.dist(0.0, 2.0), shape=points)
        pm.Normal("t", v, r, observed=walked(points))
    return model


def walked(points: int) -> Any:
    """The series of `gaussian_walk`."""
    rng = np.random.default_rng(points + 1)
    return np.cumsum(0.3 * rng.normal(size=points)) + 0.5 * rng.normal(size=points)


def observed_counts(points: int) -> Any:
    """The series of `walk`, as the model holds it."""
    model = build("walk", points)
    return np.asarray(model.rvs_to_values[model.observed_RVs[0]].data, float)
