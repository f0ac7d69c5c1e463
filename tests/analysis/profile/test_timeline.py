"""What is left of traced steps without the profiler: the times of the script that was played."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.timelines import (
    ADDED,
    FUSED,
    NOTHING,
    SEPARATE,
    Added,
    Call,
    Launch,
    a_timeline,
    a_variant,
    empty_calls,
    play,
    some_steps,
)

from bt_bench.analysis.profile.rows import Lane, RowKind, TimelineRow
from bt_bench.analysis.profile.timeline import explain
from bt_bench.analysis.profile.weight import differences_in_turn, weight_of
from bt_bench.results import HostCall, Tracing, VariantTimeline

ROUNDING = 0.01  # of µs: the times in a file are rounded, and are added up here


def explained(script, added=ADDED):
    timeline = a_timeline({"mine": script}, added)
    return explain(timeline, timeline.variants[0])


def spans(found, what):
    return [(row.start_us, row.end_us) for row in found.rows if row.what in what]


def assert_is_the_truth(found, script):
    """All rows lie where the script has them that was played without a profiler."""
    truth = play(script)
    operations = [row for row in found.rows if row.what is RowKind.OPERATION]
    launched = [row for row in found.rows if row.what in (RowKind.LAUNCH, RowKind.CALL)]
    assert [row.name for row in launched] == [call.name for call in script]
    for row, span in zip(launched, truth.calls, strict=True):
        assert (row.start_us, row.end_us) == pytest.approx(span, abs=ROUNDING)
    # Rows of operations stand behind those of their calls, so they are in the script's order.
    for row, span in zip(operations, truth.operations, strict=True):
        assert (row.start_us, row.end_us) == pytest.approx(span, abs=ROUNDING)
    assert found.predicted_us == pytest.approx(truth.step_us, abs=ROUNDING)
    assert found.residual_us == pytest.approx(0, abs=ROUNDING)
    assert found.host_us == pytest.approx(truth.host_us, abs=ROUNDING)
    assert found.closes
    assert found.rows[-1].what is RowKind.WAIT
    assert found.rows[-1].start_us == pytest.approx(truth.host_us, abs=ROUNDING)


SCRIPTS = {
    "one kernel": FUSED,
    "a copy and kernels": SEPARATE,
    "calls that make calls": (Call(records=3), Launch(records=4), Call(records=2), Launch()),
    "a kernel longer than the host's part": (Launch(runs_us=200.0), Launch(), Call(), Launch()),
    "all is done before the return": (Launch(runs_us=1.0), Call(us=30.0), Call(us=5.0)),
    "no operations": (Call(), Call(records=2)),
    "two streams": (Launch(runs_us=50.0), Launch(runs_us=20.0, stream=1), Launch(stream=2)),
    "a stream that is late": (Launch(latency_us=40.0), Launch(runs_us=9.0, stream=1)),
    "a wait in between": (
        Launch(runs_us=30.0),
        Launch(runs_us=3.0),
        Call(name="cudaStreamSynchronize", blocks=True),
        Launch(runs_us=6.0),
    ),
    "a wait for two streams": (
        Launch(runs_us=60.0),
        Launch(runs_us=3.0, stream=1),
        Call(name="cudaDeviceSynchronize", blocks=True),
        Call(),
    ),
    "a kernel that queues only without the profiler": (
        Launch(runs_us=10.0),
        Launch(code_us=4.5),
        Launch(code_us=4.0),
    ),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize(
    "added",
    [
        NOTHING,
        ADDED,
        Added(launch_us=5.0, call_us=1.5),
        Added(launch_us=2.0, behind_us=1.5, call_us=0.5, idle_us=0.5),
        Added(launch_us=0.5, wait_us=4.0, idle_us=3.0),
    ],
    ids=["nothing", "usual", "heavy", "behind", "wait"],
)
def test_what_the_profiler_added_is_taken_off(script, added):
    assert_is_the_truth(explained(script, added), script)


def test_an_operation_that_may_have_waited_for_either_keeps_its_distance():
    """One that begins soon after another ended, which was after its call had returned."""
    found, truth = explained(SEPARATE, Added(launch_us=1.0)), play(SEPARATE)
    *_, slots = [row for row in found.rows if row.what is RowKind.OPERATION]
    assert slots.start_us == pytest.approx(truth.operations[-1][0] + 0.5)


LENGTHS = st.integers(1, 40).map(lambda quarters: quarters / 4)
LAUNCHES = st.builds(Launch, code_us=LENGTHS, runs_us=LENGTHS, records=st.integers(1, 3))
CALLS = st.builds(Call, code_us=LENGTHS, us=LENGTHS, records=st.integers(1, 3))


@given(st.lists(st.one_of(LAUNCHES, CALLS), min_size=1, max_size=6))
def test_a_step_is_never_moved_past_the_truth(script):
    """What is taken off is at most what was added."""
    found, truth = explained(script), play(script)
    operations = [row for row in found.rows if row.what is RowKind.OPERATION]
    for row, (start, end) in zip(operations, truth.operations, strict=True):
        assert row.start_us >= start - ROUNDING
        assert row.length_us == pytest.approx(end - start, abs=ROUNDING)
    for before, after in itertools.pairwise(operations):
        assert after.start_us >= before.end_us - ROUNDING
    # A step that traced ended with the host does not tell how long a wait for the device goes on.
    done = max((end for _, end in truth.operations), default=0.0)
    assert found.predicted_us >= max(truth.host_us + 1.0, done) - ROUNDING


def test_the_weight_is_measured_on_empty_calls():
    timeline = a_timeline(added=Added(2.0, 0.0, 0.5, 0.75, 0.25))
    found = weight_of(timeline, Tracing.ALL)
    assert (found.launch_us, found.ahead_us, found.call_us) == pytest.approx((2.0, 2.0, 0.5))
    assert (found.wait_us, found.idle_us) == pytest.approx((0.75, 0.25))
    nested, launch = (
        HostCall(name="x", api="runtime", records=3, operation=place, start_us=[0], end_us=[1])
        for place in (None, 0)
    )
    assert found.of(nested) == pytest.approx(1.5)
    assert found.of(launch) == pytest.approx(3.0)


def test_what_a_launch_adds_behind_its_kernel_does_not_delay_that():
    found = weight_of(a_timeline(added=Added(launch_us=3.0, behind_us=2.0)), Tracing.ALL)
    assert (found.launch_us, found.ahead_us, found.wait_us) == pytest.approx((3.0, 1.0, 0.0))


def test_further_records_of_an_empty_launch_are_not_of_the_launch():
    """Triton's call may ask for the device first."""
    timeline = a_timeline()
    script = (Launch(operation="bt_bench_null_kernel", records=3),)
    changed = []
    for empty in timeline.empty:
        if empty.name == "launch" and empty.tracing is Tracing.ALL:
            steps = some_steps(Tracing.ALL, script, ADDED)
            times = {"host_us": steps.host_us, "records": 3, "step_us": steps.step_us}
            empty = empty.model_copy(update=times)
        changed.append(empty)
    found = weight_of(timeline.model_copy(update={"empty": changed}), Tracing.ALL)
    assert found.launch_us == pytest.approx(ADDED.launch_us)


