"""The page of `headline.py`, from its figures. What is missing is shown as missing, never as 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from headline_figures import (
    COMPARED,
    FEWEST_STEPS,
    MEMORY_FACTOR,
    WINDOWS,
    Headline,
    RungRow,
    TraceRow,
)
from headline_memory import STEPS, Footprint
from headline_runs import (
    COLUMNS,
    HOST_STAGE,
    MOST_TOKENS_PER_REQUEST,
    NEW,
    OLD,
    Figure,
    metric_for,
)

from bt_bench.report import ABSENT, Bullets, Cell, Document, Section, Table
from bt_bench.results import format_bytes, format_number

TITLES = {OLD: "vLLM 0.16.0", NEW: "vLLM 0.33.0"}


def document(headline: Headline) -> Document:
    """The whole page."""
    sections = [
        _aims(headline),
        _trace(headline.trace),
        _changes(headline),
        _memory(headline),
        Section("What was measured", (Bullets(tuple(f"{fact}." for fact in headline.facts)),)),
    ]
    if headline.problems:
        sections.insert(0, Section("What went wrong", (Bullets(tuple(headline.problems)),)))
    reached = "all aims are reached" if headline.succeeded() else "NOT all aims are reached"
    return Document(f"A step in one launch: {reached}", (), tuple(sections))


def _aims(headline: Headline) -> Section:
    rows = [
        [
            row.title,
            *(_figure(row.values.get(name), row.unit) for name in COMPARED[:2]),
            row.aim,
            *(_figure(row.values.get(name), row.unit) for name in COMPARED[2:]),
            *(_ratio_and_ends(row.factors[name]) for name in COMPARED[2:]),
            *(_verdict(row.reached[name]) for name in COMPARED[2:]),
        ]
        for row in headline.rows
    ]
    ours = COMPARED[2:]
    titles = ["", TITLES[OLD], TITLES[NEW], "aim", *ours]
    titles += [f"vLLM 0.33.0 / {name}" for name in ours] + [f"reached by {name}" for name in ours]
    return Section(
        "The aims",
        (
            "Times in µs: medians, with the 95 % interval of the median over rounds in brackets. "
            "Host + stage, and stage to synchronize, are sums of a round's own samples. Device is "
            "by the profiler. Factors of times are those of bt-bench compare over the same run, "
            "with the intervals that its verdicts rest on, for host + stage with --metric "
            f"{metric_for(HOST_STAGE).name}. {ABSENT}: not measured, or not credible.",
            _table(titles, rows, num_text_columns=1),
        ),
    )


def _trace(rows: Sequence[TraceRow]) -> Section:
    table = []
    new = next((row for row in rows if row.variant == NEW), None)
    for row in rows:
        factors = [
            _factor(_ratio(getattr(new, name, None), getattr(row, name)))
            for name in ("median_us", "p99_us")
        ]
        table.append(
            [
                TITLES.get(row.variant, row.variant),
                row.path.value if row.path else ABSENT,
                str(row.steps) if row.steps else ABSENT,
                *(_number(row.of_windows.get(name)) for name in WINDOWS),
                _number(row.median_us),
                _number(row.p99_us),
                *factors,
            ]
        )
    titles = ["", "launch path", "steps", *(f"median, {name}" for name in WINDOWS)]
    titles += ["median", "99th percentile"]
    titles += ["vLLM 0.33.0 / it, median", "vLLM 0.33.0 / it, 99th percentile"]
    return Section(
        "Decode-heavy steps of the Azure conversation trace: host + stage, µs",
        (
            "A step is decode-heavy when it has requests, and at most "
            f"{MOST_TOKENS_PER_REQUEST} tokens for each of them on average. The figure of a step "
            "is its median over rounds; median and 99th percentile are over all such steps of both "
            f"windows together, {FEWEST_STEPS} or more.",
            _table(titles, table, num_text_columns=2),
        ),
    )


def _changes(headline: Headline) -> Section:
    blocks: list[str | Table] = [
        "Each line has what the lines above it have, but for the last, which has a graph in place "
        "of the direct launch. Medians in µs, of one interleaved run.",
    ]
    for case, rungs in headline.changes.items():
        others = headline.others.get(case, ())
        rows = [[str(place), *_rung(rung)] for place, rung in enumerate(rungs, start=1)]
        rows += [["", *_rung(rung)] for rung in others]
        titles = ["", case, "arm", "launch path", *COLUMNS, "saved, host + stage"]
        saved = _saved(rungs) + [ABSENT] * len(others)
        table = [[*row, gain] for row, gain in zip(rows, saved, strict=True)]
        blocks.append(_table(titles, table, num_text_columns=4))
    return Section("What each change bought", tuple(blocks))


def _rung(row: RungRow) -> list[str]:
    values = [row.values.get(name) for name in COLUMNS]
    times = [_number(value.value if value else None) for value in values]
    return [row.rung.title, row.rung.variant, row.rung.path.value, *times]


def _saved(rungs: Sequence[RungRow]) -> list[str]:
    """How much less host + stage is than in the line above."""
    values = [row.values.get(HOST_STAGE) for row in rungs]
    gains = [
        None if before is None or now is None else before.value - now.value
        for before, now in pairwise(values)
    ]
    return [ABSENT, *map(_number, gains)]


def _memory(headline: Headline) -> Section:
    by_place = {(f.case, f.variant): f for f in headline.memory}
    rows = []
    for footprint in headline.memory:
        new = by_place.get((footprint.case, NEW))
        rows.append(
            [
                footprint.case,
                TITLES.get(footprint.variant, footprint.variant),
                *_footprint(footprint, new),
            ]
        )
    verdicts = [f"{n} {_verdict(r)}" for n, r in headline.memory_reached.items()]
    titles = ["case", "", "device, setup", "device, after steps", "/ vLLM 0.33.0"]
    titles += ["pinned, setup", "pinned, after steps", "/ vLLM 0.33.0"]
    return Section(
        "Memory",
        (
            f"What tables hold right after they were filled, and after {STEPS} steps. Device "
            "memory is what torch's allocator has given out; code of kernels and what the driver "
            f"keeps for graphs are not in it. Pinned memory: {headline.pinned_by or 'not counted'}."
            f" At most {MEMORY_FACTOR:g} times vLLM 0.33.0's after the steps of every case: "
            f"{', '.join(verdicts) or 'not known'}.",
            _table(titles, rows, num_text_columns=2),
        ),
    )


def _footprint(footprint: Footprint, new: Footprint | None) -> list[str]:
    cells = []
    for setup, after in (("device_setup", "device_after"), ("pinned_setup", "pinned_after")):
        now = getattr(footprint, after)
        ratio = _ratio(now, getattr(new, after, None))
        cells += [_bytes(getattr(footprint, setup)), _bytes(now), _factor(ratio)]
    return cells


def _figure(figure: Figure | None, unit: str) -> str:
    """`9.870 (9.800 to 9.950)`, or `3 to 10` of counts; the figure alone where it has no range."""
    if figure is None:
        return ABSENT
    write = "{:.0f}".format if unit == "count" else format_number
    if unit == "count" and figure.low != figure.high:
        return f"{write(figure.low)} to {write(figure.high)}"
    return f"{write(figure.value)}{_ends(figure, write)}"


def _ratio_and_ends(factor: Figure | None) -> str:
    return ABSENT if factor is None else f"{factor.value:.2f}{_ends(factor, '{:.2f}'.format)}"


def _ends(figure: Figure, write: Callable[[float], str]) -> str:
    if figure.low is None or figure.high is None or figure.low == figure.high:
        return ""
    return f" ({write(figure.low)} to {write(figure.high)})"


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other else value / other


def _number(value: float | None) -> str:
    return ABSENT if value is None else format_number(value)


def _bytes(value: int | None) -> str:
    return ABSENT if value is None else format_bytes(value)


def _factor(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}"


def _verdict(reached: bool | None) -> str:
    return "not known" if reached is None else "yes" if reached else "NO"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, num_text_columns: int) -> Table:
    cells = tuple(tuple(map(Cell, row)) for row in rows)
    return Table(tuple(titles), cells, num_text_columns)
