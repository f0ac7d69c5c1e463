"""The changes in a step from one timeline to another, by calls and operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum, auto

from bt_bench.analysis.profile.rows import Lane, RowKind, TimelineRow
from bt_bench.analysis.profile.timeline import Explained

CHANGED_US = 0.3
CHANGED_SHARE = 0.05
"""A row's length has changed by both at least; the share is of the longer one of the two rows."""


class StepChangeKind(StrEnum):
    """The kind of a row's change."""

    NEW = auto()
    GONE = auto()
    LONGER = auto()
    SHORTER = auto()


@dataclass(frozen=True)
class StepChange:
    """A row that differs between two timelines.

    Args:
        kind: how it has changed.
        before: the row in the first timeline; `None` if it is new.
        after: the row in the second one; `None` if it is gone.
        next_to: distinguishes the row from others of its name: the operation that a call launches,
            or the operation or call after the host's own code. `None` for all other rows.
    """

    kind: StepChangeKind
    before: TimelineRow | None
    after: TimelineRow | None
    next_to: str | None = None

    @property
    def row(self) -> TimelineRow:
        """Return the row as it is now, or as it was if it is gone."""
        row = self.after or self.before
        assert row is not None
        return row

    @property
    def difference_us(self) -> float:
        """Return by how much it is longer now; negative if it is shorter."""
        return _length_of(self.after) - _length_of(self.before)

    @property
    def more(self) -> bool:
        """Return whether it is new or longer."""
        return self.kind in (StepChangeKind.NEW, StepChangeKind.LONGER)


def step_changes(before: Explained, after: Explained) -> list[StepChange]:
    """Return the rows that changed between two timelines of one step, the clearest first.

    Rows are matched in their order. A launch is first matched with one of the same operation; the
    rest between two matches is matched by the name of the call alone, so an exchanged kernel is not
    an exchanged launch. Names are the same only as a whole: Triton appends nothing to the name of a
    kernel, whatever it is specialised for, and another instance of a C++ template is other code. So
    a kernel with another suffix is a new one, and the old one is gone.

    The host's own code between two calls is compared with the code between their matched calls; if
    a call came in between, as a whole.

    A length has changed if the spreads do not overlap, and the difference is at least both 0.3 µs
    and 5 % of the longer row; the host's own code that is new or gone has to reach this as well. A
    row that only starts at another time has not changed.

    Operations that are new or gone come first: they are certain, while a machine that has become
    slower makes other rows longer. The wait for the device comes last: it follows from all others.
    """
    old, new = _Rows(before.rows), _Rows(after.rows)
    pairs = _matched(old, new)
    found = [*_of_rows(old, new, pairs), *_of_code(old, new, pairs)]
    return sorted(found, key=lambda change: (_rank(change), -abs(change.difference_us)))


def _rank(change: StepChange) -> int:
    if change.row.what is RowKind.WAIT:
        return 2
    is_other = change.before is None or change.after is None
    return 0 if is_other and change.row.what is RowKind.OPERATION else 1


_Key = tuple[str | None, ...]
_Pair = tuple[int, int]


class _Rows:
    """The rows of a timeline by their places.

    Args:
        rows: all of them.
    """

    def __init__(self, rows: Sequence[TimelineRow]) -> None:
        self.rows = rows
        self.places = [place for place, row in enumerate(rows) if row.what is not RowKind.CODE]
        self.launched: dict[int, str] = {}  # by place of a launch, the first operation of it
        for row in rows:
            if row.launched_by is not None:
                self.launched.setdefault(row.launched_by, row.name)

    def key(self, place: int) -> _Key:
        """Return the key that is equal in matching rows."""
        row = self.rows[place]
        return row.lane, row.what, row.name

    def narrow_key(self, place: int) -> _Key:
        """Return the key with the launched operation."""
        return *self.key(place), self.launched.get(place)

    def code(self, start: int, stop: int) -> TimelineRow | None:
        """Merge the host's own code between two places into one row.

        Its spread is as if all of it were low, or high, at once.
        """
        parts = [row for row in self.rows[start:stop] if row.what is RowKind.CODE]
        if not parts:
            return None
        return replace(
            parts[0],
            end_us=parts[0].start_us + sum(row.length_us for row in parts),
            low_us=sum(row.low_us for row in parts),
            high_us=sum(row.high_us for row in parts),
        )


