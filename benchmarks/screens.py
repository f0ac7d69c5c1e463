"""Draws the screens that the documentation shows, as SVG of 80 columns, into `docs/pictures/`.

    python benchmarks/screens.py            # both; the second runs the config of `make sweep`
    python benchmarks/screens.py --origin   # only the committed run on a GPU, the same every time

- `show-origin.svg`: what `bt-bench show` prints of a step in `reports/h100/origin`.
- `sweep-quick.svg`: what `make sweep` ends with on a machine without a GPU. Its times are of the
  machine that draws it.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from bt_bench.analysis import EVERYTHING, Selection
from bt_bench.cli.next_steps import next_lines
from bt_bench.config import planned_variants
from bt_bench.report import print_run
from bt_bench.results import VariantResult, read_run

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
ORIGIN = Path("reports/h100/origin")
COLUMNS = 80
AFTER_MAKE = ".venv/bin/bt-bench"
"""What `make sweep` installs, and therefore names."""

_THEME = TerminalTheme(
    (246, 248, 250),
    (36, 41, 47),
    [
        (36, 41, 47),
        (180, 30, 40),
        (20, 110, 45),
        (140, 90, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (110, 119, 129),
    ],
)
"""Dark on light, with colours that can be told from each other on white."""

# As rich's own, but without fonts from the network, which no page that shows the file would load.
_SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
    }}
    .{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})"
       clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


def main() -> int:
    """Writes the pictures."""
    args = _parse()
    _write("show-origin", origin_screen())
    if not args.origin:
        _write("sweep-quick", _quick_screen())
    return 0


def origin_screen() -> str:
    """The picture of a committed run, which is the same wherever it is drawn."""
    selection = Selection(operations=["step"])
    typed = f"bt-bench show {ORIGIN} --operations step"
    return _screen(typed, ORIGIN, _results_of(ROOT / ORIGIN), "bt-bench", selection)


def _quick_screen() -> str:
    with tempfile.TemporaryDirectory() as folder:
        config = ROOT / "configs" / "quick.yaml"
        command = [sys.executable, "-m", "bt_bench", "sweep", str(config), "--device", "cpu"]
        subprocess.run(
            [*command, "--reports", folder], check=True, stdout=subprocess.DEVNULL, cwd=ROOT
        )
        (run,) = Path(folder).iterdir()
        return _screen("make sweep", Path("reports") / run.name, _results_of(run), AFTER_MAKE)


def _results_of(run: Path) -> list[VariantResult]:
    return read_run(run, planned_variants(run) or ())


def _screen(
    typed: str,
    folder: Path,
    results: Sequence[VariantResult],
    program: str,
    selection: Selection = EVERYTHING,
) -> str:
    """What a command prints, below what was typed."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=COLUMNS,
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
        legacy_windows=False,
    )
    console.print(Text(f"$ {typed}", "bold"))
    print_run(results, selection, console=console)
    for line in ("", *next_lines(folder, results, program)):
        console.print(Text(line), soft_wrap=True)
    text = console.export_svg(title="", theme=_THEME, code_format=_SVG, unique_id="screen")
    return "\n".join(_without_trailing_blanks(text))


def _without_trailing_blanks(text: str) -> Iterator[str]:
    yield from (line.rstrip() for line in text.splitlines())
    yield ""


def _write(name: str, svg: str) -> None:
    path = PICTURES / f"{name}.svg"
    path.write_text(svg, encoding="utf-8", newline="\n")
    print(path.relative_to(ROOT))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--origin", action="store_true", help="draw only show-origin.svg")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
