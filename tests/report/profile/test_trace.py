"""The trace: its format by a schema, nesting, arrows, and which samples of which variants."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support import timelines
from support.timelines import (
    ADDED,
    FUSED,
    SEPARATE,
    Call,
    Launch,
    a_timeline,
    a_variant,
    some_steps,
)

from bt_bench.report.profile.trace import GAP_NS, trace_events, trace_json
from bt_bench.results import Reason, ReasonCode, Tracing, VariantTimeline

SCHEMA = json.loads(Path(timelines.__file__).with_name("chrome_trace.schema.json").read_text())

OVERLAPPING = (
    Launch(operation="long", runs_us=40.0),
    Launch(operation="short", runs_us=3.0, stream=1),
    Launch(operation="third", runs_us=9.0, stream=2),
    Launch(operation="last", runs_us=1.0),
)
GAP_US = GAP_NS / 1e3


def of_phase(trace, phase, **fields):
    return [
        event
        for event in trace["traceEvents"]
        if event["ph"] == phase and all(event[key] == value for key, value in fields.items())
    ]


def threads(trace, process=None):
    """Slices in order by the names of their threads, of one process or of the only one."""
    pids = {event["args"]["name"]: event["pid"] for event in of_phase(trace, "M", **PROCESS)}
    pid = pids[process] if process else next(iter(pids.values()))
    found = {}
    for event in of_phase(trace, "M", pid=pid, name="thread_name"):
        found[event["args"]["name"]] = of_phase(trace, "X", pid=pid, tid=event["tid"])
    return found


PROCESS = {"name": "process_name"}


def ns(event):
    begin = round(event["ts"] * 1e3)
    return begin, begin + round(event["dur"] * 1e3)


def assert_nested(slices):
    """Each slice of a thread lies within those that are open, or behind them."""
    open_ends = []
    for event in slices:  # in the order of the file, in which a parent is before its children
        begin, end = ns(event)
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], event
        open_ends.append(end)


def assert_sound(trace):
    """What a viewer needs beyond the schema."""
    Draft202012Validator(SCHEMA).validate(trace)
    slices = defaultdict(list)
    for event in trace["traceEvents"]:
        for key in {"ts", "dur"} & event.keys():
            assert isinstance(event[key], float)
            assert math.isfinite(event[key])
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append(event)
    for of_thread in slices.values():
        begins = [ns(event)[0] for event in of_thread]
        assert begins == sorted(begins)
        assert_nested(of_thread)
    named = {(event["pid"], event["tid"]) for event in of_phase(trace, "M", name="thread_name")}
    assert named == slices.keys()
    assert len({tid for _, tid in named}) == len(named)
    assert_flows(trace, slices)


def assert_flows(trace, slices):
    """An arrow begins and ends in a slice of its thread, and never leads back in time."""
    begun = {}
    for event in trace["traceEvents"]:
        if event["ph"] not in "sf":
            continue
        at = round(event["ts"] * 1e3)
        spans = [ns(each) for each in slices[event["pid"], event["tid"]]]
        assert any(begin <= at <= end for begin, end in spans), event
        if event["ph"] == "s":
            assert event["id"] not in begun
            begun[event["id"]] = event
            continue
        start = begun[event["id"]]
        assert event["bp"] == "e"
        assert start["ts"] <= event["ts"]
        assert [start[key] for key in ("name", "cat")] == [event[key] for key in ("name", "cat")]
    ends = Counter(event["id"] for event in of_phase(trace, "f"))
    assert ends == Counter(begun.keys())


def test_the_schema_is_one_and_refuses_what_is_not_a_trace():
    Draft202012Validator.check_schema(SCHEMA)
    validator = Draft202012Validator(SCHEMA)
    good = trace_events(a_timeline())
    assert validator.is_valid(good)
    for phase, key in (("X", "dur"), ("X", "ts"), ("s", "id"), ("M", "args"), ("f", "tid")):
        bad = json.loads(json.dumps(good))
        next(event for event in bad["traceEvents"] if event["ph"] == phase).pop(key)
        assert not validator.is_valid(bad), (phase, key)
    assert not validator.is_valid({"traceEvents": [{"ph": "?", "pid": 1, "name": "a"}]})


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_a_trace_is_sound(steps):
    assert_sound(trace_events(a_timeline(), steps))


def test_each_variant_is_a_process_with_its_threads():
    trace = trace_events(a_timeline())
    names = [event["args"]["name"] for event in of_phase(trace, "M", **PROCESS)]
    assert names == ["fused", "separate"]
    order = [
        event["args"]["sort_index"] for event in of_phase(trace, "M", name="process_sort_index")
    ]
    assert order == sorted(set(order))
    for name in names:
        assert list(threads(trace, name)) == [
            "host",
            "command buffer",
            "NVTX on the device",
            "device",
        ]


def test_a_step_has_its_times():
    timeline = a_timeline({"separate": SEPARATE})
    traced = timeline.variants[0].of(Tracing.ALL)
    shown = threads(trace_events(timeline, 1))
    begin = shown["host"][0]["ts"]
    sample = shown["host"][0]["args"]["sample"]
    assert sample == 2  # the median one

    def spans(slices):
        return [
            (each["name"], round(each["ts"] - begin, 3), round(each["ts"] + each["dur"] - begin, 3))
            for each in slices
        ]

    def of(nouns):
        return [(each.name, each.start_us[sample], each.end_us[sample]) for each in nouns]

    host, step = traced.host_us[sample], traced.step_us[sample]
    *calls, last = of(traced.calls)
    assert spans(shown["host"]) == [
        ("separate.step.one", 0.0, host),
        *calls,
        ("wait for the device", host, step),
        last,
    ]
    operations = of(traced.operations)
    assert spans(shown["device"]) == operations
    assert spans(shown["NVTX on the device"]) == [
        ("separate.step.one", operations[0][1], operations[-1][2])
    ]
    assert shown["host"][0]["cat"] == "operation"
    assert shown["host"][2]["args"] == {"api": "runtime", "records": 2}
    copy, kernel, _ = traced.operations
    assert [each["cat"] for each in shown["device"]] == ["copy", "kernel", "kernel"]
    assert shown["device"][0]["args"] == {
        "moved_bytes": 4096,
        "latency_us": pytest.approx(copy.start_us[sample] - calls[1][1]),
    }
    assert shown["device"][1]["args"] == {
        "queued_us": kernel.queued_us[sample],
        "submitted_us": kernel.submitted_us[sample],
        "latency_us": pytest.approx(kernel.start_us[sample] - calls[2][1]),
    }
    # The second kernel is queued after the first has begun.
    kernels = traced.operations[1:]
    assert spans(shown["command buffer"]) == [
        (f"{part}: {each.name}", begins[sample], ends[sample])
        for each in kernels
        for part, begins, ends in (
            ("queued", each.queued_us, each.submitted_us),
            ("submitted", each.submitted_us, each.start_us),
        )
    ]


def test_commands_that_wait_at_the_same_time_have_threads_of_their_own():
    script = [Launch(operation=name, runs_us=40.0) for name in ("first", "second", "third")]
    shown = threads(trace_events(a_timeline({"queued": script}), 1))
    waiting = {
        name: [each["name"] for each in slices if each["name"].startswith("submitted")]
        for name, slices in shown.items()
        if name.startswith("command buffer")
    }
    assert waiting == {
        "command buffer": ["submitted: first", "submitted: second"],
        "command buffer 2": ["submitted: third"],
    }


def test_arrows_lead_from_calls_to_what_they_enqueue():
    trace = trace_events(a_timeline({"separate": SEPARATE}), 1)
    shown = threads(trace)
    launching = [
        each for each in shown["host"] if each["name"] in ("cudaMemcpyAsync", SEPARATE[2].name)
    ]
    starts, ends = of_phase(trace, "s"), of_phase(trace, "f")
    assert [each["ts"] for each in starts] == [each["ts"] for each in launching]
    assert [each["ts"] for each in ends] == [each["ts"] for each in shown["device"]]
    assert [each["tid"] for each in ends] == [each["tid"] for each in shown["device"]]
    assert [each["id"] for each in starts] == [each["id"] for each in ends]


def test_operations_that_overlap_have_threads_of_their_own():
    trace = trace_events(a_timeline({"streams": OVERLAPPING}))
    assert_sound(trace)
    shown = threads(trace)
    on_device = {
        name: [each["name"] for each in slices]
        for name, slices in shown.items()
        if name.startswith("device")
    }
    assert on_device == {
        "device": ["long", "last"] * 3,
        "device 2": ["short", "third"] * 3,
    }


def test_steps_of_all_variants_begin_together_and_follow_each_other():
    timeline = a_timeline({"fused": FUSED, "separate": SEPARATE})
    trace = trace_events(timeline)
    fused, separate = (
        [each for each in threads(trace, name)["host"] if each["cat"] == "operation"]
        for name in ("fused", "separate")
    )
    assert len(fused) == 3
    assert [each["ts"] for each in fused] == [each["ts"] for each in separate]
    for before, after in pairwise(separate):
        step_us = before["args"]["step_us"]
        assert after["ts"] - before["ts"] == pytest.approx(step_us + GAP_US)


def test_steps_are_near_the_median_in_order_and_spread():
    # Forty samples whose times rise, so that the median ones are in the middle.
    variant = a_variant("fused", samples=40, scatter_us=0.1)
    trace = trace_events(a_timeline(variants=[variant]))
    samples = [
        each["args"]["sample"] for each in threads(trace)["host"] if each["cat"] == "operation"
    ]
    assert len(samples) == 3
    first, middle, last = samples
    assert first < middle < last
    assert first >= 15
    assert last <= 24
    assert last - first >= 6
    assert abs((middle - first) - (last - middle)) <= 1


def test_fewer_samples_than_steps_are_all_shown():
    variants = [a_variant("few", samples=2), a_variant("many", samples=9)]
    trace = trace_events(a_timeline(variants=variants), 5)
    assert_sound(trace)
    shown = {
        name: [e["args"]["sample"] for e in threads(trace, name)["host"] if e["cat"] == "operation"]
        for name in ("few", "many")
    }
    assert shown["few"] == [0, 1]
    assert len(shown["many"]) == 5


def test_variants_without_such_steps_are_left_out():
    failed = VariantTimeline(
        name="failed",
        nvtx_range="failed.step.one",
        reason=Reason(code=ReasonCode.PROFILER_INCOMPLETE, message="lost"),
    )
    untraced = VariantTimeline(
        name="untraced",
        nvtx_range="untraced.step.one",
        steps=[some_steps(Tracing.NONE, FUSED)],
    )
    nothing = VariantTimeline(
        name="nothing",
        nvtx_range="nothing.step.one",
        steps=[
            some_steps(Tracing.ALL, FUSED).model_copy(
                update={"host_us": [], "step_us": [], "turns": [], "calls": [], "operations": []}
            )
        ],
    )
    trace = trace_events(a_timeline(variants=[failed, a_variant("fused"), untraced, nothing]))
    assert_sound(trace)
    assert [e["args"]["name"] for e in of_phase(trace, "M", **PROCESS)] == ["fused"]
    empty = trace_events(a_timeline(variants=[failed]))
    assert_sound(empty)
    assert empty["traceEvents"] == []


def test_a_step_that_launches_nothing_is_one_too():
    trace = trace_events(a_timeline({"idle": (Call(),)}))
    assert_sound(trace)
    assert list(threads(trace)) == ["host"]


def test_records_of_another_clock_stay_within_what_they_belong_to():
    steps = some_steps(Tracing.ALL, SEPARATE, ADDED)
    host = steps.host_us
    calls = list(steps.calls)
    # A launch that seems to outlast the step's call, a wait that seems to begin before its return
    # and to outlast the step, and an operation that seems to begin before everything.
    calls[-2] = calls[-2].model_copy(update={"end_us": [each + 0.4 for each in host]})
    calls[-1] = calls[-1].model_copy(
        update={
            "start_us": [each - 0.3 for each in host],
            "end_us": [each + 0.2 for each in steps.step_us],
        }
    )
    operations = list(steps.operations)
    early = {
        key: [each - 20 for each in getattr(operations[0], key)] for key in ("start_us", "end_us")
    }
    operations[0] = operations[0].model_copy(update=early)
    moved = steps.model_copy(update={"calls": calls, "operations": operations})
    variant = VariantTimeline(name="skewed", nvtx_range="skewed.step.one", steps=[moved])
    trace = trace_events(a_timeline(variants=[variant]))
    assert_sound(trace)
    on_host = threads(trace)["host"]
    names = [each["name"] for each in on_host[: len(calls) + 2]]
    assert names[-2:] == ["wait for the device", "cudaDeviceSynchronize"]
    assert on_host[len(calls) + 1]["dur"] == pytest.approx(on_host[len(calls)]["dur"])
    assert len(of_phase(trace, "f")) == 2 * 3  # none leads to the one before its call


def test_calls_that_overlap_are_cut():
    steps = some_steps(Tracing.ALL, SEPARATE)
    calls = list(steps.calls)
    late = {"end_us": [each + 1.0 for each in calls[2].start_us]}  # into the next call
    calls[1] = calls[1].model_copy(update=late)
    changed = steps.model_copy(update={"calls": calls})
    variant = VariantTimeline(name="cut", nvtx_range="cut.step.one", steps=[changed])
    trace = trace_events(a_timeline(variants=[variant]), 1)
    assert_sound(trace)
    *_, before, after = threads(trace)["host"][1:4]
    assert after["ts"] == pytest.approx(before["ts"] + before["dur"])


@pytest.mark.parametrize("off_us", [-30.0, 30.0])
def test_a_command_that_seems_submitted_at_another_time_stays_in_order(off_us):
    steps = some_steps(Tracing.ALL, FUSED)
    (kernel,) = steps.operations
    moved = {"submitted_us": [each + off_us for each in kernel.submitted_us]}
    changed = steps.model_copy(update={"operations": [kernel.model_copy(update=moved)]})
    variant = VariantTimeline(name="fused", nvtx_range="fused.step.one", steps=[changed])
    trace = trace_events(a_timeline(variants=[variant]))
    assert_sound(trace)
    slices = threads(trace)["command buffer"]
    assert {round(each["dur"], 3) for each in slices if each["name"].startswith("submitted")} == {
        0.0 if off_us > 0 else round(kernel.start_us[0] - kernel.queued_us[0], 3)
    }


def test_moments_that_are_not_known_make_no_thread():
    steps = some_steps(Tracing.ALL, FUSED)
    unknown = [each.model_copy(update={"submitted_us": None}) for each in steps.operations]
    neither = [each.model_copy(update={"queued_us": None}) for each in unknown]
    for operations, names in ((unknown, ["queued: fused_kernel"]), (neither, None)):
        changed = steps.model_copy(update={"operations": operations})
        variant = VariantTimeline(name="fused", nvtx_range="fused.step.one", steps=[changed])
        trace = trace_events(a_timeline(variants=[variant]), 1)
        assert_sound(trace)
        slices = threads(trace).get("command buffer")
        assert (slices and [each["name"] for each in slices]) == names
        assert "submitted_us" not in threads(trace)["device"][0]["args"]


def test_the_number_of_events_is_bounded():
    launches = [call for call in OVERLAPPING if isinstance(call, Launch)]
    calls = len(OVERLAPPING) + 1  # the wait
    for steps in (1, 3, 9):
        trace = trace_events(a_timeline({"streams": OVERLAPPING}), steps)
        shown = min(steps, 5)
        tids = {(e["pid"], e["tid"]) for e in of_phase(trace, "X")}
        most = shown * (3 + calls + 2 * len(launches) + 3 * len(launches)) + 2 + 2 * len(tids)
        assert len(trace["traceEvents"]) <= most


@pytest.mark.parametrize("name", ['a "b" \\ </script>', "zeile\nzwei\t\x1b[31m", "größe \ud800 ☃"])
def test_names_may_contain_anything(name):
    variant = a_variant("fused").model_copy(update={"name": name, "nvtx_range": f"{name}.step"})
    text = trace_json(a_timeline(variants=[variant]))
    assert text.isascii()
    assert text.count("\n") == 1
    trace = json.loads(text)
    assert_sound(trace)
    assert next(iter(threads(trace, name))) == "host"
    assert threads(trace)["host"][0]["name"] == f"{name}.step"


def test_the_trace_says_what_it_is_of():
    timeline = a_timeline(case="small", missing=["when a command was submitted"])
    said = json.loads(trace_json(timeline))["otherData"]
    assert said.pop("times").startswith("Times include the cost of the profiler.")
    assert said == {
        "bt_bench": timeline.environment.bt_bench,
        "config": "quick",
        "case": "small",
        "operation": "step",
        "step": 1,
        "num_steps": 2,
        "device": "NVIDIA H200",
        "source": "cupti-python 13.0.1",
        "missing": ["when a command was submitted"],
    }


@pytest.mark.parametrize("steps", [0, -1])
def test_a_number_of_steps_that_is_not_positive_is_refused(steps):
    with pytest.raises(ValueError, match=f"steps must be at least 1, got {steps}"):
        trace_events(a_timeline(), steps)
