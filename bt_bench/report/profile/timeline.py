"""The report on a timeline: where each microsecond of a step goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bt_bench.analysis import device_name
from bt_bench.analysis.profile import (
    Explained,
    Lane,
    TimelineRow,
    What,
    explain,
    host_changes,
    read_step,
    refuse_another_step,
    step_changes,
)
from bt_bench.report.document import ABSENT, Block, Bullets, Cell, Document, Section, Table, Tone
from bt_bench.report.profile.host_calls import (
    host_changes_json,
    host_changes_section,
    host_section,
)
from bt_bench.report.profile.step_changes import step_changes_json, step_changes_section
from bt_bench.results import (
    HostProfile,
    Timeline,
    Tracing,
    VariantTimeline,
    format_bytes,
    format_percent,
)

BAR_WIDTH = 22  # characters, for a table of 80
_BAR, _NO_BAR = "█", "·"


_CODE_HELP = {
    What.CODE: "host's own code",
    What.WAIT: "wait for the GPU",
}


def explained_steps(timeline: Timeline) -> dict[str, Explained]:
    """The variants whose steps could be explained, by name."""
    found = ((variant.name, explain(timeline, variant)) for variant in timeline.variants)
    return {name: step for name, step in found if step is not None}


def timeline_document(timeline: Timeline, *, whole: bool) -> Document:
    """Where the time of a step goes, for each variant.

    Args:
        timeline: what was traced.
        whole: the rows of all variants, with all of their moments, and the host's calls; else one
            screen.
    """
    steps = explained_steps(timeline)
    single = len(steps) == 1
    sections: list[Section] = []
    if len(steps) > 1:
        sections.append(_summary(list(steps.values())))
    for name, step in steps.items():
        if whole or single:
            sections.append(_rows_section(step, whole=whole))
        variant = timeline.variant(name)
        host = None if variant is None else variant.host
        if host is not None and whole:
            sections.append(host_section(host, f"The host's calls in a step of {name}"))
    if not single:
        said = tuple(f"{name}: {_said(step)}" for name, step in steps.items())
        if said:
            sections.insert(1, Section("What binds", (Bullets(said),)))
    return Document(_title(timeline), tuple(_lead(timeline, steps)), tuple(sections))


def timeline_json(timeline: Timeline) -> dict[str, Any]:
    """The steps as a JSON document has them: rows in us, without what the profiler adds."""
    steps = explained_steps(timeline)
    return {
        "config": timeline.config,
        "case": timeline.case,
        "operation": timeline.operation,
        "step": timeline.step,
        "source": timeline.source,
        "missing": timeline.missing,
        "required_bytes": timeline.required_bytes,
        "seconds": timeline.seconds,
        "variants": {
            variant.name: _variant_json(variant, steps.get(variant.name))
            for variant in timeline.variants
        },
    }


def _variant_json(variant: VariantTimeline, step: Explained | None) -> dict[str, Any]:
    if step is None:
        return {"reason": None if variant.reason is None else variant.reason.message}
    fields = asdict(step)
    fields.pop("name")
    return {
        **fields,
        "residual_us": step.residual_us,
        "closes": step.closes,
        **asdict(read_step(step)),
        "host_profile": None if variant.host is None else variant.host.model_dump(mode="json"),
    }


def _title(timeline: Timeline) -> str:
    place = (
        ""
        if timeline.num_steps == 1
        else f", step {timeline.step} of 0 to {timeline.num_steps - 1}"
    )
    return f"{timeline.operation}/{timeline.case}{place}"


def _lead(timeline: Timeline, steps: dict[str, Explained]) -> Iterator[Block]:
    traced = [
        len(found.host_us)
        for variant in timeline.variants
        if (found := variant.of(Tracing.ALL)) is not None
    ]
    number = f"{min(traced)} traced steps" if traced else "no traced step"
    device = device_name(timeline.environment) or "an unknown GPU"
    moved = (
        ""
        if timeline.required_bytes is None
        else f" The step must move {format_bytes(timeline.required_bytes)}."
    )
    yield (
        f"{device}, {timeline.source}. Medians of {number}; what tracing adds is measured on empty "
        f"calls and taken off.{moved}"
    )
    yield from _notes(timeline)
    if timeline.missing:
        yield "Not known here: " + "; ".join(timeline.missing) + "."
    for variant in timeline.variants:
        if variant.reason is not None:
            yield f"FAILED: {variant.name}: {variant.reason.message}"
        elif variant.name not in steps:
            yield (
                f"{variant.name}: what tracing adds could not be measured, so its step is not "
                "explained"
            )


def _notes(timeline: Timeline) -> Iterator[str]:
    """What a reader has to know before the figures are believed."""
    left_out = {
        variant.name: (traced.left_out, traced.left_out + len(traced.host_us))
        for variant in timeline.variants
        if (traced := variant.of(Tracing.ALL)) is not None and traced.left_out
    }
    if left_out:
        counts = ", ".join(f"{name} {some} of {all_}" for name, (some, all_) in left_out.items())
        yield f"Steps that made other calls than most are left out of the rows: {counts}."


# One variant


def _rows_section(step: Explained, *, whole: bool) -> Section:
    moments = ("queued", "submitted", "ends") if whole else ()
    columns = ("lane", "what", "from", "us", "10–90 %", *moments, f"0 to {step.step_us:.1f} us")
    rows = [_row(step, row, whole=whole) for row in step.rows]
    blank = [Cell("")] * (3 if whole else 0)
    if step.residual_us is not None:
        tone = None if step.closes else Tone.DOUBTFUL
        rows.append(
            (
                Cell(""),
                Cell("not explained"),
                Cell(""),
                Cell(f"{_zero(step.residual_us)}", tone=tone),
                Cell(""),
                *blank,
                Cell(""),
            )
        )
    rows.append(
        (
            Cell(""),
            Cell("the whole step"),
            Cell("0.0"),
            Cell(f"{step.step_us:.1f}"),
            Cell(f"{step.step_low_us:.1f}–{step.step_high_us:.1f}"),
            *blank,
            Cell(""),
        )
    )
    table = Table(columns, tuple(rows), 2)
    return Section(f"A step of {step.name}", (_said(step), table))


def _row(step: Explained, row: TimelineRow, *, whole: bool) -> tuple[Cell, ...]:
    lane = "GPU" if row.lane is Lane.DEVICE else "host"
    name = _CODE_HELP.get(row.what, row.name)
    if row.moved_bytes is not None:
        name = f"{name}, {format_bytes(row.moved_bytes)}"
    more = (
        (Cell(_moment(row.queued_us)), Cell(_moment(row.submitted_us)), Cell(f"{row.end_us:.2f}"))
        if whole
        else ()
    )
    return (
        Cell(lane),
        Cell(name if whole else _cut(name)),
        Cell(f"{row.start_us:.2f}" if whole else f"{row.start_us:.1f}"),
        Cell(f"{row.length_us:.2f}"),
        Cell(f"{_zero(row.low_us, 1)}–{_zero(row.high_us, 1)}"),
        *more,
        Cell(_bar(row, step.step_us)),
    )


def _bar(row: TimelineRow, whole_us: float) -> str:
    """Where the row lies in the step: at least one mark."""
    if whole_us <= 0:
        return _NO_BAR * BAR_WIDTH
    each = whole_us / BAR_WIDTH
    first = min(BAR_WIDTH - 1, max(0, int(row.start_us / each)))
    last = min(BAR_WIDTH, max(first + 1, round(row.end_us / each)))
    return _NO_BAR * first + _BAR * (last - first) + _NO_BAR * (BAR_WIDTH - last)


def _cut(name: str) -> str:
    """A long name with its end left out, which for kernels is the least telling part."""
    longest = 27
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _said(step: Explained) -> str:
    """The step in sentences: what binds, what the host does, what the GPU does, and the floor."""
    reading = read_step(step)
    share = _percent(step.launch_us, step.step_us)
    parts = []
    if not step.launches:
        return f"The step takes {step.step_us:.1f} us, all of it on the host: it launches nothing."
    launches = f"{step.launches} launch{'es' * (step.launches != 1)}"
    if reading.binds == "host":
        parts.append(
            f"The host binds: of {step.step_us:.1f} us, {step.host_us:.1f} us pass until the call "
            f"returns, {step.code_us:.1f} us in its own code and {step.launch_us:.1f} us "
            f"({share}) in {launches}{_others(step)}."
        )
    else:
        parts.append(
            f"The GPU binds: it works for {step.busy_us:.1f} us of {step.step_us:.1f} us, and its "
            f"last operation had to queue. The host needs {step.host_us:.1f} us, "
            f"{step.code_us:.1f} us of them in its own code and {step.launch_us:.1f} us ({share} "
            f"of the step) in {launches}{_others(step)}."
        )
    idle = f", and idles {reading.gaps_us:.1f} us in between" if reading.gaps_us >= 0.1 else ""
    parts.append(
        f"The GPU works for {step.busy_us:.1f} us{idle}; {step.hidden_us:.1f} us of that are "
        f"hidden behind the host, and {reading.after_us:.1f} us pass after the call has returned."
    )
    parts.append(
        f"The floor is {step.floor_us:.1f} us, an empty launch and the wait for it: "
        f"{reading.spare_us:.1f} us above it could be saved at most."
    )
    return " ".join(parts)


def _others(step: Explained) -> str:
    if step.other_calls_us < 0.05:
        return ""
    return f", and {step.other_calls_us:.1f} us in other calls of CUDA"


# Several variants


def _summary(steps: Sequence[Explained]) -> Section:
    columns = (
        "us",
        "step",
        "10–90 %",
        "host",
        "own code",
        "launches",
        "GPU busy",
        "hidden",
        "after",
        "unexplained",
    )
    rows = tuple(_summary_row(step) for step in steps)
    floor = min(step.floor_us for step in steps)
    lead = (
        "step: until the GPU is idle. host: until the call has returned; of that, own code and "
        "launches. hidden: work of the GPU before the return. after: behind it. The floor of any "
        f"step that launches something is {floor:.1f} us here."
    )
    return Section("Side by side", (lead, Table(columns, rows, 1)))


def _summary_row(step: Explained) -> tuple[Cell, ...]:
    residual = step.residual_us
    return (
        Cell(step.name),
        Cell(f"{step.step_us:.1f}"),
        Cell(f"{step.step_low_us:.1f}–{step.step_high_us:.1f}"),
        Cell(f"{step.host_us:.1f}"),
        Cell(f"{step.code_us:.1f}"),
        Cell(f"{step.launches}: {step.launch_us:.1f}"),
        Cell(f"{step.busy_us:.1f}"),
        Cell(f"{step.hidden_us:.1f}"),
        Cell(f"{read_step(step).after_us:.1f}"),
        Cell(
            ABSENT if residual is None else _zero(residual),
            tone=None if step.closes else Tone.DOUBTFUL,
        ),
    )


def _percent(part: float, whole: float) -> str:
    return f"{format_percent(100 * part / whole)} %" if whole > 0 else ABSENT


def _moment(moment_us: float | None) -> str:
    return ABSENT if moment_us is None else f"{moment_us:.2f}"


def _zero(value: float, digits: int = 2) -> str:
    """A number that is never printed as -0.00."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


# What changed


def timeline_changes_document(before: Timeline, after: Timeline, label: str) -> Document:
    """What changed between two timelines, of all variants that both have.

    Args:
        before: the first timeline.
        after: the second one.
        label: of the first one.

    Raises:
        NotComparableError: if they are not of the same step.
    """
    sections = []
    for name, old, new in _pairs(before, after, label):
        sections.append(step_changes_section(old, new, f"A step of {name}"))
        hosts = _hosts(before, after, name)
        if hosts is not None:
            sections.append(host_changes_section(*hosts, f"The host's calls in a step of {name}"))
    lead = tuple(_unpaired(before, after))
    return Document(f"Against {label}: {_title(after)}", lead, tuple(sections))


def timeline_changes_json(before: Timeline, after: Timeline, label: str) -> dict[str, Any]:
    """What changed, as a JSON document has it; see `timeline_changes_document`."""
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


def _unpaired(before: Timeline, after: Timeline) -> Iterator[str]:
    old, new = explained_steps(before), explained_steps(after)
    for name in (variant.name for variant in after.variants):
        if name not in new or name not in old:
            which = "this profile" if name not in new else "the other one"
            yield f"{name} is not compared: {which} does not explain its step."
