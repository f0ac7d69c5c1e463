"""Draws the screens that the documentation shows, as SVG, into `docs/pictures/`.

    python studies/screens.py            # all; this runs the config of `make sweep`
    python studies/screens.py --origin   # only those of a committed run, the same every time

Each is drawn at 80 columns, and at 120 into a file whose name ends so:

- `show-origin.svg`: what `bt-bench show` prints of a step in `reports/h100/origin`.
- `compare-origin.svg`: what `bt-bench compare` prints of that run.
- `sweep-quick.svg`: what `make sweep` ends with on a machine without a GPU. Its times are of the
  machine that draws it.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from bt_bench.cli.next_steps import next_lines
from bt_bench.config import planned_variants
from bt_bench.report import print_run
from bt_bench.results import read_run

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
ORIGIN = Path("reports/h100/origin")
OF_ORIGIN = {
    "show-origin": ("show", str(ORIGIN), "--operations", "step"),
    "compare-origin": ("compare", str(ORIGIN)),
}
"""Pictures of a committed run, with the commands that print them."""
WIDTHS = {80: "", 120: "-120"}
"""Columns, with what they add to the name of a picture."""
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
    for columns, suffix in WIDTHS.items():
        for name in OF_ORIGIN:
            _write(f"{name}{suffix}", origin_screen(name, columns))
    if not args.origin:
        _write_quick_screens()
    return 0


def origin_screen(name: str, columns: int) -> str:
    """Draws the picture of a committed run, which is the same wherever it is drawn."""
    typed = " ".join(("bt-bench", *OF_ORIGIN[name]))
    console = _recording(typed, columns)
    console.print(Text.from_ansi(printed(OF_ORIGIN[name], columns)), soft_wrap=True)
    return _svg(console)


# As where it is installed and on the path, whatever draws it.
_INSTALLED = (
    "from bt_bench.cli import main, next_steps; next_steps.program = lambda: 'bt-bench'; main()"
)


def printed(arguments: tuple[str, ...], columns: int) -> str:
    """Runs bt-bench as in a terminal of so many columns; returns what it prints, with colours."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    environment |= {"FORCE_COLOR": "1", "COLUMNS": str(columns), "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, "-c", _INSTALLED, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment,
    ).stdout.rstrip("\n")


def _write_quick_screens() -> None:
    """Runs a sweep once, and draws what it ends with."""
    with tempfile.TemporaryDirectory() as folder:
        config = ROOT / "configs" / "quick.yaml"
        command = [sys.executable, "-m", "bt_bench", "sweep", str(config), "--device", "cpu"]
        subprocess.run(
            [*command, "--reports", folder], check=True, stdout=subprocess.DEVNULL, cwd=ROOT
        )
        (run,) = Path(folder).iterdir()
        results = read_run(run, planned_variants(run) or ())
        for columns, suffix in WIDTHS.items():
            console = _recording("make sweep", columns)
            print_run(results, console=console)
            for line in ("", *next_lines(Path("reports") / run.name, results, AFTER_MAKE)):
                console.print(Text(line), soft_wrap=True)
            _write(f"sweep-quick{suffix}", _svg(console))


def _recording(typed: str, columns: int) -> Console:
    """A console that records, with a command on its first line."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=columns,
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
        legacy_windows=False,
    )
    console.print(Text(f"$ {typed}", "bold"))
    return console


def _svg(console: Console) -> str:
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
    parser.add_argument("--origin", action="store_true", help="draw only those of a committed run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
