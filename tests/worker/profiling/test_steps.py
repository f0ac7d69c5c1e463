"""From records to samples: whose they are, what made what, and what is left out."""

from __future__ import annotations

import pytest

from bt_bench.results import Tracing
from bt_bench.worker.profiling.records import ApiRecord, DeviceRecord, PassRecords
from bt_bench.worker.profiling.steps import InOrder, Ran, RecordsLostError, traced_steps

STEP_NS = 100_000
EPOCH_NS = 1_700_000_000_000_000_000  # of the real-time clock, more than a float is exact to


class Pass:
    """Records of some steps, one after the other, with numbers as a profiler gives them."""

    def __init__(self):
        self.taken = PassRecords()
        self.now_ns = EPOCH_NS
        self._correlation = 0

    def step(self, *kernels, runs_ns=4_000, also=()):
        """A step that launches kernels by runtime calls, which call the driver; then it waits."""
        start = self.now_ns
        for place, name in enumerate(kernels):
            at = start + 10_000 * (place + 1)
            self._correlation += 1
            # The inner call ends first, and so it is recorded first.
            self.call("driver", "cuLaunchKernel", at + 500, at + 2_500, self._correlation)
            self.call("runtime", "cudaLaunchKernel", at, at + 3_000, self._correlation)
            self.kernel(name, at + 5_000, runs_ns)
        for name in also:
            self.call("runtime", name, start + 70_000, start + 70_400, 0)
        self.call("runtime", "cudaDeviceSynchronize", start + 80_000, start + 99_000, 0)
        self.now_ns += 2 * STEP_NS
        return Ran(start, start + STEP_NS, 79.0, 100.0)

    def traced(self, *ran):
        return traced_steps(Tracing.ALL, ran, InOrder(self.taken))

    def call(self, api, name, start, end, correlation):
        self.taken.calls.append(ApiRecord(api, name, correlation, start, end))

    def kernel(self, name, start, runs_ns, **more):
        self.taken.operations.append(
            DeviceRecord("kernel", name, self._correlation, start, start + runs_ns, **more)
        )


def test_a_call_counts_the_records_of_those_that_it_makes_itself():
    records = Pass()
    ran = [records.step("one", "two") for _ in range(3)]
    steps = records.traced(*ran)
    assert [(c.name, c.api, c.records, c.operation) for c in steps.calls] == [
        ("cudaLaunchKernel", "runtime", 2, 0),
        ("cudaLaunchKernel", "runtime", 2, 1),
        ("cudaDeviceSynchronize", "runtime", 1, None),
    ]
    assert steps.calls[1].start_us == [20.0] * 3
    assert steps.calls[1].end_us == [23.0] * 3
    assert [(o.name, o.start_us[0], o.end_us[0]) for o in steps.operations] == [
        ("one", 15.0, 19.0),
        ("two", 25.0, 29.0),
    ]
    assert (steps.host_us, steps.step_us) == ([79.0] * 3, [100.0] * 3)
    assert steps.left_out == 0


def test_a_call_within_one_that_another_made_is_of_the_outermost():
    records = Pass()
    ran = records.step()
    at = ran.start_ns
    records.call("driver", "inner", at + 1_200, at + 1_500, 0)
    records.call("driver", "middle", at + 1_100, at + 1_800, 0)
    records.call("driver", "second", at + 1_800, at + 1_900, 0)
    records.call("runtime", "outer", at + 1_000, at + 2_000, 0)
    records.call("runtime", "next", at + 2_001, at + 2_100, 0)
    steps = records.traced(ran)
    names = [(call.name, call.records) for call in steps.calls]
    assert names == [("outer", 4), ("next", 1), ("cudaDeviceSynchronize", 1)]


def test_of_calls_in_the_same_time_the_runtime_is_outside():
    records = Pass()
    ran = records.step()
    for api in ("driver", "runtime"):
        records.call(api, f"of the {api}", ran.start_ns + 1_000, ran.start_ns + 2_000, 0)
    first, _ = records.traced(ran).calls
    assert (first.name, first.records) == ("of the runtime", 2)


def test_whichever_of_nested_calls_has_the_number_the_outermost_enqueues():
    for api in ("driver", "runtime"):
        records = Pass()
        ran = records.step("one")
        calls = records.taken.calls
        records.taken.calls = [
            call
            if call.api == api
            else ApiRecord(call.api, call.name, 99, call.start_ns, call.end_ns)
            for call in calls
        ]
        first, *_ = records.traced(ran).calls
        assert (first.name, first.operation) == ("cudaLaunchKernel", 0)


def test_operations_find_their_calls_in_another_order():
    """Two streams: what is enqueued first begins last."""
    records = Pass()
    ran = records.step("late", "early")
    late, early = records.taken.operations
    start = ran.start_ns
    records.taken.operations = [
        DeviceRecord("kernel", "late", late.correlation, start + 50_000, start + 51_000),
        early,
    ]
    steps = records.traced(ran)
    assert [operation.name for operation in steps.operations] == ["early", "late"]
    assert [call.operation for call in steps.calls] == [1, 0, None]


def test_a_call_with_several_operations_has_the_first():
    records = Pass()
    ran = records.step("one")
    records.kernel("another of the graph", ran.start_ns + 30_000, 1_000)
    steps = records.traced(ran)
    assert [call.operation for call in steps.calls] == [0, None]
    assert len(steps.operations) == 2


