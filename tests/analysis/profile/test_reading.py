"""What binds a step, and its rows taken together."""

from __future__ import annotations

from support.timelines import Call, Launch, a_timeline

from bt_bench.analysis.profile import RowKind, condensed, explain, read_step


def explained(script):
    timeline = a_timeline({"fused": script})
    return explain(timeline, timeline.variants[0])


def test_code_and_calls_between_launches_are_one_row():
    calls = [Call(name="cudaGetDevice", code_us=1.0)] * 3
    step = explained([*calls, Launch(operation="a"), Launch(operation="b")])
    rows = condensed(step.rows)
    kinds = [(row.what, row.name) for row in rows]
    assert kinds[0] == (RowKind.CALL, "own code, 3 calls")
    assert [row.name for row in rows if row.what is RowKind.OPERATION] == ["a", "b"]
    assert rows[0].start_us == step.rows[0].start_us
    # Nothing is lost between the rows that stay.
    merged = sum(row.length_us for row in rows if row.what in (RowKind.CODE, RowKind.CALL))
    parts = sum(row.length_us for row in step.rows if row.what in (RowKind.CODE, RowKind.CALL))
    assert abs(merged - parts) < 0.05


def test_code_alone_stays_code():
    step = explained([Launch(operation="a")])
    (first, *_) = condensed(step.rows)
    assert first.what is RowKind.CODE


def test_the_gpu_binds_where_most_of_the_step_passes_behind_the_return():
    kernel = Launch(operation="long", runs_us=100.0)
    clear = Launch(operation="memset", kind="memset", runs_us=0.5)
    assert read_step(explained([kernel])).binds == "device"
    # The second one waited for its launch, but that is not what the step waits for.
    assert read_step(explained([clear, kernel])).binds == "device"
    assert read_step(explained([clear, Launch(operation="short", runs_us=2.0)])).binds == "host"
