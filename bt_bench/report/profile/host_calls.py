"""The report on a step's Python and C calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bt_bench.analysis.profile.host_calls import (
    ChangeKind,
    HostChange,
    HostRow,
    host_changes,
    host_rows,
)
from bt_bench.base import ABSENT, Block, Cell, Section, Table, Tone, format_percent
from bt_bench.results import HostProfile

MOST_ROWS = 12

_IN_C = "C"


def host_section(profile: HostProfile, title: str) -> Section:
    """Build a section on the functions that take most of a step's host time, and on the rest.

    Args:
        profile: profile of one step.
        title: title of the section.
    """
    lead = _lead(profile)
    rows = host_rows(profile)
    if not rows:
        return Section(
            title, (lead, "The step makes no call of a Python function or of a builtin.")
        )
    shown, others = rows[:MOST_ROWS], rows[MOST_ROWS:]
    whole_us = profile.whole_us
    of_rest = 0.0 if profile.exceeds else whole_us
    table = Table(
        ("function", "where", "calls", "self µs", "10–90 %", "share"),
        (
            *map(_row, shown),
            *([_sum_row(_functions(len(others)), _sum_of(others), whole_us)] if others else []),
            _sum_row("not explained", profile.unexplained_us, of_rest, _note(profile)),
            _sum_row("the whole step", profile.plain_us, of_rest),
        ),
        2,
    )
    return Section(title, (lead, table))


def host_changes_section(
    before: HostProfile, after: HostProfile, title: str, *, whole: bool = False
) -> Section:
    """Build a section on changes in a step's calls between two profiles, most telling first.

    Args:
        before: the first profile.
        after: the second one.
        title: title of the section.
        whole: show all changes, not only the first ones.
    """
    lead = (
        f"The host's time of a step was {before.plain_us:.2f} µs and is {after.plain_us:.2f} µs, "
        "without a handler."
    )
    changes = host_changes(before, after)
    if not changes:
        return Section(title, (f"{lead} No function has changed by more than it scatters.",))
    most = len(changes) if whole else MOST_ROWS
    shown, others = changes[:most], changes[most:]
    table = Table(
        ("function", "where", "what", "calls", "before µs", "now µs", "more µs"),
        tuple(map(_change, shown)),
        3,
    )
    blocks: list[Block] = [lead, table]
    if others:
        largest = max(abs(change.difference_us) for change in others)
        have = "has" if len(others) == 1 else "have"
        blocks.append(
            f"{_functions(len(others))} {have} changed, by {largest:.2f} µs each at most."
        )
    return Section(title, tuple(blocks))


def host_changes_json(changes: Sequence[HostChange]) -> list[dict[str, Any]]:
    """Return the changes for a JSON document."""
    return [
        {
            "kind": change.kind.value,
            "name": change.row.name,
            "where": place_of(change.row.file, change.row.line),
            "difference_us": change.difference_us,
            "before": None if change.before is None else asdict(change.before),
            "after": None if change.after is None else asdict(change.after),
        }
        for change in changes
    ]


def place_of(file: str | None, line: int | None) -> str:
    """Return the place of a function, such as `fusions.py:32`; `C` for a builtin."""
    if file is None:
        return _IN_C
    name = file.rpartition("/")[2]
    return name if line is None else f"{name}:{line}"


def _lead(profile: HostProfile) -> str:
    python, c = profile.python_call, profile.c_call
    left_out = (
        f" {profile.left_out} more called other functions, and are left out."
        if profile.left_out
        else ""
    )
    shares = (
        f" Shares are of the {profile.explained_us:.2f} µs that its calls add up to."
        if profile.exceeds
        else ""
    )
    return (
        f"The host's time of a step is {profile.plain_us:.2f} µs without a handler. Its calls were "
        f"traced in {profile.repetitions} "
        f"repetition{'s' * (profile.repetitions != 1)}.{left_out} The cost of tracing was "
        "subtracted: "
        f"{python.within_us + python.around_us:.2f} µs for each call of Python and "
        f"{c.within_us + c.around_us:.2f} µs for each of C.{shares}"
    )


def _row(row: HostRow) -> tuple[Cell, ...]:
    return (
        Cell(row.name),
        Cell(place_of(row.file, row.line)),
        Cell(str(row.calls), note=_VARY if row.calls_vary else None),
        Cell(f"{row.self_us:.2f}"),
        Cell(f"{row.self_low_us:.2f}–{row.self_high_us:.2f}"),
        Cell(f"{format_percent(100 * row.share)} %"),
    )


_VARY = (
    "The number of calls differs between repetitions, as in a loop that waits; tracing takes the "
    "place of waiting there, and nothing was taken off."
)


def _note(profile: HostProfile) -> str | None:
    return _SLOWED if profile.exceeds else None


_SLOWED = (
    "Code is slower while it is traced, by more than was subtracted: CPython specialises fewer "
    "instructions then, or none, and the handler displaces data from caches."
)


def _sum_row(
    name: str, time_us: float, whole_us: float, note: str | None = None
) -> tuple[Cell, ...]:
    share = f"{format_percent(100 * time_us / whole_us)} %" if whole_us else ABSENT
    # No row shows -0.00.
    time = f"{time_us:.2f}".replace("-0.00", "0.00")
    return Cell(name), Cell(""), Cell(""), Cell(time, note=note), Cell(""), Cell(share)


def _change(change: HostChange) -> tuple[Cell, ...]:
    before, after = change.before, change.after
    calls = list(dict.fromkeys(str(row.calls) for row in (before, after) if row is not None))
    return (
        Cell(change.row.name),
        Cell(place_of(change.row.file, change.row.line)),
        Cell(_said(change)),
        Cell(" → ".join(calls)),
        Cell(ABSENT if before is None else f"{before.self_us:.2f}"),
        Cell(ABSENT if after is None else f"{after.self_us:.2f}"),
        Cell(f"{change.difference_us:+.2f}", tone=Tone.BAD if change.more else None),
    )


def _said(change: HostChange) -> str:
    match change.kind:
        case ChangeKind.TIME:
            return "longer" if change.more else "shorter"
        case ChangeKind.CALLS:
            return "more calls" if change.more else "fewer calls"
    return change.kind.value


def _sum_of(rows: Sequence[HostRow]) -> float:
    return sum(row.self_us for row in rows)


def _functions(count: int) -> str:
    return f"{count} further function{'s' * (count != 1)}"
