"""Timelines of scripted steps, whose true times are known, and what a profiler makes of them.

`play` works a script off: the host makes its calls one after the other, and each stream of the
device does what it was given in order. A profiler adds a set time to each call and to the wait, so
an analysis that takes this off again has to find the times of the script played without it.

The simplest use is `a_timeline()`: the variants `fused` (one kernel) and `separate` (a copy and two
kernels), traced with what `ADDED` adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Literal

from rich.console import Console

from bt_bench.report import Document, print_document
from bt_bench.results import (
    DeviceOperation,
    EmptyCalls,
    HandlerCost,
    HostCall,
    HostFrame,
    HostProfile,
    Reason,
    ReasonCode,
    Timeline,
    TracedSteps,
    Tracing,
    VariantTimeline,
)
from bt_bench.suites.block_tables import operations as ops
from support.factories import make_environment

QUERIES = 8  # calls in a row that the empty call `query` makes
DIGITS = 3  # of µs, as in a file


@dataclass(frozen=True)
class Call:
    """A call of the CUDA API in a script; times in µs, as they are without a profiler.

    Args:
        name: the function.
        us: how long the call takes.
        code_us: the host's own code before it.
        records: one, and those of the calls that it makes itself.
        blocks: whether it returns only when the device is idle.
    """

    name: str = "cudaGetDevice"
    us: float = 0.5
    code_us: float = 1.0
    records: int = 1
    blocks: bool = False


@dataclass(frozen=True)
class Launch(Call):
    """A call that enqueues a device operation.

    Args:
        operation: name of what it enqueues.
        kind: of that.
        runs_us: how long it runs.
        latency_us: from the begin of the call until it begins on an idle device.
        stream: operations of one stream run in order.
        moved_bytes: by a copy or memset.
    """

    name: str = "cuLaunchKernelEx"
    us: float = 3.0
    code_us: float = 5.0
    operation: str = "kernel"
    kind: Literal["kernel", "copy", "memset"] = "kernel"
    runs_us: float = 4.0
    latency_us: float = 4.0
    stream: int = 0
    moved_bytes: int | None = None


@dataclass(frozen=True)
class Added:
    """What a profiler adds, in µs.

    Args:
        launch_us: to a call that enqueues something.
        behind_us: of that, after the call has enqueued it, so that the device is not delayed.
        call_us: to each other record of a call.
        wait_us: to a wait for a busy device, after that is idle.
        idle_us: to a wait for an idle one.
    """

    launch_us: float = 0.0
    behind_us: float = 0.0
    call_us: float = 0.0
    wait_us: float = 0.0
    idle_us: float = 0.0

    def to(self, call: Call) -> float:
        """What it adds to a call."""
        if isinstance(call, Launch):
            return self.launch_us + (call.records - 1) * self.call_us
        return call.records * self.call_us


NOTHING = Added()
ADDED = Added(launch_us=2.0, call_us=0.5, wait_us=0.75, idle_us=0.25)

FUSED = (Launch(operation="fused_kernel"),)
SEPARATE = (
    Call(),
    Launch(
        name="cudaMemcpyAsync",
        operation="copy host to device",
        kind="copy",
        records=2,
        runs_us=1.5,
        moved_bytes=4_096,
    ),
    Launch(operation="gather_kernel"),
    Launch(operation="slots_kernel", code_us=0.5),
)


@dataclass(frozen=True)
class Played:
    """When everything of a script happened, in µs from its begin."""

    calls: list[tuple[float, float]] = field(default_factory=list)
    enqueued: list[float] = field(default_factory=list)
    operations: list[tuple[float, float]] = field(default_factory=list)
    host_us: float = 0.0
    step_us: float = 0.0


def play(
    script: Sequence[Call],
    added: Added = NOTHING,
    *,
    first_us: float = 0.0,
    last_us: float = 1.0,
    tail_us: float = 2.0,
    idle_us: float = 1.0,
) -> Played:
    """Works a script off.

    Args:
        script: calls, in order.
        added: by the profiler.
        first_us: the host's code before that of the first call.
        last_us: the host's code after the last call.
        tail_us: from the end of the last operation until a wait for it has returned.
        idle_us: how long a wait takes at least.
    """
    now = first_us
    idle_from: dict[int, float] = {}
    played = Played()

    def waited(begin: float) -> float:
        done = max(idle_from.values(), default=0.0)
        if done > begin:
            return max(begin + idle_us, done + tail_us) + added.wait_us
        return begin + idle_us + added.idle_us

    for call in script:
        now += call.code_us
        end = now + call.us + added.to(call)
        if isinstance(call, Launch):
            ahead = added.to(call) - added.behind_us
            begin = max(now + ahead + call.latency_us, idle_from.get(call.stream, 0.0))
            idle_from[call.stream] = begin + call.runs_us
            played.operations.append((begin, begin + call.runs_us))
            played.enqueued.append(now + ahead + 1.0)
        if call.blocks:
            end = waited(now)
        played.calls.append((now, end))
        now = end
    now += last_us
    return Played(played.calls, played.enqueued, played.operations, now, waited(now))


def some_steps(
    tracing: Tracing,
    script: Sequence[Call],
    added: Added = NOTHING,
    *,
    samples: int = 5,
    scatter_us: float = 0.1,
    **timing: float,
) -> TracedSteps:
    """Samples of a script under one kind of tracing.

    The host's code before the first call takes `scatter_us` longer from sample to sample, and as
    long as in the script in the middle one. Further arguments are those of `play`.
    """
    offsets = [scatter_us * (sample - samples // 2) for sample in range(samples)]
    played = [play(script, added, first_us=offset, **timing) for offset in offsets]
    launches = [call for call in script if isinstance(call, Launch)]
    order = sorted(range(len(launches)), key=lambda place: played[0].operations[place])
    calls, operations = [], []
    if tracing is Tracing.ALL:
        for place, call in enumerate(script):
            before = sum(isinstance(each, Launch) for each in script[:place])
            calls.append(
                HostCall(
                    name=call.name,
                    api="runtime" if call.name.startswith("cuda") else "driver",
                    records=call.records,
                    operation=order.index(before) if isinstance(call, Launch) else None,
                    start_us=_rounded(one.calls[place][0] for one in played),
                    end_us=_rounded(one.calls[place][1] for one in played),
                )
            )
        calls.append(
            HostCall(
                name="cudaDeviceSynchronize",
                api="runtime",
                records=2,
                start_us=_rounded(one.host_us + 0.1 for one in played),
                end_us=_rounded(one.step_us for one in played),
            )
        )
    if tracing is Tracing.ALL:
        for place in order:
            enqueued_us = [one.enqueued[place] for one in played]
            is_kernel = launches[place].kind == "kernel"
            operations.append(
                DeviceOperation(
                    kind=launches[place].kind,
                    name=launches[place].operation,
                    queued_us=_rounded(enqueued_us) if is_kernel else None,
                    submitted_us=_rounded(each + 0.5 for each in enqueued_us)
                    if is_kernel
                    else None,
                    start_us=_rounded(one.operations[place][0] for one in played),
                    end_us=_rounded(one.operations[place][1] for one in played),
                    moved_bytes=launches[place].moved_bytes,
                )
            )
    return TracedSteps(
        tracing=tracing,
        host_us=_rounded(one.host_us for one in played),
        step_us=_rounded(one.step_us for one in played),
        turns=[place // 2 for place in range(len(played))],
        calls=calls,
        operations=operations,
    )


def a_variant(
    name: str, script: Sequence[Call] = FUSED, added: Added = ADDED, **more: Any
) -> VariantTimeline:
    """A variant whose step is a script, traced and not traced.

    Args:
        name: of the variant.
        script: calls of the step.
        added: to a step that is traced.
        **more: arguments of `some_steps`.
    """
    weights = {Tracing.NONE: NOTHING, Tracing.ALL: added}
    steps = [some_steps(tracing, script, weight, **more) for tracing, weight in weights.items()]
    return VariantTimeline(name=name, nvtx_range=f"{name}.step.one", steps=steps)


def empty_calls(added: Added = ADDED, **more: Any) -> list[EmptyCalls]:
    """The empty calls by which `added` can be measured, traced and not traced."""
    scripts: dict[Literal["launch", "query"], tuple[Call, ...]] = {
        "launch": (Launch(operation="bt_bench_null_kernel", runs_us=1.0),),
        "query": (Call(name="cudaEventQuery", code_us=0.1),) * QUERIES,
    }
    found = []
    for name, script in scripts.items():
        for tracing, weight in ((Tracing.NONE, NOTHING), (Tracing.ALL, added)):
            steps = some_steps(tracing, script, weight, **more)
            records = sum(call.records for call in script) if tracing is Tracing.ALL else 1
            found.append(
                EmptyCalls(
                    name=name,
                    tracing=tracing,
                    host_us=steps.host_us,
                    step_us=steps.step_us,
                    turns=steps.turns,
                    begin_us=steps.calls[0].start_us if steps.calls else [],
                    records=records,
                )
            )
    return found


def a_timeline(
    scripts: Mapping[str, Sequence[Call]] | None = None, added: Added = ADDED, **changes: Any
) -> Timeline:
    """A timeline with known numbers.

    Args:
        scripts: of each variant's step, by name; by default `FUSED` and `SEPARATE`.
        added: what the profiler adds to traced steps.
        **changes: fields of the timeline to replace, such as `variants` or `case`.
    """
    scripts = {"fused": FUSED, "separate": SEPARATE} if scripts is None else scripts
    fields: dict[str, Any] = {
        "config": "quick",
        "case": "one",
        "operation": ops.STEP,
        "step": 1,
        "num_steps": 2,
        "digest": "a" * 64,
        "required_bytes": 10_240,
        "environment": make_environment(),
        "source": "cupti-python 13.0.1",
        "seconds": 5.0,
        "empty": empty_calls(added),
        "variants": [a_variant(name, script, added) for name, script in scripts.items()],
    }
    return Timeline(**(fields | changes))


def _rounded(samples: Any) -> list[float]:
    return [round(each, DIGITS) for each in samples]


def shown(document: Document, width: int = 80) -> str:
    """A document as a terminal of that width shows it."""
    stream = StringIO()
    print_document(
        document, Console(file=stream, width=width, force_terminal=True, color_system=None)
    )
    return stream.getvalue()


def with_host(timeline: Timeline, profile: HostProfile) -> Timeline:
    """The timeline with the same calls of the host for all variants."""
    variants = [variant.model_copy(update={"host": profile}) for variant in timeline.variants]
    return timeline.model_copy(update={"variants": variants})


def host_profile(name: str = "step", us: float = 20.0) -> HostProfile:
    """A step that consists of a single function."""
    frame = HostFrame(
        name=name,
        kind="python",
        file="pkg/a.py",
        line=7,
        calls=1,
        self_us=us,
        self_low_us=us,
        self_high_us=us,
        total_us=us,
    )
    cost = HandlerCost(within_us=0.1, around_us=0.2)
    return HostProfile(plain_us=us, repetitions=9, python_call=cost, c_call=cost, frames=[frame])


def failed(name: str, message: str = "it broke") -> VariantTimeline:
    """A variant that raised."""
    reason = Reason(code=ReasonCode.RAISED, message=message)
    return VariantTimeline(name=name, nvtx_range="", reason=reason)
