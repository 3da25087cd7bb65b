"""The orders of a mixture's kernels in the bridge: invariance, a lost factor found again."""

import math
from itertools import permutations

import numpy as np
import pytest

from ardvark.inference.bridge.bridge import Proposal, bridge_evidence
from ardvark.inference.bridge.orders import KernelOrders

PARTS = [
    ("class_probability", slice(0, 1), (1,)),
    ("kernel_probability", slice(1, 5), (2, 2)),
    ("kernel_precision", slice(5, 11), (2, 3)),
    ("kernel_mean", slice(11, 17), (2, 3)),
    ("kernel_rate", slice(17, 19), (2,)),
]


def natural(x):
    """Probabilities, precisions and means of each kernel, as a set."""
    simplex = x[1:5].reshape(2, 2)
    log_p = np.concatenate([simplex, -simplex.sum(axis=1, keepdims=True)], axis=1)
    kernels = np.concatenate([log_p, x[5:11].reshape(2, 3), x[11:17].reshape(2, 3)]).T
    return kernels[np.lexsort(kernels.T)], x[[0, 17, 18]]


def test_every_order_has_the_same_kernels():
    orders = KernelOrders(PARTS, 3)
    x = np.random.default_rng(0).normal(size=(4, 19))
    moved = list(orders.moved(x))
    assert len(moved) == len(orders) == 6
    for other in moved:
        for row, new in zip(x, other, strict=True):
            for a, b in zip(natural(row), natural(new), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-12)
    assert len({tuple(row[0].round(9)) for row in moved}) == 6
    for other in orders.moved(np.eye(19)):  # linear, and volumes are kept
        assert abs(np.linalg.det(other)) == pytest.approx(1)


def test_the_proposal_does_not_see_the_order():
    rng = np.random.default_rng(1)
    orders = KernelOrders(PARTS, 3)
    q = Proposal(rng.normal(size=(200, 19)), orders)
    x = rng.normal(size=(3, 19))
    for moved in orders.moved(x):
        np.testing.assert_allclose(q.log_density(moved), q.log_density(x), atol=1e-9)


class Places:
    """Coordinates change places."""

    def __len__(self):
        return 6

    def moved(self, x):
        for order in permutations(range(3)):
            yield x[:, list(order)]


@pytest.mark.parametrize("apart", [0.3, 2.0, 8.0], ids=["touching", "between", "apart"])
def test_a_bridge_from_one_order_finds_all_copies(apart):
    """Z of Σ_π N(πx; μ, I): 6, from draws that keep to one order where copies are far apart."""
    rng = np.random.default_rng(2)
    mean = apart * np.arange(3.0)

    def log_density(x):
        parts = [-0.5 * ((x[:, list(o)] - mean) ** 2).sum(axis=1) for o in permutations(range(3))]
        return np.logaddexp.reduce(parts, axis=0) - 1.5 * math.log(2 * math.pi)

    draws = mean + rng.normal(size=(4, 2000, 3))  # one order; the others say the same
    options = {"effective": lambda quantity: float(quantity.size)}
    found = bridge_evidence(log_density, draws, rng, orders=Places(), **options)
    assert abs(found.log_evidence - math.log(6)) < 4 * found.error + 1e-6
    if apart == 8.0:  # a Gaussian of one order loses the factor
        lost = bridge_evidence(log_density, draws, rng, **options)
        assert lost.log_evidence == pytest.approx(0, abs=0.05)
