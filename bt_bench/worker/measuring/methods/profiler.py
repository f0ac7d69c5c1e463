"""Counts and times of device operations by the profiler (CUPTI), in separate passes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bt_bench.results import Cache, LaunchCensus, LaunchPath, Load, Plan, RoundKind
from bt_bench.worker.measuring.launch_paths import use
from bt_bench.worker.measuring.methods.device_times import (
    IDLE,
    ProfilerIncompleteError,
    Setting,
    activities_by_range,
    census_of,
    settings_of,
    times_ns,
)
from bt_bench.worker.measuring.ports import Call, Clock, DevicePort
from bt_bench.worker.measuring.profiler_session import DeviceActivity, profiler_session
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.rounds import ReplayWindow, Turn, Turns
from bt_bench.worker.measuring.timing import rewind
from bt_bench.worker.measuring.watch import Seen

ATTEMPTS = 3
# Starting the profiler takes tens of milliseconds, and its records take memory until it stops.
STEPS_PER_SESSION = 1500
# The host is slower under the profiler, so the queue has to be longer than in a timed round. It
# doubles with every attempt.
QUEUE_US = 1500.0
FEWEST_PASSES = 2
SHARE_OF_TIME = 0.3  # of `case_seconds`, per condition, for cases whose windows are long


@dataclass(frozen=True)
class Pass:
    """One profiled round.

    Args:
        turn: its instance and order.
        seconds: when its session began, within the attempt.
        seen: clocks and disturbances around it.
        steps: per arm, the activities of each step.
        uncovered: arms whose calls outlasted the queue on a busy device.
    """

    turn: Turn
    seconds: float
    seen: Seen
    steps: dict[str, list[list[DeviceActivity]]]
    uncovered: frozenset[str] = frozenset()


def profile_window(
    window: ReplayWindow, plan: Plan, clock: Clock, device: DevicePort, records: Records
) -> dict[str, LaunchCensus | str]:
    """Replay the window under the profiler, all arms side by side, in each condition.

    Adds `gpu_us` (the time during which at least one of a step's operations ran), `span_us` (first
    start to last end), `gap_us` (their difference) and `last_us` (the last operation's time) to the
    records. An arm that cannot be profiled on a busy device gets a note, and keeps the rest.

    Returns:
        Per arm, the census of the device operations of each step, or the reason its records are
        unusable. In that case it has no device times by the profiler.

    Raises:
        ArmFailedError: when a variant raises.
    """
    profiling = _Profiling(window, plan, clock, device, records)
    settings = settings_of(plan)
    taken = profiling.take(settings)
    idle = taken[IDLE]
    if isinstance(idle, str):
        return dict.fromkeys(window.names, idle)
    censuses = {name: census_of(window, name, _steps_of(idle, name)) for name in window.names}
    good = [name for name in window.names if not isinstance(censuses[name], str)]
    profiling.book(IDLE, idle, good)
    for setting in settings[1:]:
        profiling.book_busy(setting, taken[setting], good, censuses)
    return censuses


def profile_together(
    windows: Sequence[tuple[ReplayWindow, Records]], plan: Plan, clock: Clock, device: DevicePort
) -> None:
    """Profile several windows as `profile_window` on an idle device, in one session where they fit.

    Starting the profiler takes longer than a window of one step. If the records of a session are
    incomplete, all windows are profiled again, each in its own sessions. A window whose passes
    disagree is profiled again as well.

    Raises:
        ArmFailedError: when a variant raises.
    """
    # Each window has its own orders: a lucky order then favours an arm in one window only. Rounds
    # alone reach more instances, by which device times differ more than by pass.
    rng = random.Random(plan.seed)
    turns = [Turns(window, random.Random(rng.random())) for window, _ in windows]
    todo = [
        (index, of_window.next_round())
        for _ in range(plan.profile_rounds)
        for index, of_window in enumerate(turns)
    ]
    passes: list[list[Pass]] = [[] for _ in windows]
    started_ns = clock.now_ns()
    whole = True
    for chunk in _chunks(todo, [len(w.steps) * len(w.names) for w, _ in windows]):
        seconds = (clock.now_ns() - started_ns) / 1e9
        watch = windows[0][1].watch
        watch.begin()
        try:
            found = _session([(windows[i][0], IDLE, turn) for i, turn in chunk], device, QUEUE_US)
        except ProfilerIncompleteError:
            whole = False
            break
        seen = watch.end_round()
        for (index, turn), (steps, _) in zip(chunk, found, strict=True):
            passes[index].append(Pass(turn, seconds, seen, steps))
    for (window, records), of_window in zip(windows, passes, strict=True):
        if whole and _agree(window, of_window):
            _Profiling(window, plan, clock, device, records).book(IDLE, of_window, window.names)
        else:
            profile_window(window, plan, clock, device, records)


def _chunks(
    todo: Sequence[tuple[int, Turn]], sizes: Sequence[int]
) -> Iterator[Sequence[tuple[int, Turn]]]:
    """Yield groups of passes with at most `STEPS_PER_SESSION` profiled steps, or of one pass."""
    first = steps = 0
    for place, (index, _) in enumerate(todo):
        if place > first and steps + sizes[index] > STEPS_PER_SESSION:
            yield todo[first:place]
            first, steps = place, 0
        steps += sizes[index]
    yield todo[first:]


class _Profiling:
    """The profiled passes of one case."""

    def __init__(
        self, window: ReplayWindow, plan: Plan, clock: Clock, device: DevicePort, records: Records
    ) -> None:
        self._window = window
        self._plan = plan
        self._clock = clock
        self._device = device
        self._records = records

    def take(self, settings: Sequence[Setting]) -> dict[Setting, list[Pass] | str]:
        """Profile the passes of each condition, again where records are missing.

        Returns:
            Per condition its passes, or why there are none.
        """
        found: dict[Setting, list[Pass] | str] = {}
        pending = list(settings)
        for attempt in range(ATTEMPTS):
            # Together at first, which is faster; then each alone, where none can spoil another.
            for group in [pending] if attempt == 0 else [[setting] for setting in pending]:
                try:
                    found |= self._attempt(group, QUEUE_US * 2**attempt)
                except ProfilerIncompleteError as error:
                    found |= {setting: found.get(setting) or str(error) for setting in group}
            pending = [setting for setting in pending if not self._is_whole(found[setting])]
            if not pending:
                break
        return found

    def book(self, setting: Setting, passes: Sequence[Pass], names: Sequence[str]) -> None:
        """Log the passes, and add the device times of some arms."""
        for one in passes:
            index = self._records.log_round(RoundKind.PROFILED, one.turn, one.seconds, one.seen)
            if index is None:
                continue
            for name in names:
                times = [times_ns(activities) for activities in one.steps[name]]
                for series in setting.series:
                    row = [of_step[series.quantity] / 1e3 for of_step in times]
                    self._records.books[name].add_row(index, series, row)

    def book_busy(
        self,
        setting: Setting,
        passes: list[Pass] | str,
        names: list[str],
        censuses: dict[str, LaunchCensus | str],
    ) -> None:
        """Log busy passes, with device times of arms whose launches are the same as when idle."""
        good = []
        for name in names:
            problem = _busy_problem(self._window, name, passes, censuses[name])
            if problem is None:
                good.append(name)
            else:
                self._records.note(name, f"no device times on a busy GPU: {problem}")
        if not isinstance(passes, str):
            self.book(setting, passes, good)

    def _is_whole(self, passes: list[Pass] | str) -> bool:
        """Return whether no arm lacks records and no queue ended too early."""
        if isinstance(passes, str) or any(one.uncovered for one in passes):
            return False
        return _agree(self._window, passes)

    def _attempt(self, settings: list[Setting], queue_us: float) -> dict[Setting, list[Pass] | str]:
        """Profile passes of all conditions, mixed, since starting the profiler takes long."""
        window, plan = self._window, self._plan
        turns = Turns(window, random.Random(plan.seed))
        rounds = [turn for _ in range((plan.profile_rounds + 1) // 2) for turn in turns.next_pair()]
        todo = [(setting, turn) for turn in rounds[: plan.profile_rounds] for setting in settings]
        fewest = FEWEST_PASSES * len(settings)
        per_session = max(fewest, STEPS_PER_SESSION // (len(window.steps) * len(window.names)))
        started_ns = self._clock.now_ns()
        passes: dict[Setting, list[Pass] | str] = {}
        for first in range(0, len(todo), per_session):
            seconds = (self._clock.now_ns() - started_ns) / 1e9
            if first and seconds > SHARE_OF_TIME * plan.case_seconds:
                break
            self._records.watch.begin()
            now = [(window, *item) for item in todo[first : first + per_session]]
            found = _session(now, self._device, queue_us)
            seen = self._records.watch.end_round()
            for (_, setting, turn), (steps, late) in zip(now, found, strict=True):
                of_setting = passes.setdefault(setting, [])
                assert not isinstance(of_setting, str)
                of_setting.append(Pass(turn, seconds, seen, steps, late))
        return passes


Taken = tuple[dict[str, list[list[DeviceActivity]]], frozenset[str]]  # by arm; uncovered arms


def _session(
    todo: Sequence[tuple[ReplayWindow, Setting, Turn]], device: DevicePort, queue_us: float
) -> list[Taken]:
    """Profile several passes in one session of the profiler."""
    busy: list[bool] = []  # per range
    with profiler_session(device.synchronize) as session:
        for window, setting, turn in todo:
            ahead: list[Call] = []
            if setting.l2 is Cache.COLD:
                ahead.append(device.flush_l2)
            if setting.load is Load.BUSY:
                ahead.append(partial(device.occupy, queue_us))
            rewind(turn.arms)
            for step in window.steps:
                for arm in turn.arms:
                    busy.append(setting.load is Load.BUSY)
                    with arm.guarded():
                        use(arm, LaunchPath.JIT)
                        session.run(arm.ready(window.operation, step), *ahead)
    found, late = activities_by_range(session.recorded(), busy)
    taken: list[Taken] = []
    first = 0
    for window, _, turn in todo:
        num_arms = len(turn.arms)
        end = first + len(window.steps) * num_arms
        places = {
            arm.name: range(first + place, end, num_arms) for place, arm in enumerate(turn.arms)
        }
        steps = {name: [found[index] for index in of_arm] for name, of_arm in places.items()}
        uncovered = frozenset(n for n, of_arm in places.items() if late.intersection(of_arm))
        taken.append((steps, uncovered))
        first = end
    return taken


def _busy_problem(
    window: ReplayWindow, name: str, passes: list[Pass] | str, idle: LaunchCensus | str
) -> str | None:
    """Return why an arm's passes on a busy device do not count, or `None` if they do."""
    if isinstance(passes, str):
        return passes
    if any(name in one.uncovered for one in passes):
        return "the call does not return before the queue of device work has ended"
    census = census_of(window, name, _steps_of(passes, name))
    if isinstance(census, str):
        return census
    return None if census == idle else "other launches were recorded than on an idle one"


def _agree(window: ReplayWindow, passes: Sequence[Pass]) -> bool:
    """Return whether the passes have records of all arms, and agree on their launches."""
    return not any(
        isinstance(census_of(window, name, _steps_of(passes, name)), str) for name in window.names
    )


def _steps_of(passes: Sequence[Pass], name: str) -> list[list[list[DeviceActivity]]]:
    return [one.steps[name] for one in passes]
