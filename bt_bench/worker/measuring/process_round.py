"""One process of a gate's round: every unit measured once, briefly, with all arms side by side.

Setting up takes seconds. It is done ahead, and several processes may do it at once. The timed part
takes about a second, while nothing else runs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType, MethodType
from typing import Any

from bt_bench.analysis import faster_mean, tick_of
from bt_bench.base import no_collection
from bt_bench.config import CaseSpec
from bt_bench.protocol import Workload
from bt_bench.results import Load, Measurement, Method, Plan, Series
from bt_bench.worker.isolation.state_watch import Stopwatch
from bt_bench.worker.measuring.bench import Bench
from bt_bench.worker.measuring.case import build_instances
from bt_bench.worker.measuring.host_time import no_turn
from bt_bench.worker.measuring.probes import Probe
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.rounds import ReplayWindow, RoundRecorder, rounds_of_cycle
from bt_bench.worker.measuring.timing import Rounds
from bt_bench.worker.tasks.arm import inputs_on
from bt_bench.worker.tasks.outcome import OnRound, untold
from bt_bench.worker.tasks.tasks import RoundUnit, RoundValue

# Values from fewer rounds than this are left out.
FEWEST_ROUNDS = 3
# With fewer arms, too few samples would be left without the first ones after a rewind.
FEWEST_ARMS_TO_CHOOSE = 3
# Bounds the rounds of gates that have many cases or run in the interpreter.
SECONDS_OF_ROUNDS = 6.0
FEWEST_PASSES = 2
# A process that has waited runs slower at first, by a third for some 50 ms on an H200's host.
WARM_SECONDS = 0.2


@dataclass(frozen=True)
class _Unit:
    """A unit with its arms, set up."""

    unit: RoundUnit
    window: ReplayWindow
    probes: Sequence[Probe]


class ProcessRound:
    """All units of a process-round, set up and warm.

    Args:
        units: the units to time.
        copies: the arms by name, each with classes that are copies of one another; a unit uses
            those of its arms that are present.
        workload_of: builds the workload of a case.
        plan: a plan of brief measurements.
        bench: the device.

    Attributes:
        other_threads: share of the CPU time that other threads used during the timed rounds; 0
            before.
        stops: how often a CPU quota stopped the process while it measured; 0 before.
        ticks: by method, the tick in µs of the device's clock, as far as times showed it.

    Raises:
        ArmFailedError: when a variant raises.
        UsageError: for a workload that cannot be built.
    """

    def __init__(
        self,
        units: Sequence[RoundUnit],
        copies: Mapping[str, Sequence[type[Any]]],
        workload_of: Callable[[CaseSpec], Workload],
        plan: Plan,
        bench: Bench,
    ) -> None:
        self._plan = plan
        self._copies = max(map(len, copies.values()), default=1)
        self._bench = bench
        self._units = _set_up(units, copies, workload_of, plan, bench)
        self._hidden = self._hidden_methods()
        self.other_threads = 0.0
        self.stops = 0
        self.ticks: dict[Method, float] = {}
        once = plan.model_copy(update={"rounds": 1, "profile_rounds": 1, "graph_rounds": 1})
        records = self._records()
        self._time(once, records)
        self._profile(once, records)

    def measure(self, on_round: OnRound) -> tuple[RoundValue, ...]:
        """Time all units, in turns and random order, and then profile them all.

        Raises:
            ArmFailedError: when a variant raises.
        """
        with no_collection():
            turn = self._bench.around.host_turn if self._times_host() else no_turn
            around = self._bench.around
            with turn(on_round):
                before = around.throttling()  # not of the wait, in which others measure
                records = self._timed(on_round)
            self._profile(self._plan, records)
            self.stops = around.throttling().since(before).periods
        self.ticks = _ticks(records)
        pairs = zip(self._units, records, strict=True)
        return tuple(value for unit, of_unit in pairs for value in _values(unit.unit, of_unit))

    def _timed(self, on_round: OnRound) -> list[Records]:
        """Warm up, and take the rounds of all units, but for series with passes of their own."""
        clock = self._bench.around.clock
        started_ns = clock.now_ns()
        brief = self._plan.model_copy(update={"rounds": 2, "warmup_rounds": 0})
        warmed = 0
        while clock.now_ns() - started_ns < WARM_SECONDS * 1e9:
            self._time(brief, self._records(), on_round, warmed)
            warmed += 1
        records = self._records()
        threads = Stopwatch()
        end_ns = clock.now_ns() + SECONDS_OF_ROUNDS * 1e9
        for turn, rounds in enumerate(self._passes()):
            if turn >= FEWEST_PASSES and clock.now_ns() > end_ns:
                break  # more processes with fewer rounds each are at least as informative
            changes = {"rounds": rounds, "seed": self._plan.seed + turn, "warmup_rounds": 0}
            self._time(self._plan.model_copy(update=changes), records, on_round, turn)
        self.other_threads = threads.share_of_others()
        return records

    def _times_host(self) -> bool:
        """Return whether a wanted series is timed in the rounds, from the host."""
        return any(
            set(probe.series) & set(unit.unit.series)
            for unit in self._units
            for probe in unit.probes
        )

    def newly_hidden(self) -> list[str]:
        """Return the methods that variants' objects have shadowed since set-up.

        An object's own attribute hides the method of its class, and any code may set it.
        """
        return sorted(self._hidden_methods() - self._hidden)

    def _hidden_methods(self) -> set[str]:
        return {
            f"{arm.name}: {name}"
            for unit in self._units
            for arms in unit.window.instances
            for arm in arms
            for name in dir(type(arm.variant))
            if not name.startswith("__") and _is_hidden(arm.variant, name)
        }

    def _passes(self) -> Iterator[int]:
        """Yield the rounds of each pass. Units take turns after a cycle of balanced orders.

        A disturbance of some 10 ms then hits a few rounds of many units rather than all rounds of
        one.
        """
        cycle = max((rounds_of_cycle(len(unit.window.names)) for unit in self._units), default=1)
        left = self._plan.rounds
        while left > 0:
            yield min(left, cycle)
            left -= cycle

    def _records(self) -> list[Records]:
        return [Records(unit.window.names, self._bench.around) for unit in self._units]

    def _time(
        self,
        plan: Plan,
        records: Sequence[Records],
        on_round: OnRound = untold,
        turn: int | None = None,
    ) -> None:
        """Take rounds of all units, one unit after the other, with one code copy per turn.

        Code that has just run is faster, and engines run theirs all the time.
        """
        pairs = list(zip(self._units, records, strict=True))
        rng = random.Random(plan.seed)
        clock = self._bench.around.clock
        for unit, of_unit in rng.sample(pairs, len(pairs)):
            # Each unit has its own orders: a lucky order then favours an arm in one unit only.
            own = plan.model_copy(update={"seed": rng.randrange(2**31)})
            taken = None if turn is None else self._instances_of(turn, unit.window)
            Rounds(unit.window, unit.probes, own, clock, of_unit, taken).run(on_round)

    def _instances_of(self, turn: int, window: ReplayWindow) -> list[int]:
        """Return the instances of a turn's code copy, a different one first each time."""
        number, later = turn % self._copies, turn // self._copies
        own = list(range(number, len(window.instances), self._copies)) or [0]
        first = later % len(own)
        return own[first:] + own[:first]

    def _profile(self, plan: Plan, records: Sequence[Records]) -> None:
        """Measure the series that need separate passes: captured graphs and device times."""
        bench = self._bench
        pairs = list(zip(self._units, records, strict=True))
        for unit, of_unit in pairs:
            bench.replay_graphs(unit.window, plan, of_unit)
        profiled = [(unit, of_unit) for unit, of_unit in pairs if _is_profiled(unit.unit)]
        if any(series.load is Load.BUSY for unit, _ in profiled for series in unit.unit.series):
            for unit, of_unit in profiled:
                bench.census(unit.window, plan, of_unit)
        else:
            bench.profile_all([(unit.window, of_unit) for unit, of_unit in profiled], plan)


