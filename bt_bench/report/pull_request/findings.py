"""The machine-made part of a pull request: measured claims, limits, certainty, provenance."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bt_bench import __version__
from bt_bench.analysis import Judgement, crash_text, median, tally, tally_of
from bt_bench.base import ABSENT, Cell, Table, format_factors
from bt_bench.base.errors import counted, listed
from bt_bench.base.names import DEFAULT_SUITE
from bt_bench.report.evidence import Evidence, ReportedRun
from bt_bench.report.formats.phrases import TIMES, noun_of, sentences
from bt_bench.report.formats.texts import (
    clean,
    side_text,
    span_text,
    speed_up_texts,
    value_text,
)
from bt_bench.report.pull_request.certainty import certainty_of
from bt_bench.report.run.arranged import Arms, primary_series
from bt_bench.report.run.brief import failure_texts, missed_texts
from bt_bench.report.run.brief_tables import LAUNCHES, all_cases_fit, launch_text, time_table
from bt_bench.report.run.facts import check_text, measured_on, progress_text
from bt_bench.results import (
    Series,
    Status,
    VariantResult,
    folder_of,
    operations_of,
    public_text,
    suite_name,
    sweep_commands,
)

MOST_ITEMS = 16
"""Most texts of a list; a line counts the others."""

_LONGEST = 400  # characters of a text
_OPPONENT = re.compile(r"vllm(_.*)?")


@dataclass(frozen=True)
class Row:
    """One time of an operation for one side, over the cases.

    Args:
        operation: name of the operation.
        base: label of the side that is compared with.
        other: label of the side that is judged.
        metric: name of the metric.
        noun: the metric in words, such as `host time`.
        verdicts: their counts, in words.
        cases: number of cases.
        median: median of the speed-ups over the cases; `None` without any.
        worst: the case with the smallest speed-up; `None` likewise.
    """

    operation: str
    base: str
    other: str
    metric: str
    noun: str
    verdicts: str
    cases: int
    median: float | None
    worst: Judgement | None


@dataclass(frozen=True)
class Findings:
    """All that was measured, as plain texts; each format escapes them.

    Args:
        source: the runs, and the program that wrote the draft.
        claims: who is faster, by how much, and whether the results are right.
        limits: effects that the runs do not show, and reasons for doubt.
        rows: median and worst speed-up, by operation, side and time.
        times: medians of the only variant, by operation; empty if several were compared.
        launches: device operations per step, by operation.
        certainty: verdicts, rounds, their spread, and differences of equal code.
        method: the rules of decision.
        machine: hardware and versions.
        sides: the variants, in the words of their authors.
        commands: the shell commands that repeat the measurement.
        digests: SHA-256 of the sources, by name.
        decided: the verdicts that decide.
    """

    source: str
    claims: tuple[str, ...]
    limits: tuple[str, ...]
    rows: tuple[Row, ...]
    times: tuple[tuple[str, Table], ...]
    launches: tuple[str, ...]
    certainty: tuple[str, ...]
    method: tuple[str, ...]
    machine: tuple[str, ...]
    sides: tuple[str, ...]
    commands: tuple[str, ...]
    digests: tuple[tuple[str, str], ...]
    decided: tuple[Judgement, ...]


def findings_of(evidence: Evidence) -> Findings:
    """Gather the findings of one or more runs.

    Args:
        evidence: the runs and their comparison.
    """
    judged = evidence.judged
    judgements = judged.judgements if judged else ()
    rows = tuple(_rows(judgements))
    return Findings(
        source=_source(evidence),
        claims=_short(_claims(evidence)),
        limits=_short(_limits(evidence)),
        rows=rows,
        times=() if rows else tuple(_times(evidence)),
        launches=_short(_launches(evidence)),
        certainty=_short(_certainty(evidence)),
        method=judged.facts if judged else (),
        machine=_short(_machine(evidence)),
        sides=_short(_sides(evidence)),
        commands=tuple(_commands(evidence)),
        digests=tuple(_digests(evidence)),
        decided=tuple(judged.deciding) if judged else (),
    )


def _short(texts: Iterator[str]) -> tuple[str, ...]:
    """Return the first texts without repetitions, each cut to a length."""
    every = [*dict.fromkeys(texts)]
    found = [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in every]
    rest = len(found) - MOST_ITEMS
    return (*found[:MOST_ITEMS], *([f"… and {rest} more."] if rest > 0 else []))


def _results(evidence: Evidence) -> list[VariantResult]:
    return [arm.result for run in evidence.runs for arm in run.arms.all]


def _source(evidence: Evidence) -> str:
    runs = dict.fromkeys(result.run_id for result in _results(evidence))
    which = f"the run {next(iter(runs))}" if len(runs) == 1 else f"the runs {listed([*runs])}"
    return f"bt-bench {__version__} wrote it from {which}"


def _claims(evidence: Evidence) -> Iterator[str]:
    if evidence.judged is not None:
        told = [*sentences(evidence.judged.judgements)]
        yield from told
        if not told:
            yield "No time that decides was compared."
    for run in evidence.runs:
        if checked := check_text(run.arms):
            of_run = f"Run {run.arms.baseline.result.run_id}: " if len(evidence.runs) > 1 else ""
            yield f"{of_run}{checked}."


def _limits(evidence: Evidence) -> Iterator[str]:
    """Yield effects that the runs do not show, then reasons to doubt those that they do."""
    results = _results(evidence)
    suites = dict.fromkeys(suite_name(result.suite) for result in results)
    if evidence.on_cpu:
        yield (
            "No GPU was used. Nothing here shows that anything is faster on one: launches were "
            "counted by Triton's interpreter, and only staging on the host was timed."
        )
    for run in evidence.runs:
        if run.is_partial:
            yield progress_text(run.arms, run.planned_cases)
    if evidence.judged is None:
        yield f"Only {results[0].variant.name} was measured, so nothing is compared."
    if foreign := [suite for suite in suites if suite != DEFAULT_SUITE]:
        yield (
            f"The suite is {listed(foreign)}, not the block tables of vLLM ({DEFAULT_SUITE}): its "
            "author defines the operations and the checks."
        )
    else:
        yield from _about_vllm(evidence)
    yield (
        "Calls were timed in a process of their own, without a model or a server. A saved "
        "microsecond of host time shows in no latency where the engine waits for the GPU anyway."
    )
    if len(evidence.runs) == 1:
        yield "One run on one machine: the intervals cover the noise of this run, not other hosts."
    else:
        yield (
            f"The sides are of {len(evidence.runs)} runs, between which a machine changes; their "
            "verdicts are advisory."
        )
    for run in evidence.runs:
        yield from _gaps(run)
    if evidence.judged is not None:
        yield from (f"Warning: {warning}." for warning in evidence.judged.warnings)
    yield from (f"{line}." for line in evidence.not_compared)


def _gaps(run: ReportedRun) -> Iterator[str]:
    arms = run.arms
    if run.absent:
        yield f"Without any result, though the run's config names them: {', '.join(run.absent)}."
    yield from (f"{text.rstrip('.')}." for text in failure_texts(arms))
    if not arms.case_ids:
        yield "The run has no cases."
    elif not any(case.status is Status.OK for arm in arms.all for case in arm.cases.values()):
        yield "No case is ok, so there are no figures."
    for arm in arms.all:
        yield from (
            f"Crash that did not happen again: {arm.name}, {crash_text(crash)}."
            for crash in arm.result.crashes
        )
    environment = arms.baseline.result.environment
    if environment.commit is None:
        reason = " ".join((environment.commit_unknown or "").split())
        yield f"The commit of the sources was not recorded{f': {reason}' if reason else '.'}"
    elif environment.dirty:
        yield "The sources had uncommitted changes; the commit alone does not reproduce them."
    yield from missed_texts(arms)


def _about_vllm(evidence: Evidence) -> Iterator[str]:
    """Yield whether vLLM's own class is the base."""
    base = evidence.base_variant
    names = dict.fromkeys(result.variant.name for result in _results(evidence))
    own = [name for name in names if _OPPONENT.fullmatch(name)]
    if not own:
        is_base = f"; the base is {base}" if base else ""
        yield (
            f"No side is vLLM's own code{is_base}. A sweep with --vllm-source DIR and --variants "
            f"vllm,{','.join(names)} measures both."
        )
    elif evidence.judged is not None and base is not None and base not in own:
        yield (
            f"The base is {base}, not vLLM's own code, though {own[0]} was measured. "
            f"bt-bench report RUN/{own[0]}.json RUN/VARIANT.json --format pr compares with it."
        )


