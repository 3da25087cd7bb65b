"""Sums of log σ(u) and log Phi(u), many rows at a time, against SciPy and the row-wise kernels."""

import numpy as np
import pytest
from scipy.special import expit, log_expit, log_ndtr

from ardvark.inference.known_sites.kernels import truncation
from ardvark.inference.known_sites.many_rows import add_log_cdf, add_log_sigmoid

WIDE = np.r_[np.linspace(-60.0, 37.0, 777), 0.0, -0.0, 1e-9, -1e-9, -1e4]


@pytest.mark.parametrize("rows", [1, 2, 31, 32, 33, 500])
def test_sums_of_any_length(rows: int) -> None:
    u = np.random.default_rng(rows).normal(0.0, 4.0, rows)
    for add, log in ((add_log_sigmoid, log_expit), (add_log_cdf, log_ndtr)):
        np.testing.assert_allclose(add(u.copy()), log(u).sum(), rtol=1e-13)


def test_every_row_is_right_far_into_both_tails() -> None:
    for add, log in ((add_log_sigmoid, log_expit), (add_log_cdf, log_ndtr)):
        ours = np.array([add(np.array([z])) for z in WIDE])
        np.testing.assert_allclose(ours, log(WIDE), rtol=3e-14, atol=3e-15)


def test_slopes() -> None:
    u = WIDE.copy()
    add_log_sigmoid(u)
    np.testing.assert_allclose(u, expit(-WIDE), rtol=1e-13)
    u = WIDE.copy()
    add_log_cdf(u)
    near = WIDE < 37.0  # beyond, both are below 1e-297
    np.testing.assert_allclose(u[near], [truncation(z)[0] for z in WIDE[near]], rtol=1e-12)


def test_what_is_no_number_stays_none() -> None:
    assert np.isnan(add_log_sigmoid(np.array([0.3, np.nan])))
    assert np.isnan(add_log_cdf(np.array([0.3, np.nan])))
