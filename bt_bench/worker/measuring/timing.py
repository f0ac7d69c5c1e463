"""Replays of a window with all arms side by side, and their raw samples per round and step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bt_bench.analysis import median
from bt_bench.base import no_collection
from bt_bench.results import Plan, RoundKind, Series, StopReason
from bt_bench.worker.measuring.nvtx_ranges import SampleRanges, phase
from bt_bench.worker.measuring.ports import Clock
from bt_bench.worker.measuring.probes import Probe, Sample
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.rounds import ReplayWindow, Turn, Turns
from bt_bench.worker.measuring.spot_checks import SpotChecks, way_of
from bt_bench.worker.measuring.stopping import Criterion, Key, RelativeWidth
from bt_bench.worker.tasks.arm import Arm
from bt_bench.worker.tasks.outcome import OnRound, RoundProgress, told_in_parts

# Share of the rounds' time that goes to the probes that do not decide when to stop.
SECONDARY_SHARE = 0.6
# Pairs of rounds with all probes that every instance gets before a case may stop early.
FULL_PAIRS_PER_INSTANCE = 2

Rows = dict[str, list[Sample]]  # by arm: the samples of each step


@dataclass(frozen=True)
class Stopped:
    """Why the rounds ended, their number, and the seconds they took."""

    reason: StopReason
    rounds: int
    seconds: float


class Rounds:
    """The timed rounds of a case.

    Within a step the arms follow each other, so drift hits all of them. Their order is balanced
    over the pairs of rounds and reversed within a pair (A B … B A); see `Turns`. Each pair takes
    the next instance of all arms. Probes that decide when to stop run in every round. The others
    run in some pairs only, for `SECONDARY_SHARE` of the time.

    Args:
        window: arms, steps and operation.
        probes: the ways to time a step; each gets replays of its own.
        plan: rounds, precision, time and seed.
        clock: the host's clock.
        records: takes samples, log and notes.
        taken: the instances that take turns; `None`: all.
        spot_checks: checks arms between rounds; `None`: no checks.
    """

    def __init__(
        self,
        window: ReplayWindow,
        probes: Sequence[Probe],
        plan: Plan,
        clock: Clock,
        records: Records,
        taken: Sequence[int] | None = None,
        spot_checks: SpotChecks | None = None,
    ) -> None:
        self._window = window
        self._primary = [probe for probe in probes if probe.deciding]
        self._secondary = [probe for probe in probes if not probe.deciding]
        self._plan = plan
        self._clock = clock
        self._records = records
        of_window = window.operation, window.case
        self._ranges = {name: SampleRanges(name, *of_window) for name in window.names}
        rng = random.Random(plan.seed)
        # A sequence for each, since the rarer pairs have to go through all instances too.
        self._turns = Turns(window, rng, taken)
        self._full_turns = Turns(window, rng, taken)
        self._criterion: Criterion = RelativeWidth(plan, check_every=2 * len(window.instances))
        self._full_pairs = 0
        self._spot_checks = spot_checks
        self._ways = [way_of(probe, window.operation) for probe in probes]
        self._spent_s = {True: 0.0, False: 0.0}
        self._unable: set[tuple[int, str]] = set()  # id of a probe, and an arm it cannot time
        self._started_ns = 0
        self._checking_s = 0.0  # of spot checks, which on large tables outlast all rounds of a case

    def run(self, on_round: OnRound) -> Stopped:
        """Warm up, then take rounds until there is a reason to stop.

        Without a probe there is nothing to time, and no round.
        """
        if not (self._primary or self._secondary):
            return Stopped(StopReason.ROUNDS, 0, 0.0)
        of_window = self._window.operation, self._window.case
        with phase("warm-up", *of_window):
            self._warm_up(on_round)
        with phase("rounds", *of_window):
            return self._timed(on_round)

    def _timed(self, on_round: OnRound) -> Stopped:
        self._records.watch.begin()
        self._started_ns = self._clock.now_ns()
        done = 0
        with no_collection():
            while True:
                is_full = self._full_is_due()
                pair = (self._full_turns if is_full else self._turns).next_pair()
                self._perhaps_check(pair[0].arms)
                for turn in pair[: self._plan.rounds - done]:
                    self._round(turn, is_full)
                    done += 1
                    on_round(self._progress(done))
                self._full_pairs += is_full
                reason = self._bound(done) or self._enough()
                if reason is not None:
                    self._perhaps_check(pair[0].arms, at_last=True)
                    return Stopped(reason, done, self._seconds())

    def _warm_up(self, on_round: OnRound) -> None:
        instances, each = self._window.instances, self._plan.warmup_rounds
        tell = told_in_parts(on_round, "warming up", len(instances) * each)
        for instance, arms in enumerate(instances):
            for _ in range(each):
                for probe in (*self._primary, *self._secondary):
                    self._replay(probe, Turn(instance, list(arms)))
                tell()

    def _perhaps_check(self, arms: Sequence[Arm], *, at_last: bool = False) -> None:
        checks, start_s = self._spot_checks, self._seconds()
        if checks and checks.perhaps(arms, self._ways, start_s, at_last=at_last):
            self._checking_s += self._seconds() - start_s
            self._records.watch.begin()

    def _full_is_due(self) -> bool:
        if not self._secondary:
            return False
        total = self._spent_s[True] + self._spent_s[False]
        return self._spent_s[True] <= SECONDARY_SHARE * total

    def _enough(self) -> StopReason | None:
        """Return why no more rounds are needed, once the rarer probes have had their share too."""
        wanted = FULL_PAIRS_PER_INSTANCE * len(self._window.instances)
        if self._secondary and self._full_pairs < wanted:
            return None
        return self._criterion.reason()

    def _round(self, turn: Turn, is_full: bool) -> None:
        start_s = self._seconds()
        probes = (*self._primary, *(self._secondary if is_full else ()))
        taken = [(probe, self._replay(probe, turn)) for probe in probes]
        index = self._records.end_round(RoundKind.TIMED, turn, start_s)
        self._spent_s[is_full] += self._seconds() - start_s
        if index is not None:
            self._keep(index, turn, taken)

    def _keep(self, index: int, turn: Turn, taken: list[tuple[Probe, Rows]]) -> None:
        values: dict[Key, float] = {}
        arms = {arm.name: arm for arm in turn.arms}
        for probe, rows in taken:
            for name, of_steps in rows.items():
                queue_us = probe.queue_us(arms[name])
                self._records.books[name].add(index, probe, of_steps, queue_us)
                if not self._plan.precision_percent:
                    continue  # nothing decides
                for series, column in zip(probe.series, zip(*of_steps, strict=True), strict=True):
                    if series in probe.deciding:
                        values[name, series] = median(column)
        self._criterion.add(values)

    def _replay(self, probe: Probe, turn: Turn) -> Rows:
        """Replay the window once; return the samples of each step per arm that the probe can time.

        An arm that gives no sample is left out of this probe's replays from then on.
        """
        window = self._window
        arms = [arm for arm in turn.arms if self._serves(probe, arm)]
        rows: Rows = {arm.name: [] for arm in arms}
        rewind(arms)
        for place, step in enumerate(window.steps):
            for arm in [arm for arm in arms if arm.name in rows]:
                with arm.guarded():
                    sample = self._sample(probe, arm, place, step)
                if sample is None:
                    del rows[arm.name]
                    self._give_up(probe, arm)
                else:
                    rows[arm.name].append(sample)
        return rows

    def _sample(self, probe: Probe, arm: Arm, place: int, step: Any) -> Sample | None:
        ranges = self._ranges[arm.name]
        try:
            return probe.sample(arm, self._window.operation, step, ranges.begin(place))
        finally:
            ranges.end()

    def _serves(self, probe: Probe, arm: Arm) -> bool:
        return (id(probe), arm.name) not in self._unable and probe.serves(
            arm, self._window.operation
        )

    def _give_up(self, probe: Probe, arm: Arm) -> None:
        self._unable.add((id(probe), arm.name))
        for series in probe.series:
            self._records.books[arm.name].per_series.pop(series, None)
        l2 = probe.series[0].l2
        self._records.note(
            arm.name,
            f"not timed on a busy GPU (L2 {l2}): the call does not return before the longest queue "
            "of device work has ended, so it waits for the device",
        )

    def _bound(self, done: int) -> StopReason | None:
        if done >= self._plan.rounds:
            return StopReason.ROUNDS
        seconds = self._seconds() - self._checking_s
        return StopReason.TIME if seconds >= self._plan.case_seconds else None

    def _progress(self, done: int) -> RoundProgress:
        width = self._criterion.half_width()
        seconds = self._seconds() - self._checking_s
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
        return (self._clock.now_ns() - self._started_ns) / 1e9


def deciding_series(probes: Sequence[Probe]) -> set[Series]:
    """Return the series that decide when a case has been measured long enough."""
    return {series for probe in probes for series in probe.deciding}


def rewind(arms: Sequence[Arm]) -> None:
    """Put all arms back before the first step."""
    for arm in arms:
        with arm.guarded():
            arm.rewind()
