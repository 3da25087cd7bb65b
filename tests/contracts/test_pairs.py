"""A few numbers of every pair of model and method stay what they were (`references/pairs.py`)."""

import json

import pytest
from pairs import CHAINS, STORED, differences, numbers, pairs

REFERENCE = json.loads(STORED.read_text())
QUICK = [pair for pair in pairs() if pair[2] not in CHAINS]


def test_every_pair_is_stored():
    assert {" | ".join(pair) for pair in pairs()} == REFERENCE.keys()


@pytest.mark.parametrize("pair", QUICK, ids=" | ".join)
def test_approximations_are_those_that_were_stored(pair):
    # 1e-6: searches over hyperparameters stop at a tolerance, not at the last bit.
    assert differences(numbers(*pair), REFERENCE[" | ".join(pair)], 1e-6) == []
