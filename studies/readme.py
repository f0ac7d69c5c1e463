"""Write the tables of figures in docs/ from their result folders.

    python studies/readme.py            # writes the tables, and lists variants changed since
    python studies/readme.py --check    # writes nothing; exits with 1 if a table differs
    python studies/readme.py --fresh    # as --check, and exits with 1 if variants have changed

`worst/` keeps no runs: its `worst.json` has their provenance.

A table lies between `<!-- figures: NAME -->` and `<!-- end of figures -->`, and ends with its
commit and machine. A variant has changed if its own file has, or any file of its package.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import NamedTuple

from common import ROOT
from measured import Measured

from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.report import ABSENT
from bt_bench.results import CONFIG_NAME, read_compact_run

REPORTS = ROOT / "reports"
PAGES = (ROOT / "docs" / "how-fast.md", ROOT / "docs" / "one-launch.md")
_BLOCK = re.compile(r"<!-- figures: (?P<name>.*?) -->\n(?P<text>.*?)<!-- end of figures -->", re.S)
_FOOTNOTE = re.compile(r"[¹²³⁴⁵⁶⁷⁸⁹⁰]$")

Rows = Sequence[Mapping[str, str]]
"""The rows of a table: cells by the titles of their columns."""


class Figures(NamedTuple):
    """The source of a table in docs/.

    Args:
        folder: folder of its runs, below `reports/`.
        page: file in the folder that has the figures.
        before: text in the page before their table.
        rows_of: function from the rows of the page's table to the table's rows.
        head: titles of its columns.
        again: command that repeats the measurement.
    """

    folder: str
    page: str
    before: str
    rows_of: Callable[[Rows], list[list[str]]]
    head: Sequence[str]
    again: str


def _worst(rows: Rows) -> list[list[str]]:
    """Return best, median, and worst with its case, for each line of the table of aims."""
    wanted = ("", "best", "median", "worst", "worst case", "cases")
    return [[row[title] for title in wanted] for row in rows if row["worst case"] != ABSENT]


def _events(rows: Rows) -> list[list[str]]:
    suffix = " · fused"
    of_fused = [list(row.values()) for row in rows if row["Config"].endswith(suffix)]
    return [[config.removesuffix(suffix), *cells] for config, *cells in of_fused]


def _regimes(rows: Rows) -> list[list[str]]:
    """Return the times of a step by case and regime, as `baseline → fused`."""
    found = {
        (row["Config"], row["Variant"]): [row[title] for title in ("Step", "Busy hot", "Host jit")]
        for row in rows
    }
    return [
        [case, *map(" → ".join, zip(cells, found[case, "fused"], strict=True))]
        for (case, variant), cells in found.items()
        if variant == "baseline"
    ]


_WORST = ("h100/worst", "worst.md")
_WORST_AGAIN = "python studies/worst.py (docs/one-launch.md)"
_ORIGIN = ("h100/origin", "comparison.md")
_ORIGIN_AGAIN = "bt-bench sweep origin"
TABLES: Mapping[str, Figures] = {
    "all cases": Figures(
        *_WORST,
        "## The aims",
        _worst,
        ("", "best", "median", "worst", "worst case", "cases"),
        _WORST_AGAIN,
    ),
    "cases by kind": Figures(
        *_WORST,
        "## By kind of case",
        lambda rows: [list(row.values()) for row in rows],
        (
            *("cases", "number", "host + stage, µs", "times less than vLLM"),
            *("device, µs", "times less than vLLM"),
        ),
        _WORST_AGAIN,
    ),
    "a whole step by events": Figures(
        *_ORIGIN,
        "## Whole step\n(?s:.*?)Event times, medians",
        _events,
        ("Config", "Baseline (µs)", "Fused (µs)", "Change (µs)", "Change (%)", "Verdict"),
        _ORIGIN_AGAIN,
    ),
    "a whole step by regime": Figures(
        *_ORIGIN,
        "## Whole step\n(?s:.*?)By regime",
        _regimes,
        (
            *("us, baseline → fused", "idle GPU: whole step"),
            *("busy GPU: what it adds", "host: to enqueue it"),
        ),
        _ORIGIN_AGAIN,
    ),
}


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--check", action="store_true", help="write nothing; end with 1 if a table is another one")
    add("--fresh", action="store_true", help="also end with 1 if variants have changed since")
    args = parser.parse_args()
    differs, changed = False, False
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        try:
            wanted = written(text)
            stale = list(changed_since(text))
        except BtBenchError as error:
            sys.exit(f"{page}: {error}")
        for line in stale:
            print(f"{page.name}: {line}", file=sys.stderr)
        changed |= bool(stale)
        if not (args.check or args.fresh):
            page.write_text(wanted, encoding="utf-8")
        elif wanted != text:
            differs = True
            blocks = zip(_BLOCK.finditer(text), _BLOCK.finditer(wanted), strict=True)
            names = ", ".join(before["name"] for before, after in blocks if before[0] != after[0])
            print(
                f"{page.name}: these tables are not those of their folders: {names}; write them "
                "by python studies/readme.py",
                file=sys.stderr,
            )
    return int(differs or (args.fresh and changed))


def written(text: str) -> str:
    """Return a page with its tables rewritten from the result folders.

    Raises:
        UsageError: for an unknown table, a folder without its figures, or a footnote to one.
    """

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        figures = _figures(name)
        folder = REPORTS / figures.folder
        page = folder / figures.page
        rows = figures.rows_of(table_after(figures.before, page.read_text(encoding="utf-8")))
        if not rows:
            raise UsageError(f"{page} has no figures for the table {name!r}")
        for cell in (cell for row in rows for cell in row):
            if _FOOTNOTE.search(cell):
                raise UsageError(f"{page} has a footnote to {cell!r}, of the table {name!r}")
        lines = ["| " + " | ".join(cells) + " |" for cells in (figures.head, *rows)]
        lines.insert(1, "|---|" + "---:|" * (len(figures.head) - 1))
        body = "\n".join(lines)
        below = measured_in(folder).sentence()
        return f"<!-- figures: {name} -->\n{body}\n\n{below}\n<!-- end of figures -->"

    return _BLOCK.sub(table, text)


def table_after(before: str, text: str) -> Rows:
    """Return the first table of a Markdown text after a match of a pattern; none: no rows."""
    found = re.search(before, text)
    rest = text[found.end() :] if found else ""
    lines = dropwhile(lambda line: not line.startswith("|"), rest.splitlines())
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in takewhile(lambda line: line.startswith("|"), lines)
    ]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def changed_since(text: str) -> Iterator[str]:
    """Yield a line for each folder whose variants have changed since their measurement."""
    shown = [_figures(match["name"]) for match in _BLOCK.finditer(text)]
    for name, again in {figures.folder: figures.again for figures in shown}.items():
        measured = measured_in(REPORTS / name)
        if changed := list(measured.changed()):
            yield (
                f"the figures of reports/{name} are of {measured.shown_commits()}, and have "
                f"changed since: {', '.join(changed)}; measure again: {again}"
            )


def measured_in(folder: Path) -> Measured:
    """Return the provenance of a folder's figures, from its `worst.json` or its runs."""
    stored = folder / "worst.json"
    if stored.is_file():
        return Measured(**json.loads(stored.read_text(encoding="utf-8"))["measured"])
    runs = sorted(path.parent for path in folder.rglob(CONFIG_NAME))
    return Measured.of([result.header for run in runs for result in read_compact_run(run)])


def _figures(name: str) -> Figures:
    if name not in TABLES:
        raise UsageError(f"there is no table {name!r}; expected one of {', '.join(TABLES)}")
    return TABLES[name]


if __name__ == "__main__":
    sys.exit(main())
