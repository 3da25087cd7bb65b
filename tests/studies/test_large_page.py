"""The page of large models shows what was measured and nothing else."""

import pytest

from ardvark.studies.speed import large, record


def test_the_page_is_made_of_the_record():
    assert large.PAGE.read_text() == large.page(record.read(large.PATH))


def test_growth_is_that_of_the_last_decade():
    rows = [
        {"task": "one_way", "contestant": "x", "effects": n, "cpu_seconds": s}
        for n, s in ((10, 5.0), (100, 1.0), (1000, 20.0))
    ]
    assert large.exponents(rows)["one_way", "x"] == pytest.approx(1.30103, rel=1e-5)
    assert large.exponents(rows[:1]) == {}


def test_all_contestants_have_the_same_data():
    one, again = (large.data("crossed", 50) for _ in range(2))
    assert all((one[name] == again[name]).all() for name in one)
    assert {len(column) for column in one.values()} == {500}
    assert one["g"].max() == 49 and one["h"].max() == 4
