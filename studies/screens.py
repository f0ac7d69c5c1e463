"""Draw the screens of the documentation, as SVG, into `docs/pictures/`.

    python studies/screens.py            # all; this runs the config of `make sweep`
    python studies/screens.py --origin   # only those of a committed run, the same every time

Each is drawn at 80 columns, and at 120 columns with `-120` appended to its name:

- `show-origin.svg`: the output of `bt-bench show` for a step in `reports/h100/origin`.
- `compare-origin.svg`: the output of `bt-bench compare` for that run.
- `sweep-quick.svg`: the final output of `make sweep` on a machine without a GPU. Its times depend
  on the machine that draws it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import sys
import tempfile
from pathlib import Path

from common import ROOT, bt_bench
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from bt_bench.cli.next_steps import next_lines
from bt_bench.config import planned_variants
from bt_bench.report import print_run
from bt_bench.results import PAGE_NAME, read_run

PICTURES = ROOT / "docs" / "pictures"
ORIGIN = Path("reports/h100/origin")
OF_ORIGIN = {
    "show-origin": ("show", str(ORIGIN), "--operations", "step"),
    "compare-origin": ("compare", str(ORIGIN)),
}
"""Pictures of a committed run, with the commands that print them."""
WIDTHS = {80: "", 120: "-120"}
"""Numbers of columns, with the suffix of a picture's name."""
AFTER_MAKE = ".venv/bin/bt-bench"
"""The command that `make sweep` installs, and therefore prints."""

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
"""Dark on light, with colours that are easy to distinguish on white."""

# As rich's own, but without fonts from the network, which pages that embed the file do not load.
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
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--origin", action="store_true", help="draw only those of a committed run")
    only_origin = parser.parse_args().origin
    for columns, suffix in WIDTHS.items():
        for name in OF_ORIGIN:
            _write(f"{name}{suffix}", origin_screen(name, columns))
    if not only_origin:
        _write_quick_screens()
    return 0


def origin_screen(name: str, columns: int) -> str:
    """Draw the picture of a committed run, which is the same on every machine."""
    typed = " ".join(("bt-bench", *OF_ORIGIN[name]))
    console = _recording(typed, columns)
    console.print(Text.from_ansi(printed(OF_ORIGIN[name], columns)), soft_wrap=True)
    return _svg(console)


# Hints name plain `bt-bench`, as if it were installed on the path.
_INSTALLED = (
    "from bt_bench.cli import main, next_steps; next_steps.program = lambda: 'bt-bench'; main()"
)


def printed(arguments: tuple[str, ...], columns: int) -> str:
    """Run bt-bench on the committed run as in a terminal; return its output, with colours."""
    terminal = {"FORCE_COLOR": "1", "NO_COLOR": "", "COLUMNS": str(columns), "PYTHONUTF8": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        # Without a page that somebody had made there: the screen names it.
        ignored = shutil.ignore_patterns(PAGE_NAME)
        shutil.copytree(ROOT / ORIGIN, Path(scratch) / ORIGIN, ignore=ignored)
        done = bt_bench(*arguments, code=_INSTALLED, cwd=Path(scratch), **terminal)
    done.check_returncode()
    return done.stdout.rstrip("\n")


def _write_quick_screens() -> None:
    """Run a sweep once, and draw its final output at each width."""
    with tempfile.TemporaryDirectory() as folder:
        config = ROOT / "configs" / "quick.yaml"
        done = bt_bench("sweep", config, "--device", "cpu", cwd=Path(folder))
        done.check_returncode()
        (run,) = Path(folder, "reports").iterdir()
        results = read_run(run, planned_variants(run) or ())
        with contextlib.chdir(folder):
            lines = [*next_lines(Path("reports") / run.name, results, AFTER_MAKE)]
        for columns, suffix in WIDTHS.items():
            console = _recording("make sweep", columns)
            print_run(results, console=console)
            for line in ("", *lines):
                console.print(Text(line), soft_wrap=True)
            _write(f"sweep-quick{suffix}", _svg(console))


def _recording(typed: str, columns: int) -> Console:
    """Return a recording console, with a command on its first line."""
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
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _write(name: str, svg: str) -> None:
    path = PICTURES / f"{name}.svg"
    path.write_text(svg, encoding="utf-8", newline="\n")
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
