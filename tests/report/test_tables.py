"""What single cells say."""

from __future__ import annotations

import numpy as np
import pytest
from support import scenarios
from support.factories import (
    make_calibration,
    make_case,
    make_failed_case,
    make_launches,
    make_result,
    make_rounds,
    make_workload,
)

from bt_bench.base.document import ABSENT, Cell, Table, Tone, numbered_notes
from bt_bench.report.run.arranged import arrange
from bt_bench.report.run.cells import describe_launches
from bt_bench.report.run.regime_tables import (
    budget_table,
    change_table,
    exploratory_table,
    host_table,
    regime_table,
)
from bt_bench.report.run.tables import distribution_table, event_table, time_table
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.nouns import (
    LaunchPath,
    Load,
    Method,
    Quantity,
    Reason,
    ReasonCode,
    Status,
)
from bt_bench.results.run.result import VariantResult
from bt_bench.results.run.series import series_of
from bt_bench.suites.block_tables import operations as ops


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


def _time_row(case: CaseResult) -> dict[str, Cell]:
    table = time_table(arrange([make_result(cases=[case])]), case.operation)
    return dict(zip(table.columns, table.rows[0], strict=True))


def test_the_device_time_says_that_the_profiler_lost_records() -> None:
    reason = Reason(code=ReasonCode.PROFILER_INCOMPLETE, message="dropped 3 records")
    case = make_case(samples={Quantity.HOST_US: [[30.0]], Quantity.STEP_US: [[45.0]]})
    row = _time_row(case.model_copy(update={"reason": reason}))
    assert (row["Host"].text, row["Step"].text) == ("30.00", "45.00")
    assert row["Device"] == row["Launches"] == Cell(ABSENT, "dropped 3 records")


def test_zero_is_printed_and_is_not_absent() -> None:
    row = _time_row(make_case(samples={Quantity.GPU_US: [[0.0]]}))
    assert row["Device"] == Cell("0")


def test_a_window_shows_the_median_over_its_steps() -> None:
    samples = {Quantity.HOST_US: [[1.0, 5.0, 3.0], [1.0, 7.0, 3.0], [1.0, 6.0, 3.0]]}
    row = _time_row(make_case(samples=samples, num_steps=3))
    assert row["Host"] == Cell("3.000")


def test_a_case_without_a_result_says_so_once_in_its_row() -> None:
    case = make_failed_case(code=ReasonCode.DISTURBED, status=Status.INSUFFICIENT)
    row = list(_time_row(case).values())
    assert [cell.text for cell in row[2:]] == ["INSUFFICIENT"] + [""] * (len(row) - 3)


def test_staging_is_all_that_its_own_operation_has() -> None:
    case = make_case(operation=ops.STAGE, samples={Quantity.STAGE_US: [[2.0]]})
    assert list(_time_row(case)) == ["Config", "Variant", "Stage", "Launches"]


BUSY_EVENT = series_of(Quantity.EVENT_US, load=Load.BUSY)
BUSY_SPAN = series_of(Quantity.SPAN_US, load=Load.BUSY)


def test_cells_of_methods_that_disagree_are_marked() -> None:
    samples = {Quantity.GPU_US: [[9.0]], BUSY_EVENT: [[22.0]], BUSY_SPAN: [[10.5]]}
    calibration = make_calibration(intercepts_us={Method.EVENTS: 2.0, Method.PROFILER: 0.5})
    case = make_case(samples=samples, launches=make_launches(["gather"]))
    arms = arrange([make_result(cases=[case], calibration=calibration)])
    note = (
        "methods disagree: 20.00 by events against 10.00 by profiler for the span on a busy GPU, "
        "L2 hot (tolerance 2.000 µs)"
    )
    times = time_table(arms, case.operation)
    assert times.rows[0][times.columns.index("Device")] == Cell("9.000", note)
    regimes = regime_table(arms, case.operation)
    assert regimes is not None
    assert regimes.rows[0][regimes.columns.index("Busy hot")] == Cell("22.00", note)


def test_regimes_are_those_that_were_measured() -> None:
    case = make_case(samples={Quantity.STEP_US: [[50.0]], BUSY_EVENT: [[8.0]]})
    regimes = regime_table(arrange([make_result(cases=[case])]), case.operation)
    assert regimes is not None
    assert regimes.columns == ("Config", "Variant", "Step", "Busy hot")


def test_an_idle_gpu_alone_needs_no_table_of_regimes() -> None:
    case = make_case(samples={Quantity.STEP_US: [[50.0]], Quantity.HOST_US: [[8.0]]})
    arms = arrange([make_result(name, [case]) for name in ("baseline", "fused")])
    assert regime_table(arms, case.operation) is None
    assert host_table(arms, case.operation) is None


