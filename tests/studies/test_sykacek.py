"""The study of Sykacek (2000): its units on few sweeps, its rivals, the binomial test."""

import json

import numpy as np
import pytest

from ardvark.studies.experiments import Store
from ardvark.studies.papers import sykacek2000
from ardvark.studies.papers.sykacek_rivals import move_probabilities, paper_chain


@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")  # a short run
def test_units_on_few_sweeps():
    short = sykacek2000.rbf(0, "wine", "conditional", 1.0, sweeps=90, chains=2)
    chain = sykacek2000.paper(0, "wine", 10.0, True, sweeps=300)
    for found in (short, chain):
        assert 0 <= found["accuracy"] <= 100
        assert found["accuracy"] == pytest.approx(100 * (1 - len(found["wrong"]) / 63))
        bars = [value for name, value in found.items() if name.startswith("in.")]
        assert len(bars) == 13
        assert found["average"] == pytest.approx(sum(bars), abs=0.35)  # draws, and all sweeps
        assert found["maximum"] <= 13


def test_move_4_moves_from_the_small_half_to_the_large_one_and_its_mirror_back():
    w = np.array([[0.1, 0.6, 0.3], [0.2, 0.5, 0.3]])
    moved = w.copy()
    move_probabilities(0.25, False, moved)
    np.testing.assert_allclose(moved.sum(axis=1), 1)
    np.testing.assert_allclose(moved[0], [0.075, 0.625, 0.3])  # Syk00 (4)
    move_probabilities(0.25, True, moved)
    np.testing.assert_allclose(moved.sum(axis=1), 1)
    assert moved[0, 0] > 0.075


def test_the_papers_chain_keeps_its_draws_and_its_seed():
    model = sykacek2000.av.models.rbf_mixture(
        np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 2, n_kernels=2
    )
    read = sykacek2000.read_mixture(model, "reversible_jump", sykacek2000.av.ReversibleJump())
    nothing = np.zeros(4)
    problem = read.problem(sykacek2000.Evidence(nothing, nothing))
    one, again = (paper_chain(problem, 2, 2, 300, 20, 1, False) for _ in range(2))
    np.testing.assert_array_equal(one.visited, again.visited)
    assert one.visited.shape == (200, 4) and one.states.P.shape == (20, 2)
    np.testing.assert_array_equal(one.states.on, one.visited[9::10])
    assert (one.accepted > 0).all()


def test_rivals_are_counted_on_the_same_rows(tmp_path):
    store = Store(tmp_path)
    units = {e.name: e.units(1)[0] for e in sykacek2000.EXPERIMENTS}
    store.put(units["pima/conditional"], {"wrong": list(range(11))}, 1.0)
    store.put(units["pima/mlp"], {"wrong": [*range(100, 104)]}, 1.0)
    [line] = sykacek2000.rivals(store)
    assert (line["n_a"], line["n_b"]) == (11, 4)
    assert line["p"] == pytest.approx(0.1185, abs=1e-4)  # as for the paper's 11 and 4


def test_the_table_of_the_site_is_that_of_the_record():
    found = json.loads(sykacek2000.RESULTS.read_text(encoding="utf-8"))["experiments"]
    text = sykacek2000.TABLES.read_text(encoding="utf-8")
    shown = json.loads(text)["tables"]["table_1"]
    assert shown["rows"] == sykacek2000.table(found)
    assert {len(row) for row in shown["rows"]} == {len(shown["columns"])}
    found["wine/paper"]["numbers"]["accuracy"]["mean"] += 1.0
    assert shown["rows"] != sykacek2000.table(found)
