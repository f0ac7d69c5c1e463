"""Replay of an engine's recorded calls on variants, each compared with the reference.

As in `explore`, the variant plays in one process and the reference in another, and this process
compares their buffers after each call. A recording is played in excerpts, so its length takes no
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bt_bench.protocol import Contents, Excerpt, Floats, RecordedCalls
from bt_bench.results import Reason, ReasonCode
from bt_bench.runs.differences import Difference, first_difference
from bt_bench.worker import Play, Played, Runner, Survey, Surveyed


@dataclass(frozen=True)
class Deviation:
    """The first place where a variant deviates from the reference.

    Args:
        step: number of the step in the file, from 0.
        call: the call after which it shows, in words.
        way: the way in which the calls were made.
        buffer: name of the buffer, or of another fact.
        place: index of the element; empty for facts without any.
        found: the variant's value.
        expected: the reference's value.
        elements: number of differing elements of the buffer.
    """

    step: int
    call: str
    way: str
    buffer: str
    place: tuple[int, ...] = ()
    found: int | str | None = None
    expected: int | str | None = None
    elements: int = 0

    def __str__(self) -> str:
        where = f"[{', '.join(map(str, self.place))}]" if self.place else ""
        more = f"; {self.elements} elements differ" if self.elements > 1 else ""
        return f"{self.buffer}{where} is {self.found}, expected {self.expected}{more}"


@dataclass
class Replayed:
    """The outcome of a replay on one variant.

    Args:
        variant: its name.
        steps: number of steps that were equal.
        calls: number of calls made and compared, in all ways.
        reason: why it failed, or was not run (`UNSUPPORTED`); `None`: everything was equal.
        deviation: the first deviation, for a wrong result, exception or crash.
    """

    variant: str
    steps: int = 0
    calls: int = 0
    reason: Reason | None = None
    deviation: Deviation | None = None

    @property
    def failed(self) -> bool:
        """Return whether it was run and was not right."""
        return self.reason is not None and self.reason.code is not ReasonCode.UNSUPPORTED


def replay(
    recorded: RecordedCalls,
    excerpts: Iterable[Excerpt],
    runner: Runner,
    references: Runner,
    arms: Sequence[str],
    on_play: Callable[[str, int], None] = lambda *_: None,
) -> list[Replayed]:
    """Play a recording on each arm, up to the arm's first difference.

    Args:
        recorded: the recording.
        excerpts: its excerpts to play, in order.
        runner: runs tasks on the arms.
        references: runs tasks on the reference, in a process without any variant.
        arms: names of variants.
        on_play: called with an arm, before it plays, and the number of steps that all have played.

    Returns:
        The outcomes, in the order of the arms.
    """
    found = {arm: Replayed(arm) for arm in arms}
    surveyed = runner.run(Survey(), arms)
    for arm in arms:
        failure = surveyed.failed.get(arm)
        found[arm].reason = failure or _unsupported(recorded, surveyed.value[arm])
    played = 0
    for excerpt in excerpts:
        able = [arm for arm in arms if found[arm].reason is None]
        if not able:
            break
        for way, scenario in excerpt.ways.items():
            expected: dict[int, tuple[Any, Played]] = {}  # by the identity of the scenario
            for arm in able:
                if found[arm].reason is not None:
                    continue
                features = surveyed.value[arm].features
                adapted = recorded.adapted(scenario, features)
                if id(adapted) not in expected:
                    task = Play((adapted,))
                    expected[id(adapted)] = adapted, references.run(task, ()).value[0]
                on_play(arm, played)
                wanted = expected[id(adapted)][1]
                _play(recorded, way, adapted, wanted, runner, references, found[arm])
        played += excerpt.steps
        for arm in able:
            if found[arm].reason is None:
                found[arm].steps = played
    return list(found.values())


def _unsupported(recorded: RecordedCalls, surveyed: Surveyed) -> Reason | None:
    """Return why a recording cannot be played on a variant; `None` if it can."""
    missing = recorded.features - surveyed.features
    message = surveyed.skipped
    if missing:
        message = f"lacks {', '.join(sorted(missing))}"
    return Reason(code=ReasonCode.UNSUPPORTED, message=message) if message else None


def _play(
    recorded: RecordedCalls,
    way: str,
    scenario: Any,
    wanted: Played,
    runner: Runner,
    references: Runner,
    outcome: Replayed,
) -> None:
    """Play a scenario on one arm, and note its first difference in its outcome."""
    arm = outcome.variant
    finished = runner.run(Play((scenario,)), [arm])
    difference: Difference | None
    if arm in finished.failed:
        reason = finished.failed[arm]
        difference = Difference(runner.calls_made, reason.code, reason)
    else:
        outcome.calls += len(finished.value[0].digests)
        difference = first_difference(wanted, finished.value[0])
    if difference is None:
        return
    step, call = recorded.located(scenario, difference.place)
    if difference.reason is not None:
        outcome.reason = difference.reason
        outcome.deviation = Deviation(step, call, way, difference.name)
        return
    task = Play((scenario,), whole=difference.place)
    right = references.run(task, ()).value[0].whole or {}
    again = runner.run(task, [arm])
    seen = {} if arm in again.failed else again.value[0].whole or {}
    name = difference.name
    outcome.deviation = _deviation(step, call, way, name, seen.get(name), right.get(name))
    outcome.reason = Reason(code=ReasonCode.WRONG_RESULT, message=str(outcome.deviation))


def _deviation(
    step: int, call: str, way: str, name: str, seen: Contents | None, right: Contents | None
) -> Deviation:
    """Return the first differing element of a buffer, with both values."""
    if not isinstance(seen, np.ndarray) or not isinstance(right, np.ndarray):
        found, expected = (
            None if value is None or isinstance(value, Floats) else str(value)
            for value in (seen, right)
        )
        return Deviation(step, call, way, name, (), found, expected)
    if seen.shape != right.shape:
        shapes = str(seen.shape), str(right.shape)
        return Deviation(step, call, way, f"shape of {name}", (), *shapes)
    different = np.argwhere(seen != right)
    if not len(different):
        told = "right when it is played again"
        return Deviation(step, call, way, name, (), told, "the same each time")
    at = tuple(int(index) for index in different[0])
    return Deviation(step, call, way, name, at, int(seen[at]), int(right[at]), len(different))