def test_operations_without_a_call_are_kept():
    records = Pass()
    ran = [records.step("one") for _ in range(3)]
    records.taken.calls = [c for c in records.taken.calls if c.correlation == 0]
    steps = records.traced(*ran)
    assert [operation.name for operation in steps.operations] == ["one"]
    assert [(call.name, call.operation) for call in steps.calls] == [
        ("cudaDeviceSynchronize", None)
    ]


def test_steps_with_another_sequence_are_left_out_and_counted():
    records = Pass()
    odd = [records.step("one", also=["cudaMalloc"]), records.step("one", "two")]
    ran = [records.step("one", runs_ns=1_000 * length) for length in (3, 4, 5)]
    steps = records.traced(*odd, *ran)
    assert steps.left_out == 2
    assert len(steps.host_us) == len(steps.step_us) == 3
    assert steps.operations[0].end_us == [18.0, 19.0, 20.0]


def test_a_copy_of_other_bytes_is_another_sequence():
    records = Pass()
    ran = []
    for moved in (64, 64, 128):
        each = records.step()
        records.taken.operations.append(
            DeviceRecord(
                "copy", "copy", 1, each.start_ns + 9, each.start_ns + 99, moved_bytes=moved
            )
        )
        ran.append(each)
    steps = records.traced(*ran)
    assert steps.left_out == 1
    assert steps.operations[0].moved_bytes == 64


def test_the_most_frequent_sequence_is_taken_if_it_is_frequent():
    records = Pass()
    ran = [records.step(name) for name in ("a", "a", "b", "c", "d")]
    found = records.traced(*ran)
    assert [one.name for one in found.operations] == ["a"]
    assert found.left_out == 3


def test_where_no_sequence_is_frequent_nothing_is_certain():
    records = Pass()
    ran = [records.step(name) for name in "abcdef"]
    expected = r"of 6 steps .* 6 different sequences .* none of them in more than 1"
    with pytest.raises(RecordsLostError, match=expected):
        records.traced(*ran)


def test_dropped_records_are_an_error():
    records = Pass()
    ran = [records.step("one")]
    records.taken.dropped = 7
    with pytest.raises(RecordsLostError, match=r"the profiler lost 7 records$"):
        records.traced(*ran)
    records.taken.unreadable = "ValueError: why"
    with pytest.raises(
        RecordsLostError, match=r"the profiler lost 7 records; of one buffer: ValueError: why$"
    ):
        records.traced(*ran)


def test_records_of_other_steps_are_not_mixed_in():
    records = Pass()
    ran = {"mine": [], "other": []}
    for _ in range(4):
        for name, steps in ran.items():
            steps.append(records.step(f"{name}_kernel"))
    # Something between two steps belongs to neither.
    records.call("runtime", "cudaFree", EPOCH_NS + STEP_NS + 1_000, EPOCH_NS + STEP_NS + 2_000, 0)
    for name, steps in ran.items():
        traced = records.traced(*steps)
        assert [operation.name for operation in traced.operations] == [f"{name}_kernel"]
        assert len(traced.operations[0].start_us) == 4
        assert traced.left_out == 0
        assert "cudaFree" not in [call.name for call in traced.calls]


def test_records_may_come_in_any_order():
    records = Pass()
    ran = [records.step("one", "two") for _ in range(2)]
    expected = records.traced(*ran)
    records.taken.calls.reverse()
    records.taken.operations.reverse()
    assert records.traced(*ran) == expected


def test_times_in_the_command_buffer_are_given_if_all_have_them():
    for known in (True, False):
        records = Pass()
        ran = []
        for place in range(3):
            each = records.step()
            at = each.start_ns + 20_000
            told = {} if place == 1 and not known else {"queued_ns": at - 2_000}
            records.kernel("one", at, 1_000, submitted_ns=at - 1_000, **told)
            ran.append(each)
        (operation,) = records.traced(*ran).operations
        assert operation.queued_us == ([18.0] * 3 if known else None)
        assert operation.submitted_us == [19.0] * 3


def test_steps_that_nothing_is_recorded_of_are_all_kept():
    ran = [Ran(0, 10, 1.23456, 2.5), Ran(20, 30, 1.0, 2.0)]
    steps = traced_steps(Tracing.NONE, ran, PassRecords())
    assert steps.host_us == [1.235, 1.0]
    assert steps.step_us == [2.5, 2.0]
    assert steps.calls == steps.operations == []


def test_no_steps_have_no_samples():
    records = Pass()
    records.step("of another variant")
    steps = records.traced()
    assert (steps.host_us, steps.calls, steps.left_out) == ([], [], 0)


def test_what_begins_as_a_step_ends_is_of_the_next():
    records = Pass()
    first = records.step("one")
    end = first.end_ns
    records.call("runtime", "cudaFree", end, end + 1_000, 0)
    records.kernel("next", end, 1_000)
    second = Ran(end, end + STEP_NS, 1.0, 1.0)
    of_first, of_second = (records.traced(ran) for ran in (first, second))
    assert [operation.name for operation in of_first.operations] == ["one"]
    assert [call.name for call in of_second.calls] == ["cudaFree"]
    assert [operation.name for operation in of_second.operations] == ["next"]
