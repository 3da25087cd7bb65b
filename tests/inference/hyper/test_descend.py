"""Searches on the real line: where they end, and what is said of an end that is none."""

import numpy as np
import pytest

from ardvark.inference.hyper.descend import Descent, descend, descend_carefully, ends
from ardvark.inference.sites.approximation import REJECTED

FREE = np.full(2, np.inf)
NAMES = ["tau", "rho"]


def bowl(u):
    centre, scale = np.array([3.0, -1.0]), np.array([1.0, 4.0])
    return float(0.5 * np.sum(scale * (u - centre) ** 2)), scale * (u - centre)


def with_a_wall(u):
    """No value at all where the first step of the length of the gradient would lead."""
    return (REJECTED, np.zeros(2)) if np.abs(u - [3.0, -1.0]).max() > 5.5 else bowl(u)


def collapsing(u):
    """Falls to a constant as the first coordinate goes to minus infinity."""
    scale = np.exp(2.0 * u[0])
    return float(scale + 0.5 * u[1] ** 2), np.array([2.0 * scale, u[1]])


@pytest.mark.parametrize("objective", [bowl, with_a_wall])
def test_both_find_a_minimum(objective):
    start = np.array([-2.0, 2.0])
    found = [descend_carefully(objective, start, 500)]
    if objective is bowl:
        found.append(descend(objective, start, -FREE, FREE, 500, 1e-6))
    for end in found:
        assert end.success
        np.testing.assert_allclose(end.u, [3.0, -1.0], atol=1e-5)
        said = ends(lambda u: objective(u)[0], start, end, NAMES, -FREE, FREE)
        assert said == []


def test_a_scale_that_collapses_is_named():
    start = np.array([0.0, 1.0])
    end = descend_carefully(collapsing, start, 500)
    said = ends(lambda u: collapsing(u)[0], start, end, NAMES, -FREE, FREE)
    assert len(said) == 1 and said[0].startswith("tau has no best value") and "falls" in said[0]
    assert "norm" in said[0]


def test_a_search_that_does_not_move_is_named():
    start = np.zeros(2)
    value, gradient = bowl(start)
    stuck = Descent(start, value, gradient, True)
    said = ends(lambda u: bowl(u)[0], start, stuck, NAMES, -FREE, FREE)
    assert len(said) == 1 and "ended where it began" in said[0] and "4" in said[0]