def _matched(old: _Rows, new: _Rows) -> list[_Pair]:
    """Return places of the matching rows, in order; without the host's own code."""
    pairs: list[_Pair] = []
    narrow = _blocks(
        [old.narrow_key(place) for place in old.places],
        [new.narrow_key(place) for place in new.places],
    )
    for (start, end), (new_start, new_end), same in narrow:
        left, right = old.places[start:end], new.places[new_start:new_end]
        if same:
            pairs += zip(left, right, strict=True)
            continue
        by_name = _blocks([old.key(place) for place in left], [new.key(place) for place in right])
        for one, other, alike in by_name:
            if alike:
                pairs += zip(left[slice(*one)], right[slice(*other)], strict=True)
    return pairs


def _blocks(old: Sequence[_Key], new: Sequence[_Key]) -> Iterator[tuple[_Pair, _Pair, bool]]:
    """Yield the ranges of the parts of two sequences, and whether these are the same."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        yield (start, end), (new_start, new_end), tag == "equal"


def _of_rows(old: _Rows, new: _Rows, pairs: Sequence[_Pair]) -> Iterator[StepChange]:
    kept, taken = {place for place, _ in pairs}, {place for _, place in pairs}
    for place in old.places:
        if place not in kept:
            yield StepChange(StepChangeKind.GONE, old.rows[place], None, old.launched.get(place))
    for place in new.places:
        if place not in taken:
            yield StepChange(StepChangeKind.NEW, None, new.rows[place], new.launched.get(place))
    for left, right in pairs:
        before, after = old.rows[left], new.rows[right]
        if _differ(before, after):
            yield StepChange(_kind(before, after), before, after, new.launched.get(right))


def _of_code(old: _Rows, new: _Rows, pairs: Sequence[_Pair]) -> Iterator[StepChange]:
    """Yield changes of the host's own code, of each part between two matched calls."""
    calls = [pair for pair in pairs if new.rows[pair[1]].lane is Lane.HOST]
    at, new_at = 0, 0
    for place, new_place in [*calls, (len(old.rows), len(new.rows))]:
        before, after = old.code(at, place), new.code(new_at, new_place)
        at, new_at = place, new_place
        if _differ(before, after):
            yield StepChange(_kind(before, after), before, after, _said(new, new_place))


def _said(rows: _Rows, place: int) -> str | None:
    """Name the call at a place, or its operation, for the code before it."""
    if place >= len(rows.rows):
        return None
    row = rows.rows[place]
    return "the return" if row.what is RowKind.WAIT else rows.launched.get(place) or row.name


def _differ(before: TimelineRow | None, after: TimelineRow | None) -> bool:
    """Return whether a length has changed; a row that is absent has none."""
    (low, length, high), (new_low, new_length, new_high) = _spread(before), _spread(after)
    apart = max(low, new_low) > min(high, new_high)
    least_us = max(CHANGED_US, CHANGED_SHARE * max(length, new_length))
    return apart and abs(new_length - length) >= least_us


def _spread(row: TimelineRow | None) -> tuple[float, float, float]:
    return (0.0, 0.0, 0.0) if row is None else (row.low_us, row.length_us, row.high_us)


def _kind(before: TimelineRow | None, after: TimelineRow | None) -> StepChangeKind:
    if before is None:
        return StepChangeKind.NEW
    if after is None:
        return StepChangeKind.GONE
    longer = after.length_us > before.length_us
    return StepChangeKind.LONGER if longer else StepChangeKind.SHORTER


def _length_of(row: TimelineRow | None) -> float:
    return 0.0 if row is None else row.length_us
