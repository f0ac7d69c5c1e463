"""Table cells for times, changes and launches, with notes on doubts about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bt_bench.analysis import (
    METHOD_TITLES,
    Crosscheck,
    Judgement,
    Reading,
    crosschecks,
    disagreements,
    typical_us,
)
from bt_bench.base import ABSENT, Cell, Table, format_number
from bt_bench.base.names import Operation
from bt_bench.report.formats.texts import (
    TONES,
    change_text,
    range_texts,
    span_text,
    speed_up_texts,
    verdict_text,
)
from bt_bench.report.run.arranged import Arms, ArrangedArm, CaseId
from bt_bench.results import CaseResult, LaunchCensus, Load, Quantity, Series, Status, VariantResult

_STATUS_TEXTS = {Status.FAILED: "failed", Status.INSUFFICIENT: "INSUFFICIENT"}
_KIND_PLURALS = {
    "kernel": "kernels",
    "copy": "copies",
    "memset": "memsets",
    "torch_op": "torch ops",
}


def case_table(
    arms: Arms,
    operation: Operation,
    columns: Sequence[str],
    cells: Callable[[ArrangedArm, CaseResult], list[Cell]],
) -> Table:
    """Build a table with a row per case and variant; one without a result shows its status."""
    rows = []
    for case_id in arms.cases_of(operation):
        for arm in arms.all:
            case = arm.ok_case(case_id)
            blank = [no_case_cell(arm, case_id), *(Cell("") for _ in columns[1:])]
            row = blank if case is None else cells(arm, case)
            rows.append((Cell(case_id.case), Cell(arm.name), *row))
    return Table(("Config", "Variant", *columns), tuple(rows), num_text_columns=2)


def time_cell(arm: ArrangedArm, case: CaseResult, series: Series) -> Cell:
    """Return the typical time of a series in µs, or why there is none."""
    return _time_cell(typical_us(case, series), arm, case, series)


def _time_cell(value_us: float | None, arm: ArrangedArm, case: CaseResult, series: Series) -> Cell:
    if value_us is None:
        return Cell(ABSENT, _why_absent(arm.result, case, series))
    return Cell(format_number(value_us))


def time_of(arm: ArrangedArm, case_id: CaseId, series: Series) -> Cell:
    """Return the typical time of a series in a case in µs, or why there is none."""
    case = arm.ok_case(case_id)
    if case is None:
        return no_case_cell(arm, case_id)
    return _time_cell(arm.typical_us(case_id, series), arm, case, series)


def no_case_cell(arm: ArrangedArm, case_id: CaseId) -> Cell:
    """Return the cell in place of figures for a case that is not `ok`."""
    case = arm.cases.get(case_id)
    if case is not None:
        return Cell(_STATUS_TEXTS.get(case.status, case.status.value))
    if arm.result.complete:
        return Cell(ABSENT, f"{arm.name} has no such case")
    return Cell(ABSENT, "not reached: the run was interrupted")


def change_cells(judgement: Judgement | None) -> tuple[Cell, Cell, Cell]:
    """Return a change in µs and in percent, and its verdict; negative is below the baseline."""
    if judgement is None:
        return Cell(ABSENT), Cell(ABSENT), Cell(ABSENT)
    return (
        Cell(_change_us(judgement)),
        Cell(change_text(judgement.ratio)),
        _verdict_cell(judgement),
    )


def tested_cells(judgement: Judgement | None) -> tuple[Cell, Cell, Cell]:
    """Return a change in percent, the interval that its verdict rests on, and the verdict."""
    if judgement is None:
        return Cell(ABSENT), Cell(ABSENT), Cell(ABSENT)
    return (
        Cell(change_text(judgement.ratio)),
        Cell(range_texts(judgement).interval),
        _verdict_cell(judgement),
    )


def speed_up_cells(judgement: Judgement | None) -> tuple[Cell, Cell, Cell]:
    """Return a speed-up, the interval that its verdict rests on, and the verdict."""
    if judgement is None:
        return Cell(ABSENT), Cell(ABSENT), Cell(ABSENT)
    texts = speed_up_texts(judgement)
    point = ABSENT if texts.point == ABSENT else f"{texts.point} ×"
    return Cell(point), Cell(texts.interval), _verdict_cell(judgement)


def change_cell(judgement: Judgement | None) -> Cell:
    """Return a change in percent with its verdict: `-45.2 FASTER`."""
    if judgement is None:
        return Cell(ABSENT)
    change = "" if judgement.ratio is None else f"{change_text(judgement.ratio)} "
    return _verdict_cell(judgement, change)


def _verdict_cell(judgement: Judgement, before: str = "") -> Cell:
    """Return a verdict after a given text, with a note on the reason if no test was made.

    A tested verdict needs no note: the figures explain it.
    """
    note = judgement.detail if judgement.evidence is None else None
    return Cell(f"{before}{verdict_text(judgement)}", note, TONES.get(judgement.verdict))


def _change_us(judgement: Judgement) -> str:
    """Return the change in µs: the change of the ratio, times the base."""
    if judgement.ratio is None or judgement.base_value is None:
        return ABSENT
    text = format_number(judgement.base_value * (judgement.ratio - 1))
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"


def launch_cell(case: CaseResult) -> Cell:
    """Return the launches per step, or why they were not counted."""
    if case.launches is None or not case.launches.steps:
        return Cell(ABSENT, case.reason.message if case.reason else "not counted")
    return Cell(describe_launches(case.launches))


def describe_launches(census: LaunchCensus) -> str:
    """Return `2`; `2–5` if steps differ; `4 (3 kernels, 1 copy)` if not all are kernels."""
    kinds = dict.fromkeys(launch.kind for step in census.steps for launch in step)
    total = range_text(census.totals())
    if not set(kinds) - {"kernel"}:
        return total
    parts = []
    for kind in kinds:
        counts = [sum(la.count for la in step if la.kind == kind) for step in census.steps]
        name = kind.replace("_", " ") if set(counts) == {1} else _KIND_PLURALS[kind]
        parts.append(f"{range_text(counts)} {name}")
    return f"{total} ({', '.join(parts)})"


def range_text(counts: Sequence[int]) -> str:
    """Return `2`, or `2–5`."""
    return span_text(str(min(counts)), str(max(counts)))


def number_cell(value: float | None) -> Cell:
    """Return a number, or `–`."""
    return Cell(ABSENT if value is None else format_number(value))


def disagreements_of(arm: ArrangedArm, case: CaseResult) -> tuple[Crosscheck, ...]:
    """Return the cross-checks of a case whose methods do not agree."""
    return disagreements(crosschecks(case, arm.result.calibration_of(case.part)))


def concerns(check: Crosscheck, series: Series) -> bool:
    """Return whether a series is one of the two that are checked."""
    return series in (check.first.series, check.second.series)


def disagreement_note(checks: Iterable[Crosscheck]) -> str | None:
    """Return a note with the times of both methods, without intercepts, for each disagreement."""
    texts = [
        " against ".join(map(_reading, (check.first, check.second)))
        + f" for {_condition(check)} (tolerance {format_number(check.tolerance_us or 0.0)} µs)"
        for check in checks
    ]
    return f"methods disagree: {'; '.join(texts)}" if texts else None


def _reading(reading: Reading) -> str:
    corrected = format_number(reading.corrected_us or 0.0)
    return f"{corrected} by {METHOD_TITLES[reading.series.method]}"


def _condition(check: Crosscheck) -> str:
    series = check.second.series
    if series.load is Load.BUSY:
        return f"the span on a busy GPU, L2 {series.l2}"
    return "the busy time of a step"


def _why_absent(result: VariantResult, case: CaseResult, series: Series) -> str:
    if result.environment.device == "cpu" and series.quantity is not Quantity.STAGE_US:
        if series.quantity.traits.on_device:
            return "device times need a GPU"
        return "needs a GPU: without one it would be the interpreter's time"
    if series.quantity is Quantity.STAGE_US and not case.operation.traits.stages:
        return "nothing is staged"
    return case.reason.message if case.reason else "not measured"
