"""The report on a timeline: where each microsecond of a step goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bt_bench.analysis import device_name
from bt_bench.analysis.profile import (
    Explained,
    Lane,
    RowKind,
    TimelineRow,
    condensed,
    explain,
    read_step,
)
from bt_bench.base import ABSENT, Block, Bullets, Cell, Document, Section, Table, Tone, format_bytes
from bt_bench.report.profile.host_calls import host_section
from bt_bench.report.profile.sentences import residual_error, sentences, unsigned_zero, us
from bt_bench.results import Timeline, Tracing, VariantTimeline

BAR_WIDTH = 22  # characters, for a table of 80
LEAST_BAR_WIDTH = 14
MOST_CHARACTERS = 27  # of a name, likewise
_BAR, _NO_BAR = "█", "·"


_CODE_HELP = {
    RowKind.CODE: "host's own code",
    RowKind.WAIT: "wait for the GPU",
}


def explained_steps(timeline: Timeline) -> dict[str, Explained]:
    """Return the steps that could be explained, by variant name."""
    found = ((variant.name, explain(timeline, variant)) for variant in timeline.variants)
    return {name: step for name, step in found if step is not None}


def timeline_document(timeline: Timeline, *, whole: bool) -> Document:
    """Build the report on where the time of a step goes, for each variant.

    Args:
        timeline: the traced steps.
        whole: show the rows of all variants, with all of their moments, and the host's calls; else
            one screen.
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
    title = f"Timeline of {title_of(timeline)}"
    return Document(title, tuple(_lead(timeline, steps)), tuple(sections))


