"""Write the figures in README and docs/ from their result folders.

    python studies/readme.py            # writes them, and lists those of older kernels
    python studies/readme.py --check    # writes nothing; exits with 1 if a figure differs
    python studies/readme.py --fresh    # as --check; exits with 1 if the headline is outdated

Figures lie between `<!-- figures: NAME -->` and `<!-- end of figures -->`. Below a table stand its
commit, machine and date. A variant has changed if its own file has, or any file of its package.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from batch_worth import HEAD as WORTH_HEAD
from batch_worth import rows as worth_rows
from common import ROOT
from headline_page import HEAD, KIND_HEAD, headline_rows, kind_rows
from measured import Measured
from recompute import LINES, line, typical

from bt_bench.analysis import median
from bt_bench.base.errors import BtBenchError, UsageError, counted
from bt_bench.results import CONFIG_NAME, read_compact_run

REPORTS = ROOT / "reports"
PAGES = tuple(
    ROOT / page
    for page in (
        *("README.md", "docs/how-fast.md", "docs/one-launch.md", "docs/vllm.md"),
        "docs/batch-preparation.md",
    )
)
_BLOCK = re.compile(r"<!-- figures: (?P<name>.*?) -->\n(?P<text>.*?)<!-- end of figures -->", re.S)
_FOOTNOTE = re.compile(r"[¹²³⁴⁵⁶⁷⁸⁹⁰]$")
HOST, GPU = [*LINES][:2]

Rows = Sequence[Sequence[str]]
Cells = Sequence[Mapping[str, str]]
"""The rows of a table: cells by the titles of their columns."""


class Figures(NamedTuple):
    """The source of some figures.

    Args:
        folders: folders of their results, below `reports/`.
        text_of: function from the folders to the Markdown of the figures.
        again: command that repeats the measurement.
    """

    folders: Sequence[str]
    text_of: Callable[[Sequence[Path]], str]
    again: str


# Figures of headline.py


HEADLINES = tuple(f"headline/{name}" for name in ("all", "hundred-1", "hundred-2", "hundred-3"))
"""The folder with all cases, and those of other machines with a hundred of them."""


@lru_cache
def _packed(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    with np.load(folder / "samples.npz") as stored:
        samples = dict(stored)
    return samples, json.loads((folder / "facts.json").read_text(encoding="utf-8"))


def _all_cases(folders: Sequence[Path]) -> str:
    samples, _ = _packed(folders[0])
    return _table(HEAD, headline_rows(samples), folders)


def _kinds(folders: Sequence[Path]) -> str:
    samples, facts = _packed(folders[0])
    return _table(KIND_HEAD, kind_rows(samples, facts["sizes"]), folders)


def _worth(folders: Sequence[Path]) -> str:
    samples, facts = _packed(folders[0])
    return _table(WORTH_HEAD, worth_rows(samples, facts["sizes"]), folders)


def _machines(folders: Sequence[Path]) -> str:
    """Return a row for each machine, with the ranges over the cases that all have."""
    common = {title: _common(folders, title) for title in (HOST, GPU)}
    rows = []
    for folder in folders:
        samples, facts = _packed(folder)
        measured = Measured(**facts["measured"])
        ranges = []
        for title, cases in common.items():
            values = line(samples, title)
            ranges.append(_range([values[case] for case in cases]))
        theirs = median([typical(samples, f"{case} host", 1) for case in common[HOST]])
        cells = [measured.machine(), measured.shown_commits(), measured.date]
        rows.append([*cells, *ranges, f"{theirs:.0f}"])
    cases = [len(found) for found in common.values()]
    head = ["machine", "of", "date", f"host + stage, {cases[0]} cases", f"GPU, {cases[1]} cases"]
    return _table([*head, "vLLM's host + stage, median µs"], rows)


def _common(folders: Sequence[Path], title: str) -> list[str]:
    """Return the cases that have a value in a line on all machines."""
    first, *others = (line(_packed(folder)[0], title) for folder in folders)
    return [case for case in first if all(case in other for other in others)]


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.1f} to {max(values):.1f}, median {median(values):.1f}"


def _headline(folders: Sequence[Path]) -> str:
    """Return the sentences of the README."""
    found = {
        title: [line(_packed(folder)[0], title) for folder in folders] for title in (HOST, GPU)
    }
    ends, medians = {}, {}
    for title, by_folder in found.items():
        values = [value for of_folder in by_folder for value in of_folder.values()]
        ends[title] = f"{min(values):.1f} to {max(values):.1f}"
        medians[title] = f"{median([*by_folder[0].values()]):.0f}"
    measured = [Measured(**_packed(folder)[1]["measured"]) for folder in folders]
    devices = sorted({each.device for each in measured})
    hosts = {host for folder in folders for host in _packed(folder)[1]["hosts"]}
    dates = sorted({each.date for each in measured})
    return (
        f"**`one_launch` takes {ends[HOST]} times less host time than vLLM 0.33.0's own code, and\n"
        f"{ends[GPU]} times less GPU time**, and leaves the same bits in every buffer. The median\n"
        f"step takes {medians[HOST]} times less on the host and {medians[GPU]} times on the GPU.\n"
        f"Measured with {' and '.join(devices)}s, on {' and '.join(dates)}, in\n"
        f"{len(found[HOST][0])} step shapes that were chosen to find the worst; in "
        f"{len(_common(folders, HOST))} of them on {counted(len(hosts) - 1, 'other host')}, too."
    )


# Figures of a sweep


def _events(cells: Cells) -> list[list[str]]:
    suffix = " · fused"
    of_fused = [list(row.values()) for row in cells if row["Config"].endswith(suffix)]
    return [[config.removesuffix(suffix), *others] for config, *others in of_fused]


def _regimes(cells: Cells) -> list[list[str]]:
    """Return the times of a step by case and regime, as `baseline → fused`."""
    found = {
        (row["Config"], row["Variant"]): [row[title] for title in ("Step", "Busy hot", "Host jit")]
        for row in cells
    }
    return [
        [case, *map(" → ".join, zip(times, found[case, "fused"], strict=True))]
        for (case, variant), times in found.items()
        if variant == "baseline"
    ]


def _of_sweep(
    before: str, rows_of: Callable[[Cells], list[list[str]]], head: Sequence[str]
) -> Callable[[Sequence[Path]], str]:
    """Return a function that reads a table of a sweep's page, after a match of `before`."""

    def text_of(folders: Sequence[Path]) -> str:
        page = folders[0] / "comparison.md"
        rows = rows_of(table_after(before, page.read_text(encoding="utf-8")))
        if not rows:
            raise UsageError(f"{page} has no figures after {before!r}")
        for cell in (cell for row in rows for cell in row):
            if _FOOTNOTE.search(cell):
                raise UsageError(f"{page} has a footnote to {cell!r}, of the table of {head[0]}")
        return _table(head, rows, folders)

    return text_of


