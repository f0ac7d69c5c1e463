"""Replays a window with all arms side by side, and collects raw samples per round and step."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bt_bench.arms import Arm
from bt_bench.measuring.collection import no_collection
from bt_bench.measuring.nvtx_ranges import Range
from bt_bench.measuring.ports import Clock
from bt_bench.measuring.probes import Probe
from bt_bench.measuring.rounds import RoundRecorder, Turn, Turns, Window
from bt_bench.measuring.stopping import Criterion, Key, RelativeWidth
from bt_bench.measuring.telemetry import Reading, Telemetry, why_disturbed
from bt_bench.model import DiscardCode, Measurement, Method, Plan, RoundKind, Series, StopReason
from bt_bench.outcome import RoundProgress
from bt_bench.stats import median

# Share of the rounds' time that goes to the probes that do not decide when to stop.
SECONDARY_SHARE = 0.6


class UncoveredError(Exception):
    """The device had worked off its queue before the host had enqueued the step."""


Rows = dict[str, list[tuple[float, ...]]]  # per arm a row per step, with a sample per series


class Loads(Protocol):
    """Counts the binaries that were compiled or loaded so far."""

    @property
    def loads(self) -> int:
        """The count."""
        ...


@dataclass(frozen=True)
class Surroundings:
    """What is watched while rounds are taken.

    Args:
        clock: the host's clock.
        telemetry: the device's sensors.
        ledger: counts compilations.
    """

    clock: Clock
    telemetry: Telemetry
    ledger: Loads


@dataclass
class SampleBook:
    """Samples of one arm while they grow: per series the rounds and their rows."""

    per_series: dict[Series, tuple[list[int], list[list[float]]]] = field(default_factory=dict)
    queues_us: dict[Series, float] = field(default_factory=dict)

    def add(self, round_index: int, probe: Probe, rows: Sequence[tuple[float, ...]]) -> None:
        """Adds what a probe took in a round."""
        for series, column in zip(probe.series, zip(*rows, strict=True), strict=True):
            self.add_row(round_index, series, list(column))
            if probe.queue_us is not None:
                self.queues_us[series] = probe.queue_us

    def add_row(self, round_index: int, series: Series, row: list[float]) -> None:
        """Adds one round of one series."""
        rounds, samples = self.per_series.setdefault(series, ([], []))
        rounds.append(round_index)
        samples.append(row)

    def drop(self, method: Method) -> None:
        """Forgets what a method took, because it cannot be right."""
        for series in [series for series in self.per_series if series.method is method]:
            del self.per_series[series]

    def measurements(self) -> list[Measurement]:
        """What was collected, as nouns."""
        return [
            Measurement(
                **dict(series),
                queue_us=self.queues_us.get(series),
                rounds=rounds,
                samples=samples,
            )
            for series, (rounds, samples) in self.per_series.items()
        ]


@dataclass(frozen=True)
class Stopped:
    """Why the rounds ended, after how long, and how precise they were."""

    reason: StopReason
    rounds: int
    seconds: float
    criterion: Criterion


class Rounds:
    """The timed rounds of a case.

    Within a step the arms follow each other, so that drift hits all of them; their order is
    random per pair of rounds, and turned round within the pair (A B … B A). Each pair takes the
    next instance of all arms. Probes that decide when to stop are in every round; the others in
    some pairs, so that they take `SECONDARY_SHARE` of the time.

    Args:
        window: arms, steps and operation.
        probes: the ways to time a step; each gets replays of its own.
        plan: rounds, precision, time and seed.
        around: clock and what is watched.
        recorder: takes the log.
    """

    def __init__(
        self,
        window: Window,
        probes: Sequence[Probe],
        plan: Plan,
        around: Surroundings,
        recorder: RoundRecorder,
    ) -> None:
        self.books = {name: SampleBook() for name in window.names}
        self._window = window
        self._primary = [probe for probe in probes if probe.is_primary]
        self._secondary = [probe for probe in probes if not probe.is_primary]
        self._plan = plan
        self._around = around
        self._recorder = recorder
        self._regions = {n: Range(n, window.operation.value, window.case) for n in window.names}
        rng = random.Random(plan.seed)
        # Two sequences, so that the rarer pairs go through all instances as well.
        self._turns = Turns(window, rng)
        self._full_turns = Turns(window, rng)
        self._criterion = RelativeWidth(plan, check_every=2 * len(window.instances))
        self._spent_s = {True: 0.0, False: 0.0}
        self._clocks: list[int] = []
        self._started_ns = 0
        self._last = Reading()

    def run(self, on_round: Callable[[RoundProgress], None]) -> Stopped:
        """Warms up, then takes rounds until there is a reason to stop."""
        self._warm_up()
        self._started_ns = self._around.clock.now_ns()
        self._last = self._around.telemetry.read()
        done = 0
        with no_collection():
            while True:
                is_full = self._full_is_due()
                pair = (self._full_turns if is_full else self._turns).next_pair()
                for turn in pair[: self._plan.rounds - done]:
                    self._round(turn, is_full)
                    done += 1
                    on_round(self._progress(done))
                reason = self._criterion.reason() or self._bound(done)
                if reason is not None:
                    return Stopped(reason, done, self._seconds(), self._criterion)

    def _warm_up(self) -> None:
        for instance, arms in enumerate(self._window.instances):
            for _ in range(self._plan.warmup_rounds):
                for probe in (*self._primary, *self._secondary):
                    try:
                        self._replay(probe, Turn(instance, list(arms)))
                    except UncoveredError:
                        continue  # the probe's next queue is longer

    def _full_is_due(self) -> bool:
        if not self._secondary:
            return False
        total = self._spent_s[True] + self._spent_s[False]
        return self._spent_s[True] <= SECONDARY_SHARE * total

    def _round(self, turn: Turn, is_full: bool) -> None:
        """Takes one round, or notes why it does not count."""
        start_s = self._seconds()
        loads = self._around.ledger.loads
        taken: list[tuple[Probe, Rows]] = []
        discarded: DiscardCode | None = None
        for probe in (*self._primary, *(self._secondary if is_full else ())):
            try:
                taken.append((probe, self._replay(probe, turn)))
            except UncoveredError:
                discarded = DiscardCode.UNCOVERED
        before, self._last = self._last, self._around.telemetry.read()
        if self._around.ledger.loads != loads:
            discarded = DiscardCode.COMPILED
        typical = int(median(self._clocks)) if self._clocks else None
        discarded = discarded or why_disturbed(before, self._last, typical)
        clock = _lower(before.sm_clock_mhz, self._last.sm_clock_mhz)
        if clock is not None:
            self._clocks.append(clock)
        index = self._recorder.add(RoundKind.TIMED, turn, start_s, clock, discarded)
        self._spent_s[is_full] += self._seconds() - start_s
        if discarded is None:
            self._keep(index, taken)

    def _keep(self, index: int, taken: list[tuple[Probe, Rows]]) -> None:
        values: dict[Key, float] = {}
        for probe, rows in taken:
            for name, of_steps in rows.items():
                self.books[name].add(index, probe, of_steps)
                if probe.is_primary:
                    columns = zip(*of_steps, strict=True)
                    for series, column in zip(probe.series, columns, strict=True):
                        values[name, series] = median(column)
        self._criterion.add(values)

    def _replay(self, probe: Probe, turn: Turn) -> Rows:
        """One pass through the window; per arm that the probe serves, the samples of each step."""
        window = self._window
        arms = [arm for arm in turn.arms if probe.serves(arm, window.operation)]
        rows: Rows = {arm.name: [] for arm in arms}
        rewind(arms)
        for step in window.steps:
            for arm in arms:
                with arm.guarded():
                    sample = probe.sample(arm, window.operation, step, self._regions[arm.name])
                if sample is None:
                    raise UncoveredError
                rows[arm.name].append(sample)
        return rows

    def _bound(self, done: int) -> StopReason | None:
        if done >= self._plan.rounds:
            return StopReason.ROUNDS
        return StopReason.TIME if self._seconds() >= self._plan.case_seconds else None

    def _progress(self, done: int) -> RoundProgress:
        width = self._criterion.half_width()
        seconds = self._seconds()
        needed = self._criterion.rounds_needed()
        rounds = self._plan.rounds if needed is None else min(self._plan.rounds, int(needed) + 1)
        left = min(
            max(0, rounds - done) * seconds / done, max(0.0, self._plan.case_seconds - seconds)
        )
        return RoundProgress(
            done=done,
            rounds=self._plan.rounds,
            half_width_percent=None if width is None else 100 * width,
            seconds_left=left,
        )

    def _seconds(self) -> float:
        return (self._around.clock.now_ns() - self._started_ns) / 1e9


def rewind(arms: Sequence[Arm]) -> None:
    """Puts all arms back before the first step."""
    for arm in arms:
        with arm.guarded():
            arm.rewind()


def _lower(first: int | None, second: int | None) -> int | None:
    known = [clock for clock in (first, second) if clock is not None]
    return min(known, default=None)
