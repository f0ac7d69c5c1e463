"""The explorer of block tables, through which the harness obtains scenarios."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bt_bench.protocol import Explorer, Source
from bt_bench.suites.block_tables.exploring.calls import (
    CAPTURED_STEPS,
    OTHERS,
    STEPS_IN_FLIGHT,
    flat,
)
from bt_bench.suites.block_tables.exploring.generate import make
from bt_bench.suites.block_tables.exploring.recorded import RecordedTables
from bt_bench.suites.block_tables.exploring.shrink import smaller
from bt_bench.suites.block_tables.exploring.tame import TAMED, tamed
from bt_bench.suites.block_tables.vllm.differences import differences_of

if TYPE_CHECKING:
    from bt_bench.suites.block_tables.exploring.player import TablePlayer
    from bt_kernels.layout import TableLayout


_NOTES = {
    "same_tensors": "in the tensors of the call before",
    "spoil": "inputs overwritten after it",
}


class TableExplorer(Explorer):
    """See the base class."""

    def scenario(self, source: Source) -> Any:
        """See the base class."""
        return tamed(make(source), source.features)

    def abilities(self, variant: type[Any]) -> frozenset[str]:
        """See the base class; an opponent's differences are included, and tame its scenarios."""
        methods = {CAPTURED_STEPS: "capture_step"} | {name: name for name in OTHERS}
        has = {name for name, method in methods.items() if callable(getattr(variant, method, None))}
        if STEPS_IN_FLIGHT in _parameters(variant):
            has.add(STEPS_IN_FLIGHT)
        return differences_of(variant) | has

    def unexplored(self, variant: type[Any]) -> str:
        """See the base class."""
        untamed = sorted(differences_of(variant) - TAMED)
        return f"has results of its own: {', '.join(untamed)} (docs/vllm.md)" if untamed else ""

    def title(self, scenario: Any) -> str:
        """See the base class."""
        return str(scenario.theme)

    def is_large(self, scenario: Any) -> bool:
        """See the base class."""
        return bool(scenario.rows_before)

    def lines(self, scenario: Any) -> Sequence[str]:
        """See the base class."""
        used = sorted({call.table for call in flat(scenario.calls)})
        several = len(used) > 1
        found = []
        for at in used:
            name = f"tables {at} = " if several else ""
            found.append(f"{name}{_layout(scenario.layouts[at])}")
        for call in scenario.calls:
            notes = [note for name, note in _NOTES.items() if getattr(call, name, False)]
            if getattr(call, "poison", None) is not None:
                notes.append("outputs filled with garbage before")
            told = f"  ({', '.join(notes)})" if notes else ""
            found.append(f"{f'tables {call.table}: ' if several else ''}{call}{told}")
        if scenario.garbage is not None:
            found[0] += ", garbage where nobody has written"
        if scenario.rows_before:
            found[0] += f", on a GPU with {scenario.rows_before} rows more before these"
        if scenario.kept:
            found[0] += ", each input in one buffer that is refilled"
        if scenario.in_flight is not None:
            found[0] += f", steps_in_flight={scenario.in_flight}"
        if scenario.offset:
            found[0] += f", inputs {scenario.offset} elements into their storage"
        return found

    def smaller(self, scenario: Any) -> Iterator[Any]:
        """See the base class."""
        return smaller(scenario)

    def until(self, scenario: Any, place: int) -> Any:
        """See the base class."""
        return replace(scenario, calls=scenario.calls[: place + 1])

    def recording(self, path: Path) -> RecordedTables:
        """See the base class."""
        return RecordedTables(path)

    def player(self) -> TablePlayer:
        """See the base class."""
        from bt_bench.suites.block_tables.exploring.player import TablePlayer

        return TablePlayer()


def _parameters(variant: type[Any]) -> frozenset[str]:
    """Return the names of the arguments that tables are made with."""
    try:
        return frozenset(inspect.signature(variant).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _layout(layout: TableLayout) -> str:
    sizes = ("block_sizes", "widths", "max_num_reqs", "max_num_batched_tokens")
    plain = type(layout)(*(getattr(layout, name) for name in sizes))
    values = {field.name: getattr(layout, field.name) for field in fields(layout)}
    shown = [
        f"{name}={value}"
        for name, value in values.items()
        if name in sizes or value != getattr(plain, name)
    ]
    return f"TableLayout({', '.join(shown)})"