def _rows(judgements: Sequence[Judgement]) -> Iterator[Row]:
    groups: dict[tuple[str, str, str, str], list[Judgement]] = {}
    for each in sorted(judgements, key=lambda one: -one.operation.rank):
        if each.metric in TIMES and not each.exploratory:
            key = str(each.operation), each.base, each.other, each.metric
            groups.setdefault(key, []).append(each)
    for (operation, base, other, metric), members in groups.items():
        valid = [each for each in members if each.ratio and math.isfinite(each.ratio)]
        ratios = [each.ratio for each in valid if each.ratio]
        yield Row(
            operation,
            base,
            other,
            metric,
            noun_of(TIMES[metric]),
            tally(members),
            len(members),
            1 / median(ratios) if ratios else None,
            max(valid, key=lambda each: each.ratio or 0.0, default=None),
        )


def summary_table(rows: Sequence[Row]) -> Table:
    """Build a table of median and worst speed-up, by operation, side and time."""
    return Table(
        (
            *("Operation", "Side", "Time", "Cases", "Verdicts", "Median", "Worst (interval)"),
            *("Worst case", "Its times, µs"),
        ),
        tuple(_cells(row) for row in rows),
        num_text_columns=5,
    )


def _cells(row: Row) -> tuple[Cell, ...]:
    worst, point = row.worst, ABSENT
    if row.median is not None:
        point = f"{format_factors(row.median)[0]} ×"
    if worst is None:
        tail = (ABSENT, ABSENT, ABSENT)
    else:
        texts = speed_up_texts(worst)
        whole = texts.whole if texts.whole != ABSENT else f"{texts.point} ×"
        values = (value_text(value, worst.unit) for value in (worst.base_value, worst.other_value))
        tail = (whole, cut(worst.case), " → ".join(values))
    side = cut(side_text(row.base, row.other))
    texts_of_row = (cut(row.operation), side, row.noun, str(row.cases), row.verdicts, point)
    return tuple(map(Cell, (*texts_of_row, *tail)))


