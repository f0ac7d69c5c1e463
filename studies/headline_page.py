"""The page of `headline.py`, and the tables of docs/ that come from samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from measured import Measured
from recompute import LINES, best, line, times_less, times_less_than_best, typical

from bt_bench.analysis import median
from bt_bench.base import format_number
from bt_bench.report import ABSENT, Bullets, Cell, Document, Section, Table

SHOWN = 10
"""Cases of each list of the worst."""

FEW_ROWS = 8
"""Most rows of a few writes, as the configs use the term."""

KINDS = (
    "nothing is written",
    f"up to {FEW_ROWS} rows are written",
    f"more than {FEW_ROWS} rows are written",
    "rows of hundreds of ids are written",
    "stock models and mixes of production",
    "windows of two traces",
)

Samples = Mapping[str, Any]
Rows = list[list[str]]


def page(samples: Samples, facts: Mapping[str, Any]) -> Document:
    """Return the whole page."""
    sections = [
        Section("All cases", (_table(HEAD, headline_rows(samples)),)),
        Section("By kind of case", (_table(KIND_HEAD, kind_rows(samples, facts["sizes"])),)),
    ]
    for title in LINES:
        values = line(samples, title)
        worst = [*values.items()][-SHOWN:]
        rows = [
            [name, *_times(samples, title, name), format_number(value)]
            for name, value in worst[::-1]
        ]
        sections.append(
            Section(
                f"{title}: the worst {len(rows)} of {len(values)}", (_table(WORST_HEAD, rows, 2),)
            )
        )
    known = [
        f"{len(facts['unsupported'])} cases are not possible with vLLM.",
        *(
            f"bt-bench compare says of {what}: "
            + ", ".join(f"{count} {verdict}" for verdict, count in found.items())
            for what, found in facts["verdicts"].items()
        ),
        Measured(**facts["measured"]).sentence(),
        *(f"{machine}." for machine in facts["machines"]),
    ]
    sections.append(Section("What was measured", (Bullets(tuple(known)),)))
    if facts["problems"]:
        sections.insert(0, Section("What went wrong", (Bullets(tuple(facts["problems"])),)))
    lead = (
        f"A ratio says how many times as long the other takes as {samples['arms'][0]}: the median "
        "over rounds in which both took part. Below 1, the other is faster. Times are medians in "
        "µs. studies/recompute.py computes all ratios from samples.npz.",
    )
    return Document(f"{len(samples['cases'])} cases beside vLLM", lead, tuple(sections))


HEAD = ("", "best", "median", "worst", "worst case", "cases")
KIND_HEAD = (
    *("cases", "number", "host + stage, µs", "times less than vLLM"),
    *("GPU, µs", "times less than vLLM"),
)
WORST_HEAD = ("case", "other", "ours, µs", "other, µs", "value")


def headline_rows(samples: Samples) -> Rows:
    """Return best, median, worst, worst case and number of cases of each line."""
    rows = []
    for title in LINES:
        if values := [*line(samples, title).items()]:
            middle = median([value for _, value in values])
            figures = map(format_number, (values[0][1], middle, values[-1][1]))
            rows.append([title, *figures, values[-1][0], str(len(values))])
    return rows


def kind_rows(samples: Samples, sizes: Mapping[str, Mapping[str, int]]) -> Rows:
    """Return the ranges of times and of ratios to vLLM, by kind of case."""
    kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in samples["cases"].tolist():
        kinds[_kind_of(name, sizes[name])].append(name)
    return [
        [
            kind,
            str(len(names)),
            *(cell for what in ("host", "gpu") for cell in _ranges(samples, what, names)),
        ]
        for kind, names in kinds.items()
        if names
    ]


def _kind_of(name: str, sizes: Mapping[str, int]) -> str:
    """Classify a case by its config or by its writes, since little else affects times as much."""
    config, _, case = name.partition("/")
    if config.startswith("azure_") or not sizes:
        return KINDS[5]
    if config == "production":
        return KINDS[4]
    if case.endswith("_long"):
        return KINDS[3]
    return KINDS[0 if not sizes["rows_written"] else 1 if sizes["rows_written"] <= FEW_ROWS else 2]


def _ranges(samples: Samples, what: str, names: Sequence[str]) -> list[str]:
    keys = [f"{name} {what}" for name in names]
    times = [us for key in keys if math.isfinite(us := typical(samples, key, 0))]
    ratios = [float(ratio) for key in keys if (ratio := times_less(samples, key)) is not None]
    return [
        f"{min(times):.1f} to {max(times):.1f}" if times else ABSENT,
        f"{min(ratios):.1f} to {max(ratios):.1f}, median {median(ratios):.1f}"
        if ratios
        else ABSENT,
    ]


def _times(samples: Samples, title: str, name: str) -> list[str]:
    """Return our time, the other arm, and its time, in the quantity of a line."""
    of, what = LINES[title]
    key = f"{name} {what}"
    other = best(samples, key) if of is times_less_than_best else 1
    ours, theirs = (format_number(float(typical(samples, key, arm))) for arm in (0, other))
    return [str(samples["arms"][other]), ours, theirs]


def _table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], num_text_columns: int = 1
) -> Table:
    cells = tuple(tuple(map(Cell, row)) for row in rows)
    return Table(tuple(titles), cells, num_text_columns)
