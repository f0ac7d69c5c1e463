"""Tables of what a step costs in each regime, and of where its time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bt_bench.analysis import CLOSES_WITHIN_PERCENT, Budget, Crosscheck, budgets
from bt_bench.names import Operation
from bt_bench.report.document import ABSENT, Cell, Table
from bt_bench.report.run.arranged import Arm, Arms, config_of, pair_of
from bt_bench.report.run.cells import (
    case_table,
    concerns,
    disagreement_note,
    disagreements_of,
    number_cell,
    percent_cell,
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
    format_percent,
    series_of,
)

_GRAPH_SLOPE = series_of(Quantity.GPU_US, launch_path=LaunchPath.GRAPH, method=Method.GRAPH_SLOPE)
_REGIMES: dict[str, Series] = {
    "Step": series_of(Quantity.STEP_US),
    "Busy hot": series_of(Quantity.EVENT_US, load=Load.BUSY),
    "Busy cold": series_of(Quantity.EVENT_US, load=Load.BUSY, l2=Cache.COLD),
    "Graph": _GRAPH_SLOPE,
    "Graph event": series_of(Quantity.EVENT_US, launch_path=LaunchPath.GRAPH),
    "Host jit": series_of(Quantity.HOST_US),
}
_HOST = {f"Host {path}": series_of(Quantity.HOST_US, launch_path=path) for path in LaunchPath}
_IDLE_REGIMES = {"Step", "Host jit"}  # these are also in the table of times
_SAVINGS_REGIMES = ("Step", "Busy hot", "Busy cold", "Graph", "Host jit")


def regime_table(arms: Arms, operation: Operation) -> Table | None:
    """The cost of a step in each measured regime, in µs."""
    return _table_of(arms, operation, _REGIMES)


def host_table(arms: Arms, operation: Operation) -> Table | None:
    """The host's cost of a step by launch path, in µs; `None` if there is only one path."""
    return _table_of(arms, operation, _HOST)


def _table_of(arms: Arms, operation: Operation, series: Mapping[str, Series]) -> Table | None:
    """A column for each series that was measured, by its heading."""
    columns = _measured_regimes(arms, operation, series)
    if not columns:
        return None

    def cells(arm: Arm, case: CaseResult) -> list[Cell]:
        found = disagreements_of(arm, case)
        return [_regime_cell(arm, case, series[name], found) for name in columns]

    return case_table(arms, operation, columns, cells)


def regime_savings_table(arms: Arms, operation: Operation) -> Table | None:
    """What each variant saves in each regime, in percent of the baseline."""
    of_savings = {name: _REGIMES[name] for name in _SAVINGS_REGIMES}
    regimes = _measured_regimes(arms, operation, of_savings)
    if not regimes or not arms.others:
        return None
    rows = tuple(
        (
            Cell(config_of(arms, other, case_id)),
            *(percent_cell(pair_of(arms, other, case_id, _REGIMES[name])) for name in regimes),
        )
        for case_id in arms.cases_of(operation)
        for other in arms.others
    )
    return Table(("Config", *regimes), rows, num_text_columns=1)


def budget_table(
    arms: Arms, operation: Operation, launch_paths: Sequence[LaunchPath]
) -> Table | None:
    """Where the time of a step goes, in µs; `None` where no budget can be made.

    Args:
        arms: of the run.
        operation: which cases.
        launch_paths: those to show, a row each.
    """
    rows = tuple(
        (Cell(case_id.case), Cell(arm.name), *_budget_cells(found))
        for case_id in arms.cases_of(operation)
        for arm in arms.all
        if (case := arm.ok_case(case_id)) is not None
        for found in budgets(case, arm.result.calibration)
        if found.launch_path in launch_paths
    )
    columns = (
        *("Config", "Variant", "Launch", "Step", "Host", "Device left", "Latency"),
        *("Residual", "(%)", "Hidden", "Gaps"),
    )
    return Table(columns, rows, num_text_columns=3) if rows else None


def _measured_regimes(arms: Arms, operation: Operation, regimes: Mapping[str, Series]) -> list[str]:
    """Headings of measured regimes; none if only Triton's call on an idle GPU was measured."""
    taken = {
        measurement.series
        for arm in arms.all
        for case in arm.cases.values()
        if case.operation is operation
        for measurement in case.measurements
    }
    measured = [name for name, series in regimes.items() if series in taken]
    return measured if set(measured) - _IDLE_REGIMES else []


def _regime_cell(arm: Arm, case: CaseResult, series: Series, found: Sequence[Crosscheck]) -> Cell:
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
