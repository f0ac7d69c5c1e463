"""The report of a run for the terminal: one screen per operation; `comparison.md` has all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bt_bench.analysis import (
    EVERYTHING,
    WHOLE_CASE,
    Judgement,
    Selection,
    Verdict,
    machine_text,
    missed_promises,
    tally,
)
from bt_bench.base import Block, Bullets, Document, Section, format_number
from bt_bench.base.errors import counted, listed
from bt_bench.base.names import Operation
from bt_bench.report.run.arranged import Arms, arrange, is_resolved, primary_series
from bt_bench.report.run.brief_tables import (
    LAUNCHES,
    MARKS,
    NUM_WORST,
    all_cases_fit,
    judgements_of,
    launch_table,
    launch_text,
    marked,
    spread_table,
    time_table,
)
from bt_bench.report.run.cells import range_text
from bt_bench.report.run.document import failures_of
from bt_bench.report.run.facts import (
    brief_facts,
    check_text,
    measured_on,
    progress_text,
    stoppings,
)
from bt_bench.report.run.headlines import MAX_OTHERS, headlines
from bt_bench.report.run.work import work_text
from bt_bench.results import Series, Status, VariantResult, metric_of, operations_of

MAX_FAILURES = 5
"""Most kinds of failures that are listed."""

_LONGEST_MESSAGE = 240


def brief_document(
    results: Sequence[VariantResult],
    planned_cases: int | None = None,
    selection: Selection = EVERYTHING,
) -> Document:
    """Build the brief report: the checks, the measurements, and the main table per operation.

    Arguments and errors are those of `run_document`.
    """
    arms = arrange(results, selection)
    partial = not all(result.complete for result in results)
    operations = largest_first(arms)
    sections = [
        Section(operation.traits.title, tuple(_blocks(arms, operation))) for operation in operations
    ]
    sections = [*summaries(arms), *sections]
    failures = tuple(failure_texts(arms))
    if failures:  # first: they limit everything below
        sections.insert(0, Section("Not every case is ok", (Bullets(failures),)))
    this_run = (*missed_texts(arms), *measured_on(results), *brief_facts(arms))
    sections.append(Section("This run", this_run))
    return Document(
        title=brief_title(arms, partial=partial),
        lead=(
            *([progress_text(arms, planned_cases)] if partial else []),
            *([arms.selected] if arms.selected else []),
            *_crashes(arms),
        ),
        sections=tuple(sections),
    )


def largest_first(arms: Arms) -> list[Operation]:
    """Return the operations that have cases, the largest one first."""
    ordered = reversed([*operations_of(arms.baseline.result.suite).values()])
    return [operation for operation in ordered if arms.cases_of(operation)]


def summaries(arms: Arms) -> Iterator[Section]:
    """Yield a section per operation on who is fastest, and by how much."""
    for operation in largest_first(arms):
        sentences = tuple(headlines(arms, operation, _tabled(arms, operation)))
        if sentences:
            count = len(arms.cases_of(operation))
            over = f", over {count} cases" if count > 1 else ""
            title = f"{operation.traits.title}, against {arms.baseline.name}{over}, by medians"
            yield Section(title, (Bullets(sentences),))


def brief_title(arms: Arms, *, partial: bool) -> str:
    """Return the title: config, cases, machine, and whether the results are right."""
    cases = len({case_id.case for case_id in arms.case_ids})
    machines = dict.fromkeys(map(machine_text, arms.baseline.result.environments))
    where = "without a GPU" if arms.on_cpu else listed([*machines])
    checked = check_text(arms)
    rest = f"{counted(cases, 'case')} {where}{' (PARTIAL)' if partial else ''}"
    told = f"{arms.baseline.result.config}, {rest}"
    return f"{told}: {checked}" if checked else told


def _crashes(arms: Arms) -> Iterator[str]:
    crashes = sum(len(arm.result.crashes) for arm in arms.all)
    if crashes:
        plural = "1 crash" if crashes == 1 else f"{crashes} crashes"
        yield f"Warning: {plural} that did not happen again."


def missed_texts(arms: Arms) -> Iterator[str]:
    """Yield the promises about measurements that this machine does not keep."""
    result = arms.baseline.result
    for part in result.part_numbers:
        calibration, name = result.calibration_of(part), result.part_name(part)
        of_part = "" if name is None else f" of {name}"
        missed = missed_promises(calibration) if calibration else []
        yield from (f"Failed self-check{of_part}: {each.finding}." for each in missed)


def failure_texts(arms: Arms) -> Iterator[str]:
    """Yield a line per variant and reason, since a variant often fails all cases alike."""
    alike: dict[tuple[str, Status, str], list[str]] = {}
    for name, case in failures_of(arms):
        why = "" if case.reason is None else case.reason.message
        alike.setdefault((name, case.status, why), []).append(case.key)
    for (label, status, message), members in [*alike.items()][:MAX_FAILURES]:
        more = f" and {len(members) - 1} more" if len(members) > 1 else ""
        if len(message) > _LONGEST_MESSAGE:
            message = message[:_LONGEST_MESSAGE] + "…"
        yield f"{label}: {status} in {members[0]}{more}{f': {message}' if message else ''}"
    if len(alike) > MAX_FAILURES:
        rest = sum(map(len, [*alike.values()][MAX_FAILURES:]))
        yield f"… and {rest} more, which comparison.md lists"


def _blocks(arms: Arms, operation: Operation) -> Iterator[Block]:
    taken = _taken(arms, operation)
    tabled = _tabled(arms, operation)
    unresolved = [series for series in taken if series not in tabled]
    fits = all_cases_fit(arms, operation, len(tabled) + arms.on_cpu)
    if not fits and arms.others:
        num_cases = len(arms.cases_of(operation))
        yield f"Changes in percent of {arms.baseline.name} over {num_cases} cases:"
        counted = [LAUNCHES] if arms.on_cpu else []
        yield spread_table(
            arms, operation, [*counted, *(metric_of(series).name for series in taken)]
        )
    columns_fit = len(arms.others) <= MAX_OTHERS
    if arms.on_cpu and columns_fit:
        yield _which(arms, operation, fits, "launches per step:")
        yield launch_table(arms, operation, fits)
    elif launches := launch_text(arms, operation):
        yield launches
    if work := work_text(arms, operation):
        yield work
    if tabled and columns_fit:
        yield _which(arms, operation, fits, _caption(arms, operation, tabled))
        yield time_table(arms, operation, tabled, fits)
    yield from (_unresolved_text(arms, operation, series) for series in unresolved)
    if not columns_fit:
        yield f"By case: `bt-bench show` with --variants of at most {MAX_OTHERS}, or with --all."
    elif not fits:
        yield "The other cases: `bt-bench show` with -k PATTERNS, or with --all."
    yield from _also(arms, operation, taken)


def _taken(arms: Arms, operation: Operation) -> list[Series]:
    """Return the primary quantities that were measured."""
    return [series for series in primary_series(arms, operation) if _times(arms, operation, series)]


def _tabled(arms: Arms, operation: Operation) -> list[Series]:
    """Return the primary quantities that have a table.

    Without a GPU only staging is timed, which has a table only if a difference is resolved.
    """
    return [
        series
        for series in _taken(arms, operation)
        if not arms.on_cpu or is_resolved(arms, operation, series)
    ]


def _caption(arms: Arms, operation: Operation, tabled: Sequence[Series]) -> str:
    if not arms.others:
        return "medians:"
    if len(arms.others) == 1:
        return f"medians, and the speed-up over {arms.baseline.name} with its confidence interval:"
    marks = f" ({MARKS})" if marked(arms, operation, tabled) else ""
    return (
        f"medians of {arms.baseline.name}, and the speed-up of the others over it with its "
        f"confidence interval{marks}:"
    )


def _which(arms: Arms, operation: Operation, fits: bool, rest: str) -> str:
    """Return a caption that begins with the shown cases, if these are not all."""
    if fits:
        return f"{rest[0].upper()}{rest[1:]}"
    return f"The {NUM_WORST} worst of {len(arms.cases_of(operation))} cases, {rest}"


def _unresolved_text(arms: Arms, operation: Operation, series: Series) -> str:
    times = _times(arms, operation, series)
    low, high = (format_number(most(times)) for most in (min, max))
    title = series.quantity.traits.heading.capitalize()
    found = f"{title} times are {low if low == high else f'{low} to {high}'} µs"
    if not arms.others:
        return f"{found}."
    rounds = [stopping.rounds for stopping in stoppings(arms)]
    many = f" in {range_text(rounds)} rounds per case" if rounds else ""
    return f"{found}; no difference between the variants is resolvable{many}."


def _times(arms: Arms, operation: Operation, series: Series) -> list[float]:
    found = (
        arm.typical_us(case_id, series) for case_id in arms.cases_of(operation) for arm in arms.all
    )
    return [time for time in found if time is not None]


def _also(arms: Arms, operation: Operation, taken: Sequence[Series]) -> Iterator[str]:
    """Yield a sentence on slower and invalid verdicts by metrics that have no table here."""
    shown = {LAUNCHES, WHOLE_CASE.name, *(metric_of(series).name for series in taken)}
    worse: dict[str, list[Judgement]] = {}
    for each in judgements_of(arms, operation):
        if each.metric not in shown and each.verdict in (Verdict.SLOWER, Verdict.INVALID):
            worse.setdefault(each.other, []).append(each)
    if worse:
        counts = "; ".join(f"{name} {tally(members)}" for name, members in worse.items())
        yield f"By other metrics, which `bt-bench compare` lists: {counts}."
