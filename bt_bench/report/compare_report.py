"""The report of `bt-bench compare`: a comparison as a table, as Markdown or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bt_bench.compare import CasePair, Comparison
from bt_bench.errors import UsageError
from bt_bench.model import OPERATION_TITLES
from bt_bench.operation import Operation
from bt_bench.report.console import render_plain
from bt_bench.report.document import ABSENT, Bullets, Cell, Document, Section, Table
from bt_bench.report.markdown import render_document
from bt_bench.report.run_report import failure_bullets, order_operations
from bt_bench.report.tables import QUANTITY_TITLES, range_text, savings_cells
from bt_bench.units import format_number

COMPARISON_SCHEMA_VERSION = 1

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
        sections.append(Section("Failures", (failure_bullets(comparison.failed),)))
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
    quantities = [quantity for pair in comparison.pairs for quantity in pair.quantities]
    measured = [quantity for quantity in quantities if quantity.savings_us is not None]
    if measured and all(quantity.paired for quantity in measured):
        return "Of one interleaved run: savings are medians of differences, round by round."
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
        "quantities": [
            {
                "quantity": quantity.quantity.value,
                "unit": "us",
                "base": quantity.base_us,
                "other": quantity.other_us,
                "savings": quantity.savings_us,
                "paired": quantity.paired,
                "resolved": quantity.resolved,
                "savings_percent": quantity.savings_percent,
            }
            for quantity in pair.quantities
        ],
        "launches": {
            "base": None if launches.base is None else list(launches.base),
            "other": None if launches.other is None else list(launches.other),
            "same": launches.same,
        },
    }


def _pair_table(comparison: Comparison, operation: Operation, others: Sequence[str]) -> Table:
    one_other = len(others) == 1
    columns = (
        "Config",
        "Quantity",
        comparison.base,
        others[0] if one_other else "Other",
        "Savings (us)",
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
    for quantity in pair.quantities:
        if quantity.base_us is not None or quantity.other_us is not None:
            yield (
                Cell(config),
                Cell(QUANTITY_TITLES[quantity.quantity]),
                _time_cell(quantity.base_us),
                _time_cell(quantity.other_us),
                *savings_cells(quantity),
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
            Cell(""),
            Cell(""),
        )


def _time_cell(value_us: float | None) -> Cell:
    return Cell(ABSENT, "not measured") if value_us is None else Cell(format_number(value_us))


def _launches_cell(totals: Sequence[int] | None, note: str | None = None) -> Cell:
    return Cell(range_text(totals), note) if totals else Cell(ABSENT, "not counted")