def test_launch_paths_have_a_table_where_there_is_more_than_one() -> None:
    paths = (LaunchPath.JIT, LaunchPath.DIRECT)
    samples = {
        series_of(Quantity.HOST_US, launch_path=path): [[value]]
        for path, value in zip(paths, (20.0, 5.0), strict=True)
    }
    case = make_case(samples=samples)
    table = host_table(arrange([make_result(cases=[case])]), case.operation)
    assert table is not None
    assert table.columns == ("Config", "Variant", "Host jit", "Host direct")
    assert [cell.text for cell in table.rows[0][2:]] == ["20.00", "5.000"]


def test_changes_have_the_verdict_of_compare() -> None:
    quantities = (BUSY_EVENT, Quantity.EVENT_US, Quantity.HOST_US)

    def result(variant: str, us: float, seed: int) -> VariantResult:
        rng = np.random.default_rng(seed)
        samples = {each: [[us * rng.lognormal(0, 0.03)] for _ in range(24)] for each in quantities}
        return make_result(variant, [make_case(samples=samples, rounds=make_rounds(24, 4))])

    arms = arrange([result("baseline", 20.5, 1), result("less", 4.5, 2), result("same", 20.5, 3)])
    less, same = event_table(arms, ops.GATHER_SLOTS).rows
    change_us, percent, verdict = (cell.text for cell in less[3:])
    assert float(change_us) == pytest.approx(-16, abs=0.5)
    assert float(percent) == pytest.approx(-78, abs=2)
    assert verdict == "FASTER"
    # One number: the change in µs is that in percent of the base.
    base_us = float(less[1].text)
    assert float(change_us) == pytest.approx(base_us * float(percent) / 100, rel=2e-3)
    assert same[5] == Cell("INCONCLUSIVE", tone=Tone.OPEN)
    explored = exploratory_table(arms, ops.GATHER_SLOTS)
    assert explored is not None
    assert [row[1].text.split()[1] for row in explored.rows] == ["FASTER", "INCONCLUSIVE"]
    primary = change_table(arms, ops.GATHER_SLOTS)
    assert primary is not None
    assert primary.columns == ("Config", "Host (%)", "Interval (%)", "Verdict")
    assert [row[3].text for row in primary.rows] == ["FASTER", "INCONCLUSIVE"]


def test_a_change_that_was_not_tested_says_why() -> None:
    cases = [make_case(samples={Quantity.HOST_US: [[value]]}) for value in (10.0, 20.0)]
    arms = arrange([make_result("baseline", cases[:1]), make_result("fused", cases[1:])])
    table = change_table(arms, cases[0].operation)
    assert table is not None
    (row,) = table.rows
    assert [cell.text for cell in row[1:]] == [ABSENT, ABSENT, "INVALID"]
    assert row[3].note is not None
    assert "too few for an interval" in row[3].note


def test_a_budget_that_does_not_close_is_marked() -> None:
    (result,) = (each for each in scenarios.gpu_run() if each.variant.name == "fused_apply")
    table = budget_table(arrange([result]), ops.STEP)
    assert table is not None
    residual = table.columns.index("(%)")
    notes = {row[0].text: row[residual].note for row in table.rows if row[2].text == "jit"}
    assert notes == {
        "small": None,
        "large_4grp": "more than 10 % of the step is not explained",
    }


def test_short_rounds_of_a_partial_run_count() -> None:
    samples = {Quantity.STEP_US: [[1.0, 5.0], [3.0]]}
    arms = arrange([make_result(cases=[make_case(samples=samples, num_steps=2)], complete=False)])
    table = distribution_table(arms, ops.GATHER_SLOTS)
    assert table is not None
    assert [cell.text for cell in table.rows[0][2:6]] == ["step", "2", "2.300", "3.500"]


def test_no_distribution_without_windows() -> None:
    arms = arrange([make_result(cases=[make_case(samples={Quantity.STEP_US: [[1.0]]})])])
    assert distribution_table(arms, ops.GATHER_SLOTS) is None


def test_a_trace_window_of_one_step_is_a_single_step() -> None:
    case = make_case(
        samples={Quantity.STEP_US: [[1.0], [3.0]]}, workload=make_workload(kind="trace")
    )
    assert _time_row(case)["Step"] == Cell("2.000")


def test_equal_notes_share_a_number() -> None:
    row = (Cell("1"), Cell(ABSENT, "why"), Cell(ABSENT, "else"), Cell(ABSENT, "why"))
    rows, notes = numbered_notes(Table(("a", "b", "c", "d"), (row,), num_text_columns=1))
    assert rows == [["1", "–¹", "–²", "–¹"]]
    assert notes == ["¹ why", "² else"]
