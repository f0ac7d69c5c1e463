"""The figures of `headline.py`: the engine's answers about its two runs, beside the aims.

Times and factors are those of `bt-bench compare`. What was not measured is `None`, and never taken
from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from headline_memory import Footprint
from headline_runs import (
    COLUMNS,
    COMPILED,
    DEVICE,
    DIRECT,
    GRAPH,
    HOST,
    HOST_STAGE,
    JIT,
    NEW,
    OLD,
    ONE_LAUNCH,
    TO_SYNC,
    Figure,
    Run,
    decode_heavy,
    device_operations,
    figure,
)

from bt_bench.analysis import median, percentile
from bt_bench.results import LaunchPath

COMPARED = (OLD, NEW, ONE_LAUNCH, GRAPH)
CASES = ("one", "four", "eight", "prefill")
WINDOWS = ("middle_rate1", "middle_rate4")

FEWEST_STEPS = 200  # decode-heavy ones: below that a 99th percentile is hardly one
TRACE_FACTOR = 10.0
MEMORY_FACTOR = 2.0


@dataclass(frozen=True)
class Aim:
    """What is to be reached.

    Args:
        title: as the issue has it.
        case: of the run `steps`.
        what: one of `COLUMNS`.
        most: in µs; `None` where vLLM 0.33.0 decides.
        share: of what vLLM 0.33.0 takes.
    """

    title: str
    case: str
    what: str
    most: float | None = None
    share: float | None = None


AIMS = (
    Aim("host + stage, 1 group, 128 requests", "one", HOST_STAGE, most=13),
    Aim("host + stage, 4 groups", "four", HOST_STAGE, most=18),
    Aim("host + stage, 8 groups, 1,024 requests", "eight", HOST_STAGE, most=45),
    Aim("device, 1 group, 128 requests, 2,048 tokens", "one", DEVICE, most=3.5),
    Aim("device, 4 groups", "four", DEVICE, most=4.5),
    Aim("device, 8 groups, 1,024 requests", "eight", DEVICE, most=12),
    Aim("device, 1 request of 16,384 tokens, one block added", "prefill", DEVICE, share=1 / 3),
    Aim("stage to synchronize, 1 group", "one", TO_SYNC, most=20),
    Aim("stage to synchronize, 4 groups", "four", TO_SYNC, most=26),
    Aim("stage to synchronize, 8 groups", "eight", TO_SYNC, most=70),
)


@dataclass(frozen=True)
class Row:
    """An aim beside what was measured; `None` where something is missing.

    Args:
        title: of the aim.
        aim: in words.
        values: by variant.
        factors: of vLLM 0.33.0 over a variant of ours, by `bt-bench compare` where it compares.
        reached: by a variant of ours.
        unit: of the values, `us` or `count`.
    """

    title: str
    aim: str
    values: Mapping[str, Figure | None]
    factors: Mapping[str, Figure | None]
    reached: Mapping[str, bool | None]
    unit: str = "us"


@dataclass(frozen=True)
class Rung:
    """A step of the way: which arm shows it, and by which launch path."""

    title: str
    variant: str
    path: LaunchPath


RUNGS = (
    Rung("baseline as it was: host code in Python", "baseline_python", JIT),
    Rung("+ both fusions", "fused_python", JIT),
    Rung("+ one launch", "one_launch_python", JIT),
    Rung("+ handles of compiled kernels", "one_launch_python", COMPILED),
    Rung("+ direct launch, in C", "one_launch_direct", DIRECT),
    Rung("+ staging in C", "one_launch_requests", DIRECT),
    Rung("+ one call stages all requests", "one_launch_pinned", DIRECT),
    Rung("+ writes as parameters", "one_launch_carried", DIRECT),
    Rung("+ the whole step in one call of C: one_launch", ONE_LAUNCH, DIRECT),
    Rung("replay of a graph instead: one_launch_graph", GRAPH, JIT),
)
OTHERS = (
    Rung("baseline with that host path", "baseline", DIRECT),
    Rung("fused with that host path", "fused", DIRECT),
)


@dataclass(frozen=True)
class RungRow:
    """A rung and its figures by column."""

    rung: Rung
    values: Mapping[str, Figure | None]


@dataclass(frozen=True)
class TraceRow:
    """Host + stage of one variant over decode-heavy steps, in µs; `None` where it is missing."""

    variant: str
    path: LaunchPath | None
    steps: int
    median_us: float | None
    p99_us: float | None
    of_windows: Mapping[str, float | None]  # medians


@dataclass(frozen=True)
class Headline:
    """All that is said.

    Args:
        rows: the issue's table.
        trace: decode-heavy steps.
        changes: by case, what each change bought.
        others: by case, the other variants with the same host path.
        memory: as it was measured.
        pinned_by: how pinned memory was counted.
        memory_reached: by variant; `None` where something is missing.
        facts: lines about runs and machine.
        problems: what went wrong.
    """

    rows: Sequence[Row]
    trace: Sequence[TraceRow]
    changes: Mapping[str, Sequence[RungRow]]
    others: Mapping[str, Sequence[RungRow]]
    memory: Sequence[Footprint] = ()
    pinned_by: str = ""
    memory_reached: Mapping[str, bool | None] = field(default_factory=dict)
    facts: Sequence[str] = ()
    problems: Sequence[str] = ()

    def succeeded(self) -> bool:
        """Whether `one_launch` reaches every aim and nothing went wrong; unknown is not reached."""
        reached = [row.reached[ONE_LAUNCH] for row in self.rows]
        reached.append(self.memory_reached.get(ONE_LAUNCH))
        return all(reached) and not self.problems


def headline(
    steps: Run,
    trace: Run,
    memory: Sequence[Footprint],
    pinned_by: str,
    problems: Sequence[str] = (),
) -> Headline:
    """Computes everything.

    Args:
        steps: the run of `headline.yaml`.
        trace: the run of `headline_trace.yaml`.
        memory: of the cases of `steps`.
        pinned_by: how pinned memory was counted.
        problems: what went wrong so far.
    """
    runs = {"steps": steps, "trace": trace}
    of_trace = [trace_row(trace, variant) for variant in (NEW, ONE_LAUNCH, GRAPH)]
    problems = [
        *problems,
        *(f"{name}: no results" for name, run in runs.items() if not run.results),
        *(f"{name}: {text}" for name, run in runs.items() for text in run.problems()),
        *(f"memory: {f.variant}, {f.case}: {f.error}" for f in memory if f.error),
    ]
    if any(0 < row.steps < FEWEST_STEPS for row in of_trace):
        problems.append(f"trace: fewer than {FEWEST_STEPS} decode-heavy steps")
    return Headline(
        rows=[operations_row(steps), *(aim_row(steps, a) for a in AIMS), *_trace_aims(of_trace)],
        trace=of_trace,
        changes={case: [_rung_row(steps, case, rung) for rung in RUNGS] for case in CASES},
        others={case: [_rung_row(steps, case, rung) for rung in OTHERS] for case in CASES},
        memory=memory,
        pinned_by=pinned_by,
        memory_reached={name: _memory_reached(memory, name) for name in (ONE_LAUNCH, GRAPH)},
        facts=_facts(steps, trace),
        problems=problems,
    )


def operations_row(steps: Run) -> Row:
    """Device operations of a step in all cases: the most, with the range as its interval."""
    values: dict[str, Figure | None] = {}
    for variant in COMPARED:
        of_cases = [device_operations(steps.case(variant, name)) for name in CASES]
        counts = [count for of_case in of_cases for count in of_case]
        complete = all(of_cases) and 0 not in counts
        low, high = (min(counts), max(counts)) if complete else (0, 0)
        values[variant] = Figure(high, low, high, len(counts)) if complete else None
    row = _row("device operations per step, 1 to 8 groups", "1", values, 1.0, _ratios(values))
    return replace(row, unit="count")


def aim_row(steps: Run, aim: Aim) -> Row:
    """An aim in µs beside what was measured."""
    values = {name: figure(steps.taken(name, aim.case, aim.what)) for name in COMPARED}
    factors = {name: steps.factor(name, aim.case, aim.what) for name in (ONE_LAUNCH, GRAPH)}
    if aim.share is None:
        return _row(aim.title, f"≤ {aim.most:g}", values, aim.most, factors)
    new = values[NEW]
    most = None if new is None else aim.share * new.value
    return _row(aim.title, f"≤ 1/{1 / aim.share:.0f} of vLLM 0.33.0", values, most, factors)


def trace_row(trace: Run, variant: str) -> TraceRow:
    """Median and 99th percentile over the decode-heavy steps of all windows together."""
    medians: dict[str, list[float]] = {}
    path = None
    for window in WINDOWS:
        case = trace.case(variant, window)
        taken = trace.taken(variant, window, HOST_STAGE)
        if case is not None and taken is not None:
            path = JIT
            of_steps = np.median(taken.samples, axis=0)
            medians[window] = [float(of_steps[index]) for index in decode_heavy(case)]
    pooled = [value for values in medians.values() for value in values]
    complete = len(medians) == len(WINDOWS) and pooled
    return TraceRow(
        variant,
        path,
        len(pooled),
        median(pooled) if complete else None,
        percentile(pooled, 99) if complete else None,
        {name: median(medians[name]) if medians.get(name) else None for name in WINDOWS},
    )


def _trace_aims(rows: Sequence[TraceRow]) -> list[Row]:
    found = []
    for title, attribute in (("median", "median_us"), ("99th percentile", "p99_us")):
        values: dict[str, Figure | None] = {OLD: None}
        for row in rows:
            value = getattr(row, attribute)
            missing = value is None
            values[row.variant] = None if missing else Figure(value, None, None, row.steps)
        new = values[NEW]
        most = None if new is None else new.value / TRACE_FACTOR
        name = f"host + stage, decode-heavy steps of the trace, {title}"
        aim = f"≤ 1/{TRACE_FACTOR:.0f} of vLLM 0.33.0"
        found.append(_row(name, aim, values, most, _ratios(values)))
    return found


def _row(
    title: str,
    aim: str,
    values: Mapping[str, Figure | None],
    most: float | None,
    factors: Mapping[str, Figure | None],
) -> Row:
    """Judges; what is missing is neither reached nor missed."""
    reached: dict[str, bool | None] = {}
    for name in (ONE_LAUNCH, GRAPH):
        ours = values[name]
        reached[name] = None if ours is None or most is None else ours.value <= most
    return Row(title, aim, values, factors, reached)


def _ratios(values: Mapping[str, Figure | None]) -> dict[str, Figure | None]:
    """Factors of what is no metric: of counts, and of a few steps of a window."""
    new, found = values[NEW], {}
    for name in (ONE_LAUNCH, GRAPH):
        ours = values[name]
        known = ours is not None and new is not None
        found[name] = Figure(new.value / ours.value, None, None, ours.count) if known else None
    return found


def _rung_row(steps: Run, case: str, rung: Rung) -> RungRow:
    # What was not launched that way is not a rung, whatever else is known of it.
    launched = steps.taken(rung.variant, case, HOST, rung.path) is not None
    values = {
        what: figure(steps.taken(rung.variant, case, what, rung.path)) if launched else None
        for what in COLUMNS
    }
    return RungRow(rung, values)


def _memory_reached(memory: Sequence[Footprint], variant: str) -> bool | None:
    """Whether a variant has at most twice what vLLM 0.33.0 has, after the steps of every case."""
    by_place = {(f.case, f.variant): f for f in memory}
    for case in CASES:
        for ours, theirs in _pairs(by_place.get((case, variant)), by_place.get((case, NEW))):
            if ours is None or theirs is None:
                return None
            if ours > MEMORY_FACTOR * theirs:
                return False
    return True


def _pairs(ours: Footprint | None, theirs: Footprint | None) -> list[tuple[int | None, int | None]]:
    """Device and pinned bytes after the steps, of both."""
    sides = [(f.device_after, f.pinned_after) if f else (None, None) for f in (ours, theirs)]
    return list(zip(*sides, strict=True))


def _facts(steps: Run, trace: Run) -> list[str]:
    facts = []
    for name, run in (("steps", steps), ("trace", trace)):
        for result in list(run.results.values())[:1]:
            env = result.environment
            where = env.gpus[0].name if env.gpus else "a CPU"
            facts.append(
                f"Run {name}: {result.run_id} on {where}, driver {env.driver}, "
                f"torch {env.torch}, Triton {env.triton}, Python {env.python}, "
                f"commit {(env.commit or 'unknown')[:12]}{' with changes' * bool(env.dirty)}"
            )
    for name in CASES:
        case = next((c for v in steps.results if (c := steps.case(v, name)) is not None), None)
        if case is not None:
            size, groups = case.workload.sizes, case.workload.parameters.get("groups")
            facts.append(
                f"Case {name}: groups {groups}, requests {size['num_reqs'][0]:,}, tokens "
                f"{size['num_tokens'][0]:,}, rows written {size['num_rows_written'][0]:,}"
            )
    facts.append(
        "All by the launch path jit, in whose rounds all arms took part, on an idle GPU with a hot "
        "L2 cache. Steps of one_launch that carry their writes, and replays, are launched by the "
        'driver whatever the path. In "What each change bought" the path is named; those other '
        "than jit were taken in fewer rounds, and come out lower, by 10 to 16 % for one_launch"
    )
    facts.append(
        "Staging is one call for all requests where an arm has it (append_many), from lists that "
        "are made before the clock starts; vLLM has none, and is called once per request, as its "
        "model runner does"
    )
    return facts