_HEADLINE_AGAIN = "python studies/headline.py (docs/one-launch.md)"
_FLOORS = ("headline/floors",)
_ORIGIN = ("h100/origin",)
_ORIGIN_AGAIN = "bt-bench sweep origin"
_BATCHES = ("headline/batches",)
_BATCHES_AGAIN = f"{_HEADLINE_AGAIN}, with --batches"

FIGURES: Mapping[str, Figures] = {
    "headline": Figures(HEADLINES, _headline, _HEADLINE_AGAIN),
    "all cases": Figures(HEADLINES[:1], _all_cases, _HEADLINE_AGAIN),
    "machines": Figures(HEADLINES, _machines, _HEADLINE_AGAIN),
    "three calls": Figures(_FLOORS, _all_cases, f"{_HEADLINE_AGAIN}, with --floors"),
    "three calls by kind": Figures(_FLOORS, _kinds, f"{_HEADLINE_AGAIN}, with --floors"),
    "batches": Figures(_BATCHES, _all_cases, _BATCHES_AGAIN),
    "batches by kind": Figures(_BATCHES, _kinds, _BATCHES_AGAIN),
    "what batches save": Figures(_BATCHES, _worth, _BATCHES_AGAIN),
    "cases by kind": Figures(HEADLINES[:1], _kinds, _HEADLINE_AGAIN),
    "a whole step by events": Figures(
        _ORIGIN,
        _of_sweep(
            "## Whole step\n(?s:.*?)Event times, medians",
            _events,
            ("Config", "Baseline (µs)", "Fused (µs)", "Change (µs)", "Change (%)", "Verdict"),
        ),
        _ORIGIN_AGAIN,
    ),
    "a whole step by regime": Figures(
        _ORIGIN,
        _of_sweep(
            "## Whole step\n(?s:.*?)By regime",
            _regimes,
            (
                *("us, baseline → fused", "idle GPU: whole step"),
                *("busy GPU: what it adds", "host: to enqueue it"),
            ),
        ),
        _ORIGIN_AGAIN,
    ),
}


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--check", action="store_true", help="write nothing; end with 1 if a figure is another one")
    add("--fresh", action="store_true", help="also end with 1 if the headline is of older kernels")
    args = parser.parse_args()
    differs, changed = False, False
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        try:
            wanted = written(text)
            stale = dict(changed_since(text))
        except BtBenchError as error:
            sys.exit(f"{page}: {error}")
        for told in stale.values():
            print(f"{page.name}: {told}", file=sys.stderr)
        changed |= not stale.keys().isdisjoint(HEADLINES)
        if not (args.check or args.fresh):
            page.write_text(wanted, encoding="utf-8")
        elif wanted != text:
            differs = True
            blocks = zip(_BLOCK.finditer(text), _BLOCK.finditer(wanted), strict=True)
            names = ", ".join(before["name"] for before, after in blocks if before[0] != after[0])
            print(
                f"{page.name}: these figures are not those of their folders: {names}; write them "
                "by python studies/readme.py",
                file=sys.stderr,
            )
    return int(differs or (args.fresh and changed))


