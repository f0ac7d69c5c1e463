"""The run that a command uses if it is given none."""

from __future__ import annotations

import os
from pathlib import Path

from bt_bench.cli.exits import say
from bt_bench.cli.loading import reports_folder


def latest_run(reports: Path | None = None) -> str:
    """Return the folder of the latest run, and print it on stderr.

    Args:
        reports: the folder of runs; `None`: the one in the environment or the settings.

    Raises:
        UsageError: if there is no run.
    """
    from bt_bench.results import RunFolder

    named = os.environ.get("BT_BENCH_REPORTS")
    folder = reports_folder(reports or (Path(named) if named else None))
    run = str(RunFolder.latest(folder).path)
    say(f"{run} is the latest run")
    return run
