"""Progress of a gate on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bt_bench.verdicts import Verdict

if TYPE_CHECKING:
    from bt_bench.gating.live import GateProgress
    from bt_bench.gating.loop import Look


@contextmanager
def gate_progress_on_stderr() -> Iterator[GateProgress]:
    """The progress that fits where stderr goes."""
    if not sys.stderr.isatty():
        yield GateLines()
        return
    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("processes"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
    with bars:
        yield GateBars(bars)


class GateLines:
    """A line when something begins, and for each look; none for single processes."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._total = 0
        self._done = 0

    def phase(self, what: str) -> None:
        """Says what begins."""
        done = f" ({self._done} of {self._total} processes)" if self._total else ""
        self._say(f"{what}{done}")

    def processes(self, done: int, total: int) -> None:
        """Not worth a line."""
        self._done, self._total = done, total

    def look(self, look: Look) -> None:
        """Says what was concluded."""
        self._say(look_line(look))

    def _say(self, text: str) -> None:
        seconds = time.monotonic() - self._started
        print(f"{seconds:7.1f} s  {text}", file=sys.stderr, flush=True)


class GateBars:
    """A bar for the processes up to the next look; looks stay above it."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task = bars.add_task("gate", total=None)

    def phase(self, what: str) -> None:
        """Names what is done."""
        self._bars.update(self._task, description=what)

    def processes(self, done: int, total: int) -> None:
        """Moves the bar."""
        self._bars.update(self._task, completed=done, total=total)

    def look(self, look: Look) -> None:
        """Says what was concluded, above the bar."""
        self._bars.console.print(look_line(look), markup=False, highlight=False)


def look_line(look: Look) -> str:
    """`after 12 rounds: 1 SLOWER, 59 SAME; 3 are open`."""
    counts = [f"{look.count(verdict)} {verdict}" for verdict in Verdict if look.count(verdict)]
    rest = f"; {look.open} open" if look.open and not look.last else ""
    return f"after {look.rounds} rounds: {', '.join(counts)}{rest}"
