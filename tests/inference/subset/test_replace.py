"""A member is replaced by an input like it: choice, stationary law, a control."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr

from ardvark.inference.subset.factor import workspace
from ardvark.inference.subset.laplace_fit import TwoClasses, empty_fit
from ardvark.inference.subset.replace import LEAST, Room, likeness, log_choice, replace_member


def three_alike(n=40):
    """Three inputs, two of them alike, and signs that all of them explain a little."""
    rng = np.random.default_rng(61)
    x = rng.normal(size=(n, 3))
    x[:, 1] = 0.95 * x[:, 0] + 0.3 * x[:, 1]
    A = np.column_stack([np.ones(n), x])
    sign = np.where(x[:, 0] + 0.5 * x[:, 2] + rng.normal(size=n) > 0, 1.0, -1.0)
    return A, sign, np.array([0.04, 1.0, 1.0, 0.5])


def exact(A, sign, alpha):
    """P(I | t) among the three subsets of one input, by the trapezoidal rule."""
    x = np.arange(-6.0, 6.01, 0.1)
    grid = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    value = []
    for j in (1, 2, 3):
        log_p = stats.norm.logpdf(grid, 0, alpha[[0, j]] ** -0.5).sum(axis=1)
        log_p += log_ndtr((grid @ A[:, [0, j]].T) * sign).sum(axis=1)
        value.append(np.logaddexp.reduce(log_p))
    return np.exp(value - np.logaddexp.reduce(value))


def walk(near, steps, seed):
    """Nothing but replacements from subsets of one input."""
    A, sign, alpha = three_alike()
    rng = np.random.default_rng(seed)
    factor, weights, data = workspace(4), np.zeros(4), TwoClasses(A, sign, True)
    members, place = factor.members, factor.place
    members[:2], place[:2] = (0, 1), (0, 1)
    room = Room(empty_fit(4), np.empty(4, members.dtype), np.empty(4))
    seen = np.empty(steps, int)
    for i in range(steps):
        replace_member(2, factor, weights, data, alpha, near, room, rng)
        seen[i] = members[1]
        assert place[members[1]] == 1
        assert (place >= 0).sum() == 2
    batches = np.array([np.bincount(part, minlength=4)[1:] for part in np.split(seen, 40)])
    share = batches / batches.sum(axis=1, keepdims=True)
    return share.mean(axis=0), share.std(axis=0, ddof=1) / np.sqrt(40)


def test_the_choice_is_a_distribution_over_who_is_outside():
    A, _, _ = three_alike()
    near = likeness(A)
    np.testing.assert_allclose(near[1:, 1:], np.corrcoef(A[:, 1:].T) ** 2 + LEAST, atol=1e-12)
    place = np.array([0, 1, -1, -1])
    chance = np.exp([log_choice(1, j, place, near) for j in (2, 3)])
    assert chance.sum() == pytest.approx(1)
    assert chance[0] > 0.8


@pytest.mark.parametrize("alike", [True, False])
def test_replacements_alone_give_the_posterior_within_a_size(alike):
    A, sign, alpha = three_alike()
    near = likeness(A) if alike else np.ones((4, 4))
    share, error = walk(near, 20000, 3)
    assert np.all(np.abs(share - exact(A, sign, alpha)) < 4 * error)


def test_another_prior_of_one_weight_is_seen():
    """The control: a judge whose slab differs for one input must not agree."""
    A, sign, alpha = three_alike()
    share, error = walk(likeness(A), 8000, 4)
    alpha[3] *= 20
    assert np.any(np.abs(share - exact(A, sign, alpha)) > 6 * error)
