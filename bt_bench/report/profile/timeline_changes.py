"""The report on changes between two timelines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bt_bench.analysis.profile import (
    Explained,
    host_changes,
    other_speed,
    refuse_another_step,
    step_changes,
)
from bt_bench.base import Document
from bt_bench.report.profile.host_calls import host_changes_json, host_changes_section
from bt_bench.report.profile.step_changes import step_changes_json, step_changes_section
from bt_bench.report.profile.timeline import explained_steps, title_of
from bt_bench.results import HostProfile, Timeline


def timeline_changes_document(
    before: Timeline, after: Timeline, label: str, *, whole: bool = False
) -> Document:
    """Build the report on changes between two timelines, for all variants that both have.

    Args:
        before: the first timeline.
        after: the second one.
        label: label of the first one.
        whole: show all changes, not one screen.

    Raises:
        NotComparableError: if they are not of the same step.
    """
    sections = []
    for name, old, new in _pairs(before, after, label):
        sections.append(step_changes_section(old, new, f"A step of {name}", whole=whole))
        hosts = _hosts(before, after, name)
        if hosts is not None:
            sections.append(
                host_changes_section(*hosts, f"The host's calls in a step of {name}", whole=whole)
            )
    lead = (*_speed(before, after), *_unpaired(before, after))
    return Document(f"Against {label}: {title_of(after)}", lead, tuple(sections))


def timeline_changes_json(before: Timeline, after: Timeline, label: str) -> dict[str, Any]:
    """Return the changes for a JSON document; see `timeline_changes_document`."""
    found = {}
    for name, old, new in _pairs(before, after, label):
        hosts = _hosts(before, after, name)
        found[name] = {
            "step_us": [old.step_us, new.step_us],
            "host_us": [old.host_us, new.host_us],
            "rows": step_changes_json(step_changes(old, new)),
            "host_calls": None if hosts is None else host_changes_json(host_changes(*hosts)),
        }
    return found


def _pairs(before: Timeline, after: Timeline, label: str) -> list[tuple[str, Explained, Explained]]:
    refuse_another_step(before, after, (label, "this profile"))
    old, new = explained_steps(before), explained_steps(after)
    return [(name, old[name], step) for name, step in new.items() if name in old]


def _hosts(before: Timeline, after: Timeline, name: str) -> tuple[HostProfile, HostProfile] | None:
    sides = [timeline.variant(name) for timeline in (before, after)]
    old, new = (None if side is None else side.host for side in sides)
    return None if old is None or new is None else (old, new)


def _speed(before: Timeline, after: Timeline) -> Iterator[str]:
    speed = other_speed(before, after)
    if speed is not None:
        old, new = speed
        which = "slower" if new > old else "faster"
        yield (
            f"The machine is {which} than it was: the same empty calls of CUDA took {old:.2f} µs, "
            f"and take {new:.2f} µs now. Rows of the host differ for that alone; take both "
            "timelines again, one right after the other."
        )


def _unpaired(before: Timeline, after: Timeline) -> Iterator[str]:
    old, new = explained_steps(before), explained_steps(after)
    for name in (variant.name for variant in after.variants):
        if name not in new or name not in old:
            which = "this profile" if name not in new else "the other one"
            yield f"{name} is not compared: {which} does not explain its step."
