"""Tables of one operation of a run: the origin's, times with launches, and distributions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bt_bench.analysis import percentile, step_medians_of
from bt_bench.base import Cell, Table, format_number
from bt_bench.base.names import Operation
from bt_bench.report.run.arranged import Arms, ArrangedArm, CaseId, row_title
from bt_bench.report.run.cells import (
    case_table,
    change_cells,
    disagreement_note,
    disagreements_of,
    launch_cell,
    time_cell,
    time_of,
)
from bt_bench.results import CaseResult, Quantity, series_of

_EVENT = series_of(Quantity.EVENT_US)
_STAGE = series_of(Quantity.STAGE_US)
_TIMES = tuple(series_of(quantity) for quantity in Quantity if quantity.traits.tabled)
_DISTRIBUTIONS = (Quantity.STEP_US, Quantity.HOST_US, Quantity.GPU_US)
_PERCENTILES = (10, 50, 90, 99, 100)


def event_table(arms: Arms, operation: Operation) -> Table:
    """Build the origin's table: medians of `event_us`, a row per case and variant."""
    rows = tuple(
        (
            Cell(row_title(arms, other, case_id)),
            time_of(arms.baseline, case_id, _EVENT),
            time_of(other, case_id, _EVENT),
            *change_cells(arms.judgement(other, case_id, _EVENT)),
        )
        for case_id in arms.cases_of(operation)
        for other in arms.others
    )
    # If there are several variants, the title of each row names its own.
    other = arms.others[0].name if len(arms.others) == 1 else "Variant"
    columns = ("Config", f"{arms.baseline.name} (µs)", f"{other} (µs)")
    return Table((*columns, "Change (µs)", "Change (%)", "Verdict"), rows, num_text_columns=1)


def time_table(arms: Arms, operation: Operation) -> Table:
    """Build a table of times in µs and launches by case and variant; only times that can exist."""
    series = (_STAGE,) if _stages_only(arms, operation) else _TIMES

    def cells(arm: ArrangedArm, case: CaseResult) -> list[Cell]:
        doubts = disagreement_note(disagreements_of(arm, case))
        times = [time_cell(arm, case, each) for each in series]
        noted = [
            Cell(cell.text, cell.note or doubts) if each.quantity is Quantity.GPU_US else cell
            for each, cell in zip(series, times, strict=True)
        ]
        return [*noted, launch_cell(case)]

    columns = [each.quantity.traits.heading.capitalize() for each in series]
    return case_table(arms, operation, [*columns, "Launches"], cells)


def distribution_table(arms: Arms, operation: Operation) -> Table | None:
    """Build a table of the spread of times over windows of several steps; `None` without any.

    If only staging is timed, it shows staging.
    """
    columns = ("Config", "Variant", "Time (µs)", "Steps", "p10", "p50", "p90", "p99", "max")
    shown = (Quantity.STAGE_US,) if _stages_only(arms, operation) else _DISTRIBUTIONS
    rows = tuple(
        row
        for case_id in arms.cases_of(operation)
        for arm in arms.all
        for row in _distribution_rows(arm, case_id, shown)
    )
    return Table(columns, rows, num_text_columns=3) if rows else None


def _stages_only(arms: Arms, operation: Operation) -> bool:
    """Return whether only staging is timed: without a GPU, or if it is the operation itself."""
    return arms.on_cpu or operation.traits.on_host


def _distribution_rows(
    arm: ArrangedArm, case_id: CaseId, quantities: Sequence[Quantity]
) -> Iterator[tuple[Cell, ...]]:
    case = arm.ok_case(case_id)
    if case is None or case.workload.num_steps == 1:
        return
    for quantity in quantities:
        medians = step_medians_of(case, series_of(quantity))
        if medians is not None:
            yield (
                Cell(case_id.case),
                Cell(arm.name),
                Cell(quantity.traits.heading),
                Cell(str(len(medians))),
                *(Cell(format_number(percentile(medians, p))) for p in _PERCENTILES),
            )
