"""Progress on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as RichBars
from rich.spinner import Spinner
from rich.table import Column
from rich.text import Text

from bt_bench.cli.exits import visible
from bt_bench.runs import CaseReport, Lines, Progress, replacement
from bt_bench.worker import RoundProgress


@contextmanager
def progress_on_stderr(run: str) -> Iterator[Progress]:
    """Yield bars if stderr is a terminal, else plain lines.

    Args:
        run: name of the run, such as `sweep`.
    """
    if not sys.stderr.isatty():
        yield Lines(_print)
        return
    with made_bars(Console(stderr=True)) as bars:
        yield Bars(bars, run)


def made_bars(console: Console) -> RichBars:
    """Return bars of one line each. Where there is no room, text is cut, and numbers are not."""
    said = Column(ratio=3, no_wrap=True, overflow="ellipsis")
    return RichBars(
        TextColumn("{task.description}", markup=False, table_column=said),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        expand=True,
        redirect_stdout=_is_shared(),
    )


LINE_SECONDS = 30.0


class _Activity:
    """The current activity of a command, with the seconds since the command began.

    Args:
        what: the activity.
        now: seconds since some fixed moment.
    """

    def __init__(self, what: str, now: Callable[[], float]) -> None:
        self.what = what
        self._now = now
        self._began = now()

    @property
    def seconds(self) -> float:
        return self._now() - self._began

    def __str__(self) -> str:
        return f"{visible(self.what)}, {self.seconds:.0f} s"

    def __rich__(self) -> Text:
        return Text(str(self), overflow="ellipsis", no_wrap=True)


@contextmanager
def told_on_stderr(
    what: str, now: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[str], None]]:
    """Yield a function that reports the current activity.

    On a terminal a status line shows it, with all seconds since the block began; they go on by
    themselves. Elsewhere the function prints a line if the last one is `LINE_SECONDS` ago.

    Args:
        what: the first activity.
        now: seconds since some fixed moment.
    """
    activity = _Activity(what, now)
    if sys.stderr.isatty():
        with _live(Spinner("dots", text=activity), Console(stderr=True)):
            yield lambda what: setattr(activity, "what", what)
        return
    told = 0.0

    def tell(what: str) -> None:
        nonlocal told
        activity.what = what
        if activity.seconds >= told + LINE_SECONDS:
            told = activity.seconds
            _print(f"bt-bench: {activity}")

    yield tell


def _live(shown: RenderableType, console: Console) -> Live:
    return Live(
        shown, console=console, transient=True, refresh_per_second=8, redirect_stdout=_is_shared()
    )


def _is_shared() -> bool:
    """Return whether stdout is a terminal, too, and its lines must go above what is live there.

    Rich prints them on stderr then. In a file or a pipe they would be missing.
    """
    return sys.stdout is not None and sys.stdout.isatty()


class TimeLeft:
    """An estimate of a run's remaining time, from the units of work that are done.

    Args:
        now: seconds since some fixed moment.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started = now()
        self._done = 0
        self._left = 0

    def start(self, left: int) -> None:
        """Start the estimate, with this many units to do."""
        self._started, self._done, self._left = self._now(), 0, left

    def advance(self) -> None:
        """Count one more unit as done."""
        self._done += 1
        self._left -= 1

    def seconds(self, of_unit: float | None = None) -> float | None:
        """Return the remaining seconds, or `None` before the first unit is done.

        Args:
            of_unit: seconds that the current unit still takes, if known.
        """
        if not self._done:
            return None
        each = (self._now() - self._started) / self._done
        if of_unit is None:
            return each * self._left
        return of_unit + each * max(0, self._left - 1)


class Bars:
    """A bar for the run. If its units have phases, a second one for the current unit's rounds.

    Args:
        bars: draws them.
        run: name of the run.
    """

    def __init__(self, bars: RichBars, run: str) -> None:
        self._bars = bars
        self._time = TimeLeft()
        self._unit = ""
        self._of = ""
        self._name = run
        self._run: TaskID = bars.add_task(run, total=None, detail="")
        self._part: TaskID | None = None
        self._device = ""

    def of(self, device: str) -> Bars:
        """Return the progress of one device: it has a bar of its own, and the run's in common."""
        branch = copy(self)
        branch._device, branch._part = f"{device}: ", None
        return branch

    def start(self, total: int, done: int = 0, unit: str = "") -> None:
        """Set the length of the run's bar."""
        self._time.start(total - done)
        self._unit = unit
        self._bars.update(self._run, total=total, completed=done, detail=unit)

    def phase(self, what: str, of: str = "") -> None:
        """Name the phase that begins; a unit's own bar is emptied."""
        self._of = f"{self._device}{of}" if of else ""
        if not of and not self._device:
            self._bars.update(self._run, description=what)
            return
        self._bars.update(self._run, description=self._name)
        described = f"{self._of}: {what}" if of else f"{self._device}{what}"
        self._bars.reset(self._its_part(), description=described, total=None, detail="")
        self._show_time_left(None)

    def round(self, progress: RoundProgress) -> None:
        """Move the unit's bar, and show the work done, the interval and the time left."""
        what = ": ".join(filter(None, (self._of, progress.what)))
        width, left = progress.half_width_percent, progress.seconds_left
        detail = "" if width is None else f"± {width:.2f} %"
        detail = " ".join(filter(None, (detail, _left(left))))
        self._bars.update(
            self._its_part(),
            description=what,
            completed=progress.done,
            total=progress.rounds,
            detail=detail,
        )
        self._show_time_left(left)

    def worker_replaced(self, why: str) -> None:
        """Print why a worker was replaced, above the bars."""
        self.say(replacement(why))

    def advance(self, report: CaseReport | None = None) -> None:
        """Move the run's bar; print cases that are not ok above the bars."""
        self._time.advance()
        self._bars.advance(self._run)
        self._show_time_left(None)
        if report is not None and not report.is_ok:
            self.say(report.text)

    def say(self, text: str) -> None:
        """Print a message above the bars."""
        self._bars.console.print(f"{self._device}{text}", markup=False, highlight=False)

    def _its_part(self) -> TaskID:
        if self._part is None:
            self._part = self._bars.add_task("", total=None, detail="")
        return self._part

    def _show_time_left(self, of_unit: float | None) -> None:
        """Show the time left, but only if units have phases.

        Other units come in batches, and some are never needed.
        """
        if self._part is not None:
            detail = " ".join(filter(None, (self._unit, _left(self._time.seconds(of_unit)))))
            self._bars.update(self._run, detail=detail)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _left(seconds: float | None) -> str:
    """Return text such as `0:42 left`, or nothing."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} left"
