"""The page of a profile: where the time of a step goes, its counters, and its kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from bt_bench.analysis.profile import Explained, read_step
from bt_bench.base import Bullets, Cell, Document, Table, format_number
from bt_bench.report.page.parts import (
    Bar,
    BarChart,
    Page,
    PageSection,
    Picture,
    Segment,
)
from bt_bench.report.profile import explained_steps, flame_graph, lanes_svg, timeline_document
from bt_bench.report.profile.host_calls import host_section
from bt_bench.report.profile.sentences import sentences
from bt_bench.report.run.facts import describe_environment
from bt_bench.results import Environment, Timeline, command_text

_LANES = "Host and GPU over the step, on one axis of time"
_PARTS = {
    "host": "host, until the call returns",
    "device": "work of the GPU left then",
    "latency": "wait when the GPU is done",
}


def profile_page(timeline: Timeline | None, documents: Sequence[Document]) -> Page:
    """Build the page of a profile, whatever of it exists.

    Args:
        timeline: the traced steps, if there are any.
        documents: reports on its counters and kernels.

    Raises:
        ValueError: if there is nothing.
    """
    pages = [_plain_page(document) for document in documents]
    if timeline is not None:
        pages.insert(0, _timeline_page(timeline))
    if not pages:
        raise ValueError("expected a timeline, counters or kernels, got none of them")
    first, *others = pages
    if timeline is None:  # its title is that of the page
        first = replace(first, sections=(replace(first.sections[0], title=""), *first.sections[1:]))
    sections = (*first.sections, *(section for page in others for section in page.sections))
    return replace(first, sections=sections)


def _plain_page(document: Document) -> Page:
    sections = (PageSection(document.title, document.lead), *document.sections)
    return Page(title=document.title, answer=(), sections=sections)


def _timeline_page(timeline: Timeline) -> Page:
    steps = explained_steps(timeline)
    document = timeline_document(timeline, whole=True)
    method, *doubts = document.lead
    bars = [_bars(steps)] if steps else ["No step could be explained."]
    lanes = [_lanes(steps, document.title)] if steps else []
    flames = tuple(_flames(timeline, document.title))
    return Page(
        title=document.title,
        answer=tuple(_answer(steps)),
        warnings=tuple(text for text in doubts if isinstance(text, str)),
        sections=(
            PageSection("Where the time goes", (*bars, *lanes)),
            # Rows of all variants take many screens.
            *(replace(each, folded=len(steps) > 1) for each in document.sections),
            PageSection("The host's calls as flames", flames, folded=True),
            PageSection("How it was measured", (method, _environment(timeline.environment))),
            PageSection("Repeat it", (Bullets((_command(timeline),)),)),
        ),
    )


def _answer(steps: Mapping[str, Explained]) -> Iterator[str]:
    for name, step in steps.items():
        yield f"{name}: {sentences(step)[0]}"  # the others are in its section


def _bars(steps: Mapping[str, Explained]) -> BarChart:
    longest = max(step.step_us for step in steps.values()) or 1.0
    bars, rows = [], []
    for name, step in steps.items():
        after = read_step(step).after_us
        times = {
            "host": step.host_us,
            "device": max(0.0, after - step.tail_us),
            "latency": step.tail_us,
        }
        segments = tuple(
            Segment(kind, max(0.0, time) / longest, f"{_PARTS[kind]}: {_us(time)}")
            for kind, time in times.items()
        )
        bars.append(Bar(name, segments, _us(step.step_us)))
        cells = (format_number(time, 3) for time in (step.step_us, *times.values()))
        rows.append((Cell(name), *map(Cell, cells)))
    texts = ", ".join(f"{bar.label} {bar.text}" for bar in bars)
    return BarChart(
        name="budget",
        title="A step of each variant, until the GPU is idle",
        alternative=f"Parts of a step of each variant: {texts}.",
        legend=tuple(_PARTS.items()),
        bars=tuple(bars),
        data=Table(("Variant", "Step, µs", *_PARTS.values()), tuple(rows), 1),
    )


def _us(time: float) -> str:
    return f"{format_number(time, 3)} µs"


def _lanes(steps: Mapping[str, Explained], title: str) -> Picture:
    rows = tuple(
        (
            Cell(name),
            Cell(row.lane.value),
            Cell(row.name),
            Cell(f"{row.start_us:.2f}"),
            Cell(f"{row.length_us:.2f}"),
        )
        for name, step in steps.items()
        for row in step.rows
    )
    return Picture(
        name="timeline",
        title=_LANES,
        alternative=_LANES,
        drawing=Markup(lanes_svg(list(steps.values()), title)),
        data=Table(("Variant", "Lane", "Work", "From, µs", "µs"), rows, 3),
    )


def _flames(timeline: Timeline, title: str) -> Iterator[Picture]:
    for variant in timeline.variants:
        if variant.host is None:
            continue
        table = host_section(variant.host, variant.name).blocks[-1]
        called = f"Calls of the host in a step of {variant.name}"
        yield Picture(
            name=f"flames/{variant.name}",
            title=called,
            alternative=called,
            drawing=Markup(flame_graph(variant.host, f"{title}, {variant.name}: the host")),
            data=table if isinstance(table, Table) else Table((), (), 0),
        )


def _environment(environment: Environment) -> Bullets:
    return Bullets((*describe_environment(environment),))


def _command(timeline: Timeline) -> str:
    """Return the command that takes such a profile; a timeline does not keep its own."""
    words = ["bt-bench", "profile", timeline.config, "-k", timeline.case]
    words += ["--operations", str(timeline.operation)]
    words += ["--variants", ",".join(variant.name for variant in timeline.variants)]
    return command_text([*words, "--step", str(timeline.step)])
