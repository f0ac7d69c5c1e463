"""The report of `bt-bench compare`: a comparison as a table, as Markdown or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bt_bench.compare import CasePair, Comparison, SeriesPair
from bt_bench.crosscheck import Crosscheck, Reading
from bt_bench.errors import UsageError
from bt_bench.model import OPERATION_TITLES
from bt_bench.operation import Operation
from bt_bench.report.cells import (
    disagreement_notes,
    number_cell,
    range_text,
    savings_cells,
    series_title,
)
from bt_bench.report.console import render_plain
from bt_bench.report.document import ABSENT, Bullets, Cell, Document, Section, Table
from bt_bench.report.markdown import render_document
from bt_bench.report.run_report import failure_section, order_operations
from bt_bench.resolution import Resolution
from bt_bench.units import format_number

COMPARISON_SCHEMA_VERSION = 2

COMPARE_FORMATS = ("table", "md", "json")


def render_compare(comparison: Comparison, format: str = "table") -> str:  # noqa: A002
    """The text of a comparison in one of the formats, with a newline at the end."""
    if format == "json":
        return json.dumps(comparison_to_json(comparison), ensure_ascii=False, indent=2) + "\n"
    if format == "md":
        return render_document(compare_document(comparison))
    if format == "table":
        return render_plain(compare_document(comparison))
    raise UsageError(f"unknown format {format!r}; expected one of {', '.join(COMPARE_FORMATS)}")


def compare_document(comparison: Comparison) -> Document:
    """The report of a comparison: a table per operation, and what was not compared."""
    others = [side.label for side in comparison.sides if side.label != comparison.base]
    lead = [
        f"Medians in us; savings are those of {', '.join(others)} against {comparison.base}.",
        _how_paired(comparison),
    ]
    operations = order_operations(pair.operation for pair in comparison.pairs)
    sections = [
        Section(OPERATION_TITLES[operation], (_pair_table(comparison, operation, others),))
        for operation in operations
    ]
    if comparison.missing:
        missing = Bullets(
            tuple(
                f"{case.operation}/{case.case} of {case.present}: {case.why}"
                for case in comparison.missing
            )
        )
        sections.append(Section("Not on both sides", (missing,)))
    if comparison.failed:
        sections.append(failure_section(comparison.failed))
    return Document(
        title=f"Comparison with {comparison.base}",
        lead=(*lead, *(f"Warning: {warning}." for warning in comparison.warnings)),
        sections=tuple(sections),
    )


def comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON values; a figure that does not exist is null."""
    return {
        "schema_version": COMPARISON_SCHEMA_VERSION,
        "base": comparison.base,
        "sides": [asdict(side) for side in comparison.sides],
        "pairs": [_pair_to_json(pair) for pair in comparison.pairs],
        "missing": [asdict(case) for case in comparison.missing],
        "failed": [
            {
                "operation": case.operation.value,
                "case": case.case,
                "label": case.label,
                "status": case.status.value,
                "reason": case.reason.model_dump(mode="json") if case.reason else None,
            }
            for case in comparison.failed
        ],
        "warnings": list(comparison.warnings),
    }


def _how_paired(comparison: Comparison) -> str:
    series = [each for pair in comparison.pairs for each in pair.series]
    measured = [each for each in series if each.savings_us is not None]
    if measured and all(each.paired for each in measured):
        return (
            "Of one interleaved run: savings are medians of differences, round by round. Below the "
            "smallest difference that the run resolves, no percentage is given."
        )
    return (
        "Not all of one interleaved run: savings are differences of medians, and include what the "
        "machine did between the runs."
    )


def _pair_to_json(pair: CasePair) -> dict[str, Any]:
    launches = pair.launches
    return {
        "operation": pair.operation.value,
        "case": pair.case,
        "digest": pair.digest,
        "base": pair.base,
        "other": pair.other,
        "series": [_series_to_json(each) for each in pair.series],
        "crosschecks": {
            "base": [_check_to_json(check) for check in pair.base_checks],
            "other": [_check_to_json(check) for check in pair.other_checks],
        },
        "launches": {
            "base": None if launches.base is None else list(launches.base),
            "other": None if launches.other is None else list(launches.other),
            "same": launches.same,
        },
    }


