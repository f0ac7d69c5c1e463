"""What is recorded of a workload."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.suites import write_suite

from bt_bench.base.errors import UsageError
from bt_bench.base.names import Operation
from bt_bench.protocol import build_workload, find_suite, load_suite, record_of
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


@pytest.mark.parametrize(
    ("traffic", "found"),
    [
        ("[Traffic(8, 8)]", "[Traffic(read=8, written=8)]…"),
        ("[Traffic(8, 8), Traffic(-8, 8)]", "Traffic(read=-8, written=8)]…"),
    ],
)
@pytest.mark.usefixtures("suites_run_here")
def test_bytes_of_other_steps_are_refused(tmp_path: Path, traffic: str, found: str) -> None:
    folder = write_suite(tmp_path / "suite")
    text = (folder / "suite.py").read_text()
    whole = "[Traffic(8 * len(step), 8 * len(step)) for step in self.steps]"
    assert whole in text
    (folder / "suite.py").write_text(text.replace(whole, traffic))
    suite = find_suite(str(folder), tmp_path)
    parameters = load_suite(suite).parameters[0]()
    with pytest.raises(UsageError) as error:
        record_of(parameters, build_workload(parameters))
    assert "traffic of copy is [" in str(error.value)
    assert found in str(error.value)
    assert "expected one for each of 2 steps, of 0 bytes or more" in str(error.value)
