"""The page of one run."""

from __future__ import annotations

from collections.abc import Iterator

from bt_bench.analysis import Rules, crash_text
from bt_bench.base import Block, Bullets, Cell, Section, Table
from bt_bench.base.names import Operation
from bt_bench.report.page.bars import budget_chart, budget_sentence, launching_sentence
from bt_bench.report.page.cases import case_part
from bt_bench.report.page.grid import judged_grid, operation_title
from bt_bench.report.page.parts import (
    BarChart,
    CasePart,
    Grid,
    GridCell,
    GridColumn,
    IntervalChart,
    LineChart,
    Page,
    PageSection,
)
from bt_bench.report.page.regimes import regime_chart, regime_sentence
from bt_bench.report.page.samples import MOST_SAMPLES, count_samples
from bt_bench.report.page.scaling import scaling_charts
from bt_bench.report.page.speed_ups import metric_heading, primary_groups, speed_up_chart
from bt_bench.report.run.advice import advice
from bt_bench.report.run.arranged import Arms, CaseId, primary_series
from bt_bench.report.run.brief import brief_title, failure_texts, missed_texts, summaries
from bt_bench.report.run.brief_tables import launch_text
from bt_bench.report.run.cells import launch_cell, no_case_cell, time_of
from bt_bench.report.run.document import calibration_sections, failure_section, failures_of
from bt_bench.report.run.facts import measured_on, measuring_facts, progress_text
from bt_bench.report.run.work import work_text
from bt_bench.results import (
    Quantity,
    condition_texts,
    fallback_texts,
    metric_of,
    series_of,
    sweep_commands,
)

_MOST_WITH_CHARTS = 300  # cases that have charts of their own; more would take megabytes
_NOTHING = "No speed-up can be shown: "


def run_page(arms: Arms, planned_cases: int | None = None) -> Page:
    """Build the page of one run, whatever of it exists.

    Args:
        arms: the run.
        planned_cases: number of cases of a complete sweep, to show how far it is.
    """
    partial = not all(arm.result.complete for arm in arms.all)
    anchors = {case_id.key: f"case-{index}" for index, case_id in enumerate(arms.case_ids)}
    result = arms.baseline.result
    answer = tuple(_answer(arms))
    return Page(
        title=brief_title(arms, partial=partial),
        answer=answer,
        warnings=tuple(_warnings(arms, planned_cases if partial else None, partial=partial)),
        remarks=tuple(_remarks(arms)),
        sections=(
            PageSection("Who is faster, by how much, how sure", tuple(_pictures(arms))),
            PageSection("Where the time goes", tuple(_where(arms))),
            PageSection("", (_grid(arms, anchors),)),
            PageSection("Growth with the size of a step", tuple(_growth(arms))),
            PageSection("In other regimes", tuple(_regimes(arms))),
            *_details(arms),
        ),
        cases=tuple(_cases(arms, anchors)),
        arms=tuple(arm.name for arm in arms.all),
        footer=(f"Run {result.run_id} of {result.created}, by bt-bench {result.tool.version}.",),
    )


def _answer(arms: Arms) -> Iterator[str]:
    for section in summaries(arms):
        sentences = [
            sentence
            for block in section.blocks
            if isinstance(block, Bullets)
            for sentence in block.items
        ]
        yield f"{section.title}:"
        yield from sentences
    for operation in _operations(arms)[:1]:
        middle = _middle_case(arms, operation)
        found = (middle and budget_sentence(arms, middle), regime_sentence(arms, operation))
        if any(found):
            yield f"{operation_title(operation)}: where its time goes, and what changes that:"
            yield from filter(None, found)
    if arms.on_cpu:  # without times, launches are the answer
        for operation in _operations(arms):
            if launches := launch_text(arms, operation):
                yield f"{operation_title(operation)}: {launches}"


def _warnings(arms: Arms, planned_cases: int | None, *, partial: bool) -> Iterator[str]:
    if partial:
        yield progress_text(arms, planned_cases)
    if arms.on_cpu:
        yield "Without a GPU: results and launches are valid, and there are no times of a GPU."
    if not arms.others:
        yield f"Only {arms.baseline.name} was measured: there is nothing to compare it with."
    yield from failure_texts(arms)
    for arm in arms.all:
        yield from (f"{arm.name}, crash: {crash_text(crash)}" for crash in arm.result.crashes)


def _remarks(arms: Arms) -> Iterator[str]:
    yield from missed_texts(arms)
    environment = arms.baseline.result.environment
    yield from condition_texts(environment.conditions)
    yield from fallback_texts(environment.helpers)


def _pictures(arms: Arms) -> Iterator[IntervalChart | str | Table]:
    judgements = arms.judged.judgements if arms.judged else ()
    names = [arm.name for arm in arms.all]
    groups = primary_groups(judgements)
    if arms.on_cpu:  # of staging alone, in few rounds: intervals that say nothing are left out
        groups = [group for group in groups if group.is_resolved]
    charts = [chart for group in groups if (chart := speed_up_chart(group, names)) is not None]
    yield from charts
    if charts and not arms.on_cpu:
        percent = 100 * Rules().alpha
        yield (
            "How sure: verdicts rest on intervals that are corrected for the number of tests. The "
            "chance of any false SLOWER among the primary metrics of a variant is at most "
            f"{percent:g} %, and so is that of any false FASTER."
        )
    if not charts:
        if not arms.others:
            yield f"{_NOTHING}one variant alone was measured."
        elif arms.on_cpu:
            yield f"{_NOTHING}times need a GPU, and no difference in staging is resolved."
        else:
            yield f"{_NOTHING}no case has a time on both sides."


