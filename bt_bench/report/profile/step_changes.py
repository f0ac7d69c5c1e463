"""The report on changes in a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bt_bench.analysis.profile import Explained, Lane, RowKind, StepChange, step_changes
from bt_bench.base import ABSENT, Cell, Section, Table, Tone

MOST_ROWS = 12


def step_changes_section(
    before: Explained, after: Explained, title: str, *, whole: bool = False
) -> Section:
    """Build a section on changes in a step between two timelines, the most telling first.

    Args:
        before: the step in the first timeline.
        after: the step in the second one.
        title: title of the section.
        whole: show all changes, not only the first ones.
    """
    lead = (
        f"The step took {_with_spread(before)} µs and takes {_with_spread(after)} µs; until its "
        f"call returned it took {before.host_us:.2f} µs, and takes {after.host_us:.2f} µs."
    )
    changes = step_changes(before, after)
    if not changes:
        return Section(title, (f"{lead} No row has changed by more than it scatters.",))
    most = len(changes) if whole else MOST_ROWS
    shown, others = changes[:most], changes[most:]
    table = Table(
        ("lane", "row", "what", "before µs", "now µs", "more µs"), tuple(map(_row, shown)), 3
    )
    more = (f"{len(others)} further row{'s' * (len(others) != 1)} changed.",) if others else ()
    return Section(title, (lead, table, *more))


def step_changes_json(changes: Sequence[StepChange]) -> list[dict[str, Any]]:
    """Return the changes for a JSON document."""
    return [
        {
            "kind": change.kind.value,
            "lane": change.row.lane.value,
            "what": change.row.what.value,
            "name": change.row.name,
            "next_to": change.next_to,
            "difference_us": change.difference_us,
            "before": None if change.before is None else asdict(change.before),
            "after": None if change.after is None else asdict(change.after),
        }
        for change in changes
    ]


def _row(change: StepChange) -> tuple[Cell, ...]:
    before, after = change.before, change.after
    return (
        Cell("GPU" if change.row.lane is Lane.DEVICE else "host"),
        Cell(_name(change)),
        Cell(change.kind.value),
        Cell(ABSENT if before is None else f"{before.length_us:.2f}"),
        Cell(ABSENT if after is None else f"{after.length_us:.2f}"),
        Cell(f"{change.difference_us:+.2f}", tone=Tone.BAD if change.more else None),
    )


def _name(change: StepChange) -> str:
    """Return a row's name with its neighbour, if known: a step has many launches."""
    row = change.row
    if change.next_to is None:
        return row.name
    return f"{row.name} {'before' if row.what is RowKind.CODE else 'of'} {change.next_to}"


def _with_spread(step: Explained) -> str:
    return f"{step.step_us:.2f} ({step.step_low_us:.2f}–{step.step_high_us:.2f})"
