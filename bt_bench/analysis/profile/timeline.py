"""The account of a step's time from a timeline, without the weight of the profiler.

A profiler makes each call of the CUDA API longer. Its weight is measured on empty calls in the same
rounds, and taken off every call of a step. Everything that follows a call on the host moves forward
by as much, and so does an operation that waited for its call; one that waited for another operation
stays behind that. The remaining step must take as long as one without a profiler. The difference is
the residual.

The time that a profiler adds to the operations themselves, or between them, is not taken off: no
empty call shows it. It is part of the residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bt_bench.analysis.profile.corrected import HIGH, LOW, CorrectedSteps
from bt_bench.analysis.profile.residual import residual_of
from bt_bench.analysis.profile.rows import Lane, RowKind, TimelineRow
from bt_bench.analysis.profile.weight import weight_of
from bt_bench.analysis.statistics.samples import median
from bt_bench.results import (
    EmptyCalls,
    Timeline,
    Tracing,
    VariantTimeline,
)

CLOSES_WITHIN_PERCENT = 5.0
CLOSES_WITHIN_US = 0.5


@dataclass(frozen=True)
class Explained:
    """The parts of a step's time; all in µs, medians over steps.

    Args:
        name: of the variant.
        step_us: the whole step without a profiler, in turn with traced ones.
        step_low_us: low end of its spread.
        step_high_us: high end of it.
        host_us: time until the call returned, likewise.
        predicted_us: the step as it follows from the traced ones of the same turns.
        error_us: half the 95 % interval of the residual; `None` for fewer than three turns.
        rows: the stretches of the step, in order; without the profiler's weight.
        launches: calls that enqueue something.
        launch_us: time in these calls.
        other_calls_us: time in other calls of CUDA before the return.
        code_us: the host's own code.
        latency_us: from the begin of the first launching call to the begin of its operation.
        busy_us: working time of the device.
        hidden_us: the part of it before the call has returned.
        left_us: device work that is left when the call has returned, with the waits in it.
        tail_us: from the end of the last operation to the end of the step.
        added_us: the time that tracing added to a step, and that was taken off.
        floor_us: from the driver's call for an empty launch until the GPU is idle, measured in the
            same rounds.
    """

    name: str
    step_us: float
    step_low_us: float
    step_high_us: float
    host_us: float
    predicted_us: float
    error_us: float | None
    rows: tuple[TimelineRow, ...]
    launches: int
    launch_us: float
    other_calls_us: float
    code_us: float
    latency_us: float | None
    busy_us: float
    hidden_us: float
    left_us: float
    tail_us: float
    added_us: float
    floor_us: float

    @property
    def residual_us(self) -> float:
        """Return the time that traced steps leave unexplained; negative if they exceed the step."""
        return self.step_us - self.predicted_us

    @property
    def closes(self) -> bool:
        """Return whether the error is known, and both are within 5 % of the step or 0.5 µs."""
        if self.error_us is None:
            return False
        most_us = max(CLOSES_WITHIN_US, CLOSES_WITHIN_PERCENT / 100 * self.step_us)
        return max(abs(self.residual_us), self.error_us) <= most_us


def _floor(timeline: Timeline, empty: EmptyCalls) -> float:
    """Return the least time of a step that launches: no host code comes before the launch."""
    traced = timeline.empty_calls("launch", Tracing.ALL)
    begin_us = median(traced.begin_us) if traced is not None and traced.begin_us else 0.0
    return median(empty.step_us) - begin_us


def explain(timeline: Timeline, variant: VariantTimeline) -> Explained | None:
    """Explain the time of a variant's step; return `None` if it was not timed and traced."""
    plain, traced = variant.of(Tracing.NONE), variant.of(Tracing.ALL)
    weight = weight_of(timeline, Tracing.ALL)
    empty = timeline.empty_calls("launch", Tracing.NONE)
    if plain is None or traced is None or weight is None or empty is None:
        return None
    if not plain.host_us or not traced.host_us:
        return None
    corrected = CorrectedSteps(traced, weight)
    residual = residual_of(timeline, plain, traced, corrected.ends_us)
    rows = corrected.rows()
    returned = corrected.returned_us
    low, high = np.percentile(plain.step_us, [LOW, HIGH])
    launching = [row for row in rows if row.what is RowKind.LAUNCH]
    of_device = [row for row in rows if row.lane is Lane.DEVICE]
    busy, hidden = _busy(of_device, returned)
    last = max((row.end_us for row in of_device), default=returned)
    end = corrected.end_us
    return Explained(
        name=variant.name,
        step_us=median(plain.step_us),
        step_low_us=float(low),
        step_high_us=float(high),
        host_us=median(plain.host_us),
        predicted_us=median(plain.step_us) - residual.us,
        error_us=residual.error_us,
        rows=tuple(rows),
        launches=len(launching),
        launch_us=sum(row.length_us for row in launching),
        other_calls_us=sum(row.length_us for row in rows if row.what is RowKind.CALL),
        code_us=sum(row.length_us for row in rows if row.what is RowKind.CODE),
        latency_us=_latency(rows),
        busy_us=busy,
        hidden_us=hidden,
        left_us=max(0.0, last - returned),
        tail_us=max(0.0, end - max(last, returned)),
        added_us=median(traced.step_us) - end,
        floor_us=_floor(timeline, empty),
    )


def _latency(rows: Sequence[TimelineRow]) -> float | None:
    for row in rows:
        if row.launched_by is not None:
            return row.start_us - rows[row.launched_by].start_us
    return None


def _busy(rows: Sequence[TimelineRow], returned_us: float) -> tuple[float, float]:
    """Return the time with at least one operation running, and its part before the return."""
    busy = hidden = at = 0.0
    for row in sorted(rows, key=lambda row: row.start_us):
        start, end = max(row.start_us, at), max(row.end_us, at)
        busy += end - start
        hidden += max(0.0, min(end, returned_us) - min(start, returned_us))
        at = end
    return busy, hidden
