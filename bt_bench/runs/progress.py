"""Progress of a run, for whoever watches: a sweep, a gate, a recording, simulated gates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from bt_bench.base import one_line
from bt_bench.results import StopReason
from bt_bench.worker import RoundProgress, Watcher

_STOPPED = {
    StopReason.PRECISE: "precise",
    StopReason.STABLE: "stable",
    StopReason.TIME: "time is up",
    StopReason.ROUNDS: "the most asked for",
}


@dataclass(frozen=True)
class CaseReport:
    """The outcome of a case of a sweep.

    Args:
        key: the case and its operation.
        failed: variants that failed it.
        insufficient: variants for which too few rounds count.
        rounds: number of rounds taken, if any.
        stopped: why no more were taken.
        half_width_percent: half-width of the widest interval that decided when to stop.
        unsupported: variants that lack a feature that the case needs, and were not run.
        left_out: variants that had failed before all cases, as reported then, and were not run.
    """

    key: str
    failed: Sequence[str] = ()
    insufficient: Sequence[str] = ()
    rounds: int | None = None
    stopped: StopReason | None = None
    half_width_percent: float | None = None
    unsupported: Sequence[str] = ()
    left_out: Sequence[str] = ()

    @property
    def is_ok(self) -> bool:
        """Return whether all variants were measured as asked, except those that are left out."""
        return not (self.failed or self.insufficient or self.unsupported)

    @property
    def text(self) -> str:
        """One line, such as `step/large: ok, 96 rounds (precise), ± 0.84 %`."""
        parts = []
        if self.failed:
            parts.append(f"FAILED: {', '.join(self.failed)}")
        if self.insufficient:
            parts.append(f"INSUFFICIENT: {', '.join(self.insufficient)}")
        if not parts:
            parts.append("ok")
        if self.unsupported:
            parts.append(f"unsupported: {', '.join(self.unsupported)}")
        if self.left_out:
            parts.append(f"not run: {', '.join(self.left_out)}")
        if self.rounds is not None:
            stopped = f" ({_STOPPED[self.stopped]})" if self.stopped else ""
            parts.append(f"{self.rounds} rounds{stopped}")
        if self.half_width_percent is not None:
            parts.append(f"± {self.half_width_percent:.2f} %")
        return f"{self.key}: {', '.join(parts)}"


class Progress(Watcher, Protocol):
    """A receiver of a run's progress, and of events during its tasks."""

    def start(self, total: int, done: int = 0, unit: str = "") -> None:
        """Begin `total` units of work, with `done` of them done already."""
        ...

    def phase(self, what: str, of: str = "") -> None:
        """Begin something that takes a while, for the run or for the named unit of work."""
        ...

    def advance(self, report: CaseReport | None = None) -> None:
        """Count one more unit as done; if it is a case, it is stored."""
        ...

    def say(self, text: str) -> None:
        """Report a message."""
        ...

    def of(self, device: str) -> Progress:
        """Return the progress of one of several devices that work on the same run at once."""
        ...


@dataclass
class _Units:
    """The units of work of a run, which its devices share."""

    total: int = 0
    done: int = 0
    name: str = ""


class News:
    """A watcher of tasks that passes on news only, once each.

    Args:
        write: receives them.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._last = ""

    def round(self, progress: RoundProgress) -> None:
        """Pass on news."""
        news = progress.what if progress.is_news else ""
        if news and news != self._last:
            self._write(news)
        self._last = news

    def worker_replaced(self, why: str) -> None:
        """Do nothing: crashes are warned of elsewhere."""


class Lines:
    """Progress as lines: one for each phase of the run, each stored case, and each message.

    Args:
        write: receives each line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._started = time.monotonic()
        self._units = _Units()
        self._lock = Lock()
        self._device = ""
        self._news = News(self.say)

    def of(self, device: str) -> Lines:
        """Return the progress of one device: its messages begin with its name."""
        branch = copy(self)
        branch._device = f"{device}: "
        branch._news = News(branch.say)
        return branch

    def start(self, total: int, done: int = 0, unit: str = "") -> None:
        """Set the number of units; prints nothing yet."""
        self._units.total, self._units.done, self._units.name = total, done, unit

    def phase(self, what: str, of: str = "") -> None:
        """Print the phase that begins; a phase of one unit is not worth a line."""
        if not of:
            units = self._units
            done = f" ({units.done} of {units.total} {units.name})" if units.total else ""
            self.say(f"{what}{done}")

    def round(self, progress: RoundProgress) -> None:
        """Print news; nothing else of a round is worth a line."""
        self._news.round(progress)

    def worker_replaced(self, why: str) -> None:
        """Print why a worker was replaced."""
        self._write(f"{self._device}{replacement(why)}")

    def advance(self, report: CaseReport | None = None) -> None:
        """Print how a case ended; other units are not worth a line."""
        units = self._units
        with self._lock:
            units.done += 1
            if report is not None:
                place = f"[{units.done}/{units.total}] {self._seconds:6.1f} s"
                self._write(f"{place}  {self._device}{report.text}")

    def say(self, text: str) -> None:
        """Print a message, with the time since the start."""
        self._write(f"{self._seconds:7.1f} s  {self._device}{text}")

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started


def replacement(why: str) -> str:
    """Return the message that a fresh worker takes over, with the reason."""
    return f"bt-bench: {one_line(why)}; a fresh worker takes over"