def test_tracing_that_makes_nothing_longer_has_no_weight():
    """Noise may have it the other way round."""
    faster = Added(launch_us=-0.5, call_us=-0.1, wait_us=0.0, idle_us=-0.2)
    found = weight_of(a_timeline(added=faster), Tracing.ALL)
    assert (found.launch_us, found.ahead_us, found.call_us, found.idle_us) == (0, 0, 0, 0)


def test_rows_are_in_order_and_each_operation_is_behind_its_call():
    found = explained(SEPARATE)
    assert [(row.lane, row.what, row.name) for row in found.rows] == [
        (Lane.HOST, RowKind.CODE, "host code"),
        (Lane.HOST, RowKind.CALL, "cudaGetDevice"),
        (Lane.HOST, RowKind.CODE, "host code"),
        (Lane.HOST, RowKind.LAUNCH, "cudaMemcpyAsync"),
        (Lane.DEVICE, RowKind.OPERATION, "copy host to device"),
        (Lane.HOST, RowKind.CODE, "host code"),
        (Lane.HOST, RowKind.LAUNCH, "cuLaunchKernelEx"),
        (Lane.DEVICE, RowKind.OPERATION, "gather_kernel"),
        (Lane.HOST, RowKind.CODE, "host code"),
        (Lane.HOST, RowKind.LAUNCH, "cuLaunchKernelEx"),
        (Lane.DEVICE, RowKind.OPERATION, "slots_kernel"),
        (Lane.HOST, RowKind.CODE, "host code"),
        (Lane.HOST, RowKind.WAIT, "wait for the device"),
    ]
    assert [row.launched_by for row in found.rows if row.lane is Lane.DEVICE] == [3, 6, 9]
    assert {row.launched_by for row in found.rows if row.lane is Lane.HOST} == {None}
    assert found.rows[4].moved_bytes == 4_096
    host = [row for row in found.rows if row.lane is Lane.HOST]
    for before, after in itertools.pairwise(host):
        assert after.start_us == pytest.approx(before.end_us, abs=ROUNDING)


