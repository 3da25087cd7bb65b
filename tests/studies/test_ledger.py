"""The ledger: a verdict and a reason for every row, by a rule; the page is what the data say."""

import json

import pytest
from matplotlib import pyplot

from ardvark.studies.experiments import PAPERS as STUDIES
from ardvark.studies.experiments import Anova, experiments_of
from ardvark.studies.figures import CAPTIONS, DRAWN
from ardvark.studies.ledger import PAPERS, VERDICTS, Ledger, Row, published
from ardvark.studies.ledger_page import PAGE, page

LEDGER = Ledger(published())


def test_no_row_without_a_verdict_and_a_reason():
    assert len(LEDGER.rows) == 588
    for entry in LEDGER.entries:
        assert entry.verdict in VERDICTS, entry
        assert entry.why.strip(), entry
        assert entry.row.paper in PAPERS, entry
        judged = entry.verdict in VERDICTS[:3]
        assert not judged or entry.ours, entry
        assert entry.verdict != "not possible" or not entry.row.source, entry
        assert len(entry.why.split()) > 1 and "shared/" not in entry.why, entry


def test_few_rows_are_left_to_run():
    verdicts = [entry.verdict for entry in LEDGER.entries]
    assert verdicts.count("not run") < 20


def test_the_page_is_what_the_data_say():
    assert PAGE.read_text(encoding="utf-8") == page(LEDGER), (
        "run python -m ardvark.studies.ledger_page"
    )


def test_figures_are_drawn_from_what_there_is():
    assert set(CAPTIONS) == set(DRAWN)
    for name in CAPTIONS:
        if (PAGE.parent / "ledger" / f"{name}.svg").exists():
            assert f"](ledger/{name}.svg)" in PAGE.read_text(encoding="utf-8")
    for name in ("mirzaei_figures6to8", "chu_figures2and3"):
        assert DRAWN[name]({}, pyplot) is None


def test_every_source_is_an_experiment_or_a_claim():
    known = {study: experiments_of(study) for study in STUDIES}
    for row in LEDGER.rows:
        if not row.source:
            continue
        study, _, what = row.source.partition(" ")
        experiments, claims = known[study]
        kind, _, text = what.partition(": ")
        if kind in ("claim", "anova"):
            start, like = text.partition("*")[0], Anova if kind == "anova" else object
            texts = [claim.text for claim in claims if isinstance(claim, like)]
            assert any(t == text or ("*" in text and t.startswith(start)) for t in texts), row
        else:
            names = {experiment.name for experiment in experiments}
            assert {side.strip().rpartition(":")[0] for side in what.split(" | ")} <= names, row


def test_results_are_of_the_experiments_that_the_papers_have():
    for study, one in LEDGER.results.items():
        experiments = {e.name: e for e in experiments_of(study)[0]}
        assert all(run["commit"] and run["date"] and run["versions"] for run in one["runs"])
        assert {found["run"] for found in one["experiments"].values()} == set(
            range(len(one["runs"]))
        )
        for name, found in one["experiments"].items():
            assert found["cpu_seconds"] >= 0 and found["failed"] == 0
            settings = json.loads(json.dumps(dict(experiments[name].settings)))
            assert found["settings"] == settings, (study, name)
            assert len(found["seeds"]) == found["units"] <= found["of"]


# --- the rule ---------------------------------------------------------------------------------


def a_row(published="10.0±0.5", source="study a:x", against="rival", paper="Qi04", row="row"):
    return Row(
        paper, "table", row, "x", published, "100", source, against, "", "earlier", "not run", ""
    )


def ledger(tmp_path, rows, numbers, claims=()):
    experiments = {
        name: {
            "place": "table",
            "of": 100,
            "numbers": {"x": {"mean": mean, "error": error, "n": 25}},
        }
        for name, (mean, error) in numbers.items()
    }
    found = {"experiments": experiments, "claims": list(claims)}
    (tmp_path / "study.json").write_text(json.dumps(found))
    return Ledger(rows, tmp_path)


@pytest.mark.parametrize(
    ("ours", "rival", "verdict"),
    [
        ((11.0, 0.5), (12.0, 0.1), "reproduced"),  # 1.4 standard errors
        ((10.15, 0.0), (5.0, 0.1), "reproduced"),  # 0.3 of them
        ((11.6, 0.5), (13.0, 0.1), "direction only"),  # 2.3 of them, below the rival as published
        ((11.6, 0.5), (10.0, 0.1), "not reproduced"),  # on the other side of it
        ((11.6, 0.5), (12.0, 0.1), "not reproduced"),  # on its side, but not told apart from it
    ],
)
def test_verdicts_of_numbers(tmp_path, ours, rival, verdict):
    other = a_row("12.0±0.5", "study b:x", "row", row="rival")
    entry = ledger(tmp_path, [a_row(), other], {"a": ours, "b": rival}).entries[0]
    assert entry.verdict == verdict and "s.e. away" in entry.why
    assert entry.protocol == "study a, 25 of 100 partitions"


