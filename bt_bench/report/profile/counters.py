"""The report on hardware counters of a step's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bt_bench.analysis.profile import (
    DRAM,
    L2,
    PCIE,
    CounterChange,
    CounterRow,
    counter_rows,
    stall_shares,
    times_required,
    total,
)
from bt_bench.base import (
    ABSENT,
    Block,
    Bullets,
    Cell,
    Document,
    Heading,
    Section,
    Table,
    Tone,
    format_bytes,
    format_number,
    format_percent,
    format_share,
)
from bt_bench.results import Cache, Counter, Counters, VariantCounters

MOST_STALLS = 3  # per kernel
_DIGITS = 3

_L2_STATES = {
    Cache.HOT: (
        "Caches were not flushed: each kernel finds in L2 the data of its last run, as in a sweep "
        "with a hot L2"
    ),
    Cache.COLD: "Caches were flushed before each run of a kernel, as for a cold L2",
}
_EXPLAINED = (
    "Bytes are those that a kernel moved: to and from DRAM, through the L2 for its SMs, and to and "
    "from host memory, which lies behind PCIe. % is the share of the device's peak throughput. "
    "warps: share of an SM's warps that were resident on average."
)

_Column = tuple[str, Callable[[CounterRow], float | None], Callable[[float], str]]


def _bytes(value: float) -> str:
    return format_bytes(value, _DIGITS)


def _number(value: float) -> str:
    return format_number(value, _DIGITS)


_COLUMNS: tuple[_Column, ...] = (
    ("µs", lambda row: row.us, _number),
    ("DRAM", lambda row: row.sum(DRAM), _bytes),
    ("%", lambda row: row.median(Counter.DRAM_PERCENT), format_percent),
    ("L2", lambda row: row.sum(L2), _bytes),
    ("%", lambda row: row.median(Counter.L2_PERCENT), format_percent),
    ("PCIe", lambda row: row.sum(PCIE), _bytes),
    ("%", lambda row: row.median(Counter.PCIE_PERCENT), format_percent),
    ("warps", lambda row: row.median(Counter.WARPS_PERCENT), format_percent),
)
_MORE_COLUMNS: tuple[_Column, ...] = (
    ("DRAM GB/s", lambda row: row.gb_per_s(DRAM), _number),
    ("L2 GB/s", lambda row: row.gb_per_s(L2), _number),
    ("PCIe GB/s", lambda row: row.gb_per_s(PCIE), _number),
    ("L2 hits %", lambda row: row.median(Counter.L2_HIT_PERCENT), format_percent),
    ("programs", lambda row: row.median(Counter.PROGRAMS), lambda value: f"{value:.0f}"),
    ("threads", lambda row: row.median(Counter.THREADS), lambda value: f"{value:.0f}"),
    ("regs", lambda row: row.median(Counter.REGISTERS), lambda value: f"{value:.0f}"),
    ("possible warps", lambda row: row.median(Counter.POSSIBLE_WARPS_PERCENT), format_percent),
)


def counters_document(counters: Counters, *, whole: bool) -> Document:
    """Build the report on the kernels of a step by their counters.

    Args:
        counters: counters of all variants.
        whole: show all kernels' stalls, and the figures that one screen has no room for.
    """
    sections: list[Section] = []
    if any(variant.kernels for variant in counters.variants):
        sections.append(Section("Time and bytes of each kernel", tuple(_bytes_blocks(counters))))
        sections.append(Section("Reasons why warps wait", (_stalls(counters, whole=whole),)))
        if whole:
            table = _table(counters, _MORE_COLUMNS, limiters=True)
            sections.append(Section("Throughput and occupancy", (table,)))
    title = f"Counters of {counters.operation}/{counters.case}"
    return Document(title, tuple(_lead(counters)), tuple(sections))


def counters_json(counters: Counters) -> dict[str, Any]:
    """Return the counters and the figures derived from them, for a JSON document."""
    return counters.model_dump(mode="json") | {
        "required_bytes": counters.required_bytes,
        "not_available": [counter.traits.tool_name for counter in counters.absent()],
        "figures": [
            {
                "variant": variant.name,
                "us": _sum_us(rows := counter_rows(variant)),
                "times_required": {
                    name: times_required(total(rows, of), counters)
                    for name, of in (("dram", DRAM), ("l2", L2))
                },
                "kernels": [_row_json(row) for row in rows],
            }
            for variant in counters.variants
            if variant.reason is None
        ],
    }


def counter_changes_document(changes: Sequence[CounterChange], before: str) -> Document:
    """Build the report on changes since another profile."""
    title = f"Against {before}"
    if not changes:
        return Document(title, ("No kernel and no figure of any has changed.",), ())
    rows = tuple(
        (
            Cell(change.where),
            Cell(change.variant),
            Cell(change.what),
            Cell(change.before),
            Cell(change.after, tone=Tone.BAD if change.more else None),
        )
        for change in changes
    )
    lead = "Changes larger than the scatter, increases first:"
    return Document(title, (lead, Table(("kernel", "of", "what", "before", "now"), rows, 3)), ())


def _lead(counters: Counters) -> Iterator[Block]:
    gpus = ", ".join(gpu.name for gpu in counters.environment.gpus[:1]) or "no GPU"
    names = ", ".join(variant.name for variant in counters.variants)
    last = counters.num_steps - 1
    place = f"Step {counters.step} of 0 to {last}; " if last else ""
    yield (
        f"{place}{names}. {gpus}, Nsight Compute "
        f"{counters.tool}; medians of {counters.calls} calls."
    )
    yield (
        f"{_L2_STATES[counters.l2]}. Kernels ran alone, one after another, at whatever clocks the "
        "GPU chose; a sweep measures their times within a step."
    )
    yield _required(counters)
    for variant in counters.variants:
        if variant.reason is not None:
            yield f"FAILED: {variant.name}: {variant.reason.message}"
        elif not variant.kernels:
            yield f"{variant.name} launches no kernel in this step."
    if absent := counters.absent():
        listed = ", ".join(f"{c.traits.what} ({c.traits.tool_name})" for c in absent)
        yield f"Not available here: {listed}."


def _required(counters: Counters) -> str:
    if counters.read_bytes is None or counters.written_bytes is None:
        return "The suite does not state how many bytes the operation must move."
    return (
        f"In device memory the operation must read {_bytes(counters.read_bytes)} and write "
        f"{_bytes(counters.written_bytes)}, each byte once."
    )


def _bytes_blocks(counters: Counters) -> Iterator[Block]:
    yield _EXPLAINED
    yield _table(counters, _COLUMNS)


def _table(counters: Counters, columns: Sequence[_Column], *, limiters: bool = False) -> Table:
    """Build a table with a row per kernel under a heading per variant, without empty columns."""
    variants = [variant for variant in counters.variants if variant.kernels]
    all_rows = [row for variant in variants for row in counter_rows(variant)]
    kept = [column for column in columns if any(column[1](row) is not None for row in all_rows)]
    rows: list[tuple[Cell, ...] | Heading] = []
    for variant in variants:
        rows.append(Heading(_heading(counters, variant)))
        for row in counter_rows(variant):
            cells = [Cell(row.label), *(_cell(of(row), spell) for _, of, spell in kept)]
            if limiters:
                cells.append(Cell(", ".join(row.limiters) or ABSENT))
            rows.append(tuple(cells))
    titles = ("kernel", *(title for title, _, _ in kept), *["limited by"] * limiters)
    return Table(titles, tuple(rows), 1)


def _cell(value: float | None, spell: Callable[[float], str]) -> Cell:
    return Cell(ABSENT if value is None else spell(value))


def _heading(counters: Counters, variant: VariantCounters) -> str:
    """Return the totals of a variant's kernels, against the bytes that must move."""
    rows = counter_rows(variant)
    count = len(rows)
    parts = [f"{count} kernel{'s' * (count != 1)}"]
    us = _sum_us(rows)
    if us is not None:
        parts.append(f"{_number(us)} µs together")
    for name, of in (("L2", L2), ("DRAM", DRAM)):
        moved = total(rows, of)
        if moved is not None:
            times = times_required(moved, counters)
            many = "" if times is None else f", {_number(times)} times the required bytes"
            parts.append(f"{name} moved {_bytes(moved)}{many}")
    return f"{variant.name}: {'; '.join(parts)}"


