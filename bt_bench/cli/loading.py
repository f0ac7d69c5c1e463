"""Loading by command-line values: configs, variants and operations, folders of kernels and runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bt_bench.base import joined, names_given
from bt_bench.cli.exits import say

if TYPE_CHECKING:
    from bt_bench.config import SweepSpec
    from bt_bench.results import RunFolder


def kernel_folders(
    folders: Sequence[Path] | None, spec: SweepSpec | None = None, start: Path | None = None
) -> list[Path]:
    """Return folders of variants by flag or environment, else the config's, else the project's.

    Args:
        folders: folders by flag or environment.
        spec: the config.
        start: a folder of the project; `None`: the working directory.
    """
    from bt_bench import config

    return config.kernel_folders(folders, () if spec is None else spec.kernels, start)


def reports_folder(reports: Path | None = None) -> Path:
    """Return the folder of reports: the given one, else the one in the settings, else `reports`."""
    from bt_bench import config

    return config.reports_folder(reports)


def latest_run(reports: Path | None = None) -> str:
    """Return the folder of the latest run, and print it on stderr.

    Args:
        reports: the folder of runs; `None`: the one in the environment or the settings.

    Raises:
        UsageError: if there is no run.
    """
    from bt_bench.results import RunFolder

    named = os.environ.get("BT_BENCH_REPORTS")
    run = str(RunFolder.latest(reports_folder(reports or (Path(named) if named else None))).path)
    say(f"{run} is the latest run")
    return run


def new_folder(name: str, reports: Path | None, out: Path | None) -> RunFolder:
    """Make the folder of a run, a gate or a profile.

    Args:
        name: begin of the folder's name.
        reports: where to make it; `None`: see `reports_folder`.
        out: the folder itself, which must not exist; `None`: one with a new name.

    Raises:
        UsageError: if it cannot be made.
    """
    from bt_bench.results import RunFolder

    if out is not None:
        return RunFolder.create_exact(out)
    return RunFolder.create(reports_folder(reports), name)


def load_spec(
    config: str,
    *,
    suite: str | None = None,
    variants: str | None = None,
    operations: str | None = None,
    select: Sequence[str] | None = None,
    overrides: Sequence[str] | None = None,
) -> SweepSpec:
    """Load the config, with the options of the command line applied."""
    from bt_bench.config import load_config

    return load_config(
        config,
        overrides=overrides or (),
        variants=names_given("--variants", variants),
        operations=names_given("--operations", operations),
        suite=suite,
        select=joined(select),
    )
