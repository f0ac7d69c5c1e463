"""One process of a gate's round: it measures everything once, and briefly.

Setting up takes seconds; it is done ahead, and several processes may do it at once. The timed part
takes about a second, while nothing else runs.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bt_bench.analysis import typical
from bt_bench.config import CaseSpec
from bt_bench.protocol import Workload
from bt_bench.results import Load, Method, Plan, Series
from bt_bench.worker.arm import inputs_on
from bt_bench.worker.measuring.bench import Bench
from bt_bench.worker.measuring.case import build_instances
from bt_bench.worker.measuring.methods.probes import Probe
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.rounds import Window
from bt_bench.worker.measuring.timing import Rounds
from bt_bench.worker.outcome import RoundProgress
from bt_bench.worker.tasks import RoundUnit, RoundValue

# Values from fewer rounds than this are left out.
FEWEST_ROUNDS = 3
# Units take turns after this many rounds, two pairs. A disturbance of some 10 ms then hits few
# rounds of many units, which medians tolerate, rather than all rounds of one unit.
ROUNDS_PER_PASS = 4
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
        classes: the variants by name; a unit takes those of its variants that are here.
        workload_of: builds the workload of a case.
        plan: how briefly to measure.
        bench: the device.

    Raises:
        ArmFailedError: when a variant raises.
        UsageError: for a workload that cannot be built.
    """

    def __init__(
        self,
        units: Sequence[RoundUnit],
        classes: Mapping[str, type[Any]],
        workload_of: Callable[[CaseSpec], Workload],
        plan: Plan,
        bench: Bench,
    ) -> None:
        self._plan = plan
        self._bench = bench
        self._units = _set_up(units, classes, workload_of, plan, bench)
        once = plan.model_copy(update={"rounds": 1, "profile_rounds": 1, "graph_rounds": 1})
        records = self._records()
        self._time(once, records)
        self._profile(once, records)

    def measure(self, on_round: Callable[[RoundProgress], None]) -> tuple[RoundValue, ...]:
        """Times all units, in turns and random order, and then profiles them all.

        Raises:
            ArmFailedError: when a variant raises.
        """
        brief = self._plan.model_copy(update={"rounds": 2})
        with _heap_aside():
            started_ns = self._bench.around.clock.now_ns()
            while self._bench.around.clock.now_ns() - started_ns < WARM_SECONDS * 1e9:
                self._time(brief, self._records(), on_round)
            records = self._records()
            left = self._plan.rounds
            while left > 0:
                rounds = min(left, ROUNDS_PER_PASS)
                seed = self._plan.seed + left  # a different order in each pass
                changes = {"rounds": rounds, "seed": seed, "warmup_rounds": 0}
                self._time(self._plan.model_copy(update=changes), records, on_round)
                left -= rounds
            self._profile(self._plan, records)
        pairs = zip(self._units, records, strict=True)
        return tuple(value for unit, of_unit in pairs for value in _values(unit.unit, of_unit))

    def _records(self) -> list[Records]:
        return [Records(unit.window.names, self._bench.around) for unit in self._units]

    def _time(
        self,
        plan: Plan,
        records: Sequence[Records],
        on_round: Callable[[RoundProgress], None] = lambda _: None,
    ) -> None:
        """Rounds of all units, one unit after the other."""
        pairs = list(zip(self._units, records, strict=True))
        for unit, of_unit in random.Random(plan.seed).sample(pairs, len(pairs)):
            clock = self._bench.around.clock
            Rounds(unit.window, unit.probes, plan, clock, of_unit).run(on_round)

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


@contextmanager
def _heap_aside() -> Iterator[None]:
    """Exempts existing objects from garbage collection.

    Each unit begins with a collection, and torch's modules alone take 70 ms of it.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _set_up(
    units: Sequence[RoundUnit],
    classes: Mapping[str, type[Any]],
    workload_of: Callable[[CaseSpec], Workload],
    plan: Plan,
    bench: Bench,
) -> list[_Unit]:
    """Sets up windows and probes; operations of one case with the same arms share instances."""
    ready = []
    built: dict[tuple[str, tuple[str, ...]], Window] = {}
    for unit in units:
        names = tuple(name for name in unit.variants if name in classes)
        if not names:
            continue
        key = (unit.case.name, names)
        if key not in built:
            workload = workload_of(unit.case)
            arms = {name: classes[name] for name in names}
            instances = build_instances(arms, workload, plan, bench.device)
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
    """Per variant and wanted series the median over the steps of each step's median."""
    records.discard_slow_rounds()
    values = []
    for name, book in records.books.items():
        for measurement in book.measurements():
            series: Series = measurement.series
            few = len(measurement.rounds) < FEWEST_ROUNDS
            value = None if few or series not in unit.series else typical(measurement.samples)
            if value is not None:
                values.append(RoundValue(unit.operation, unit.case.name, name, series, value))
    return values