def timeline_json(timeline: Timeline) -> dict[str, Any]:
    """Return the steps for a JSON document: rows in µs, without the profiler's overhead."""
    steps = explained_steps(timeline)
    names = ("config", "case", "operation", "step", "source", "missing", "required_bytes")
    return {name: getattr(timeline, name) for name in (*names, "seconds")} | {
        "variants": {
            variant.name: _variant_json(variant, steps.get(variant.name))
            for variant in timeline.variants
        }
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


def title_of(timeline: Timeline) -> str:
    """Return the name of the traced step, for titles."""
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
    number = f"{min(traced)} traced step{'s' * (min(traced) != 1)}" if traced else "no traced step"
    if len(set(traced)) > 1:
        number = f"at least {number}"
    device = device_name(timeline.environment) or "an unknown GPU"
    moved = (
        ""
        if timeline.required_bytes is None
        else f" The step must move {format_bytes(timeline.required_bytes)}."
    )
    yield (
        f"{device}, {timeline.source}. Medians of {number}; the cost of tracing is measured on "
        f"empty calls and subtracted.{moved}"
    )
    yield from _notes(timeline)
    if timeline.missing:
        yield "Not known here: " + "; ".join(timeline.missing) + "."
    for variant in timeline.variants:
        if variant.reason is not None:
            yield f"FAILED: {variant.name}: {variant.reason.message}"
        elif variant.name not in steps:
            yield (
                f"{variant.name}: the cost of tracing could not be measured, so its step is not "
                "explained"
            )


def _notes(timeline: Timeline) -> Iterator[str]:
    """Yield caveats about the figures."""
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
    columns = ("lane", "what", "from", "µs", "10–90 %", *moments, f"0 to {step.step_us:.1f} µs")
    shown = step.rows if whole else condensed(step.rows)
    rows = [_row(step, row, whole=whole) for row in shown]
    blank = [Cell("")] * (3 if whole else 0)
    if step.residual_us is not None:
        tone = None if step.closes else Tone.DOUBTFUL
        rows.append(
            (
                Cell(""),
                Cell("not explained"),
                Cell(""),
                Cell(unsigned_zero(step.residual_us), tone=tone),
                Cell(residual_error(step)),
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
    return Section(f"A step of {step.name}", (Bullets(sentences(step)), table))


def _row(step: Explained, row: TimelineRow, *, whole: bool) -> tuple[Cell, ...]:
    lane = "GPU" if row.lane is Lane.DEVICE else "host"
    name = _CODE_HELP.get(row.what, row.name)
    moved = "" if row.moved_bytes is None else f", {format_bytes(row.moved_bytes)}"
    more = (
        (Cell(_moment(row.queued_us)), Cell(_moment(row.submitted_us)), Cell(f"{row.end_us:.2f}"))
        if whole
        else ()
    )
    return (
        Cell(lane),
        Cell(f"{name}{moved}" if whole else _cut(name, moved)),
        Cell(f"{row.start_us:.2f}" if whole else f"{row.start_us:.1f}"),
        Cell(f"{row.length_us:.2f}"),
        Cell(f"{unsigned_zero(row.low_us, 1)}–{unsigned_zero(row.high_us, 1)}"),
        *more,
        Cell(_bar(row, step.step_us)),
    )


def _bar(row: TimelineRow, whole_us: float) -> str:
    """Return a bar that shows the row's place in the step, with at least one mark."""
    width = _bar_width(whole_us)
    if whole_us <= 0:
        return _NO_BAR * width
    each = whole_us / width
    first = min(width - 1, max(0, int(row.start_us / each)))
    last = min(width, max(first + 1, round(row.end_us / each)))
    return _NO_BAR * first + _BAR * (last - first) + _NO_BAR * (width - last)


def _bar_width(whole_us: float) -> int:
    """Return the width of bars: each digit beyond three costs a row four characters."""
    digits = len(str(int(whole_us)))
    return max(LEAST_BAR_WIDTH, BAR_WIDTH - 4 * max(0, digits - 3))


def _cut(name: str, moved: str) -> str:
    """Cut the end off a long name, for kernels the least telling part.

    The moved bytes are kept: they show that it is a copy.
    """
    name = name.removeprefix("copy ") if moved else name
    longest = MOST_CHARACTERS - len(moved)
    return f"{name if len(name) <= longest else f'{name[: longest - 1]}…'}{moved}"


# Several variants


def _summary(steps: Sequence[Explained]) -> Section:
    columns = (
        "µs",
        "binds",
        "step",
        "host",
        "own code",
        "launches",
        "GPU busy",
        "hidden",
        "after",
        "not explained",
    )
    rows = tuple(_summary_row(step) for step in steps)
    lead = (
        "step: until the GPU is idle. host: until the call has returned; own code and launches "
        "(how many: overhead) are parts of that. hidden: work of the GPU before the return. after: "
        "the time behind it. not explained: how much longer steps take without a profiler than the "
        "traced ones add up to, ± half the 95 % interval."
    )
    floors = sorted(step.floor_us for step in steps if step.launches)
    floor = (
        f"The floor, an empty launch and the wait for it, is {us(floors[0])}: every step that "
        "launches something takes about as long at least."
        if floors
        else ""
    )
    return Section("Side by side", (lead, Table(columns, rows, 2), *filter(None, [floor])))


def _summary_row(step: Explained) -> tuple[Cell, ...]:
    return (
        Cell(step.name),
        Cell("GPU" if read_step(step).binds == "device" else "host"),
        Cell(f"{step.step_us:.1f}"),
        Cell(f"{step.host_us:.1f}"),
        Cell(f"{step.code_us:.1f}"),
        Cell(f"{step.launches}: {step.launch_us:.1f}"),
        Cell(f"{step.busy_us:.1f}"),
        Cell(f"{step.hidden_us:.1f}"),
        Cell(f"{read_step(step).after_us:.1f}"),
        Cell(_residual(step), tone=None if step.closes else Tone.DOUBTFUL),
    )


def _residual(step: Explained) -> str:
    """Return the unexplained time with its error."""
    if step.residual_us is None:
        return ABSENT
    return f"{unsigned_zero(step.residual_us)} {residual_error(step)}".rstrip()


def _moment(moment_us: float | None) -> str:
    return ABSENT if moment_us is None else f"{moment_us:.2f}"
