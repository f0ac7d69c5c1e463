"""Notices what the arms of a process change of what all of them share, and when."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from types import FunctionType

from bt_bench.worker.global_state import GlobalState, code_of, members

_CODE = "code of variants"  # the area


class StateWatch:
    """Compares the global state of a process with what it was before any arm was imported.

    Args:
        ignored: names in the environment that belong to a side, and may differ.
    """

    def __init__(self, ignored: Collection[str] = ()) -> None:
        self._ignored = frozenset(ignored)
        self._classes: dict[str, Sequence[type]] = {}
        self._last = self._now()
        self._by_arm: dict[str, tuple[str, ...]] = {}

    def imported(self, arm: str, copies: Sequence[type]) -> None:
        """Notes what importing an arm has changed, and looks at its classes from now on."""
        now = self._now()
        if changes := now.changes_since(self._last):
            self._by_arm[arm] = tuple(changes)
        self._classes[arm] = copies
        code = {**now.areas[_CODE], **_code_of_arm(arm, copies)}
        self._last = GlobalState({**now.areas, _CODE: code})

    def changes(self) -> dict[str, tuple[str, ...]]:
        """Per arm what importing it has changed; under `""` what has changed since."""
        since = tuple(self._now().changes_since(self._last))
        return self._by_arm | ({"": since} if since else {})

    def _now(self) -> GlobalState:
        state = GlobalState.now(self._ignored)
        code: dict[str, object] = {}
        for arm, copies in self._classes.items():
            code |= _code_of_arm(arm, copies)
        return GlobalState({**state.areas, _CODE: code})


class Stopwatch:
    """How much of the process's CPU time other threads than this one have used."""

    def __init__(self) -> None:
        self._process_s, self._own_s = time.process_time(), time.thread_time()

    def share_of_others(self) -> float:
        """Since the beginning: 0 if no other thread ran."""
        process_s = time.process_time() - self._process_s
        own_s = time.thread_time() - self._own_s
        return max(0.0, process_s - own_s) / process_s if process_s > 0 else 0.0


def _functions_beside(arm: str, owner: type) -> Iterator[tuple[str, object]]:
    """Functions and classes of the module of a class, which its methods find by name."""
    scopes = [
        member.__globals__ for member in vars(owner).values() if isinstance(member, FunctionType)
    ]
    for scope in scopes[:1]:
        for name, value in list(scope.items()):
            if isinstance(value, FunctionType):
                yield f"{arm}: {scope.get('__name__')}.{name}", code_of(value)
            elif isinstance(value, type):
                yield f"{arm}: {scope.get('__name__')}.{name}", id(value)


def _code_of_arm(arm: str, copies: Sequence[type]) -> dict[str, object]:
    """Of each class of an arm: its members, and the functions beside it."""
    return {
        place: code
        for number, variant in enumerate(copies)
        for owner in variant.__mro__[:-1]
        for place, code in (
            *members(f"{_numbered(arm, number)}: {owner.__name__}", owner),
            *_functions_beside(_numbered(arm, number), owner),
        )
    }


def _numbered(arm: str, number: int) -> str:
    return f"{arm} (copy {number + 1})" if number else arm
