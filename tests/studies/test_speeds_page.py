"""The record of speeds and its page: no figure without a measurement. Nothing here measures."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from ardvark.studies.speed import growth, page, record

ROOT = Path(__file__).parents[2]


def row(peer: str, **more: object) -> dict[str, object]:
    return {
        "task": "ep", "peer": peer, "version": "", "cpu_seconds": 0.5, "steps": None, "ratio": None,
        "ratio_error": None, "goal": None, "note": "",
    } | more  # fmt: skip


def test_the_page_is_the_record() -> None:
    assert page.PAGE.read_text() == page.page(record.read())


@pytest.mark.parametrize(
    "name", ["README.md", "docs/choose.md", "docs/methods/nuts.md", "docs/validation/speed.md"]
)
def test_no_figure_of_a_time_stands_outside_the_records(name: str) -> None:
    """Times are in generated pages and in tables that are stored; the text points there."""
    text = re.sub(r"^```.*?^```", "", (ROOT / name).read_text(), flags=re.DOTALL | re.MULTILINE)
    figure = re.compile(r"\d\s?(ms|µs|CPU s|s|seconds|minutes)\b|\d times (cheaper|faster|slower)")
    assert not [line for line in text.splitlines() if figure.search(line)]
    assert figure.search("it takes 4.9 ms") and figure.search("2.1 times cheaper")


def test_every_row_says_where_it_was_measured() -> None:
    rows = [row for table in record.read().values() for row in table]
    assert rows
    for measured in (row["measured"] for row in rows):
        assert {"processor", "cores", "python", "versions", "commit", "date", "load"} <= set(
            measured
        )


def test_a_run_replaces_its_own_rows_only(tmp_path, monkeypatch) -> None:
    path = tmp_path / "results" / "bench.json"
    record.write(path, "bench", [row("ardvark"), row("GPy", ratio=3.0)], ("task", "peer"), 0.1)
    again = row("GPy", ratio=4.0, ratio_error=0.5, goal=5.0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    record.write(path, "bench", [again], ("task", "peer"), load=9.0)
    ours, gpy = json.loads(path.read_text())["bench"]
    assert (ours["peer"], ours["loaded"]) == ("ardvark", False)
    assert (gpy["ratio"], gpy["loaded"]) == (4.0, True)
    text = page.page(record.read(path))
    assert f"| 4 ± 0.5 {page.MARK} | 5, missed |" in text
    assert "Measured while other work ran" in text
    assert "load 0.1 to 9." in text


def test_exponents() -> None:
    sizes = np.array([10, 30, 100, 300, 1000])
    assert growth.exponent(sizes, 3e-6 * sizes**2.0) == pytest.approx(2.0)
    overhead = 1e-3 + 1e-6 * sizes.astype(float)  # below the upper decade a call is what it is
    assert growth.exponent(sizes, overhead) < 0.5
    calls = [g.make(g.sizes[0]) for g in growth.GROWTHS if g.what == "gradient of NUTS"]
    assert all(np.isfinite(call()[0]) for call in calls)


def test_the_load_is_what_others_did_and_not_this_process(monkeypatch) -> None:
    busy, own, clock = iter([10.0, 16.0]), iter([1.0, 3.0]), iter([100.0, 102.0])
    monkeypatch.setattr(record, "_busy", lambda: next(busy))
    monkeypatch.setattr(record, "_own", lambda: next(own))
    monkeypatch.setattr(record.time, "perf_counter", lambda: next(clock))
    assert record.Others().load() == pytest.approx((6.0 - 2.0) / 2.0)
    monkeypatch.setattr(record, "_busy", lambda: None)
    monkeypatch.setattr(record, "_own", lambda: 0.0)
    monkeypatch.setattr(record.time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(os, "getloadavg", lambda: (7.0, 0.0, 0.0))
    assert record.Others().load() == 7.0  # nobody says how busy the machine was
