"""Tables of the cost of a step in each regime, and of where its time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bt_bench.analysis import CLOSES_WITHIN_PERCENT, Budget, Crosscheck, budgets
from bt_bench.base import ABSENT, Cell, Table, format_percent
from bt_bench.base.names import Operation
from bt_bench.report.run.arranged import Arms, ArrangedArm, primary_series, row_title
from bt_bench.report.run.cells import (
    case_table,
    change_cell,
    concerns,
    disagreement_note,
    disagreements_of,
    number_cell,
    tested_cells,
    time_cell,
)
from bt_bench.results import (
    Cache,
    CaseResult,
    LaunchPath,
    Load,
    Method,
    Quantity,
    Series,
    series_of,
)

_GRAPH_SLOPE = series_of(Quantity.GPU_US, launch_path=LaunchPath.GRAPH, method=Method.GRAPH_SLOPE)
REGIMES: dict[str, Series] = {
    "Step": series_of(Quantity.STEP_US),
    "Busy hot": series_of(Quantity.EVENT_US, load=Load.BUSY),
    "Busy cold": series_of(Quantity.EVENT_US, load=Load.BUSY, l2=Cache.COLD),
    "Graph": _GRAPH_SLOPE,
    "Graph event": series_of(Quantity.EVENT_US, launch_path=LaunchPath.GRAPH),
    "Host jit": series_of(Quantity.HOST_US),
}
_HOST = {f"Host {path}": series_of(Quantity.HOST_US, launch_path=path) for path in LaunchPath}
_IDLE_REGIMES = {"Step", "Host jit"}  # these are also in the table of times
_EXPLORED = {name: REGIMES[name] for name in ("Step", "Busy hot", "Busy cold", "Graph")}


def regime_table(arms: Arms, operation: Operation) -> Table | None:
    """Build a table of the cost of a step in each measured regime, in µs.

    Returns `None` if only Triton's call on an idle GPU was measured.
    """
    return _table_of(arms, operation, REGIMES)


def host_table(arms: Arms, operation: Operation) -> Table | None:
    """Build a table of the host's cost of a step by launch path, in µs.

    Returns `None` if only Triton's call was measured.
    """
    return _table_of(arms, operation, _HOST)


def _table_of(arms: Arms, operation: Operation, series: Mapping[str, Series]) -> Table | None:
    """Build a table with a column for each measured series, by its heading.

    Returns `None` if only Triton's call on an idle GPU was measured.
    """
    taken = _taken(arms, operation)
    columns = [name for name, each in series.items() if each in taken]
    if not set(columns) - _IDLE_REGIMES:
        return None

    def cells(arm: ArrangedArm, case: CaseResult) -> list[Cell]:
        found = disagreements_of(arm, case)
        return [_regime_cell(arm, case, series[name], found) for name in columns]

    return case_table(arms, operation, columns, cells)


def change_table(arms: Arms, operation: Operation) -> Table | None:
    """Build a table of each variant's changes in the primary metrics, with intervals."""
    taken = _taken(arms, operation)
    shown = [series for series in primary_series(arms, operation) if series in taken]
    if not shown or not arms.others:
        return None
    columns = ["Config"]
    for series in shown:
        columns += [f"{series.quantity.traits.heading.capitalize()} (%)", "Interval (%)", "Verdict"]
    rows = [
        (
            Cell(row_title(arms, other, case_id)),
            *(cell for one in shown for cell in tested_cells(arms.judgement(other, case_id, one))),
        )
        for case_id in arms.cases_of(operation)
        for other in arms.others
    ]
    return Table(tuple(columns), tuple(rows), num_text_columns=1)


def exploratory_table(arms: Arms, operation: Operation) -> Table | None:
    """Build a table of each variant's changes in other regimes, in percent."""
    taken = _taken(arms, operation)
    columns = [name for name, series in _EXPLORED.items() if series in taken]
    if not columns or not arms.others:
        return None
    rows = tuple(
        (
            Cell(row_title(arms, other, case_id)),
            *(change_cell(arms.judgement(other, case_id, _EXPLORED[name])) for name in columns),
        )
        for case_id in arms.cases_of(operation)
        for other in arms.others
    )
    return Table(("Config", *columns), rows, num_text_columns=1)


def budget_table(arms: Arms, operation: Operation) -> Table | None:
    """Build a table of where a step's time goes, in µs, by launch path; `None` without any."""
    rows = tuple(
        (Cell(case_id.case), Cell(arm.name), *_budget_cells(found))
        for case_id in arms.cases_of(operation)
        for arm in arms.all
        if (case := arm.ok_case(case_id)) is not None
        for found in budgets(case, arm.result.calibration_of(case.part))
    )
    columns = (
        *("Config", "Variant", "Launch", "Step", "Host", "Device left", "Latency"),
        *("Residual", "(%)", "Hidden", "Gaps"),
    )
    return Table(columns, rows, num_text_columns=3) if rows else None


def _regime_cell(
    arm: ArrangedArm, case: CaseResult, series: Series, found: Sequence[Crosscheck]
) -> Cell:
    cell = time_cell(arm, case, series)
    note = disagreement_note(check for check in found if concerns(check, series))
    return Cell(cell.text, cell.note or note)


def _budget_cells(found: Budget) -> tuple[Cell, ...]:
    percent = found.residual_percent
    note = (
        None
        if found.closes
        else f"more than {CLOSES_WITHIN_PERCENT:.0f} % of the step is not explained"
    )
    explained = (found.host_us, found.device_left_us, found.latency_us)
    parts = (found.step_us, *explained, found.residual_us)
    return (
        Cell(found.launch_path.value),
        *map(number_cell, parts),
        Cell(ABSENT) if percent is None else Cell(format_percent(percent), note),
        number_cell(found.hidden_us),
        number_cell(found.gaps_us),
    )


def _taken(arms: Arms, operation: Operation) -> set[Series]:
    """Return all series that any variant has in any case of an operation."""
    return {
        measurement.series
        for arm in arms.all
        for case in arm.cases.values()
        if case.operation == operation
        for measurement in case.measurements
    }