def test_sums_say_where_the_time_goes():
    #      code  call  code  launch      code  launch      code  launch      code
    # host 0..1 ..1.5 ..6.5 ..9.5      ..14.5 ..17.5     ..18 ..21         ..22
    # device            10.5..12            18.5..22.5        22.5..26.5     tail ..28.5
    found = explained(SEPARATE)
    assert found.launches == 3
    assert found.launch_us == pytest.approx(9.0)
    assert found.other_calls_us == pytest.approx(0.5)
    assert found.code_us == pytest.approx(1.0 + 5.0 + 5.0 + 0.5 + 1.0)
    assert found.launch_us + found.other_calls_us + found.code_us == pytest.approx(found.host_us)
    assert found.latency_us == pytest.approx(4.0)
    assert found.busy_us == pytest.approx(1.5 + 4.0 + 4.0)
    assert found.hidden_us == pytest.approx(1.5 + 3.5)
    assert found.left_us == pytest.approx(4.5)
    assert found.tail_us == pytest.approx(2.0)
    assert found.host_us + found.left_us + found.tail_us == pytest.approx(28.5)
    assert found.step_us == pytest.approx(28.5)
    assert found.step_low_us == pytest.approx(28.5 - 0.16)
    assert found.step_high_us == pytest.approx(28.5 + 0.16)
    traced = play(SEPARATE, ADDED)
    assert found.added_us == pytest.approx(traced.step_us - 28.5)
    assert found.floor_us == pytest.approx(4.0 + 1.0 + 2.0)  # of an empty launch, without code


def test_operations_of_two_streams_are_busy_once():
    found = explained((Launch(runs_us=50.0), Launch(runs_us=20.0, stream=1)))
    assert found.busy_us == pytest.approx(50.0)


def test_when_all_is_done_at_the_return_nothing_is_left():
    found = explained((Launch(runs_us=1.0), Call(us=30.0)))
    assert found.left_us == 0
    assert found.hidden_us == found.busy_us == pytest.approx(1.0)
    assert found.tail_us == pytest.approx(1.0)


def test_a_step_without_operations_is_the_hosts():
    found = explained((Call(), Call()))
    assert found.launches == 0
    assert found.latency_us is None
    assert (found.busy_us, found.hidden_us, found.left_us) == (0, 0, 0)
    assert {row.lane for row in found.rows} == {Lane.HOST}


def test_a_step_without_calls_is_code_and_a_wait():
    found = explained(())
    assert [row.what for row in found.rows] == [RowKind.CODE, RowKind.WAIT]
    assert found.residual_us == pytest.approx(0)


def test_a_command_is_queued_when_its_call_was_made_though_it_waits_long():
    script = (Launch(runs_us=200.0), Launch(), Launch())
    found = explained(script)
    queued = [row.queued_us for row in found.rows if row.lane is Lane.DEVICE]
    assert queued == pytest.approx(play(script).enqueued, abs=ROUNDING)
    submitted = [row.submitted_us for row in found.rows if row.lane is Lane.DEVICE]
    assert submitted == pytest.approx([each + 0.5 for each in queued])


