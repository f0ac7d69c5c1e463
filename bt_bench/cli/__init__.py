"""The command line: thin commands that import what they need when they run."""

from __future__ import annotations

import sys

from bt_bench.cli.outside import run_no_code_of_judged_trees
from bt_bench.cli.terminal import heed_only_sane_sizes, take_no_log_for_a_terminal


def main() -> None:
    """Run `bt-bench`: the entry point.

    Python ends with exit code 1 after an exception, which here means that something got worse. So
    an error outside of any command gets the exit code that it has inside of one.
    """
    try:
        _run()
    except Exception as error:
        _end(error)


def _run() -> None:
    run_no_code_of_judged_trees(sys.argv[1:])
    heed_only_sane_sizes()
    take_no_log_for_a_terminal()
    try:
        from bt_bench.base.inherited import hear_how_children_end
        from bt_bench.cli.app import app
        from bt_bench.cli.encoding import spell_what_streams_lack
    except KeyboardInterrupt:  # commands handle it once they run
        sys.exit("bt-bench: interrupted")

    hear_how_children_end()
    spell_what_streams_lack()
    app(prog_name="bt-bench")


def _end(error: Exception) -> None:
    import traceback

    from bt_bench.base.errors import ExitCode, of_system

    if isinstance(error, OSError):
        code, text = ExitCode.USAGE, f"error: {of_system(error)}"
    else:
        code, text = ExitCode.INTERNAL, "internal error; please report it with the output above"
    try:
        if code == ExitCode.INTERNAL:
            traceback.print_exc()
        print(f"bt-bench: {text}", file=sys.stderr, flush=True)
    except OSError:  # stderr itself may be what fails
        sys.stderr = None
    sys.exit(code)
