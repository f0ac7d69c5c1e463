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
from dataclasses import dataclass
from pathlib import Path

from measured import Measured

from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.report import ABSENT
from bt_bench.results import CONFIG_NAME, read_compact_run

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "reports"
PAGES = (ROOT / "docs" / "how-fast.md", ROOT / "docs" / "one-launch.md")
_BLOCK = re.compile(r"<!-- figures: (?P<name>.*?) -->\n(?P<text>.*?)<!-- end of figures -->", re.S)

# A page numbers the footnotes of its figures; a table in docs/ merges them into one.
_NUMBERS = re.compile(r"[¹²³⁴⁵⁶⁷⁸⁹⁰]+$")
_FOOTNOTE = re.compile(r"- (?P<number>[¹²³⁴⁵⁶⁷⁸⁹⁰]+) (?P<text>.*)")
_IS_IN_DOUBT = "methods disagree"
IN_DOUBT = "†"
_DOUBT = (
    f"{IN_DOUBT} Two methods of timing it on the device differ by more than they may; the folder's "
    "tables say by how much."
)

Rows = list[list[str]]


@dataclass(frozen=True)
class Figures:
    """The source of a table in docs/.

    Args:
        folder: folder of its runs, below `reports/`.
        page: file in the folder that has the figures.
        section: heading in the page after which they stand; empty: the whole page.
        rows_of: function from the rows of the page's tables to the table's rows.
        head: titles of its columns.
        again: command that repeats the measurement.
    """

    folder: str
    page: str
    section: str
    rows_of: Callable[[Rows], Rows]
    head: Sequence[str]
    again: str


def _worst(rows: Rows) -> Rows:
    """Return best, median, and worst with its case, for each line of the table of aims."""
    (head,) = [row for row in rows if row[1:3] == ["worst case", "worst"]]
    found = [row for row in rows[rows.index(head) + 1 :] if len(row) == len(head)]
    wanted = [head.index(name) for name in ("best", "median", "worst", "worst case", "cases")]
    return [[row[0], *(row[index] for index in wanted)] for row in found if row[1] != ABSENT]


def _kinds(rows: Rows) -> Rows:
    return [row for row in rows[1:] if len(row) == len(rows[0])]


def _events(rows: Rows) -> Rows:
    suffix = " · fused"
    of_fused = [row for row in rows if row[0].endswith(suffix) and len(row) == 6]
    return [[row[0].removesuffix(suffix), *row[1:]] for row in of_fused]


def _regimes(rows: Rows) -> Rows:
    """Return the times of a step by case and regime, as `baseline → fused`."""
    (head,) = [row for row in rows if row[:3] == ["Config", "Variant", "Step"]]
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows[rows.index(head) + 1 :]:
        if len(row) == len(head) and row[1] in ("baseline", "fused"):
            cells = [row[head.index(name)] for name in ("Step", "Busy hot", "Host jit")]
            found.setdefault(row[0], {})[row[1]] = cells
    return [
        [case, *map(" → ".join, zip(of["baseline"], of["fused"], strict=True))]
        for case, of in found.items()
    ]


TABLES: Mapping[str, Figures] = {
    "all cases": Figures(
        "h100/worst",
        "worst.md",
        "## The aims",
        _worst,
        ("", "best", "median", "worst", "worst case", "cases"),
        "python studies/worst.py (docs/one-launch.md)",
    ),
    "cases by kind": Figures(
        "h100/worst",
        "worst.md",
        "## By kind of case",
        _kinds,
        (
            "cases",
            "number",
            "host + stage, µs",
            "times less than vLLM",
            "device, µs",
            "times less than vLLM",
        ),
        "python studies/worst.py (docs/one-launch.md)",
    ),
    "a whole step by events": Figures(
        "h100/origin",
        "comparison.md",
        "## Whole step",
        _events,
        ("Config", "Baseline (µs)", "Fused (µs)", "Change (µs)", "Change (%)", "Verdict"),
        "bt-bench sweep origin",
    ),
    "a whole step by regime": Figures(
        "h100/origin",
        "comparison.md",
        "## Whole step",
        _regimes,
        (
            "us, baseline → fused",
            "idle GPU: whole step",
            "busy GPU: what it adds",
            "host: to enqueue it",
        ),
        "bt-bench sweep origin",
    ),
}


def main() -> int:
    """Write or check the pages."""
    args = _parse()
    checks = args.check or args.fresh
    differs, changed = False, False
    for page in args.page or PAGES:
        text = page.read_text(encoding="utf-8")
        try:
            wanted = written(text, args.reports)
            stale = list(changed_since(text, args.reports))
        except BtBenchError as error:
            sys.exit(f"{page}: {error}")
        for line in stale:
            print(f"{page.name}: {line}", file=sys.stderr)
        changed |= bool(stale)
        if not checks:
            page.write_text(wanted, encoding="utf-8")
        elif wanted != text:
            differs = True
            names = ", ".join(_differing(text, wanted))
            print(
                f"{page.name}: these tables are not those of their folders: {names}; write them "
                "by python studies/readme.py",
                file=sys.stderr,
            )
    return int(differs or (args.fresh and changed))


