"""What is recorded of a workload."""

from __future__ import annotations

from bt_bench.base.names import Operation
from bt_bench.protocol import build_workload, record_of
from bt_bench.results.run.case import RequiredBytes
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import UniformParameters


def test_required_bytes_are_those_of_each_operation_that_launches() -> None:
    parameters = UniformParameters(groups=1, requests=2, tokens=4)
    workload = build_workload(parameters)
    record = record_of(parameters, workload)
    names = ["apply", "gather", "slots", "gather_slots", "step"]  # and not `stage`
    assert sorted(record.required_bytes) == sorted(names)
    for operation in (ops.APPLY, ops.STEP):
        (traffic,) = workload.traffic(operation)
        assert record.required_bytes[operation] == RequiredBytes(
            read=[traffic.read], written=[traffic.written]
        )
    assert record.required_bytes["step"].totals()[0] > 0


def test_a_record_of_one_operation_has_its_bytes_alone() -> None:
    parameters = UniformParameters(groups=1, requests=2, tokens=4)
    record = record_of(parameters, build_workload(parameters))
    one = record.of_operation(ops.STEP)
    assert one.required_bytes == {"step": record.required_bytes["step"]}
    assert one.digest == record.digest
    assert record.of_operation(Operation("other")).required_bytes == {}
