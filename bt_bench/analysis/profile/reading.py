"""The interpretation of an explained step: its binding side, and how short it could be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import Literal

from bt_bench.analysis.profile.rows import RowKind, TimelineRow
from bt_bench.analysis.profile.timeline import Explained


@dataclass(frozen=True)
class StepSummary:
    """The summary of an explained step; all in µs.

    Args:
        binds: `device` if the last operation waited for those before it, or the GPU works longer
            after the return than the host took until then; else `host`.
        gaps_us: idle time of the device between the first and the last operation.
        after_us: from the return of the step's call until the device is idle.
        spare_us: the time of the step beyond an empty launch and the wait for it.
    """

    binds: Literal["host", "device"]
    gaps_us: float
    after_us: float
    spare_us: float


def read_step(step: Explained) -> StepSummary:
    """Return the side that binds a step, its gaps, and its spare time."""
    operations = sorted(
        (row for row in step.rows if row.what is RowKind.OPERATION), key=lambda row: row.start_us
    )
    return StepSummary(
        binds="device" if _queued(step, operations) else "host",
        gaps_us=_gaps(operations),
        after_us=max(0.0, step.step_us - step.host_us),
        spare_us=max(0.0, step.step_us - step.floor_us),
    )


def _queued(step: Explained, operations: list[TimelineRow]) -> bool:
    """Return whether the last operation had to queue, or most of the step follows the return."""
    if step.left_us > step.host_us:
        return True
    if len(operations) < 2:
        return False
    *_, before, last = operations
    return last.launched_by is not None and before.end_us > step.rows[last.launched_by].end_us


def _gaps(operations: list[TimelineRow]) -> float:
    idle_from = accumulate((row.end_us for row in operations), max)
    pairs = zip(idle_from, operations[1:], strict=False)
    return sum(max(0.0, row.start_us - at) for at, row in pairs)


def condensed(rows: Sequence[TimelineRow]) -> list[TimelineRow]:
    """Merge the rows of the host's own code, and of calls that enqueue nothing, in a step.

    A merged row is of code if it has no call, else its name counts the calls. The ends of its
    spread are sums over its parts, so it is not narrower than the true one.
    """
    found: list[TimelineRow] = []
    for is_merged, group in groupby(rows, lambda row: row.what in (RowKind.CODE, RowKind.CALL)):
        parts = list(group)
        if not is_merged:
            found += parts
            continue
        row = replace(
            parts[0],
            end_us=parts[-1].end_us,
            low_us=sum(part.low_us for part in parts),
            high_us=sum(part.high_us for part in parts),
        )
        if calls := sum(part.what is RowKind.CALL for part in parts):
            name = f"own code, {calls} call{'s' * (calls != 1)}"
            row = replace(row, what=RowKind.CALL, name=name)
        found.append(row)
    return found