@pytest.mark.parametrize(
    ("rival", "before"), [((12.0, 0.1), "direction only"), ((10.0, 0.1), None)]
)
def test_the_rule_before_was_content_with_a_side(tmp_path, rival, before):
    rows = [a_row(), a_row("12.0±0.5", "study b:x", "row", row="rival")]
    now = ledger(tmp_path, rows, {"a": (11.6, 0.5), "b": rival})
    assert now.entries[0].verdict == "not reproduced"
    loose = Ledger(rows, tmp_path, apart=0.0).entries[0]
    assert loose.verdict == (before or "not reproduced")


def test_within_large_errors_is_weakly_reproduced(tmp_path):
    for error, weak in ((0.5, False), (4.0, True)):
        entry = ledger(tmp_path, [a_row()], {"a": (11.0, error)}).entries[0]
        assert entry.verdict == "reproduced" and entry.weak is weak
        assert ("weakly" in entry.why) is weak


@pytest.mark.parametrize(("n", "weak"), [(25, False), (5, True)])
def test_few_partitions_without_significance_say_little(tmp_path, n, weak):
    claim = {"text": "a: b", "difference": 1.0, "error": 1.0, "n": n, "p": 0.4}
    entry = ledger(tmp_path, [a_row("NS 0.17", "study claim: a: b")], {}, [claim]).entries[0]
    assert entry.verdict == "reproduced" and entry.weak is weak and ("weakly" in entry.why) is weak


def test_what_was_not_blind_says_so():
    told = {e.protocol for e in LEDGER.entries if "not blind" in e.protocol}
    for name in ("leukaemia/correlated518", "colon/random150", "sinc/", "friedman1/"):
        assert any(name in protocol for protocol in told), name
    assert not any("breast_cancer" in protocol for protocol in told)


def test_an_sd_of_thirty_cuts_is_no_standard_error(tmp_path):
    """Mir17 prints sd's: 1.6 is many standard errors there, and three of Qi04's."""
    rows = [a_row(paper=paper, against="") for paper in ("Qi04", "Mir17")]
    entries = ledger(tmp_path, rows, {"a": (10.9, 0.1)}).entries
    assert [entry.verdict for entry in entries] == ["reproduced", "not reproduced"]


def test_a_single_fit_has_the_error_of_a_share(tmp_path):
    error, rows = {"mean": 20.2, "error": None, "n": 1}, {"mean": 332, "n": 1}
    one = {"place": "table", "of": 1, "numbers": {"error": error, "test_rows": rows}}
    (tmp_path / "study.json").write_text(json.dumps({"experiments": {"a": one}, "claims": []}))
    row = a_row("19.6", "study a:error", "")._replace(cuts="1")
    entry = Ledger([row], tmp_path).entries[0]
    assert entry.ours == "20.2 (2.2)" and entry.verdict == "reproduced"
    far = Ledger([row._replace(published="12.0")], tmp_path).entries[0]
    assert far.verdict == "not reproduced"
    square = {"experiments": {"a": one | {"place": "regression table"}}, "claims": []}
    (tmp_path / "study.json").write_text(json.dumps(square))
    assert Ledger([row], tmp_path).entries[0].ours == "20.2"  # no share, and no error of one


def test_what_was_not_run_stays_as_it_was(tmp_path):
    entry = ledger(tmp_path, [a_row()], {}).entries[0]
    assert (entry.verdict, entry.ours) == ("not run", "earlier")
    assert entry.why == "nothing of it is in the results of study"


@pytest.mark.parametrize(
    ("printed", "difference", "p", "verdict"),
    [
        ("*", 1.0, 0.001, "reproduced"),
        ("*", 1.0, 0.2, "direction only"),
        ("*", -1.0, 0.001, "not reproduced"),
        ("NS 0.17", 1.0, 0.2, "reproduced"),
        ("NS 0.17", 1.0, 0.001, "not reproduced"),
    ],
)
def test_verdicts_of_claims(tmp_path, printed, difference, p, verdict):
    claim = {"text": "a: b", "difference": difference, "error": 0.1, "n": 25, "p": p}
    row = a_row(printed, "study claim: a: b")
    assert ledger(tmp_path, [row], {}, [claim]).entries[0].verdict == verdict
    several = a_row(printed, "study claim: a*")
    assert ledger(tmp_path, [several], {}, [claim, claim]).entries[0].verdict == verdict
