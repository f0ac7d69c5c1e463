"""Records of a case's passes: samples by arm, the log of rounds, and notes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import compress

from bt_bench.results import DiscardCode, Measurement, RoundKind, Series
from bt_bench.worker.measuring.probes import Probe
from bt_bench.worker.measuring.rounds import RoundRecorder, Turn
from bt_bench.worker.measuring.watch import Seen, Surroundings, Watch, slow_rounds


@dataclass
class SampleBook:
    """The samples of one arm: per series the rounds and their rows."""

    per_series: dict[Series, tuple[list[int], list[list[float]]]] = field(default_factory=dict)
    queues_us: dict[Series, float] = field(default_factory=dict)

    def add(
        self,
        round_index: int,
        probe: Probe,
        rows: Sequence[tuple[float, ...]],
        queue_us: float | None = None,
    ) -> None:
        """Add a probe's samples of one round, with the length of the queue if there was one."""
        for series, column in zip(probe.series, zip(*rows, strict=True), strict=True):
            self.add_row(round_index, series, list(column))
            if queue_us is not None:
                self.queues_us[series] = max(queue_us, self.queues_us.get(series, 0.0))

    def add_row(self, round_index: int, series: Series, row: list[float]) -> None:
        """Add one round of one series."""
        rounds, samples = self.per_series.setdefault(series, ([], []))
        rounds.append(round_index)
        samples.append(row)

    def drop_rounds(self, dropped: Collection[int]) -> None:
        """Forget the rounds that turned out not to count."""
        for series, (rounds, samples) in list(self.per_series.items()):
            kept = [index not in dropped for index in rounds]
            self.per_series[series] = [*compress(rounds, kept)], [*compress(samples, kept)]

    def measurements(self) -> list[Measurement]:
        """Return the collected measurements, without series that have no rounds."""
        return [
            Measurement(
                **dict(series),
                queue_us=self.queues_us.get(series),
                rounds=rounds,
                samples=samples,
            )
            for series, (rounds, samples) in self.per_series.items()
            if rounds
        ]


class Records:
    """The records of one case's passes.

    Args:
        names: the arms' names.
        around: the clock, sensors and ledger to watch around every round.
        alone: see `Watch`.
    """

    def __init__(self, names: Sequence[str], around: Surroundings, *, alone: bool = False) -> None:
        self.recorder = RoundRecorder(names)
        self.books = {name: SampleBook() for name in names}
        self.notes: dict[str, list[str]] = {name: [] for name in names}
        self.watch = Watch(around, alone=alone)

    def end_round(self, kind: RoundKind, turn: Turn, seconds: float) -> int | None:
        """Log a round as the watch saw it; return its index, or `None` if it does not count."""
        return self.log_round(kind, turn, seconds, self.watch.end_round())

    def log_round(self, kind: RoundKind, turn: Turn, seconds: float, seen: Seen) -> int | None:
        """Log a round; return its index, or `None` if it does not count."""
        index = self.recorder.add(kind, turn, seconds, seen.sm_clock_mhz, seen.discarded)
        return index if seen.discarded is None else None

    def note(self, name: str, text: str) -> None:
        """Add a note on a series that an arm lacks and why, unless it is there already."""
        if text not in self.notes[name]:
            self.notes[name].append(text)

    def discard_slow_rounds(self) -> None:
        """Discard rounds at a lower clock than the case reached; call this once all are taken."""
        slow = slow_rounds(self.recorder.clocks)
        for index in slow:
            self.recorder.discard(index, DiscardCode.CLOCK)
        for book in self.books.values():
            book.drop_rounds(slow)
