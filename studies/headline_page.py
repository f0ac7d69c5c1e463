"""The page of `headline.py`, and the tables of docs/ that come from samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from measured import Measured
from recompute import (
    LINES,
    best,
    line,
    lines_of,
    pair,
    spread,
    tail,
    times_less,
    times_less_than_best,
    times_less_than_separate,
    typical,
)

from bt_bench.analysis import median
from bt_bench.analysis.compare.estimating import BLOCKS
from bt_bench.analysis.statistics.clusters import clustered_medians
from bt_bench.analysis.statistics.student import t_critical
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
    "decodes",
    "decodes with drafts",
    "prefills, and mixes of them with decodes",
)

MIXED = KINDS[-1]

LEAD = "one_launch, staged by a call per request, as vLLM is"
"""Describe ours for `facts.json` files that have no such text."""

Samples = Mapping[str, Any]
Rows = list[list[str]]


def page(samples: Samples, facts: Mapping[str, Any]) -> Document:
    """Return the whole page."""
    unsupported = set(facts["unsupported"])
    sections = [
        Section("All cases", (_table(HEAD, headline_rows(samples)),)),
        Section("By kind of case", (_table(KIND_HEAD, kind_rows(samples, facts["sizes"])),)),
    ]
    missing = []
    for title in lines_of(samples):
        values = line(samples, title)
        rows = [_worst(samples, title, case, value) for case, value in reversed(values.items())]
        heading = f"{title}: the worst {min(SHOWN, len(rows))} of {len(rows)}"
        sections.append(Section(heading, (_table(WORST_HEAD, rows[:SHOWN], 2),)))
        lacking = {*samples["cases"].tolist()} - values.keys() - unsupported
        few = LINES[title][0] in OF_MANY
        why = "fewer than 100 samples" if few else "too few rounds or instances"
        if lacking:
            names = ", ".join(sorted(lacking)[:SHOWN]) + " and others" * (len(lacking) > SHOWN)
            missing.append(f"{title}: {len(lacking)} cases have {why}: {names}.")
    known = [
        f"{len(unsupported)} cases are not possible with vLLM.",
        *missing,
        *_against_separate(samples),
        *(
            f"bt-bench compare says of {what}, sweep by sweep: "
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
        f"Ours is {samples['arms'][0]}: {facts.get('ours', LEAD)}. A "
        "ratio says how many times as long the other takes: the median over rounds in which both "
        "took part, with an interval of 95 % for each case by itself. Below 1, the other is "
        "faster. Of 99th percentiles less is better. Times are medians in µs. "
        "studies/recompute.py computes all values from samples.npz.",
    )
    return Document(f"{len(samples['cases'])} cases beside vLLM", lead, tuple(sections))


OF_MANY = (tail, spread)
"""Need many samples, and have no interval."""
SEPARATE = [*LINES][-1]
SMALL = 1.05
"""The ratio that an interval is said to tell from 1, if no other is nearer."""
HEAD = ("", "best", "median", "worst", "worst case", "cases")
KIND_HEAD = (
    *("cases", "number", "host + stage, µs", "times less than vLLM"),
    *("GPU, µs", "times less than vLLM"),
)
WORST_HEAD = ("case", "other", "ours, µs", "other, µs", "value", "interval")


def three_digits(value: float) -> str:
    """Return a value with three significant digits."""
    return f"{value:#.3g}".rstrip(".")


def headline_rows(samples: Samples) -> Rows:
    """Return best, median, worst, worst case and number of cases of each line."""
    rows = []
    for title in lines_of(samples):
        if values := [*line(samples, title).items()]:
            middle = median([value for _, value in values])
            figures = (three_digits(value) for value in (values[0][1], middle, values[-1][1]))
            rows.append([title, *figures, values[-1][0], str(len(values))])
    return rows


def kind_rows(samples: Samples, sizes: Mapping[str, Mapping[str, int]]) -> Rows:
    """Return the ranges of times and of ratios to vLLM, by kind of case."""
    return [
        [
            kind,
            str(len(names)),
            *(cell for what in ("host", "gpu") for cell in _ranges(samples, what, names)),
        ]
        for kind, names in kinds_of(samples, sizes).items()
    ]


def kinds_of(samples: Samples, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """Return the names of the cases by kind, of kinds that have any."""
    kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in samples["cases"].tolist():
        kinds[_kind_of(name, sizes[name])].append(name)
    return {kind: names for kind, names in kinds.items() if names}


def _kind_of(name: str, sizes: Mapping[str, int]) -> str:
    """Classify a case by its config or by its writes, since little else affects times as much."""
    config, _, case = name.partition("/")
    if config.startswith("azure_") or not sizes:
        return KINDS[5]
    if config in ("production", "layouts"):
        return KINDS[4]
    if config == "batches":
        return KINDS[{"decode": 6, "drafts": 7}.get(case.split("_")[0].rstrip("0123456789"), 8)]
    if case.endswith("_long"):
        return KINDS[3]
    return KINDS[0 if not sizes["rows_written"] else 1 if sizes["rows_written"] <= FEW_ROWS else 2]


def _ranges(samples: Samples, what: str, names: Sequence[str]) -> list[str]:
    """Return the ranges of our times and of the ratios, over cases that have a ratio."""
    ratios = {key: times_less(samples, key) for key in (f"{name} {what}" for name in names)}
    found = {key: float(ratio) for key, ratio in ratios.items() if ratio is not None}
    if not found:
        return [ABSENT, ABSENT]
    times = [typical(samples, key, 0) for key in found]
    low, high = min(found.values()), max(found.values())
    return [
        f"{min(times):.1f} to {max(times):.1f}",
        f"{low:.1f} to {high:.1f}, median {median([*found.values()]):.1f}",
    ]


def _worst(samples: Samples, title: str, name: str, value: float) -> list[str]:
    """Return the cells of a case in the table of a line."""
    of, what = LINES[title]
    key = f"{name} {what}"
    other = 1
    if of is times_less_than_best:
        other = best(samples, key)
    elif of is times_less_than_separate:
        other = _separate(samples)
    ours, theirs = (format_number(float(typical(samples, key, arm))) for arm in (0, other))
    ends = ABSENT if of in OF_MANY else _interval(samples, key, other)
    return [name, str(samples["arms"][other]), ours, theirs, three_digits(value), ends]


def _separate(samples: Samples) -> int:
    arms: list[str] = samples["arms"].tolist()
    return arms.index("separate")


def _against_separate(samples: Samples) -> Iterator[str]:
    """Yield in how many cases ours is slower than `separate`, if that was measured."""
    if SEPARATE not in lines_of(samples):
        return
    _, what = LINES[SEPARATE]
    keys = [f"{case} {what}" for case in line(samples, SEPARATE)]
    found = [_ends(samples, key, _separate(samples)) for key in keys]
    known = [ends for ends in found if ends is not None]
    narrow = sum(high / low <= SMALL**2 for low, high in known)
    yield (
        f"{SEPARATE}: the interval is below 1, which says that ours is slower, in "
        f"{sum(high < 1 for _, high in known)} of {len(known)} cases; {narrow} have rounds enough "
        f"to have shown {100 * (SMALL - 1):.0f} %, since half of their interval is shorter."
    )


def _interval(samples: Samples, key: str, arm: int) -> str:
    """Return the interval of a ratio as text."""
    ends = _ends(samples, key, arm)
    return ABSENT if ends is None else " to ".join(map(three_digits, ends))


def _ends(samples: Samples, key: str, arm: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a ratio, by the errors that `bt-bench compare` computes."""
    both = pair(samples, key, arm)
    rounds = (samples[key][[0, arm]] >= 0).all(axis=(0, 2))
    logs = np.median(np.log(both[1] / both[0]), axis=1)
    found = clustered_medians(logs[None, :], samples[f"{key} instances"][rounds].tolist(), BLOCKS)
    if found is None:
        return None
    half = t_critical(0.025, found.degrees) * found.error[0]
    location = float(found.location[0])
    return math.exp(location - half), math.exp(location + half)


def _table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], num_text_columns: int = 1
) -> Table:
    cells = tuple(tuple(map(Cell, row)) for row in rows)
    return Table(tuple(titles), cells, num_text_columns)