def _sum_us(rows: Sequence[CounterRow]) -> float | None:
    together = total(rows, (Counter.DURATION_NS,))
    return None if together is None else together / 1e3


def _stalls(counters: Counters, *, whole: bool) -> Bullets:
    """Return a line per kernel; only the longest one of each variant unless `whole`."""
    lines = []
    for variant in counters.variants:
        rows = counter_rows(variant)
        if not whole:
            rows = sorted(rows, key=lambda row: row.us or 0.0, reverse=True)[:1]
        lines += [f"{variant.name}, {row.label}: {_waits(row)}." for row in rows]
    return Bullets(tuple(lines))


def _waits(row: CounterRow) -> str:
    shares = [
        f"{format_share(stall.share)} {stall.reason} at {stall.place or 'an unknown line'}"
        for stall in stall_shares(row.kernel, MOST_STALLS)
    ]
    waits = ", ".join(shares) or "no warp was seen to wait"
    limiters = " and ".join(row.limiters)
    return f"{waits}; warps limited by {limiters}" if limiters else waits


def _row_json(row: CounterRow) -> dict[str, Any]:
    return {
        "label": row.label,
        "us": row.us,
        "dram_bytes": row.sum(DRAM),
        "dram_gb_per_s": row.gb_per_s(DRAM),
        "dram_percent": row.median(Counter.DRAM_PERCENT),
        "l2_bytes": row.sum(L2),
        "l2_gb_per_s": row.gb_per_s(L2),
        "l2_percent": row.median(Counter.L2_PERCENT),
        "pcie_bytes": row.sum(PCIE),
        "pcie_percent": row.median(Counter.PCIE_PERCENT),
        "warps_percent": row.median(Counter.WARPS_PERCENT),
        "limited_by": list(row.limiters),
        "stalls": [asdict(stall) for stall in stall_shares(row.kernel, MOST_STALLS)],
    }
