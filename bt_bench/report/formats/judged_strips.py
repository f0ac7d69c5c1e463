"""Strips beside verdicts: the interval that each rests on, all of a table on one axis."""

from __future__ import annotations

from collections.abc import Iterable

from bt_bench.analysis import Judgement
from bt_bench.base import Axis, Strip
from bt_bench.report.axis import SpeedUp, axis_of, speed_up_of, within_reach
from bt_bench.report.formats.phrases import WITHOUT_FIGURE
from bt_bench.report.formats.texts import TONES

_LEGEND = "Strips: {} and their intervals, logarithmic; right of {} is faster, ○ undecided."


class JudgedStrips:
    """The strips of a table of verdicts, and their axis of speed-ups.

    Args:
        judgements: the verdicts in the table.
    """

    def __init__(self, judgements: Iterable[Judgement]) -> None:
        found = [each for each in map(_figure, judgements) if each is not None]
        self._axis = axis_of(within_reach(found)) if found else None

    def of(self, judgement: Judgement | None) -> Strip | None:
        """Return the strip of a time; `None` for counts, and without a valid figure."""
        found = None if judgement is None else _figure(judgement)
        if judgement is None or found is None or self._axis is None:
            return None
        return Strip(self._axis.place(found), TONES.get(judgement.verdict))

    def axis(self) -> Axis | None:
        """Return the axis of speed-ups; `None` if no judgement has a strip."""
        return None if self._axis is None else Axis(self._axis.ticks())

    def legible_axis(self, *, in_percent: bool) -> Axis | None:
        """Return the axis with its legend, as speed-ups or as changes in percent; or `None`."""
        if self._axis is None:
            return None
        if in_percent:
            return Axis(self._axis.change_ticks(), _LEGEND.format("changes", "0 %"))
        return Axis(self._axis.ticks(), _LEGEND.format("speed-ups", "1 ×"))


def _figure(judgement: Judgement) -> SpeedUp | None:
    if judgement.evidence is None or judgement.verdict in WITHOUT_FIGURE:
        return None
    return None if judgement.low is None else speed_up_of(judgement)