def written(text: str, reports: Path) -> str:
    """Return a page with its tables rewritten from the result folders.

    Raises:
        UsageError: for an unknown table, a folder without its figures, or an unexpected footnote.
    """

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        figures = _figures(name)
        folder = reports / figures.folder
        page = (folder / figures.page).read_text(encoding="utf-8")
        rows = figures.rows_of(
            tables_in(page.partition(figures.section)[2] if figures.section else page)
        )
        if not rows:
            raise UsageError(f"{folder / figures.page} has no figures for the table {name!r}")
        for cell in (cell for row in rows for cell in row):
            if _NUMBERS.search(cell):
                raise UsageError(
                    f"{folder / figures.page} has a footnote to {cell!r}; of the table {name!r} "
                    f"expected only footnotes that begin with {_IS_IN_DOUBT!r}"
                )
        lines = ["| " + " | ".join(cells) + " |" for cells in ((figures.head), *rows)]
        lines.insert(1, "|---|" + "---:|" * (len(figures.head) - 1))
        body = "\n".join(lines)
        below = measured_in(folder).sentence()
        if IN_DOUBT in body:
            below = f"{_DOUBT} {below}"
        return f"<!-- figures: {name} -->\n{body}\n\n{below}\n<!-- end of figures -->"

    return _BLOCK.sub(table, text)


def changed_since(text: str, reports: Path) -> Iterator[str]:
    """Yield a line for each folder whose variants have changed since their measurement."""
    shown = dict.fromkeys(_figures(match["name"]) for match in _BLOCK.finditer(text))
    folders = {figures.folder: figures.again for figures in shown}
    for folder, again in folders.items():
        measured = measured_in(reports / folder)
        changed = list(measured.changed())
        if changed:
            yield (
                f"the figures of {_shown(reports / folder)} are of {measured.shown_commits()}, and "
                f"have changed since: {', '.join(changed)}; measure again: {again}"
            )


def measured_in(folder: Path) -> Measured:
    """Return the provenance of a folder's figures, from its `worst.json` or its runs."""
    stored = folder / "worst.json"
    if stored.is_file():
        return Measured(**json.loads(stored.read_text(encoding="utf-8"))["measured"])
    runs = [
        path.parent
        for path in sorted([*folder.glob(CONFIG_NAME), *folder.glob(f"*/{CONFIG_NAME}")])
    ]
    return Measured.of([result.header for run in runs for result in read_compact_run(run)])


def tables_in(text: str) -> Rows:
    """Return the cells of all table rows of a Markdown text, without the rules below titles.

    In a cell whose footnote reports that two methods disagree, `IN_DOUBT` replaces the number.
    Other footnote numbers are kept.
    """
    found: Rows = []
    table: Rows = []  # the latest table, which footnotes refer to
    was_row = False
    for line in text.splitlines():
        if is_row := line.startswith("|"):
            row = [cell.strip() for cell in line.strip("|").split("|")]
            table = [*(table if was_row else []), row]
            if not all(cell.strip(":-") == "" for cell in row):
                found.append(row)
        elif (note := _FOOTNOTE.match(line)) and note["text"].startswith(_IS_IN_DOUBT):
            for row in table:
                row[:] = [_in_doubt(cell, note["number"]) for cell in row]
        was_row = is_row
    return found


def _in_doubt(cell: str, number: str) -> str:
    found = _NUMBERS.search(cell)
    return _NUMBERS.sub(IN_DOUBT, cell) if found and found[0] == number else cell


def _figures(name: str) -> Figures:
    if name not in TABLES:
        raise UsageError(f"there is no table {name!r}; expected one of {', '.join(TABLES)}")
    return TABLES[name]


def _shown(folder: Path) -> Path:
    return folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder


def _differing(text: str, wanted: str) -> list[str]:
    blocks = zip(_BLOCK.finditer(text), _BLOCK.finditer(wanted), strict=True)
    return [before["name"] for before, after in blocks if before[0] != after[0]]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add(
        "--page",
        type=Path,
        action="append",
        help="a page; may be repeated; default: docs/how-fast.md and docs/one-launch.md",
    )
    add(
        "--reports", type=Path, default=REPORTS, help="the folder that has theirs; default: reports"
    )
    add("--check", action="store_true", help="write nothing; end with 1 if a table is another one")
    add("--fresh", action="store_true", help="also end with 1 if variants have changed since")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
