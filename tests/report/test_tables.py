"""What single cells say."""

from __future__ import annotations

import pytest
from factories import make_case, make_launches, make_result, make_workload

from bt_bench.model import CaseResult, Quantity, Reason, ReasonCode
from bt_bench.operation import Operation
from bt_bench.report.document import ABSENT, Cell, Table, numbered_notes
from bt_bench.report.tables import arrange, describe_launches, distribution_table, time_table


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([["gather", "slots"]], "2"),
        ([[]], "0"),
        ([["a"], ["a", "a", "b"]], "1–3"),
        ([["a", "copy:x"]], "2 (1 kernel, 1 copy)"),
        ([["a", "a", "memset:x"], ["a", "memset:x"]], "2–3 (1–2 kernels, 1 memset)"),
        ([["torch_op:zero_"], ["torch_op:zero_", "torch_op:copy_"]], "1–2 (1–2 torch ops)"),
        ([["torch_op:zero_"]], "1 (1 torch op)"),
    ],
)
def test_launches(steps: list[list[str]], text: str) -> None:
    assert describe_launches(make_launches(*steps)) == text


def _time_row(case: CaseResult) -> tuple[Cell, ...]:
    return time_table(arrange([make_result(cases=[case])]), case.operation).rows[0]


def test_the_device_time_says_that_the_profiler_lost_records() -> None:
    reason = Reason(code=ReasonCode.PROFILER_INCOMPLETE, message="dropped 3 records")
    case = make_case(samples={Quantity.HOST_US: [[30.0]], Quantity.STEP_US: [[45.0]]})
    _, _, host, _, device, step, launches = _time_row(case.model_copy(update={"reason": reason}))
    assert (host.text, step.text) == ("30.00", "45.00")
    assert device == launches == Cell(ABSENT, "dropped 3 records")


def test_zero_is_printed_and_is_not_absent() -> None:
    row = _time_row(make_case(samples={Quantity.GPU_US: [[0.0]]}))
    assert row[4] == Cell("0")


def test_a_window_shows_median_and_p99_over_its_steps() -> None:
    samples = {Quantity.HOST_US: [[1.0, 5.0, 3.0], [1.0, 7.0, 3.0], [1.0, 6.0, 3.0]]}
    row = _time_row(make_case(samples=samples, num_steps=3))
    assert row[2] == Cell("3.000 / 5.940")


def test_short_rounds_of_a_partial_run_count() -> None:
    samples = {Quantity.STEP_US: [[1.0, 5.0], [3.0]]}
    arms = arrange([make_result(cases=[make_case(samples=samples, num_steps=2)], complete=False)])
    table = distribution_table(arms, Operation.GATHER_SLOTS)
    assert table is not None
    assert [cell.text for cell in table.rows[0][2:6]] == ["step", "2", "2.300", "3.500"]


def test_no_distribution_without_windows() -> None:
    arms = arrange([make_result(cases=[make_case(samples={Quantity.STEP_US: [[1.0]]})])])
    assert distribution_table(arms, Operation.GATHER_SLOTS) is None


def test_a_trace_window_of_one_step_is_a_single_step() -> None:
    case = make_case(
        samples={Quantity.STEP_US: [[1.0], [3.0]]}, workload=make_workload(kind="trace")
    )
    assert _time_row(case)[5] == Cell("2.000")


def test_equal_notes_share_a_number() -> None:
    row = (Cell("1"), Cell(ABSENT, "why"), Cell(ABSENT, "else"), Cell(ABSENT, "why"))
    rows, notes = numbered_notes(Table(("a", "b", "c", "d"), (row,), num_text_columns=1))
    assert rows == [["1", "–¹", "–²", "–¹"]]
    assert notes == ["¹ why", "² else"]
