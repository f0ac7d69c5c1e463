"""The page of a comparison of several runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from bt_bench.analysis import Judged, Judgement, tally_of
from bt_bench.base import Block, Bullets, Cell, Section, Table, unit_text
from bt_bench.report.evidence import Evidence
from bt_bench.report.formats.phrases import sentences
from bt_bench.report.formats.texts import (
    TONES,
    change_text,
    range_texts,
    value_text,
    verdict_text,
)
from bt_bench.report.page import parts
from bt_bench.report.page.grid import judged_grid, operation_title
from bt_bench.report.page.parts import CasePart, Page, PageSection
from bt_bench.report.page.speed_ups import primary_groups, speed_up_chart
from bt_bench.report.run.facts import measured_on, measuring_facts
from bt_bench.results import sweep_commands


def compared_page(evidence: Evidence) -> Page:
    """Build the page of a comparison of runs.

    Raises:
        ValueError: if there is nothing to compare.
    """
    judged = evidence.judged
    if judged is None:
        raise ValueError("expected a comparison, got a single result")
    return judged_page(judged, tuple(_details(evidence)), evidence.not_compared)


def judged_page(
    judged: Judged,
    details: Sequence[Section] = (),
    doubts: Sequence[str] = (),
    first: PageSection | None = None,
    blocks_of: Callable[[str], Iterable[parts.Block]] = lambda _: (),
) -> Page:
    """Build the page of verdicts, whatever they were taken from.

    Args:
        judged: the verdicts.
        details: further sections.
        doubts: why too little was compared, a clause each.
        first: the first section; by default the intervals of the times.
        blocks_of: returns what the part on a case shows beside its verdicts, by the case's key.
    """
    arms = (judged.base, *judged.others)
    keys = dict.fromkeys(each.key for each in judged.judgements)
    anchors = {key: f"case-{index}" for index, key in enumerate(keys)}
    by_key: dict[str, list[Judgement]] = {key: [] for key in keys}
    for each in judged.judgements:
        by_key[each.key].append(each)
    power = judged.power.sentence if judged.power else ""  # in the facts of a gate, too
    facts = [each for each in judged.facts if each != power]
    return Page(
        title=judged.title,
        answer=(
            *([f"{judged.subject}."] if judged.subject else []),
            *sentences(judged.judgements),
            *([power] if power else []),
            f"Verdicts: {tally_of(judged)}.",
        ),
        warnings=(
            *([judged.unseen] if judged.unseen else []),
            *doubts,
            *judged.warnings,
            *judged.self_checks,
            *judged.scope,
        ),
        sections=(
            first or _intervals(judged.judgements, arms),
            PageSection("", (judged_grid(judged.judgements, arms, anchors.get),)),
            PageSection("How it was decided", (Bullets(tuple(facts)),)),
            *details,
        ),
        cases=tuple(
            _case(anchors[key], members, blocks_of(key)) for key, members in by_key.items()
        ),
        arms=arms,
    )


def _intervals(judgements: Sequence[Judgement], arms: Sequence[str]) -> PageSection:
    groups = primary_groups(judgements)
    charts = [chart for group in groups if (chart := speed_up_chart(group, arms)) is not None]
    return PageSection(
        "Who is faster, by how much, how sure",
        tuple(charts) or ("No time was compared; the table has what was.",),
    )


def _details(evidence: Evidence) -> Iterator[Section]:
    for run, path in zip(evidence.runs, evidence.paths, strict=False):
        results = [arm.result for arm in run.arms.all]
        blocks: tuple[Block, ...] = (
            Bullets((*measured_on(results), *measuring_facts(run.arms))),
            Bullets(tuple(sweep_commands(results))),
        )
        yield Section(f"Run {results[0].run_id} ({path.name or path})", blocks)


def _case(anchor: str, judgements: Sequence[Judgement], more: Iterable[parts.Block]) -> CasePart:
    first = judgements[0]
    rows = []
    for each in judgements:
        texts = range_texts(each)
        unit = unit_text(each.unit)
        metric = each.metric if unit in ("", each.metric) else f"{each.metric}, {unit}"
        rows.append(
            (
                Cell(metric),
                Cell(each.other),
                Cell(value_text(each.base_value, each.unit)),
                Cell(value_text(each.other_value, each.unit)),
                Cell(change_text(each.ratio)),
                Cell(texts.interval),
                Cell(texts.limit),
                Cell(verdict_text(each), each.detail, TONES.get(each.verdict)),
            )
        )
    columns = ("Base", "Other", "Change, %", "Interval, %", "Detectable, %", "Verdict")
    table = Table(("Metric", "Side", *columns), tuple(rows), 2)
    return CasePart(anchor, f"{operation_title(first.operation)}, {first.case}", (table, *more))