def test_times_that_the_profiler_does_not_tell_stay_unknown():
    (row,) = (row for row in explained(SEPARATE).rows if row.moved_bytes)
    assert row.queued_us is None
    assert row.submitted_us is None


def without_calls(variant, names):
    """A variant whose profiler left out calls of these names."""
    steps = [
        each.model_copy(update={"calls": [call for call in each.calls if call.name not in names]})
        for each in variant.steps
    ]
    return variant.model_copy(update={"steps": steps})


def test_an_operation_without_a_call_moves_with_the_host():
    script = (Launch(operation="first"), Launch(name="lost", operation="second"), Call(us=9.0))
    timeline = a_timeline({"mine": script}, Added(launch_us=2.0))
    found = explain(timeline, without_calls(timeline.variants[0], {"lost"}))
    second = found.rows[-2]
    assert (second.name, second.launched_by) == ("second", None)
    # What its own call had added is not known.
    assert second.start_us == pytest.approx(play(script).operations[1][0] + 2.0)


def test_an_operation_before_any_call_stays():
    timeline = a_timeline({"mine": FUSED}, Added(launch_us=2.0))
    found = explain(timeline, without_calls(timeline.variants[0], {"cuLaunchKernelEx"}))
    row = found.rows[-2]
    assert row.start_us == pytest.approx(play(FUSED).operations[0][0] + 2.0)
    assert row.launched_by is None
    assert found.latency_us is None


def test_a_call_shorter_than_what_is_taken_off_has_no_length():
    """Part of what is added lies outside of the profiler's record."""
    timeline = a_timeline({"mine": (Call(us=0.0), Call())})
    shorter = []
    for steps in timeline.variants[0].steps:
        calls = [
            call.model_copy(update={"end_us": [at + 0.1 for at in call.start_us]})
            for call in steps.calls[:1]
        ]
        shorter.append(steps.model_copy(update={"calls": calls + steps.calls[1:]}))
    variant = timeline.variants[0].model_copy(update={"steps": shorter})
    found = explain(timeline, variant)
    assert found.rows[1].length_us == 0
    assert found.residual_us == pytest.approx(0)
    assert all(row.length_us >= 0 for row in found.rows)
    for before, after in itertools.pairwise(found.rows):
        assert after.start_us == pytest.approx(before.end_us, abs=ROUNDING)


def test_calls_do_not_overlap_where_the_record_begins_late():
    timeline = a_timeline({"mine": (Call(us=0.0), Call(code_us=0.0))})
    (traced,) = [each for each in timeline.variants[0].steps if each.tracing is Tracing.ALL]
    first = traced.calls[0].model_copy(
        update={"start_us": [at + 0.4 for at in traced.calls[0].start_us]}
    )
    traced = traced.model_copy(update={"calls": [first, *traced.calls[1:]]})
    plain = timeline.variants[0].of(Tracing.NONE)
    variant = timeline.variants[0].model_copy(update={"steps": [plain, traced]})
    _, late, following, *_ = explain(timeline, variant).rows
    assert following.what is RowKind.CALL
    assert following.start_us == late.end_us == pytest.approx(1.4)


def test_an_operation_does_not_begin_before_its_call():
    """A launch to which less was added than to an empty one."""
    steps = [some_steps(kind, (Launch(latency_us=1.0),)) for kind in (Tracing.NONE, Tracing.ALL)]
    variant = VariantTimeline(name="mine", nvtx_range="mine.step.one", steps=steps)
    _, launch, operation, *_ = explain(a_timeline(added=ADDED), variant).rows
    assert operation.start_us == launch.start_us == pytest.approx(5.0)


def test_a_step_is_not_done_before_its_last_operation():
    """Though traced it was done before the return, of which the profiler's share is large."""
    script = (Launch(runs_us=8.0), Call(records=20))
    found, truth = explained(script), play(script)
    assert truth.host_us < truth.operations[0][1]
    assert found.predicted_us == pytest.approx(truth.operations[0][1])
    assert found.tail_us == 0


