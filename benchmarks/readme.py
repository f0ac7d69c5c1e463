"""Writes the figures of README.md from the result folders that they are of.

    python benchmarks/readme.py            # writes the tables, and says what has changed since
    python benchmarks/readme.py --check    # writes nothing; ends with 1 if a table is another one
    python benchmarks/readme.py --fresh    # as --check, and also if variants have changed since

A table lies between `<!-- figures: NAME -->` and `<!-- end of figures -->`, and ends with the
commit and machine that it is of. Variants have changed if a file of their package has, or their
own.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bt_bench.errors import BtBenchError, UsageError
from bt_bench.results import CONFIG_NAME, VariantResult, read_compact_run
from bt_bench.variants import find_variants

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "reports" / "h200"
_BLOCK = re.compile(r"<!-- figures: (?P<name>.*?) -->\n(?P<text>.*?)<!-- end of figures -->", re.S)
_SHORT = 7  # of a commit

Rows = list[list[str]]


@dataclass(frozen=True)
class Figures:
    """A table of the README.

    Args:
        folder: with the runs that it is of, below `reports/h200`.
        page: the file in the folder that has the figures.
        section: of the page that has them; empty: all of it.
        rows_of: its rows, from those of the page's tables.
        head: titles of its columns.
        again: the command that measures it.
    """

    folder: str
    page: str
    section: str
    rows_of: Callable[[Rows], Rows]
    head: Sequence[str]
    again: str


STEPS = (
    "host + stage, 1 group, 128 requests",
    "host + stage, 4 groups",
    "host + stage, 8 groups, 1,024 requests",
    "device, 1 group, 128 requests, 2,048 tokens",
    "device, 4 groups",
    "device, 8 groups, 1,024 requests",
    "device, 1 request of 16,384 tokens, one block added",
    "stage to synchronize, 1 group",
    "host + stage, decode-heavy steps of the trace, median",
)
"""Rows of the page of `headline.py` that are shown."""


def _steps(rows: Rows) -> Rows:
    """VLLM's two and ours without their intervals, and the factor with its own."""
    found = {row[0]: row for row in rows}
    wanted = [found[title] for title in STEPS if title in found]
    return [[row[0], *(row[i].split(" (")[0] for i in (1, 2, 4)), row[6]] for row in wanted]


def _events(rows: Rows) -> Rows:
    suffix = " · fused"
    of_fused = [row for row in rows if row[0].endswith(suffix) and len(row) == 6]
    return [[row[0].removesuffix(suffix), *row[1:]] for row in of_fused]


def _regimes(rows: Rows) -> Rows:
    """What a step takes where, before and after, by case."""
    (head,) = [row for row in rows if row[:3] == ["Config", "Variant", "Step"]]
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows[rows.index(head) + 1 :]:
        if len(row) == len(head) and row[1] in ("baseline", "fused"):
            cells = [
                row[head.index(name)].rstrip("¹²³⁴⁵") for name in ("Step", "Busy hot", "Host jit")
            ]
            found.setdefault(row[0], {})[row[1]] = cells
    return [
        [case, *map(" → ".join, zip(of["baseline"], of["fused"], strict=True))]
        for case, of in found.items()
    ]


