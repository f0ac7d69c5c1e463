"""The functions of a host profile, and their changes from one profile to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Literal

from bt_bench.results import HostFrame, HostProfile

CHANGED_US = 0.3
CHANGED_SHARE = 0.03
"""A function's time has changed by one of these at least; the share is of the step."""


@dataclass(frozen=True)
class HostRow:
    """A function, with all its places in the call tree together; times in µs per step.

    Args:
        name: qualified.
        kind: whether it is written in Python or in C.
        file: relative; `None` for C.
        line: that it begins in; `None` for C.
        calls: per step.
        calls_vary: not every repetition had as many.
        self_us: in the function itself, without its callees.
        self_low_us: low end of the spread over repetitions.
        self_high_us: high end of it.
        share: of the step's time, see `HostProfile.whole_us`; 0 if that is 0.
    """

    name: str
    kind: Literal["python", "c"]
    file: str | None
    line: int | None
    calls: int
    calls_vary: bool
    self_us: float
    self_low_us: float
    self_high_us: float
    share: float


class ChangeKind(StrEnum):
    """The kind of a function's change."""

    NEW = auto()
    GONE = auto()
    TIME = auto()  # longer or shorter
    CALLS = auto()  # called more or less often, in as much time


@dataclass(frozen=True)
class HostChange:
    """A function that differs between two profiles.

    Args:
        kind: how it has changed.
        before: the function in the first profile; `None` if it is new.
        after: the function in the second one; `None` if it is gone.
    """

    kind: ChangeKind
    before: HostRow | None
    after: HostRow | None

    @property
    def row(self) -> HostRow:
        """Return the function as it is now, or as it was if it is gone."""
        row = self.after or self.before
        assert row is not None
        return row

    @property
    def difference_us(self) -> float:
        """Return the growth of its own time, in µs per step; negative if it is shorter."""
        return _time_of(self.after) - _time_of(self.before)

    @property
    def more(self) -> bool:
        """Return whether it takes longer now; for a change of calls, whether there are more."""
        if self.kind is ChangeKind.CALLS:
            assert self.before is not None
            return self.row.calls > self.before.calls
        return self.difference_us > 0


def host_rows(profile: HostProfile) -> list[HostRow]:
    """Return the functions of a step, the one with most time of its own first."""
    rows = _grouped(profile, lambda frame: (frame.name, frame.kind, frame.file, frame.line))
    return sorted(rows.values(), key=lambda row: row.self_us, reverse=True)


def host_changes(before: HostProfile, after: HostProfile) -> list[HostChange]:
    """Return the functions that changed between two profiles of one step, the clearest first.

    A function is the same if its name and its file are; lines move when a file is edited. Its time
    has changed if the spreads over repetitions do not overlap, and the difference is at least 0.3
    µs or 3 % of the step. A function that is new or gone has changed, whatever its time; so has one
    that is called more or less often, unless the calls of one profile vary already.

    Functions that are new, gone or called more or less often come first if their time has changed
    by as much: that is certain, while a machine that has become slower makes all others longer.
    """
    old, new = _by_file(before), _by_file(after)
    least_us = min(CHANGED_US, CHANGED_SHARE * before.plain_us)
    found = [
        HostChange(kind, old.get(key), new.get(key))
        for key in {**old, **new}
        if (kind := _kind(old.get(key), new.get(key), least_us)) is not None
    ]
    return sorted(found, key=lambda change: (_rank(change, least_us), -abs(change.difference_us)))


def _rank(change: HostChange, least_us: float) -> int:
    before, after = change.before, change.after
    varies = before is not None and after is not None and (before.calls_vary or after.calls_vary)
    calls = [0 if row is None else row.calls for row in (before, after)]
    is_certain = calls[0] != calls[1] and not varies
    return 0 if is_certain and abs(change.difference_us) >= least_us else 1


def _kind(before: HostRow | None, after: HostRow | None, least_us: float) -> ChangeKind | None:
    if before is None:
        return ChangeKind.NEW
    if after is None:
        return ChangeKind.GONE
    apart = max(before.self_low_us, after.self_low_us) > min(
        before.self_high_us, after.self_high_us
    )
    if apart and abs(after.self_us - before.self_us) >= least_us:
        return ChangeKind.TIME
    if before.calls != after.calls and not (before.calls_vary or after.calls_vary):
        return ChangeKind.CALLS
    return None


def _time_of(row: HostRow | None) -> float:
    return 0.0 if row is None else row.self_us


_Key = tuple[str | int | None, ...]


def _by_file(profile: HostProfile) -> dict[_Key, HostRow]:
    return _grouped(profile, lambda frame: (frame.name, frame.kind, frame.file))


def _grouped(profile: HostProfile, key_of: Callable[[HostFrame], _Key]) -> dict[_Key, HostRow]:
    """Return rows by key, in the order of the first calls."""
    found: dict[_Key, list[HostFrame]] = {}
    for frame in _frames(profile.frames):
        found.setdefault(key_of(frame), []).append(frame)
    return {key: _row(frames, profile.whole_us) for key, frames in found.items()}


def _frames(frames: list[HostFrame]) -> Iterator[HostFrame]:
    for frame in frames:
        yield frame
        yield from _frames(frame.children)


def _row(frames: Sequence[HostFrame], whole_us: float) -> HostRow:
    """Merge the places of a function; the spread is as if all were low, or high, at once."""
    first = frames[0]
    self_us = sum(frame.self_us for frame in frames)
    return HostRow(
        name=first.name,
        kind=first.kind,
        file=first.file,
        line=first.line,
        calls=sum(frame.calls for frame in frames),
        calls_vary=any(frame.calls_vary for frame in frames),
        self_us=self_us,
        self_low_us=sum(frame.self_low_us for frame in frames),
        self_high_us=sum(frame.self_high_us for frame in frames),
        share=self_us / whole_us if whole_us else 0.0,
    )
