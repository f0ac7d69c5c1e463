"""Watches on state that all arms of a process share: which arm changed it, and when."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from types import FunctionType

from bt_bench.worker.isolation.global_state import GlobalState
from bt_bench.worker.isolation.module_readings import code_of, members

_CODE = "code of variants"  # the area


class StateWatch:
    """A watch that compares a process's global state with its state before any arm was imported.

    Args:
        ignored: environment variables that belong to a side, and may differ.
    """

    def __init__(self, ignored: Collection[str] = ()) -> None:
        self._ignored = frozenset(ignored)
        self._classes: dict[str, Sequence[type]] = {}
        self._last = self._with_code(GlobalState.now(self._ignored))
        self._by_arm: dict[str, tuple[str, ...]] = {}

    def imported(self, arm: str, copies: Sequence[type]) -> None:
        """Record the changes that importing an arm has made, and watch its classes from now on."""
        now = self._now()
        if changes := now.changes_since(self._last):
            self._by_arm[arm] = tuple(changes)
        self._classes[arm] = copies
        code = {**now.areas[_CODE], **_code_of_arm(arm, copies)}
        self._last = replace(now, areas={**now.areas, _CODE: code})

    def changes(self) -> dict[str, tuple[str, ...]]:
        """Return the changes that each arm's import has made; those made later are under `""`."""
        since = tuple(self._now().changes_since(self._last))
        return self._by_arm | ({"": since} if since else {})

    def _now(self) -> GlobalState:
        return self._with_code(GlobalState.now(self._ignored, known=self._last))

    def _with_code(self, state: GlobalState) -> GlobalState:
        code: dict[str, object] = {}
        for arm, copies in self._classes.items():
            code |= _code_of_arm(arm, copies)
        return replace(state, areas={**state.areas, _CODE: code})


# Areas that checks and measurements rest on, besides the modules. A variant may change the others:
# it may start threads that wait, for example, or register operators.
_TOOLS = ("Python", "torch", "the GPU's limits", "Triton's knobs")
_IDLE_SECONDS = (0.03, 0.3)  # threads of libraries may spin for some 0.2 s after their work
_BUSY_SHARE = 0.1  # of that time, in other threads


class ToolWatch:
    """A watch on the objects that checks and clocks rest on.

    It has to be made before any variant is imported.
    """

    def __init__(self) -> None:
        self._first = self._last = GlobalState.now(areas=_TOOLS)

    def refuse(self) -> None:
        """Refuse any change since the watch was made, and threads that are busy now.

        Raises:
            TamperedError: names the changes.
        """
        self._last = GlobalState.now(areas=_TOOLS, known=self._last)
        found = self._last.changes_since(self._first)
        if others_are_busy():
            found.append("its threads are busy while nobody has called it")
        if found:
            raise TamperedError(
                f"it has changed objects that checks and times rest on: {'; '.join(found)}; a "
                "variant must "
                "leave the process as it is (docs/measurement.md#what-no-variant-gains-by)"
            )


def others_are_busy() -> bool:
    """Return whether other threads of the process work while this one sleeps for a moment."""
    for seconds in _IDLE_SECONDS:
        started_s = time.process_time()
        time.sleep(seconds)
        if time.process_time() - started_s <= _BUSY_SHARE * seconds:
            return False
    return True


class TamperedError(Exception):
    """A variant has changed tools that all share, or its threads do not rest."""


class Stopwatch:
    """A stopwatch of the CPU time that threads other than this one use."""

    def __init__(self) -> None:
        self._process_s, self._own_s = time.process_time(), time.thread_time()

    def share_of_others(self) -> float:
        """Return their share of the process's CPU time so far; 0 if no other thread ran."""
        process_s = time.process_time() - self._process_s
        own_s = time.thread_time() - self._own_s
        return max(0.0, process_s - own_s) / process_s if process_s > 0 else 0.0


def _code_of_arm(arm: str, copies: Sequence[type]) -> dict[str, object]:
    """Return the code ids of an arm's classes: members, and functions and classes they use."""
    return {
        place: code
        for number, variant in enumerate(copies)
        for place, code in _code_of_copy(f"{arm} (copy {number + 1})" if number else arm, variant)
    }


def _code_of_copy(arm: str, variant: type) -> Iterator[tuple[str, object]]:
    """Yield members of a class and its bases, and functions and classes in modules they reach.

    Only modules of the class's own packages count; each copy has its own set of these.
    """
    owners = list(variant.__mro__[:-1])
    own = {owner.__module__.partition(".")[0] for owner in owners} - {"abc", "typing"}
    for owner in owners:
        yield from members(f"{arm}: {owner.__name__}", owner)
    seen: set[int] = set(map(id, owners))
    todo = [function for owner in owners for function in _functions_of(owner)]
    while todo:
        scope = todo.pop().__globals__
        module = str(scope.get("__name__"))
        if id(scope) in seen or module.partition(".")[0] not in own:
            continue
        seen.add(id(scope))
        for name, value in list(scope.items()):
            place = f"{arm}: {module}.{name}"
            if isinstance(value, FunctionType):
                yield place, code_of(value)
                todo.append(value)
            elif isinstance(value, type):
                yield place, id(value)
                if id(value) not in seen and value.__module__.partition(".")[0] in own:
                    seen.add(id(value))
                    yield from members(place, value)
                    todo += _functions_of(value)


def _functions_of(owner: type) -> list[FunctionType]:
    return [member for member in vars(owner).values() if isinstance(member, FunctionType)]
