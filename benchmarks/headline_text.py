"""The page of `headline.py`, from its figures. What is missing is shown as missing, never as 0."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headline_figures import (
    COMPARED,
    FEWEST_STEPS,
    GRAPH,
    MEMORY_FACTOR,
    NEW,
    OLD,
    ONE_LAUNCH,
    WINDOWS,
    Headline,
    RungRow,
    TraceRow,
)
from headline_memory import STEPS, Footprint
from headline_results import COLUMNS, HOST_STAGE, MOST_TOKENS_PER_REQUEST, Estimate

from bt_bench.results.units import format_bytes, format_number

MISSING = "–"
TITLES = {OLD: "vLLM 0.16.0", NEW: "vLLM 0.33.0", ONE_LAUNCH: "`one_launch`"}
TITLES |= {GRAPH: "`one_launch_graph`", "baseline": "`baseline`"}


def render(headline: Headline) -> str:
    """The whole page, in Markdown."""
    parts = [
        _aims(headline),
        _trace(headline.trace),
        _changes(headline),
        _memory(headline),
        _section("What was measured", [f"- {fact}." for fact in headline.facts]),
    ]
    if headline.problems:
        parts.insert(0, _section("What went wrong", [f"- {text}" for text in headline.problems]))
    reached = "all aims are reached" if headline.succeeded() else "NOT all aims are reached"
    return "\n".join([f"# A step in one launch: {reached}", "", *parts])


def _aims(headline: Headline) -> str:
    rows = [
        [
            row.title,
            *(_figure(row.values.get(name), row.unit) for name in COMPARED[:2]),
            row.aim,
            *(_figure(row.values.get(name), row.unit) for name in COMPARED[2:]),
            *(_factor(row.factors[name]) for name in COMPARED[2:]),
            *(_verdict(row.reached[name]) for name in COMPARED[2:]),
        ]
        for row in headline.rows
    ]
    ours = [TITLES[name] for name in COMPARED[2:]]
    titles = ["", TITLES[OLD], TITLES[NEW], "aim", *ours]
    titles += [f"vLLM 0.33.0 / {name}" for name in ours] + [f"reached by {name}" for name in ours]
    return _section(
        "The aims",
        [
            "Times in us: medians, with the 95 % interval of the median over rounds in brackets. "
            "Host + stage, and stage to synchronize, are sums of a round's own samples. Device is "
            f"by the profiler. {MISSING}: not measured.",
            "",
            *_table(titles, rows, num_text_columns=1),
        ],
    )


def _trace(rows: Sequence[TraceRow]) -> str:
    table = []
    new = next((row for row in rows if row.variant == NEW), None)
    for row in rows:
        factors = [
            _factor(_ratio(getattr(new, name, None), getattr(row, name)))
            for name in ("median_us", "p99_us")
        ]
        table.append(
            [
                TITLES[row.variant],
                row.path.value if row.path else MISSING,
                str(row.steps) if row.steps else MISSING,
                *(_number(row.of_windows.get(name)) for name in WINDOWS),
                _number(row.median_us),
                _number(row.p99_us),
                *factors,
            ]
        )
    titles = ["", "launch path", "steps", *(f"median, `{name}`" for name in WINDOWS)]
    titles += ["median", "99th percentile"]
    titles += ["vLLM 0.33.0 / it, median", "vLLM 0.33.0 / it, 99th percentile"]
    return _section(
        "Decode-heavy steps of the Azure conversation trace: host + stage, us",
        [
            "A step is decode-heavy when it has requests, and at most "
            f"{MOST_TOKENS_PER_REQUEST} tokens for each of them on average. The figure of a step "
            "is its median over rounds; median and 99th percentile are over all such steps of both "
            f"windows together, {FEWEST_STEPS} or more.",
            "",
            *_table(titles, table, num_text_columns=2),
        ],
    )


def _changes(headline: Headline) -> str:
    lines = [
        "Each line has what the lines above it have, but for the last, which has a graph in place "
        "of the direct launch. Medians in us, of one interleaved run.",
    ]
    for case, rungs in headline.changes.items():
        others = headline.others.get(case, ())
        rows = [[str(place), *_rung(rung)] for place, rung in enumerate(rungs, start=1)]
        rows += [["", *_rung(rung)] for rung in others]
        titles = ["", f"`{case}`", "arm", "launch path", *COLUMNS, "saved, host + stage"]
        saved = _saved(rungs) + [MISSING] * len(others)
        table = [[*row, gain] for row, gain in zip(rows, saved, strict=True)]
        lines += ["", *_table(titles, table, num_text_columns=4)]
    return _section("What each change bought", lines)


def _rung(row: RungRow) -> list[str]:
    values = [row.values.get(name) for name in COLUMNS]
    times = [_number(value.value if value else None) for value in values]
    return [row.rung.title, f"`{row.rung.variant}`", row.rung.path.value, *times]


def _saved(rungs: Sequence[RungRow]) -> list[str]:
    """How much less host + stage is than in the line above."""
    values = [row.values.get(HOST_STAGE) for row in rungs]
    gains = [
        None if before is None or now is None else before.value - now.value
        for before, now in pairwise(values)
    ]
    return [MISSING, *map(_number, gains)]


def _memory(headline: Headline) -> str:
    by_place = {(f.case, f.variant): f for f in headline.memory}
    rows = []
    for footprint in headline.memory:
        new = by_place.get((footprint.case, NEW))
        rows.append(
            [
                f"`{footprint.case}`",
                TITLES.get(footprint.variant, footprint.variant),
                *_footprint(footprint, new),
            ]
        )
    verdicts = [f"{TITLES[n]} {_verdict(r)}" for n, r in headline.memory_reached.items()]
    titles = ["case", "", "device, setup", "device, after steps", "/ vLLM 0.33.0"]
    titles += ["pinned, setup", "pinned, after steps", "/ vLLM 0.33.0"]
    return _section(
        "Memory",
        [
            f"What tables hold right after they were filled, and after {STEPS} steps. Device "
            "memory is what torch's allocator has given out; code of kernels and what the driver "
            f"keeps for graphs are not in it. Pinned memory: {headline.pinned_by or 'not counted'}."
            f" At most {MEMORY_FACTOR:g} times vLLM 0.33.0's after the steps of every case: "
            f"{', '.join(verdicts) or 'not known'}.",
            "",
            *_table(titles, rows, num_text_columns=2),
        ],
    )


def _footprint(footprint: Footprint, new: Footprint | None) -> list[str]:
    cells = []
    for setup, after in (("device_setup", "device_after"), ("pinned_setup", "pinned_after")):
        now = getattr(footprint, after)
        ratio = _ratio(now, getattr(new, after, None))
        cells += [_bytes(getattr(footprint, setup)), _bytes(now), _factor(ratio)]
    return cells


def _figure(estimate: Estimate | None, unit: str) -> str:
    """`9.870 (9.800 to 9.950)`, or `3 to 10` of counts; the figure alone where it has no range."""
    if estimate is None:
        return MISSING
    write = "{:.0f}".format if unit == "count" else format_number
    value, low, high = write(estimate.value), estimate.low, estimate.high
    if low is None or high is None or low == high:
        return value
    ends = f"{write(low)} to {write(high)}"
    return ends if unit == "count" else f"{value} ({ends})"


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other else value / other


def _number(value: float | None) -> str:
    return MISSING if value is None else format_number(value)


def _bytes(value: int | None) -> str:
    return MISSING if value is None else format_bytes(value)


def _factor(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


def _verdict(reached: bool | None) -> str:
    return "not known" if reached is None else "yes" if reached else "NO"


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *lines, ""])


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, num_text_columns: int
) -> list[str]:
    rules = ["---"] * num_text_columns + ["---:"] * (len(titles) - num_text_columns)
    return ["| " + " | ".join(cells) + " |" for cells in (titles, rules, *rows)]