def _is_hidden(variant: object, name: str) -> bool:
    """Return whether an attribute of an object hides a method of its class.

    The object's `__dict__` is not read. Before Python 3.13, method look-ups on an object become
    slower once its `__dict__` has been read, which would change the timed code.
    """
    of_class = getattr(type(variant), name)
    if not callable(of_class):
        return False
    own = getattr(variant, name)
    if not isinstance(of_class, FunctionType):
        return bool(own != of_class)  # a class method, a class, or a callable in C
    if isinstance(own, MethodType):
        return own.__func__ is not of_class or own.__self__ is not variant
    return own is not of_class  # a static method


def _set_up(
    units: Sequence[RoundUnit],
    copies: Mapping[str, Sequence[type[Any]]],
    workload_of: Callable[[CaseSpec], Workload],
    plan: Plan,
    bench: Bench,
) -> list[_Unit]:
    """Set up windows and probes; operations of one case with the same arms share instances."""
    ready = []
    built: dict[tuple[str, tuple[str, ...]], ReplayWindow] = {}
    for unit in units:
        names = tuple(name for name in unit.variants if name in copies)
        if not names:
            continue
        key = (unit.case.name, names)
        if key not in built:
            workload = workload_of(unit.case)
            of_arms = {name: copies[name] for name in names}
            instances = build_instances(of_arms, workload, plan, bench.device)
            inputs = inputs_on(bench.device, workload)
            built[key] = ReplayWindow(unit.case.name, instances, inputs, unit.operation)
        window = replace(built[key], operation=unit.operation)
        ready.append(_Unit(unit, window, _probes(unit, plan, bench)))
    return ready