def _where(arms: Arms) -> Iterator[BarChart | str]:
    """Yield the budget of one case of each operation: the one with the middle step time."""
    charts, cases = {}, []
    for operation in _operations(arms):
        middle = _middle_case(arms, operation)
        title = middle and f": {operation_title(operation)}, {middle.case}"
        if middle and title and (chart := budget_chart(arms, middle, title)) is not None:
            charts[operation] = chart
            cases.append(middle)
    if not charts:
        yield "No budget of a step: it takes host, device and step times, which need a GPU."
        return
    others = "; the others are under Case by case" * _has_charts(arms)
    yield f"Shown is the case of each operation with the middle step time{others}."
    for operation, chart in charts.items():
        yield chart
        if bound := work_text(arms, operation):
            yield f"{operation_title(operation)}: {bound}"
    if ways := launching_sentence(arms, cases):
        yield ways


def _middle_case(arms: Arms, operation: Operation) -> CaseId | None:
    """Return the case of an operation with the middle step time; `None` if none has any."""
    times = {
        case_id: time_us
        for case_id in arms.cases_of(operation)
        if (time_us := arms.baseline.typical_us(case_id, series_of(Quantity.STEP_US))) is not None
    }
    return sorted(times, key=lambda case_id: times[case_id])[len(times) // 2] if times else None


def _operations(arms: Arms) -> list[Operation]:
    operations = dict.fromkeys(case_id.operation for case_id in arms.case_ids)
    return sorted(operations, key=lambda operation: -operation.rank)


def _grid(arms: Arms, anchors: dict[str, str]) -> Grid:
    if arms.judged is not None and arms.others:
        shown = {case_id.key for case_id in arms.case_ids}
        labels = {arm.name for arm in arms.others}
        judgements = [
            each for each in arms.judged.judgements if each.key in shown and each.other in labels
        ]
        return judged_grid(judgements, [arm.name for arm in arms.all], anchors.get)
    return _plain_grid(arms, anchors)


def _plain_grid(arms: Arms, anchors: dict[str, str]) -> Grid:
    """Build a table of medians alone, for a run of one variant."""
    arm = arms.baseline
    series = list(
        dict.fromkeys(
            each for operation in _operations(arms) for each in primary_series(arms, operation)
        )
    )
    columns = [GridColumn("Case"), GridColumn("Operation")]
    columns += [GridColumn(f"{metric_heading(metric_of(each).name)}, µs", True) for each in series]
    columns.append(GridColumn("Launches", numeric=True))
    rows = []
    for case_id in arms.case_ids:
        cells = [time_of(arm, case_id, each) for each in series]
        case = arm.ok_case(case_id)
        cells.append(no_case_cell(arm, case_id) if case is None else launch_cell(case))
        rows.append(
            (
                GridCell(case_id.case, link=anchors[case_id.key]),
                GridCell(operation_title(case_id.operation)),
                *(GridCell(cell.text) for cell in cells),
            )
        )
    return Grid("All cases", f"Medians of {arm.name}.", tuple(columns), tuple(rows))


def _growth(arms: Arms) -> Iterator[LineChart]:
    for operation in _operations(arms):
        yield from scaling_charts(arms, operation)


def _regimes(arms: Arms) -> Iterator[IntervalChart]:
    for operation in _operations(arms):
        chart = regime_chart(arms, operation)
        if chart is not None:
            yield chart


def _details(arms: Arms) -> Iterator[Section]:
    results = [arm.result for arm in arms.all]
    failures = tuple(failures_of(arms))
    if failures:
        yield failure_section(failures)
    facts: list[Block] = [Bullets((*measured_on(results), *measuring_facts(arms)))]
    yield Section("How it was measured", tuple(facts))
    commands = sweep_commands(results)
    yield Section("Repeat it", (Bullets(tuple(commands)),))
    result = results[0]
    plan = result.plan.model_dump(mode="json")
    rows = tuple((Cell(name), Cell(_plain(value))) for name, value in plan.items())
    yield Section("Plan", (Table(("Setting", "Value"), rows, 2),), folded=True)
    for section in calibration_sections(result):
        yield Section(section.title, section.blocks, folded=True)
    section = advice(arms)
    yield Section(section.title, section.blocks, folded=True)


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _has_charts(arms: Arms) -> bool:
    """Return whether each case has charts of its own."""
    return len(arms.case_ids) <= _MOST_WITH_CHARTS


def _cases(arms: Arms, anchors: dict[str, str]) -> Iterator[CasePart]:
    stride = max(1, -(-count_samples(arms) // MOST_SAMPLES))
    charts = _has_charts(arms)
    for case_id in arms.case_ids:
        yield case_part(arms, case_id, anchors[case_id.key], stride, charts=charts)
