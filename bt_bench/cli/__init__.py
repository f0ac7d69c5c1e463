"""The command line: thin commands that import what they need when they run."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

from bt_bench.base.errors import ExitCode, of_system
from bt_bench.cli.outside import run_no_code_of_judged_trees
from bt_bench.cli.terminal import heed_only_sane_sizes, take_no_log_for_a_terminal


def main() -> None:
    """Run `bt-bench`: the entry point."""
    signal.signal(signal.SIGINT, _end_early)  # commands handle it once they run
    try:
        run_no_code_of_judged_trees(sys.argv[1:])
    except OSError as error:  # such as a working directory that is gone
        print(f"bt-bench: error: {of_system(error)}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    heed_only_sane_sizes()
    take_no_log_for_a_terminal()
    from bt_bench.base.inherited import hear_how_children_end
    from bt_bench.cli.app import app
    from bt_bench.cli.encoding import spell_what_streams_lack
    from bt_bench.cli.exits import with_exit_codes

    hear_how_children_end()
    spell_what_streams_lack()
    with_exit_codes(lambda: app(prog_name="bt-bench"))


def _end_early(_signum: int, _frame: FrameType | None) -> NoReturn:
    print("bt-bench: interrupted", file=sys.stderr)
    sys.exit(ExitCode.INTERRUPTED)
