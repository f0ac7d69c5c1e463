"""Progress of a sweep on stderr: a bar on a terminal, a plain line per case elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bt_bench.sweep import Progress as SweepProgress


@contextmanager
def progress_on_stderr(rounds: int) -> Iterator[SweepProgress]:
    """The progress that fits where stderr goes."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
    with bars:
        yield _Bars(bars, rounds)


class _Lines:
    """One line when a case is stored."""

    def __init__(self) -> None:
        self._done = 0
        self._total = 0
        self._started = time.monotonic()

    def start(self, num_cases: int) -> None:
        self._total = num_cases

    def phase(self, case: str, what: str) -> None:
        pass

    def round(self, done: int, rounds: int) -> None:
        pass

    def finish_case(self, case: str, failed: Sequence[str]) -> None:
        self._done += 1
        seconds = time.monotonic() - self._started
        outcome = f"FAILED: {', '.join(failed)}" if failed else "ok"
        print(f"[{self._done}/{self._total}] {seconds:6.1f} s  {case}: {outcome}", file=sys.stderr)


class _Bars:
    """A bar for the sweep and one for the rounds of its current case."""

    def __init__(self, bars: Progress, rounds: int) -> None:
        self._bars = bars
        self._sweep: TaskID = bars.add_task("sweep", total=None)
        self._case: TaskID = bars.add_task("", total=rounds)

    def start(self, num_cases: int) -> None:
        self._bars.update(self._sweep, total=num_cases)

    def phase(self, case: str, what: str) -> None:
        self._bars.reset(self._case, description=f"{case}: {what}")

    def round(self, done: int, rounds: int) -> None:
        self._bars.update(self._case, completed=done, total=rounds)

    def finish_case(self, case: str, failed: Sequence[str]) -> None:
        self._bars.advance(self._sweep)
        if failed:
            self._bars.console.print(f"{case}: FAILED: {', '.join(failed)}", markup=False)
