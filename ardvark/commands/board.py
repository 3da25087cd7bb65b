"""How a run goes: a table on a terminal, plain lines elsewhere, nothing with --json or --quiet.

| on a terminal                                              | elsewhere                           |
|------------------------------------------------------------|-------------------------------------|
| one row per method: progress, time, time to go, verdict    | a line when a method starts, a line |
| the row changes as its method goes on                      | with the verdict when it is done    |

Like the command line itself this imports nothing heavy before it is needed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Board", "board", "quiet_board"]

SIGNS = {"good": "✓ ", "warn": "▲ ", "bad": "✗ "}
STYLES = {"good": "green", "warn": "yellow", "bad": "bold red"}
BAR = 14  # letters
PATIENCE = 30.0  # seconds between two lines of a method
RATE = 4  # times a second that the table is drawn


@dataclass
class Row:
    """What is known of one method."""

    state: str = "waiting"
    text: str = ""
    share: float = 0.0  # of the work, 0 if it is not known
    started: float = 0.0
    first: tuple[float, float] = (0.0, 0.0)  # time and value of the first report of progress
    last_line: float = 0.0  # when a line was last written of it
    seconds: float | None = None  # when it is done
    verdict: tuple[str, str] = ("", "")  # level, words

    def passed(self, now: float) -> float | None:
        """Seconds so far."""
        return self.seconds if self.seconds is not None or not self.started else now - self.started

    def to_go(self, now: float) -> float | None:
        """Seconds that are left if the rest goes as what was seen: compilation is not in it."""
        since, share = self.first
        if self.state != "fitting" or not 0.0 < share < self.share <= 1.0:
            return None
        return (now - since) * (1.0 - self.share) / (self.share - share)

    def tick(self, text: str, share: float, now: float) -> None:
        """Take what a method says of itself; a share that falls starts the clock again."""
        if share > 0.0 and not 0.0 < self.first[1] <= share:
            self.first = (now, share)
        self.text, self.share = text, share


@dataclass
class Board:
    """What is shown of a run, line by line; the table of a terminal adds its own."""

    say: Callable[[str], None]
    talks: bool = True  # False: nothing is said, so nothing is worked out
    rows: dict[str, Row] = field(default_factory=dict)
    trees: dict[str, Any] = field(default_factory=dict)

    def start(self, name: str, how: str = "") -> None:
        """A method begins; `how` says how long it may take."""
        self.rows[name] = Row("fitting", how, started=time.monotonic())
        self.say(f"{name}: fitting{f' {how}' if how else ''} ...")

    def tick(self, name: str, text: str, share: float = 0.0) -> None:
        """A method says where it is; a line of it is written now and then."""
        row, now = self.rows[name], time.monotonic()
        row.tick(text, share, now)
        left = row.to_go(now)
        if left is not None and now - max(row.last_line, row.started) >= PATIENCE:
            row.last_line = now
            self.say(f"{name}: {text}, about {_time(left)} to go")

    def stop(self, name: str, state: str = "done") -> None:
        """A method has ended, well or not."""
        row = self.rows[name]
        row.state, row.seconds = state, time.monotonic() - row.started

    def end(self, name: str, tree: Any) -> None:
        """Give the verdict on a tree that is stored, and those that it allows as a reference."""
        row = self.rows[name]
        before = {other: known.verdict for other, known in self.rows.items()}
        self._judge(name, tree)
        said = f"; {_signed(row.verdict)}" if row.verdict[1] else ""
        self.say(f"{name}: done in {row.seconds:.1f} s{said}")
        for other, verdict in before.items():
            if other != name and self.rows[other].verdict != verdict:
                self.say(f"{other}: {_signed(self.rows[other].verdict)}")

    def found(self, name: str, tree: Any) -> None:
        """A tree of an earlier run is used."""
        self.rows[name] = Row("already there")
        self._judge(name, tree)
        self.say(f"{name}: already there")

    def leave(self, name: str, why: str) -> None:
        """A method does not fit this model."""
        self.rows[name] = Row("left out", verdict=("", why))
        self.say(f"{name}: left out. {why}")

    def _judge(self, name: str, tree: Any) -> None:
        if not self.talks:
            return
        from ardvark.diagnostics.report.first_verdict import first_verdict

        self.trees[name] = tree
        for other in self.trees:
            self.rows[other].verdict = first_verdict(other, self.trees)


class Table(Board):
    """A board that draws its rows on a terminal, and says nothing beside them."""

    def __rich__(self) -> Any:
        """Draw the table as it is now."""
        from rich import box
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
        grid.add_column("Method", no_wrap=True)
        grid.add_column("Progress", ratio=2)
        grid.add_column("Time", justify="right", no_wrap=True)
        grid.add_column("To go", justify="right", no_wrap=True)
        grid.add_column("Verdict", ratio=3)
        now = time.monotonic()
        for name, row in self.rows.items():
            grid.add_row(
                Text(name),
                _progress(row),
                _time(row.passed(now)),
                _time(row.to_go(now)),
                Text(_signed(row.verdict), style=STYLES.get(row.verdict[0], "")),
            )
        return grid


def _progress(row: Row) -> Any:
    """A bar with its text while a method goes on, a word before and after."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table as Grid
    from rich.text import Text

    if row.state != "fitting":
        return Text(row.state, style="dim" if row.state == "waiting" else "")
    grid = Grid.grid(padding=(0, 1, 0, 0))
    share = row.share if 0.0 < row.share <= 1.0 else None
    bar = ProgressBar(total=1.0, completed=share or 0.0, width=BAR, pulse=share is None)
    grid.add_row(bar, Text(row.text or "fitting"))
    return grid


def _time(seconds: float | None) -> str:
    from ardvark.diagnostics.words import duration

    return "" if seconds is None else duration(seconds)


def _signed(verdict: tuple[str, str]) -> str:
    """Words with the sign of their level; names in them cannot steer a terminal."""
    from ardvark.diagnostics.words import visible

    level, words = verdict
    return visible(SIGNS.get(level, "") + words)


def quiet_board() -> Board:
    """A board that shows nothing."""
    return Board(say=lambda text: None, talks=False)


@contextmanager
def board(output: Any, names: Iterable[str]) -> Iterator[Board]:
    """Show the methods of a run as they come; `output` says whether, and where lines go."""
    if not output.progress:
        yield quiet_board()
        return
    if not sys.stderr.isatty():
        yield Board(say=output.say)
        return
    from rich.console import Console
    from rich.live import Live

    table = Table(say=lambda text: None, rows={name: Row() for name in names})
    console = Console(stderr=True)
    with Live(table, console=console, refresh_per_second=RATE, redirect_stdout=False) as live:
        yield table
        live.refresh()
