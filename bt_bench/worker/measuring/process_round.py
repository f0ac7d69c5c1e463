"""One process of a gate's round: it measures everything once, and briefly, all arms side by side.

Setting up takes seconds; it is done ahead, and several processes may do it at once. The timed part
takes about a second, while nothing else runs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from bt_bench.analysis import faster_mean
from bt_bench.base import no_collection
from bt_bench.config import CaseSpec
from bt_bench.protocol import Workload
from bt_bench.results import Load, Measurement, Method, Plan, Series
from bt_bench.worker.isolation.state_watch import Stopwatch
from bt_bench.worker.measuring.bench import Bench
from bt_bench.worker.measuring.case import build_instances
from bt_bench.worker.measuring.probes import Probe
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.rounds import RoundRecorder, Window, rounds_of_cycle
from bt_bench.worker.measuring.timing import Rounds
from bt_bench.worker.tasks.arm import inputs_on
from bt_bench.worker.tasks.outcome import OnRound, untold
from bt_bench.worker.tasks.tasks import RoundUnit, RoundValue

# Values from fewer rounds than this are left out.
FEWEST_ROUNDS = 3
# With fewer arms there would be too few samples without the first ones after a rewind.
FEWEST_ARMS_TO_CHOOSE = 3
# Bounds the rounds of gates of many cases, and of those that the interpreter runs.
SECONDS_OF_ROUNDS = 6.0
FEWEST_PASSES = 2
# A process that has waited runs slower at first, by a third for some 50 ms on an H200's host.
WARM_SECONDS = 0.2


@dataclass(frozen=True)
class _Unit:
    """A unit with its arms, set up."""

    unit: RoundUnit
    window: Window
    probes: Sequence[Probe]


class ProcessRound:
    """All units of a process-round, set up and warm.

    Args:
        units: what is timed.
        copies: the arms by name, each with classes that are copies of one another; a unit takes
            those of its arms that are here.
        workload_of: builds the workload of a case.
        plan: how briefly to measure.
        bench: the device.

    Attributes:
        other_threads: of the CPU time while rounds were timed; 0 before.

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
        once = plan.model_copy(update={"rounds": 1, "profile_rounds": 1, "graph_rounds": 1})
        records = self._records()
        self._time(once, records)
        self._profile(once, records)

    def measure(self, on_round: OnRound) -> tuple[RoundValue, ...]:
        """Times all units, in turns and random order, and then profiles them all.

        Raises:
            ArmFailedError: when a variant raises.
        """
        with no_collection():
            started_ns = self._bench.around.clock.now_ns()
            brief = self._plan.model_copy(update={"rounds": 2, "warmup_rounds": 0})
            warmed = 0
            while self._bench.around.clock.now_ns() - started_ns < WARM_SECONDS * 1e9:
                self._time(brief, self._records(), on_round, warmed)
                warmed += 1
            records = self._records()
            threads = Stopwatch()
            clock = self._bench.around.clock
            end_ns = clock.now_ns() + SECONDS_OF_ROUNDS * 1e9
            for turn, rounds in enumerate(self._passes()):
                if turn >= FEWEST_PASSES and clock.now_ns() > end_ns:
                    break  # more processes with fewer rounds each show the same, and more
                changes = {"rounds": rounds, "seed": self._plan.seed + turn, "warmup_rounds": 0}
                self._time(self._plan.model_copy(update=changes), records, on_round, turn)
            self.other_threads = threads.share_of_others()
            self._profile(self._plan, records)
        pairs = zip(self._units, records, strict=True)
        return tuple(value for unit, of_unit in pairs for value in _values(unit.unit, of_unit))

    def newly_hidden(self) -> list[str]:
        """Methods that objects of variants have got of their own since these were set up.

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
        """Rounds of each pass. Units take turns after a cycle of balanced orders.

        A disturbance of some 10 ms then hits few rounds of many units, rather than all of one.
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
        """Rounds of all units, one unit after the other, with one copy of the code in each turn.

        Code that has just run is quicker, and engines run theirs all the time.
        """
        pairs = list(zip(self._units, records, strict=True))
        rng = random.Random(plan.seed)
        clock = self._bench.around.clock
        for unit, of_unit in rng.sample(pairs, len(pairs)):
            # Orders of its own, so that luck in one unit is not luck in all of them.
            own = plan.model_copy(update={"seed": rng.randrange(2**31)})
            taken = None if turn is None else self._instances_of(turn, unit.window)
            Rounds(unit.window, unit.probes, own, clock, of_unit, taken).run(on_round)

    def _instances_of(self, turn: int, window: Window) -> list[int]:
        """The instances of a turn's copy of the code, another one of them first each time."""
        number, later = turn % self._copies, turn // self._copies
        own = list(range(number, len(window.instances), self._copies)) or [0]
        first = later % len(own)
        return own[first:] + own[:first]

    def _profile(self, plan: Plan, records: Sequence[Records]) -> None:
        """Takes what needs passes of its own: captured graphs and device times."""
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
    """Whether an object has an attribute of its own in place of a method of its class.

    Its `__dict__` is not asked for: before Python 3.13 an object that has been asked for it finds
    its methods slower from then on, so that something else would be timed.
    """
    of_class = getattr(type(variant), name)
    if not callable(of_class):
        return False
    own = getattr(variant, name)
    if not isinstance(of_class, FunctionType):
        return bool(own != of_class)  # a method of the class, a class, or something in C
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
    """Sets up windows and probes; operations of one case with the same arms share instances."""
    ready = []
    built: dict[tuple[str, tuple[str, ...]], Window] = {}
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
            built[key] = Window(unit.case.name, instances, inputs, unit.operation)
        shared = built[key]
        window = Window(shared.case, shared.instances, shared.steps, unit.operation)
        ready.append(_Unit(unit, window, _probes(unit, plan, bench)))
    return ready


def _probes(unit: RoundUnit, plan: Plan, bench: Bench) -> list[Probe]:
    """The probes that take what is wanted, plus the deciding ones, which rounds need."""
    return [
        probe
        for probe in bench.probes(unit.operation, plan)
        if probe.deciding or set(probe.series) & set(unit.series)
    ]


def _is_profiled(unit: RoundUnit) -> bool:
    by_profiler = any(series.method is Method.PROFILER for series in unit.series)
    return by_profiler and not unit.operation.traits.on_host


def _values(unit: RoundUnit, records: Records) -> list[RoundValue]:
    """Per arm and wanted series one value: the mean over steps of what each step takes."""
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
    """Samples of an arm, each with the arm that ran before it.

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
        """What the steps take on average, in the unit of the samples."""
        means = [self._mean(step) for step in self._steps]
        there = [mean for mean in means if mean is not None]
        return sum(there) / len(there) if len(there) == len(means) else None

    def _mean(self, step: Sequence[tuple[float, str | None]]) -> float | None:
        kept = [value for value, before in step if self._is_alone or before is not None]
        return faster_mean(kept) if kept else None

    def influence(self, intruders: Collection[str]) -> float | None:
        """Log ratio of what it takes after an intruder to what it takes after any other arm."""
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