def written(text: str) -> str:
    """Return a page with its figures rewritten from the result folders.

    Raises:
        UsageError: for unknown figures, a folder without them, or a footnote to one.
    """

    def block(match: re.Match[str]) -> str:
        figures = _figures(match["name"])
        text = figures.text_of([REPORTS / folder for folder in figures.folders])
        return f"<!-- figures: {match['name']} -->\n{text}\n<!-- end of figures -->"

    return _BLOCK.sub(block, text)


def _table(head: Sequence[str], rows: Rows, folders: Sequence[Path] = ()) -> str:
    """Return a table in Markdown, with the provenance of its folder below."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    lines.insert(1, "|---|" + "---:|" * (len(head) - 1))
    return "\n".join([*lines, *(f"\n{measured_in(folder).sentence()}" for folder in folders)])


def table_after(before: str, text: str) -> Cells:
    """Return the first table of a Markdown text after a match of a pattern; none: no rows."""
    found = re.search(before, text)
    rest = text[found.end() :] if found else ""
    lines = dropwhile(lambda line: not line.startswith("|"), rest.splitlines())
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in takewhile(lambda line: line.startswith("|"), lines)
    ]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def changed_since(text: str) -> Iterator[tuple[str, str]]:
    """Yield each folder whose variants have changed since, with a line that says so."""
    shown = [_figures(match["name"]) for match in _BLOCK.finditer(text)]
    for name, again in {name: each.again for each in shown for name in each.folders}.items():
        measured = measured_in(REPORTS / name)
        if changed := list(measured.changed()):
            yield (
                name,
                f"the figures of reports/{name} are of {measured.shown_commits()}, "
                f"{measured.date}, and have changed since: {', '.join(changed)}; measure again: "
                f"{again}",
            )


def measured_in(folder: Path) -> Measured:
    """Return the provenance of a folder's figures, from its `facts.json` or its runs."""
    if (folder / "facts.json").is_file():
        return Measured(**_packed(folder)[1]["measured"])
    runs = sorted(path.parent for path in folder.rglob(CONFIG_NAME))
    return Measured.of([result.header for run in runs for result in read_compact_run(run)])


def _figures(name: str) -> Figures:
    if name not in FIGURES:
        raise UsageError(f"there are no figures {name!r}; expected one of {', '.join(FIGURES)}")
    return FIGURES[name]


if __name__ == "__main__":
    sys.exit(main())
