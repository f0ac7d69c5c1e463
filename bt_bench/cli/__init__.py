"""The command line: thin commands that import what they need when they run."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of `bt-bench`."""
    # Typer takes GITHUB_ACTIONS for a terminal and would colour what goes into logs and files.
    if os.environ.get("GITHUB_ACTIONS"):
        os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")

    try:
        from bt_bench.cli.app import app
        from bt_bench.cli.encoding import spell_what_streams_lack
    except KeyboardInterrupt:  # commands handle it once they run
        sys.exit("bt-bench: interrupted")

    spell_what_streams_lack()
    app(prog_name="bt-bench")
