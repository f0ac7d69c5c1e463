"""The bytes that a step must move, and its device time against the bound that follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bt_bench.analysis import Binds, Roofline, roofline
from bt_bench.base import ABSENT, Cell, Table, format_number
from bt_bench.base.names import Operation
from bt_bench.report.formats.texts import span_text
from bt_bench.report.run.arranged import Arms, ArrangedArm, CaseId
from bt_bench.report.run.cells import number_cell
from bt_bench.results import CaseResult, VariantResult

WORK_CAPTION = (
    "Work: the bytes that a step must read and write at least, whatever the variant, and its "
    "device time against its bound, in µs; for a window of several steps, means over its steps. "
    "GB/s are the required bytes over the device time. The bound is launch, the device time of an "
    "empty kernel, and bytes, the time that a plain copy of as many takes beyond that; the larger "
    "one binds. Null step is a whole step of one empty kernel:"
)

ROOFLINE_FIGURES = {
    "required_read_bytes": "read_bytes",
    "required_written_bytes": "written_bytes",
    **{name: name for name in ("required_bytes", "gpu_us", "gb_per_s", "bytes_us", "launch_us")},
    **{name: name for name in ("bound_us", "binds", "times_bound", "step_us", "null_step_us")},
}
"""The figures of a roofline for machines, each with its place in `Roofline`."""

_LARGE_BYTES = 10_000_000  # from here on a table is in MB
_MOST_CHARACTERS = 160  # of a sentence
_BOUNDS = {Binds.LAUNCH: "an empty kernel", Binds.BYTES: "copying the bytes that must move"}
_DIGITS = 2  # of a multiple in a sentence


def work_table(arms: Arms, case_ids: Sequence[CaseId]) -> Table | None:
    """Build a table by case and variant; `None` without a GPU, or if no bytes are known."""
    found = list(_rooflines(arms, case_ids))
    if not found:
        return None
    is_large = max(line.required_bytes for _, _, line in found) >= _LARGE_BYTES
    unit, scale = ("MB", 1e6) if is_large else ("KB", 1e3)
    columns = (
        *("Config", "Variant", f"Required ({unit})", "Device", "GB/s", "Bytes", "Launch"),
        *("Binds", "× bound", "Step", "Null step"),
    )
    rows = tuple(
        (
            Cell(case_id.case),
            Cell(arm.name),
            number_cell(line.required_bytes / scale),
            number_cell(line.gpu_us),
            number_cell(line.gb_per_s),
            number_cell(line.bytes_us),
            number_cell(line.launch_us),
            Cell(ABSENT if line.binds is None else line.binds.value, _why_unbound(line)),
            number_cell(line.times_bound),
            number_cell(line.step_us),
            number_cell(line.null_step_us),
        )
        for case_id, arm, line in found
    )
    return Table(columns, rows, num_text_columns=2)


def work_text(arms: Arms, operation: Operation) -> str:
    """Return a line with the multiples of the bound over all cases; empty if none is known.

    If it is too long, the variants are left out.
    """
    found = [
        each
        for each in _rooflines(arms, arms.cases_of(operation))
        if each[2].times_bound is not None
    ]
    if not found:
        return ""
    binds = {line.binds for _, _, line in found}
    by_arm: dict[str, list[float]] = {}
    for _, arm, line in found:
        by_arm.setdefault(arm.name, []).append(line.times_bound or 0.0)
    bound = " or ".join(text for which, text in _BOUNDS.items() if which in binds)
    title = f"GPU time in multiples of its lower bound, {bound}"
    each = ", ".join(f"{name} {_range(multiples)}" for name, multiples in by_arm.items())
    every = _range([one for multiples in by_arm.values() for one in multiples])
    texts = (f"{title}: {each}.", f"{title}: {every}.")
    return next((text for text in texts if len(text) <= _MOST_CHARACTERS), texts[-1])


def roofline_json(result: VariantResult, case: CaseResult) -> dict[str, Any] | None:
    """Return the figures of a case for machines; unknown ones are null."""
    found = roofline(case, result.calibration_of(case.part))
    if found is None:
        return None
    figures = {name: getattr(found, place) for name, place in ROOFLINE_FIGURES.items()}
    return {name: v.value if isinstance(v, Binds) else v for name, v in figures.items()}


def _rooflines(
    arms: Arms, case_ids: Sequence[CaseId]
) -> Iterator[tuple[CaseId, ArrangedArm, Roofline]]:
    """Yield the rooflines of cases and variants that were measured on a GPU."""
    for case_id in case_ids:
        for arm in arms.all:
            case = arm.ok_case(case_id)
            if case is None or arm.result.environment.device == "cpu":
                continue
            found = roofline(case, arm.result.calibration_of(case.part))
            if found is not None:
                yield case_id, arm, found


def _why_unbound(line: Roofline) -> str | None:
    if line.binds is not None:
        return None
    if not line.required_bytes:
        return "nothing must move, so nothing need be launched"
    return "plain copies or empty kernels were not profiled in this run"


def _range(multiples: list[float]) -> str:
    """Return `2.1`, or `2.1–5.4`."""
    return span_text(*(format_number(most(multiples), _DIGITS) for most in (min, max)))
