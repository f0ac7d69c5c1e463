"""The report of `bt-bench workload`: the sizes of a workload, before anything is timed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bt_bench.base import Bullets, Cell, Document, Section, Table, format_bytes, format_number
from bt_bench.base.errors import counted
from bt_bench.protocol import Suite, Workload, WorkloadParameters, traffic_by_operation

_COLUMNS = ("Per step", "min", "p50", "max", "mean")


def workload_json(parameters: WorkloadParameters, workload: Workload) -> dict[str, Any]:
    """Return the common description of a workload."""
    return {
        "kind": parameters.workload,
        "num_steps": len(workload.steps),
        "features": sorted(workload.features),
        "bytes_per_variant": parameters.num_bytes(),
        "digest": workload.digest(),
        "sizes": dict(workload.sizes()),
    }


def traffic_json(suite: Suite, workload: Workload) -> dict[str, list[dict[str, int]]]:
    """Return the bytes that each step must move, by operation, where the suite knows them."""
    return {
        str(operation): [{"read": each.read, "written": each.written} for each in steps]
        for operation, steps in traffic_by_operation(suite, workload)
    }


def workload_document(name: str, parameters: WorkloadParameters, workload: Workload) -> Document:
    """Build the common description of a workload: facts, and sizes of the steps."""
    needed = parameters.num_bytes()
    facts = [counted(len(workload.steps), "step")]
    if needed:
        facts.append(f"{format_bytes(needed)} per variant")
    if workload.features:
        facts.append(f"features: {', '.join(sorted(workload.features))}")
    sizes = workload.sizes()
    sections = (_sizes(sizes),) if sizes else ()
    return Document(f"{name} ({parameters.workload})", (Bullets(tuple(facts)),), sections)


def traffic_section(suite: Suite, workload: Workload) -> Section | None:
    """Build a section on the bytes that each operation must move in a step; `None` if unknown."""
    rows = [
        (
            Cell(str(operation)),
            Cell(format_bytes(_mean([each.read for each in steps]))),
            Cell(format_bytes(_mean([each.written for each in steps]))),
            Cell(format_bytes(max(each.read + each.written for each in steps))),
        )
        for operation, steps in traffic_by_operation(suite, workload)
        if not operation.traits.on_host
    ]
    if not rows:
        return None
    columns = ("Operation", "read, mean", "written, mean", "both, most")
    note = "The least that a call moves in device memory, whatever the variant; bytes per step."
    return Section("Bytes that must move", (note, Table(columns, tuple(rows), num_text_columns=1)))


def _mean(values: Sequence[int]) -> int:
    return round(statistics.fmean(values))


def _sizes(sizes: Mapping[str, Sequence[int]]) -> Section:
    rows = tuple(
        (
            Cell(name),
            Cell(str(min(values))),
            Cell(str(sorted(values)[(len(values) - 1) // 2])),
            Cell(str(max(values))),
            Cell(format_number(statistics.fmean(values))),
        )
        for name, values in sizes.items()
        if values
    )
    return Section("Sizes", (Table(_COLUMNS, rows, num_text_columns=1),))