def cut(text: str) -> str:
    """Return a name on one line, cut to 80 characters for a cell."""
    name = clean(text)
    return name if len(name) <= 80 else f"{name[:79]}…"


def _times(evidence: Evidence) -> Iterator[tuple[str, Table]]:
    """Yield the medians of a run without a comparison."""
    for run in evidence.runs:
        arms = run.arms
        for operation in reversed([*operations_of(arms.baseline.result.suite).values()]):
            shown = [series for series in primary_series(arms, operation) if _samples(arms, series)]
            if arms.cases_of(operation) and shown:
                fits = all_cases_fit(arms, operation, len(shown))
                yield operation.traits.title, time_table(arms, operation, shown, fits)


def _samples(arms: Arms, series: Series) -> bool:
    cases = (case for arm in arms.all for case in arm.cases.values())
    return any(case.measurement(series) is not None for case in cases)


def _launches(evidence: Evidence) -> Iterator[str]:
    if evidence.judged is None:
        arms = evidence.runs[0].arms
        for operation in operations_of(arms.baseline.result.suite).values():
            if text := launch_text(arms, operation):
                yield f"{operation.traits.title}. {text}"
        return
    counts: dict[str, dict[str, list[float]]] = {}
    for each in evidence.judged.judgements:
        if each.metric == LAUNCHES:
            of_side = counts.setdefault(str(each.operation), {})
            for side, value in ((each.base, each.base_value), (each.other, each.other_value)):
                of_side.setdefault(side, []).extend([] if value is None else [value])
    for name, of_sides in reversed(counts.items()):
        known = [
            f"{side} {span_text(*(value_text(most(found), 'count') for most in (min, max)))}"
            for side, found in of_sides.items()
            if found
        ]
        if known:
            yield f"Device operations per step of {name}: {', '.join(known)}."


def _certainty(evidence: Evidence) -> Iterator[str]:
    if evidence.judged is not None:
        yield f"Verdicts: {tally_of(evidence.judged)}."
    for run in evidence.runs:
        yield from certainty_of(run.arms)


def _machine(evidence: Evidence) -> Iterator[str]:
    for run in evidence.runs:
        results = [arm.result for arm in run.arms.all]
        yield from measured_on(results)
        for environment in dict.fromkeys(
            (
                each.cpu,
                each.cpu_count,
                each.platform,
                each.python,
            )
            for result in results
            for each in result.environments
        ):
            cpu, count, platform, python = environment
            cores = f", {counted(count, 'CPU')}" if count else ""
            yield f"Host: {cpu or 'an unknown CPU'}{cores}, {platform}, Python {python}."


def _sides(evidence: Evidence) -> Iterator[str]:
    for result in _results(evidence):
        yield f"{result.variant.name}: {result.variant.summary}"


def _commands(evidence: Evidence) -> Iterator[str]:
    """Yield the commands that repeat the measurement, the comparison and this draft."""
    for run in evidence.runs:
        results = [arm.result for arm in run.arms.all]
        environment = results[0].environment
        commit = f"commit {environment.commit}, " if environment.commit else ""
        yield (
            f"# bt-bench {results[0].tool.version}, {commit}torch {environment.torch or '?'}, "
            f"Triton {environment.triton or '?'}"
        )
        yield from sweep_commands(results)
    paths = [shlex.quote(public_text(str(path))) for path in evidence.paths]
    if len(paths) == len(evidence.runs) == 1 and evidence.judged is not None:
        first = evidence.runs[0].arms.baseline.result
        paths = [shlex.quote(folder) for folder in [folder_of(first)] if folder] or paths
    if evidence.judged is not None:
        yield f"bt-bench compare {' '.join(paths)}"
    yield f"bt-bench report {' '.join(paths)} --format pr"


def _digests(evidence: Evidence) -> Iterator[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for result in _results(evidence):
        if result.suite is not None:
            found[f"suite {result.suite.name}", result.suite.source_sha256] = None
        found[f"variant {result.variant.name}", result.variant.source_sha256] = None
    yield from found