TABLES: Mapping[str, Figures] = {
    "steps beside vLLM": Figures(
        "headline",
        "headline.md",
        "",
        _steps,
        ("", "vLLM 0.16.0", "vLLM 0.33.0", "`one_launch`", "0.33.0 / `one_launch`"),
        "python benchmarks/headline.py (docs/one-launch.md)",
    ),
    "a whole step by events": Figures(
        "origin",
        "comparison.md",
        "## Whole step",
        _events,
        ("Config", "Baseline (ms)", "Fused (ms)", "Change (us)", "Change (%)", "Verdict"),
        "bt-bench sweep origin",
    ),
    "a whole step by regime": Figures(
        "origin",
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
    """Writes or checks the README."""
    args = _parse()
    text = args.readme.read_text(encoding="utf-8")
    try:
        wanted = written(text, args.reports)
        stale = list(changed_since(text, args.reports))
    except BtBenchError as error:
        sys.exit(f"{args.readme}: {error}")
    checks = args.check or args.fresh
    differs = checks and wanted != text
    if not checks:
        args.readme.write_text(wanted, encoding="utf-8")
    for line in stale:
        print(f"{args.readme.name}: {line}", file=sys.stderr)
    if differs:
        names = ", ".join(_differing(text, wanted))
        print(
            f"{args.readme.name}: these tables are not those of their folders: {names}; write them "
            "by python benchmarks/readme.py",
            file=sys.stderr,
        )
    return int(differs or (args.fresh and bool(stale)))


def written(text: str, reports: Path) -> str:
    """The README with the tables that the folders give.

    Raises:
        UsageError: for a table that nobody knows, and a page without its figures.
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
        lines = ["| " + " | ".join(cells) + " |" for cells in ((figures.head), *rows)]
        lines.insert(1, "|---|" + "---:|" * (len(figures.head) - 1))
        body = "\n".join(lines)
        return f"<!-- figures: {name} -->\n{body}\n\n{_origin_of(folder)}\n<!-- end of figures -->"

    return _BLOCK.sub(table, text)


def changed_since(text: str, reports: Path) -> Iterator[str]:
    """Says of each folder which of its variants are not what was measured."""
    shipped = find_variants()
    shown = dict.fromkeys(_figures(match["name"]) for match in _BLOCK.finditer(text))
    folders = {figures.folder: figures.again for figures in shown}
    for folder, again in folders.items():
        headers = headers_in(reports / folder)
        changed = {
            header.variant.name
            for header in headers
            if header.variant.name in shipped
            and header.variant.source_sha256 != shipped[header.variant.name].source_sha256()
        }
        if changed:
            commits = _commits(headers)
            yield (
                f"the figures of {_shown(reports / folder)} are of {commits}, and have changed "
                f"since: {', '.join(sorted(changed))}; measure again: {again}"
            )


def headers_in(folder: Path) -> list[VariantResult]:
    """Of all results of the runs in a folder and right below it."""
    runs = [
        path.parent
        for path in sorted([*folder.glob(CONFIG_NAME), *folder.glob(f"*/{CONFIG_NAME}")])
    ]
    return [result.header for run in runs for result in read_compact_run(run)]


def tables_in(text: str) -> Rows:
    """Cells of all table rows of a Markdown text."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def _figures(name: str) -> Figures:
    if name not in TABLES:
        raise UsageError(f"there is no table {name!r}; expected one of {', '.join(TABLES)}")
    return TABLES[name]


def _origin_of(folder: Path) -> str:
    headers = headers_in(folder)
    env = headers[0].environment
    where = env.gpus[0].name if env.gpus else "a CPU"
    return f"Of {_commits(headers)}, on one {where} with torch {env.torch} and Triton {env.triton}."


def _shown(folder: Path) -> Path:
    return folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder


def _commits(headers: Sequence[VariantResult]) -> str:
    found = sorted({(header.environment.commit or "unknown")[:_SHORT] for header in headers})
    return f"commit{'s' * (len(found) > 1)} {' and '.join(found)}"


def _differing(text: str, wanted: str) -> list[str]:
    blocks = zip(_BLOCK.finditer(text), _BLOCK.finditer(wanted), strict=True)
    return [before["name"] for before, after in blocks if before[0] != after[0]]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--readme", type=Path, default=ROOT / "README.md", help="the page; default: README.md")
    add("--reports", type=Path, default=REPORTS, help="its folders; default: reports/h200")
    add("--check", action="store_true", help="write nothing; end with 1 if a table is another one")
    add("--fresh", action="store_true", help="also end with 1 if variants have changed since")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
