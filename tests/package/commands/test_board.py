"""How a run is shown: a table on a terminal, lines elsewhere, nothing with --json."""

import json
import os
import pty
import sys
import threading
import time

import numpy as np
import pyte
import pytest
from synthetic_trees import gaussian_tree

import ardvark as av
from ardvark.commands import board as board_module
from ardvark.commands.board import Board, Row
from ardvark.commands.cli import main
from ardvark.errors import UnsupportedPair
from ardvark.inference.running.progress import progress, tell

MEAN, SD = np.array([0.1, 1.0, -0.5, 0.0]), np.array([0.2, 0.3, 0.3, 0.3])
NAMES = ["[red]height", "weight\x1b[2J", "age"]
WIDE, HIGH = 110, 30


@pytest.fixture
def csv(tmp_path, monkeypatch):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(30, 3))
    rows = [f"{a:.3f},{b:.3f},{c:.3f},{'yes' if a > b else 'no'}" for a, b, c in X]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["height,weight,age,sick", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    return str(path)


class Terminal:
    """A pseudo-terminal in place of standard error, and what is on its screen."""

    def __init__(self):
        self.master, slave = pty.openpty()
        self.file = os.fdopen(slave, "w", buffering=1)
        self.screen = pyte.Screen(WIDE, HIGH)
        self.stream = pyte.ByteStream(self.screen)
        self.lock = threading.Lock()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def run(self, monkeypatch, *words):
        """Run a command; pytest puts its own standard error back between a fixture and a test."""
        settings = {"TERM": "xterm-256color", "COLUMNS": str(WIDE), "LINES": str(HIGH)}
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", self.file)
            for name, value in settings.items():
                patch.setenv(name, value)
            code = main(list(words))
            print("end of the command", file=sys.stderr)
        self.wait_for("end", "of the command")
        return code

    def read(self):
        while True:
            try:
                found = os.read(self.master, 65536)
            except OSError:
                return
            with self.lock:
                self.stream.feed(found)

    def lines(self):
        with self.lock:
            return [line.rstrip() for line in self.screen.display if line.strip()]

    def row(self, name):
        return next((line.strip() for line in self.lines() if line.strip().startswith(name)), "")

    def wait_for(self, name, text):
        """Wait until the row of a method has a text: the table is drawn four times a second."""
        end = time.monotonic() + 10
        while text not in self.row(name):
            assert time.monotonic() < end, "\n".join(self.lines())
            time.sleep(0.02)
        return self.row(name)


@pytest.fixture
def terminal():
    made = Terminal()
    yield made
    made.file.close()
    os.close(made.master)


def answers(monkeypatch, look=lambda name: None):
    """Replace `fit` by synthetic answers that tell how far they are; `look` sees each at work."""

    def fit(model, method, **settings):
        assert settings["progressbar"] is False
        name = method if isinstance(method, str) else "nuts"
        if name == "vb":
            raise UnsupportedPair("vb cannot do this")
        with progress(name, False) as tick:
            tick("sweep 1", 0.2)
            time.sleep(0.05)
            tell("sweep 2", 0.5)
            look(name)
        rng = np.random.default_rng(3)
        common = {"features": NAMES, "draws": 1000, "rows": 30}
        if name == "ep":
            common["attrs"] = {"converged": False, "problems": f"w[{NAMES[1]}] runs away"}
        if name == "nuts":
            return gaussian_tree(rng, MEAN, SD, method="nuts", hyper="posterior", **common)
        shifted = MEAN + (0.4 * SD if name == "laplace" else 0.0)
        return gaussian_tree(rng, shifted, SD, hyper="posterior", **common)

    monkeypatch.setattr(av, "fit", fit, raising=False)


def test_terminal_shows_progress_time_and_verdicts_as_they_come(csv, terminal, monkeypatch, capsys):
    seen = {}

    def look(name):
        row = terminal.wait_for(name, "sweep 2")
        seen[name] = {"row": row, "rest": terminal.lines()}

    answers(monkeypatch, look)
    assert terminal.run(monkeypatch, "fit", csv) == 0
    assert "━" in seen["laplace"]["row"] and " s" in seen["laplace"]["row"]
    assert any(line.strip() == "nuts      waiting" for line in seen["laplace"]["rest"])
    assert "Method" in seen["ep"]["rest"][1] and "To go" in seen["ep"]["rest"][1]
    assert "✓ converged" in next(line for line in seen["ep"]["rest"] if "laplace" in line)
    # at the end: one table with all verdicts, the reference's judgements among them
    final = "\n".join(terminal.lines())
    assert final.count("Method") == 1
    assert "✗ converged, k-hat exact, worst mean 0." in terminal.row("laplace")
    assert "✓ chains agree, R-hat 1.0" in terminal.row("nuts")
    assert "✗ w[weight\\u001b[2J] runs away" in terminal.row("ep")
    assert "vb cannot do this" in terminal.row("vb") and "left out" in terminal.row("vb")
    assert capsys.readouterr().out.startswith("laplace\n  path: run/laplace.zarr")


def test_warning_stands_above_the_table(csv, terminal, monkeypatch):
    answers(monkeypatch, lambda name: print("warning: look", file=sys.stderr))
    assert terminal.run(monkeypatch, "fit", csv, "--method", "laplace") == 0
    lines = terminal.lines()
    assert lines.index("warning: look") < next(i for i, t in enumerate(lines) if "Method" in t)


def test_without_a_terminal_there_are_lines(csv, monkeypatch, capsys):
    answers(monkeypatch)
    assert main(["fit", csv]) == 0
    said = capsys.readouterr().err.splitlines()
    assert not [line for line in said if "━" in line or "\x1b" in line]
    assert said[1] == "laplace: fitting ..."
    assert said[2].startswith("laplace: done in ") and said[2].endswith(
        "; ✓ converged, k-hat exact"
    )
    assert "vb: left out. vb cannot do this" in said
    assert any(line.startswith("nuts: fitting until its checks pass, at most") for line in said)
    assert any("; ✗ w[weight\\u001b[2J] runs away" in line for line in said)  # ep, made harmless
    # when the reference is there, those before it are judged by it
    assert any(line.startswith("laplace: ✗ ") and "sd off nuts" in line for line in said)


@pytest.mark.parametrize("option", ["--json", "--quiet"])
def test_json_and_quiet_show_nothing(csv, terminal, monkeypatch, capsys, option):
    answers(monkeypatch)
    assert terminal.run(monkeypatch, "fit", csv, option) == 0
    assert terminal.lines() == ["end of the command"]
    if option == "--json":
        assert json.loads(capsys.readouterr().out)["nuts"]["converged"] is True


def test_method_that_fails_leaves_the_table_and_the_cursor_in_order(csv, terminal, monkeypatch):
    def broken(name):
        raise RuntimeError("planted")

    answers(monkeypatch, broken)
    assert terminal.run(monkeypatch, "fit", csv, "--method", "laplace") == 2
    assert "failed" in terminal.row("laplace")
    assert terminal.lines()[-2] == "ardvark: planted"
    assert not terminal.screen.cursor.hidden


def test_time_to_go_follows_the_rate_since_work_was_first_told():
    row = Row("fitting", started=1.0)
    row.tick("compiling", 0.0, 50.0)
    assert row.to_go(60.0) is None
    row.tick("draws", 0.1, 100.0)
    row.tick("draws", 0.3, 120.0)
    assert row.to_go(120.0) == pytest.approx(70.0)  # 0.2 in 20 s, 0.7 are left
    row.tick("more draws", 0.05, 130.0)  # a longer run was decided: the clock starts again
    assert row.to_go(130.0) is None


def test_a_long_method_writes_a_line_now_and_then(monkeypatch):
    now, said = [0.0], []
    monkeypatch.setattr(board_module.time, "monotonic", lambda: now[0])
    board = Board(said.append)
    board.start("nuts")
    for second in range(1, 100):
        now[0] = float(second)
        board.tick("nuts", f"{second} of 100 draws", second / 100)
    assert said[1:] == [
        "nuts: 30 of 100 draws, about 70 s to go",
        "nuts: 60 of 100 draws, about 40 s to go",
        "nuts: 90 of 100 draws, about 10 s to go",
    ]


def test_tree_that_cannot_be_judged_says_why():
    said = []
    board = Board(said.append)
    tree = gaussian_tree(np.random.default_rng(1), MEAN, SD)
    del tree["posterior"]
    board.start("laplace")
    board.stop("laplace")
    board.end("laplace", tree)
    assert "no verdict: KeyError" in said[-1]
