"""Progress of sweeps and gates on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from bt_bench.analysis import Verdict
from bt_bench.cli.exits import visible
from bt_bench.runs import CaseReport
from bt_bench.runs import Progress as SweepProgress
from bt_bench.worker import RoundProgress

if TYPE_CHECKING:
    from bt_bench.runs import GateProgress, Look


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
    """Prints a line when something begins and for each look, but not per process."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._total = 0
        self._done = 0

    def phase(self, what: str) -> None:
        """Prints what begins."""
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


@contextmanager
def progress_on_stderr() -> Iterator[SweepProgress]:
    """The progress that fits where stderr goes."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
    with bars:
        yield Bars(bars)


class TimeLeft:
    """Estimates what a sweep still takes, from the cases that it has done.

    Args:
        now: seconds since some fixed moment.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started = now()
        self._done = 0
        self._left = 0

    def start(self, num_cases: int) -> None:
        """Starts the estimate, with this many cases to do."""
        self._started, self._done, self._left = self._now(), 0, num_cases

    def finish_case(self) -> None:
        """Counts one more case as done."""
        self._done += 1
        self._left -= 1

    @property
    def elapsed_seconds(self) -> float:
        """Time since the start."""
        return self._now() - self._started

    def seconds(self, of_case: float | None = None) -> float | None:
        """Time left, or `None` before the first case is done.

        Args:
            of_case: seconds that the current case still takes, if known.
        """
        if not self._done:
            return None
        each = self.elapsed_seconds / self._done
        if of_case is None:
            return each * self._left
        return of_case + each * max(0, self._left - 1)


class Lines:
    """Prints a line when a case is stored, and when a worker is replaced."""

    def __init__(self) -> None:
        self._done = 0
        self._total = 0
        self._time = TimeLeft()

    def start(self, num_cases: int, done: int) -> None:
        """Nothing to say yet."""
        self._total, self._done = num_cases, done
        self._time.start(num_cases - done)

    def phase(self, case: str, what: str) -> None:
        """Not worth a line."""

    def round(self, progress: RoundProgress) -> None:
        """Not worth a line."""

    def worker_replaced(self, why: str) -> None:
        """Says why."""
        print(replacement(why), file=sys.stderr, flush=True)

    def finish_case(self, report: CaseReport) -> None:
        """Says how the case ended."""
        self._done += 1
        place = f"[{self._done}/{self._total}] {self._time.elapsed_seconds:6.1f} s"
        print(f"{place}  {report.key}: {outcome(report)}", file=sys.stderr, flush=True)


class Bars:
    """A bar for the sweep, and one for the rounds of its current case."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._time = TimeLeft()
        self._sweep: TaskID = bars.add_task("sweep", total=None, detail="")
        self._case: TaskID = bars.add_task("", total=None, detail="")

    def start(self, num_cases: int, done: int) -> None:
        """Sets the length of the sweep's bar."""
        self._time.start(num_cases - done)
        self._bars.update(self._sweep, total=num_cases, completed=done)

    def phase(self, case: str, what: str) -> None:
        """Names the case, and empties its bar."""
        self._bars.reset(self._case, description=f"{case}: {what}", total=None, detail="")
        self._show_time_left(None)

    def round(self, progress: RoundProgress) -> None:
        """Moves the case's bar, with the interval and the time left."""
        width, left = progress.half_width_percent, progress.seconds_left
        detail = "" if width is None else f"± {width:.2f} %"
        detail = " ".join(filter(None, (detail, _left(left))))
        self._bars.update(self._case, completed=progress.done, total=progress.rounds, detail=detail)
        self._show_time_left(left)

    def worker_replaced(self, why: str) -> None:
        """Says why, above the bars."""
        self._bars.console.print(replacement(why), markup=False, highlight=False)

    def finish_case(self, report: CaseReport) -> None:
        """Moves the sweep's bar; prints cases that are not ok above the bars."""
        self._time.finish_case()
        self._bars.advance(self._sweep)
        self._show_time_left(None)
        if report.failed or report.insufficient or report.unsupported:
            text = f"{report.key}: {outcome(report)}"
            self._bars.console.print(text, markup=False, highlight=False)

    def _show_time_left(self, of_case: float | None) -> None:
        self._bars.update(self._sweep, detail=_left(self._time.seconds(of_case)))


def outcome(report: CaseReport) -> str:
    """How a case ended: `ok, 96 rounds (precise), ± 0.84 %`."""
    parts = []
    if report.failed:
        parts.append(f"FAILED: {', '.join(report.failed)}")
    if report.insufficient:
        parts.append(f"INSUFFICIENT: {', '.join(report.insufficient)}")
    if not parts:
        parts.append("ok")
    if report.unsupported:
        parts.append(f"unsupported: {', '.join(report.unsupported)}")
    if report.rounds is not None:
        stopped = f" ({report.stopped})" if report.stopped else ""
        parts.append(f"{report.rounds} rounds{stopped}")
    if report.half_width_percent is not None:
        parts.append(f"± {report.half_width_percent:.2f} %")
    return ", ".join(parts)


def replacement(why: str) -> str:
    """The message that a fresh worker takes over, and why."""
    return f"bt-bench: {visible(why)}; a fresh worker takes over"


def _left(seconds: float | None) -> str:
    """`0:42 left`, or nothing."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} left"