def _probes(unit: RoundUnit, plan: Plan, bench: Bench) -> list[Probe]:
    """Return the probes of the wanted series, plus the deciding ones, which rounds need."""
    return [
        probe
        for probe in bench.probes(unit.operation, plan)
        if probe.deciding or set(probe.series) & set(unit.series)
    ]


def _ticks(records: Sequence[Records]) -> dict[Method, float]:
    """Return the ticks of the device's clocks that the samples of a process show, by method."""
    times: dict[Method, list[float]] = {Method.EVENTS: [], Method.PROFILER: []}
    for of_unit in records:
        for book in of_unit.books.values():
            for series, (_, rows) in book.per_series.items():
                if series.method in times:
                    times[series.method] += [time_us for row in rows for time_us in row]
    found = {method: tick_of(of_method) for method, of_method in times.items()}
    return {method: tick for method, tick in found.items() if tick is not None}


def _is_profiled(unit: RoundUnit) -> bool:
    by_profiler = any(series.method is Method.PROFILER for series in unit.series)
    return by_profiler and not unit.operation.traits.on_host


def _values(unit: RoundUnit, records: Records) -> list[RoundValue]:
    """Return one value per arm and wanted series: the mean over steps of their `faster_mean`."""
    records.discard_slow_rounds()
    values = []
    for name, book in records.books.items():
        for measurement in book.measurements():
            series: Series = measurement.series
            if series not in unit.series or len(measurement.rounds) < FEWEST_ROUNDS:
                continue
            samples = _Samples(measurement, records.recorder, name)
            value = samples.value()
            if value is not None:
                influence = samples.influence(unit.intruders)
                values.append(
                    RoundValue(unit.operation, unit.case.name, name, series, value, influence)
                )
    return values


class _Samples:
    """An arm's samples, each with the arm that ran before it.

    The first call after a rewind is left out where there are enough others: it is slower by 15 to
    25 % on an H200's host, and varies more.
    """

    def __init__(self, measurement: Measurement, recorder: RoundRecorder, name: str) -> None:
        rows = list(zip(measurement.rounds, measurement.samples, strict=True))
        steps = range(len(measurement.samples[0]))
        self._steps = [
            [(row[step], recorder.before(index, name, step)) for index, row in rows]
            for step in steps
        ]
        self._is_alone = len(recorder.names) < FEWEST_ARMS_TO_CHOOSE

    def value(self) -> float | None:
        """Return the mean over the steps, in the samples' unit; `None` if a step has no samples."""
        kept = [
            [value for value, before in step if self._is_alone or before is not None]
            for step in self._steps
        ]
        return sum(map(faster_mean, kept)) / len(kept) if all(kept) else None

    def influence(self, intruders: Collection[str]) -> float | None:
        """Return the log ratio of times after an intruder to times after any other arm."""
        after: list[float] = []
        others: list[float] = []
        for step in self._steps:
            with_one = [value for value, before in step if before in intruders]
            without = [value for value, b in step if b is not None and b not in intruders]
            if min(len(with_one), len(without)) >= FEWEST_ROUNDS:
                after.append(faster_mean(with_one))
                others.append(faster_mean(without))
        if not after or min(*after, *others) <= 0:
            return None
        return math.log(sum(after) / sum(others))
