"""The report of one run: environment, tables per operation, failures, advice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bt_bench.analysis import EVERYTHING, Rules, Selection, crash_text, family_facts
from bt_bench.base import Block, Bullets, Document, Section, Table
from bt_bench.base.names import Operation
from bt_bench.report.calibration import calibration_section
from bt_bench.report.run.advice import advice
from bt_bench.report.run.arranged import Arms, arrange, is_resolved
from bt_bench.report.run.facts import measured_on, progress_text, run_facts
from bt_bench.report.run.regime_tables import (
    budget_table,
    change_table,
    exploratory_table,
    host_table,
    regime_table,
)
from bt_bench.report.run.tables import distribution_table, event_table, time_table
from bt_bench.report.run.work import WORK_CAPTION, work_table
from bt_bench.results import (
    CaseResult,
    Quantity,
    Status,
    VariantResult,
    in_report_order,
    series_of,
)

FailedCase = tuple[str, CaseResult]
"""The name of a variant, and a case that is not `ok` for it, so it is not compared."""

_LONGEST_MESSAGE = 600
_MOST_PLACES = 3  # of cases that failed alike
_CRASHES = "Crashes that did not happen again"
_LESS_THAN_FAILED = (Status.INSUFFICIENT, Status.UNSUPPORTED)


def run_document(
    results: Sequence[VariantResult],
    planned_cases: int | None = None,
    selection: Selection = EVERYTHING,
) -> Document:
    """Build the whole report of a run, as in `comparison.md`; `brief_document` fits a terminal.

    Args:
        results: results of the run's variants.
        planned_cases: number of cases of a complete sweep, to show how far it is.
        selection: the part to show.

    Raises:
        UsageError: without results, and for a selection that matches nothing.
    """
    return arms_document(arrange(results, selection), planned_cases, results)


def arms_document(
    arms: Arms, planned_cases: int | None = None, results: Sequence[VariantResult] = ()
) -> Document:
    """Build the whole report of a run whose results are arranged; see `run_document`.

    Args:
        arms: the shown results.
        planned_cases: number of cases of a complete sweep.
        results: all results, if not all of them are shown.
    """
    results = results or [arm.result for arm in arms.all]
    failures = tuple(failures_of(arms))
    crashes = tuple(_crashes(arms))
    sections = [
        _operation_section(arms, operation)
        for operation in in_report_order(results[0].suite)
        if arms.cases_of(operation)
    ]
    if failures:
        sections.append(failure_section(failures))
    if crashes:
        sections.append(Section(_CRASHES, (Bullets(crashes),)))
    sections += calibration_sections(arms.baseline.result)
    sections.append(advice(arms))
    partial = not all(result.complete for result in results)
    return Document(
        title=title_of(results, partial),
        lead=(
            *measured_on(results),
            *([progress_text(arms, planned_cases)] if partial else []),
            *([arms.selected] if arms.selected else []),
            *run_facts(arms),
            *_family_facts(arms),
            *_failure_facts(failures),
            *_crash_facts(crashes),
            *_workload_facts(arms),
        ),
        sections=tuple(sections),
    )


def calibration_sections(result: VariantResult) -> Iterator[Section]:
    """Yield a section for the calibration of a run, or one for each part of a merged run."""
    for part in result.part_numbers:
        calibration, name = result.calibration_of(part), result.part_name(part)
        if calibration is not None:
            section = calibration_section(calibration, profiles=bool(result.plan.profile_rounds))
            yield section if name is None else replace(section, title=f"{section.title}: {name}")


def title_of(results: Sequence[VariantResult], partial: bool) -> str:
    """Return the title, which must already show if the run is partial or had no GPU."""
    title = f"Comparison: {results[0].config}"
    if all(result.environment.device == "cpu" for result in results):
        title += " (no GPU: device times are absent)"
    return f"{title} (PARTIAL)" if partial else title


def failure_section(failures: Sequence[FailedCase]) -> Section:
    """Build a section with a line per failure: variant, cases, status and reason.

    Long messages are cut; the files have them whole. Cases of one variant that failed for one
    reason share a line: a variant that fails a conformance workload fails all of its cases.
    """
    alike: dict[tuple[str, Status, str], list[CaseResult]] = {}
    for name, case in failures:
        alike.setdefault((name, case.status, _reason_text(case)), []).append(case)
    lines = (
        f"{label}, {_places(of)}: {status}{reason}" for (label, status, reason), of in alike.items()
    )
    return Section(_failure_title(failures), (Bullets(tuple(lines)),))


def _places(cases: Sequence[CaseResult]) -> str:
    """Return the keys of cases; if there are many, only the first ones."""
    keys = [case.key for case in cases]
    if len(keys) <= _MOST_PLACES:
        return ", ".join(keys)
    return f"{', '.join(keys[: _MOST_PLACES - 1])} and {len(keys) - _MOST_PLACES + 1} more cases"


def _failure_title(failures: Iterable[FailedCase]) -> str:
    statuses = {case.status for _, case in failures}
    kinds = [status.value for status in _LESS_THAN_FAILED if status in statuses]
    cases = f"{' and '.join(kinds)} cases"
    if Status.FAILED not in statuses:
        return cases.capitalize()
    return f"Failures{', ' if len(kinds) > 1 else ' and '}{cases}" if kinds else "Failures"


def _reason_text(case: CaseResult) -> str:
    if case.reason is None:
        return ""
    message = case.reason.message
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "…"
    if case.status is Status.UNSUPPORTED:
        return f", {message}"
    return f", {case.reason.code}: {message}"


def failures_of(arms: Arms) -> Iterator[FailedCase]:
    """Yield the cases that are not `ok`, by variant."""
    for arm in arms.all:
        yield from ((arm.name, case) for case in arm.result.cases if case.status is not Status.OK)


def _failure_facts(failures: Sequence[FailedCase]) -> Iterator[str]:
    if failures:
        title = _failure_title(failures)
        yield f"Not every case is ok: {len(failures)} listed under {title}, after the tables."


def _crashes(arms: Arms) -> Iterator[str]:
    for arm in arms.all:
        yield from (f"{arm.name}, {crash_text(crash)}" for crash in arm.result.crashes)


def _family_facts(arms: Arms) -> Iterator[str]:
    """Yield how verdicts are corrected for multiple tests, if the tables have any."""
    if arms.judged is not None and not arms.on_cpu:
        yield from family_facts(arms.judged.judgements, Rules())


def _workload_facts(arms: Arms) -> Iterator[str]:
    """Yield the remarks of the workloads, such as how much of a trace was left out; each once."""
    cases = (case for arm in arms.all for case in arm.result.cases)
    yield from dict.fromkeys(
        f"{case.case}: {remark}" for case in cases for remark in case.workload.remarks
    )


def _crash_facts(crashes: Sequence[str]) -> Iterator[str]:
    if crashes:
        count = "1 crash" if len(crashes) == 1 else f"{len(crashes)} crashes"
        yield f"Warning: {count} listed under {_CRASHES}, after the tables."


def _operation_section(arms: Arms, operation: Operation) -> Section:
    blocks: list[Block] = []
    if arms.on_cpu:
        blocks.append("Event, host, device and step times need a GPU.")
    for caption, table in _tables(arms, operation):
        if table is not None and table.rows:
            blocks += [caption, table]
    notes = tuple(_notes(arms, operation))
    if notes:
        blocks += ["Missing, and why:", Bullets(notes)]
    return Section(operation.traits.title, tuple(blocks))


def _notes(arms: Arms, operation: Operation) -> Iterator[str]:
    for arm in arms.all:
        for case in arm.result.cases:
            if case.operation == operation:
                yield from (f"{arm.name}, {case.case}: {note}" for note in case.notes)


def _tables(arms: Arms, operation: Operation) -> Iterator[tuple[str, Table | None]]:
    """Yield the tables of an operation with their captions, in order."""
    on_device = not arms.on_cpu and not operation.traits.on_host
    if not arms.on_cpu:
        yield (
            f"Changes of the primary metrics in percent of {arms.baseline.name}:",
            change_table(arms, operation),
        )
    if on_device:
        yield (
            "Event times, medians (they include the cost of launching from Python), and their "
            "changes, which are exploratory:",
            event_table(arms, operation),
        )
    times = "Times" if on_device else "Staging times"
    over = ", for a window of several steps over its steps" if _has_windows(arms, operation) else ""
    doubt = _doubt(arms, operation)
    caption = f"{times} in µs, medians{over}, and launches per step{doubt}:"
    yield caption, time_table(arms, operation)
    yield (
        "Distribution of the medians of the steps of a window:",
        distribution_table(arms, operation),
    )
    if on_device:
        yield from _regimes(arms, operation)


def _doubt(arms: Arms, operation: Operation) -> str:
    """Return a warning not to read differences into the table, if no time is resolved."""
    if not arms.on_cpu or not arms.others:
        return ""
    if is_resolved(arms, operation, series_of(Quantity.STAGE_US)):
        return ""
    return "; no difference between these times is resolved"


def _regimes(arms: Arms, operation: Operation) -> Iterator[tuple[str, Table | None]]:
    yield (
        "By regime, in µs: a step on an idle GPU; the time that it adds to a busy GPU with a hot "
        "and a cold L2; a replayed graph; the host's part by Triton's call:",
        regime_table(arms, operation),
    )
    yield "The host's part by launch path, in µs:", host_table(arms, operation)
    yield (
        f"Changes by regime in percent of {arms.baseline.name}, which are exploratory:",
        exploratory_table(arms, operation),
    )
    yield (
        "Where the time of a step goes, in µs, on an idle GPU: step = host + device work left when "
        "the call returns + launch latency and synchronize + residual. Beside that, device work "
        "hidden behind the host, and gaps in which the device waited for it:",
        budget_table(arms, operation),
    )
    yield WORK_CAPTION, work_table(arms, arms.cases_of(operation))


def _has_windows(arms: Arms, operation: Operation) -> bool:
    return any(
        case.workload.num_steps > 1
        for arm in arms.all
        for case in arm.cases.values()
        if case.operation == operation
    )
