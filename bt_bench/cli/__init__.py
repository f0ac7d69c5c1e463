"""The command line: thin commands that import what they need when they run."""

from __future__ import annotations

import sys

from bt_bench.cli.outside import run_no_code_of_judged_trees
from bt_bench.cli.terminal import heed_only_sane_sizes, take_no_log_for_a_terminal


def main() -> None:
    """Run `bt-bench`: the entry point."""
    run_no_code_of_judged_trees(sys.argv[1:])
    heed_only_sane_sizes()
    take_no_log_for_a_terminal()
    try:
        from bt_bench.cli.app import app
        from bt_bench.cli.encoding import spell_what_streams_lack
    except KeyboardInterrupt:  # commands handle it once they run
        sys.exit("bt-bench: interrupted")

    spell_what_streams_lack()
    app(prog_name="bt-bench")