def test_what_the_profiler_adds_to_kernels_is_the_residual():
    """No empty call shows it, so it must not be taken off silently."""
    longer = (Launch(runs_us=4.0 + 3.0),)
    steps = [some_steps(Tracing.NONE, FUSED), some_steps(Tracing.ALL, longer, ADDED)]
    variant = VariantTimeline(name="mine", nvtx_range="mine.step.one", steps=steps)
    found = explain(a_timeline(variants=[variant]), variant)
    assert found.residual_us == pytest.approx(-3.0)
    assert not found.closes


@pytest.mark.parametrize(
    ("step_us", "off_us", "closes"),
    [(6.0, 0.49, True), (6.0, 0.51, False), (100.0, 4.9, True), (100.0, 5.1, False)],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_step_closes_within_5_percent_or_half_a_microsecond(step_us, off_us, closes, sign):
    more_us = sign * off_us
    code = step_us - 2.5
    plain = some_steps(Tracing.NONE, (Call(code_us=code),))
    traced = some_steps(Tracing.ALL, (Call(code_us=code + more_us),), ADDED)
    variant = VariantTimeline(name="m", nvtx_range="m.step.one", steps=[plain, traced])
    found = explain(a_timeline(variants=[variant]), variant)
    assert found.residual_us == pytest.approx(-more_us)
    assert found.closes is closes
    assert not replace(found, error_us=max(0.51, 0.051 * found.step_us)).closes
    assert replace(found, error_us=0.49).closes is closes


@pytest.mark.parametrize("missing", [Tracing.NONE, Tracing.ALL])
def test_a_variant_that_was_not_timed_or_not_traced_is_not_explained(missing):
    variant = a_variant("mine")
    kept = [steps for steps in variant.steps if steps.tracing is not missing]
    variant = variant.model_copy(update={"steps": kept})
    assert explain(a_timeline(), variant) is None


@pytest.mark.parametrize("empty", [Tracing.NONE, Tracing.ALL])
def test_a_variant_without_samples_is_not_explained(empty):
    variant = a_variant("mine")
    steps = [
        each.model_copy(
            update={"host_us": [], "step_us": [], "calls": [], "operations": []}
            if each.tracing is empty
            else {}
        )
        for each in variant.steps
    ]
    assert explain(a_timeline(), variant.model_copy(update={"steps": steps})) is None


@pytest.mark.parametrize(
    ("name", "tracing"),
    list(itertools.product(("launch", "query"), (Tracing.NONE, Tracing.ALL))),
)
def test_without_all_empty_calls_the_weight_is_not_known(name, tracing):
    timeline = a_timeline()
    assert explain(timeline, timeline.variants[0]) is not None
    kept = [one for one in empty_calls() if (one.name, one.tracing) != (name, tracing)]
    fewer = timeline.model_copy(update={"empty": kept})
    assert weight_of(fewer, Tracing.ALL) is None
    assert explain(fewer, fewer.variants[0]) is None


def test_the_spread_of_a_row_is_that_of_its_length():
    found = explained(FUSED)
    code, launch, operation, *_ = found.rows
    assert isinstance(code, TimelineRow)
    # The samples differ in the first stretch of code alone: by 0.1 µs from one to the next.
    assert code.low_us == pytest.approx(5.0 - 0.16)
    assert code.high_us == pytest.approx(5.0 + 0.16)
    assert (launch.low_us, launch.high_us) == pytest.approx((3.0, 3.0))
    assert (operation.low_us, operation.high_us) == pytest.approx((4.0, 4.0))


def test_differences_are_taken_within_turns():
    """A machine that becomes slower in between says nothing about what tracing adds."""
    slow, fast = [100.0, 101.0, 102.0], [50.0, 51.0, 52.0]
    traced, plain = [110.0, 112.0, 61.0], [*slow, *fast]
    assert differences_in_turn(traced, plain, [1, 1, 2], [0] * 6) == [110.0 - 76.0]
    differences = [111.0 - 101.0, 61.0 - 51.0]
    assert differences_in_turn(traced, plain, [1, 1, 2], [1, 1, 1, 2, 2, 2]) == differences
    without = differences_in_turn(traced, plain, [1, 1, 2], [1, 1, 1, 2, 2, 2], without={1})
    assert without == differences[1:]