def _series_to_json(pair: SeriesPair) -> dict[str, Any]:
    return {
        **pair.series.model_dump(mode="json"),
        "unit": "us",
        "base": pair.base_us,
        "other": pair.other_us,
        "savings": pair.savings_us,
        "savings_percent": pair.savings_percent,
        "paired": pair.paired,
        "resolved": pair.resolved,
        "resolution": None if pair.resolution is None else _resolution_to_json(pair.resolution),
    }


def _resolution_to_json(resolution: Resolution) -> dict[str, Any]:
    return {
        "smallest": resolution.smallest_us,
        "limit": resolution.limit.value,
        "interval": resolution.interval_us,
        "interval_instances": resolution.instances_us,
        "interval_blocks": resolution.blocks_us,
        "control": resolution.control_us,
        "ticks": resolution.ticks_us,
        "floor": resolution.floor_us,
        "instances": resolution.instances,
        "rounds": resolution.rounds,
    }


def _check_to_json(check: Crosscheck) -> dict[str, Any]:
    return {
        "first": _reading_to_json(check.first),
        "second": _reading_to_json(check.second),
        "difference": check.difference_us,
        "tolerance": check.tolerance_us,
        "agrees": check.agrees,
    }


def _reading_to_json(reading: Reading) -> dict[str, Any]:
    return {
        **reading.series.model_dump(mode="json"),
        "reported": reading.reported_us,
        "intercept": reading.intercept_us,
        "corrected": reading.corrected_us,
    }


def _pair_table(comparison: Comparison, operation: Operation, others: Sequence[str]) -> Table:
    one_other = len(others) == 1
    columns = (
        "Config",
        "Quantity",
        comparison.base,
        others[0] if one_other else "Other",
        "Savings (us)",
        "Resolvable (us)",
        "Savings (%)",
    )
    rows = tuple(
        row
        for pair in _grouped_by_case(comparison.pairs)
        if pair.operation is operation
        for row in _pair_rows(pair, pair.case if one_other else f"{pair.case} · {pair.other}")
    )
    return Table(columns, rows, num_text_columns=2)


def _grouped_by_case(pairs: Sequence[CasePair]) -> list[CasePair]:
    """All sides of a case one below the other, in the order of the cases."""
    groups: dict[tuple[str, str], list[CasePair]] = {}
    for pair in pairs:
        groups.setdefault((pair.case, pair.digest), []).append(pair)
    return [pair for group in groups.values() for pair in group]


def _pair_rows(pair: CasePair, config: str) -> Iterator[tuple[Cell, ...]]:
    base_notes = disagreement_notes(pair.base_checks)
    other_notes = disagreement_notes(pair.other_checks)
    for each in pair.series:
        if each.base_us is not None or each.other_us is not None:
            savings, percent = savings_cells(each)
            yield (
                Cell(config),
                Cell(series_title(each.series)),
                _time_cell(each.base_us, base_notes.get(each.series)),
                _time_cell(each.other_us, other_notes.get(each.series)),
                savings,
                number_cell(each.resolution.smallest_us if each.resolution else None),
                percent,
            )
    launches = pair.launches
    if launches.base is not None or launches.other is not None:
        same_number = launches.base == launches.other
        note = "as many launches, but not the same" if same_number and not launches.same else None
        yield (
            Cell(config),
            Cell("launches"),
            _launches_cell(launches.base),
            _launches_cell(launches.other, note),
            *(Cell("") for _ in range(3)),
        )


def _time_cell(value_us: float | None, note: str | None) -> Cell:
    if value_us is None:
        return Cell(ABSENT, "not measured")
    return Cell(format_number(value_us), note)


def _launches_cell(totals: Sequence[int] | None, note: str | None = None) -> Cell:
    return Cell(range_text(totals), note) if totals else Cell(ABSENT, "not counted")
